"""Pictures of the outcomes: a roofline, and bars of the ratios."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.machine import Machine, bandwidth, levels
from benchmarks.run import OURS, Outcome
from benchmarks.summary import families


def save(path: Path, outcomes: Sequence[Outcome], machine: Machine) -> None:
    """Write both pictures to one file; its suffix is the format. Raises ImportError without matplotlib."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, (roof, bars) = pyplot.subplots(1, 2, figsize=(15, 6), layout="constrained")
    _roofline(roof, outcomes, machine)
    _bars(bars, outcomes)
    figure.savefig(path, dpi=130)
    pyplot.close(figure)


def _roofline(axes: Any, outcomes: Sequence[Outcome], machine: Machine) -> None:
    intensities = [2.0**n for n in range(-4, 11)]
    peak = max(machine.peaks.values())
    for name, size in levels():
        roof = [min(peak, bandwidth(size) * i) / 1e9 for i in intensities]
        axes.plot(intensities, roof, linewidth=1, label=f"{name} {bandwidth(size) / 1e9:.0f} GB/s")
    points: dict[str, list[tuple[float, float]]] = {}
    for o in outcomes:
        if o.problem.flops is not None and OURS in o.times:
            point = o.problem.flops / o.problem.bytes, o.problem.flops / o.times[OURS].median / 1e9
            points.setdefault(o.case.family, []).append(point)
    for family, found in points.items():
        axes.scatter(*zip(*found, strict=True), s=12, label=family)
    axes.set(xscale="log", yscale="log", xlabel="FLOP per compulsory byte", ylabel="GFLOP/s", title="polyker")
    axes.legend(fontsize=8)


def _bars(axes: Any, outcomes: Sequence[Outcome]) -> None:
    rows = [(f"{f.name}: {g}", mean) for f in families(outcomes) for g, mean in f.groups.items()]
    axes.barh([name for name, _ in rows], [mean for _, mean in rows])
    axes.axvline(1.0, color="black", linewidth=1)
    axes.invert_yaxis()
    axes.set(xlabel="best peer's time / polyker's (geometric mean)", title="sub-families")
