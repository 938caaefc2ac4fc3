"""Instances drawn in the plane of two loops, with matplotlib."""

from __future__ import annotations

from typing import Any

import numpy as np

from polyker.errors.base import failure
from polyker.errors.schedules import NO_LOOP
from polyker.errors.tracebacks import api_boundary
from polyker.process.jobs import load
from polyker.viz.instances import Array, Drawable, Instances, instances

# Arrows of a picture, and instances joined by a line in their order: more hide what they show.
MOST_ARROWS, MOST_JOINED = 600, 200


@api_boundary
def draw(
    schedule: Drawable,
    statement: str,
    *,
    x: str | None = None,
    y: str | None = None,
    path: bool = True,
    waits: bool = True,
    ax: Any = None,
) -> Any:
    """Draw the instances of a statement and return the matplotlib Axes.

    Each point is an instance, coloured from the first that runs (dark) to the last (light). `x`, `y`: the indices that are the
    axes, the last and the one before it if not given; instances that lie at one place are drawn once, when the first of them
    runs. `path`: a line through the points in the order in which they run, where they are few. `waits`: an arrow to each instance
    from the one it waits for. Needs matplotlib (`pip install polyker[viz]`).

    Raises ScheduleError as `instances`, and where there is no such index.
    """
    load("matplotlib.pyplot")
    import matplotlib.pyplot as plt

    found = instances(schedule, statement)
    axes = _axis(found, x, 1), _axis(found, y, 2)
    points, first = np.unique(_places(found.points, axes), axis=0, return_index=True)
    points = points[np.argsort(first)]
    if ax is None:
        _, ax = plt.subplots(figsize=(4.5, 4.5))
    if path and 1 < len(points) <= MOST_JOINED:
        ax.plot(points[:, 0], points[:, 1], color="0.75", linewidth=0.8, zorder=1)
    ax.scatter(points[:, 0], points[:, 1], c=np.arange(len(points)), cmap="viridis", s=36, zorder=3)
    pairs = np.unique(_places(found.waits, axes), axis=0)
    for source, sink in pairs[: MOST_ARROWS if waits else 0]:
        if (source != sink).any():
            style = {"arrowstyle": "->", "color": "tab:red", "linewidth": 0.9, "shrinkA": 4, "shrinkB": 4}
            ax.annotate("", xy=tuple(sink), xytext=tuple(source), arrowprops=style, zorder=2)
    for name, axis in zip(("x", "y"), axes, strict=True):
        ax.set(**{f"{name}label": "" if axis is None else found.loops[axis]})
    ax.invert_yaxis()
    ax.set_aspect("equal", adjustable="datalim")
    ax.set_title(found.statement)
    return ax


def _axis(found: Instances, name: str | None, default: int) -> int | None:
    """Return the number of an index by its name, or counted from the last; None where there are fewer."""
    if name is None:
        return len(found.loops) - default if len(found.loops) >= default else None
    if name not in found.loops:
        known = ", ".join(found.loops) or "none"
        raise failure(NO_LOOP, statement=f"`{found.statement}`", loop=name, known=known)
    return found.loops.index(name)


def _places(points: Array, axes: tuple[int | None, ...]) -> Array:
    """Return the coordinates of points on the axes, 0 on one that there is not."""
    return np.stack([np.zeros(points.shape[:-1], np.int64) if a is None else points[..., a] for a in axes], axis=-1)
