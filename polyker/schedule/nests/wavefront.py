"""Build the skewed nest of a recurrence along every loop: a wavefront over rows.

    A[i,j] = A[i-1,j+1] + A[i,j-1]      for i.tile: for w = j + 2i: unroll i.point: A[i, w-2i] = …

One row after another each element waits for the one before it. Skewed so that no element depends on another of the same wave, the
rows of a tile are chains of their own, that the processor works on at the same time; what a chain leaves for the next one is
kept in registers (see polyker.codegen.passes.scalar_replacement). Where a row of the tile has not begun yet or has ended, loops
stay serial.
"""

from __future__ import annotations

import islpy as isl

from polyker.cost.measure import MeasuredStatement
from polyker.cost.plan import MAX_TILE_OPERATIONS, values
from polyker.ir.decision import Decision
from polyker.ir.dtypes import i64
from polyker.ir.expr import IndexExpr, Literal
from polyker.ir.quasi_affine import add, floordiv, is_quasi_affine, lit, mod, print_affine, scale
from polyker.ir.typed import TypedProgram
from polyker.poly.boxes import is_free
from polyker.poly.isl import int_val, read_set
from polyker.poly.scop import parameters
from polyker.poly.symbolic import bounds_of
from polyker.schedule.nests.nest import Nest, band, offset, shared
from polyker.schedule.nests.scan import INDEPENDENT_CHAINS
from polyker.schedule.tree.nodes import Filter, Leaf, MemberKind, Sequence

# Most elements that a row may run behind the previous one: the skewed ends are computed by serial loops (experience value).
MAX_ROW_SKEW = 8


def wave_nest(program: TypedProgram, measured: MeasuredStatement, distances: isl.Set) -> tuple[Nest, Decision] | None:
    """Return the nest of a statement by waves over its two innermost loops, and what was chosen; None where there is none.

    `distances`: those of its instances that depend on each other, in one iteration of the loops around it.
    """
    statement = measured.statement
    inner = statement.iterators[statement.outer :]
    if len(inner) < 2:
        return None
    row, along = inner[-2:]
    skew = _skew(distances, statement.outer, len(statement.iterators))
    domain = read_set(statement.domain).intersect_params(read_set(program.context))
    if (
        skew is None
        or domain.is_empty()
        or not all(is_free(domain, statement.iterators.index(i)) for i in (row, along))
    ):
        return None
    (lo, last), (left, right) = (bounds_of(domain, statement.iterators.index(i), program) for i in (row, along))
    if not isinstance(lo, Literal) or not all(map(is_quasi_affine, (last, left, right))):
        return None
    least, size = int(lo.value.real), sum(1 for _ in values(statement.expr))
    count = min(INDEPENDENT_CHAINS, measured.extent(row), max(1, MAX_TILE_OPERATIONS // size))
    if count < 2 or measured.extent(along) <= 4 * skew * count:
        return None
    here = (statement,)
    wave = add(IndexExpr(along, i64), scale(skew, offset(row, least)))
    first = scale(skew * count, floordiv(offset(row, least), count))  # the wave's lead in the first row of the tile
    begun = add(first, left, lit(skew * (count - 1)))
    ended = add(first, right)
    end = add(scale(count, floordiv(add(last, lit(1 - least)), count)), lit(least))
    text = {n: print_affine(e) for n, e in (("wave", wave), ("begun", begun), ("ended", ended))}
    whole = f"{row} < {print_affine(end)}"
    parts = (
        (f"{whole} and {text['wave']} < {text['begun']}", MemberKind.SERIAL),
        (f"{whole} and {text['begun']} <= {text['wave']} <= {text['ended']}", MemberKind.UNROLL),
        (f"{whole} and {text['wave']} > {text['ended']} and {text['wave']} >= {text['begun']}", MemberKind.SERIAL),
    )
    tuple_ = f"{statement.name}[{', '.join(statement.iterators)}]"
    children = []
    rest = domain
    for condition, kind in parts:
        part = domain.intersect(read_set(f"{parameters(program)}{{ {tuple_} : {condition} }}"))
        rest = rest.subtract(part)
        point = shared(
            here, mod(offset(row, least), count), f"{row}.point", kind, count if kind is MemberKind.UNROLL else 0
        )
        tree = band([shared(here, wave, f"{along}.wave"), point], Leaf())
        children.append(Filter((statement.name,), tree, ((statement.name, str(part)),)))
    if not rest.is_empty():
        tree = band([shared(here, IndexExpr(i, i64), i) for i in (row, along)], Leaf())
        children.append(Filter((statement.name,), tree, ((statement.name, str(rest)),)))
    outside = [shared(here, IndexExpr(i, i64), i) for i in inner[:-2]]
    outside.append(shared(here, floordiv(offset(row, least), count), f"{row}.tile"))
    chosen = f"depends on itself in every loop; {count} of {row} side by side, each {skew} of {along} behind"
    note = Decision(statement.name, chosen)
    return Nest(here, band(outside, Sequence(tuple(children)))), note


def _skew(distances: isl.Set, outer: int, dims: int) -> int | None:
    """Return by how many elements a row has to run behind the one before, None where nothing bounds it."""
    for d in range(outer, dims - 2):
        distances = distances.fix_val(isl.dim_type.set, d, int_val(0))
    distances = distances.union(distances.neg())  # whichever of the two is the first
    rows = distances.lower_bound_val(isl.dim_type.set, dims - 2, int_val(1))
    if rows.is_empty():
        return 1
    least = rows.dim_min_val(dims - 1)
    skew = max(1, 1 - least.get_num_si()) if least.is_int() else MAX_ROW_SKEW + 1
    return skew if skew <= MAX_ROW_SKEW else None
