"""What a nest of tile loops fetches from beyond the second cache, by the order of its loops.

An operand that a loop leaves in place is fetched again in each of its iterations unless what one iteration touches fits in the
cache. A rule orders the loops by the panels that they move (polyker.schedule.nests.loop_order); where another order fetches far
less it is taken instead, such as where panels are alike and one is of an operand that no cache holds.
"""

from __future__ import annotations

from math import ceil

from polyker.cost.measure import MeasuredStatement, MemoryAccess
from polyker.cost.memory import beyond
from polyker.cost.plan import TilePlan
from polyker.cost.table import GAIN
from polyker.machine.model import Target


def least_traffic(
    measured: MeasuredStatement, plan: TilePlan, order: tuple[str, ...], target: Target
) -> tuple[str, ...]:
    """Return the order itself, or one with a loop moved outwards that waits far less for memory; of those about as good the
    nearest."""
    nest = _TrafficNest(measured, plan, target)
    if len(order) < 2 or nest.whole <= target.cache(2).size:
        return order
    moves = [(to, place) for place in range(1, len(order)) for to in range(place)]
    others = [
        (*order[:to], order[place], *order[to:place], *order[place + 1 :]) for to, place in sorted(moves, reverse=True)
    ]
    costs = [nest.cycles(o) for o in (order, *others)]
    enough = min(costs) + GAIN * plan.cost * measured.points
    return next(o for o, cycles in zip((order, *others), costs, strict=True) if cycles <= enough)


class _TrafficNest:
    def __init__(self, measured: MeasuredStatement, plan: TilePlan, target: Target) -> None:
        self.measured, self.plan, self.target = measured, plan, target
        self.whole = sum(a.itemsize * measured.footprint(a) for a in measured.accesses)

    def cycles(self, order: tuple[str, ...]) -> float:
        """Return the cycles that fetching the operands takes, beyond the second cache: what lies there is fetched in time."""
        return sum(self._fetched(order, n) for n in range(1, len(self.target.caches)))

    def _fetched(self, order: tuple[str, ...], level: int) -> float:
        """Return the cycles for what comes from beyond a cache."""
        room = self.target.caches[level].usable
        price = beyond(self.target, room + 1)
        held = {i: self.plan.size(i) for i in order}
        reads = [a for a in self.measured.accesses if not a.is_write]
        fetched = [self._bytes(a, held) for a in reads]
        for iterator in reversed(order):
            used = sum(self._bytes(a, held) for a in reads)
            trips = ceil(self.measured.extent(iterator) / held.pop(iterator))
            for n, a in enumerate(reads):
                if a.stride(iterator):
                    fetched[n] = self._bytes(a, held) if used <= room else fetched[n] * trips
                elif used > room:
                    fetched[n] *= trips
        return price * sum(fetched)

    def _bytes(self, access: MemoryAccess, held: dict[str, int]) -> float:
        return float(access.itemsize * self.measured.footprint(access, held))
