"""Schedule a program for a GPU: parallel iterators map to threads, and statements share launches where threads may.

Statements whose threads need nothing of each other share a launch (polyker.schedule.gpu.fuse), the others follow each other.

The loops of the text around statements (time loops) run on the host. Whatever is proposed is proven by
polyker.schedule.legality.prove, which shares nothing with this module.
"""

from __future__ import annotations

from msgspec import Struct, field

from polyker.cost.measure import Layouts, MeasuredStatement, measure
from polyker.cost.own_distances import elements_apart, free_iterators
from polyker.cost.plan import TilePlan
from polyker.ir.decision import Decision
from polyker.ir.dtypes import i64
from polyker.ir.expr import Expr, IndexExpr
from polyker.ir.quasi_affine import add, floordiv, lit, mod
from polyker.ir.typed import TypedProgram, TypedStatement
from polyker.machine.model import Gpu
from polyker.poly.isl import read_set
from polyker.rewrite.core.accumulate import AccumulatorLayout, PartialSums, accumulate, starts_fresh
from polyker.rewrite.core.fresh import Fresh
from polyker.rewrite.reductions.scan import Scan, as_steps, covers, prefixes, recurrence
from polyker.rewrite.reductions.split_scan import ScanRuns, split_scan
from polyker.rewrite.reductions.split_sum import SplitSum, SumCut, split_sum
from polyker.schedule.fusion.epilogue import joined
from polyker.schedule.fusion.groups import Group
from polyker.schedule.fusion.items import Item
from polyker.schedule.gpu.across import Across, across
from polyker.schedule.gpu.columns import ColumnParts, ColumnReduction, choose_columns, columns_nest
from polyker.schedule.gpu.contract import ContractionTiling, Runs, choose_contraction, choose_runs
from polyker.schedule.gpu.contract_nest import contraction_nest, results_of
from polyker.schedule.gpu.fuse import FusedLaunch, grown, of_one_shape, promotions
from polyker.schedule.gpu.map import below, element_shape, partial_sums, sum_cut
from polyker.schedule.gpu.row_registers import in_registers
from polyker.schedule.gpu.rows import RowLaunch, grown_rows, held_tensors, row_body, row_tree
from polyker.schedule.gpu.scan import ScanMapping, as_item, choose_column_runs, choose_scan, scan_nest
from polyker.schedule.gpu.transpose import Transposed, choose_transposed, transposed_nest
from polyker.schedule.nests.nest import Nest, ReductionTiles, band, nests_of, offset, shared
from polyker.schedule.tree.nodes import Band, Leaf, MemberKind, ScheduleTree, Tree, rebuilt
from polyker.structs import replace


def gpu_schedule(
    program: TypedProgram, gpu: Gpu, layout: Layouts, *, reassociating: bool = False
) -> tuple[TypedProgram, ScheduleTree]:
    """Return the program with its accumulators made explicit, and the schedule of it.

    `reassociating`: sums of floats may be rounded otherwise than the text says.
    """
    return _GpuScheduler(Fresh(program), gpu, layout, reassociating).result()


class _GpuScheduler(Struct):
    fresh: Fresh
    gpu: Gpu
    layout: Layouts
    reassociating: bool
    notes: list[Decision] = field(default_factory=list)
    transposes: dict[Item, Transposed | None] = field(default_factory=dict)  # what is known of statements so far
    columns: dict[Item, ColumnParts] = field(default_factory=dict)
    dealt: dict[str, Across] = field(default_factory=dict)  # reductions whose terms threads of a block share
    tiled: dict[str, ContractionTiling] = field(default_factory=dict)  # those whose operands lie in shared memory
    scans: dict[str, tuple[Scan, ScanMapping]] = field(default_factory=dict)  # what threads of a block scan

    def result(self) -> tuple[TypedProgram, ScheduleTree]:
        nodes, nest = nests_of(self.program.body, self.run)
        return self.fresh.finish(nodes), ScheduleTree(nest.tree, tuple(self.notes))

    @property
    def program(self) -> TypedProgram:
        return self.fresh.finish(self.fresh.program.body)

    def run(self, statements: list[TypedStatement]) -> tuple[list[TypedStatement], list[Nest]]:
        """Return what stands for statements that follow each other, in the order of the text, and their launches as they run."""
        items: list[Item] = []
        for node in statements:
            reduces = node.op != "set" and bool(node.reduced) and not node.reads_own
            before = items[-1].statement if items else None
            start = before if reduces and starts_fresh(self.program, before, node) else None
            if start is not None:
                items.pop()
            scan = prefixes(self.program, node) if start is not None else self.recurrence(node)
            found = None if scan is None else self.scan_items(scan)
            if scan is None or found is None:
                items += self.items(node, start, reduces=reduces)
                continue
            if start is not None and not covers(self.program, scan, start):
                items += self.items(start, None, reduces=False)
            items += found
        items = joined(self.program, items, self.ends)
        taken = {s.name for s in statements}
        others = [s for s in self.program.statements() if s.name not in taken]
        made: dict[Item, tuple[TypedStatement, ...]] = {}
        nests: list[Nest] = []
        for launch in self.launches(items):
            if isinstance(launch, ColumnParts):
                nest = columns_nest(self.program, self.fresh, launch)
                made[launch.item] = nest.statements
                nests.append(nest)
                continue
            inside = launch.group.items
            outside = others + [
                s for i in items if i not in inside for s in (i.statement, i.start, i.epilogue) if s is not None
            ]
            bodies, nest = (
                self.by_rows(launch, outside) if isinstance(launch, RowLaunch) else self.launch(launch, outside)
            )
            made.update(zip(inside, bodies, strict=True))
            nests.append(nest)
        return [s for item in items for s in made[item]], nests

    def items(self, statement: TypedStatement, start: TypedStatement | None, *, reduces: bool) -> list[Item]:
        """Return a statement as what may run together with others; of a long reduction that is cut, its two parts."""
        program, inner = self.program, statement.iterators[statement.outer :]
        kept = tuple(i for i in inner if i not in statement.reduced)

        def free() -> tuple[str, ...]:
            return elements_apart(program, statement, kept) if reduces else free_iterators(program, statement)

        item = Item(statement, start, reduces, free, lambda: measure(program, statement, self.layout))
        if not reduces or item.free != kept:
            return [item]
        runs, shape = choose_runs(item.measured, kept, self.gpu), element_shape(program, item.measured)
        in_runs = None if runs is None or shape is None else self.run_items(item, runs, shape)
        if in_runs is not None:
            return in_runs
        tiles = choose_contraction(item.measured, kept, self.gpu, started=start is not None)
        if tiles is not None:
            self.tiled[statement.name] = tiles
            return [item]
        found_across = across(item.measured, self.gpu)
        if found_across is not None:
            return self.dealt_items(item, found_across)
        if shape is None:
            return [item]
        columns = choose_columns(item.measured, self.gpu)
        if columns is not None:
            return self.column_items(item, columns, shape)
        cut = sum_cut(item.measured, self.gpu)
        if cut is None:
            return [item]
        found = split_sum(program, self.fresh, statement, SumCut(*cut), shape)
        self.note(statement.name, f"{cut[1]} partial results in memory for each element, cut along {cut[0]}")
        return self.items(found.partial, found.start, reduces=True) + self.items(found.fold, start, reduces=True)

    def recurrence(self, statement: TypedStatement) -> Scan | None:
        """Return a recurrence as a scan, None where its terms have to be combined one by one."""
        found = statement.reads_own and statement.op == "set"
        return recurrence(self.program, statement, reassociating=self.reassociating) if found else None

    def scan_items(self, scan: Scan) -> list[Item] | None:
        """Return a scan that threads share, of one that blocks share its three parts; None where each thread has its own."""
        program, statement = self.program, as_item(scan)
        measured = measure(program, statement, self.layout)
        mapping = choose_scan(measured, scan, self.gpu)
        if mapping is None:
            long = scan.is_prefix and measured.extent(scan.along) >= self.gpu.warp
            steps = as_steps(program, self.fresh, scan) if long else None
            return None if steps is None else [i for s in steps for i in self.items(s, None, reduces=False)]
        columns = choose_column_runs(measured, scan, self.gpu)
        if program.tensor(statement.target).dtype != statement.expr.dtype:
            columns = None
        parts = self.runs(scan, measured, columns or mapping.cut, beside=columns is not None)
        if parts is None:
            return self.scanned(scan, mapping)
        found = self.items(parts.totals, parts.start, reduces=True)
        if columns is None:
            whole = replace(mapping, cut=0)
            return [*found, *self.scanned(parts.carried, whole), *self.scanned(parts.within, whole)]
        steps = [s for part in (parts.carried, parts.within) for s in as_steps(self.program, self.fresh, part) or ()]
        return found + [i for s in steps for i in self.items(s, None, reduces=False)]

    def runs(self, scan: Scan, measured: MeasuredStatement, cut: int, *, beside: bool) -> ScanRuns | None:
        """Return a scan by runs of so many terms, None where it is not cut, or its memory has no known extents."""
        program, name = self.program, scan.statement.name
        shape = [below(program, measured, i) for i in (*scan.kept, scan.along)]
        least = [lo for i, (lo, _) in measured.bounds.items() if i != scan.along]
        known = tuple(e for e in shape if e is not None)
        if not cut or len(known) < len(shape) or any(lo is None or lo < 0 for lo in least):
            return None
        self.note(name, f"runs of {cut} terms, each begins with what those before come to")
        runs = floordiv(add(known[-1], lit(cut - 1 - scan.lo)), cut)
        return split_scan(program, self.fresh, scan, cut, known[:-1], runs, beside=beside)

    def scanned(self, scan: Scan, mapping: ScanMapping) -> list[Item]:
        """Return a scan whose rows are a block's each."""
        program, statement = self.program, as_item(scan)
        self.scans[statement.name] = scan, mapping
        return [Item(statement, None, False, lambda: (), lambda: measure(program, statement, self.layout))]

    def ends(self, item: Item, epilogue: TypedStatement) -> bool:
        """Return whether a contraction stores what is computed from each of its results, in place of these."""
        whole = item.statement.name in self.tiled and results_of(self.program, item.statement, item.start).is_equal(
            read_set(epilogue.domain).reset_tuple_id()
        )
        if whole:
            self.note(epilogue.name, "is computed where the results that it reads are stored")
        return whole

    def dealt_items(self, item: Item, found: Across) -> list[Item]:
        """Return a reduction whose terms are distributed over threads; of one that several blocks share, its two parts."""
        shape = element_shape(self.program, item.measured)
        if found.blocks == 1 or shape is None:
            self.dealt[item.statement.name] = found
            return [item]
        run = found.width if found.cut == found.iterator else 1
        split = split_sum(self.program, self.fresh, item.statement, SumCut(found.cut, found.blocks, run), shape)
        name = item.statement.name
        self.note(name, f"{found.blocks} partial results in memory for each element, of a block each")
        self.dealt[split.partial.name] = Across(split.within or found.iterator, found.width)
        return [self.part(split), *self.items(split.fold, item.start, reduces=True)]

    def part(self, split: SplitSum) -> Item:
        """Return the first part of a reduction that was split."""
        program, layout, partial = self.program, self.layout, split.partial
        return Item(partial, split.start, True, lambda: partial.kept, lambda: measure(program, partial, layout))

    def run_items(self, item: Item, runs: Runs, shape: tuple[Expr, ...]) -> list[Item] | None:
        """Return a product whose sums are split into runs, tiled as a product of its own for each run, and what adds these up;
        None where the product of a run has no tiles."""
        statement, cut = item.statement, SumCut(runs.along, runs.count, runs.run, outermost=True)
        split = split_sum(self.program, self.fresh, statement, cut, shape)
        part = self.part(split)
        tiles = choose_contraction(part.measured, part.free, self.gpu, started=True)
        if tiles is None:
            return None
        self.note(statement.name, f"{runs.count} partial results in memory, each of {runs.run} values of {runs.along}")
        self.tiled[split.partial.name] = tiles
        return [part, *self.items(split.fold, item.start, reduces=True)]

    def column_items(self, item: Item, found: ColumnReduction, shape: tuple[Expr, ...]) -> list[Item]:
        """Return a reduction by columns, one launch; of one that several blocks share, what they come to in another."""
        rest, name = list[Item](), item.statement.name
        statement, start, along = item.statement, item.start, found.along
        if found.blocks > 1:
            first = split_sum(self.program, self.fresh, statement, SumCut(along, found.blocks, found.height), shape)
            assert first.within is not None
            rest = self.items(first.fold, item.start, reduces=True)
            statement, start, along, shape = first.partial, first.start, first.within, (*shape, lit(found.blocks))
            item = self.part(first)
        split = split_sum(self.program, self.fresh, statement, SumCut(along, found.height), shape)
        parts = ((split.partial, split.start), (split.fold, start))
        (lane,) = split.fold.reduced
        self.columns[item] = ColumnParts(item, parts, found.column, lane, found.height, self.gpu.warp)
        blocks = f", {found.blocks} blocks to an element" if found.blocks > 1 else ""
        self.note(name, f"{found.height} threads along {found.along} to an element{blocks}")
        return [item, *rest]

    def transposed(self, item: Item) -> Transposed | None:
        """Return which operands of a statement go through shared memory, None where none has to."""
        if item not in self.transposes:
            self.transposes[item] = choose_transposed(item)
        return self.transposes[item]

    def is_alone(self, item: Item) -> bool:
        """Return whether a statement's blocks hold tiles of its operands: other statements would have other blocks."""
        if item.statement.name in self.tiled or item.statement.name in self.scans:
            return True
        return item in self.columns or self.transposed(item) is not None

    def launches(self, items: list[Item]) -> list[FusedLaunch | RowLaunch | ColumnParts]:
        """Return the launches in the order in which they run."""
        if not items:
            return []
        if items[0] in self.columns:
            return [self.columns[items[0]], *self.launches(items[1:])]
        if self.is_alone(items[0]):
            return [FusedLaunch(Group.of(items[0]), (), None), *self.launches(items[1:])]
        tiled = [i for i in items if self.is_alone(i)]
        found = grown_rows(self.program, items, self.dealt, self.gpu, tiled)
        launch, before, after = found if found is not None else grown(self.program, items, self.gpu, tiled)
        return [*self.launches(before), launch, *self.launches(after)]

    def launch(
        self, launch: FusedLaunch, outside: list[TypedStatement]
    ) -> tuple[list[tuple[TypedStatement, ...]], Nest]:
        """Return the statements that stand for each item of a launch, and the nest that runs them."""
        first = launch.group.items[0]
        if first.statement.name in self.scans:
            scan, mapping = self.scans[first.statement.name]
            self.note(first.statement.name, str(mapping))
            nest = scan_nest(self.program, self.fresh, scan, mapping, first.measured)
            return [nest.statements], nest
        if len(launch.group.items) == 1 and (transposed := self.transposed(first)) is not None:
            self.note(first.statement.name, str(transposed))
            nest = transposed_nest(self.program, self.fresh, transposed)
            return [nest.statements], nest
        tiles = self.tiled.get(first.statement.name)
        if tiles is not None:
            self.note(first.statement.name, str(tiles))
            nest = contraction_nest(self.program, self.fresh, first, tiles, self.layout)
            return [nest.statements], nest
        elements = {n: launch.size(n) for n in range(len(launch.group.dims))}
        held = promotions(self.program, launch.group, elements, outside)
        found = [
            self.reduction(launch, n) if item.reduces else self.map(launch, n)
            for n, item in enumerate(launch.group.items)
        ]
        bodies = [nest.statements for nest in found]
        statements = tuple(s for body in bodies for s in body)
        if len(found) > 1:
            self.note_together(launch.group, [p.tensor for p in held])
        alike = len(found) == 1 or of_one_shape(self.program, launch.group)
        return bodies, Nest(statements, launch.tree(bodies, [n.tree for n in found], held, alike=alike))

    def by_rows(self, rows: RowLaunch, outside: list[TypedStatement]) -> tuple[list[tuple[TypedStatement, ...]], Nest]:
        """Return the statements that stand for each item of a launch by rows, and the nest that runs them."""
        rows, copies = in_registers(self.program, self.fresh, rows, outside, self.gpu)
        held = held_tensors(self.program, rows, outside, self.gpu)
        bodies = [row_body(self.program, self.fresh, rows, n) for n in range(len(rows.group.items))]
        for item, lane in zip(rows.group.items, rows.lanes, strict=True):
            elements = f", {rows.height} elements to a block" if rows.height > 1 else ""
            if lane is not None:
                self.note(item.statement.name, f"{rows.width} threads along {lane} to an element{elements}")
        if len(bodies) > 1:
            self.note_together(rows.group, held.tensors())
        statements = tuple(s for b in bodies for s in b.statements)
        made: list[tuple[TypedStatement, ...]] = []  # of each item, with the copies that stand before it
        pending: tuple[TypedStatement, ...] = ()
        for n, body in enumerate(bodies):
            pending = (*pending, *body.statements)
            if n not in copies:
                made.append(pending)
                pending = ()
        return made, Nest(statements, row_tree(rows, bodies, held))

    def note_together(self, group: Group, held: list[str]) -> None:
        """Say what shares a launch."""
        names = ", ".join(i.statement.name for i in group.items)
        kept = ", ".join(self.program.tensor(t).label for t in held)
        self.note(names, "one launch" + (f", {kept} on the chip" if kept else ""))

    def map(self, launch: FusedLaunch, n: int) -> Nest:
        """Return what a thread runs of a statement without a reduction; instances that depend on each other run in one thread."""
        statement, mapping, origin = launch.group.items[n].statement, launch.item_mapping(n), launch.origins(n)
        common = launch.common(n)
        members = []
        if mapping.elements is not None:
            i, elements = mapping.elements
            members.append(
                shared((statement,), mod(offset(i, origin[i]), elements), f"{i}.point", MemberKind.UNROLL, elements)
            )
        members += [
            shared((statement,), IndexExpr(i, i64), i)
            for i in statement.iterators[statement.outer :]
            if i not in common
        ]
        self.note(statement.name, str(mapping) or "one thread")
        return Nest((statement,), band(members, Leaf()))

    def reduction(self, launch: FusedLaunch, n: int) -> Nest:
        """Return what a thread runs of a reduction: it sums the terms of its own elements in registers."""
        item, mapping, origin = launch.group.items[n], launch.item_mapping(n), launch.origins(n)
        statement, common = item.statement, launch.common(n)
        kept = tuple(i for i in statement.iterators[statement.outer :] if i not in statement.reduced)
        summed = partial_sums(item.measured, mapping)
        if item.start is not None:
            origin |= {i: 0 for i in kept if i not in common}  # it starts elements that have no terms, too
        lanes = None if summed is None else PartialSums(*summed)
        layout = AccumulatorLayout(origin=origin)
        parts = accumulate(self.program, self.fresh, statement, start=item.start, lanes=lanes, layout=layout)
        members = [shared(parts.statements(), IndexExpr(i, i64), i) for i in kept if i not in common]
        others = () if mapping.elements is None else (mapping.elements,)
        plan = (
            TilePlan(None, 1, 1, others, 0.0)
            if lanes is None
            else TilePlan(lanes.iterator, lanes.count, 1, others, 0.0)
        )
        tiles = ReductionTiles(self.program, parts, kept, statement.reduced, origin)
        body = lanes_unrolled(tiles.tree(plan, kept))
        more = f", {summed[1]} partial sums over {summed[0]}" if summed else ""
        self.note(statement.name, f"{str(mapping) or 'one thread'}{more}")
        return Nest(parts.statements(), band(members, body))

    def note(self, subject: str, chosen: str) -> None:
        """Keep a decision."""
        self.notes.append(Decision(subject, chosen))


def lanes_unrolled(tree: Tree) -> Tree:
    """Return the tree with the lanes of vectors, which are a CPU's, as neighbours that a thread comes to one after another.

    Where their memory is aligned `codegen/passes/gpu/vectors.py` makes one access of several.
    """
    if isinstance(tree, Band):
        changed = (replace(m, kind=MemberKind.UNROLL) if m.kind is MemberKind.VECTOR else m for m in tree.members)
        tree = replace(tree, members=tuple(changed))
    return rebuilt(tree, lanes_unrolled)
