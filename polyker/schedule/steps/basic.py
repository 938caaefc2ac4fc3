"""Apply scheduling steps, each a pure function from a schedule to a schedule.

A step changes the order of instances and nothing else; it raises ScheduleError where it has no place to be applied. Whether
the new order is legal is another question, of polyker.schedule.legality.prove.

A loop is named by a statement and its label, as the printed schedule shows them. Where a statement has several loops of that
label beside each other (full and partial tiles), the step changes all of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from polyker.errors.base import failure
from polyker.errors.schedules import BAD_ORDER, NO_ROLE, NOT_ONE_BAND, NOT_SERIAL, TOO_LONG, UNKNOWN_STEP
from polyker.ir.expr import Call, Expr, Literal
from polyker.ir.quasi_affine import floordiv, lit, mod
from polyker.schedule.tree.nodes import Band, Member, MemberKind, ScheduleTree, Scope, Tree
from polyker.schedule.tree.nodes import Sequence as TreeSequence
from polyker.schedule.tree.places import at_loops, check_size, refuse_nested_vectors
from polyker.structs import replace

# Most copies in one nest of unrolled loops: more cost seconds of LLVM's time, and no kernel gains by them.
UNROLL_LIMIT = 2000
# Most lanes of a vector: four registers of 512 bits of the narrowest elements, bytes.
LANES_LIMIT = 256
# Sizes of tiles stay far from where 64-bit integers end.
SIZE_LIMIT = 1 << 31
# Most threads of a loop, as many as polyker.codegen.llvm.jit.pool has for a region.
THREADS_LIMIT = 256


def tile(schedule: ScheduleTree, statement: str, sizes: Iterable[tuple[str, int]]) -> ScheduleTree:
    """Cut loops into tiles: the loops over the tiles stay, those over the points of a tile go inside the last of them.

    Before, with sizes (("i", 8), ("j", 16)):

        for i: for j: S(i, j)

    After:

        for i.tile = i // 8: for j.tile = j // 16: for i.point = i % 8: for j.point = j % 16: S(i, j)

    Raises ScheduleError.
    """
    try:
        wanted = dict(sizes)
    except (TypeError, ValueError):
        raise failure(
            UNKNOWN_STEP, name="tile", arguments=(statement, sizes), known="tile(statement, ((loop, size), ...))"
        ) from None
    for label, size in wanted.items():
        check_size(label, size, 1, SIZE_LIMIT)

    def change(band: Band) -> Tree:
        places = _places(band, statement, tuple(wanted))
        members, points = list(band.members), []
        for label in wanted:
            at = places[label]
            _check_serial(members[at], statement)
            members[at], point = _cut(band.members[at], wanted[label])
            points.append(point)
        last = max(places.values()) + 1
        return replace(band, members=(*members[:last], *points, *members[last:]))

    return _changed(schedule, statement, tuple(wanted), change)


def interchange(schedule: ScheduleTree, statement: str, order: Sequence[str]) -> ScheduleTree:
    """Put loops that are directly inside each other into another order; `order` names them, the outermost first.

    Before:

        for i: for j: S(i, j)

    After `interchange(schedule, "S", ("j", "i"))`:

        for j: for i: S(i, j)

    Raises ScheduleError.
    """
    named = isinstance(order, (tuple, list)) and all(isinstance(label, str) for label in order)
    if not named or len(order) < 2 or len(set(order)) < len(order):
        raise failure(BAD_ORDER, loops=order)

    def change(band: Band) -> Tree:
        places = _places(band, statement, tuple(order))
        members = list(band.members)
        for at, label in zip(sorted(places.values()), order, strict=True):
            members[at] = band.members[places[label]]
        return replace(band, members=tuple(members))

    return _changed(schedule, statement, tuple(order), change)


def unroll(schedule: ScheduleTree, statement: str, loop: str, factor: int) -> ScheduleTree:
    """Repeat the body of a loop `factor` times; a loop of at most that many constant iterations vanishes.

    Before:

        for i: S(i)

    After, with factor 4:

        for i.tile = i // 4: unroll(4) i.point = i % 4: S(i)

    Raises ScheduleError, where more than 2000 copies of statements would stand in one place too.
    """
    check_size(loop, factor, 1, UNROLL_LIMIT)
    changed = _changed(
        schedule, statement, (loop,), lambda b: _carried_out(b, statement, loop, MemberKind.UNROLL, factor)
    )
    copies = _copies(changed.tree)
    if copies > UNROLL_LIMIT:
        raise failure(TOO_LONG, loop=loop, count=copies, limit=UNROLL_LIMIT)
    return changed


def vectorise(schedule: ScheduleTree, statement: str, loop: str, lanes: int) -> ScheduleTree:
    """Run `lanes` iterations of a loop at the same time.

    Before:

        for i: S(i)

    After, with 8 lanes:

        for i.tile = i // 8: vector(8) i.point = i % 8: S(i)

    A loop that is unrolled as often becomes the vector itself. Raises ScheduleError.
    """
    check_size(loop, lanes, 1, LANES_LIMIT)
    changed = _changed(
        schedule, statement, (loop,), lambda b: _carried_out(b, statement, loop, MemberKind.VECTOR, lanes)
    )
    refuse_nested_vectors(changed.tree, statement, loop)
    return changed


def parallel(schedule: ScheduleTree, statement: str, loop: str, threads: int) -> ScheduleTree:
    """Run the iterations of a loop on several threads.

    Before:

        for i: S(i)

    After, with 4 threads:

        parallel(4) i: S(i)

    Raises ScheduleError.
    """
    check_size(loop, threads, 1, THREADS_LIMIT)
    return _carried_out_by(
        schedule, statement, loop, lambda member: replace(member, kind=MemberKind.PARALLEL, extent=threads)
    )


def mapped(schedule: ScheduleTree, statement: str, loop: str, role: str) -> ScheduleTree:
    """Run the iterations of a loop by a GPU's blocks, or by the threads of a block.

    Before:

        for i.tile: for i.point: S(i)

    After, with i.tile to `block.x` and i.point to `thread.x(32)`:

        block.x i.tile: thread.x(32) i.point: S(i)

    `role`: block or thread, and the axis x, y or z; a thread's loop has a constant number of iterations, which its time says or
    which stands behind in parentheses. Raises ScheduleError.
    """
    found = re.fullmatch(r"(block|thread)\.([xyz])(?:\(([0-9]{1,4})\))?", role)
    if found is None:
        raise failure(NO_ROLE, role=role)
    kind = MemberKind(found[1])

    def change(member: Member) -> Member:
        extent = int(found[3]) if found[3] else _modulus(member.time(statement)) if kind is MemberKind.THREAD else 0
        if kind is MemberKind.THREAD and not 1 <= extent <= 1024:
            raise failure(NO_ROLE, role=role)
        return replace(member, kind=kind, extent=extent, axis=found[2])

    return _carried_out_by(schedule, statement, loop, change)


def _modulus(time: Expr) -> int:
    """Return n of a time `… mod n`, 0 where it is none."""
    match time:
        case Call(op="mod", args=(_, Literal(value=value))):
            return int(value.real)
        case _:
            return 0


def _changed(
    schedule: ScheduleTree, statement: str, labels: tuple[str, ...], change: Callable[[Band], Tree]
) -> ScheduleTree:
    return replace(schedule, tree=at_loops(schedule.tree, statement, labels, change))


def _carried_out_by(
    schedule: ScheduleTree, statement: str, loop: str, change: Callable[[Member], Member]
) -> ScheduleTree:
    """Return the schedule with a serial loop carried out in another way."""

    def changed(band: Band) -> Tree:
        at = _places(band, statement, (loop,))[loop]
        _check_serial(band.members[at], statement)
        return replace(band, members=(*band.members[:at], change(band.members[at]), *band.members[at + 1 :]))

    return _changed(schedule, statement, (loop,), changed)


def _places(band: Band, statement: str, labels: tuple[str, ...]) -> dict[str, int]:
    found = {m.label: n for n, m in enumerate(band.members)}
    if any(label not in found for label in labels):
        raise failure(NOT_ONE_BAND, loops=", ".join(labels), statement=statement)
    return {label: found[label] for label in labels}


def _check_serial(member: Member, statement: str) -> None:
    if member.kind is not MemberKind.SERIAL:
        raise failure(NOT_SERIAL, loop=member.label, statement=statement, kind=f"a {member.kind.value} loop")


def _cut(member: Member, size: int) -> tuple[Member, Member]:
    """Return the loop over the tiles and the loop over the points of a tile."""
    tiles = tuple((s, floordiv(e, size)) for s, e in member.times)
    points = tuple((s, mod(e, size)) for s, e in member.times)
    return Member(tiles, f"{member.label}.tile"), Member(points, f"{member.label}.point")


def _carried_out(band: Band, statement: str, label: str, kind: MemberKind, extent: int) -> Tree:
    at = _places(band, statement, (label,))[label]
    member = band.members[at]
    if member.kind is MemberKind.UNROLL and kind is MemberKind.VECTOR and member.extent == extent:
        members = (*band.members[:at], replace(member, kind=kind), *band.members[at + 1 :])
        return replace(band, members=members)
    _check_serial(member, statement)
    if all(_is_below(e, extent) for _, e in member.times):
        cut = [replace(member, kind=kind, extent=extent)]
    else:
        outer, inner = _cut(member, extent)
        cut = [outer, replace(inner, kind=kind, extent=extent)]
    return replace(band, members=(*band.members[:at], *cut, *band.members[at + 1 :]))


def _is_below(time: Expr, bound: int) -> bool:
    """Whether a time is seen to lie in [0, bound)."""
    match time:
        case Call(op="mod", args=(_, Literal(value=value))):
            return int(value.real) <= bound
        case _:
            return time == lit(0)


def _copies(tree: Tree) -> int:
    """Return the largest number of statements that one nest of unrolled loops becomes."""
    most = 1

    def visit(node: Tree) -> int:
        nonlocal most
        match node:
            case Band(members=members, child=child):
                copies = visit(child)
                for member in reversed(members):
                    if member.kind is MemberKind.UNROLL:
                        copies *= member.extent
                        most = max(most, copies)
                return copies
            case TreeSequence(children=children):
                return sum(visit(f.child) for f in children)
            case Scope(child=child):
                return visit(child)
            case _:
                return 1

    visit(tree)
    return most
