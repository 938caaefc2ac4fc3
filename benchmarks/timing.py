"""Times of several calls, taken in turns so that whatever disturbs the machine disturbs all of them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

ROUND = 2e-3  # seconds that a call is repeated for in one round
HOPELESS = 6  # a call this many times slower than the quickest is not timed further: it is nobody's best peer
LEAST = 3  # rounds, however small the budget
MOST = 41  # rounds, however short
SPARE = 200  # times that a case waits or measures again, all together, because the machine is slow
PAUSE = 1e-2  # seconds that it waits at a time

Clock = Callable[[], float]


class Times(Struct, frozen=True):
    """Seconds a call took, a round each; `rough`: it was far behind and is only estimated.

    `disturbed`: rounds in which the machine was slower than it can be, however often they were repeated.
    """

    rounds: tuple[float, ...]
    rough: bool = False
    disturbed: int = 0

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
    invariant: Callable[[], bool] = lambda: True,
    enough: float = 0.0,
) -> dict[str, Times]:
    """Return the times of each call; every round begins with another.

    Each is called before it is timed. `seconds`: no round begins after so long, but for the first three; `keep`: the call
    that is timed however far behind it is; `steady`: whether the machine is as quick as it can be just now. What was
    timed while it was not is timed again, as long as that is not needed too often. `enough`: where so many rounds take fewer
    seconds of calls there are more, up to MOST: the median of five short ones can be a third beside that of fifty.
    """
    if not calls:
        return {}
    begin = clock()
    guess = {name: min(once(call, 1, clock), _estimate(call, clock)) for name, call in calls.items()}
    quickest = min(guess.values())
    timed = [name for name in calls if guess[name] <= HOPELESS * quickest or name == keep]
    found: dict[str, list[float]] = {name: [] for name in timed}
    disturbed, spare, spent = dict.fromkeys(timed, 0), SPARE, 0.0
    for turn in range(max(rounds, MOST)):
        if turn >= LEAST and seconds is not None and clock() - begin > seconds:
            break
        if turn >= rounds and spent >= enough:
            break
        first = turn % len(timed)
        for name in timed[first:] + timed[:first]:
            repeats = max(1, round(ROUND / max(guess[name], 1e-9)))
            if repeats > 1:
                calls[name]()  # its arrays are in the cache again
            while True:
                while not (calm := invariant()) and spare:
                    spare -= 1
                    time.sleep(PAUSE)
                taken = once(calls[name], repeats, clock)
                calm = invariant() and calm
                if calm or not spare:
                    break
                spare -= 1
            spent += taken * repeats
            found[name].append(taken)
            disturbed[name] += not calm
    rough = {name: Times((guess[name],), rough=True) for name in calls if name not in found}
    return {n: Times(tuple(found[n]), disturbed=disturbed[n]) if n in found else rough[n] for n in calls}


def _estimate(call: Callable[[], Any], clock: Clock) -> float:
    """Return the least of three short tries, or one long one: a disturbance must not put a call out of the race."""
    repeats = 1
    while (found := once(call, repeats, clock)) * repeats < ROUND / 4 and repeats < 4096:
        repeats *= 4
    return found if found > 20 * ROUND else min(found, once(call, repeats, clock), once(call, repeats, clock))
