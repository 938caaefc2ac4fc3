"""The automatic schedule: each statement's nest by the cost model, in the order of the text.

Whatever it proposes is proven by polyker.schedule.legality, which shares nothing with this module.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import islpy as isl

from polyker.ir.dtypes import i64
from polyker.ir.expr import Index, Read, walk
from polyker.ir.quasi_affine import lit
from polyker.ir.typed import TypedLoop, TypedNode, TypedProgram, TypedStatement
from polyker.poly.isl import int_val, read_map, read_set
from polyker.poly.scop import access_relation, parameters
from polyker.rewrite.accumulate import Block, accumulate, starts_fresh
from polyker.rewrite.fresh import Fresh
from polyker.rewrite.pack import pack_read, pack_result
from polyker.rewrite.stage import stage_read
from polyker.schedule.measure import Layouts, Measured, measure
from polyker.schedule.nest import Nest, Staged, map_nest, reduction_nest, serial_nest, shared, staged_nest
from polyker.schedule.order import block_of, memory_order, panels_of, reduced_order, tile_order
from polyker.schedule.plan import Plan, choose, unit_iterator
from polyker.schedule.tree import Band, Filter, Schedule, Sequence, Tree
from polyker.target.model import Target


def default_schedule(program: TypedProgram) -> Schedule:
    """Return the schedule that always exists: the order of the text, every loop serial."""

    def visit(body: tuple[TypedNode, ...]) -> Nest:
        return _in_order([_loop(n, visit(n.body)) if isinstance(n, TypedLoop) else serial_nest(n) for n in body])

    return Schedule(visit(program.body).tree)


def auto_schedule(
    program: TypedProgram, target: Target, layout: Layouts, *, plain: bool = False
) -> tuple[TypedProgram, Schedule]:
    """Return the program with its accumulators and copies made explicit, and the schedule of it.

    `plain`: no tiles, no vectors, no copies, the loops as the text orders them; accumulators alone.
    """
    scheduler = _Scheduler(Fresh(program), target, layout, plain)
    nodes, nest = scheduler.body(program.body)
    return scheduler.fresh.finish(nodes), Schedule(nest.tree, tuple(scheduler.notes))


def _in_order(nests: list[Nest]) -> Nest:
    statements = tuple(s for n in nests for s in n.statements)
    if len(nests) == 1:
        return nests[0]
    return Nest(statements, Sequence(tuple(Filter(tuple(s.name for s in n.statements), n.tree) for n in nests)))


def _loop(loop: TypedLoop, nest: Nest) -> Nest:
    tree: Tree = Band((shared(nest.statements, Index(loop.iterator, i64), loop.iterator),), nest.tree)
    return Nest(nest.statements, tree)


@dataclass
class _Scheduler:
    """Schedules one program; `notes` says in words what was chosen and why."""

    fresh: Fresh
    target: Target
    layout: Layouts
    plain: bool = False
    notes: list[str] = field(default_factory=list)

    @property
    def program(self) -> TypedProgram:
        """The program with the temporaries made so far (its body is the original one)."""
        return self.fresh.finish(self.fresh.program.body)

    def body(self, body: tuple[TypedNode, ...]) -> tuple[tuple[TypedNode, ...], Nest]:
        """Return the statements that stand for a body, and their nests one after another."""
        nodes: list[TypedNode] = []
        nests: list[Nest] = []
        for node in body:
            if isinstance(node, TypedLoop):
                inner, nest = self.body(node.body)
                nodes.append(replace(node, body=inner))
                nests.append(_loop(node, nest))
                continue
            before = nodes[-1] if nodes and isinstance(nodes[-1], TypedStatement) else None
            reduces = node.op != "set" and bool(node.reduced) and not _reads(node, node.target)
            start = before if reduces and starts_fresh(self.program, before, node) else None
            if start is not None:
                nodes.pop()
                nests.pop()
            nest = self.reduction(node, start) if reduces else self.map(node)
            nodes += nest.statements
            nests.append(nest)
        return tuple(nodes), _in_order(nests)

    def map(self, statement: TypedStatement) -> Nest:
        """Return the nest of a statement whose instances each define a cell of their own."""
        if self.plain:
            return serial_nest(statement)
        inner = statement.iterators[statement.outer :]
        free = _free_iterators(self.program, statement)
        measured = measure(self.program, statement, self.layout)
        if not free:
            if inner:
                self.notes.append(
                    f"{statement.name}: carries a dependence in every loop; the order of the text is kept"
                )
            return serial_nest(statement)
        plan = choose(measured, free, (), self.target)
        if len(free) < len(inner):
            rest = tuple(i for i in inner if i != plan.vector)
            self.notes.append(f"{statement.name}: depends on itself; {_describe(plan)}")
            return map_nest(self.program, measured, plan, rest + ((plan.vector,) if plan.vector else ()))
        order = memory_order(measured, inner, plan.vector)
        staged = {} if plan.vector is None else _transposed(measured, plan.vector)
        self.notes.append(f"{statement.name}: {_describe(plan)}; loops {', '.join(order)}")
        if staged:
            return self.staged(measured, plan, staged, order)
        return map_nest(self.program, measured, plan, order)

    def staged(self, measured: Measured, plan: Plan, staged: dict[Read, str], order: tuple[str, ...]) -> Nest:
        """Return the nest that brings the transposed reads through tiles on the stack."""
        statement, vector = measured.statement, plan.vector
        assert vector is not None
        copies = []
        origin = {i: measured.lo(i) for i in statement.iterators}
        for read, along in staged.items():
            copy, statement, tensor = stage_read(self.fresh, statement, read, vector, origin)
            copies.append(Staged(copy, tensor, along))
            self.notes.append(f"{statement.name}: {self.label(read.tensor)} is transposed by tiles along {along}")
        return staged_nest(self.program, replace(measured, statement=statement), plan, tuple(copies), order)

    def reduction(self, statement: TypedStatement, start: TypedStatement | None) -> Nest:
        """Return the nest of a reduction over at least one iterator; `start` set its cells to the identity before."""
        measured = measure(self.program, statement, self.layout)
        kept = tuple(i for i in statement.iterators[statement.outer :] if i not in statement.reduced)
        if self.plain:
            parts = accumulate(self.program, self.fresh, statement, start=start)
            scalar = Plan(None, 1, 1, (), 0.0)
            return reduction_nest(self.program, measured, scalar, parts, kept, statement.reduced, None)
        plan = choose(measured, self.apart(statement, kept), statement.reduced, self.target)
        if plan.packed or (plan.packs_result and start is not None):
            return self.packed(measured, plan, start)
        terms = reduced_order(measured, plan)
        block = block_of(measured, plan, terms)
        before = []
        if start is not None and block is not None:
            # The blocks are added up in the result itself: its start stays.
            before, start = [self.map(start)], None
        lanes = (plan.vector, plan.lanes * plan.chunks) if plan.vector in statement.reduced and plan.vector else None
        cut = Block(*block) if block else None
        origin = {i: measured.lo(i) for i in kept}
        parts = accumulate(
            self.program, self.fresh, statement, start=start, lanes=lanes, block=cut, inner=plan.vector, origin=origin
        )
        order = tile_order(measured, plan, kept)
        panels = panels_of(measured, plan, order, self.target)
        self.notes.append(f"{statement.name}: {_describe(plan)}; tiles {', '.join(order)}; terms {', '.join(terms)}")
        return _in_order([*before, reduction_nest(self.program, measured, plan, parts, order, terms, block, panels)])

    def apart(self, statement: TypedStatement, kept: tuple[str, ...]) -> tuple[str, ...]:
        """Return those of the kept iterators along which no two results fall into one cell."""
        names = [s.name for s in statement.subscripts if isinstance(s, Index)]
        if len(names) == len(statement.subscripts) and set(kept) <= set(names):
            return kept
        source = f"{statement.name}[{', '.join(statement.iterators)}]"
        own = tuple(i for i in statement.iterators if i not in statement.reduced)
        onto = read_map(f"{parameters(self.program)}{{ {source} -> {statement.name}[{', '.join(own)}] }}")
        results = str(read_set(statement.domain).apply(onto))
        free = _free_iterators(self.program, replace(statement, iterators=own, domain=results, reduced=(), expr=lit(0)))
        return tuple(i for i in kept if i in free)

    def packed(self, measured: Measured, plan: Plan, start: TypedStatement | None) -> Nest:
        """Return the nests of the copies that the plan asks for, around the nest of the statement that uses them."""
        statement, vector = measured.statement, plan.vector
        assert vector is not None
        before: list[TypedStatement] = []
        after: list[TypedStatement] = []
        for read in plan.packed:
            found = pack_read(self.program, self.fresh, statement, read, vector)
            before.append(found.copy)
            statement = found.statement
            self.notes.append(f"{statement.name}: {self.label(read.tensor)} is packed along {vector}")
        if plan.packs_result and start is not None:
            found = pack_result(self.program, self.fresh, statement, vector)
            after.append(found.copy)
            start = _start_of(self.program, start, statement, found.statement)
            statement = found.statement
            self.notes.append(f"{statement.name}: the result is packed along {vector}")
        nests = [self.map(s) for s in before]
        if start is not None and not starts_fresh(self.program, start, statement):
            nests.append(self.map(start))
            start = None
        nests.append(self.reduction(statement, start))
        nests += [self.map(s) for s in after]
        return _in_order(nests)

    def label(self, tensor: str) -> str:
        """Return the user's name of a tensor."""
        return self.program.tensor(tensor).label


def _describe(plan: Plan) -> str:
    if plan.vector is None:
        return "scalar"
    tile = "".join(f" x {s} {i}" for i, s in plan.others if s > 1)
    return f"vectors of {plan.lanes} along {plan.vector}, {plan.chunks} at a time{tile}"


def _transposed(measured: Measured, vector: str) -> dict[Read, str]:
    """Return the reads that are contiguous along another iterator than the vector, with that iterator."""
    found = {a.read: unit_iterator(measured, a, vector) for a in measured.accesses if a.read is not None}
    return {read: i for read, i in found.items() if i is not None}


def _reads(statement: TypedStatement, tensor: str) -> bool:
    trees = (statement.expr, *statement.subscripts)
    return any(isinstance(e, Read) and e.tensor == tensor for tree in trees for e in walk(tree))


def _free_iterators(program: TypedProgram, statement: TypedStatement) -> tuple[str, ...]:
    """Return the inner iterators along which no instance of the statement depends on another.

    All of them where the instances do not depend on each other: two instances of `=` never write one cell.
    """
    inner = statement.iterators[statement.outer :]
    if statement.op == "set" and not _reads(statement, statement.target):
        return inner
    domain = read_set(statement.domain)
    target = read_map(access_relation(program, statement, statement.target, statement.subscripts))
    write = target.intersect_domain(domain)
    distances: isl.Set | None = None
    for read in {e for e in walk(statement.expr) if isinstance(e, Read) and e.tensor == statement.target} | {None}:
        if read is None:
            other = write
        elif read.pad is not None:
            return ()
        else:
            other = read_map(access_relation(program, statement, read.tensor, read.subscripts)).intersect_domain(domain)
        found = write.apply_range(other.reverse()).deltas()
        distances = found if distances is None else distances.union(found)
    assert distances is not None
    for d in range(statement.outer):
        distances = distances.fix_val(isl.dim_type.set, d, int_val(0))
    free = []
    for d, iterator in enumerate(statement.iterators[statement.outer :], statement.outer):
        if distances.subtract(distances.fix_val(isl.dim_type.set, d, int_val(0))).is_empty():
            free.append(iterator)
    return tuple(free)


def _start_of(
    program: TypedProgram, start: TypedStatement, before: TypedStatement, after: TypedStatement
) -> TypedStatement:
    """Return the start of the packed result: the same cells, their dimensions in the packed order."""
    dimension = dict(zip(before.subscripts, start.iterators, strict=True))
    iterators = tuple(dimension[s] for s in after.subscripts)
    old, new = ", ".join(start.iterators), ", ".join(iterators)
    swap = read_map(f"{parameters(program)}{{ {start.name}[{old}] -> {start.name}[{new}] }}")
    domain = read_set(start.domain).apply(swap)
    places = tuple(Index(i, i64) for i in iterators)
    return replace(start, target=after.target, iterators=iterators, subscripts=places, domain=str(domain))
