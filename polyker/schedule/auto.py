"""The automatic schedule: each statement's nest by the cost model, in the order of the text.

Whatever it proposes is proven by polyker.schedule.legality.prove, which shares nothing with this module.
"""

from __future__ import annotations

import islpy as isl
from msgspec import Struct, field

from polyker.cost.blocking import Blocking, blocking, fetches_result, row_prefetches
from polyker.cost.choose import choose
from polyker.cost.measure import Layouts, MeasuredStatement, measure
from polyker.cost.memory import prefetches_next_rows
from polyker.cost.own_distances import elements_apart, free_iterators, own_distances
from polyker.cost.plan import TilePlan, describe
from polyker.cost.prefetch import line_prefetches, next_row_prefetches, tile_prefetches
from polyker.cost.traffic import least_traffic
from polyker.ir.decision import Decision
from polyker.ir.expr import IndexExpr, Read
from polyker.ir.quasi_affine import is_quasi_affine
from polyker.ir.typed import PrefetchRead, TypedLoop, TypedProgram, TypedStatement, statements_of
from polyker.machine.model import Target
from polyker.poly.isl import read_set
from polyker.poly.least import is_invariant
from polyker.rewrite.core.accumulate import (
    AccumulatorBlock,
    AccumulatorLayout,
    PartialSums,
    Stored,
    accumulate,
    started_apart,
    starts_fresh,
)
from polyker.rewrite.core.fresh import Fresh
from polyker.rewrite.indexing.affine_parts import parts_of
from polyker.rewrite.indexing.copy_padded import reread_padding
from polyker.rewrite.indexing.whole_tiles import whole_tiles
from polyker.rewrite.materialise.pack_block import PackedBlock, pack_block
from polyker.rewrite.materialise.pack_operand import pack_padded, pack_read, pack_result, start_of_packed
from polyker.rewrite.materialise.pack_step import copyable, pack_step
from polyker.rewrite.normalise.count_from_zero import from_zero
from polyker.rewrite.reductions.peel import TileSearch, peeled
from polyker.rewrite.reductions.side_by_side import by_pieces
from polyker.rewrite.sharing.inline_values import inlined
from polyker.schedule.fusion.cost import Fusion, best_fusion, invariant_tensors
from polyker.schedule.fusion.epilogue import stored_with, with_epilogues
from polyker.schedule.fusion.items import Item
from polyker.schedule.fusion.nest import fused
from polyker.schedule.fusion.reasons import MAX_REASONS, why_apart
from polyker.schedule.nests.blocked import BlockedNest
from polyker.schedule.nests.loop_order import around_block, block_of, memory_order, panels_of, reduced_order, tile_order
from polyker.schedule.nests.nest import (
    Nest,
    ReductionLoops,
    in_order,
    map_nest,
    nests_of,
    reduction_nest,
    serial_nest,
)
from polyker.schedule.nests.scan import beside_scan, by_vectors, scan_nest, scan_plan, vector_scan_nest
from polyker.schedule.nests.stream import read_order, run_of, stream_nest, streams, streams_tiles
from polyker.schedule.nests.transpose import across_of, transposing_tree, write_order
from polyker.schedule.nests.transpose_prefetch import transposed_prefetches
from polyker.schedule.nests.wavefront import wave_nest
from polyker.schedule.time.tiling import time_tiled
from polyker.schedule.tree.nodes import ScheduleTree
from polyker.structs import replace

# Vectors at a time, at most, along rows of which each has a length of its own: what is cut off the last tile is half of
# one (chosen).
MAX_CHUNKS_OF_CUT_ROWS = 2


def auto_schedule(
    program: TypedProgram, target: Target, layout: Layouts, *, plain: bool = False, fuse: bool = True
) -> tuple[TypedProgram, ScheduleTree]:
    """Return the program with its accumulators and copies made explicit, and the schedule of it.

    `plain`: no tiles, no vectors, no copies, the loops as the text orders them; accumulators alone. `fuse`: statements may
    share loops; else each has a nest of its own.
    """
    return _CpuScheduler(Fresh(program), target, layout, plain, fuse and not plain).result()


class _CpuScheduler(Struct):
    """Schedules one program; `notes` are the decisions."""

    fresh: Fresh
    target: Target
    layout: Layouts
    plain: bool = False
    fuse: bool = False
    notes: list[Decision] = field(default_factory=list)
    invariant: frozenset[str] | None = None  # tensors that may be copied before the common loops being made
    near: frozenset[str] = frozenset()  # tensors that take no streaming stores
    prefetched: frozenset[str] = frozenset()  # tensors that statements of the group prefetch already

    def result(self) -> tuple[TypedProgram, ScheduleTree]:
        """Return the program with what the schedule added to it, and the schedule."""
        nodes, nest = nests_of(self.fresh.program.body, self.run, self.tiled)
        return self.fresh.finish(nodes), ScheduleTree(nest.tree, tuple(self.notes))

    def note(self, subject: str, chosen: str) -> None:
        """Keep a decision."""
        self.notes.append(Decision(subject, chosen))

    @property
    def program(self) -> TypedProgram:
        """The program with the temporaries made so far (its body is the original one)."""
        return self.fresh.finish(self.fresh.program.body)

    def run(self, statements: list[TypedStatement]) -> tuple[list[TypedStatement], list[Nest]]:
        """Return what stands for statements that follow each other, and their nests as they run."""
        items: list[Item] = []
        for node in statements:
            before = items[-1].statement if items else None
            reduces = node.op != "set" and bool(node.reduced) and (node.in_order or not node.reads_own)
            start = before if reduces and starts_fresh(self.program, before, node) else None
            if start is not None:
                items.pop()
            items.append(self.item(node, start, reduces=reduces))
        return self.statements(items)

    def tiled(self, loop: TypedLoop) -> Nest | None:
        """Return the nest of a time loop by tiles of time and space, None where they do not pay."""
        if not self.fuse or any(s.op != "set" or s.outer != 1 for s in statements_of(loop.body)):
            return None
        free = {s.name: free_iterators(self.program, s) for s in statements_of(loop.body)}
        if not all(free.values()):
            return None  # what each element waits for costs more than memory
        found = time_tiled(self.program, loop, free, self.layout, self.target)
        if found is None:
            return None
        self.notes.append(found[1])
        return found[0]

    def item(self, statement: TypedStatement, start: TypedStatement | None, *, reduces: bool) -> Item:
        """Return a statement as what may run together with others."""
        program = self.program

        def free() -> tuple[str, ...]:
            if start is not None and not all(isinstance(s, IndexExpr) for s in statement.subscripts):
                return ()  # one loop of its start would be several of the statement
            if not reduces:
                return free_iterators(program, statement)
            inner = statement.iterators[statement.outer :]
            return elements_apart(self.program, statement, tuple(i for i in inner if i not in statement.reduced))

        return Item(statement, start, reduces, free, lambda: measure(program, statement, self.layout), in_order=True)

    def statements(self, items: list[Item]) -> tuple[list[TypedStatement], list[Nest]]:
        """Return what stands for statements that follow each other, in the order of the text, and their nests as they run."""
        nests: list[Nest] = []
        made: dict[Item, tuple[TypedStatement, ...]] = {}
        if self.fuse:
            items = with_epilogues(self.program, items, self.layout, self.target)
        for unit in self.units(items):
            self.prefetched = frozenset()
            if isinstance(unit, Fusion):
                known = len(self.notes)
                self.near, self.invariant = unit.near(), invariant_tensors(unit.group)
                together = fused(self, unit)
                self.near, self.invariant = frozenset(), None
                if together is not None:
                    made.update(zip(unit.group.items, together.bodies, strict=True))
                    nests += [*together.before, together.nest]
                    self.notes.append(unit.decision())
                    continue
                del self.notes[known:]
            for item in unit.group.items if isinstance(unit, Fusion) else (unit,):
                nest = (
                    self.reduction(item.statement, item.start, epilogue=item.epilogue)
                    if item.reduces
                    else self.map(item.statement)
                )
                made[item] = nest.statements
                nests.append(nest)
        return [s for item in items for s in made[item]], nests

    def units(self, items: list[Item]) -> list[Item | Fusion]:
        """Return the statements in the order in which they run, those together that share loops."""
        if not self.fuse or len(items) < 2:
            return list(items)
        found = best_fusion(self.program, items, self.target)
        if found is None:
            told = sum(bool(n.refused) for n in self.notes)
            reason = why_apart(self.program, items, self.target) if told < MAX_REASONS else None
            self.notes += [reason] if reason else []
            return [items[0], *self.units(items[1:])]
        fusion, before, after = found
        return [*self.units(before), fusion, *self.units(after)]

    def map(self, statement: TypedStatement, *, copied: bool = False) -> Nest:
        """Return the nest of a statement whose instances each define an element of their own; `copied`: it reads copies
        already."""
        if self.plain:
            return serial_nest(statement)
        inner = statement.iterators[statement.outer :]
        free = free_iterators(self.program, statement)
        measured = measure(self.program, statement, self.layout)
        if not free:
            waves = wave_nest(self.program, measured, own_distances(self.program, statement))
            if waves is not None:
                self.notes.append(waves[1])
                return waves[0]
            lanes = by_vectors(self.program, measured, inner, self.target)
            if lanes:
                self.note(statement.name, f"depends on itself; vectors of {lanes} along {inner[-1]}, scanned")
                return vector_scan_nest(measured, inner, lanes)
            kept = "carries a dependence in every loop; the order of the text is kept"
            self.notes += [Decision(statement.name, kept)] if inner else []
            return serial_nest(statement)
        may_copy = self.invariant is None and not copied and set(free) == {*inner}
        reads = copyable(self.program, statement) if may_copy else frozenset()
        plan = choose(replace(measured, copyable=reads), free, (), self.target)
        if plan.packed:
            return self.copied(statement, plan)
        across = () if plan.vector is None or len(free) < len(inner) else across_of(measured, plan.vector)
        if plan.vector is not None and self.invariant is None and not across:
            statement = from_zero(self.program, statement, plan.vector)
            if statement is not measured.statement:
                measured = measure(self.program, statement, self.layout)
            if not is_invariant(
                read_set(statement.domain), statement.iterators, statement.iterators.index(plan.vector)
            ):
                plan = replace(plan, chunks=min(plan.chunks, MAX_CHUNKS_OF_CUT_ROWS))
        if len(free) < len(inner):
            plan = beside_scan(self.program, measured, plan, free, self.target)
            plan, order = scan_plan(self.program, measured, plan, free, self.target)
            lanes = 0 if plan.vector is not None else by_vectors(self.program, measured, order, self.target)
            if lanes:
                self.note(statement.name, f"depends on itself; vectors of {lanes} along {order[-1]}, scanned")
                return vector_scan_nest(measured, order, lanes)
            self.note(statement.name, f"depends on itself; {describe(plan)}; loops {', '.join(order)}")
            return scan_nest(self.program, measured, plan, order)
        if across and plan.vector is not None:
            past = statement.target not in self.near and streams_tiles(measured, plan, self.target)
            order = (read_order if past else write_order)(measured, inner)
            chosen = f"vectors of {plan.lanes} along {plan.vector}, transposed in registers from "
            self.note(statement.name, chosen + f"{', '.join(across)}; loops {', '.join(order)}")
            prefetches = transposed_prefetches(self.program, measured, plan, across, order, self.target)
            statement = self.prefetching(statement, prefetches)
            return Nest((statement,), transposing_tree(self.program, measured, plan, across, order, self.target))
        order = memory_order(measured, inner, plan.vector)
        if statement.target not in self.near and streams(measured, plan, self.target):
            order, run = run_of(measured, plan, order, self.target)
            by = "" if run is None else f", {run[0]} by {run[1]}"
            self.note(statement.name, f"{describe(plan)}, streaming stores; loops {', '.join(order)}{by}")
            return stream_nest(measured, plan, order, run)
        if self.invariant is not None:
            prefetches = next_row_prefetches(self.program, measured, plan, self.target)
            measured = replace(measured, statement=self.prefetching(statement, prefetches))
        self.note(statement.name, f"{describe(plan)}; loops {', '.join(order)}")
        return map_nest(self.program, measured, plan, order)

    def copied(self, statement: TypedStatement, plan: TilePlan) -> Nest:
        """Return the nests of the copies that the plan of a statement needs, and of the statement after them."""
        assert plan.vector is not None
        copies = []
        for read in plan.packed:
            found = pack_step(self.program, self.fresh, statement, read, plan.vector)
            copies.append(self.map(found.copy))
            statement = found.statement
            self.note(statement.name, f"{self.label(read.tensor)} is copied along {plan.vector}")
        return in_order([*copies, self.map(statement, copied=True)])

    def reduction(
        self,
        statement: TypedStatement,
        start: TypedStatement | None,
        packed: str | None = None,
        epilogue: TypedStatement | None = None,
        *,
        part: TilePlan | None = None,
    ) -> Nest:
        """Return the nest of a reduction over at least one iterator; `start` set its elements to the identity before.

        `packed`: the vector that operands were copied for. `epilogue`: what reads each result. `part`: the tile of a part.
        """
        measured = replace(self.measured(statement), invariant=self.invariant)
        kept = tuple(i for i in statement.iterators[statement.outer :] if i not in statement.reduced)
        if self.plain:
            parts = accumulate(self.program, self.fresh, statement, start=start)
            scalar = TilePlan(None, 1, 1, (), 0.0)
            loops = ReductionLoops(kept, statement.reduced)
            nest = reduction_nest(self.program, measured, scalar, parts, loops)
            return self.followed([nest], epilogue)
        padded = reread_padding(measured)
        if padded:
            return self.without_padding(statement, start, padded, epilogue)
        free = elements_apart(self.program, statement, kept)
        plan = part or choose(measured, free, statement.reduced, self.target, packed)
        alone = packed is None and self.invariant is None and part is None
        if alone and epilogue is None and self.fuse:
            tiles = TileSearch(free, self.target, self.measured)
            rest = peeled(self.program, self.fresh, measured, plan, start, tiles)
            if rest is not None:
                self.note(statement.name, f"the last {rest.count} of {rest.iterator} are computed separately")
                return in_order([self.reduction(s, first, part=tile) for s, first, tile in (rest.whole, rest.rest)])
        sums = by_pieces(self.program, self.fresh, measured, plan, start, self.target) if alone else []
        if sums:
            self.note(statement.name, f"pieces of {plan.vector} are read side by side")
            return self.followed([self.reduction(*sum_) for sum_ in sums], epilogue)
        refused: list[tuple[str, str]] = []
        blocks = blocking(measured, plan, kept, self.target, refused) if self.may_block(statement, kept) else None
        if packed is None:
            self.notes += [Decision(statement.name, refused=f"{t} is not packed: {why}") for t, why in refused]
        if blocks is not None and not plan.packs_result:
            return self.blocked(measured, plan, blocks, start, epilogue)
        if plan.packed or (plan.packs_result and start is not None):
            return self.packed(measured, plan, start, epilogue)
        statement, start, results, before = self.whole(measured, plan, start, kept)
        carried = None if before else stored_with(self.program, epilogue, statement, plan, self.layout)
        order = least_traffic(measured, plan, tile_order(measured, plan, kept), self.target)
        prefetches = line_prefetches(self.program, measured, plan, self.target)
        statement = self.prefetching(
            statement, prefetches + tile_prefetches(self.program, measured, plan, order, self.target)
        )
        terms = reduced_order(measured, plan)
        block = block_of(measured, plan, terms, self.target)
        lanes = (
            PartialSums(plan.vector, plan.lanes * plan.chunks)
            if plan.vector in statement.reduced and plan.vector
            else None
        )
        origin = {i: measured.lo(i) for i in kept}
        layout = AccumulatorLayout((AccumulatorBlock(*block),) if block else (), plan.vector, origin)
        stored = Stored(results, tuple((i, plan.size(i), origin[i]) for i in kept), carried)
        parts = accumulate(self.program, self.fresh, statement, start=start, lanes=lanes, layout=layout, stored=stored)
        around = around_block(measured, plan, block[0]) if block and block[0] == terms[0] else ()
        order = (*around, *(i for i in order if i not in around))
        panels = panels_of(measured, plan, order, self.target) if not around else ()
        self.note(statement.name, f"{describe(plan)}; tiles {', '.join(order)}; terms {', '.join(terms)}")
        loops = ReductionLoops(order, terms, block, panels, len(around))
        nest = reduction_nest(self.program, measured, plan, parts, loops)
        return self.followed([*before, nest], epilogue, carried=parts.carries)

    def prefetching(self, statement: TypedStatement, prefetches: tuple[PrefetchRead, ...]) -> TypedStatement:
        """Return a statement that prefetches what no statement before it that runs with it prefetches or reads.

        In a group of statements it prefetches only where the Target says that this pays.
        """
        prefetches = prefetches if self.invariant is None or prefetches_next_rows(self.target) else ()
        found = tuple(a for a in prefetches if a.read.tensor not in self.prefetched)
        self.prefetched |= {r.tensor for r in statement.reads()}
        return replace(statement, prefetch=found)

    def followed(self, nests: list[Nest], epilogue: TypedStatement | None, *, carried: bool = False) -> Nest:
        """Return nests, and that of an epilogue which their stores do not compute."""
        if epilogue is None:
            return in_order(nests)
        if carried:
            self.note(epilogue.name, "is computed where the results that it reads are stored")
            return in_order(nests)
        return in_order([*nests, self.map(epilogue)])

    def whole(
        self, measured: MeasuredStatement, plan: TilePlan, start: TypedStatement | None, kept: tuple[str, ...]
    ) -> tuple[TypedStatement, TypedStatement | None, isl.Set | None, list[Nest]]:
        """Return the reduction with whole tiles where its results are no box, the start of the elements that it stores, which
        these are, and the nest that starts the others."""
        statement = measured.statement
        tiles = tuple((i, plan.size(i), measured.lo(i)) for i in kept)
        found = whole_tiles(self.program, statement, tiles, plan.grain, moved=self.invariant is not None)
        if found is None:
            return statement, start, None, []
        self.note(statement.name, "tiles that the results' border crosses are computed whole")
        before = []
        if start is not None:
            start, rest = started_apart(self.program, self.fresh, start, statement, found.results)
            before = [] if rest is None else [self.map(rest)]
        return found.statement, start, found.results, before

    def without_padding(
        self,
        statement: TypedStatement,
        start: TypedStatement | None,
        reads: tuple[Read, ...],
        epilogue: TypedStatement | None,
    ) -> Nest:
        """Return the nest of a reduction whose padded operands are copied first, and the nests of the copies."""
        before = []
        for read in reads:
            found = pack_padded(self.program, self.fresh, statement, read)
            before += [self.map(part) for part in parts_of(self.program, self.fresh, found.copy)]
            statement = found.statement
            self.note(statement.name, f"{self.label(read.tensor)} is copied with its padding")
        return in_order([*before, self.reduction(statement, start, epilogue=epilogue)])

    def may_block(self, statement: TypedStatement, kept: tuple[str, ...]) -> bool:
        """Whether partial sums may be kept in the result, and the tiles of it be computed in any order."""
        same = self.program.tensor(statement.target).dtype == statement.acc
        return self.invariant is None and same and elements_apart(self.program, statement, kept) == kept

    def blocked(
        self,
        measured: MeasuredStatement,
        plan: TilePlan,
        blocks: Blocking,
        start: TypedStatement | None,
        epilogue: TypedStatement | None,
    ) -> Nest:
        """Return the nest of a reduction by cache blocks, with the copies of its operands."""
        kept = measured.statement.kept
        statement, start, results, before = self.whole(measured, plan, start, kept)
        origin = {i: measured.lo(i) for i in statement.iterators}
        if all(a.read in blocks.packs_columns for a in measured.accesses if a.read and a.stride(plan.vector or "")):
            plan = replace(plan, across=None)
        nest = BlockedNest(measured, plan, blocks, self.target, lambda copy: measure(self.program, copy, self.layout))
        around = tuple(t for t, _ in nest.loops().blocks)
        copies: list[PackedBlock] = []
        for read in (*blocks.packs_columns, *blocks.packs_rows):
            inside = tuple(t for t, _ in nest.loops().row_blocks) if read in blocks.packs_rows else ()
            made = pack_block(self.program, self.fresh, statement, read, around + inside, origin)
            copies.append(made)
            statement = made.statement
            self.note(statement.name, f"{self.label(read.tensor)} is packed by blocks")
        statement = replace(statement, prefetch=row_prefetches(self.program, blocks, plan, measured, self.target))
        carried = None if before else stored_with(self.program, epilogue, statement, plan, self.layout)
        layout = AccumulatorLayout(tuple(AccumulatorBlock(i, n) for i, n in blocks.terms), plan.vector, origin)
        stores = Stored(results, tuple((i, plan.size(i), origin[i]) for i in kept), carried)
        parts = accumulate(self.program, self.fresh, statement, start=start, layout=layout, stored=stores)
        stored = parts.store[0]  # its elements, be it the epilogue's, are prefetched during the reduction
        if fetches_result(blocks, plan, measured, self.target) and all(map(is_quasi_affine, stored.subscripts)):
            result = Read(stored.target, stored.subscripts, dtype=self.program.tensor(stored.target).dtype)
            parts = replace(parts, start=replace(parts.start, prefetch=(PrefetchRead(result),)))
        cut = ", ".join(f"{i} by {n}" for i, n in blocks.blocks + blocks.terms + blocks.row_blocks)
        tiles = f"{describe(plan)}{cut and '; blocks '}{cut}; tiles {', '.join((*blocks.rows, *blocks.columns))}"
        self.note(statement.name, f"{tiles}; terms {', '.join(blocks.reduced)}")
        columns = len(blocks.packs_columns)
        tiled = nest.nest(self.program, parts, tuple(copies[:columns]), tuple(copies[columns:]))
        return self.followed([*before, tiled], epilogue, carried=parts.carries)

    def packed(
        self, measured: MeasuredStatement, plan: TilePlan, start: TypedStatement | None, epilogue: TypedStatement | None
    ) -> Nest:
        """Return the nests of the copies that the plan needs, around the nest of the statement that uses them."""
        statement, vector = measured.statement, plan.vector
        assert vector is not None
        before: list[TypedStatement] = []
        after: list[TypedStatement] = []
        for read in plan.packed:
            found = pack_read(self.program, self.fresh, statement, read, vector)
            before.append(found.copy)
            statement = found.statement
            self.note(statement.name, f"{self.label(read.tensor)} is packed along {vector}")
        if plan.packs_result and start is not None:
            found = pack_result(self.program, self.fresh, statement, vector)
            after.append(found.copy if epilogue is None else inlined(self.program, found.copy, epilogue))
            if epilogue is not None:
                self.note(epilogue.name, "is computed where the packed results are copied")
            epilogue = None
            start = start_of_packed(self.program, start, statement, found.statement)
            statement = found.statement
            self.note(statement.name, f"the result is packed along {vector}")
        nests = [self.map(s) for s in before]
        if start is not None and plan.packs_result and not starts_fresh(self.program, start, statement):
            nests.append(self.map(start))
            start = None
        nests.append(self.reduction(statement, start, vector, epilogue))
        nests += [self.map(s) for s in after]
        return in_order(nests)

    def measured(self, statement: TypedStatement) -> MeasuredStatement:
        """Return what the cost model knows of a statement."""
        return measure(self.program, statement, self.layout)

    def label(self, tensor: str) -> str:
        """Return the user's name of a tensor."""
        return self.program.tensor(tensor).label
