"""Facts of machines by which the schedules decide one way or the other, for tests of both."""

from __future__ import annotations

from polyker.machine.model import Cache, Memory

# Rates of a pattern that reads memory, and what they say prefetch instructions are for.
ALONE, INTO_FIRST, INTO_SECOND = (1.0, 0.8, 0.8), (1.0, 1.2, 1.0), (1.0, 1.0, 1.2)
# Several rows side by side come sooner than one row after another; or later.
SIDE_BY_SIDE, ONE_ROW = Memory(side_by_side=20.0), Memory(side_by_side=10.0)


def cached(*sizes: int) -> tuple[Cache, ...]:
    """Return caches of such sizes in bytes, the nearest first."""
    return tuple(map(Cache, sizes))
