"""Interrupts: signals that arrive at a chosen moment of some work, and what the caller gets.

`python -m tests.edge --interrupts 500` interrupts so many compiles by SIGINT and prints how soon KeyboardInterrupt came.
"""

from __future__ import annotations

import mmap
import os
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from msgspec import Struct, field

import polyker as pk
from tests.edge.operators import BY_NAME, FAMILIES, Family, compile_and_call, constant
from tests.edge.trial import Part, Skipped, Trial, distribution, share_within

SOON = 0.3  # seconds within which the exception is to reach the caller,
SHARE = 0.95  # in this share of the interrupts
LATENCY = "latency of interrupts"

# Runs in a process of its own: it needs no lock of ours to send a signal, and knows when it did.
_SENDER = """
import mmap, os, struct, sys, time
times = mmap.mmap(os.open(sys.argv[1], os.O_RDWR), 4096)
for line in sys.stdin:
    pid, number, delay, count, gap = line.split()
    time.sleep(float(delay))
    for n in range(int(count)):
        struct.pack_into("d", times, 8 + 8 * n, time.monotonic())
        os.kill(int(pid), int(number))
        struct.pack_into("q", times, 0, n + 1)
        if n + 1 < int(count):
            time.sleep(float(gap))
"""


class Late(TimeoutError):
    """What a user's handler of SIGALRM raises."""


class Stop(BaseException):
    """What a user's handler raises that no `except Exception` is meant to see."""


class Signals(Struct):
    """When signals come and what their handler raises; `raises` None: Python's own handler of SIGINT, for one signal."""

    way: str
    number: signal.Signals
    delay: float
    raises: type[BaseException] | None
    count: int = 1
    gap: float = 0.0


class Outcome(Struct):
    """What came of work during which signals were sent."""

    armed: bool = True
    finished: bool = False
    result: Any = None
    caught: BaseException | None = None
    ended: float = 0.0
    sent: list[float] = field(default_factory=list)
    handled: list[float] = field(default_factory=list)
    raised: list[BaseException] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)


class _Sender:
    """A process that sends signals to this one."""

    def __init__(self) -> None:
        with tempfile.NamedTemporaryFile() as file:
            file.write(bytes(4096))
            file.flush()
            self._times = mmap.mmap(file.fileno(), 4096)
            command = [sys.executable, "-S", "-c", _SENDER, file.name]
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, text=True)
            self._wanted = 0
            # Once it has answered it has opened the file and is ready.
            self.start(0, 0.0, 1, 0.0)
            while len(self.sent()) < 1:
                time.sleep(0.001)

    def start(self, number: int, delay: float, count: int, gap: float) -> None:
        self._wanted = count
        struct.pack_into("q", self._times, 0, 0)
        assert self._process.stdin is not None
        self._process.stdin.write(f"{os.getpid()} {int(number)} {delay} {count} {gap}\n")
        self._process.stdin.flush()

    def sent(self) -> list[float]:
        (count,) = struct.unpack_from("q", self._times, 0)
        return list(struct.unpack_from(f"{count}d", self._times, 8))

    def all_sent(self) -> bool:
        return len(self.sent()) >= self._wanted


@cache
def _sender() -> _Sender:
    return _Sender()


def interrupted(work: Callable[[], Any], signals: Signals) -> Outcome:
    """Call `work` while signals come, and wait until all have come.

    Handlers raise until the caller has caught the first exception: later ones meet what the first one is unwinding.
    """
    outcome = Outcome()

    def handler(number: int, frame: object) -> None:
        outcome.handled.append(time.monotonic())
        if outcome.armed:
            assert signals.raises is not None
            error = signals.raises()
            outcome.raised.append(error)
            raise error

    own = signal.default_int_handler if signals.raises is None else handler
    before = signal.signal(signals.number, own)
    hook, sys.unraisablehook = sys.unraisablehook, lambda u: outcome.ignored.append(f"{u.exc_value!r} in {u.object!r}")
    start, ready, wait = _ways(signals, outcome)
    ready()
    try:
        while True:
            try:
                if not outcome.finished and outcome.caught is None:
                    start()
                    outcome.result = work()
                    # No call and no jump back stands between these lines, so no handler runs between them either.
                    outcome.armed, outcome.finished = False, True
                    outcome.ended = time.monotonic()
                while not wait():
                    time.sleep(0.001)
                time.sleep(0.002)
                break
            except BaseException as error:
                outcome.armed = False
                if not outcome.finished and outcome.caught is None:
                    outcome.caught = error
                    outcome.ended = time.monotonic()
                elif type(error) is not KeyboardInterrupt:
                    raise
    finally:
        sys.unraisablehook = hook
        found = signal.signal(signals.number, before)
    if found is not own:
        raise AssertionError(f"the handler of {signals.number.name} was replaced by {found!r}")
    return outcome


def _ways(signals: Signals, outcome: Outcome) -> tuple[Callable[[], None], Callable[[], object], Callable[[], bool]]:
    """Return what starts the signals, what has to be there before, and whether all were sent."""
    if signals.way == "process":
        sender = _sender()

        def all_sent() -> bool:
            outcome.sent = sender.sent()
            return sender.all_sent()

        return (
            lambda: sender.start(signals.number, signals.delay, signals.count, signals.gap),
            lambda: None,
            all_sent,
        )
    if signals.way == "timer":

        def start() -> None:
            outcome.sent.append(time.monotonic() + max(signals.delay, 1e-6))
            signal.setitimer(signal.ITIMER_REAL, max(signals.delay, 1e-6))

        return start, lambda: None, lambda: bool(outcome.handled)
    # A thread of this process has to get the interpreter's lock first, as in many programs.
    go, main = threading.Event(), threading.main_thread().ident
    assert main is not None

    def send() -> None:
        go.wait()
        time.sleep(signals.delay)
        for _ in range(signals.count):
            outcome.sent.append(time.monotonic())
            signal.pthread_kill(main, signals.number)
            time.sleep(signals.gap)

    thread = threading.Thread(target=send, daemon=True)
    return go.set, thread.start, lambda: not thread.is_alive()


def check_outcome(trial: Trial, signals: Signals, outcome: Outcome, what: str) -> None:
    """Check that the caller got the handler's exception and nothing else; raises Skipped where the work was done before."""
    caught, where = outcome.caught, f"{what}, {signals.number.name} by {signals.way} after {signals.delay:.4f} s"
    if caught is not None:
        mine = type(caught) is KeyboardInterrupt if signals.raises is None else any(caught is r for r in outcome.raised)
        trial.check(mine, lambda: f"{where}: the caller got {caught!r}\n" + "".join(traceback.format_exception(caught)))
        trial.check(not outcome.ignored, lambda: f"{where}: an exception was ignored: {outcome.ignored}")
        trial.note(LATENCY, max(0.0, outcome.ended - min(outcome.sent)))
        return
    trial.check(not outcome.raised, lambda: f"{where}: the handler's exception was lost: {outcome.ignored}")
    if outcome.ended - min(outcome.sent) < 0.02:
        raise Skipped
    # The signal was not looked at before the work was done, though it came well before.
    trial.check(outcome.handled or signals.raises is None, f"{where}: the handler never ran")
    trial.check(not outcome.ignored, lambda: f"{where}: an exception was ignored: {outcome.ignored}")
    trial.note(LATENCY, outcome.ended - min(outcome.sent))


def check_process(trial: Trial) -> None:
    """Check that the process goes on: no lock is held, nothing of the signals is changed, compiles give right results."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    trial.check(not mask, f"signals are left blocked: {mask}")
    found: list[str] = []
    own = type(trial.random)(trial.random.random())
    thread = threading.Thread(target=lambda: found.append(compile_and_call(own)), daemon=True)
    thread.start()
    thread.join(30)
    trial.check(found == [""], f"another thread compiles after an interrupt: {found or 'it hangs, or raised'}")
    problem = compile_and_call(trial.random)
    trial.check(not problem, f"the next compile: {problem}")


_seconds: dict[object, float] = {}


def seconds_of(key: object, work: Callable[[], Any]) -> float:
    """Return how long work of a kind takes in this process; it is done once for that."""
    if key not in _seconds:
        work()  # so that what only the first time takes does not count
        began = time.monotonic()
        work()
        _seconds[key] = time.monotonic() - began
    return _seconds[key]


def run(trial: Trial) -> None:
    """Interrupt one compile by SIGINT from outside, and compile again."""
    random = trial.random
    family = random.choice(FAMILIES)
    types, n = _types(trial, family)

    def compiled(c: int) -> Any:
        return pk.op(family.program(c)).compile(*types, **(dict(family.sizes) if n else {}))

    c = constant(random)
    length = seconds_of((family.name, n), lambda: compiled(constant(random)))
    signals = Signals("process", signal.SIGINT, random.uniform(0, length), None)
    outcome = interrupted(lambda: compiled(c), signals)
    problem = compile_and_call(random, family if random.random() < 0.3 else BY_NAME["matmul"])
    trial.check(not problem, problem)
    check_outcome(trial, signals, outcome, f"compile of {family.name}, size {n}")


def _types(trial: Trial, family: Family) -> tuple[list[Any], int | None]:
    n = trial.random.choice((None, 9, family.large or 50))
    return family.types(n), n


def judge(notes: Mapping[str, Sequence[float]]) -> list[str]:
    """Return what is wrong with how soon the exceptions came."""
    values = notes.get(LATENCY, ())
    share = share_within(values, SOON)
    if len(values) >= 20 and share < SHARE:
        return [f"{100 * share:.1f}% of {len(values)} interrupts came within {SOON} s, not {100 * SHARE:.0f}%"]
    return []


PART = Part(run, limit=90.0, per_child=40, judge=judge)


def interrupted_compiles(count: int, seed: int, jobs: int = 1) -> int:
    """Interrupt compiles until so many were; print how soon KeyboardInterrupt came. Returns 1 if anything failed."""
    from tests.edge.campaign import Campaign

    campaign = Campaign(seed, ("interrupts",), say=lambda text: print(text, flush=True))
    tally = campaign.tallies["interrupts"]
    campaign.run(float("inf"), jobs, enough=lambda: tally.trials + len(tally.failures) >= count)
    values = tally.notes.get(LATENCY, [0.0])
    print(
        f"{count} interrupts asked for, {tally.trials} came before a compile was done, {tally.skipped} after it; "
        f"{len(tally.failures)} failures\n"
        f"{len(values)} got the exception, {100 * share_within(values, SOON):.1f}% within {SOON} s, worst {max(values):.3f} s\n"
        f"{distribution(values)}, seed {seed}"
    )
    return 1 if campaign.failed else 0
