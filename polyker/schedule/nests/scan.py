"""Build the nest of a recurrence along some iterators, the others being parallel.

    S[b,t] = S[b,t-1] + X[b,t]      for b.tile: for t: unroll b.point: …

Instances that differ in a free iterator alone do not depend on each other, so a free loop may stand anywhere; the loops that
carry the recurrence keep the order of the text. Memory decides: the largest strides outermost. Where a carrying loop is
then the innermost one, each iteration waits for the one before, so several iterations of the free loop around it run side by
side: a chain of dependent operations each, in registers of its own (see polyker.codegen.passes.scalar_replacement).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log2

import islpy as isl

from polyker.cost.measure import MeasuredStatement
from polyker.cost.plan import MAX_TILE_OPERATIONS, TilePlan, values, vector_lanes
from polyker.cost.table import OPERATION, SHUFFLE
from polyker.ir.expr import Call
from polyker.ir.typed import TypedProgram, TypedStatement
from polyker.machine.model import Target
from polyker.poly.isl import read_set
from polyker.poly.scop import domain_text, values_taken
from polyker.poly.steps import step_of
from polyker.rewrite.reductions.scan import may_regroup
from polyker.schedule.nests.loop_order import memory_order
from polyker.schedule.nests.nest import Nest, band, offset, point_members, shared, tile_member, variants
from polyker.schedule.nests.scan_across_rows import across_rows
from polyker.schedule.nests.stream import exceeds_caches
from polyker.schedule.nests.tiles import DomainPart
from polyker.schedule.tree.nodes import Leaf, MemberKind, Tree
from polyker.schedule.tree.nodes import Sequence as TreeSequence
from polyker.structs import replace

# Independent recurrences side by side (experience value): enough to hide a step's latency, few enough for the prefetchers'
# streams.
INDEPENDENT_CHAINS = 6
# Cycles of each vector of a scan besides combining its lanes (experience value).
SCAN_VECTOR_CYCLES = 4.0


def scan_order(measured: MeasuredStatement, free: Sequence[str], vector: str | None) -> tuple[str, ...]:
    """Return the loops, outermost first: by strides, those that carry a dependence in the order of the text."""
    inner = measured.statement.iterators[measured.statement.outer :]
    carrying = iter(i for i in inner if i not in free)
    return tuple(i if i in free else next(carrying) for i in memory_order(measured, inner, vector))


def scan_plan(
    program: TypedProgram, measured: MeasuredStatement, plan: TilePlan, free: Sequence[str], target: Target
) -> tuple[TilePlan, tuple[str, ...]]:
    """Return the plan and the order of the loops; iterations of the innermost free loop run side by side if a carrying loop
    stands inside it, as a vector where that pays, and where there is no free loop each point costs what it waits for the one
    before."""
    order = scan_order(measured, free, None)
    across = across_rows(measured, plan, free, order, target)
    if across is not None:
        lanes = 0 if exceeds_caches(measured, target) else by_vectors(program, measured, order, target)
        if not lanes or across.cost < _scanned(lanes):
            return across, order
    order = scan_order(measured, free, plan.vector)
    if plan.vector is not None or not order or order[-1] in free:
        return _with_lines_kept(measured, plan, target), order
    if not free:
        steps = sum(isinstance(e, Call) for e in values(measured.statement.expr))
        return replace(plan, cost=plan.cost + target.fma_latency * max(1, steps)), order
    iterator = next(i for i in reversed(order) if i in free)
    size = sum(1 for _ in values(measured.statement.expr))
    chains = min(INDEPENDENT_CHAINS, measured.extent(iterator), max(1, MAX_TILE_OPERATIONS // size))
    return (replace(plan, others=((iterator, chains),)) if chains > 1 else plan), order


def by_vectors(program: TypedProgram, measured: MeasuredStatement, order: tuple[str, ...], target: Target) -> int:
    """Return the lanes of the vectors that the innermost loop may be taken by, 0 where it is to run element by element.

    Its elements lie side by side, each the one before combined with a term, and however terms are grouped the values are the
    same.
    """
    statement, elements = measured.statement, program.tensor(measured.statement.target).dtype
    step = step_of(statement, order[-1], in_place=True) if order else None
    write = measured.write
    if step is None or abs(write.stride(order[-1])) != 1 or statement.acc != elements or step.term.dtype != elements:
        return 0
    lanes = vector_lanes(measured, target, order[-1])
    free = may_regroup(step.op, elements, reassociating=statement.regroups)
    return lanes if free and lanes > 1 and measured.extent(order[-1]) >= 2 * lanes else 0


def _with_lines_kept(measured: MeasuredStatement, plan: TilePlan, target: Target) -> TilePlan:
    """Return the plan with fewer vectors at a time where they go across rows of which the first cache does not keep the lines."""
    steps = {abs(a.stride(plan.vector)) * a.itemsize for a in measured.accesses} if plan.vector else set()
    chunks = plan.chunks
    while chunks > 1 and not all(target.caches[0].holds_rows(plan.lanes * chunks, step) for step in steps):
        chunks //= 2
    return replace(plan, chunks=chunks)


def beside_scan(
    program: TypedProgram, measured: MeasuredStatement, plan: TilePlan, free: Sequence[str], target: Target
) -> TilePlan:
    """Return the plan, or none by vectors of a free iterator where vectors along the recurrence's elements are quicker."""
    lanes = 0 if plan.vector is None else by_vectors(program, measured, scan_order(measured, free, None), target)
    quicker = lanes and _scanned(lanes) < plan.cost
    return replace(plan, vector=None, lanes=1, chunks=1, others=()) if quicker else plan


def _scanned(lanes: int) -> float:
    """Return the cycles of an element where vectors along the recurrence are scanned."""
    return (log2(lanes) * (SHUFFLE + OPERATION) + SCAN_VECTOR_CYCLES) / lanes


def vector_scan_nest(measured: MeasuredStatement, order: tuple[str, ...], lanes: int) -> Nest:
    """Return the nest: the loops in order, the innermost by vectors of `lanes`."""
    here = (measured.statement,)
    loops = [shared(here, offset(i, measured.lo(i)), i) for i in order]
    loops[-1] = replace(loops[-1], kind=MemberKind.SCAN, extent=lanes)
    return Nest(here, band(loops, Leaf()))


def scan_nest(program: TypedProgram, measured: MeasuredStatement, plan: TilePlan, order: tuple[str, ...]) -> Nest:
    """Return the nest: the loops in order, the last tiled one's tiles told apart by shape outside the loops within it."""
    statement = measured.statement
    here = (statement,)
    inner = statement.iterators[statement.outer :]
    origin = {i: measured.lo(i) for i in inner}
    tiled = [i for i in order if plan.size(i) > 1]
    cut = order.index(tiled[-1]) + 1 if tiled else 0
    outside = [tile_member(here, i, plan.size(i), origin[i]) for i in order[:cut]]
    within = [shared(here, offset(i, origin[i]), i) for i in order[cut:]]

    def inside(part: DomainPart) -> Tree:
        if part.is_own_shape or plan.vector is not None:
            return band([*within, *point_members(here, plan, inner, origin)], Leaf())
        rows = point_members(here, plan, inner, origin)
        return band([*(replace(m, kind=m.kind.SERIAL) for m in rows), *within], Leaf())

    tiles = tuple((i, plan.size(i), origin[i]) for i in tiled)
    tree = variants(program, here, statement.iterators, tiles, inside)
    around = tuple(i for i in statement.iterators if i not in order[cut:])
    if isinstance(tree, TreeSequence) and not _apart(program, statement, tree, around):
        # Where steps of one tile have other shapes one part of them would run before the other.
        tree = variants(program, here, around, tiles, inside)
    return Nest(here, band(outside, tree))


def _apart(program: TypedProgram, statement: TypedStatement, tree: TreeSequence, around: tuple[str, ...]) -> bool:
    """Whether no two parts of a sequence have instances with the same values of some iterators."""
    seen: isl.Set | None = None
    for part in tree.children:
        points = read_set(statement.domain).intersect(read_set(dict(part.conditions)[statement.name]))
        here = values_taken(program, replace(statement, domain=domain_text(points, statement.name)), around)
        if seen is not None and not here.is_disjoint(seen):
            return False
        seen = here if seen is None else seen.union(here)
    return True
