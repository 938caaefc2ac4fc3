"""Groups of statements that can share their outermost loops."""

from __future__ import annotations

from dataclasses import dataclass

from polyker.ir.typed import TypedProgram
from polyker.schedule.fuse_items import Item, follows, walks_with

# Items after the first that are looked at for a group: what is further away has left the caches, and the search stays short.
REACH = 32


@dataclass(frozen=True)
class Group:
    """Items in the text's order; `dims` are the loops that they can share, each with one iterator an item.

    `crossing`: tensors of which an iteration reads what an earlier one wrote.
    """

    items: tuple[Item, ...]
    dims: tuple[tuple[str, ...], ...]
    crossing: frozenset[str] = frozenset()

    def joined(self, program: TypedProgram, item: Item) -> Group | None:
        """Return the group with one more item, and the loops that are left; None where there are none."""
        dims: list[tuple[str, ...]] = []
        crossing = set(self.crossing)
        bound = [n for n, m in enumerate(self.items) if m.conflicts(item)]
        for dim in self.dims:
            taken = {d[-1] for d in dims}
            choices = [i for i in item.free if i not in taken]
            found = self._in_step(program, item, dim, choices, bound) if bound else self._alike(item, dim, choices)
            if found is not None:
                dims.append((*dim, found[0]))
                if not found[1]:
                    crossing |= {t for n in bound for t in self.items[n].tensors & item.tensors}
        return Group((*self.items, item), tuple(dims), frozenset(crossing)) if dims else None

    def _in_step(
        self, program: TypedProgram, item: Item, dim: tuple[str, ...], choices: list[str], bound: list[int]
    ) -> tuple[str, bool] | None:
        """Return the item's iterator that moves in step with a loop, and whether no value crosses its iterations."""
        late: tuple[str, bool] | None = None
        for iterator in choices:
            together: bool | None = True
            for n in bound:
                found = follows(program, self.items[n], dim[n], item, iterator)
                together = None if found is None else (together and found)
                if together is None:
                    break
            if together:
                return iterator, True
            if together is not None and late is None:
                late = iterator, False
        return late

    def _alike(self, item: Item, dim: tuple[str, ...], choices: list[str]) -> tuple[str, bool] | None:
        """Return the item's iterator along which it reads what the group reads, for an item that the group does not bind."""
        for iterator in choices:
            if any(walks_with(m, i, item, iterator) for m, i in zip(self.items, dim, strict=True)):
                return iterator, True
        return None


def grow(program: TypedProgram, items: list[Item], left: list[Item]) -> tuple[Group, list[Item], list[Item]]:
    """Return the group of the first item, what has to run before it, and what after it; the items `left` do not join.

    The order of two items that conflict stays that of the text.
    """
    group = Group((items[0],), tuple((i,) for i in items[0].free))
    before: list[Item] = []
    after: list[Item] = []
    for item in items[1 : REACH + 1]:
        if any(a.conflicts(item) for a in after):
            after.append(item)
            continue
        wider = None if item in left else group.joined(program, item)
        if wider is not None:
            group = wider
        elif any(m.conflicts(item) for m in group.items):
            after.append(item)
        else:
            before.append(item)
    return group, before, after + items[REACH + 1 :]
