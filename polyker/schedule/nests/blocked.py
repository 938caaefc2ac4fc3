"""Build the cache-blocked nest of a reduction, with operands packed at the start of their block.

    for j.block: for k.block:
        with B packed: { copy of B's block;
            for i.tile: for j.tile: with acc: { acc = 0;  for k: for i.point: vector j: acc += …;  store } }

Where the rows' operand is packed, too, its block is copied inside, and its tiles are the inner loop:

            for i.block: with A packed: { copy of A's block;  for j.tile: for i.tile: with acc: … } }

What is a column, a row and a term is decided by polyker.cost.blocking.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from polyker.cost.blocking import Blocking
from polyker.cost.measure import MeasuredStatement
from polyker.cost.plan import TilePlan
from polyker.cost.prefetch import rows_of_block
from polyker.ir.dtypes import i64
from polyker.ir.expr import Expr, IndexExpr
from polyker.ir.quasi_affine import floordiv, mod, substitute
from polyker.ir.typed import TypedProgram, TypedStatement
from polyker.machine.model import Target
from polyker.rewrite.core.accumulate import Accumulated
from polyker.rewrite.materialise.pack_block import PackedBlock
from polyker.schedule.nests.nest import Nest, ReductionTiles, band, offset
from polyker.schedule.nests.transpose import CopyLoops, copy_nest
from polyker.schedule.tree.nodes import Filter, Member, Promotion, Scope, Sequence, Tree
from polyker.structs import replace

Times = tuple[tuple[Expr, str], ...]


class BlockedLoops(Struct, frozen=True):
    """The times of the loops outside the tile, over the reduction's iterators, outermost first, with the loops' labels."""

    blocks: Times  # of kept iterators, then of the reduction
    row_blocks: Times
    rows: Times
    columns: Times


class BlockedNest(Struct, frozen=True):
    """What the nest is made of: a measured reduction, its register tile and its cache blocks.

    `measure`: measures a copy.
    """

    measured: MeasuredStatement
    plan: TilePlan
    blocking: Blocking
    target: Target
    measure: Callable[[TypedStatement], MeasuredStatement]

    def loops(self) -> BlockedLoops:
        """Return the loops around a tile."""
        choice = self.blocking
        sizes = dict(choice.blocks + choice.row_blocks)

        def tile(iterator: str) -> tuple[Expr, str]:
            place, size = self._place(iterator, iterator), self.plan.size(iterator)
            if iterator in sizes:
                place = mod(place, sizes[iterator])
            return floordiv(place, size), f"{iterator}.tile" if size > 1 else iterator

        def block(iterator: str, size: int) -> tuple[Expr, str]:
            return floordiv(self._place(iterator, iterator), size), f"{iterator}.block"

        def cut(iterator: str, size: int) -> tuple[Expr, str]:
            return floordiv(IndexExpr(iterator, i64), size), f"{iterator}.block"  # as the accumulators are numbered

        return BlockedLoops(
            (*(block(i, n) for i, n in choice.blocks), *(cut(i, n) for i, n in choice.terms)),
            tuple(block(i, n) for i, n in choice.row_blocks),
            tuple(map(tile, choice.rows)),
            tuple(map(tile, choice.columns)),
        )

    def nest(
        self,
        program: TypedProgram,
        parts: Accumulated,
        column_copies: tuple[PackedBlock, ...],
        row_copies: tuple[PackedBlock, ...],
    ) -> Nest:
        """Return the nest: the copies for a block of columns, those for a block of rows, and the tiles."""
        loops = self.loops()
        statements = parts.statements()
        own = tuple(s.name for s in statements)
        numbers = zip(loops.blocks[len(self.blocking.blocks) :], parts.numbers, strict=True)
        number = {time: IndexExpr(n, i64) for (time, _), n in numbers}

        def members(times: Times, copies: tuple[PackedBlock, ...]) -> list[Member]:
            """Return loops over some copies and the reduction's own statements."""
            found = []
            for time, label in times:
                here = [(c.copy.name, _time_of(c, time)) for c in copies]
                here += [(s.name, time if s is parts.update else number.get(time, time)) for s in statements]
                found.append(Member(tuple(here), label))
            return found

        tiles = loops.columns + loops.rows if row_copies else loops.rows + loops.columns
        tree = band(members(tiles, ()), self._tiles(program, parts))
        tree = self._with_copies(program, row_copies, own, tree)
        tree = band(members(loops.row_blocks, row_copies), tree)
        own = (*(c.copy.name for c in row_copies), *own)
        tree = self._with_copies(program, column_copies, own, tree)
        copies = (*column_copies, *row_copies)
        tree = band(members(loops.blocks, copies), tree)
        return Nest((*map(self._asking, copies), *statements), tree)

    def _place(self, iterator: str, name: str) -> Expr:
        return offset(name, self.measured.lo(iterator))

    def _tiles(self, program: TypedProgram, parts: Accumulated) -> Tree:
        """Return the inside of the tile loops, one child a shape of tile."""
        origin = {i: self.measured.lo(i) for i in self.measured.statement.iterators}
        reduced, cut = self.blocking.reduced, dict(self.blocking.terms)
        return ReductionTiles(program, parts, parts.update.kept, reduced, origin, cut).tree(
            self.plan, parts.update.kept
        )

    def _with_copies(
        self, program: TypedProgram, copies: tuple[PackedBlock, ...], others: tuple[str, ...], tree: Tree
    ) -> Tree:
        """Return a tree with copies made before it, in a scope that holds their buffers."""
        if not copies:
            return tree
        children = [*(Filter((c.copy.name,), self._copy(program, c)) for c in copies), Filter(others, tree)]
        return Scope(tuple(map(self._buffer, copies)), Sequence(tuple(children)))

    def _extent(self, iterator: str) -> int:
        """Return how many elements along an iterator one run copies, in whole tiles."""
        tile, choice = self.plan.size(iterator), self.blocking
        cut = dict(choice.blocks + choice.terms + choice.row_blocks).get(iterator)
        extent = self.measured.bounds[iterator][1]
        if extent is None:  # a size: what is packed along it is cut
            assert cut is not None
            return cut
        whole = -(-extent // tile) * tile
        return whole if cut is None else min(cut, whole)

    def _buffer(self, copy: PackedBlock) -> Promotion:
        """Return a copy's buffer: tile by tile; in each, term by term as they are summed; for each, one row of a tile."""
        plan, reduced = self.plan, self.blocking.reduced
        first = len(copy.numbers)
        place = {i: first + n for n, i in enumerate(copy.element)}
        tiled = [i for i in (*self.blocking.rows, *self.blocking.columns) if i in place]
        kept = [i for i in copy.element if i not in tiled and i not in reduced] + tiled
        layout = [(n, 1, 1) for n in range(first)]
        layout += [(place[i], plan.size(i), self._extent(i) // plan.size(i)) for i in kept]
        layout += [(place[i], 1, self._extent(i)) for i in reduced if i in place]
        layout += [(place[i], 1, plan.size(i)) for i in self._wide(copy)]
        return Promotion(copy.tensor, (1,) * first + tuple(map(self._extent, copy.element)), tuple(layout))

    def _wide(self, copy: PackedBlock) -> list[str]:
        """Return the iterators of a tile's row, the one last that the copy's vectors run along."""
        plan = self.plan
        wide = [i for i, s in plan.others if s > 1 and i in copy.element]
        return [*wide, plan.vector] if plan.vector is not None and plan.vector in copy.element else wide

    def _order(self, copy: PackedBlock) -> list[str]:
        """Return the iterators of a copy's loops: terms outside tiles, so that the operand is read along its rows."""
        wide = self._wide(copy)
        inner = wide[-1] if wide else copy.element[-1]
        order = [i for i in self.blocking.reduced if i in copy.names]
        return order + [i for i in copy.element if i not in order and i != inner] + [inner] * (inner not in order)

    def _copy(self, program: TypedProgram, copy: PackedBlock) -> Tree:
        """Return the loops of a copy in one run."""
        cut = dict(self.blocking.blocks + self.blocking.terms + self.blocking.row_blocks)
        wide, order = self._wide(copy), self._order(copy)
        inner = wide[-1] if wide else copy.element[-1]
        lanes = self.plan.lanes if inner == self.plan.vector else self.plan.size(inner)
        within = {copy.names[i]: cut[i] for i in order if i in cut}
        loops = CopyLoops(tuple(copy.names[i] for i in order), within=within)
        return copy_nest(program, self.measure(copy.copy), copy.names[inner], lanes, loops, self.target)

    def _asking(self, copy: PackedBlock) -> TypedStatement:
        """Return a copy that prefetches the next rows."""
        rows, *others = self._order(copy)
        extents = {copy.names[i]: self._extent(i) for i in others}
        vector = copy.names[others[-1]] if others else ""
        prefetches = rows_of_block(self.measure(copy.copy), copy.names[rows], vector, extents, self.target)
        return replace(copy.copy, prefetch=prefetches)


def _time_of(copy: PackedBlock, time: Expr) -> Expr:
    """Return a loop's time for the copy: its number of the run, or what its own iterators say."""
    if time in copy.numbers:
        return IndexExpr(copy.numbers[time], i64)
    return substitute(time, {i: IndexExpr(n, i64) for i, n in copy.names.items()})
