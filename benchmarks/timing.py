"""Times of several calls, taken in turns so that whatever disturbs the machine disturbs all of them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

ROUND = 2e-3  # seconds that a call is repeated for in one round
HOPELESS = 6  # a call this many times slower than the quickest is not timed further: it is nobody's best peer
LEAST = 3  # rounds, however small the budget

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds a call took, a round each; `rough`: it was far behind and is only estimated."""

    rounds: tuple[float, ...]
    rough: bool = False

    @property
    def median(self) -> float:
        """Seconds."""
        return statistics.median(self.rounds)


def once(call: Callable[[], Any], repeats: int, clock: Clock = time.perf_counter) -> float:
    """Return the seconds that one of `repeats` calls takes."""
    start = clock()
    for _ in range(repeats):
        call()
    return (clock() - start) / repeats


def in_turns(
    calls: Mapping[str, Callable[[], Any]],
    rounds: int = 5,
    seconds: float | None = None,
    clock: Clock = time.perf_counter,
    keep: str = "",
) -> dict[str, Times]:
    """Return the times of each call; every round begins with another.

    Each is called before it is timed. `seconds`: no round begins after so long, but for the first three; `keep`: the call
    that is timed however far behind it is.
    """
    if not calls:
        return {}
    begin = clock()
    guess = {name: min(once(call, 1, clock), _estimate(call, clock)) for name, call in calls.items()}
    quickest = min(guess.values())
    timed = [name for name in calls if guess[name] <= HOPELESS * quickest or name == keep]
    found: dict[str, list[float]] = {name: [] for name in timed}
    for turn in range(rounds):
        if turn >= LEAST and seconds is not None and clock() - begin > seconds:
            break
        first = turn % len(timed)
        for name in timed[first:] + timed[:first]:
            repeats = max(1, round(ROUND / max(guess[name], 1e-9)))
            if repeats > 1:
                calls[name]()  # its arrays are in the cache again
            found[name].append(once(calls[name], repeats, clock))
    rough = {name: Times((guess[name],), rough=True) for name in calls if name not in found}
    return {name: Times(tuple(found[name])) if name in found else rough[name] for name in calls}


def _estimate(call: Callable[[], Any], clock: Clock) -> float:
    """Return the least of three short tries, or one long one: a disturbance must not put a call out of the race."""
    repeats = 1
    while (found := once(call, repeats, clock)) * repeats < ROUND / 4 and repeats < 4096:
        repeats *= 4
    return found if found > 20 * ROUND else min(found, once(call, repeats, clock), once(call, repeats, clock))
