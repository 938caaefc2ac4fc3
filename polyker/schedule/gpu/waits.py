"""Place waits for asynchronous copies: at barriers before their uses, for as few copies as the dependences need.

Copies that stand next to each other in a sequence are a group, which is closed behind them. What a thread copied is seen by
others once it has waited and then met them; so a wait stands before a barrier between a copy and its use, and between it and
what overwrites the element that was copied. It leaves out groups
that are sure to have been closed since the copy: where a use comes d iterations of a loop after it, those of the d - 1 between.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce

import islpy as isl

from polyker.ir.expr import Expr, IndexExpr
from polyker.ir.quasi_affine import indices_of, print_affine, substitute
from polyker.poly.isl import read_map, read_set
from polyker.poly.scop import Scop, ScopAccess, parameters
from polyker.schedule.tree.block_threads import (
    Branch,
    BranchLoop,
    LaunchBranches,
    Passed,
    Point,
    SequenceChild,
    partings,
    passed,
)


def groups(scop: Scop, launch: LaunchBranches) -> frozenset[Point]:
    """Return the children of sequences behind which groups of copies are closed: of neighbours that copy, the last."""
    copying = {p for b in launch.branches if _copies(scop, b) and (p := _sequence(b)) is not None}
    return frozenset((node, child) for node, child in copying if (node, child + 1) not in copying)


def waits_of(
    scop: Scop, launch: LaunchBranches, barriers: frozenset[Point], commits: frozenset[Point]
) -> dict[Point, int]:
    """Return where threads wait, and how many groups each wait leaves on their way; `barriers` and `commits`: those chosen."""
    found: dict[Point, int] = {}
    for first in launch.branches:
        if not _copies(scop, first):
            continue
        for second in launch.branches:
            for at in partings(first, second):
                distance = _distance(scop, first, second, at)
                if distance is None:
                    continue
                places = [p for p in passed(first, second, at) if not p.behind]
                met = [p for p in places if p.point in barriers] or places
                if met:
                    place = met[-1]
                    between = _closed_between(first, second, at, place, distance, commits)
                    found[place.point] = min(between, found.get(place.point, between))
    return found


def _copies(scop: Scop, branch: Branch) -> bool:
    """Whether a branch makes copies that arrive later."""
    return branch.arrives_later(scop.statement(branch.statement).target)


def _sequence(branch: Branch) -> Point | None:
    """Return the innermost place in a sequence where threads may meet."""
    return next(((s.node, s.child) for s in reversed(branch.steps) if isinstance(s, SequenceChild) and s.meets), None)


def _closed_between(
    first: Branch, second: Branch, at: int, place: Passed, distance: int, commits: frozenset[Point]
) -> int:
    """Return how many groups are sure to have been closed after a copy's own and before a wait that it is to come to."""
    way = passed(first, second, at)
    ends = [n for n, p in enumerate(way[: way.index(place)]) if p.behind and p.point in commits]
    if not ends:
        return 0
    count = len(ends) - 1
    own, step = way[ends[0]].point, first.steps[at]
    inside = next(n for n, s in enumerate(first.steps) if isinstance(s, SequenceChild) and s.node == own[0])
    plain = not any(isinstance(s, BranchLoop) for s in first.steps[at + 1 : inside])
    return count + (distance - 1 if isinstance(step, BranchLoop) and place.later and plain else 0)


def _distance(scop: Scop, first: Branch, second: Branch, at: int) -> int | None:
    """Return the least number of iterations, of the loop in which they part, from a copy to what uses its place or fills it anew,
    or overwrites what is copied.

    0 where they part in a sequence, None where they never come to one place.
    """
    least: int | None = None
    for a, b in _uses(scop, first, second):
        found = _pairs(scop, first, second, at, a, b)
        if found.is_empty():
            continue
        step, other = first.steps[at], second.steps[at]
        if not (isinstance(step, BranchLoop) and isinstance(other, BranchLoop)):
            return 0
        times = [_time(scop, branch, loop.time) for branch, loop in ((first, step), (second, other))]
        deltas = found.apply_domain(times[0]).apply_range(times[1]).deltas().dim_min_val(0)
        here = int(str(deltas)) if deltas.is_int() else 1
        least = here if least is None else min(least, here)
    return least


def _uses(scop: Scop, first: Branch, second: Branch) -> Iterator[tuple[ScopAccess, ScopAccess]]:
    for a in scop.accesses:
        if a.statement == first.statement and (not a.is_write or first.arrives_later(a.tensor)):
            yield from (
                (a, b)
                for b in scop.accesses
                if b.statement == second.statement and b.tensor == a.tensor and (a.is_write or b.is_write)
            )


def _pairs(scop: Scop, first: Branch, second: Branch, at: int, a: ScopAccess, b: ScopAccess) -> isl.Map:
    """Return the instances of one block that come to one place, the second's after the first's."""
    here = a.relation.intersect_domain(instances_of(scop, first))
    there = b.relation.intersect_domain(instances_of(scop, second))
    held = first.buffer(a.tensor)
    if held is not None:
        elements = [f"c{d}" for d in range(len(held[0].modulo))]
        places = ", ".join(f"{c} mod {m}" for c, m in zip(elements, held[0].modulo, strict=True))
        place = read_map(f"{parameters(scop.program)}{{ {a.tensor}[{', '.join(elements)}] -> P[{places}] }}")
        here, there = here.apply_range(place), there.apply_range(place)
    found = here.apply_range(there.reverse())
    for n, (one, other) in enumerate(zip(first.steps[: at + 1], second.steps[: at + 1], strict=True)):
        if isinstance(one, BranchLoop) and isinstance(other, BranchLoop) and (n == at or indices_of(one.time)):
            found = found.intersect(_compared(scop, first, second, one.time, "<" if n == at else "=", other.time))
    return found


def instances_of(scop: Scop, branch: Branch) -> isl.Set:
    """Return the instances that go a branch's way."""
    return reduce(isl.Set.intersect, map(read_set, branch.conditions), scop.domains[branch.statement])


def _tuple(scop: Scop, branch: Branch, mark: str = "") -> str:
    return f"{branch.statement}[{', '.join(i + mark for i in scop.statement(branch.statement).iterators)}]"


def _time(scop: Scop, branch: Branch, time: Expr) -> isl.Map:
    return read_map(f"{parameters(scop.program)}{{ {_tuple(scop, branch)} -> [{print_affine(time)}] }}")


def _compared(scop: Scop, first: Branch, second: Branch, one: Expr, sign: str, other: Expr) -> isl.Map:
    primed = substitute(other, {i: IndexExpr(f"{i}_") for i in scop.statement(second.statement).iterators})
    text = f"{print_affine(one)} {sign} {print_affine(primed)}"
    return read_map(f"{parameters(scop.program)}{{ {_tuple(scop, first)} -> {_tuple(scop, second, '_')} : {text} }}")
