"""`python -m benchmarks cpu`: polyker beside its peers on one core, every result checked."""

from __future__ import annotations

import argparse
import datetime
import platform
import sys
import time
from pathlib import Path

from benchmarks import peak_memory, process, threads, torch_models
from benchmarks.polybench import run as polybench

FAMILIES = ("matmul", "tccg", "tensor", "semiring", "conv", "integer", "memory", "programs", "stencils")
PEERS = ("numpy", "torch", "jax", "tblis", "numba")


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    found = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    commands = found.add_subparsers(dest="command", required=True)
    cpu = commands.add_parser("cpu", help="time every case")
    cpu.add_argument("--family", action="append", choices=FAMILIES, help="only this family; may be repeated")
    cpu.add_argument("--case", default="*", metavar="GLOB", help="only cases whose name matches")
    cpu.add_argument("--peers", default=",".join(PEERS), help="comma-separated; default: %(default)s")
    cpu.add_argument("--torch-compile", action="store_true", help="torch.compile too: it compiles for seconds a case")
    cpu.add_argument("--rounds", type=int, default=5, help="rounds, of which the median counts; default: %(default)s")
    cpu.add_argument(
        "--enough",
        type=float,
        default=0.25,
        metavar="SECONDS",
        help="more rounds of a case until its calls took so long; default: %(default)s",
    )
    cpu.add_argument("--seconds", type=float, help="begin no new round of a case after so long (three there are)")
    cpu.add_argument(
        "--clock",
        choices=("wall", "cpu"),
        default="wall",
        help="cpu: of this process alone, where others share the core",
    )
    cpu.add_argument("--core", type=int, help="the core to run on; default: the last")
    cpu.add_argument("--threads", type=int, default=1, help="threads of the peers, one core each; default: %(default)s")
    cpu.add_argument("--json", type=Path, metavar="FILE", help="write all figures")
    cpu.add_argument("--plot", type=Path, metavar="FILE", help="draw a roofline and bars (matplotlib)")
    polybench.add_parser(commands)
    peak_memory.add_parser(commands)
    threads.add_parser(commands)
    torch_models.add_parser(commands)
    commands.add_parser("list", help="print the names of all cases")
    return found


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return the exit status: 1 if polyker failed on a case."""
    options = parser().parse_args(arguments)
    if options.command == "list":
        from benchmarks.cases import all_cases

        print(*(case.name for case in all_cases()), sep="\n")
        return 0
    if options.command == "polybench":
        return polybench.main(options)
    if options.command == "peak":
        return peak_memory.main(options)
    if options.command == "threads":
        return threads.main(options)
    if options.command == "torch":
        return torch_models.main(options)
    cores = process.prepare(options.core, options.threads)
    return measure(options, cores)


def measure(options: argparse.Namespace, cores: list[int]) -> int:
    """Run the cases and print what they give; returns the exit status."""
    # Not before the process is prepared: these import numpy and, later, libraries that start threads.
    from rich.console import Console

    from benchmarks import contestants, machine, report, summary
    from benchmarks.cases import select
    from benchmarks.run import OURS, Settings, run

    console = Console(soft_wrap=True, highlight=False)
    wanted = [p for p in options.peers.split(",") if p] + ["torch.compile"] * options.torch_compile
    unknown = set(wanted) - {*contestants.PEERS}
    if unknown:
        console.print(f"no such peer: {', '.join(sorted(unknown))}; there are {', '.join(contestants.PEERS)}")
        return 2
    cases = select(tuple(options.family or ()), options.case)
    versions, missing = contestants.available(wanted)
    console.print(
        f"{platform.processor() or platform.machine()}, core {', '.join(map(str, cores))}; {len(cases)} cases"
    )
    measured = machine.measure()
    report.describe(console, measured, versions, missing)
    contestants.warm_up()
    peers = tuple(versions)
    clock = time.process_time if options.clock == "cpu" else time.perf_counter
    pace = machine.Pace()
    settings = Settings(
        peers, options.rounds, options.seconds, clock, lambda t: console.print(t, style="red"), pace, options.enough
    )
    console.print(report.header(peers), style="bold")
    facts = {
        "machine": machine.name(),
        "date": datetime.date.today().isoformat(),
        "commit": machine.commit(),
        "peers": versions,
        "peaks": measured.peaks,
        "cores": cores,
        "python": platform.python_version(),
    }
    outcomes = []
    for outcome in run(cases, measured, settings):
        outcomes.append(outcome)
        console.print(report.line(outcome, peers))
        if options.json:  # anew after each case: a run that is stopped keeps what it has
            options.json.write_text(summary.file_text(facts, outcomes), encoding="utf-8")
    report.summarise(console, outcomes)
    if options.plot:
        from benchmarks import plot

        plot.save(options.plot, outcomes, measured)
    return int(any(OURS not in o.times for o in outcomes))


if __name__ == "__main__":
    sys.exit(main())
