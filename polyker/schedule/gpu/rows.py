"""Map statements to launches whose threads share rows: reductions across them, and what uses their results.

    block.x i: thread.x(256): with acc: { acc = 0;  for terms of this thread: acc += …;  S = all threads' acc;  store }

The block's rows lie along the loops of a group; a statement's loop within the row is distributed over the threads along x, and
what has none is run by the first of them. Statements follow each other in one thread as long as none needs what another
thread has; there a new part begins, and a barrier will stand between.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod

from msgspec import Struct

from polyker.ir.dtypes import i64
from polyker.ir.expr import Expr, IndexExpr
from polyker.ir.quasi_affine import floordiv, is_quasi_affine, lit, mod
from polyker.ir.typed import Role, TypedProgram, TypedStatement
from polyker.machine.model import Gpu
from polyker.poly.touches import Touch, alone, touches
from polyker.rewrite.core.accumulate import Accumulated, AccumulatorLayout, PartialSums, accumulate
from polyker.rewrite.core.fresh import Fresh
from polyker.schedule.fusion.groups import Group, grow
from polyker.schedule.fusion.items import Item
from polyker.schedule.gpu.across import MAX_LONE_BLOCK_TERMS, Across, has_gathers
from polyker.schedule.gpu.map import BLOCK_THREADS, contiguous, grid
from polyker.schedule.nests.nest import band, offset, shared
from polyker.schedule.tree.nodes import (
    Band,
    Filter,
    Leaf,
    Member,
    MemberKind,
    Promotion,
    Scope,
    Tree,
    statements_of,
)
from polyker.schedule.tree.nodes import Sequence as InOrder
from polyker.structs import replace

# Bytes of shared memory reserved for results and for block reductions (chosen).
RESULT_SHARED_BYTES = 1 << 10

# Most rows of a block whose threads are one warp a row: 256 threads (experience value).
WARP_ROWS = 8


class RowLaunch(Struct, frozen=True):
    """The items of a launch, `width` threads to a row and `height` rows to a block; `lanes`: of each item the iterator that is
    distributed over the threads of a row, None where the first of them runs it. `registers`: what threads hold of rows, `rounds`
    times `side` neighbouring elements of each; `unrolled`: the items whose loops over these are (row_registers)."""

    group: Group
    lanes: tuple[str | None, ...]
    width: int
    height: int
    registers: tuple[Promotion, ...] = ()
    side: int = 1
    rounds: int = 0
    unrolled: frozenset[int] = frozenset()

    def parts(self) -> list[list[int]]:
        """Return the items of each part, in their order: between two parts the threads meet."""
        found: list[list[int]] = [[]]
        for n in range(len(self.lanes)):
            if not all(self._in_one_thread(m, n) for m in found[-1]):
                found.append([])
            found[-1].append(n)
        return found

    def _in_one_thread(self, one: int, other: int) -> bool:
        """Return whether what two items do to each other's elements is done by one thread of a row."""
        first, second = self.group.items[one], self.group.items[other]
        for a in first.touches:
            for b in second.touches:
                if a.tensor != b.tensor or not (a.is_write or b.is_write):
                    continue
                mine, theirs = self._lane(one, a), self._lane(other, b)
                if (mine is None) != (theirs is None):
                    return False
                if mine is not None and not any(
                    self._is_thread(s, mine) and self._is_thread(t, theirs)
                    for s, t in zip(a.subscripts, b.subscripts, strict=True)
                ):
                    return False
        return True

    def thread(self, lane: str) -> Expr:
        """Return the number of the thread that has an element of a row."""
        return mod(floordiv(IndexExpr(lane, i64), self.side), self.width)

    def _is_thread(self, subscript: Expr, lane: str | None) -> bool:
        """Return whether equal values of a subscript are one thread's."""
        return lane is not None and (alone(subscript) == (lane, 0) or subscript == self.thread(lane))

    def element_loops(self, n: int, statement: TypedStatement, lane: str) -> list[Member]:
        """Return the loops of a thread over its elements of a row: `side` neighbours, `width` threads' apart."""
        kind, extent = (MemberKind.UNROLL, self.rounds) if n in self.unrolled else (MemberKind.SERIAL, 0)
        place = IndexExpr(lane, i64)
        loops = [shared((statement,), floordiv(place, self.side * self.width), f"{lane}.tile", kind, extent)]
        if self.side > 1:
            loops.append(shared((statement,), mod(place, self.side), f"{lane}.point", MemberKind.UNROLL, self.side))
        return loops

    def _lane(self, n: int, touch: Touch) -> str | None:
        """Return the iterator that says which thread uses an element, None for the first: what all combine is the first one's."""
        return None if self.group.items[n].reduces and touch.is_write else self.lanes[n]

    def order(self) -> list[int]:
        """Return the loops over rows, the longest first: blocks along x take it."""
        lead = self.group.items[0].measured
        return sorted(range(len(self.group.dims)), key=lambda d: -lead.extent(self.group.dims[d][0]))

    def size(self, n: int, iterator: str) -> int:
        """Return how many values of an item's iterator over rows a block has."""
        longest = self.order()[:1]
        return self.height if any(self.group.dims[d][n] == iterator for d in longest) else 1

    def rows(self, bodies: Sequence[RowBody]) -> tuple[list[Member], list[Member]]:
        """Return the loops over rows that blocks take, and that over the rows of a block."""
        dims, order = self.group.dims, self.order()
        blocks: list[Member] = []
        within: list[Member] = []
        for n, d in enumerate(order):
            size = self.height if n == 0 else 1

            def times(d: int = d, size: int = size, *, inside: bool = False) -> tuple[tuple[str, Expr], ...]:
                found = []
                for iterator, body in zip(dims[d], bodies, strict=True):
                    place = offset(iterator, self.group.origin(d))
                    found += [(s.name, mod(place, size) if inside else floordiv(place, size)) for s in body.statements]
                return tuple(found)

            label = dims[d][0]
            blocks.append(Member(times(), f"{label}.block"))
            if size > 1:
                within.append(Member(times(inside=True), f"{label}.thread", MemberKind.THREAD, size, "y"))
        return grid(blocks, [s for b in bodies for s in b.statements]), within


class RowBody(Struct, frozen=True):
    """The statements that stand for an item, their places along the threads of a row, and what a thread runs of them.

    `result`: what threads combine into, with the iterators of its elements.
    """

    statements: tuple[TypedStatement, ...]
    places: Mapping[str, Expr]
    tree: Tree
    result: tuple[str, tuple[str, ...]] | None = None


def grown_rows(
    program: TypedProgram, items: list[Item], dealt: Mapping[str, Across], gpu: Gpu, left: list[Item]
) -> tuple[RowLaunch, list[Item], list[Item]] | None:
    """Return the launch by rows of the first item and of what can run in it, what has to run before it, and what after it.

    `dealt`: the reductions whose terms are distributed over threads. None where none of them is in it. The items `left` run in
    launches of their own.
    """

    def join(group: Group, item: Item) -> Group | None:
        if not item.free and not group.dims:
            wider = Group((*group.items, item), (), (), ())
        elif _alike(group, item, dealt):
            dims = tuple((*dim, i) for dim, i in zip(group.dims, item.free, strict=True))
            wider = replace(group, items=(*group.items, item), dims=dims, shifts=tuple((*s, 0) for s in group.shifts))
        else:
            found = group.joined(program, item)
            if found is None:
                return None
            order = tuple(n for n, s in enumerate(found.shifts) if not any(s) and not found.crossing[n])
            wider = found.loops(order)
        return wider if _rows(wider, dealt, gpu) is not None else None

    if _rows(Group.of(items[0]), dealt, gpu) is None:
        return None
    group, before, after = grow(program, items, left, join)
    rows = _rows(group, dealt, gpu)
    return None if rows is None or not rows.width else (rows, before, after)


def _alike(group: Group, item: Item, dealt: Mapping[str, Across]) -> bool:
    """Return whether an item that the group does not bind reads in the same blocks what the group's last one reads: both are
    distributed alike, over as many elements."""
    last = group.items[-1]
    both = dealt.get(last.statement.name), dealt.get(item.statement.name)
    if None in both or any(m.conflicts(item) for m in group.items) or not last.tensors & item.tensors:
        return False
    elements = [[i.measured.bounds[n] for n in i.free] for i in (last, item)]
    rows = tuple(dim[-1] for dim in group.dims)
    return rows == last.free and elements[0] == elements[1] and all(None not in b for b in elements[0])


def _rows(group: Group, dealt: Mapping[str, Across], gpu: Gpu) -> RowLaunch | None:
    """Return how a group runs by rows, of width 0 while nothing in it is distributed; None where it does not."""
    elements = prod(group.items[0].measured.extent(dim[0]) for dim in group.dims)
    lanes: list[str | None] = []
    widths = set()
    for n, item in enumerate(group.items):
        column = {dim[n] for dim in group.dims}
        across = dealt.get(item.statement.name)
        inner = set(item.statement.iterators[item.statement.outer :])
        if across is not None:
            if inner - set(item.statement.reduced) != column:
                return None
            lanes.append(across.iterator)
            widths.add(across.width)
        elif item.reduces or not column <= inner or has_gathers(item.measured):
            return None
        elif inner == column:
            lanes.append(None)
        elif set(item.free) != inner:
            return None
        else:
            lane = contiguous(item.measured, tuple(i for i in item.free if i not in column))
            lanes.append(lane)
            if elements < gpu.processors and item.measured.extent(lane) > MAX_LONE_BLOCK_TERMS:
                return None
    if len(widths) > 1:
        return None
    width = max(widths, default=0)
    lead = group.items[0].measured
    longest = max((lead.extent(dim[0]) for dim in group.dims), default=1)
    height = 1
    while (
        width and width * height * 2 <= BLOCK_THREADS and height < WARP_ROWS and width == 32 and height * 2 <= longest
    ):
        height *= 2
    return RowLaunch(group, tuple(lanes), width, height)


def row_body(program: TypedProgram, fresh: Fresh, rows: RowLaunch, n: int) -> RowBody:
    """Return what a thread runs of an item."""
    item, lane = rows.group.items[n], rows.lanes[n]
    statement = item.statement
    if lane is None:
        return RowBody((statement,), {statement.name: lit(0)}, Leaf())
    if item.reduces:
        return _folded(program, fresh, rows, n, lane)
    common = {dim[n] for dim in rows.group.dims}
    inner = statement.iterators[statement.outer :]
    loops = [shared((statement,), IndexExpr(i, i64), i) for i in inner if i not in common and i != lane]
    loops += rows.element_loops(n, statement, lane)
    return RowBody((statement,), {statement.name: rows.thread(lane)}, band(loops, Leaf()))


def _folded(program: TypedProgram, fresh: Fresh, rows: RowLaunch, n: int, lane: str) -> RowBody:
    item = rows.group.items[n]
    statement = item.statement
    origin = {dim[n]: rows.group.origin(d) for d, dim in enumerate(rows.group.dims)}
    lanes, layout = PartialSums(lane, rows.width, rows.side), AccumulatorLayout(origin=origin)
    parts = accumulate(program, fresh, statement, start=item.start, lanes=lanes, layout=layout)
    assert parts.lanes is not None
    assert parts.folded is not None
    each = IndexExpr(parts.lanes, i64)
    places: dict[str, Expr] = {s.name: lit(0) for s in parts.statements()}
    places |= {parts.start.name: each, parts.folds[-1].name: each}
    places[parts.update.name] = rows.thread(lane)
    held = Promotion(parts.accumulator, (1,) * (len(parts.element) + 1))
    tree = Scope((held,), InOrder(tuple(_parts(parts, lane, rows.element_loops(n, parts.update, lane)))))
    return RowBody(parts.statements(), places, tree, (parts.folded, parts.element))


def _parts(parts: Accumulated, lane: str, element_loops: list[Member]) -> list[Filter]:
    """Return what a thread does of a reduction; `element_loops`: the reduction loops along the lane."""
    loops = [shared((parts.update,), IndexExpr(i, i64), i) for i in parts.update.reduced if i != lane]
    terms = Filter((parts.update.name,), band([*loops, *element_loops], Leaf()))
    return [
        Filter((parts.start.name,), Leaf()),
        terms,
        *(Filter((s.name,), Leaf()) for s in (*parts.folds, *parts.store)),
    ]


class Held(Struct, frozen=True):
    """The temporaries that a launch holds: of each part those in a thread's registers, and those that the block shares."""

    registers: tuple[tuple[Promotion, ...], ...]
    shared: tuple[Promotion, ...]

    def tensors(self) -> list[str]:
        """Return their names."""
        return [p.tensor for p in (*(p for part in self.registers for p in part), *self.shared)]


def held_tensors(program: TypedProgram, rows: RowLaunch, outside: Iterable[TypedStatement], gpu: Gpu) -> Held:
    """Return where the temporaries that no other launch uses are held; `outside`: the statements of other launches.

    What leaves its part or its thread lies in shared memory, as far as that has room for all the blocks that can be resident.
    """
    elsewhere = {t.tensor for s in outside for t in touches(s)}
    parts = rows.parts()
    registers: list[tuple[Promotion, ...]] = [() for _ in parts]
    common: list[Promotion] = []
    room = gpu.shared * rows.width * rows.height // gpu.resident - RESULT_SHARED_BYTES
    sizes: list[tuple[int, Promotion]] = []
    for tensor in dict.fromkeys(t for i in rows.group.items for t in sorted(i.tensors)):
        if program.tensor(tensor).role is not Role.TEMPORARY or tensor in elsewhere:
            continue
        if any(p.tensor == tensor for p in rows.registers):
            continue
        users = {n for n, i in enumerate(rows.group.items) if tensor in i.tensors}
        own = next((p for p, part in enumerate(parts) if users <= set(part)), None)
        modulo = _modulo(program, rows, tensor, 1 if own is not None else rows.height)
        if modulo is None:
            continue
        if own is not None and prod(modulo) == 1:
            registers[own] = (*registers[own], Promotion(tensor, modulo))
            continue
        modulo = _modulo(program, rows, tensor, rows.height)
        assert modulo is not None
        found = Promotion(tensor, modulo, shared=True)
        sizes.append((found.elements() * program.tensor(tensor).dtype.itemsize, found))
    for size, promotion in sorted(sizes, key=lambda found: found[0]):
        if size <= room:
            room -= size
            common.append(promotion)
    return Held(tuple(registers), tuple(common))


def _modulo(program: TypedProgram, rows: RowLaunch, tensor: str, height: int) -> tuple[int, ...] | None:
    """Return the extents of a temporary's buffer: of the rows' dimensions what a block has, else all."""
    touching = (t for item in rows.group.items for t in item.touches if t.tensor == tensor)
    if not all(map(is_quasi_affine, (s for t in touching for s in t.subscripts))):
        return None
    return rows.group.buffer(program, tensor, dict.fromkeys(rows.order()[:1], height))


def row_tree(rows: RowLaunch, bodies: Sequence[RowBody], held: Held) -> Tree:
    """Return the tree of a launch by rows."""
    blocks, within = rows.rows(bodies)
    results = tuple(
        Promotion(b.result[0], tuple(rows.size(n, i) for i in b.result[1]), shared=True)
        for n, b in enumerate(bodies)
        if b.result is not None
    )

    def threads(part: list[int], registers: tuple[Promotion, ...]) -> Band:
        found = [bodies[n] for n in part]
        names = {s.name for b in found for s in b.statements}
        times = tuple((s.name, b.places[s.name]) for b in found for s in b.statements)
        tree = found[0].tree
        if len(found) > 1:
            tree = InOrder(tuple(Filter(tuple(s.name for s in b.statements), b.tree) for b in found))
        tree = Scope(registers, tree) if registers else tree
        rows_of = (replace(m, times=tuple((s, e) for s, e in m.times if s in names)) for m in within)
        return Band((*rows_of, Member(times, "lane.thread", MemberKind.THREAD, rows.width, "x")), tree)

    parts = [threads(part, own) for part, own in zip(rows.parts(), held.registers, strict=True)]
    tree: Tree = InOrder(tuple(Filter(statements_of(p), p) for p in parts)) if len(parts) > 1 else parts[0]
    tree = Scope(rows.registers, tree) if rows.registers else tree
    return Band(tuple(blocks), Scope((*results, *held.shared), tree))
