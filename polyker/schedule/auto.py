"""The automatic schedule: each statement's nest by the cost model, in the order of the text.

Whatever it proposes is proven by polyker.schedule.legality, which shares nothing with this module; where a proposal for a
statement is not legal, the statement keeps the order of the text.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

import islpy as isl

from polyker.ir.dtypes import i64
from polyker.ir.expr import Index, Read
from polyker.ir.typed import TypedLoop, TypedNode, TypedProgram, TypedStatement
from polyker.poly.isl import read_map, read_set
from polyker.poly.scop import build_scop, parameters
from polyker.rewrite.accumulate import Block, accumulate, starts_fresh
from polyker.rewrite.fresh import Fresh
from polyker.rewrite.pack import pack_read, pack_result
from polyker.rewrite.stage import stage_read
from polyker.schedule.legality import is_legal
from polyker.schedule.measure import FAR, Layouts, Measured, measure
from polyker.schedule.nest import Nest, Staged, map_nest, reduction_nest, serial_nest, shared, staged_nest
from polyker.schedule.plan import Plan, choose, unit_iterator
from polyker.schedule.tree import Band, Filter, Schedule, Sequence, Tree
from polyker.target.model import Target

# Terms that one accumulator sums before it is added to the others: longer sums are summed by blocks, so that rounding
# grows with the number of blocks and not with the number of terms.
BLOCK_TERMS = 4096


def default_schedule(program: TypedProgram) -> Schedule:
    """Return the schedule that always exists: the order of the text, every loop serial."""

    def visit(body: tuple[TypedNode, ...]) -> Nest:
        return _in_order([_loop(n, visit(n.body)) if isinstance(n, TypedLoop) else serial_nest(n) for n in body])

    return Schedule(visit(program.body).tree)


def auto_schedule(program: TypedProgram, target: Target, layout: Layouts) -> tuple[TypedProgram, Schedule]:
    """Return the program with its accumulators made explicit, and the schedule of it."""
    fresh = Fresh(program)
    notes: list[str] = []
    nodes, nest = _schedule_body(program, fresh, program.body, target, layout, notes)
    return fresh.finish(nodes), Schedule(nest.tree, tuple(notes))


def _schedule_body(
    program: TypedProgram, fresh: Fresh, body: tuple[TypedNode, ...], target: Target, layout: Layouts, notes: list[str]
) -> tuple[tuple[TypedNode, ...], Nest]:
    nodes: list[TypedNode] = []
    nests: list[Nest] = []
    for node in body:
        if isinstance(node, TypedLoop):
            inner, nest = _schedule_body(program, fresh, node.body, target, layout, notes)
            nodes.append(replace(node, body=inner))
            nests.append(_loop(node, nest))
            continue
        start = nodes[-1] if nodes and isinstance(nodes[-1], TypedStatement) else None
        if node.op != "set" and node.reduced and starts_fresh(program, start, node):
            nodes.pop()
            nests.pop()
        else:
            start = None
        nest = _schedule_statement(program, fresh, node, start, target, layout, notes)
        nodes += nest.statements
        nests.append(nest)
    return tuple(nodes), _in_order(nests)


def _in_order(nests: list[Nest]) -> Nest:
    statements = tuple(s for n in nests for s in n.statements)
    if len(nests) == 1:
        return nests[0]
    return Nest(statements, Sequence(tuple(Filter(tuple(s.name for s in n.statements), n.tree) for n in nests)))


def _loop(loop: TypedLoop, nest: Nest) -> Nest:
    tree: Tree = Band((shared(nest.statements, Index(loop.iterator, i64), loop.iterator),), nest.tree)
    return Nest(nest.statements, tree)


def _schedule_statement(
    program: TypedProgram,
    fresh: Fresh,
    statement: TypedStatement,
    start: TypedStatement | None,
    target: Target,
    layout: Layouts,
    notes: list[str],
) -> Nest:
    measured = measure(program, statement, layout)
    if _self_dependent(program, statement):
        notes.append(f"{statement.name}: depends on itself, so its loops keep the order of the text")
        return serial_nest(statement)
    if statement.op != "set" and statement.reduced:
        return _reduction(program, fresh, measured, start, target, layout, notes)
    return _map(program, fresh, measured, target, notes)


def _self_dependent(program: TypedProgram, statement: TypedStatement) -> bool:
    """Whether instances of the statement depend on each other other than by combining into a cell of the reduction."""
    reads_itself = any(a.tensor == statement.target for a in measure_reads(statement))
    if statement.op != "set" and statement.reduced and not reads_itself:
        return False
    if statement.op == "set" and not reads_itself:
        return False  # two instances never write one cell: the front end has seen to that
    alone = replace(program, body=(replace(statement, outer=0),))
    scop = build_scop(alone)
    cells = next(a.relation for a in scop.accesses if a.is_write)
    touched = [a.relation for a in scop.accesses if a.tensor == statement.target]
    same = isl.Map.identity(scop.domains[statement.name].get_space().map_from_set())
    return any(not t.apply_range(cells.reverse()).is_subset(same) for t in touched)


def measure_reads(statement: TypedStatement):  # type: ignore[no-untyped-def]
    """Yield the reads of a statement's value and subscripts."""
    from polyker.ir.expr import Read, walk

    for tree in (statement.expr, *statement.subscripts):
        yield from (e for e in walk(tree) if isinstance(e, Read))


def _map(program: TypedProgram, fresh: Fresh, measured: Measured, target: Target, notes: list[str]) -> Nest:
    statement = measured.statement
    inner = statement.iterators[statement.outer :]
    if not inner:
        return serial_nest(statement)
    plan = choose(measured, inner, (), target)
    order = _memory_order(measured, inner, plan.vector)
    staged = {} if plan.vector is None else _transposed(measured, plan.vector)
    if staged:
        assert plan.vector is not None
        notes.append(f"{statement.name}: {_describe(plan)}; transposed by tiles along {', '.join(set(staged.values()))}")
        return _staged(program, fresh, measured, plan, staged, order)
    notes.append(f"{statement.name}: {_describe(plan)}; loops {', '.join(order)}")
    return map_nest(program, measured, plan, order)


def _transposed(measured: Measured, vector: str) -> dict[Read, str]:
    """Return the reads that are contiguous along another iterator than the vector, with that iterator."""
    found = {a.read: unit_iterator(measured, a, vector) for a in measured.accesses if a.read is not None}
    return {read: i for read, i in found.items() if i is not None}


def _staged(
    program: TypedProgram, fresh: Fresh, measured: Measured, plan: Plan, staged: dict[Read, str], order: tuple[str, ...]
) -> Nest:
    """Return the nest that brings the transposed reads through tiles on the stack."""
    statement, vector = measured.statement, plan.vector
    assert vector is not None
    copies = []
    for read, along in staged.items():
        copy, statement, tensor = stage_read(fresh, statement, read, vector)
        copies.append(Staged(copy, tensor, along))
    return staged_nest(fresh.finish(program.body), replace(measured, statement=statement), plan, tuple(copies), order)


def _memory_order(measured: Measured, inner: tuple[str, ...], vector: str | None) -> tuple[str, ...]:
    """Return the iterators with the largest strides outermost and the vector innermost."""

    def weight(iterator: str) -> int:
        return max((abs(a.stride(iterator)) * (2 if a.is_write else 1) for a in measured.accesses), default=0)

    rest = sorted((i for i in inner if i != vector), key=weight, reverse=True)
    return tuple(rest) + ((vector,) if vector is not None else ())


def _reduction(
    program: TypedProgram,
    fresh: Fresh,
    measured: Measured,
    start: TypedStatement | None,
    target: Target,
    layout: Layouts,
    notes: list[str],
) -> Nest:
    statement = measured.statement
    kept = tuple(i for i in statement.iterators[statement.outer :] if i not in statement.reduced)
    plan = choose(measured, kept, statement.reduced, target)
    if plan.packed or (plan.packs_result and start is not None):
        return _packed(program, fresh, measured, plan, start, target, layout, notes)
    reduced_order = _reduced_order(measured, plan)
    block = _block(measured, plan, reduced_order)
    lanes = (plan.vector, plan.lanes * plan.chunks) if plan.vector in statement.reduced and plan.vector else None
    parts = accumulate(
        fresh.finish(program.body),
        fresh,
        statement,
        start=start,
        lanes=lanes,
        block=Block(*block) if block else None,
        inner=plan.vector,
    )
    extended = fresh.finish(program.body)
    order, panels = _tile_order(measured, plan, kept, target)
    notes.append(f"{statement.name}: {_describe(plan)}; tiles {', '.join(order)}; terms {', '.join(reduced_order)}")
    return reduction_nest(extended, measured, plan, parts, order, reduced_order, block, panels)


def _packed(
    program: TypedProgram,
    fresh: Fresh,
    measured: Measured,
    plan: Plan,
    start: TypedStatement | None,
    target: Target,
    layout: Layouts,
    notes: list[str],
) -> Nest:
    """Return the nests of the copies that the plan asks for, around the nest of the statement that uses them."""
    statement, vector = measured.statement, plan.vector
    assert vector is not None
    before: list[TypedStatement] = []
    after: list[TypedStatement] = []
    for read in plan.packed:
        found = pack_read(program, fresh, statement, read, vector)
        before.append(found.copy)
        statement = found.statement
        notes.append(f"{statement.name}: {program.tensor(read.tensor).label} is packed along {vector}")
    if plan.packs_result and start is not None:
        found = pack_result(program, fresh, statement, vector)
        after.append(found.copy)
        start = _start_of(program, start, statement, found.statement)
        statement = found.statement
        notes.append(f"{statement.name}: the result is packed along {vector}")
    extended = fresh.finish(program.body)
    nests = [_map(extended, fresh, measure(extended, s, layout), target, notes) for s in before]
    nests.append(_reduction(extended, fresh, measure(extended, statement, layout), start, target, layout, notes))
    extended = fresh.finish(program.body)
    nests += [_map(extended, fresh, measure(extended, s, layout), target, notes) for s in after]
    return _in_order(nests)


def _start_of(program: TypedProgram, start: TypedStatement, before: TypedStatement, after: TypedStatement) -> TypedStatement:
    """Return the start of the packed result: the same cells, their dimensions in the packed order."""
    dimension = dict(zip(before.subscripts, start.iterators, strict=True))
    iterators = tuple(dimension[s] for s in after.subscripts)
    old, new = ", ".join(start.iterators), ", ".join(iterators)
    swap = read_map(f"{parameters(program)}{{ {start.name}[{old}] -> {start.name}[{new}] }}")
    domain = read_set(start.domain).apply(swap)
    for d, iterator in enumerate(iterators):
        domain = domain.set_dim_name(isl.dim_type.set, d, iterator)
    places = tuple(Index(i, i64) for i in iterators)
    return replace(start, target=after.target, iterators=iterators, subscripts=places, domain=str(domain))


def _describe(plan: Plan) -> str:
    if plan.vector is None:
        return "scalar"
    tile = "".join(f" x {s} {i}" for i, s in plan.others if s > 1)
    return f"vectors of {plan.lanes} along {plan.vector}, {plan.chunks} at a time{tile}"


def _reduced_order(measured: Measured, plan: Plan) -> tuple[str, ...]:
    """Return the reduced iterators, those with the largest strides outermost, a vectorised one innermost."""
    reduced = measured.statement.reduced

    def weight(iterator: str) -> int:
        return max((abs(a.stride(iterator)) for a in measured.accesses), default=0)

    rest = sorted((i for i in reduced if i != plan.vector), key=weight, reverse=True)
    return tuple(rest) + ((plan.vector,) if plan.vector in reduced and plan.vector else ())


def _block(measured: Measured, plan: Plan, reduced_order: tuple[str, ...]) -> tuple[str, int] | None:
    """Return the iterator and size at which a long sum of floating-point terms is cut, None for a short or exact one."""
    statement = measured.statement
    if statement.op not in ("add", "mul") or statement.acc.kind not in "fc":
        return None
    partial = plan.lanes * plan.chunks if plan.vector in reduced_order else 1
    terms = 1
    for i in reversed(reduced_order):
        extent = measured.extent(i, 1 << 24)
        if measured.bounds[i][0] != 0:
            continue
        if terms * extent // partial > BLOCK_TERMS:
            size = max(1, BLOCK_TERMS * partial // terms)
            return (i, size) if size < extent else None
        terms *= extent
    return None


def _tile_order(
    measured: Measured, plan: Plan, kept: tuple[str, ...], target: Target
) -> tuple[tuple[str, ...], tuple[tuple[str, int], ...]]:
    """Return the tile loops, outermost first, so that what the inner ones leave in place is large and what they move small.

    The innermost loop moves every operand that depends on its iterator: from the inside out, take the iterator whose
    operands' panels (a tile wide, all terms long) are the smallest.
    """
    reads = [a for a in measured.accesses if not a.is_write]
    terms = {i: measured.extent(i) for i in measured.statement.reduced}

    def panel(access) -> int:  # type: ignore[no-untyped-def]
        wide = prod(plan.size(i) for i in kept if access.stride(i))
        return int(wide * prod(n for i, n in terms.items() if access.stride(i)) * access.itemsize)

    def moved(iterator: str) -> tuple[int, int]:
        nearest = min((abs(a.stride(iterator)) for a in measured.accesses if a.stride(iterator)), default=FAR)
        return sum(panel(a) for a in reads if a.stride(iterator)), nearest

    order = sorted(kept, key=moved, reverse=True)
    return tuple(order), _panels(measured, plan, order, reads, panel, target)


def _panels(measured, plan, order, reads, panel, target):  # type: ignore[no-untyped-def]
    """Keep as many tiles of the innermost loop's operand as half the second cache holds, outside the other loops."""
    if len(order) < 2:
        return ()
    inner = order[-1]
    moving = sum(panel(a) for a in reads if a.stride(inner))
    others = [a for a in reads if not a.stride(inner)]
    tiles = -(-measured.extent(inner) // plan.size(inner))
    second = target.caches[min(1, len(target.caches) - 1)].size
    fit = max(1, second // 2 // max(1, moving))
    if not others or fit >= tiles or fit < 2:
        return ()
    return ((inner, fit),)


__all__ = ["auto_schedule", "default_schedule", "is_legal"]
