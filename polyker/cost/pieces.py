"""What a register tile waits for operands that it reads in short pieces.

The model of the tiles counts the loads of operands that stay in place along the vector as if they lay in the first cache. One
that is read an element a cache line fetches whole lines for them, again for each tile. One that lies beyond all caches begins
anew with each row of the tile, and no hardware foresees where.
"""

from __future__ import annotations

from math import ceil, prod

from polyker.cost.blocking import blocking
from polyker.cost.measure import MeasuredStatement, MemoryAccess
from polyker.cost.memory import beyond
from polyker.cost.plan import TilePlan
from polyker.machine.model import PAGE, Target

# Most lines of a row that are waited for until prefetchers follow it; a whole page is followed from the start (experience value).
MAX_UNFOLLOWED_LINES = 5


def waiting(measured: MeasuredStatement, plan: TilePlan, target: Target) -> float:
    """Return the cycles that a statement waits for such operands; those that are copied do not count."""
    kept = measured.statement.kept
    blocks = blocking(measured, plan, kept, target) if measured.statement.reduced else None
    cycles = 0.0
    for a in measured.accesses:
        copied = a.read in plan.packed or (blocks is not None and a.read in blocks.packs_rows)
        if a.read is None or not a.strides or copied or a.stride(plan.vector or ""):
            continue
        prefetched = blocks is not None and a.read in blocks.prefetches
        cycles += _beginning(measured, plan, a, target) if prefetched else _reading(measured, plan, a, target)
    return cycles


def _reading(measured: MeasuredStatement, plan: TilePlan, access: MemoryAccess, target: Target) -> float:
    """Return the cycles that a statement waits for an operand that nothing prefetches."""
    reduced = measured.statement.reduced
    sizes = {i: measured.extent(i) if i in reduced else plan.size(i) for i in access.strides}
    piece = 1  # elements side by side that a tile reads one after another
    for i in _inside_out(access):
        if abs(access.stride(i)) != piece or (i not in reduced and piece > 1):
            break
        piece *= sizes[i]
    line, elements, size = target.caches[0].line, measured.footprint(access), piece * access.itemsize
    tile = prod(sizes.values()) // piece * max(line, size)
    cycles = 0.0
    if size < line and tile > target.caches[0].usable:
        cycles += elements / piece * line * beyond(target, tile)
    if size < PAGE and target.from_memory(elements * access.itemsize):
        cycles += elements / piece * target.memory.random_line * min(MAX_UNFOLLOWED_LINES, ceil(size / line))
    return cycles


def _beginning(measured: MeasuredStatement, plan: TilePlan, access: MemoryAccess, target: Target) -> float:
    """Return the cycles that a statement waits for an operand of which each tile prefetches the next one's rows.

    The next tile is the one beside it until the loops over the result's indices leap over reduction iterations.
    """
    reduced = measured.statement.reduced
    elements = measured.footprint(access)
    if not target.from_memory(elements * access.itemsize):
        return 0.0
    chunk, tile, kept = 1, 1, False
    for i in _inside_out(access):
        if abs(access.stride(i)) != chunk or (kept and i in reduced):
            break
        kept = kept or i not in reduced
        chunk *= measured.extent(i)
        tile *= measured.extent(i) if i in reduced else plan.size(i)
    return elements / chunk * target.memory.random_line * ceil(tile * access.itemsize / target.caches[0].line)


def _inside_out(access: MemoryAccess) -> list[str]:
    """Return the iterators that move an access, those with the smallest strides first."""
    return sorted(access.strides, key=lambda i: abs(access.stride(i)))
