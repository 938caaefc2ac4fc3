"""Split fused statements into independent row blocks with redundant halo rows (overlapped tiling).

    H[i,j] = X[i,j] + X[i,j+1]                 H[p,i,j] = X[c*p+i,j] + X[c*p+i,j+1]   for p in 0:P, i in 0:c+2
    O[i,j] = H[i,j] + H[i+2,j]          ->     O[c*p+i,j] = H[p,i,j] + H[p,i+2,j]     for p in 0:P, i in 0:c

So several threads run windows over rows that are kept no longer than they are needed: one after another they carry dependences
from row to row.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from polyker.ir.dtypes import i64
from polyker.ir.expr import Expr, IndexExpr, Literal, Read, replace_parts
from polyker.ir.quasi_affine import add, coefficients, indices_of, lit, scale, substitute
from polyker.ir.typed import Role, TypedLoop, TypedProgram, TypedStatement
from polyker.poly.boxes import ends
from polyker.poly.isl import read_map, read_set
from polyker.poly.scop import domain_text
from polyker.rewrite.core.fresh import Fresh
from polyker.structs import replace

# Least rows of a block for each redundant (halo) row (experience value).
MIN_ROWS_PER_HALO_ROW = 8


def row_blocks(program: TypedProgram, blocks: int) -> TypedProgram | None:
    """Return the program by so many blocks of the results' rows; None where its statements do not go row by row.

    That is where a statement stands in a loop, reduces (in an order that the blocks might change), reads what it writes or where
    a gather tells, needs all rows of a temporary, or more rows than `MIN_ROWS_PER_HALO_ROW` allows; or where none is computed
    twice.
    """
    statements = [s for s in program.body if isinstance(s, TypedStatement)]
    if program.sizes or len(statements) < 2 or any(isinstance(n, TypedLoop) for n in program.body):
        return None
    found = _Rows.of(program, statements)
    if found is None:
        return None
    size, twice = -(-found.count // blocks), max(last - first for _, first, last in found.needed.values())
    if not twice or size < MIN_ROWS_PER_HALO_ROW * twice:
        return None
    return _blocked(program, statements, found, blocks, size)


class _Rows(Struct):
    """What a block of `count` rows of the results needs, from row 0 on.

    `needed`: tensor -> the dimension of its rows, and the first and, for a block of one row, the last row of it. `iterators`: of
    each statement that is split into blocks, that of its rows, and the row of its target less that.
    """

    count: int
    needed: dict[str, tuple[int, int, int]]
    iterators: dict[str, tuple[str, int]]

    @staticmethod
    def of(program: TypedProgram, statements: list[TypedStatement]) -> _Rows | None:
        """Return what the statements need, the last first; None where they do not go row by row."""
        rows: _Rows | None = None
        whole: set[str] = set()
        for s in reversed(statements):
            tensor = program.tensor(s.target)
            if s.op != "set" or s.is_ordered or s.prefetch or tensor.role is Role.INOUT:
                return None
            if rows is None or (tensor.role is Role.OUTPUT and s.target not in rows.needed):
                rows = _results(program, s, rows)
                if rows is None:
                    return None
            if s.target in whole or s.target not in rows.needed:
                # All of it is there before the first block.
                whole |= {r.tensor for r in s.reads()}
                continue
            if not rows.take(program, s, whole):
                return None
        return None if rows is None or whole & set(rows.needed) else rows

    def take(self, program: TypedProgram, statement: TypedStatement, whole: set[str]) -> bool:
        """Note which rows a statement of a block needs; return whether it can be split."""
        dimension, first, last = self.needed[statement.target]
        found = coefficients(statement.subscripts[dimension]) or {}
        names = [n for n in found if n]
        if len(names) != 1 or found[names[0]] != 1 or names[0] not in statement.iterators:
            return False
        row, shift = names[0], found.get("", 0)
        if any(row in indices_of(s) for n, s in enumerate(statement.subscripts) if n != dimension):
            return False
        self.iterators[statement.name] = (row, shift)
        ranges = _ranges(statement)
        for read in statement.reads():
            tensor = program.tensor(read.tensor)
            if tensor.role is Role.INPUT:
                continue
            places = [n for n, s in enumerate(read.subscripts) if row in indices_of(s)]
            if not places:
                whole.add(read.tensor)
                continue
            offsets = _offsets(read.subscripts[places[0]], row, ranges)
            if len(places) > 1 or offsets is None or read.pad is not None:
                return False
            low, high = first - shift + offsets[0], last - shift + offsets[1]
            at, lo, hi = self.needed.get(read.tensor, (places[0], low, high))
            if at != places[0] or (tensor.role is not Role.TEMPORARY and (low, high) != (lo, hi)):
                return False
            self.needed[read.tensor] = (at, min(lo, low), max(hi, high))
        return True


def _results(program: TypedProgram, statement: TypedStatement, rows: _Rows | None) -> _Rows | None:
    """Return the rows with those of a result that nothing later reads; None where it has not as many as the other results."""
    for dimension, subscript in enumerate(statement.subscripts):
        extent = program.tensor(statement.target).shape[dimension]
        if indices_of(subscript) and isinstance(extent, Literal):
            count = int(extent.value.real)
            if rows is None:
                return _Rows(count, {statement.target: (dimension, 0, 0)}, {})
            if count == rows.count:
                rows.needed[statement.target] = (dimension, 0, 0)
                return rows
    return None


def _ranges(statement: TypedStatement) -> dict[str, tuple[int, int]]:
    domain = read_set(statement.domain)
    spans = ((i, ends(domain, d)) for d, i in enumerate(statement.iterators))
    return {i: span for i, span in spans if span is not None}


def _offsets(subscript: Expr, row: str, ranges: Mapping[str, tuple[int, int]]) -> tuple[int, int] | None:
    """Return the least and the greatest of a subscript less the row; None where it is no such sum."""
    found = coefficients(subscript)
    if found is None or found.get(row) != 1:
        return None
    low = high = found.get("", 0)
    for name, factor in found.items():
        if name in ("", row):
            continue
        if name not in ranges:
            return None
        span = sorted(factor * e for e in ranges[name])
        low, high = low + span[0], high + span[1]
    return low, high


def _blocked(
    program: TypedProgram, statements: list[TypedStatement], rows: _Rows, blocks: int, size: int
) -> TypedProgram:
    fresh, labels = Fresh(program), dict(program.labels)
    renamed: dict[str, str] = {}
    for name, (dimension, first, last) in rows.needed.items():
        tensor = program.tensor(name)
        if tensor.role is Role.TEMPORARY:
            extents = (size + last - first if d == dimension else e for d, e in enumerate(tensor.shape))
            shape = (lit(blocks), *(lit(e) if isinstance(e, int) else e for e in extents))
            renamed[name] = fresh.temporary(tensor.label, tensor.dtype, shape)
    body = []
    for s in statements:
        if s.name not in rows.iterators:
            body.append(s)
            continue
        block = fresh.iterator()
        labels[block] = f"{labels.get(rows.iterators[s.name][0], rows.iterators[s.name][0])}.block"
        body.append(_in_blocks(s, rows, renamed, block, blocks, size))
    kept = tuple(t for t in program.tensors if t.name not in renamed)
    found = fresh.finish(tuple(body))
    return replace(found, tensors=(*kept, *fresh.tensors), labels=tuple(labels.items()))


def _in_blocks(
    statement: TypedStatement, rows: _Rows, renamed: Mapping[str, str], block: str, blocks: int, size: int
) -> TypedStatement:
    """Return a statement with its rows counted in each block, of tensors that have a part for each."""
    row, shift = rows.iterators[statement.name]
    _, first, last = rows.needed[statement.target]
    begin = add(scale(size, IndexExpr(block, i64)), lit(first - shift))
    moved = {row: add(begin, IndexExpr(row, i64))}

    def element(tensor: str, subscripts: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """Return the subscripts in the tensor of a block: the row less the first one there."""
        at, start, _ = rows.needed[tensor]
        back = {row: add(IndexExpr(row, i64), lit(first - shift - start))}
        inside = (substitute(s, back if d == at else moved) for d, s in enumerate(subscripts))
        return (IndexExpr(block, i64), *inside)

    def changed(expr: Expr) -> Expr | None:
        match expr:
            case IndexExpr(name=name) if name == row:
                return moved[row]
            case Read(tensor=tensor, subscripts=subscripts) if tensor in renamed:
                return replace(expr, tensor=renamed[tensor], subscripts=element(tensor, subscripts))
            case _:
                return None

    iterators = (block, *statement.iterators)
    here = ", ".join(iterators)
    conditions = f"0 <= {block} < {blocks} and 0 <= {row} < {size + last - first}"
    absolute = ", ".join(f"{size} * {block} + {row} + {first - shift}" if i == row else i for i in statement.iterators)
    relation = read_map(f"{{ {statement.name}[{here}] -> {statement.name}[{absolute}] : {conditions} }}")
    domain = relation.intersect_range(read_set(statement.domain)).domain()
    target, subscripts = statement.target, statement.subscripts
    return replace(
        statement,
        iterators=iterators,
        domain=domain_text(domain, statement.name),
        target=renamed.get(target, target),
        subscripts=element(target, subscripts)
        if target in renamed
        else tuple(substitute(s, moved) for s in subscripts),
        expr=replace_parts(statement.expr, changed),
    )
