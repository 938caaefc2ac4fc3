"""Fuse statements into one launch in which each thread runs them on its own elements.

Nothing that one thread writes is used by another one: along loops that are mapped to threads, the distance of every dependence
between two of the statements is zero. Each keeps the mapping that it would have by itself, so neighbouring threads still take
neighbouring elements; what is saved is launches, and memory for temporaries, which live in registers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

import islpy as isl
from msgspec import Struct

from polyker.ir.expr import Expr
from polyker.ir.quasi_affine import floordiv, mod
from polyker.ir.typed import Role, TypedProgram, TypedStatement
from polyker.machine.model import Gpu
from polyker.poly.isl import read_set
from polyker.poly.scop import image
from polyker.poly.touches import touches
from polyker.schedule.fusion.groups import Group, grow
from polyker.schedule.fusion.items import Item
from polyker.schedule.gpu.map import MAX_ACCESS_BYTES, GridMapping, at_once, choose_mapping, grid, with_elements
from polyker.schedule.nests.nest import band, offset
from polyker.schedule.tree.block_threads import AXES
from polyker.schedule.tree.nodes import Filter, Member, MemberKind, Promotion, Scope, Tree
from polyker.schedule.tree.nodes import Sequence as InOrder
from polyker.structs import replace

# Most elements of a temporary that a thread holds in registers (experience value; a thread has 255 registers).
MAX_REGISTER_ELEMENTS = 32


class FusedLaunch(Struct, frozen=True):
    """The statements of one launch. `axes`: of the group's loops, those mapped to x, y, z, with the threads of a block;
    `elements`: one of them of which each thread takes so many neighbours at once. Each thread runs through the group's other
    loops.
    """

    group: Group
    axes: tuple[tuple[int, int], ...]
    elements: tuple[int, int] | None

    def size(self, loop: int) -> int:
        """Return how many neighbours along a loop a thread takes at once."""
        return self.elements[1] if self.elements is not None and self.elements[0] == loop else 1

    def origins(self, item: int) -> dict[str, int]:
        """Return what the elements of an item are counted from, for each of its iterators."""
        measured = self.group.items[item].measured
        own = {dim[item]: self.group.origin(n) for n, dim in enumerate(self.group.dims)}
        return {i: measured.lo(i) for i in measured.statement.iterators} | own

    def common(self, item: int) -> tuple[str, ...]:
        """Return the iterators of an item that are times of common loops."""
        return tuple(dim[item] for dim in self.group.dims)

    def item_mapping(self, item: int) -> GridMapping:
        """Return the mapping in the iterators of one item."""
        dims = self.group.dims
        axes = tuple((dims[n][item], count) for n, count in self.axes)
        elements = None if self.elements is None else (dims[self.elements[0]][item], self.elements[1])
        return GridMapping(axes, (), elements)

    def tree(
        self,
        bodies: Sequence[tuple[TypedStatement, ...]],
        trees: Sequence[Tree],
        held: tuple[Promotion, ...],
        *,
        alike: bool,
    ) -> Tree:
        """Return the tree of a launch: what a thread runs of each item, and the buffers that it has for them.

        `alike`: the common loops have the same values for all items. Else the threads walk from item to item together.
        """
        blocks, threads, rest = self.members(bodies)
        names = [tuple(s.name for s in b) for b in bodies]
        if alike or not threads:
            inner = InOrder(tuple(map(Filter, names, trees))) if len(trees) > 1 else trees[0]
            return band([*blocks, *threads, *rest], Scope(held, inner) if held else inner)
        parts = []
        for own, tree in zip(names, trees, strict=True):
            mine = [replace(m, times=tuple((s, e) for s, e in m.times if s in own)) for m in threads]
            parts.append(Filter(own, band(mine, tree)))
        inside = InOrder(tuple(parts))
        return band([*blocks, *rest], Scope(held, inside) if held else inside)

    def members(self, bodies: Sequence[tuple[TypedStatement, ...]]) -> tuple[list[Member], list[Member], list[Member]]:
        """Return the common loops: blocks, threads, and those that each thread runs through; without any, one block's."""
        if not self.group.dims:
            return grid([], [s for b in bodies for s in b]), [], []
        blocks, threads = [], []
        for axis, (n, count) in zip(AXES, self.axes, strict=False):
            label = self.group.dims[n][0]
            blocks.append(self._member(n, bodies, f"{label}.block", MemberKind.BLOCK, count, axis))
            if count > 1:
                threads.append(self._member(n, bodies, f"{label}.thread", MemberKind.THREAD, count, axis))
        taken = {n for n, _ in self.axes}
        rest = (n for n in range(len(self.group.dims)) if n not in taken)
        # Blocks along z come first, and so do threads: x moves fastest.
        return blocks[::-1], threads[::-1], [self._member(n, bodies, self.group.dims[n][0]) for n in rest]

    def _member(
        self,
        loop: int,
        bodies: Sequence[tuple[TypedStatement, ...]],
        label: str,
        kind: MemberKind = MemberKind.SERIAL,
        count: int = 1,
        axis: str = "",
    ) -> Member:
        def time(iterator: str) -> Expr:
            place = offset(iterator, self.group.origin(loop))
            if self.size(loop) > 1:
                place = floordiv(place, self.size(loop))
            if kind is MemberKind.SERIAL:
                return place
            return floordiv(place, count) if kind is MemberKind.BLOCK else mod(place, count)

        found = tuple((s.name, time(i)) for i, body in zip(self.group.dims[loop], bodies, strict=True) for s in body)
        return Member(found, label, kind, count if kind is MemberKind.THREAD else 0, axis)


def grown(
    program: TypedProgram, items: list[Item], gpu: Gpu, left: list[Item]
) -> tuple[FusedLaunch, list[Item], list[Item]]:
    """Return the launch of the first item and of what can run in it, what has to run before it, and what after it.

    The items `left` run in launches of their own.
    """

    def join(group: Group, item: Item) -> Group | None:
        if not item.free and not group.dims:
            return Group((*group.items, item), (), (), ())
        wider = group.joined(program, item)
        wider = None if wider is None else _in_step(wider, gpu)
        if wider is None or of_one_shape(program, wider) or any(n > 1 for _, n in together(wider, gpu).axes):
            return wider
        return None

    group, before, after = grow(program, items, left, join)
    return together(group, gpu), before, after


def together(group: Group, gpu: Gpu) -> FusedLaunch:
    """Return how the loops of a group are mapped to threads: as those of the item that does most."""
    lead = max(range(len(group.items)), key=lambda n: _work(group.items[n]))
    item = group.items[lead]
    if not group.dims:
        return FusedLaunch(group, (), None)
    mapping = choose_mapping(item.measured, item.free, gpu)
    if item.reduces:
        mapping = with_elements(item.measured, mapping, gpu)
    place = {dim[lead]: n for n, dim in enumerate(group.dims)}
    axes = tuple((place[i], count) for i, count in mapping.axes if i in place)
    elements = None if mapping.elements is None else (place[mapping.elements[0]], mapping.elements[1])
    if axes and not any(i.reduces for i in group.items):
        side = _side(group, axes, gpu)
        elements = (axes[0][0], side) if side > 1 else None
    return FusedLaunch(group, axes, elements)


def _side(group: Group, axes: tuple[tuple[int, int], ...], gpu: Gpu) -> int:
    """Return how many neighbours along x a thread takes: as many as one access of each tensor reaches.

    Memory is as far away for 16 bytes as for 4, so a multiprocessor's threads have four times as much under way. 1 where an
    access would not be aligned, and where too few threads would be left for the GPU.
    """
    loop, width = axes[0]
    side, elements, many = MAX_ACCESS_BYTES, 0, gpu.processors * gpu.resident
    for n, item in enumerate(group.items):
        measured, along = item.measured, group.dims[loop][n]
        lo, count = measured.bounds[along]
        elements = max(elements, MAX_ACCESS_BYTES * many if count is None else _work(item))
        for access in measured.accesses:
            side = at_once(access, along, side)
        if side > 1 and not (read_set(item.statement.domain).is_box() or (count is None and len(measured.bounds) == 1)):
            return 1
        while side > 1 and (lo is None or lo % side or (count is not None and (count % side or count < side * width))):
            side //= 2
    while side > 1 and elements < side * many:
        side //= 2
    return side


def _in_step(group: Group, gpu: Gpu) -> Group | None:
    """Return the group with the loops that carry nothing; None where an item would have another mapping than by itself."""
    order = tuple(n for n, s in enumerate(group.shifts) if not any(s) and not group.crossing[n])
    group = group.loops(order)
    first: set[int] = set()
    for n, item in enumerate(group.items):
        column = [dim[n] for dim in group.dims]
        axes = [i for i, _ in choose_mapping(item.measured, item.free, gpu).axes]
        if not axes or axes[0] not in column:
            return None
        if any(i not in column and item.measured.extent(i) > 1 for i in axes):
            return None
        first.add(column.index(axes[0]))
    return group if len(first) == 1 else None


def of_one_shape(program: TypedProgram, group: Group) -> bool:
    """Return whether the common loops have the same values for all items: isl makes one loop of each then, and else
    may count the threads of each of several from its own first value."""
    found: isl.Set | None = None
    for n, item in enumerate(group.items):
        for statement in (item.statement, item.start):
            if statement is None:
                continue
            names = tuple(dim[n] for dim in group.dims)
            elements = image(program, statement, item.of_start(names) if statement is item.start else names)
            if found is not None and not found.is_equal(elements):
                return False
            found = elements
    return True


def _work(item: Item) -> int:
    return prod(item.measured.extent(i) for i in item.statement.iterators)


def promotions(
    program: TypedProgram, group: Group, elements: dict[int, int], outside: Iterable[TypedStatement]
) -> tuple[Promotion, ...]:
    """Return the temporaries of a launch that its threads hold in registers; `outside`: the statements of other launches.

    `elements`: of each loop that is mapped to threads, how many neighbours a thread takes at once.
    """
    used = {t: None for i in group.items for t in sorted(i.tensors)}
    elsewhere = {t.tensor for s in outside for t in touches(s)}
    found = []
    for tensor in used:
        if program.tensor(tensor).role is Role.TEMPORARY and tensor not in elsewhere:
            modulo = group.buffer(program, tensor, elements)
            if modulo is not None and prod(modulo) <= MAX_REGISTER_ELEMENTS:
                found.append(Promotion(tensor, modulo))
    return tuple(found)
