"""The automatic schedule of a GPU: each statement is a launch of its own; what carries no dependence is dealt out to threads.

The loops of the text around statements (time loops) run on the host. Whatever is proposed is proven by
polyker.schedule.legality, which shares nothing with this module.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from polyker.ir.dtypes import i64
from polyker.ir.expr import Index
from polyker.ir.typed import TypedLoop, TypedNode, TypedProgram, TypedStatement
from polyker.rewrite.accumulate import accumulate, starts_fresh
from polyker.rewrite.fresh import Fresh
from polyker.rewrite.split_sum import split_sum
from polyker.schedule.gpu_map import Mapping, choose_mapping, mapped_members, partial_sums, sum_cut, with_cells
from polyker.schedule.measure import Layouts, measure
from polyker.schedule.nest import Nest, band, result_tiles, shared
from polyker.schedule.own_distances import cells_apart, free_iterators, reads_own
from polyker.schedule.plan import Plan
from polyker.schedule.tree import Band, Filter, Kind, Leaf, Schedule, Scope, Sequence, Tree
from polyker.target.model import Gpu


def gpu_schedule(program: TypedProgram, gpu: Gpu, layout: Layouts) -> tuple[TypedProgram, Schedule]:
    """Return the program with its accumulators made explicit, and the schedule of it."""
    return _Scheduler(Fresh(program), gpu, layout).result()


@dataclass
class _Scheduler:
    fresh: Fresh
    gpu: Gpu
    layout: Layouts
    notes: list[str] = field(default_factory=list)

    def result(self) -> tuple[TypedProgram, Schedule]:
        nodes, nest = self.body(self.program.body)
        return self.fresh.finish(nodes), Schedule(nest.tree, tuple(self.notes))

    @property
    def program(self) -> TypedProgram:
        return self.fresh.finish(self.fresh.program.body)

    def body(self, body: tuple[TypedNode, ...]) -> tuple[tuple[TypedNode, ...], Nest]:
        """Return the statements that stand for a body, and their nests one after another."""
        nodes: list[TypedNode] = []
        nests: list[Nest] = []
        for node in body:
            if isinstance(node, TypedLoop):
                inner, nest = self.body(node.body)
                tree: Tree = Band((shared(nest.statements, Index(node.iterator, i64), node.iterator),), nest.tree)
                nodes.append(replace(node, body=inner))
                nests.append(Nest(nest.statements, tree))
                continue
            before = nodes[-1] if nodes and isinstance(nodes[-1], TypedStatement) else None
            if node.op != "set" and node.reduced and not reads_own(node):
                start = before if before is not None and starts_fresh(self.program, before, node) else None
                if start is not None:
                    nodes.pop()
                    nests.pop()
                    self.notes.pop()
                nest = self.reduction(node, start)
            else:
                nest = self.map(node)
            nodes += nest.statements
            nests.append(nest)
        if len(nests) == 1:
            return tuple(nodes), nests[0]
        statements = tuple(s for n in nests for s in n.statements)
        tree = Sequence(tuple(Filter(tuple(s.name for s in n.statements), n.tree) for n in nests))
        return tuple(nodes), Nest(statements, tree)

    def map(self, statement: TypedStatement) -> Nest:
        """Return the nest of a statement without a reduction; instances that depend on each other run in one thread."""
        inner = statement.iterators[statement.outer :]
        measured = measure(self.program, statement, self.layout)
        free = free_iterators(self.program, statement)
        mapping = choose_mapping(measured, free, self.gpu)
        members = mapped_members((statement,), mapping, {i: measured.lo(i) for i in inner})
        mapped = {i for i, _ in mapping.axes}
        members += [shared((statement,), Index(i, i64), i) for i in inner if i not in mapped]
        self.note(statement, mapping)
        return Nest((statement,), band(members, Leaf()))

    def reduction(self, statement: TypedStatement, start: TypedStatement | None) -> Nest:
        """Return the nest of a reduction: each thread sums the terms of its own cells in registers."""
        measured = measure(self.program, statement, self.layout)
        kept = tuple(i for i in statement.iterators[statement.outer :] if i not in statement.reduced)
        free = cells_apart(self.program, statement, kept)
        cut = sum_cut(measured, self.gpu) if free == kept else None
        if cut is not None:
            found = split_sum(self.program, self.fresh, statement, *cut)
            self.notes.append(f"{statement.name}: {cut[1]} partial results in memory for each cell, cut along {cut[0]}")
            nests = [self.reduction(found.partial, found.start), self.reduction(found.fold, start)]
            both = tuple(s for n in nests for s in n.statements)
            return Nest(both, Sequence(tuple(Filter(tuple(s.name for s in n.statements), n.tree) for n in nests)))
        mapping = choose_mapping(measured, free, self.gpu)
        mapping = with_cells(measured, mapping, self.gpu)
        summed = partial_sums(measured, mapping)
        origin = {i: measured.lo(i) for i in statement.iterators}
        if start is not None:
            origin |= dict.fromkeys(kept, 0)  # it starts cells that have no terms, too
        parts = accumulate(self.program, self.fresh, statement, start=start, lanes=summed, origin=origin)
        mapped = {i for i, _ in mapping.axes}
        members = mapped_members(parts.statements(), mapping, origin)
        members += [shared(parts.statements(), Index(i, i64), i) for i in kept if i not in mapped]
        others = () if mapping.cells is None else (mapping.cells,)
        along, lanes = summed or (None, 1)
        plan = Plan(along, lanes, 1, others, 0.0)
        body = _unrolled(result_tiles(self.program, plan, parts, kept, kept, statement.reduced, origin))
        self.note(statement, mapping, f", {summed[1]} partial sums over {summed[0]}" if summed else "")
        return Nest(parts.statements(), band(members, body))

    def note(self, statement: TypedStatement, mapping: Mapping, more: str = "") -> None:
        """Say what was chosen."""
        self.notes.append(f"{statement.name}: {str(mapping) or 'one thread'}{more}")


def _unrolled(tree: Tree) -> Tree:
    """Return the tree with the lanes of vectors, which are a CPU's, as cells or partial sums of one thread."""
    match tree:
        case Band(members=members, child=child):
            changed = (replace(m, kind=Kind.UNROLL) if m.kind is Kind.VECTOR else m for m in members)
            return Band(tuple(changed), _unrolled(child))
        case Sequence(children=children):
            return Sequence(tuple(replace(f, child=_unrolled(f.child)) for f in children))
        case Scope(child=child):
            return replace(tree, child=_unrolled(child))
        case Leaf():
            return tree
