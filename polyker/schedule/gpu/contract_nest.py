"""Build the nest of a contraction that polyker.schedule.gpu.contract tiled."""

from __future__ import annotations

from math import gcd

from msgspec import Struct

from polyker.cost.measure import Layouts, MeasuredStatement
from polyker.ir.dtypes import i64
from polyker.ir.expr import Expr, IndexExpr, Literal
from polyker.ir.quasi_affine import add, coefficients, floordiv, indices_of, lit, mod, scale
from polyker.ir.typed import TypedProgram, TypedStatement
from polyker.poly.isl import Set, read_set
from polyker.poly.scop import domain_text, image, map_onto
from polyker.poly.tiling import mates
from polyker.rewrite.core.accumulate import Accumulated, AccumulatorLayout, Stored, accumulate, started_elements
from polyker.rewrite.core.fresh import Fresh
from polyker.rewrite.materialise.pack_run import PackedRun, pack_run
from polyker.schedule.fusion.items import Item
from polyker.schedule.gpu.contract import ContractionTiling, Side
from polyker.schedule.gpu.map import MAX_ACCESS_BYTES
from polyker.schedule.nests.nest import Nest, band, offset, shared, variants
from polyker.schedule.tree.nodes import Band, Filter, Leaf, Member, MemberKind, Promotion, Scope, Sequence, Tree
from polyker.structs import replace

# Elements by which a row of a tile is longer where neighbouring threads fill its columns: they come to other banks, and the
# next row begins where 16 bytes may be read at once (4 elements of 32 bits).
ROW_PADDING = 4
# Least bytes of an asynchronous copy (cp.async takes 4, 8 or 16).
MIN_ASYNC_COPY_BYTES = 4
# Most copies of one thread that are unrolled (experience value).
MAX_UNROLLED_COPIES = 16


def results_of(program: TypedProgram, statement: TypedStatement, start: TypedStatement | None) -> Set:
    """Return the values of a reduction's kept iterators that have terms, or that `start` starts."""
    found = image(program, statement, statement.kept)
    return found if start is None else found.union(started_elements(program, start, statement)).coalesce()


def contraction_nest(
    program: TypedProgram, fresh: Fresh, item: Item, chosen: ContractionTiling, layout: Layouts
) -> Nest:
    """Return the nest of a contraction, which stores its epilogue's values in place of its results."""
    statement, measured = item.statement, item.measured
    kept = statement.kept
    onto, domain = map_onto(program, statement, kept), read_set(statement.domain)
    results = results_of(program, statement, item.start)
    tiles = tuple((s.iterator, s.size, chosen.origin[s.iterator]) for s in (chosen.row, chosen.column))
    near = mates(program, statement.name, statement.iterators, tiles)
    # An element that is no result has the terms of some results of its tile; what is one keeps its own.
    others = domain.apply(onto).apply(mates(program, "", kept, tiles)).subtract(results)
    whole = domain.union(domain.apply(near).intersect(onto.intersect_range(others).domain())).coalesce()
    wide = statement if others.is_empty() else replace(statement, domain=domain_text(whole, statement.name))
    elements, stored = AccumulatorLayout(origin=chosen.origin), Stored(results, epilogue=item.epilogue)
    parts = accumulate(program, fresh, wide, start=item.start, layout=elements, stored=stored)
    assert parts.carries == (item.epilogue is not None)
    # All elements of a tile start, stored or not: what they would depend on else, whether there are terms, costs registers.
    started = results.apply(mates(program, "", kept, tiles)).union(read_set(parts.start.domain).reset_tuple_id())
    parts = replace(parts, start=replace(parts.start, domain=domain_text(started.coalesce(), parts.start.name)))
    held = chosen.tiles()
    blocks = (*chosen.batch, chosen.row.iterator, chosen.column.iterator)
    times = tuple(t.time for i in (*blocks, *statement.reduced) if (t := held[i]).time is not None)
    copies: list[PackedRun] = []
    update = parts.update
    for access in measured.accesses:
        if access.read is not None:
            copies.append(pack_run(program, fresh, update, access.read, times, held))
            update = copies[-1].statement
    return _ContractionNest(program, measured, chosen, replace(parts, update=update), tuple(copies), layout).nest()


class _ContractionNest(Struct, frozen=True):
    program: TypedProgram
    measured: MeasuredStatement
    chosen: ContractionTiling
    parts: Accumulated
    copies: tuple[PackedRun, ...]
    layout: Layouts

    def nest(self) -> Nest:
        """Return the loops over blocks, and what each does."""
        own = self.parts.statements()
        statements = (self.parts.start, *(c.copy for c in self.copies), *own[1:])
        tree: Tree = Sequence(
            (
                Filter((self.parts.start.name,), self.elements(self.parts.start)),
                Filter((*(c.copy.name for c in self.copies), self.parts.update.name), self.steps()),
                *(Filter((s.name,), self.elements(s)) for s in self.parts.store),
            )
        )
        sizes = tuple({s.iterator: s.elements for s in self.sides}.get(i, 1) for i in self.parts.element)
        tree = Scope((Promotion(self.parts.accumulator, sizes),), tree)
        numbered, looped = self.far()
        blocks = [self.batch(numbered)] if numbered else []
        blocks += [
            self.shared(s.iterator, f"{s.iterator}.block", MemberKind.BLOCK, axis)
            for s, axis in zip(self.sides, "yx", strict=True)
        ]
        blocks += [self.shared(i, i) for i in looped]
        return Nest(statements, band(blocks, tree))

    @property
    def sides(self) -> tuple[Side, Side]:
        return self.chosen.row, self.chosen.column

    def far(self) -> tuple[list[str], list[str]]:
        """Return the batch's iterators that blocks along z number together, the outermost first, and those that each block runs
        through: of unknown extents there is one number."""
        unknown = [i for i in self.chosen.batch if self.measured.bounds[i][1] is None]
        return [*unknown[:1], *(i for i in self.chosen.batch if i not in unknown)], unknown[1:]

    def batch(self, iterators: list[str]) -> Member:
        """Return the loop over the blocks along z."""
        members = [self.shared(i, i) for i in iterators]
        total, held = list(members[-1].times), 1
        for i, member in zip(iterators[:0:-1], members[-2::-1], strict=True):
            held *= self.chosen.extents[i]
            total = [(s, add(t, scale(held, member.time(s)))) for s, t in total]
        return Member(tuple(total), f"{'.'.join(iterators)}.block", MemberKind.BLOCK, 0, "z")

    def shared(self, iterator: str, label: str, kind: MemberKind = MemberKind.SERIAL, axis: str = "") -> Member:
        """Return a loop over the tiles of an iterator that all statements have a part in."""
        time = self.chosen.tiles()[iterator].time
        assert time is not None
        return self.member(time, label, kind, axis, (*self.parts.statements(), *(c.copy for c in self.copies)))

    def member(
        self, time: Expr, label: str, kind: MemberKind, axis: str, statements: tuple[TypedStatement, ...]
    ) -> Member:
        """Return a loop whose time the copies have as a number."""
        numbers = {c.copy.name: IndexExpr(c.numbers[time], i64) for c in self.copies if time in c.numbers}
        return Member(tuple((s.name, numbers.get(s.name, time)) for s in statements), label, kind, 0, axis)

    def steps(self) -> Tree:
        """Return the reduction loops' tiles, and the copies and sums of one."""
        statements = (*(c.copy for c in self.copies), self.parts.update)
        tiles = self.chosen.tiles()
        times = [(i, time) for i, _ in self.chosen.terms if (time := tiles[i].time) is not None]
        loops = [self.member(time, f"{i}.block", MemberKind.SERIAL, "", statements) for i, time in times]
        inner = [
            shared((self.parts.update,), mod(offset(i, self.chosen.origin[i]), tiles[i].size), i)
            for i, _ in self.chosen.terms
            if tiles[i].size > 1
        ]
        children = [Filter((c.copy.name,), self.copy(c)) for c in self.copies]
        children.append(Filter((self.parts.update.name,), self.elements(self.parts.update, inner)))
        tree: Tree = Sequence(tuple(children))
        if self.chosen.stages > 1:
            # A step copies what a later one sums.
            step = loops.pop()
            later = (
                (s, add(t, lit(self.chosen.stages - 1)) if s == self.parts.update.name else t) for s, t in step.times
            )
            tree = Band((replace(step, times=tuple(later)),), tree)
        ring = times[-1][1] if self.chosen.stages > 1 else None
        return band(loops, Scope(tuple(self.buffer(c, ring) for c in self.copies), tree))

    def elements(self, statement: TypedStatement, terms: list[Member] | None = None) -> Tree:
        """Return the threads over a statement's elements, the loops over `terms` in each, and the elements of one thread.

        The last tile of the reduction, which may be partial, is peeled: the loops of the others have no test.
        """
        threads, points = [], []
        for side, axis in zip(self.sides, "yx", strict=True):
            place = offset(side.iterator, self.chosen.origin[side.iterator])
            time = mod(floordiv(place, side.elements), side.threads)
            threads.append(shared((statement,), time, f"{side.iterator}.thread", MemberKind.THREAD, side.threads, axis))
            if side.elements > 1:
                label = f"{side.iterator}.point"
                points.append(shared((statement,), mod(place, side.elements), label, MemberKind.UNROLL, side.elements))
        if terms is None:
            return Band((*threads, *points), Leaf())
        cut = tuple((i, n, self.chosen.origin[i]) for i, n in self.chosen.terms if n is not None)
        inside = band([*terms, *points], Leaf())
        return Band(tuple(threads), variants(self.program, (statement,), statement.iterators, cut, lambda _: inside))

    # -- copies ------------------------------------------------------------------------------------------------------------

    def unit(self, copy: PackedRun) -> int:
        """Return the dimension of a copy's elements along which the operand is contiguous, the last where it is along none."""
        read = next(copy.copy.reads())
        layout = self.layout(read.tensor)
        return len(copy.elements) - 1 if layout.dense or layout.unit is None else layout.unit

    def last(self, copy: PackedRun) -> int:
        """Return the dimension of a copy that is contiguous in the tile: that of a row's or column's index, or the last."""
        rank, first = range(len(copy.elements)), len(copy.numbers)
        along = {s.iterator for s in self.sides}
        read = next(r for r in self.parts.update.reads() if r.tensor == copy.tensor)
        moves = [d for d in rank if indices_of(read.subscripts[first + d]) & along]
        return moves[-1] if moves else rank[-1]

    def later(self, copy: PackedRun) -> bool:
        """Whether what is copied for a later step may arrive then: by 4 bytes at least, which are contiguous on both sides."""
        itemsize = self.program.tensor(next(copy.copy.reads()).tensor).dtype.itemsize
        lanes = self.width(copy) if self.last(copy) == self.unit(copy) else 1
        return self.chosen.later and self.chosen.stages > 1 and lanes * itemsize >= MIN_ASYNC_COPY_BYTES

    def width(self, copy: PackedRun) -> int:
        """Return how many neighbouring elements of an operand a thread copies at once: up to 16 bytes, where they never straddle.

        The operand is dense, and its rows, the box of the copy and the place where the box begins are multiples of them.
        """
        read = next(copy.copy.reads())
        tensor, last = self.program.tensor(read.tensor), len(copy.elements) - 1
        row, place = tensor.shape[-1], coefficients(read.subscripts[last])
        if not self.layout(read.tensor).dense or not isinstance(row, Literal) or place is None:
            return 1
        corner = [c for i, c in place.items() if i != copy.elements[last]]
        most = max(1, MAX_ACCESS_BYTES // tensor.dtype.itemsize)
        return gcd(most, copy.extents[last], int(row.value.real), *corner) if place[copy.elements[last]] == 1 else 1

    def copy(self, copy: PackedRun) -> Tree:
        """Return the loops of a copy: neighbouring threads along x read neighbouring elements, the longest other dimension is
        y's.

        Dimensions that are shorter than the threads share an axis with others.
        """
        unit = self.unit(copy)
        width = 1 if self.last(copy) != unit and self.later(copy) else self.width(copy)
        free = sorted((d for d in range(len(copy.elements)) if d != unit), key=lambda d: -copy.extents[d])
        left = [_Share(d, width if d == unit else 1, copy.extents[d]) for d in (unit, *free)]
        row, column = self.sides
        members: list[Member] = []
        for axis, threads in (("x", column.threads), ("y", row.threads)):
            taken, left = _dealt(left, threads)
            if not taken:
                continue
            time: Expr = lit(0)
            held = 1
            for share, count in taken:
                place = floordiv(IndexExpr(copy.elements[share.dimension], i64), share.by)
                time = add(time, scale(held, place if count == share.count else mod(place, count)))
                held *= count
            label = f"{copy.elements[taken[0][0].dimension]}.thread"
            members.insert(0, shared((copy.copy,), time, label, MemberKind.THREAD, threads, axis))
        # Where sizes are unknown each place is 64 bits of its own: one after another they need few registers.
        known = all(n is not None for _, n in self.measured.bounds.values())
        held = 1
        for share in sorted((s for s in left if s.count > 1), key=lambda s: s.count):
            held *= share.count
            kind, most = (
                (MemberKind.UNROLL, share.count) if known and held <= MAX_UNROLLED_COPIES else (MemberKind.SERIAL, 0)
            )
            part = floordiv(IndexExpr(copy.elements[share.dimension], i64), share.by)
            members.append(shared((copy.copy,), part, f"{copy.elements[share.dimension]}.part", kind, most))
        if width > 1:
            lane = mod(IndexExpr(copy.elements[unit], i64), width)
            members.append(shared((copy.copy,), lane, f"{copy.elements[unit]}.lane", MemberKind.UNROLL, width))
        return band(members, Leaf())

    def buffer(self, copy: PackedRun, ring: Expr | None) -> Promotion:
        """Return a copy's tile: rows and columns of the result lie contiguous in it, padded where threads fill it by columns.

        Of the loop whose time is `ring` there are tiles of several steps.
        """
        first, rank, last = len(copy.numbers), range(len(copy.elements)), self.last(copy)
        order = [*(d for d in rank if d != last), last]
        held = tuple(self.chosen.stages if t == ring else 1 for t in copy.numbers)
        layout = [(n, 1, count) for n, count in enumerate(held)] + [(first + d, 1, copy.extents[d]) for d in order]
        pad = ROW_PADDING if last != self.unit(copy) else 0
        later = ring is not None and self.later(copy)
        return Promotion(copy.tensor, held + copy.extents, tuple(layout), shared=True, pad=pad, later=later)


class _Share(Struct, frozen=True):
    """Runs of `by` elements along a dimension of so many elements, which are yet to be distributed; `even`: all have as many."""

    dimension: int
    by: int
    elements: int
    even: bool = True

    @property
    def count(self) -> int:
        return -(-self.elements // self.by)


def _dealt(shares: list[_Share], threads: int) -> tuple[list[tuple[_Share, int]], list[_Share]]:
    """Return what the threads of an axis take, each with the number that they tell apart, and what is left.

    They take the first share, then others that they have room for; and a part of one that they take turns at evenly.
    """
    taken: list[tuple[_Share, int]] = []
    left, held = list(shares), 1
    free = [s for s in shares if s.even and s.count > 1]
    for share in free:
        if share.count <= threads // held:
            taken.append((share, share.count))
            left.remove(share)
            held *= share.count
        elif not taken:
            break
    room = threads // held
    for share in free:
        if share in left and room > 1 and (not taken or share.count % room == 0):
            taken.append((share, room))
            left[left.index(share)] = replace(share, by=share.by * room, even=share.count % room == 0)
            break
    return taken, left
