"""Fuse the loops of neighbouring statements, and distribute one loop over its statements."""

from __future__ import annotations

from itertools import pairwise

from polyker.errors.base import failure
from polyker.errors.schedules import NO_SEQUENCE, NO_STATEMENT, NOT_ADJACENT, NOT_ALIKE
from polyker.schedule.tree.nodes import Band, Filter, Member, ScheduleTree, Sequence, Tree, statements_of
from polyker.schedule.tree.places import at_loops, check_size, joined, spliced, with_children
from polyker.structs import replace


def fuse(schedule: ScheduleTree, first: str, second: str, depth: int = 1) -> ScheduleTree:
    """Make the `depth` outer loops of two neighbours one; `first` and `second` name a statement in each.

    Before:

        for i: S(i)
        for j: T(j)

    After:

        for i = j: { S(i); T(j) }

    The loops keep the first one's labels. Raises ScheduleError.
    """
    check_size(first, depth, 1, 1000)
    known = statements_of(schedule.tree)
    for name in (first, second):
        if name not in known:
            raise failure(NO_STATEMENT, statement=name, known=", ".join(known) or "none")
    count = 0

    def visit(node: Tree) -> Tree:
        nonlocal count
        if not isinstance(node, Sequence):
            return with_children(node, visit)
        children = [replace(f, child=visit(f.child)) for f in node.children]
        for n, (a, b) in enumerate(pairwise(children)):
            if first in a.statements and second in b.statements and second not in a.statements:
                count += 1
                children[n : n + 2] = [_fused(a, b, first, second, depth)]
                break
        return spliced(Sequence(tuple(children)))

    tree = visit(schedule.tree)
    if not count:
        raise failure(NOT_ADJACENT, first=first, second=second)
    return replace(schedule, tree=tree)


def _fused(a: Filter, b: Filter, first: str, second: str, depth: int) -> Filter:
    def refuse(reason: str) -> Exception:
        return failure(NOT_ALIKE, first=first, second=second, reason=reason)

    both = set(a.statements) & set(b.statements)
    if both:
        raise refuse(f"{', '.join(sorted(both))} stands in both")
    bands = [joined(f.child) if isinstance(f.child, Band) else Band((), f.child) for f in (a, b)]
    for band, name in zip(bands, (first, second), strict=True):
        if len(band.members) < depth:
            raise refuse(f"{name} has {len(band.members)} loops outside of everything else, not {depth}")
    members = []
    for one, other in zip(bands[0].members[:depth], bands[1].members[:depth], strict=True):
        if one.kind is not other.kind:
            raise refuse(f"`{one.label}` is a {one.kind.value} loop, `{other.label}` a {other.kind.value} loop")
        members.append(replace(one, times=one.times + other.times, extent=max(one.extent, other.extent)))
    rests = [Band(band.members[depth:], band.child) if band.members[depth:] else band.child for band in bands]
    inner = spliced(Sequence((Filter(a.statements, rests[0]), Filter(b.statements, rests[1]))))
    return Filter(a.statements + b.statements, Band(tuple(members), inner), a.conditions + b.conditions)


def distribute(schedule: ScheduleTree, statement: str, loop: str) -> ScheduleTree:
    """Give each child of the sequence directly inside a loop a loop of its own; the inverse of `fuse`.

    Before:

        for i: { S(i); T(i) }

    After:

        for i: S(i)
        for i: T(i)

    Raises ScheduleError.
    """

    def change(band: Band) -> Tree:
        *outer, last = band.members
        if last.label != loop or not isinstance(band.child, Sequence):
            raise failure(NO_SEQUENCE, loop=loop, statement=statement)
        children = tuple(replace(f, child=_around(last, f)) for f in band.child.children)
        inner = spliced(Sequence(children))
        return Band(tuple(outer), inner) if outer else inner

    tree = at_loops(schedule.tree, statement, (loop,), change)
    return replace(schedule, tree=tree)


def _around(member: Member, part: Filter) -> Tree:
    """Return a loop over the statements of one child."""
    own = replace(member, times=tuple(t for t in member.times if t[0] in part.statements))
    return joined(Band((own,), part.child))
