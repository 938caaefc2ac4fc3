"""Order sums with one operand along rows and another along columns by rows.

Before: `t += A[i,j] * B[j,i]`. After: `T[i] += A[i,j] * B[j,i];  t += T[i]`. No order of the loops follows both operands'
memory; with results along one of the two indices the other operand is transposed in registers
(polyker.codegen.llvm.access.transpose). Where there are many results, too, operands are used again, and packed.
"""

from __future__ import annotations

from itertools import permutations
from math import prod

from polyker.cost.measure import Layouts, accesses
from polyker.ir.dtypes import i64
from polyker.ir.expr import Expr, IndexExpr
from polyker.ir.quasi_affine import add, is_quasi_affine, lit
from polyker.ir.typed import TypedProgram, TypedStatement
from polyker.poly.boxes import corners
from polyker.poly.isl import read_set
from polyker.poly.scop import image
from polyker.rewrite.core.accumulate import starts_fresh
from polyker.rewrite.core.fresh import Fresh
from polyker.rewrite.core.reindex import replaced_after
from polyker.rewrite.reductions.split_sum import start_and_fold
from polyker.structs import replace

# Least extent of either index (experience value); most bytes of the rows' sums: three quarters of a second cache of 1 MiB.
MIN_SUM_EXTENT, MAX_ROW_SUM_BYTES = 32, 3 << 18


def sum_crossing(program: TypedProgram, layout: Layouts) -> TypedProgram:
    """Return the program with such reductions by way of the sums of their rows."""
    fresh = Fresh(program)

    def change(before: TypedStatement | None, node: TypedStatement) -> list[TypedStatement] | None:
        crossed = _crossed(program, node, layout) if before is not None else []
        made = _by_rows(fresh, node, crossed) if crossed and starts_fresh(program, before, node) else None
        if made is None or before is None:
            return None
        start, rows, total = made
        return [start, rows, before, total]

    return fresh.finish(replaced_after(program.body, change))


def _by_rows(
    fresh: Fresh, statement: TypedStatement, crossed: list[tuple[str, str]]
) -> tuple[TypedStatement, TypedStatement, TypedStatement] | None:
    """Return the start of the rows' sums, the rows' sums, and the sum of these; None where it is not worth it."""
    box = corners(read_set(statement.domain))
    if box is None:
        return None
    ends = dict(zip(statement.iterators, box, strict=True))
    long = {i for i, (low, high) in ends.items() if high - low + 1 >= MIN_SUM_EXTENT}
    along = next((i for i, j in crossed if i in long and j in long), None)
    if along is None or long - set(statement.reduced):
        return None  # vectors may run along the results
    names = tuple(i for i in statement.iterators if i not in statement.reduced or i == along)
    counts = [ends[i][1] - ends[i][0] + 1 for i in names]
    if prod(counts) * statement.acc.itemsize > MAX_ROW_SUM_BYTES:
        return None
    extents = tuple(map(lit, counts))
    rows = fresh.temporary("rows", statement.acc, extents)
    places: tuple[Expr, ...] = tuple(add(IndexExpr(i, i64), lit(-ends[i][0])) for i in names)
    start, total = start_and_fold(fresh, statement, rows, names, image(fresh.program, statement, names), places, along)
    rest = tuple(i for i in statement.reduced if i != along)
    return start, replace(statement, target=rows, subscripts=places, reduced=rest, defines=None), total


def _crossed(program: TypedProgram, statement: TypedStatement, layout: Layouts) -> list[tuple[str, str]]:
    """Return the pairs of reduced indices of which one operand is contiguous along the first and strides over the second, and
    another one the other way round."""
    if statement.in_order or len(statement.reduced) < 2:
        return []
    if not all(is_quasi_affine(s) for r in statement.reads() for s in r.subscripts):
        return []
    found = [a for a in accesses(program, statement, layout) if a.read is not None and a.read.pad is None]
    along = {
        (i, j) for i, j in permutations(statement.reduced, 2) for a in found if abs(a.stride(i)) == 1 < abs(a.stride(j))
    }
    return [(i, j) for i, j in permutations(statement.reduced, 2) if {(i, j), (j, i)} <= along]
