"""Figures over many outcomes: geometric means of sub-families, their mean, the worst case, medians of compile times."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from benchmarks.run import OURS, Outcome


class Family(Struct, frozen=True):
    """The ratios of one family: the geometric mean of each sub-family, their mean, the worst case.

    A case where polyker fails counts as the worst, 0, and stays out of the means.
    """

    name: str
    groups: dict[str, float]
    counts: dict[str, int]
    mean: float
    worst: float
    worst_case: str
    failed: tuple[str, ...]


def geometric(values: Sequence[float]) -> float:
    """Return the geometric mean; NaN of nothing."""
    return math.exp(statistics.fmean(map(math.log, values))) if values else math.nan


def families(outcomes: Iterable[Outcome]) -> list[Family]:
    """Return the figures of each family, in order of appearance; cases without a peer stay out."""
    ratios: dict[str, dict[str, list[tuple[float, str]]]] = {}
    for outcome in outcomes:
        if outcome.ratio is not None:
            groups = ratios.setdefault(outcome.case.family, {})
            groups.setdefault(outcome.case.group, []).append((outcome.ratio, outcome.case.name))
    found = []
    for name, groups in ratios.items():
        means = {g: geometric([r for r, _ in rows if r > 0]) for g, rows in groups.items()}
        worst, worst_case = min(row for rows in groups.values() for row in rows)
        failed = tuple(case for rows in groups.values() for r, case in rows if r == 0)
        known = [m for m in means.values() if not math.isnan(m)]
        mean = statistics.fmean(known) if known else math.nan
        found.append(Family(name, means, {g: len(r) for g, r in groups.items()}, mean, worst, worst_case, failed))
    return found


def compile_medians(outcomes: Iterable[Outcome]) -> dict[str, tuple[float, float]]:
    """Return each compiling contestant's median and longest time to compile, in seconds."""
    found: dict[str, list[float]] = {}
    for outcome in outcomes:
        for name, seconds in outcome.compiles.items():
            found.setdefault(name, []).append(seconds)
    return {name: (statistics.median(v), max(v)) for name, v in found.items()}


def file_text(facts: Mapping[str, Any], outcomes: Iterable[Outcome]) -> str:
    """Return the text of a file of figures, one line a case."""
    head = json.dumps(dict(facts), indent=1).removesuffix("\n}")
    cases = ",\n".join(f"  {json.dumps(as_json(o))}" for o in outcomes)
    return f'{head},\n "cases": [\n{cases}\n ]\n}}\n'


def as_json(outcome: Outcome) -> dict[str, Any]:
    """Return an outcome as plain values; times in seconds."""
    problem = outcome.problem
    return {
        "case": outcome.case.name,
        "family": outcome.case.family,
        "group": outcome.case.group,
        "text": problem.text,
        "shapes": {o.name: [o.dtype, *o.shape] for o in (*problem.inputs, problem.output)},
        "flops": problem.flops,
        "bytes": problem.bytes,
        "floor": outcome.floor,
        "seconds": {n: t.median for n, t in outcome.times.items()},
        "rounds": {n: [float(f"{r:.4g}") for r in t.rounds] for n, t in outcome.times.items()},
        "rough": [n for n, t in outcome.times.items() if t.rough],
        "disturbed": {n: t.disturbed for n, t in outcome.times.items() if t.disturbed},
        "compile": dict(outcome.compiles),
        "failures": dict(outcome.failures),
        "best_peer": outcome.best_peer,
        "ratio": outcome.ratio,
        "share_of_floor": outcome.share,
        "ok": OURS in outcome.times,
    }
