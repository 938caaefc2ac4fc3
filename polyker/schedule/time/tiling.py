"""Decide whether and how a time loop is tiled together with space."""

from __future__ import annotations

from polyker.cost.choose import choose
from polyker.cost.measure import Layouts, MeasuredStatement, measure
from polyker.cost.plan import TilePlan
from polyker.ir.decision import Decision
from polyker.ir.typed import TypedLoop, TypedProgram, TypedStatement
from polyker.machine.model import Target
from polyker.schedule.nests.nest import Nest
from polyker.schedule.time.cost import TimeCosts
from polyker.schedule.time.nest import TimeNest
from polyker.schedule.time.skew import SkewedStatement, distances, fronts, places_of
from polyker.structs import replace


def time_tiled(
    program: TypedProgram, loop: TypedLoop, free: dict[str, tuple[str, ...]], layout: Layouts, target: Target
) -> tuple[Nest, Decision] | None:
    """Return the nest of a time loop by tiles of time and space, and what was chosen in words; None where they do not pay.

    `free`: statement -> the iterators along which no instance of one step depends on another.
    """
    statements = tuple(n for n in loop.body if isinstance(n, TypedStatement))
    if len(statements) < len(loop.body) or not statements:
        return None
    places = places_of(statements)
    found = distances(places) if places is not None else None
    if places is None or found is None or not fronts(places, found):
        return None
    measured = tuple(measure(program, s, layout) for s in statements)
    plans = _alike(places, [choose(m, free[m.statement.name], (), target) for m in measured])
    units = _units(places, plans, measured, target)
    tiles = TimeCosts(places, measured, plans, found, fronts(places, found, units), target).best()
    if tiles is None:
        return None
    names: dict[int, str] = {}
    for place in places:
        for n, (iterator, _) in enumerate(place.space):
            if iterator is not None:
                names.setdefault(n, iterator)
    nest = TimeNest(places, measured, plans, tuple(free[s.name] for s in statements), tiles, names, units).nest()
    cut = ", ".join(f"{names[f.dimension]} by {n} (skewed by {f.step} a step)" for f, n in tiles.sizes)
    chosen = f"{tiles.steps} steps of {loop.iterator} run in one part of space: {cut}; "
    chosen += f"the model wins {100 * tiles.won:.0f}% of the cycles"
    return nest, Decision(", ".join(s.name for s in statements), chosen, cost=1 - tiles.won)


def _alike(places: tuple[SkewedStatement, ...], plans: list[TilePlan]) -> tuple[TilePlan, ...]:
    """Return the plans with vectors along one dimension of space, that of most statements; no rows are unrolled."""
    along = [
        next((n for n, (i, _) in enumerate(p.space) if i and i == q.vector), None)
        for p, q in zip(places, plans, strict=True)
    ]
    common = max((n for n in along if n is not None), key=along.count, default=None)
    scalar = TilePlan(None, 1, 1, (), 0.0)
    return tuple(
        replace(q, others=()) if n == common else replace(scalar, cost=q.cost)
        for n, q in zip(along, plans, strict=True)
    )


def _units(
    places: tuple[SkewedStatement, ...],
    plans: tuple[TilePlan, ...],
    measured: tuple[MeasuredStatement, ...],
    target: Target,
) -> dict[int, int]:
    """Return the dimension of the vectors with the number of lanes, where all rows that are written begin alike in their lines.

    Vectors of a row that begin in steps of whole vectors lie in one line each, if the tensors themselves begin so.
    """
    units: dict[int, int] = {}
    line = target.caches[0].line
    for place, plan, m in zip(places, plans, measured, strict=True):
        if plan.vector is None:
            continue
        write = m.write
        n = next(n for n, (i, _) in enumerate(place.space) if i == plan.vector)
        alike = all(write.stride(i) * write.itemsize % line == 0 for i, _ in place.space if i and i != plan.vector)
        if not alike or write.stride(plan.vector) != 1 or plan.lanes * write.itemsize != line:
            return {}
        units[n] = plan.lanes
    return units
