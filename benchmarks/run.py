"""One case after another: prepare every contestant, check its result, time all in turns."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable, Iterator, Mapping

from msgspec import Struct, field

from benchmarks import contestants
from benchmarks.case import Case, Problem, arrays
from benchmarks.check import expected, wrong
from benchmarks.contestants import Contestant
from benchmarks.machine import Machine
from benchmarks.timing import Clock, Times, in_turns

OURS = "polyker"


class Outcome(Struct, frozen=True):
    """What one case gave. Times in seconds.

    `times`: contestant -> its times, of those whose results are right; `failures`: contestant -> why it does not count;
    `floor`: what the machine needs at least; `compiles`: contestant -> seconds to compile.
    """

    case: Case
    problem: Problem
    times: Mapping[str, Times]
    failures: Mapping[str, str]
    compiles: Mapping[str, float]
    floor: float

    @property
    def best_peer(self) -> str | None:
        """The quickest peer, None if there is none."""
        peers = {name: t.median for name, t in self.times.items() if name != OURS}
        return min(peers, key=lambda n: peers[n], default=None)

    @property
    def ratio(self) -> float | None:
        """The best peer's time over polyker's; 0 where polyker failed, None where no peer is there to compare with."""
        if self.best_peer is None:
            return None
        return self.times[self.best_peer].median / self.times[OURS].median if OURS in self.times else 0.0

    @property
    def disturbed(self) -> bool:
        """Whether the machine was slow in most rounds of those whose ratio this is."""
        rows = [self.times[n] for n in (OURS, self.best_peer) if n in self.times]
        return any(2 * t.disturbed >= len(t.rounds) for t in rows)

    @property
    def share(self) -> float | None:
        """The floor over polyker's time: 1 is as quick as the machine allows."""
        return self.floor / self.times[OURS].median if OURS in self.times else None


class Settings(Struct, frozen=True):
    """How cases are run: see `python -m benchmarks cpu --help`."""

    peers: tuple[str, ...]
    rounds: int = 5
    seconds: float | None = None
    clock: Clock = time.perf_counter
    note: Callable[[str], None] = field(default=lambda text: None)
    invariant: Callable[[], bool] = field(default=lambda: True)
    enough: float = 0.0


def run(cases: Iterable[Case], machine: Machine, settings: Settings) -> Iterator[Outcome]:
    """Yield what each case gives."""
    for case in cases:
        yield run_case(case, machine, settings)
        gc.collect()


def run_case(case: Case, machine: Machine, settings: Settings) -> Outcome:
    """Return what one case gives; a contestant that fails or is wrong is left out, with the reason."""
    problem = case.problem()
    inputs = arrays(case.name, problem)
    want = expected(problem, inputs)
    ready: dict[str, Contestant] = {}
    failures: dict[str, str] = {}
    for name in (OURS, *settings.peers):
        try:
            found = contestants.polyker(problem, inputs) if name == OURS else contestants.peer(name, problem, inputs)
            if found is None:
                continue
            fault = wrong(problem, found.result(), want)
        except Exception as error:
            fault = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"
        if fault:
            failures[name] = fault
            settings.note(f"{case.name}: {name} does not count: {fault}")
        else:
            assert found is not None
            ready[name] = found
    calls = {n: c.call for n, c in ready.items()}
    times = in_turns(
        calls, settings.rounds, settings.seconds, settings.clock, OURS, settings.invariant, settings.enough
    )
    compiles = {n: c.compile for n, c in ready.items() if c.compile is not None}
    floor = machine.floor(problem.flops, problem.bytes, problem.inputs[0].dtype)
    return Outcome(case, problem, times, failures, compiles, floor)
