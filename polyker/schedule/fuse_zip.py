"""Two reductions over the same terms in one loop over these: what both read is loaded once.

    for c.tile: vector c: s += X            for c.tile:
    for c.tile: vector c: q += X * X   ->       vector c: s += X
                                                vector c: q += X * X

The nests of two statements that were planned alike are the same tree with other names: loop by loop they become one, down to
where instances are vectors or unrolled. Whether that keeps the dependences is for the proof to say.
"""

from __future__ import annotations

from dataclasses import replace

from polyker.schedule.fuse_items import Item
from polyker.schedule.plan import Plan, unrolled
from polyker.schedule.tree import Band, Filter, Kind, Leaf, Scope, Sequence, Tree
from polyker.target.model import Target

Names = tuple[str, ...]


def paired(items: tuple[Item, ...], plans: tuple[Plan, ...], target: Target) -> list[int | None]:
    """Return of each item which earlier one it is to share its loops with, if any.

    They are reductions in tiles of one shape that read the same and whose accumulators the registers hold together; and nothing
    from the earlier one on has to run before the later one.
    """
    found: list[int | None] = []
    held: dict[int, int] = {}
    for n, (item, plan) in enumerate(zip(items, plans, strict=True)):
        mate = None
        for m in reversed(range(n)):
            if items[m].conflicts(item):
                break
            shared = (item.tensors - item.writes) & (items[m].tensors - items[m].writes)
            room = m in held and held[m] + unrolled(plan) < target.vector_registers - 3
            if item.reduces and items[m].reduces and shared and room and _alike(plan, plans[m]):
                mate = m
                break
        found.append(mate)
        held[n if mate is None else mate] = held.get(n if mate is None else mate, 0) + unrolled(plan)
    return found


def _alike(one: Plan, other: Plan) -> bool:
    """Whether two tiles have one shape."""
    sizes = [[p.lanes, p.chunks, *(s for _, s in p.others)] for p in (one, other)]
    return one.vector is not None and other.vector is not None and sizes[0] == sizes[1]


def zipped(first: Filter, second: Filter) -> Filter | None:
    """Return one child of a sequence for two, None where their trees differ."""
    tree = _trees(first.statements, first.child, second.statements, second.child)
    if tree is None:
        return None
    return Filter((*first.statements, *second.statements), tree, (*first.conditions, *second.conditions))


def _trees(here: Names, one: Tree, there: Names, other: Tree) -> Tree | None:
    match one, other:
        case Band(), Band():
            return _bands(here, one, there, other)
        case Sequence(), Sequence():
            if len(one.children) != len(other.children):
                return None
            parts = [zipped(a, b) for a, b in zip(one.children, other.children, strict=True)]
            return None if None in parts else Sequence(tuple(p for p in parts if p is not None))
        case Scope(), Scope():
            inside = _trees(here, one.child, there, other.child)
            return None if inside is None else Scope((*one.promotions, *other.promotions), inside)
        case Leaf(), Leaf():
            return Sequence((Filter(here, one), Filter(there, other)))
        case _:
            return None


def _bands(here: Names, one: Band, there: Names, other: Band) -> Tree | None:
    """Return the loops of both; from the first that is not serial on each has its own."""
    a, b = one.members[0], other.members[0]
    if (a.kind, a.extent) != (b.kind, b.extent):
        return None
    if a.kind is not Kind.SERIAL:
        return Sequence((Filter(here, one), Filter(there, other)))
    inside = _trees(here, _rest(one), there, _rest(other))
    return None if inside is None else Band((replace(a, times=(*a.times, *b.times)),), inside)


def _rest(band: Band) -> Tree:
    return Band(band.members[1:], band.child) if len(band.members) > 1 else band.child
