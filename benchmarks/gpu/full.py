"""The full run: every case in a child with a time limit, beside its peers. This process touches no GPU; it prints and writes."""

from __future__ import annotations

import argparse
import fnmatch
import json
import time
from collections.abc import Iterable, Sequence
from typing import Any

from benchmarks.gpu.case import Case
from benchmarks.gpu.measure import TENSOR, all_cases
from benchmarks.gpu.pool import Outcome, Pool, Task, cores, once
from benchmarks.gpu.table import Journal, heading, line, roof, summary

PEERS = ("torch", "triton", "cupy")
_MEASURE = "benchmarks.gpu.measure:"
_COMPILING = 120.0  # seconds
_TOGETHER = 6  # processes that compile by torch, each with inputs of a case in the device's memory


def matches(globs: str, *names: str) -> bool:
    """Return whether one of the names matches one of the patterns."""
    return any(fnmatch.fnmatch(name, glob) for glob in globs.split(",") for name in names)


def compile_tasks(chosen: Iterable[Case], arguments: dict[str, Any], target: str) -> list[Task]:
    """Return the tasks that make machine code of cases, those first that take longest."""
    slow = ("attention", "linear", "contraction")
    ordered = sorted(chosen, key=lambda case: slow.index(case.group) if case.group in slow else len(slow))
    return [
        Task(case.name, f"{_MEASURE}compile_case", {"name": case.name, "target": target, **arguments}, _COMPILING)
        for case in ordered
    ]


def compiled(
    tasks: Sequence[Task], kind: str, jobs: int, journal: Journal, what: str, deadline: float | None = None
) -> None:
    """Let processes compile, and say how it went; what fails here will fail in its own row, too."""
    start, bad = time.monotonic(), list[Outcome]()
    environment = {"TORCHINDUCTOR_COMPILE_THREADS": "2"} if kind != "none" else {}
    with Pool(kind, environment, deadline) as pool:
        bad += (o for o in pool.run(tasks, min(jobs, len(tasks))) if o.status not in ("ok", "skip"))
    took = time.monotonic() - start
    failed = {o.task.name: f"{o.status}: {o.message}" for o in bad}
    text = f"{what}: {len(tasks)} programs in {took:.1f} s" + "".join(f"\n  {n}: {m}" for n, m in failed.items())
    journal.note(text, {"compiled": what, "programs": len(tasks), "seconds": took, "failed": failed})


def roof_tasks(rounds: int, dtypes: Sequence[str]) -> list[Task]:
    """Return the tasks that measure the roofs."""
    tasks = [
        Task("copy", f"{_MEASURE}copy_roof", {"rounds": rounds}, 30),
        Task("multiply-adds of f32", f"{_MEASURE}fma_roof", {"rounds": rounds}, 30),
    ]
    for dtype in dtypes:
        arguments = {"dtype": dtype, "rounds": rounds}
        tasks.append(Task(f"product of {dtype}", f"{_MEASURE}matmul_roof", arguments, 30))
    return tasks


def roof_text(outcome: Outcome) -> str:
    """Return what is printed of a roof."""
    if outcome.status != "ok":
        return f"roof: {outcome.task.name:20} {outcome.status.upper()}: {outcome.message}"
    ((name, rate),) = outcome.result.items()
    if not rate:
        return f"roof: {outcome.task.name:20} not measured"
    return f"roof: {outcome.task.name:20} {rate / 1e12:.2f} {'TB/s' if name == 'copy' else 'TFLOP/s'}"


def measure_task(case: Case, arguments: dict[str, Any], rounds: int, peers: Sequence[str], limit: float) -> Task:
    """Return the task that measures a case."""
    more = {"name": case.name, "rounds": rounds, "wanted": list(peers), **arguments}
    return Task(case.name, f"{_MEASURE}measure", more, case.limit or limit)


def figures_of(outcome: Outcome, case: Case, rates: dict[str, float | None]) -> dict[str, Any]:
    """Return the row of a case."""
    row = {"case": case.name, "group": case.group, "status": outcome.status, "message": outcome.message}
    row |= {"notes": {}, **outcome.result, "seconds": outcome.seconds}
    if outcome.trace:
        row["trace"] = outcome.trace
    row["roof"] = roof(row, rates) if "moved" in row else None
    return row


def run(options: argparse.Namespace) -> int:
    """Measure and print; returns 2 where there is no device, 1 where something is wrong."""
    kind, tiny, jobs = options.kind, options.kind == "dry", options.jobs or cores()
    rounds, limit = options.rounds or 24, options.limit or 60.0
    arguments = {"added": options.add, "tiny": tiny}
    chosen = [c for c in all_cases(options.add) if matches(options.case, c.name, c.group)]
    wanted = options.peers.split(",") if options.peers else ["torch"] if kind == "dry" else list(PEERS)
    start = time.monotonic()
    # What torch compiles is on disk when it is measured: more processes for it would only disturb.
    with Journal(options.out) as journal, Pool(kind, {"TORCHINDUCTOR_COMPILE_THREADS": "1"}) as pool:
        about = once(pool, Task("machine", "benchmarks.gpu.families:about", {}, 60))
        if about.status != "ok":
            journal.note(
                f"nothing is measured: {pool.unavailable or about.message}", {"status": "no device", **about.result}
            )
            return 2
        device, target = about.result["device"], about.result["target"]
        found = once(pool, Task("peers", f"{_MEASURE}available", {"wanted": wanted}, 60))
        names = found.result.get("peers", [])
        journal.note(f"{device}, {target}", {"about": about.result, **found.result})
        for name, reason in found.result.get("missing", {}).items():
            journal.note(f"without {name}: {reason}")
        compiled(compile_tasks(chosen, arguments, target), "none", jobs, journal, "polyker compiled")
        if "triton" in names:
            tasks = [
                Task(c.name, f"{_MEASURE}compile_peer", {"name": c.name, **arguments}, _COMPILING) for c in chosen
            ]  # fmt: skip
            compiled(tasks, kind, max(1, min(_TOGETHER, jobs // 2)), journal, "torch.compile compiled")
        rates: dict[str, float | None] = {}
        for outcome in pool.run(roof_tasks(rounds, TENSOR)):
            rates |= outcome.result
            journal.note(roof_text(outcome), {"roof": outcome.task.name, "status": outcome.status, **outcome.result})
        journal.note(heading(names))
        figures: list[dict[str, Any]] = []
        cases = {c.name: c for c in chosen}
        try:
            for outcome in pool.run([measure_task(c, arguments, rounds, names, limit) for c in chosen]):
                figures.append(figures_of(outcome, cases[outcome.task.name], rates))
                journal.note(line(figures[-1], names), figures[-1])
        finally:
            if options.json:
                whole = {"machine": device, "target": target, "about": about.result, "rates": rates, "figures": figures}
                with open(options.json, "w", encoding="utf-8") as file:
                    json.dump(whole, file, indent=1)
        lines = summary(figures, device if kind == "cuda" else "")
        journal.note(
            "\n".join([*lines, f"{len(figures)} cases in {time.monotonic() - start:.0f} s"]), {"summary": lines}
        )
    return int(any(f["status"] not in ("ok", "skip") for f in figures))
