"""Nests of statements whose results do not fit in the caches: written past them, a whole line at a time."""

from __future__ import annotations

from math import prod

from polyker.ir.expr import Index
from polyker.ir.quasi_affine import is_quasi_affine
from polyker.poly.boxes import corners
from polyker.poly.isl import read_set
from polyker.schedule.measure import FAR, Measured, MemoryAccess
from polyker.schedule.nest import Nest, band, offset, shared, tile_member
from polyker.schedule.plan import Plan
from polyker.schedule.tree import Kind, Leaf
from polyker.target.model import Target

# A row of the result that is worth its own search for the first aligned cell, and two partial vectors, in bytes.
SHORTEST = 1280
# The same where all that is touched is at most so much more than the result: then lines that are fetched to be overwritten cost
# little, and parts of lines as much.
SHORTEST_ALONE, ALONE = 8192, 1.25


def streams(measured: Measured, plan: Plan, target: Target) -> bool:
    """Return whether the result of a statement is better written past the caches.

    It is where all that the statement touches exceeds the last cache, so that the result will not be there when it is read
    next, or will have driven out what else is read; a result that is small beside the cache stays in it all the same. The
    result has to be defined row by row of neighbouring cells, and not be read itself.
    """
    statement, vector = measured.statement, plan.vector
    write = measured.write
    if vector is None or write.stride(vector) != 1 or statement.op != "set":
        return False
    if any(a.tensor == write.tensor for a in measured.accesses if not a.is_write):
        return False
    if not all(isinstance(s, Index) or is_quasi_affine(s) for s in statement.subscripts):
        return False
    row = measured.extent(vector, 0) * write.itemsize
    if row < SHORTEST or any(e is None for _, e in measured.bounds.values()):
        return False
    sizes: dict[str, int] = {}
    for access in measured.accesses:
        sizes[access.tensor] = max(sizes.get(access.tensor, 0), _bytes(measured, access))
    last, written = target.caches[-1].size, sizes[write.tensor]
    if sum(sizes.values()) <= last or written < last // 4:
        return False
    if row < SHORTEST_ALONE and sum(sizes.values()) < ALONE * written:
        return False
    return corners(read_set(statement.domain)) is not None


def _bytes(measured: Measured, access: MemoryAccess) -> int:
    """Return about how many bytes of a tensor an access touches; a gathered one may touch any."""
    strides = {i: abs(s) for i, s in access.strides.items() if s}
    cells = prod(measured.extent(i) for i in strides)
    least = min(strides.values(), default=1)
    return cells * access.itemsize * (1 if least >= FAR else max(1, min(least, 64 // access.itemsize)))


def stream_nest(measured: Measured, plan: Plan, order: tuple[str, ...]) -> Nest:
    """Return the nest: the loops in order, the vector innermost and taken by as many vectors as the plan says."""
    here = (measured.statement,)
    assert plan.vector is not None
    assert order[-1] == plan.vector
    loops = [tile_member(here, i, 1, measured.lo(i)) for i in order[:-1]]
    time = offset(plan.vector, measured.lo(plan.vector))
    loops.append(shared(here, time, plan.vector, Kind.STREAM, plan.lanes * plan.chunks))
    return Nest(here, band(loops, Leaf()))
