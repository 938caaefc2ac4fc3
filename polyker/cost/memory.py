"""What memory costs one core, and what prefetches and rows side by side are worth, by a machine's facts."""

from __future__ import annotations

from polyker.machine.model import Target
from polyker.record.status import KEPT_SCRATCH_BYTES

# Most cycles a byte that stay visible beside the arithmetic of a register tile: of the first cache, the second, the third, of
# memory. What is fetched beside it hides the rest (fitted to tiles of products on znver4 and icelake-server).
VISIBLE_CYCLES_PER_BYTE = (0.0, 1 / 128, 1 / 48, 1 / 20)
# Bytes a cycle that one core reads from each cache, where a level was not measured (of desktop processors).
DESKTOP_BYTES_PER_CYCLE = (64.0, 42.6, 27.4)
# Cycles a byte of scratch memory that is not kept from call to call: pages are mapped and cleared each time (experience value).
FRESH_CYCLES_PER_BYTE = 0.5
# Least ratio of two measured rates that tells one from the other: measurements differ by less from run to run.
MIN_MEASURED_GAIN = 1.02


def passed(target: Target, size: float) -> float:
    """Return the cycles a byte, beyond the first cache's, of what one statement passes to another among so many bytes."""
    return max(0.0, 1 / _read(target, target.level(size)) - 1 / _read(target, 0))


def _read(target: Target, level: int) -> float:
    """Return the bytes a cycle that are read from a level, 0 the nearest cache."""
    if level == len(target.caches):
        return target.memory.read
    return target.caches[level].read or DESKTOP_BYTES_PER_CYCLE[min(level, len(DESKTOP_BYTES_PER_CYCLE) - 1)]


def beyond(target: Target, size: float) -> float:
    """Return the cycles a byte, beyond the first cache's, of what a tile reads beside its arithmetic among so many bytes."""
    return min(passed(target, size), VISIBLE_CYCLES_PER_BYTE[min(target.level(size), len(VISIBLE_CYCLES_PER_BYTE) - 1)])


def fresh(size: float) -> float:
    """Return the cycles that a byte of scratch memory costs before it is used, where so many bytes are needed."""
    return FRESH_CYCLES_PER_BYTE if size > KEPT_SCRATCH_BYTES else 0.0


def rows_at_once(target: Target) -> int:
    """Return how many rows of memory had better be read side by side by what only passes over them; 1: one after another."""
    memory = target.memory
    faster = memory.side_by_side is not None and memory.side_by_side > MIN_MEASURED_GAIN * memory.read
    return memory.rows if faster else 1


def is_one_row_faster(target: Target) -> bool:
    """Whether one row of memory after another comes sooner than several side by side."""
    memory = target.memory
    return memory.side_by_side is not None and memory.read > MIN_MEASURED_GAIN * memory.side_by_side


def prefetched_cache(rates: tuple[float, ...]) -> int | None:
    """Return the cache that requests had better bring a pattern's lines into, 0 for no requests; None where it was not measured.

    >>> prefetched_cache((7.0, 6.0, 7.6)), prefetched_cache((7.0, 7.05, 6.0)), prefetched_cache(())
    (2, 0, None)
    """
    if not rates:
        return None
    best = max(rates)
    return 0 if best <= MIN_MEASURED_GAIN * rates[0] else rates.index(best)


def sums_prefetch_into(target: Target) -> int:
    """Return the cache that sums along memory prefetch into, 0 for none: a core's own prefetchers stop at the end of a page."""
    found = prefetched_cache(target.prefetch.sums)
    return 1 if found is None else found


def prefetches_next_rows(target: Target) -> bool:
    """Whether the next rows are prefetched while others are computed on; else a core's own prefetchers would be led astray."""
    return prefetched_cache(target.prefetch.next_rows) != 0


def follows_tiles(target: Target) -> bool:
    """Whether a core's own prefetchers follow the rows of a register tile, and the next one's."""
    return prefetched_cache(target.prefetch.tiles) == 0


def gathers_rows_into_first(target: Target) -> bool:
    """Whether gathered rows of several lines are prefetched into the first cache; single lines are into the second."""
    return prefetched_cache(target.prefetch.gathered_rows) == 1
