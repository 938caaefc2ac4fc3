"""Pages of results, made from what `python -m benchmarks cpu --json FILE` wrote."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from generate import table

OURS = "polyker"


def page(path: Path, folder: Path) -> str:
    """Return the page of one file of figures; a plot is put into `folder` where matplotlib is there.

    Beside what the benchmark writes a file may have `title`, `machine`, `date`, `commit` and `note`.
    """
    run = json.loads(path.read_text(encoding="utf-8"))
    cases = run["cases"]
    parts = [f"# {run.get('title', path.stem)}\n"]
    if "note" in run:
        parts.append(f":::{{warning}}\n{run['note']}\n:::\n")
    parts += [machine(run), "## Families\n", families(cases)]
    if plot(cases, folder / f"{path.stem}.svg"):
        parts.append(f"![Geometric mean of each sub-family]({path.stem}.svg)\n")
    for family in dict.fromkeys(c["family"] for c in cases):
        parts += [f"## Cases: {family}\n", table_of([c for c in cases if c["family"] == family])]
    failed = [c["case"] for c in cases if not c["ok"]]
    if failed:
        parts.append(f"## Failed\n\n{', '.join(failed)}\n")
    return "\n".join(parts)


def machine(run: dict[str, Any]) -> str:
    """Return what was measured with: the machine and the versions."""
    rows: list[tuple[str, object]] = [(n, run[n]) for n in ("machine", "date", "commit") if n in run]
    rows.append(("cores used", len(run["cores"])))
    rows.append(("Python", run["python"]))
    rows += [(f"peak, {t}", f"{p / 1e9:.0f} GFLOP/s") for t, p in run["peaks"].items()]
    rows += list(run["peers"].items())
    return table(("what", "value"), rows)


def geometric(values: Iterable[float]) -> float:
    """Return the geometric mean; NaN of nothing."""
    logs = [math.log(v) for v in values if v > 0]
    return math.exp(statistics.fmean(logs)) if logs else math.nan


def groups(cases: list[dict[str, Any]]) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Return the cases that have a peer, by family and sub-family."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for case in cases:
        if case["ratio"] is not None:
            found.setdefault((case["family"], case["group"]), []).append(case)
    return found


def families(cases: list[dict[str, Any]]) -> str:
    """Return a row for each family: the mean of its sub-families' geometric means, and the worst case."""
    rows = []
    for family in dict.fromkeys(c["family"] for c in cases):
        own = {k: v for k, v in groups(cases).items() if k[0] == family}
        if not own:
            continue
        means = [geometric(c["ratio"] for c in v) for v in own.values()]
        worst = min((c for v in own.values() for c in v), key=lambda c: c["ratio"])
        compiles = [c["compile"][OURS] for c in cases if c["family"] == family and OURS in c["compile"]]
        count = sum(map(len, own.values()))
        slow = f"{duration(statistics.median(compiles))} ({duration(max(compiles))})" if compiles else ""
        least = f"{worst['ratio']:.2f} (`{worst['case']}`)"
        rows.append((family, count, f"{statistics.fmean(means):.2f}", least, slow))
    return table(("family", "cases", "mean of sub-families", "least", "compile, median (longest)"), rows)


def table_of(cases: list[dict[str, Any]]) -> str:
    """Return a row for each case."""
    rows = []
    for c in cases:
        if not c["ok"]:
            continue
        seconds = c["seconds"][OURS]
        rate = f"{c['flops'] / seconds / 1e9:.4g} GFLOP/s" if c["flops"] else f"{c['bytes'] / seconds / 1e9:.4g} GB/s"
        ratio = f"{c['ratio']:.2f} ({c['best_peer']})" if c["ratio"] is not None else ""
        share = f"{c['share_of_floor']:.0%}" if c["share_of_floor"] else ""
        rows.append((f"`{c['case']}`", duration(seconds), rate, share, ratio))
    return table(("case", "time", "rate", "floor / time", "best peer's time / polyker's"), rows)


def duration(seconds: float) -> str:
    """Return a time in the unit that suits it."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def plot(cases: list[dict[str, Any]], path: Path) -> bool:
    """Draw the geometric means of the sub-families; return False where there is nothing to draw or no matplotlib."""
    means = {f"{f}: {g}": geometric(c["ratio"] for c in v) for (f, g), v in groups(cases).items()}
    try:
        import matplotlib
    except ImportError:
        return False
    if not means:
        return False
    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 1 + 0.25 * len(means)), layout="constrained")
    axes.barh(list(means), list(means.values()))
    axes.axvline(1.0, color="black", linewidth=1)
    axes.invert_yaxis()
    axes.set(xlabel="best peer's time / polyker's (geometric mean)")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    pyplot.close(figure)
    return True
