"""Find groups of statements that can share their outermost loops."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct

from polyker.ir.expr import Literal
from polyker.ir.typed import TypedProgram
from polyker.poly.touches import alone
from polyker.schedule.fusion.items import Item, follows, walks_with

# Most statements after the first that may join its group: farther ones find nothing in the caches (experience value; bounds the
# search).
MAX_ITEM_DISTANCE = 32
# Least ratio of a loop's extent to the shift by which a statement waits for what it reads (experience value).
MIN_EXTENT_PER_SHIFT = 4


class Group(Struct, frozen=True):
    """Items in the text's order; `dims` are the loops that they can share, each with one iterator an item.

    `shifts`: of each loop, how many iterations later than its iterator says each item runs, so that what it reads is there.
    `crossing`: of each loop, the tensors of which an iteration reads what an earlier one wrote.
    """

    items: tuple[Item, ...]
    dims: tuple[tuple[str, ...], ...]
    shifts: tuple[tuple[int, ...], ...]
    crossing: tuple[frozenset[str], ...]

    @classmethod
    def of(cls, item: Item) -> Group:
        """Return the group of one item."""
        loops = tuple((i,) for i in item.loops)
        return cls((item,), loops, ((0,),) * len(loops), tuple(_own(item, i) for i in item.loops))

    def joined(self, program: TypedProgram, item: Item) -> Group | None:
        """Return the group with one more item, and the loops that are left; None where there are none."""
        found: list[tuple[tuple[str, ...], tuple[int, ...], frozenset[str]]] = []
        bound = [n for n, m in enumerate(self.items) if m.conflicts(item)]
        for dim, shifts, crossing in zip(self.dims, self.shifts, self.crossing, strict=True):
            taken = {d[-1] for d, _, _ in found}
            choices = [i for i in item.loops if i not in taken]
            if not bound:
                same = self._alike(item, dim, choices)
                if same is not None:
                    found.append(((*dim, same), (*shifts, 0), crossing | _own(item, same)))
                continue
            step = self._in_step(program, item, dim, shifts, choices, bound)
            if step is not None:
                iterator, shift, late = step
                crossing |= {t for n in late for t in self.items[n].tensors & item.tensors} | _own(item, iterator)
                found.append(((*dim, iterator), (*shifts, shift), crossing))
        if not found:
            return None
        dims, all_shifts, crossings = zip(*found, strict=True)
        return Group((*self.items, item), dims, all_shifts, crossings)

    def origin(self, loop: int) -> int:
        """Return the value that comes first in a loop; a reduction that starts elements has those without terms, too."""
        found = zip(self.items, self.dims[loop], strict=True)
        return min(min(i.measured.lo(d), 0 if i.start is not None else i.measured.lo(d)) for i, d in found)

    def buffer(self, program: TypedProgram, tensor: str, sizes: Mapping[int, int]) -> tuple[int, ...] | None:
        """Return the extents of a temporary's buffer; None where these are not known.

        `sizes`: of a loop's dimension the elements that the buffer holds, 1 of others.
        """
        touching = [(n, t) for n, item in enumerate(self.items) for t in item.touches if t.tensor == tensor]
        if not all(t.exact for _, t in touching):
            return None
        modulo = []
        for d, extent in enumerate(program.tensor(tensor).shape):
            size = int(extent.value.real) if isinstance(extent, Literal) else None
            for loop, dim in enumerate(self.dims):
                if all(alone(t.subscripts[d]) == (dim[n], 0) for n, t in touching):
                    size = sizes.get(loop, 1)
                    break
            if not size:
                return None
            modulo.append(size)
        return tuple(modulo)

    def loops(self, order: tuple[int, ...]) -> Group:
        """Return the group with these of its loops, in this order."""
        kept = (tuple(found[d] for d in order) for found in (self.dims, self.shifts, self.crossing))
        return Group(self.items, *kept)  # type: ignore[arg-type]

    def _in_step(
        self,
        program: TypedProgram,
        item: Item,
        dim: tuple[str, ...],
        shifts: tuple[int, ...],
        choices: list[str],
        bound: list[int],
    ) -> tuple[str, int, tuple[int, ...]] | None:
        """Return the item's iterator that moves together with a loop, its shift, and the items of which it reads what other
        iterations wrote."""
        best: tuple[str, int, tuple[int, ...]] | None = None
        for iterator in choices:
            lags = []
            for n in bound:
                lag = follows(program, self.items[n], dim[n], item, iterator)
                if lag is None:
                    break
                lags.append(lag)
            else:
                shift = max(0, *(shifts[n] + lag.most for n, lag in zip(bound, lags, strict=True)))
                late = tuple(
                    n for n, lag in zip(bound, lags, strict=True) if not (lag.exact and shifts[n] + lag.most == shift)
                )
                if shift * MIN_EXTENT_PER_SHIFT > item.measured.extent(iterator):
                    continue
                if shift == 0 and not late:
                    return iterator, 0, ()
                if best is None or (shift, len(late)) < (best[1], len(best[2])):
                    best = iterator, shift, late
        return best

    def _alike(self, item: Item, dim: tuple[str, ...], choices: list[str]) -> str | None:
        """Return the item's iterator along which it reads what the group reads, for an item that the group does not bind."""
        for iterator in choices:
            if any(walks_with(m, i, item, iterator) for m, i in zip(self.items, dim, strict=True)):
                return iterator
        return None


def _own(item: Item, iterator: str) -> frozenset[str]:
    """Return what an iteration of a loop reads that the item wrote in an earlier one."""
    return frozenset([item.statement.target] if iterator == item.carried else [])


def grow(
    program: TypedProgram,
    items: list[Item],
    left: list[Item],
    join: Callable[[Group, Item], Group | None] | None = None,
) -> tuple[Group, list[Item], list[Item]]:
    """Return the group of the first item, what has to run before it, and what after it; the items `left` do not join.

    The order of two items that conflict stays that of the text. `join`: what a group with one more item is, `Group.joined` if
    nothing else is asked of it.
    """
    if join is None:

        def join(group: Group, item: Item) -> Group | None:
            return group.joined(program, item)

    group = Group.of(items[0])
    before: list[Item] = []
    after: list[Item] = []
    for item in items[1 : MAX_ITEM_DISTANCE + 1]:
        if any(a.conflicts(item) for a in after):
            after.append(item)
            continue
        wider = None if item in left else join(group, item)
        if wider is not None:
            group = wider
        elif any(m.conflicts(item) for m in group.items):
            after.append(item)
        else:
            before.append(item)
    return group, before, after + items[MAX_ITEM_DISTANCE + 1 :]
