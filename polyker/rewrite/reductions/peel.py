"""Peel the last results along a vector, which fill few of its lanes, into a reduction of their own.

Before, over 65 columns: `C[i,j] += A[i,k] * B[k,j]`, a fifth vector of which one lane is of use. After: the same for j < 64,
by whole vectors; and for j = 64, where the cheapest vectors may run along the reduction or along the rows. Results and operands
that lie beyond the second cache are fetched once more for it.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from polyker.cost.choose import choose
from polyker.cost.measure import MeasuredStatement, MemoryAccess
from polyker.cost.memory import beyond
from polyker.cost.plan import TilePlan, vector_lanes
from polyker.cost.table import GAIN_OF_KIND
from polyker.ir.typed import TypedProgram, TypedStatement
from polyker.machine.model import Target
from polyker.poly.boxes import corners
from polyker.poly.isl import Set, dim, read_set
from polyker.poly.scop import domain_text, values_taken
from polyker.rewrite.core.accumulate import started_apart
from polyker.rewrite.core.fresh import Fresh
from polyker.structs import replace

# Greatest share of a vector's lanes that the last results fill (chosen).
MAX_FILLED_LANES_SHARE = 1 / 2

# A reduction, the start of its elements, and its tile.
PlannedPart = tuple[TypedStatement, TypedStatement | None, TilePlan]


class Peeled(Struct, frozen=True):
    """The reduction of the whole vectors and that of the rest, of `count` values of the vector's `iterator`."""

    whole: PlannedPart
    rest: PlannedPart
    iterator: str
    count: int


class TileSearch(Struct, frozen=True):
    """What the tiles of a reduction's parts are chosen by: the iterators `free` of its result, and how a part is measured."""

    free: tuple[str, ...]
    target: Target
    measure: Callable[[TypedStatement], MeasuredStatement]


def peeled(
    program: TypedProgram,
    fresh: Fresh,
    measured: MeasuredStatement,
    plan: TilePlan,
    start: TypedStatement | None,
    tiles: TileSearch,
) -> Peeled | None:
    """Return the two reductions that stand for one, None where that does not pay. `plan`: the tile of the one."""
    statement, vector, target = measured.statement, plan.vector, tiles.target
    if vector in statement.reduced:  # whole vectors of results might have been cheaper
        vector = next((i for i in tiles.free if measured.write.stride(i) == 1), None)
    if program.sizes or statement.outer or statement.in_order or vector is None:
        return None
    lanes = vector_lanes(measured, target, vector)
    least, extent = measured.bounds[vector]
    count = (extent or 0) % lanes
    if least is None or extent is None or extent < lanes or not 0 < count <= MAX_FILLED_LANES_SHARE * lanes:
        return None
    domain = read_set(statement.domain)
    if corners(domain) is None:
        return None
    place, end = statement.iterators.index(vector), least + extent - count
    whole = _with(statement, domain.upper_bound_val(dim.set, place, end - 1), statement.name)
    rest = _with(statement, domain.lower_bound_val(dim.set, place, end), "")
    write = measured.write
    results = measured.footprint(write)
    measures = [tiles.measure(s) for s in (whole, rest)]
    # What is left of the cycles that the two may take to pay; the model errs on each.
    left = (1 - 3 * GAIN_OF_KIND) * plan.cost * measured.points
    if results * write.itemsize > target.cache(2).size:
        left -= 2 * target.memory.random_line * results * count / extent
    once = plan.vector == vector and plan.chunks * plan.lanes >= extent
    reads = (a for a in measured.accesses if a.read is not None)
    left -= sum(_fetched_again(a, vector, once, measured, target) for a in reads)
    plans: list[TilePlan] = []
    for m in measures:
        if left >= 0:
            plans.append(choose(m, tiles.free, statement.reduced, target, limit=left / max(1, m.points)))
            left -= plans[-1].cost * m.points
    if left < 0:
        return None
    rest = _with(rest, read_set(rest.domain), fresh.statement())
    if start is None:
        return Peeled((whole, None, plans[0]), (rest, None, plans[1]), vector, count)
    kept = statement.kept
    # No more than these: of iterators without bounds any element of O[2*w+r] would be one of the whole vectors.
    lines = values_taken(program, whole, kept)
    first, second = started_apart(program, fresh, start, whole, lines)
    return Peeled((whole, first, plans[0]), (rest, second, plans[1]), vector, count)


def _fetched_again(access: MemoryAccess, vector: str, once: bool, measured: MeasuredStatement, target: Target) -> float:
    """Return the cycles to fetch the lines of an operand that both the whole vectors and the rest have a part of.

    `once`: a tile has all of its vectors, and passes what does not move with them but once. Of that the tiles' costs count the
    bytes, but not that elements may lie in a line each.
    """
    second, line = target.cache(2).size, target.caches[0].line
    size = measured.footprint(access) * access.itemsize
    if access.stride(vector):
        return measured.footprint(access, {vector: 1}) * line * beyond(target, size) if size > second else 0.0
    lines = measured.footprint(access) * min([line, *(abs(s) * access.itemsize for s in access.strides.values())])
    return lines * beyond(target, lines) if once and size <= second < lines else 0.0


def _with(statement: TypedStatement, domain: Set, name: str) -> TypedStatement:
    return replace(statement, name=name, domain=domain_text(domain, name))
