"""A campaign: children that run cases, what they report, and the table of what fired."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Failure:
    """A case that failed: what was wrong, its text, and Python that runs it again."""

    number: int
    kind: str
    problem: str
    text: str
    snippet: str
    small: str = ""

    def report(self, seed: int) -> str:
        """Return all that is known of the failure, as text."""
        text = f"case {seed}/{self.number}: {self.kind}\n{self.text}\n--- {self.problem}\n--- again:\n{self.snippet}\n"
        return text + (f"--- smaller:\n{self.small}\n" if self.small else "")


@dataclass
class Campaign:
    """What a campaign found so far; each failure is written to `findings` (a folder) when it is found."""

    seed: int
    backend: str = "compile"
    hang: float = 60.0
    findings: Path | None = None
    done: int = 0
    exact: int = 0
    share: float = 0.0
    features: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)
    slow: list[tuple[float, int, str]] = field(default_factory=list)

    def run(self, cases: int, jobs: int = 1, limit: float | None = None, start: int = 0, stop_at: int = 50) -> None:
        """Run cases `start` to `start + cases`; stops early at `limit` seconds, or at `stop_at` failures."""
        until = time.monotonic() + (limit or 1e12)
        lanes = [start + lane for lane in range(jobs)]
        threads = [
            threading.Thread(target=self._lane, args=(first, start + cases, jobs, until, stop_at)) for first in lanes
        ]
        for t in threads:
            t.start()
        for t in threads:
            t.join()

    def _lane(self, first: int, stop: int, step: int, until: float, stop_at: int) -> None:
        at = first
        while at < stop and time.monotonic() < until and len(self.failures) < stop_at:
            at = self._child(at, stop, step, until, stop_at)

    def _child(self, first: int, stop: int, step: int, until: float, stop_at: int) -> int:
        """Run a child until it ends; returns the next case to run."""
        command = [sys.executable, "-m", "tests.fuzz.worker", str(self.seed), str(first), str(stop), str(step)]
        child = subprocess.Popen(
            [*command, self.backend, "shrink"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).resolve().parents[2],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        )
        lines: queue.Queue[str | None] = queue.Queue()
        assert child.stdout is not None
        assert child.stderr is not None
        errors: list[str] = []
        for stream, sink, last in ((child.stdout, lines.put, True), (child.stderr, errors.append, False)):
            threading.Thread(target=_pump, args=(stream, sink, last), daemon=True).start()
        current: dict[str, Any] | None = None
        count = 0
        while True:
            line, seconds = _line(lines, child.pid, self.hang)
            if seconds:
                child.kill()
                return self._died(current, first, step, "hang", f"no answer in {seconds:.0f} s")
            if line is None:
                break
            try:
                said = json.loads(line)
            except ValueError:  # a line cut short by a crash
                continue
            current = self._hear(said, current)
            if "end" in said:
                first, count = said["end"] + step, count + 1
                enough = time.monotonic() > until or len(self.failures) >= stop_at
                # Children are renewed now and then, so that growth in one does not end the campaign.
                if (enough or count >= 2000) and not said.get("problem"):
                    child.kill()
                    child.wait()
                    return stop if enough else first
        code = child.wait()
        if code:
            name = signal.Signals(-code).name if code < 0 else f"exit {code}"
            return self._died(current, first, step, "crash", name + "\n" + "".join(errors)[-3000:])
        return stop

    def _hear(self, said: dict[str, Any], current: dict[str, Any] | None) -> dict[str, Any] | None:
        if "begin" in said:
            return said
        if "shrunk" in said:
            for f in self.failures:
                if f.number == said["shrunk"]:
                    f.small = f"{said['text']}\n{said['problem']}\n{said['snippet']}"
                    self._write(f)
            return None
        self.done += 1
        self.exact += said["exact"]
        self.share = max(self.share, said["share"])
        self.features.update(said["features"])
        self.slow = sorted([*self.slow, (said["took"], said["end"], current["text"] if current else "")], reverse=True)[
            :5
        ]
        if said.get("problem"):
            assert current is not None
            self._fail(Failure(said["end"], said["kind"], said["problem"], current["text"], current["snippet"]))
            return {**current, "shrinking": True}
        return None

    def _died(self, current: dict[str, Any] | None, first: int, step: int, kind: str, problem: str) -> int:
        if current is None:
            self._fail(Failure(first, kind, f"outside a case: {problem}", "", ""))
            return first + step
        if not current.get("shrinking"):
            self.done += 1
            self.features.update(current["features"])
            self._fail(Failure(current["begin"], kind, problem, current["text"], current["snippet"]))
        return int(current["begin"]) + step

    def _fail(self, failure: Failure) -> None:
        self.failures.append(failure)
        self._write(failure)

    def _write(self, failure: Failure) -> None:
        if self.findings is not None:
            self.findings.mkdir(parents=True, exist_ok=True)
            (self.findings / f"{self.seed}-{failure.number}.txt").write_text(failure.report(self.seed))

    def table(self) -> str:
        """Return the share of cases in which each feature fired, the rarest first."""
        rows = sorted(self.features.items(), key=lambda kv: (kv[0].startswith("("), kv[1]))
        cells = [f"{name} {100 * n / max(self.done, 1):.2f}%" for name, n in rows]
        return "\n".join("  ".join(f"{c:<38}" for c in cells[k : k + 3]).rstrip() for k in range(0, len(cells), 3))


def _line(lines: queue.Queue[str | None], pid: int, hang: float) -> tuple[str | None, float]:
    """Return the next line of a child, or how long there was none: `hang` seconds of the processor's time, or ten times as long.

    On a machine that does other work, too, a child is not slow for waiting for its turn.
    """
    began, used = time.monotonic(), _processor_time(pid)
    while True:
        try:
            return lines.get(timeout=hang), 0.0
        except queue.Empty:
            waited, worked = time.monotonic() - began, _processor_time(pid)
            if used is None or worked is None or worked - used >= hang or waited >= 10 * hang:
                return None, waited


def _processor_time(pid: int) -> float | None:
    """Return the seconds of the processor that a process has had, None where the system does not tell."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _pump(stream: Any, sink: Any, last: bool) -> None:
    for line in stream:
        sink(line)
    if last:
        sink(None)
