"""A campaign: children that run cases, what they report, and the table of what fired."""

from __future__ import annotations

import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from tests.fuzz.children import Child


class Failure(Struct):
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


class Campaign(Struct):
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
        arguments = (self.seed, first, stop, step, self.backend, "shrink")
        child = Child("tests.fuzz.worker", arguments, self.hang)
        current: dict[str, Any] | None = None
        count = 0
        for said in child.lines():
            current = self._hear(said, current)
            if "end" in said:
                first, count = said["end"] + step, count + 1
                enough = time.monotonic() > until or len(self.failures) >= stop_at
                # Children are renewed now and then, so that growth in one does not end the campaign.
                if (enough or count >= 2000) and not said.get("problem"):
                    child.stop()
                    return stop if enough else first
        kind, problem = child.ended
        return self._died(current, first, step, kind, problem) if kind else stop

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
        elements = [f"{name} {100 * n / max(self.done, 1):.2f}%" for name, n in rows]
        return "\n".join(
            "  ".join(f"{c:<38}" for c in elements[k : k + 3]).rstrip() for k in range(0, len(elements), 3)
        )
