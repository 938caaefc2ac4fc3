"""The loop nest of a reduction by cache blocks: operands are packed where the block that uses them begins.

    for j.block: for k.block:
        with B packed: { copy of B's block;
            for i.tile:
                with A packed: { copy of A's rows;
                    for j.tile: with acc: { acc = 0;  for k: for i.point: vector j: acc += …;  store } } }

What is a column, a row and a term is decided by polyker.schedule.blocking.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from polyker.ir.dtypes import i64
from polyker.ir.expr import Expr, Index
from polyker.ir.quasi_affine import floordiv, mod, substitute
from polyker.ir.typed import TypedProgram
from polyker.rewrite.accumulate import Accumulated
from polyker.rewrite.pack_block import PackedBlock
from polyker.schedule.blocking import Blocking
from polyker.schedule.measure import Measured
from polyker.schedule.nest import Nest, band, offset, shared, tile_body, variants
from polyker.schedule.plan import Plan
from polyker.schedule.tree import Filter, Kind, Leaf, Member, Promotion, Scope, Sequence, Tree


@dataclass(frozen=True)
class BlockedLoops:
    """The times of the loops outside the tile, over the reduction's iterators, outermost first, with the loops' labels."""

    blocks: tuple[tuple[Expr, str], ...]  # of kept iterators, then of terms
    rows: tuple[tuple[Expr, str], ...]
    columns: tuple[tuple[Expr, str], ...]


@dataclass(frozen=True)
class BlockedNest:
    """What the nest is made of: a measured reduction, its register tile and its cache blocks."""

    measured: Measured
    plan: Plan
    blocking: Blocking

    def loops(self) -> BlockedLoops:
        """Return the loops around a tile."""
        sizes = dict(self.blocking.blocks)

        def tile(iterator: str) -> tuple[Expr, str]:
            place, size = self._place(iterator, iterator), self.plan.size(iterator)
            if iterator in sizes:
                place = mod(place, sizes[iterator])
            return floordiv(place, size), f"{iterator}.tile" if size > 1 else iterator

        blocks = [(floordiv(self._place(i, i), n), f"{i}.block") for i, n in self.blocking.blocks + self.blocking.terms]
        return BlockedLoops(
            tuple(blocks), tuple(map(tile, self.blocking.rows)), tuple(map(tile, self.blocking.columns))
        )

    def nest(
        self,
        program: TypedProgram,
        parts: Accumulated,
        column_copies: tuple[PackedBlock, ...],
        row_copies: tuple[PackedBlock, ...],
    ) -> Nest:
        """Return the nest: the copies for a block of columns, those for a tile's rows, and the tiles."""
        loops, plan = self.loops(), self.plan
        statements = parts.statements()
        own = tuple(s.name for s in statements)
        numbers = zip(loops.blocks[len(self.blocking.blocks) :], parts.numbers, strict=True)
        number = {time: Index(n, i64) for (time, _), n in numbers}

        def members(times: tuple[tuple[Expr, str], ...], copies: tuple[PackedBlock, ...]) -> list[Member]:
            """Return loops over some copies and the reduction's own statements."""
            found = []
            for time, label in times:
                here = [(c.copy.name, _time_of(c, time)) for c in copies]
                here += [(s.name, time if s is parts.update else number.get(time, time)) for s in statements]
                found.append(Member(tuple(here), label))
            return found

        tree = band(members(loops.columns, ()), self._tiles(program, parts))
        tree = self._with_copies(row_copies, own, tree, ())
        tree = band(members(loops.rows, row_copies), tree)
        own = (*(c.copy.name for c in row_copies), *own)
        tree = self._with_copies(column_copies, own, tree, self.blocking.columns)
        copies = (*column_copies, *row_copies)
        tree = band(members(loops.blocks, copies), tree)
        assert plan.vector is not None
        return Nest((*(c.copy for c in copies), *statements), tree)

    def _place(self, iterator: str, name: str) -> Expr:
        return offset(name, self.measured.lo(iterator))

    def _tiles(self, program: TypedProgram, parts: Accumulated) -> Tree:
        """Return the inside of the tile loops, one child a shape of tile."""
        plan, reduced, cut = self.plan, self.blocking.reduced, dict(self.blocking.terms)
        statements = parts.statements()
        origin = {i: self.measured.lo(i) for i in self.measured.statement.iterators}

        def inside(is_own_shape: bool) -> Tree:
            if is_own_shape:
                return tile_body(program, plan, parts, parts.kept, reduced, origin, cut)
            # A tile of unknown shape: one row of vectors at a time, so that only the vectors have to be tested.
            rows = [shared(statements, mod(offset(i, origin[i]), s), f"{i}.row") for i, s in plan.others if s > 1]
            row = replace(plan, others=())
            return band(rows, tile_body(program, row, parts, parts.kept, reduced, origin, cut))

        names = tuple(i for i in parts.start.iterators if i not in parts.numbers)
        loops = (*self.blocking.rows, *self.blocking.columns)
        tiles = tuple((i, plan.size(i), origin[i]) for i in loops if plan.size(i) > 1)
        return variants(program, statements, names, tiles, inside)

    def _with_copies(
        self, copies: tuple[PackedBlock, ...], others: tuple[str, ...], tree: Tree, tiled: tuple[str, ...]
    ) -> Tree:
        """Return a tree with copies made before it, in a scope that holds their buffers; `tiled`: see `_copy`."""
        if not copies:
            return tree
        children = [*(Filter((c.copy.name,), self._copy(c, tiled)) for c in copies), Filter(others, tree)]
        return Scope(tuple(map(self._buffer, copies)), Sequence(tuple(children)))

    def _extent(self, iterator: str) -> int:
        """Return how many cells along an iterator one run copies, in whole tiles."""
        tile = self.plan.size(iterator)
        if iterator in self.blocking.rows:
            return tile
        whole = -(-self.measured.extent(iterator) // tile) * tile
        return min(dict(self.blocking.blocks + self.blocking.terms).get(iterator, whole), whole)

    def _buffer(self, copy: PackedBlock) -> Promotion:
        """Return a copy's buffer: tile by tile; in each, term by term as they are summed; for each, one row of a tile."""
        plan, reduced = self.plan, self.blocking.reduced
        first = len(copy.numbers)
        place = {i: first + n for n, i in enumerate(copy.cell)}
        tiled = [i for i in (*self.blocking.rows, *self.blocking.columns) if i in place]
        kept = [i for i in copy.cell if i not in tiled and i not in reduced] + tiled
        within = [i for i in kept if plan.size(i) > 1 and i != plan.vector] + [i for i in kept if i == plan.vector]
        layout = [(n, 1, 1) for n in range(first)]
        layout += [(place[i], plan.size(i), self._extent(i) // plan.size(i)) for i in kept]
        layout += [(place[i], 1, self._extent(i)) for i in reduced if i in place]
        layout += [(place[i], 1, plan.size(i)) for i in within]
        return Promotion(copy.tensor, (1,) * first + tuple(map(self._extent, copy.cell)), tuple(layout))

    def _copy(self, copy: PackedBlock, tiled: tuple[str, ...]) -> Tree:
        """Return the loops of a copy in one run: terms, the tiles along `tiled`, and the vector along a tile's own row."""
        here, plan, reduced = (copy.copy,), self.plan, self.blocking.reduced
        cut = dict(self.blocking.blocks + self.blocking.terms)

        def at(iterator: str) -> Expr:
            place = self._place(iterator, copy.names[iterator])
            return mod(place, cut[iterator]) if iterator in cut else place

        # Terms outside tiles: the operand is read along its rows, as the prefetchers like it.
        loops = [shared(here, at(i), i) for i in reduced if i in copy.names]
        loops += [shared(here, floordiv(at(i), plan.size(i)), f"{i}.tile") for i in tiled if i in copy.names]
        wide = [i for i in copy.cell if i not in reduced and plan.size(i) > 1]
        inner = plan.vector if plan.vector in wide else wide[-1] if wide else None
        for i in wide:
            if i != inner:
                loops.append(shared(here, mod(at(i), plan.size(i)), f"{i}.point", Kind.UNROLL, plan.size(i)))
        if inner is not None:
            lanes = plan.lanes if inner == plan.vector else plan.size(inner)
            row, chunks = mod(at(inner), plan.size(inner)), plan.size(inner) // lanes
            if chunks > 1:
                loops.append(shared(here, floordiv(row, lanes), f"{inner}.vectors", Kind.UNROLL, chunks))
            loops.append(shared(here, mod(row, lanes), f"{inner}.lanes", Kind.VECTOR, lanes))
        return band(loops, Leaf())


def _time_of(copy: PackedBlock, time: Expr) -> Expr:
    """Return a loop's time for the copy: its number of the run, or what its own iterators say."""
    if time in copy.numbers:
        return Index(copy.numbers[time], i64)
    return substitute(time, {i: Index(n, i64) for i, n in copy.names.items()})
