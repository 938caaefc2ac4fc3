"""`polyker demo`: progress, the table, and the file of results."""

from __future__ import annotations

import json
import sys

import click

from polyker.cli.demo import LEGEND, as_json, run_cases, summary, table
from polyker.cli.demo_cases import load
from polyker.cli.doctor import machine

NARROWEST = 176


def run_demo(only: str | None, *, quick: bool, every_shape: bool, dtype: str, json_path: str | None) -> bool:
    """Run the demo's cases, print the table, write `json_path` if given; returns whether all passed."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    cases = [c for c in load(dtype=dtype, quick=quick, every_shape=every_shape) if only is None or only in c.id]
    if not cases:
        raise click.ClickException("no operator of that name")
    # A table cut to 80 columns cannot be read: in a pipe or a file it gets the width it needs.
    console = Console(highlight=False, width=None if sys.stdout.isatty() else NARROWEST)
    columns = (TextColumn("{task.description:>20}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    rows = []
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(cases[0].id, total=len(cases))
        for case, row in zip(cases, run_cases(cases, 0.02 if quick else 0.5), strict=True):
            rows.append(row)
            following = cases[len(rows)].id if len(rows) < len(cases) else case.id
            progress.update(task, completed=len(rows), description=following)
    console.print(table(rows, console.width))
    console.print(LEGEND, style="dim", markup=False)
    failed = [row for row in rows if row.failure]
    for row in failed:
        console.print(f"\n{row.id} ({row.shape}) failed:\n{row.failure}", style="red", markup=False)
    console.print(summary(rows), style="red" if failed else "green", markup=False)
    if json_path is not None:
        with open(json_path, "w", encoding="utf-8") as file:
            json.dump(as_json(rows, machine()), file, indent=1)
            file.write("\n")
    return not failed
