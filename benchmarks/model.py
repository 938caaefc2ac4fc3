"""The cost model against measurements: `python -m benchmarks.model [--family F] [--case GLOB] [--alternatives N]`.

For each case: its floor (operations over the measured peak or compulsory bytes over the measured bandwidth, whichever is
longer), the measured time, and the time over that of the fastest of N schedules. These are the model's N best tiles that
differ in the vector's index or in the number of vectors.
"""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any

from benchmarks import process

if TYPE_CHECKING:
    from benchmarks.case import Problem


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    found = argparse.ArgumentParser(prog="python -m benchmarks.model", description=__doc__)
    found.add_argument("--family", action="append", help="only this family; may be repeated")
    found.add_argument("--case", default="*", metavar="GLOB", help="only cases whose name matches")
    found.add_argument("--rounds", type=int, default=5)
    found.add_argument("--core", type=int, help="the core to run on; default: the last")
    found.add_argument("--alternatives", type=int, default=0, metavar="N", help="time the model's N best tiles")
    found.add_argument("--seconds", type=float, default=0.05, help="to spend on one alternative")
    found.add_argument("--notes", action="store_true", help="print the notes of each schedule too")
    return found


def main(arguments: list[str] | None = None) -> None:
    """Print each case's floor, its time and their quotient; then how many cases reach which part of it."""
    options = parser().parse_args(arguments)
    process.prepare(options.core)

    import polyker as pk
    from benchmarks.cases import select
    from benchmarks.machine import Pace, measure
    from benchmarks.report import duration
    from benchmarks.run import OURS, Settings, run

    rows, choices = [], []
    settings = Settings((), options.rounds, note=print, invariant=Pace())
    print(f"{'case':<58}{'floor':>10}{'measured':>10}{'share':>8}{'to best':>9}")
    for outcome in run(select(tuple(options.family or ()), options.case), measure(), settings):
        if OURS not in outcome.times:
            continue
        measured = outcome.times[OURS].median
        rows.append(outcome.floor / measured)
        quotient = ""
        if options.alternatives:
            times = alternatives(outcome.case.name, outcome.problem, options.alternatives, options.seconds)
            choices.append(times[0] / min(times))
            quotient = f"{choices[-1]:.2f}"
        line = f"{outcome.case.name:<58}{duration(outcome.floor):>10}{duration(measured):>10}{rows[-1]:>8.0%}"
        print(f"{line}{quotient:>9}", flush=True)
        if options.notes:
            problem = outcome.problem
            types = {o.name: getattr(pk, o.dtype)[o.shape] for o in problem.inputs}
            schedule = pk.op(problem.text, **problem.fixed).compile(**types).source("schedule")
            print("\n".join("    " + note for note in schedule.splitlines() if note[:1] not in " -"))
    for part in (0.25, 0.5, 0.75, 0.9):
        print(f"at {part:.0%} of the floor or more: {sum(r >= part for r in rows)} of {len(rows)} cases")
    if choices:
        good = sum(c <= 1.15 for c in choices)
        print(
            f"the choice is within 1.15 of the best alternative: {good} of {len(choices)} cases ({good / len(choices):.0%})"
        )


def alternatives(name: str, problem: Problem, count: int, seconds: float) -> list[float]:
    """Return the CPU seconds of the model's best tiles, its own choice first; each is the least of its rounds, in turns."""
    import polyker as pk
    from benchmarks.case import arrays, empty
    from polyker.cost.choose import alternative

    operands = arrays(name, problem)
    kernels: dict[str, Any] = {}
    for rank in range(count):
        with alternative(rank):
            # A text of its own, so that the cache does not answer.
            kernel = pk.op(f"{problem.text}  # {rank}", **problem.fixed).compile(*operands)
        kernels.setdefault(str(kernel.source("schedule")), kernel)
    out = empty(problem.output.shape, problem.output.dtype)
    times = [float("inf")] * len(kernels)
    until = time.perf_counter() + seconds * len(kernels)
    while time.perf_counter() < until:
        for n, kernel in enumerate(kernels.values()):
            start, calls = time.perf_counter(), 0
            while calls < 1 or time.perf_counter() - start < seconds / 10:
                kernel(*operands, out=out)
                calls += 1
            times[n] = min(times[n], (time.perf_counter() - start) / calls)
    return times


if __name__ == "__main__":
    main()
