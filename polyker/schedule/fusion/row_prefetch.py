"""Prefetch the first lines of rows while others are computed, where statements share a loop over rows.

    for n: { s = sum of X[n]; v = sum of (X[n] - s)²; O[n] = … }
    ->
    for n: { s = sum of X[n]; prefetch O[n, 0:256]; v = …; prefetch X[n+1, 0:256]; O[n] = … }

Each row begins in another page, where no prefetcher of the core is on its way: the first lines are waited for, one after another,
and stores hold up those behind them. A few prefetches while the core computes from its caches set the prefetchers going, and
leave them the rest; on some processors prefetching all of it leads them astray (`prefetches_next_rows`). What is written by
streaming stores must not be in them.
"""

from __future__ import annotations

from collections.abc import Mapping

from polyker.cost.measure import MemoryAccess
from polyker.cost.memory import prefetches_next_rows
from polyker.cost.prefetch import is_row, is_walked
from polyker.ir.dtypes import i64
from polyker.ir.expr import Expr, IndexExpr, Read
from polyker.ir.quasi_affine import add, lit, substitute
from polyker.ir.typed import PrefetchRead, Role, TypedProgram, TypedStatement
from polyker.machine.model import Target
from polyker.schedule.fusion.cost import Fusion
from polyker.schedule.nests.stream import streams
from polyker.structs import replace

# Bytes of a row that are prefetched, and the least bytes of such a row: shorter ones are part of a page's stream (experience
# values).
ROW_HEAD_BYTES, MIN_PREFETCHED_ROW_BYTES = 1024, 2048

Bodies = list[tuple[TypedStatement, ...]]


def with_heads(program: TypedProgram, fusion: Fusion, bodies: Bodies, target: Target) -> Bodies:
    """Return the statements that stand for each item of a group, the last sum along a row with requests for heads of rows.

    What the group writes afterwards is prefetched before that sum, and what it reads in the next iteration after it, if another
    statement brings the sum's row into the caches. There are none where the first cache would not hold these lines beside what
    an iteration touches.
    """
    loops, items = fusion.loops(), fusion.group.items
    if prefetches_next_rows(target) or program.sizes or not loops or any(map(any, fusion.shifts())):
        return bodies
    if _passing(fusion) > target.caches[0].usable:
        return bodies
    sums = [n for n, i in enumerate(items[:-1]) if i.reduces and fusion.plans[n].vector in i.statement.reduced]
    if not sums:
        return bodies
    last = sums[-1]
    start, store = bodies[last][0], bodies[last][-1]
    own = tuple(loop[last] for loop in loops)
    if start is store or not all({*own} <= {*s.iterators} for s in (start, store)):
        return bodies
    found: dict[str, tuple[PrefetchRead, ...]] = {}
    first = len(items)
    written: tuple[PrefetchRead, ...] = ()
    line, near = target.caches[0].line, fusion.near()
    for n, (item, plan) in enumerate(zip(items, fusion.plans, strict=True)):
        if plan.vector is None:
            continue
        here = {loop[n]: IndexExpr(i, i64) for loop, i in zip(loops, own, strict=True)}
        later = here | {loops[-1][n]: add(IndexExpr(own[-1], i64), lit(fusion.steps()[-1]))}
        measured, vector = item.measured, plan.vector
        for a in measured.accesses:
            far = measured.footprint(a) * a.itemsize > target.cache(2).size
            if not far or measured.extent(vector) * a.itemsize < MIN_PREFETCHED_ROW_BYTES:
                continue
            if n <= last and is_row(program, measured, a, vector):
                first = min(first, n)
                found.setdefault(a.tensor, _head(fusion, n, a, later, line))
            if n > last and a.is_write and program.tensor(a.tensor).role is Role.OUTPUT:
                if a.tensor not in near and streams(measured, plan, target):
                    continue
                written += _head(fusion, n, a, here, line) if is_walked(measured, a, vector, target) else ()
    read = tuple(a for heads in found.values() for a in heads)
    if first >= last or not written:
        return bodies
    changed = (
        replace(start, prefetch=start.prefetch + written),
        *bodies[last][1:-1],
        replace(store, prefetch=store.prefetch + read),
    )
    return [*bodies[:last], changed, *bodies[last + 1 :]]


def _passing(fusion: Fusion) -> int:
    """Return the bytes of all that an iteration of the common loops touches."""
    found: dict[str, int] = {}
    for n, item in enumerate(fusion.group.items):
        held = {loop[n]: step for loop, step in zip(fusion.loops(), fusion.steps(), strict=True)}
        for a in item.measured.accesses:
            found[a.tensor] = max(found.get(a.tensor, 0), item.measured.footprint(a, held) * a.itemsize)
    return sum(found.values())


def _head(fusion: Fusion, n: int, access: MemoryAccess, row: Mapping[str, Expr], line: int) -> tuple[PrefetchRead, ...]:
    """Return the first element of each of a row's first lines; `row`: the values of an item's common iterators."""
    item, vector = fusion.group.items[n], fusion.plans[n].vector
    subscripts = item.statement.subscripts if access.read is None else access.read.subscripts
    begin = {i: lit(item.measured.lo(i)) for i in item.statement.iterators} | dict(row)
    elements = []
    for k in range(ROW_HEAD_BYTES // line):
        at = begin | ({vector: lit(item.measured.lo(vector) + k * line // access.itemsize)} if vector else {})
        elements.append(PrefetchRead(Read(access.tensor, tuple(substitute(s, at) for s in subscripts))))
    return tuple(elements)
