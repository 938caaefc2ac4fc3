"""The tables that are printed: a line a case as it is done, then the families."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks.machine import Machine, bandwidth, levels
from benchmarks.run import OURS, Outcome
from benchmarks.summary import compile_medians, families


def duration(seconds: float) -> str:
    """Return a time in the unit that suits it."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def rate(outcome: Outcome) -> str:
    """Return GFLOP/s, or GB/s where the problem has no count of operations."""
    problem, seconds = outcome.problem, outcome.times[OURS].median
    if problem.flops is None:
        return f"{problem.bytes / seconds / 1e9:.4g} GB/s"
    return f"{problem.flops / seconds / 1e9:.4g} GF/s"


def _width(peer: str) -> int:
    return max(9, len(peer) + 2)


def header(peers: Sequence[str]) -> str:
    """Return the line above the cases."""
    columns = "".join(f"{p:>{_width(p)}}" for p in peers)
    return f"{'case':<58}{'time':>9}{'rate':>12}{'floor':>7}{'compile':>9}  {columns}{'ratio':>8}  best"


def line(outcome: Outcome, peers: Sequence[str]) -> Text:
    """Return a case's line: polyker's time, rate and share of the floor; each peer's time over polyker's; the best's."""
    text = Text(f"{outcome.case.name:<58}")
    if OURS not in outcome.times:
        return text.append(f" {outcome.failures[OURS]}", "bold red")
    ours = outcome.times[OURS].median
    compiled = duration(outcome.compiles[OURS])
    text.append(f"{duration(ours):>9}{rate(outcome):>12}{outcome.share or 0:>7.0%}{compiled:>9}  ")
    for peer in peers:
        if peer in outcome.times:
            mark = "~" if outcome.times[peer].rough else ""
            figure = mark + format(outcome.times[peer].median / ours, ".2f")
            text.append(f"{figure:>{_width(peer)}}", "dim" if mark else "")
        else:
            fault = peer in outcome.failures
            text.append(f"{'wrong' if fault else '-':>{_width(peer)}}", "red" if fault else "dim")
    if outcome.ratio is not None:
        style = "green" if outcome.ratio >= 1 else "yellow" if outcome.ratio >= 0.9 else "bold red"
        text.append(f"{outcome.ratio:>8.2f}", style).append(f"  {outcome.best_peer}", "dim")
    if outcome.disturbed:
        text.append(" (the machine was slow)", "yellow")
    return text


def describe(console: Console, machine: Machine, versions: dict[str, str], missing: dict[str, str]) -> None:
    """Print what is measured with: versions, peaks, bandwidths."""
    console.print("peers: " + ", ".join(f"{n} {v}" for n, v in versions.items()))
    for name, reason in missing.items():
        console.print(f"{name} is left out: {reason}")
    console.print("peak: " + ", ".join(f"{d} {p / 1e9:.1f} GFLOP/s" for d, p in machine.peaks.items()))
    found = ", ".join(f"{name} {bandwidth(size) / 1e9:.1f}" for name, size in levels())
    console.print(f"copies, read and written, GB/s: {found}")
    console.print(
        "ratio: best peer's time / polyker's; floor: the least the machine needs / polyker's; ~: one estimate\n"
    )


def summarise(console: Console, outcomes: Sequence[Outcome]) -> None:
    """Print the families' figures and the times to compile."""
    table = Table("family", "sub-family", "cases", "geometric mean", title="best peer's time / polyker's")
    for family in families(outcomes):
        for group, mean in family.groups.items():
            table.add_row(family.name, group, str(family.counts[group]), f"{mean:.2f}")
        worst = f"{family.mean:.2f}, worst {family.worst:.2f} ({family.worst_case})"
        table.add_row(family.name, "mean", str(sum(family.counts.values())), worst, style="bold", end_section=True)
    console.print(table)
    for name, (median, longest) in compile_medians(outcomes).items():
        console.print(f"compile, {name}: median {duration(median)}, longest {duration(longest)}")
    slow = sum(o.disturbed for o in outcomes)
    if slow:
        console.print(f"the machine was slower than it can be while {slow} of {len(outcomes)} cases were timed")
    failed = [o.case.name for o in outcomes if OURS not in o.times]
    if failed:
        console.print(f"polyker failed on {len(failed)}: {', '.join(failed)}", style="bold red")
