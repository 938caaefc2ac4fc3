"""Reverse, shift and skew loops."""

from __future__ import annotations

from collections.abc import Callable, Collection

from polyker.errors.base import failure
from polyker.errors.schedules import NO_LOOP, NOT_SERIAL
from polyker.ir.expr import Expr
from polyker.ir.quasi_affine import add, lit, scale
from polyker.schedule.tree.nodes import Band, MemberKind, ScheduleTree, Tree, loops
from polyker.schedule.tree.places import at_loops, check_integer
from polyker.structs import replace

# Times stay far from where 64-bit integers end.
OFFSET_LIMIT = 1 << 31


def reverse(schedule: ScheduleTree, statement: str, loop: str) -> ScheduleTree:
    """Run a loop backwards.

    Before:

        for i: S(i)

    After:

        for i = -i: S(i)

    Raises ScheduleError.
    """
    return _retimed(schedule, statement, loop, lambda s, time: scale(-1, time))


def shift(schedule: ScheduleTree, statement: str, loop: str, offset: int, who: Collection[str] = ()) -> ScheduleTree:
    """Let the instances of some statements run `offset` iterations later in a loop; `who`: the statement alone if empty.

    Before:

        for i: { S(i); T(i) }

    After `shift(schedule, "T", "i", 1)`:

        for i: { S(i); T(i - 1) }

    Raises ScheduleError.
    """
    check_integer(loop, offset, OFFSET_LIMIT)
    moving = frozenset(who or (statement,))
    return _retimed(schedule, statement, loop, lambda s, time: add(time, lit(offset)) if s in moving else time)


def skew(schedule: ScheduleTree, statement: str, loop: str, along: str, factor: int) -> ScheduleTree:
    """Let each iteration of the loop `along` begin `loop` by `factor` later.

    Before:

        for i: for j: S(i, j)

    After `skew(schedule, "S", "j", "i", 1)`:

        for i: for j = j + i: S(i, j)

    Raises ScheduleError.
    """
    check_integer(loop, factor, OFFSET_LIMIT)
    along_times = _times(schedule.tree, along)

    def lean(s: str, time: Expr) -> Expr:
        if s not in along_times:
            raise failure(NO_LOOP, statement=s, loop=along, known=loop)
        return add(time, scale(factor, along_times[s]))

    return _retimed(schedule, statement, loop, lean)


def _retimed(schedule: ScheduleTree, statement: str, loop: str, change: Callable[[str, Expr], Expr]) -> ScheduleTree:
    def changed(band: Band) -> Tree:
        members = []
        for m in band.members:
            if m.label == loop:
                if m.kind is not MemberKind.SERIAL:
                    raise failure(NOT_SERIAL, loop=loop, statement=statement, kind=f"a {m.kind.value} loop")
                m = replace(m, times=tuple((s, change(s, t)) for s, t in m.times))
            members.append(m)
        return replace(band, members=tuple(members))

    return replace(schedule, tree=at_loops(schedule.tree, statement, (loop,), changed))


def _times(tree: Tree, label: str) -> dict[str, Expr]:
    """Return the time of each statement at its loop of a label."""
    found: dict[str, Expr] = {}
    for member in loops(tree):
        if member.label == label:
            found = dict(member.times) | found
    return found
