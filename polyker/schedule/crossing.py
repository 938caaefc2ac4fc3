"""Sums in which one operand runs along rows and another along columns are taken row by row.

Before: `t += A[i,j] * B[j,i]`. After: `T[i] += A[i,j] * B[j,i];  t += T[i]`. No order of the loops follows both operands'
memory; with results along one of the two indices the other operand is transposed in registers
(polyker.codegen.llvm_transpose).
"""

from __future__ import annotations

from dataclasses import replace

from polyker.ir.dtypes import i64
from polyker.ir.expr import Expr, Index, Read
from polyker.ir.quasi_affine import add, is_quasi_affine, lit
from polyker.ir.typed import TypedNode, TypedProgram, TypedStatement
from polyker.poly.boxes import corners
from polyker.poly.isl import read_map, read_set
from polyker.poly.scop import domain_text
from polyker.rewrite.accumulate import starts_fresh
from polyker.rewrite.fresh import Fresh, identity
from polyker.schedule.measure import Layouts, accesses

# Values of either index, at least.
LONG = 32


def sum_crossing(program: TypedProgram, layout: Layouts) -> TypedProgram:
    """Return the program with such reductions by way of the sums of their rows."""
    fresh, body = Fresh(program), list[TypedNode]()
    for node in program.body:
        before = body[-1] if body else None
        made = None
        if isinstance(node, TypedStatement) and isinstance(before, TypedStatement) and len(node.reduced) > 1:
            fits = _crossed(program, node, layout, {}) is not None and starts_fresh(program, before, node)
            made = _by_rows(program, fresh, node, layout) if fits else None
        if made is None or before is None:
            body.append(node)
        else:
            start, rows, total = made
            body[-1:] = [start, rows, before, total]
    return fresh.finish(tuple(body))


def _by_rows(
    program: TypedProgram, fresh: Fresh, statement: TypedStatement, layout: Layouts
) -> tuple[TypedStatement, TypedStatement, TypedStatement] | None:
    """Return the start of the rows' sums, the rows' sums, and the sum of these; None where no operands cross."""
    if statement.in_order or not all(is_quasi_affine(s) for r in statement.reads() for s in r.subscripts):
        return None
    box = corners(read_set(statement.domain))
    if box is None:
        return None
    ends = dict(zip(statement.iterators, box, strict=True))
    along = _crossed(program, statement, layout, {i: high - low + 1 for i, (low, high) in ends.items()})
    if along is None:
        return None
    names = tuple(i for i in statement.iterators if i not in statement.reduced or i == along)
    extents = tuple(lit(ends[i][1] - ends[i][0] + 1) for i in names)
    rows = fresh.temporary("rows", statement.acc, extents)
    places: tuple[Expr, ...] = tuple(add(Index(i, i64), lit(-ends[i][0])) for i in names)
    onto = read_map(f"{{ {statement.name}[{', '.join(statement.iterators)}] -> [{', '.join(names)}] }}")
    cells, first, last = read_set(statement.domain).apply(onto), fresh.statement(), fresh.statement()
    zero = identity(statement.op, statement.acc)
    start = TypedStatement(first, names, 0, domain_text(cells, first), rows, places, "set", zero, statement.acc)
    rest = tuple(i for i in statement.reduced if i != along)
    total = replace(
        statement,
        name=last,
        iterators=names,
        domain=domain_text(cells, last),
        expr=Read(rows, places, dtype=statement.acc),
        reduced=(along,),
    )
    return start, replace(statement, target=rows, subscripts=places, reduced=rest, defines=None), total


def _crossed(program: TypedProgram, statement: TypedStatement, layout: Layouts, extents: dict[str, int]) -> str | None:
    """Return the index along whose values rows are summed first: the other one goes along an operand that strides over it.

    `extents`: how many values the iterators have; long ones are those that are not in it.
    """
    found = [a for a in accesses(program, statement, layout) if a.read is not None and a.read.pad is None]
    long = [i for i in statement.reduced if extents.get(i, LONG) >= LONG]
    if any(extents.get(i, 0) >= LONG for i in statement.iterators if i not in statement.reduced):
        return None  # vectors may run along the results
    for i in long:
        for j in long:
            along, across = (
                [a for a in found if abs(a.stride(x)) == 1 and abs(a.stride(y)) > 1] for x, y in ((i, j), (j, i))
            )
            if i != j and along and across:
                return i
    return None
