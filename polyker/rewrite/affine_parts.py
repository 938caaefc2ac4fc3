"""Subscripts that wrap around, stop at an edge or turn back there become affine, part by part of the domain.

Before: `O[i] = X[i+7; pad=wrap]` of 100 cells. After: `O[i] = X[i+7]` for i < 93 and `O[i] = X[i-93]` for the others; in the
same way `X[(i+7) % 100]`, `pad=edge` and `pad=reflect`. Affine reads are whole vectors where the others are gathers. What is
left of a domain beside the large parts is few cells, and stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from math import prod

from polyker.ir.expr import Call, Expr, Literal, Read, reads_in, transform, walk
from polyker.ir.quasi_affine import add, is_quasi_affine, lit, print_affine, scale
from polyker.ir.typed import TypedNode, TypedProgram, TypedStatement, replaced
from polyker.poly.boxes import ends
from polyker.poly.isl import Map, Set, dim, read_map, read_set
from polyker.poly.scop import domain_text
from polyker.rewrite.fresh import Fresh

# Parts of one subscript, and of one statement, at most; a domain that has a smaller part of all instances is not cut further.
MOST, STATEMENTS, SMALL = 3, 9, 1 / 16


@dataclass(frozen=True, slots=True)
class _Piece:
    """Where a subscript `e` is affine: from `low` to `high` it is `sign * e + shift`."""

    low: int
    high: int
    sign: int
    shift: int


@dataclass(frozen=True, slots=True)
class _Bent:
    """A subscript that is affine by pieces: what is taken modulo a number, or a dimension of a padded read."""

    node: Expr
    dimension: int | None
    subscript: Expr
    pieces: tuple[_Piece, ...]

    def on(self, piece: _Piece, expr: Expr) -> Expr:
        """Return an expression as it is where the subscript lies in a piece."""
        straight = add(scale(piece.sign, self.subscript), lit(piece.shift))

        def change(node: Expr) -> Expr:
            if node != self.node:
                return node
            if not isinstance(node, Read):
                return straight
            place = self.dimension
            return replace(node, subscripts=tuple(straight if d == place else s for d, s in enumerate(node.subscripts)))

        return transform(expr, change)


def affine_parts(program: TypedProgram) -> TypedProgram:
    """Return the program with each statement that only sets cells in parts where what it reads is affine."""
    fresh = Fresh(program)

    def change(statement: TypedStatement) -> Iterable[TypedNode]:
        return parts_of(program, fresh, statement)

    return fresh.finish(replaced(program.body, change))


def parts_of(program: TypedProgram, fresh: Fresh, statement: TypedStatement) -> list[TypedStatement]:
    """Return the statements that stand for one; itself where nothing is gained."""
    bends = not program.sizes and any(_may_bend(e) for e in walk(statement.expr))
    if not bends or statement.op != "set" or statement.reads_own:
        return [statement]
    domain = read_set(statement.domain).reset_tuple_id()
    least, left, found = SMALL * _points(domain), [(domain, statement.expr)], list[tuple[Set, Expr]]()
    while left:
        domain, expr = left.pop(0)
        large = _points(domain) >= least and len(found) + len(left) < STATEMENTS
        bent = next(_bent(program, statement, expr, domain), None) if large else None
        if bent is None:
            found.append((domain, _inside(program, statement, expr, domain)))
            continue
        cells = _cells(statement, bent.subscript)
        for piece in bent.pieces:
            part = domain.intersect(cells.intersect_range(read_set(f"{{ [{piece.low}:{piece.high}] }}")).domain())
            if not part.is_empty():
                left.append((part.coalesce(), bent.on(piece, expr)))
    names = [statement.name, *(fresh.statement() for _ in found[1:])]
    return [
        replace(statement, name=name, domain=domain_text(part, name), expr=expr)
        for name, (part, expr) in zip(names, found, strict=True)
    ]


def _may_bend(expr: Expr) -> bool:
    return (isinstance(expr, Read) and expr.pad is not None and expr.pad.mode != "constant") or (
        isinstance(expr, Call) and expr.op == "mod"
    )


def _cells(statement: TypedStatement, subscript: Expr) -> Map:
    return read_map(f"{{ [{', '.join(statement.iterators)}] -> [{print_affine(subscript)}] }}")


def _points(domain: Set) -> int:
    """Return how many points the box around a domain has; 0 where there are none, or it has no end."""
    found = [ends(domain, d) for d in range(domain.dim(dim.set))]
    return prod(0 if e is None else e[1] - e[0] + 1 for e in found)


def _bent(program: TypedProgram, statement: TypedStatement, expr: Expr, domain: Set) -> Iterator[_Bent]:
    """Yield what is not affine on a domain, and is on a few parts of it."""
    for read in reads_in(expr):
        for d, subscript in enumerate(read.subscripts):
            if not is_quasi_affine(subscript):
                continue
            for node in walk(subscript):
                match node:
                    case Call(op="mod", args=(inner, Literal(value=value))) if not isinstance(inner, Literal):
                        size = int(value.real)
                        reach = ends(domain.apply(_cells(statement, inner)), 0)
                        pieces = None if reach is None else _pieces("wrap", *reach, size)
                        if pieces:
                            yield _Bent(node, None, inner, pieces)
            extent = _extent(program, read, d)
            if read.pad is None or extent is None:
                continue
            reach = ends(domain.apply(_cells(statement, subscript)), 0)
            if reach is not None and not 0 <= reach[0] <= reach[1] < extent:
                pieces = _pieces(read.pad.mode, *reach, extent)
                if pieces:
                    yield _Bent(read, d, subscript, pieces)


def _extent(program: TypedProgram, read: Read, dimension: int) -> int | None:
    extent = program.tensor(read.tensor).shape[dimension]
    return int(extent.value.real) if isinstance(extent, Literal) and extent.value.real > 0 else None


def _pieces(mode: str, low: int, high: int, size: int) -> tuple[_Piece, ...] | None:
    """Return where a subscript from `low` to `high` is affine, None where that is too often."""
    last = size - 1
    match mode:
        case "edge":
            found = [_Piece(min(low, 0), -1, 0, 0), _Piece(0, last, 1, 0), _Piece(size, max(high, size), 0, last)]
        case "wrap":
            turns = range(low // size, high // size + 1)[: MOST + 1]
            found = [_Piece(q * size, q * size + last, 1, -q * size) for q in turns]
        case "reflect" if last > 0:
            turns = range(low // last - 1, high // last + 1)[: MOST + 2]  # an even one has both of its ends
            found = [
                _Piece(k * last + k % 2, (k + 1) * last - k % 2, -1 if k % 2 else 1, last * (k + 1 if k % 2 else -k))
                for k in turns
            ]
        case _:
            return None
    found = [p for p in found if p.low <= p.high and p.low <= high and low <= p.high]
    return tuple(found) if len(found) <= MOST and found[0].low <= low and found[-1].high >= high else None


def _inside(program: TypedProgram, statement: TypedStatement, expr: Expr, domain: Set) -> Expr:
    """Return an expression without padding where no read leaves its tensor."""

    def change(node: Expr) -> Expr:
        if not isinstance(node, Read) or node.pad is None or not all(map(is_quasi_affine, node.subscripts)):
            return node
        for d, subscript in enumerate(node.subscripts):
            extent, reach = _extent(program, node, d), ends(domain.apply(_cells(statement, subscript)), 0)
            if extent is None or reach is None or not 0 <= reach[0] <= reach[1] < extent:
                return node
        return replace(node, pad=None)

    return transform(expr, change)
