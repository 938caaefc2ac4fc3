"""What the machine allows against what polyker takes: `python -m benchmarks.model [--family F] [--case GLOB]`.

Predicted here is the floor: operations over the measured peak or compulsory bytes over the measured bandwidth, whichever is
longer. Cases are printed with the notes of the schedule that was chosen.
"""

from __future__ import annotations

import argparse

from benchmarks import process


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    found = argparse.ArgumentParser(prog="python -m benchmarks.model", description=__doc__)
    found.add_argument("--family", action="append", help="only this family; may be repeated")
    found.add_argument("--case", default="*", metavar="GLOB", help="only cases whose name matches")
    found.add_argument("--rounds", type=int, default=5)
    found.add_argument("--core", type=int, help="the core to run on; default: the last")
    found.add_argument("--notes", action="store_true", help="print the notes of each schedule too")
    return found


def main(arguments: list[str] | None = None) -> None:
    """Print each case's floor, its time and their quotient; then how many cases reach which part of it."""
    options = parser().parse_args(arguments)
    process.prepare(options.core)

    import polyker as pk
    from benchmarks.cases import select
    from benchmarks.machine import measure
    from benchmarks.report import duration
    from benchmarks.run import OURS, Settings, run

    rows = []
    settings = Settings((), options.rounds, note=print)
    print(f"{'case':<58}{'floor':>10}{'measured':>10}{'share':>8}")
    for outcome in run(select(tuple(options.family or ()), options.case), measure(), settings):
        if OURS not in outcome.times:
            continue
        measured = outcome.times[OURS].median
        rows.append(outcome.floor / measured)
        print(f"{outcome.case.name:<58}{duration(outcome.floor):>10}{duration(measured):>10}{rows[-1]:>8.0%}")
        if options.notes:
            problem = outcome.problem
            types = {o.name: getattr(pk, o.dtype)[o.shape] for o in problem.inputs}
            schedule = pk.op(problem.text, **problem.fixed).compile(**types).source("schedule")
            print("\n".join("    " + note for note in schedule.splitlines() if note[:1] not in " -"))
    for part in (0.25, 0.5, 0.75, 0.9):
        print(f"at {part:.0%} of the floor or more: {sum(r >= part for r in rows)} of {len(rows)} cases")


if __name__ == "__main__":
    main()
