"""The verdict on a program's speed: what is more than twice as slow as another way to the same values."""

from __future__ import annotations

import time
from collections.abc import Container, Mapping

from msgspec import Struct

from benchmarks.timing import Clock, in_turns
from tests.fuzz.speed.variants import Call

RATIO = 2.0
LEAST = 20e-6  # seconds; what is less is not looked into
# A way, the kind of an excess, and the way that the first is not to be slower than.
AGAINST = (
    ("whole", "fused", "parts"), ("symbolic", "symbolic", "whole"), ("whole", "fixed", "symbolic"),
    ("reversed", "layout", "whole"), ("whole", "layout", "reversed"), ("channels", "layout", "whole"),
    ("strided", "strides", "reversed"), ("reversed", "strides", "strided"), ("whole", "numpy", "numpy"),
)  # fmt: skip


class Excess(Struct, frozen=True):
    """A way that is slower than another: its kind, the two ways, and the seconds that they take."""

    kind: str
    slow: str
    quick: str
    seconds: float
    least: float

    @property
    def ratio(self) -> float:
        """How many times slower."""
        return self.seconds / self.least


def thread_clock() -> float:
    """Return the processor's seconds of this thread: what else runs on the core does not count."""
    return time.thread_time()


def timed(calls: Mapping[str, Call], rounds: int, seconds: float, clock: Clock = thread_clock) -> dict[str, float]:
    """Return the least seconds of each call over rounds in turns."""
    return {name: min(t.rounds) for name, t in in_turns(calls, rounds, seconds, clock).items()}


def excesses(times: Mapping[str, float], without: Container[str] = ()) -> list[Excess]:
    """Return what is slower than it should be, the worst first; kinds of it in `without` are left out."""
    found = [
        Excess(kind, slow, quick, times[slow], times[quick])
        for slow, kind, quick in AGAINST
        if kind not in without and {slow, quick} <= times.keys()
    ]
    slow = [e for e in found if e.seconds > RATIO * e.least and e.seconds - e.least > LEAST]
    return sorted(slow, key=lambda e: -e.ratio)


def confirmed(
    calls: Mapping[str, Call], clock: Clock = thread_clock, without: Container[str] = ()
) -> tuple[dict[str, float], list[Excess]]:
    """Time the calls, and again and longer where one seems too slow; return the times and what is left of the excesses."""
    if len(calls) < 2:
        return {}, []
    times = timed(calls, 3, 0.2, clock)
    found = []
    for excess in excesses(times, without):
        again = timed({n: calls[n] for n in (excess.quick, excess.slow)}, 15, 0.6, clock)
        times.update({n: min(times[n], t) for n, t in again.items()})
        found += [e for e in excesses(again, without) if e.kind == excess.kind and e.slow == excess.slow]
    return times, found
