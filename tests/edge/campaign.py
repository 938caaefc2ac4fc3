"""A campaign: child processes that run trials, what they report, and the table of what was found."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

from msgspec import Struct, field

from tests.edge.trial import PARTS, Part, distribution, part

ROOT = Path(__file__).resolve().parents[2]
_SHOWN = 3  # failures of a part that are printed in full
_MOST = 40  # failures of a part after which it is given up


class Failure(Struct):
    """A trial that failed, and the trials that its process ran before it."""

    part: str
    seed: int
    first: int
    number: int
    kind: str
    problem: str

    @property
    def again(self) -> str:
        """The command that runs the same process again, up to the trial that failed."""
        return f"python -m tests.edge --only {self.part} --seed {self.seed} --trials {self.first}:{self.number + 1}"

    def report(self, *, full: bool = True) -> str:
        """Return all that is known of the failure, as text."""
        lines = self.problem.strip().splitlines() or [""]
        # A traceback says at its end what went wrong.
        short = lines[-1] if "Traceback" in lines[0] else lines[0]
        shown = "\n".join("  " + line for line in (lines if full else [short]))
        return f"FAILED {self.part}, seed {self.seed}, trial {self.number}: {self.kind}\n{shown}\n  again: {self.again}"


class Tally(Struct):
    """What the trials of a part came to."""

    trials: int = 0
    skipped: int = 0
    checks: int = 0
    seconds: float = 0.0
    next: int = 0
    notes: dict[str, list[float]] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)


class Campaign:
    """Runs trials of parts, in turn, in child processes; `say` is told of failures when they come."""

    def __init__(self, seed: int, parts: Sequence[str] = PARTS, say: Callable[[str], None] = print) -> None:
        self.seed, self._say = seed, say
        self.tallies = {name: Tally() for name in parts}
        self._parts: dict[str, Part] = {name: part(name) for name in parts}
        self._lock = threading.Lock()

    def run(self, seconds: float, jobs: int = 1, *, enough: Callable[[], bool] = lambda: False) -> None:
        """Run trials for so long, or until `enough`; each part gets the same share of the time."""
        until = time.monotonic() + seconds
        lanes = [threading.Thread(target=self._lane, args=(until, enough)) for _ in range(jobs)]
        for lane in lanes:
            lane.start()
        for lane in lanes:
            lane.join()

    def run_trials(self, name: str, first: int, stop: int) -> None:
        """Run certain trials of a part, up to the first that fails, in one process."""
        self._child(name, first, stop, float("inf"))

    def _lane(self, until: float, enough: Callable[[], bool]) -> None:
        while time.monotonic() < until and not enough():
            with self._lock:
                open_parts = [n for n, t in self.tallies.items() if len(t.failures) < _MOST]
                if not open_parts:
                    return
                name = min(open_parts, key=lambda n: self.tallies[n].seconds)
                tally, count = self.tallies[name], self._parts[name].per_child
                first, tally.next = tally.next, tally.next + count
                tally.seconds += 0.01  # so that another lane takes another part
            self._child(name, first, first + count, until)

    def _child(self, name: str, first: int, stop: int, until: float) -> None:
        """Run a process for these trials; it is stopped between two of them where the time is over."""
        command = [sys.executable, "-m", "tests.edge.worker", name, str(self.seed), str(first), str(stop)]
        path = os.pathsep.join([str(ROOT), *(p for p in sys.path if p)])
        began, current = time.monotonic(), first
        with tempfile.TemporaryFile() as errors:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=ROOT,
                # NumPy's products on one thread: a fork beside OpenBLAS's threads may wait for them for ever.
                env={**os.environ, "PYTHONPATH": path, "PYTHONFAULTHANDLER": "1", "OPENBLAS_NUM_THREADS": "1"},
                start_new_session=True,
            )
            lines: queue.Queue[bytes | None] = queue.Queue()
            threading.Thread(target=_pump, args=(child.stdout, lines), daemon=True).start()
            said: dict[str, Any] = {}
            while True:
                try:
                    line = lines.get(timeout=self._parts[name].limit)
                except queue.Empty:
                    abort(child.pid)
                    self._ended(name, first, current, child, errors, "hang:")
                    break
                if line is None:
                    self._ended(name, first, current, child, errors, said.get("problem", ""))
                    break
                try:
                    said = json.loads(line)
                except ValueError:  # a line cut short by a crash
                    continue
                current = int(said.get("begin", said.get("end")))
                if "end" in said:
                    self._hear(name, said)
                    if not said["problem"] and current + 1 < stop and time.monotonic() > until:
                        self._end(child)
                        break
        with self._lock:
            self.tallies[name].seconds += time.monotonic() - began

    def _ended(
        self, name: str, first: int, current: int, child: subprocess.Popen[bytes], errors: IO[bytes], problem: str
    ) -> None:
        """Look at how a process ended that says no more; `problem`: of its last trial. Its own children end with it."""
        try:
            found = _wait(child.pid, 30)
        finally:
            self._end(child)
        errors.seek(0)
        text = errors.read().decode("utf-8", "replace")[-6000:]
        kinds = []
        if problem:
            kind, _, problem = problem.partition(":")
            kinds.append(kind)
        if found is None:
            kinds.append("hang at the end")
        elif kinds != ["hang"] and found:
            kinds.append(f"crash by {signal.Signals(-found).name}" if found < 0 else f"exit status {found}")
        if kinds:
            said = f"{problem.strip()}\n{'--- stderr:' if problem and text.strip() else ''}\n{text}"
            self._fail(Failure(name, self.seed, first, current, ", then ".join(kinds), said))

    def _end(self, child: subprocess.Popen[bytes]) -> None:
        """End a process and the group that it leads."""
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
        child.wait()

    def _hear(self, name: str, said: dict[str, Any]) -> None:
        with self._lock:
            tally = self.tallies[name]
            tally.checks += said["checks"]
            if said["skipped"]:
                tally.skipped += 1
            else:
                tally.trials += 1
            for key, values in said["notes"].items():
                tally.notes.setdefault(key, []).extend(values)

    def _fail(self, failure: Failure) -> None:
        with self._lock:
            tally = self.tallies[failure.part]
            tally.failures.append(failure)
            tally.next = max(tally.next, failure.number + 1)
            full = len(tally.failures) <= _SHOWN
        self._say(failure.report(full=full))

    @property
    def problems(self) -> list[str]:
        """What is wrong with all that was noted together."""
        return [
            f"{name}: {text}" for name, tally in self.tallies.items() for text in self._parts[name].judge(tally.notes)
        ]

    @property
    def failed(self) -> bool:
        """Whether a trial failed, or all of them together did."""
        return bool(self.problems) or any(t.failures for t in self.tallies.values())

    def table(self) -> str:
        """Return the summary: trials, checks and failures of each part, then what was measured."""
        head = f"{'part':<12}{'trials':>8}{'skipped':>9}{'checks':>10}{'failures':>10}{'seconds':>9}"
        rows = [
            f"{name:<12}{t.trials:>8}{t.skipped:>9}{t.checks:>10}{len(t.failures):>10}{t.seconds:>9.0f}"
            for name, t in self.tallies.items()
        ]
        notes = [
            f"{name}: {key}: {distribution(values)}"
            for name, t in self.tallies.items()
            for key, values in sorted(t.notes.items())
        ]
        kinds = [
            f"{name}: {kind}: {sum(f.kind == kind for f in t.failures)}"
            for name, t in self.tallies.items()
            for kind in sorted({f.kind for f in t.failures})
        ]
        return "\n".join([head, *rows, *notes, *kinds, *(f"FAILED {p}" for p in self.problems)])


def abort(pid: int) -> None:
    """End a process that hangs; by faulthandler it says where all its threads are."""
    os.kill(pid, signal.SIGABRT)
    time.sleep(2)


def _wait(pid: int, seconds: float) -> int | None:
    """Return the status of a child as `Popen.returncode` has it, and leave it to be waited for; None while it runs."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        if found is not None:
            return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status
        time.sleep(0.01)
    return None


def _pump(stream: IO[bytes] | None, lines: queue.Queue[bytes | None]) -> None:
    assert stream is not None
    for line in stream:
        lines.put(line)
    lines.put(None)
