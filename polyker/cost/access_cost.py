"""What one vector of an access costs the load and store ports, by its stride."""

from __future__ import annotations

from polyker.cost.measure import MemoryAccess
from polyker.cost.memory import rows_at_once
from polyker.cost.table import BROADCAST, CROSSING, GATHER_FAR, GATHER_LINE, GATHER_PAGE, LOAD, SCATTER, SHUFFLE
from polyker.machine.model import Target

# Greatest stride, in elements, of an access by whole vectors whose elements are shuffled (polyker.codegen.llvm.access.strided has
# code for these; chosen).
MAX_SHUFFLED_STRIDE = 4
# Shares by which fetching an operand takes longer: from beyond the second cache by several rows at once (experience value); from
# memory by one row where eight come sooner (measured on an Ice Lake server: 11 GB/s against 13.8).
SEVERAL_ROWS_DELAY, ONE_ROW_DELAY = 0.1, 0.25


def access_cost(access: MemoryAccess, vector: str, width: int, target: Target) -> float:
    """Return the cycles of one vector of an access, from the first cache, along an iterator."""
    stride = access.stride(vector)
    if stride == 0:
        return BROADCAST
    if stride == 1:
        aligned = all(s % width == 0 for i, s in access.strides.items() if i != vector)
        return (LOAD if aligned else LOAD + CROSSING) * max(1.0, width * access.itemsize / 64)
    if stride == -1:
        return 2 * LOAD + CROSSING * any(s % width for i, s in access.strides.items() if i != vector)
    if 1 < stride <= MAX_SHUFFLED_STRIDE and (target.masked or not access.is_write):
        return stride * LOAD + (stride - 1) * SHUFFLE
    step = abs(stride) * access.itemsize
    lane = GATHER_LINE if step < 64 else GATHER_PAGE if step < 2048 else GATHER_FAR
    return lane * width * (SCATTER if access.is_write else 1.0)


def rows_longer(rows: int, passes: bool, target: Target) -> float:
    """Return how much longer an operand from beyond the second cache takes that is read along its memory, so many rows at once.

    `passes`: it comes from memory, and no other statement shares its rows.
    """
    best = rows_at_once(target)
    if passes and best > 1:
        return ONE_ROW_DELAY * max(0, best - rows) / (best - 1)
    return SEVERAL_ROWS_DELAY * (rows > 1)
