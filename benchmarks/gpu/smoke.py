"""The smoke run: what the card is, what is right, how fast it is; in a fixed time. This process touches no GPU."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.gpu import overhead
from benchmarks.gpu.families import families
from benchmarks.gpu.full import (
    compile_tasks,
    compiled,
    figures_of,
    matches,
    measure_task,
    roof_tasks,
    roof_text,
)
from benchmarks.gpu.measure import all_cases
from benchmarks.gpu.pool import Outcome, Pool, Task, cores, once
from benchmarks.gpu.singles import SINGLES
from benchmarks.gpu.table import Journal, heading, line

# The timed cases.
TIMED = (
    "matmul-nn-4096", "row-sums-16384x4096", "softmax-16384x4096", "layer-norm-16384x4096", "transpose-16384", "axpy-2^28",
    "embedding", "convolution-3x3", "ccsd8", "skinny-64x64x65536",
)  # fmt: skip
_RIGHT, _FAST = 15.0, 30.0  # seconds of an item
_RIGHT_SHARE = 0.6  # of all the time: what is compared after that waits until all is timed
_COMPILE_SHARE = 0.35
_SPARES = 8  # children that are warm when their item comes, at most


class Run:
    """The items of a run, their lines, and the time that is left."""

    def __init__(self, options: argparse.Namespace, journal: Journal) -> None:
        self.options, self.journal = options, journal
        self.start = time.monotonic()
        self.deadline = self.start + options.seconds
        self.kind, self.jobs = options.kind, options.jobs or cores()
        self.rounds = options.rounds or 8
        self.outcomes: list[tuple[str, Outcome]] = []

    def note(self, part: str, outcome: Outcome, text: str = "", **more: Any) -> None:
        """Print and write an item."""
        self.outcomes.append((part, outcome))
        found = {"part": part, "item": outcome.task.name, "status": outcome.status, "message": outcome.message}
        found |= {
            "seconds": round(outcome.seconds, 2),
            "at": round(time.monotonic() - self.start, 1),
            **outcome.result,
            **more,
        }
        found |= {"trace": outcome.trace} if outcome.trace else {}
        says = text or outcome.result.get("note", "") or outcome.message
        if not text and "error" in outcome.result and outcome.status == "ok":
            says = f"error {outcome.result['error']:.1e}"
        state = outcome.status if outcome.status in ("ok", "skip") else outcome.status.upper()
        self.journal.note(f"{part:8} {outcome.task.name:36} {state:5} {outcome.seconds:6.1f} s  {says}".rstrip(), found)

    def wanted(self, *names: str) -> bool:
        """Return whether an item was asked for."""
        return matches(self.options.case, *names)

    def say_card(self, found: dict[str, Any]) -> None:
        """Print what the driver says of the card beside what the target says."""
        compilers, libraries = found["compilers"], found["libraries"]
        for title, values in (("driver", found.get("driver", {})), ("compilers", compilers), ("libraries", libraries)):
            text = ", ".join(f"{name} {value}" for name, value in values.items())
            self.journal.note(f"card     {title:28} {text or '-'}")
        for fact in found["facts"]:
            mark = "  <- DIFFERS" if fact["differs"] else ""
            sides = [f"{v:.4g}" if isinstance(v, float) else str(v) for v in (fact["driver"], fact["target"])]
            target = "" if fact["target"] is None else f"target {sides[1]:>12}"
            self.journal.note(f"card     {fact['fact']:28} driver {sides[0]:>12}  {target}{mark}".rstrip())

    def compile(self, target: str) -> None:
        """Let machine code be made before anything is timed."""
        names = {f.name for f in families() if self.wanted(f.name, "families")}
        tasks = [
            Task(name, "benchmarks.gpu.families:compile_family", {"name": name, "target": target})
            for name in sorted(names)
        ]
        if self.wanted("overhead"):
            tasks += [
                Task(text, "benchmarks.gpu.overhead:compile_text", {"name": text, "target": target}) for text in overhead.TEXTS
            ]  # fmt: skip
        arguments = {"added": [], "tiny": self.kind == "dry"}
        chosen = [c for c in all_cases() if c.name in TIMED and self.wanted(c.name, c.group, "timed")]
        tasks = compile_tasks(chosen, arguments, target) + tasks
        compiled(tasks, "none", self.jobs, self.journal, "compiled", self.start + _COMPILE_SHARE * self.options.seconds)

    def right(self) -> Iterator[Task]:
        """Yield the tasks that compare results."""
        limit = self.options.limit or _RIGHT
        for family in families():
            if self.wanted(family.name, "families"):
                yield Task(family.name, "benchmarks.gpu.families:run_family", {"name": family.name}, limit)
        for name in SINGLES:
            if self.wanted(name, "singles"):
                yield Task(name, "benchmarks.gpu.singles:run_single", {"name": name}, limit)
        # What tests add: functions `module:function` that are called as tasks, or `module:function=seconds`.
        for added in self.options.add:
            name, _, seconds = added.partition("=")
            yield Task(name, name, {}, float(seconds or limit))

    def check(self, tasks: Sequence[Task], deadline: float, *, alone: bool) -> list[Task]:
        """Compare results, each item in a child of its own; several at a time where there are cores for them.

        Returns the tasks for which there was no time.
        """
        workers, spares = (1, 0) if alone else (max(1, min(4, self.jobs // 4)), min(_SPARES, self.jobs // 2))
        left = []
        with Pool(self.kind, deadline=deadline) as pool:
            for outcome in pool.run(tasks, workers, reuse=False, spares=spares):
                if outcome.status == "left" and deadline < self.deadline:
                    left.append(outcome.task)
                else:
                    self.note("right", outcome)
        return left

    def ceilings(self, pool: Pool) -> None:
        """Measure the roofs, then cases beside torch."""
        rates: dict[str, float | None] = {}
        if self.wanted("roofs", "timed"):
            for outcome in pool.run(roof_tasks(self.rounds, ("bf16",))):
                rates |= outcome.result
                text = roof_text(outcome).partition(outcome.task.name)[2].strip() if outcome.status == "ok" else ""
                self.note("roof", outcome, text)
        arguments = {"added": [], "tiny": self.kind == "dry"}
        cases = {c.name: c for c in all_cases() if c.name in TIMED and self.wanted(c.name, c.group, "timed")}
        peers = ["torch"] if self.kind != "stub" else []
        limit = self.options.limit or _FAST
        chosen = [measure_task(cases[name], arguments, self.rounds, peers, limit) for name in TIMED if name in cases]
        if chosen:
            self.journal.note(f"{'':9}{heading(peers)}")
        for outcome in pool.run(chosen):
            figures = figures_of(outcome, cases[outcome.task.name], rates)
            self.outcomes.append(("timed", outcome))
            self.journal.note(
                f"{'timed':8} {line(figures, peers)}", {"part": "timed", "item": outcome.task.name, **figures}
            )

    def overheads(self, pool: Pool) -> None:
        """Measure the host's time a call."""
        tasks = [
            Task(name, "benchmarks.gpu.overhead:host_time", {"name": name}, self.options.limit or _RIGHT)
            for name in overhead.CALLS
            if self.wanted(name, "overhead")
        ]
        for outcome in pool.run(tasks):
            time_of_call = f"{outcome.result['us']:.1f} us a call" if "us" in outcome.result else ""
            self.note("host", outcome, time_of_call)

    def ended(self) -> int:
        """Print how the run ended; return its status."""
        spent = time.monotonic() - self.start
        by_status: dict[str, list[str]] = {}
        for _, outcome in self.outcomes:
            by_status.setdefault(outcome.status, []).append(outcome.task.name)
        counts = ", ".join(f"{len(names)} {status}" for status, names in by_status.items())
        lines = [f"{len(self.outcomes)} items in {spent:.0f} s: {counts}"]
        lines += [f"{s}: {', '.join(names)}" for s, names in by_status.items() if s not in ("ok", "skip")]
        self.journal.note("\n".join(lines), {"part": "summary", "seconds": round(spent, 1), **by_status})
        return int(any(outcome.bad for _, outcome in self.outcomes))


def run(options: argparse.Namespace) -> int:
    """Run the parts one after another; returns 2 where there is no device, 1 where something is wrong."""
    with Journal(options.out) as journal:
        part = Run(options, journal)
        with Pool(part.kind, deadline=part.deadline) as pool:
            about = once(pool, Task("the card", "benchmarks.gpu.families:about", {}, 60))
            if about.status != "ok":
                reason = pool.unavailable or about.message
                journal.note(
                    f"nothing is measured: {reason}", {"part": "card", "status": "no device", "message": reason}
                )
                return 2
            journal.note(f"{about.result['device']}, {about.result['target']}")
            part.note("card", about)
            part.say_card(about.result)
            alone = about.result["exclusive"]
            part.compile(about.result["target"])
            if alone:  # a child at a time may have the device
                pool.close()
            # What takes too long comes last, so that something is timed in any case.
            left = part.check(list(part.right()), part.start + _RIGHT_SHARE * options.seconds, alone=alone)
            part.ceilings(pool)
            part.overheads(pool)
            if left:
                if alone:
                    pool.close()
                part.check(left, part.deadline, alone=alone)
        return part.ended()
