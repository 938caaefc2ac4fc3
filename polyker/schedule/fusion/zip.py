"""Fuse reductions over the same operand, and statements that write neighbouring elements of one tensor, in one loop.

    for c.tile: vector c: s += X            for c.tile:
    for c.tile: vector c: q += X * X   ->       vector c: s += X
                                                vector c: q += X * X

The nests of two statements that were planned alike are the same tree with other names: loop by loop they become one, of
reductions down to where instances are vectors or unrolled. Whether that keeps the dependences is for the proof to say.
"""

from __future__ import annotations

from polyker.cost.plan import TilePlan, unrolled
from polyker.ir.typed import TypedProgram
from polyker.machine.model import Target
from polyker.schedule.fusion.items import Item, are_apart
from polyker.schedule.tree.nodes import Band, Filter, Leaf, MemberKind, Scope, Sequence, Tree
from polyker.structs import replace

IteratorNames = tuple[str, ...]


def paired(
    program: TypedProgram, items: tuple[Item, ...], plans: tuple[TilePlan, ...], target: Target
) -> list[int | None]:
    """Return of each item which earlier one it is to share its loops with, if any.

    They have tiles of one shape, read the same, and the registers hold the accumulators of both; and nothing from the earlier one
    on has to run before the later one. Both are reductions, or neither is and they write one tensor.
    """
    found: list[int | None] = []
    held: dict[int, int] = {}
    for n, (item, plan) in enumerate(zip(items, plans, strict=True)):
        mate = None
        for m in reversed(range(n)):
            if items[m].conflicts(item) and not are_apart(program, items[m], item):
                break
            shared = (item.tensors - item.writes) & (items[m].tensors - items[m].writes)
            room = m in held and held[m] + unrolled(plan) < target.vector_registers - 3
            alike = item.reduces == items[m].reduces and (item.reduces or item.writes == items[m].writes)
            if alike and shared and room and _alike(plan, plans[m]):
                mate = m
                break
        found.append(mate)
        held[n if mate is None else mate] = held.get(n if mate is None else mate, 0) + unrolled(plan)
    return found


def _alike(one: TilePlan, other: TilePlan) -> bool:
    """Whether two tiles have one shape."""
    sizes = [[p.lanes, p.chunks, *(s for _, s in p.others)] for p in (one, other)]
    return one.vector is not None and other.vector is not None and sizes[0] == sizes[1]


def zipped(first: Filter, second: Filter, *, whole: bool = False) -> Filter | None:
    """Return one child of a sequence for two, None where their trees differ; `whole`: with one vector loop for both, too."""
    tree = _trees(first.statements, first.child, second.statements, second.child, whole=whole)
    if tree is None:
        return None
    return Filter((*first.statements, *second.statements), tree, (*first.conditions, *second.conditions))


def _trees(here: IteratorNames, one: Tree, there: IteratorNames, other: Tree, *, whole: bool) -> Tree | None:
    match one, other:
        case Band(), Band():
            return _bands(here, one, there, other, whole=whole)
        case Sequence(), Sequence():
            if len(one.children) != len(other.children):
                return None
            parts = [zipped(a, b, whole=whole) for a, b in zip(one.children, other.children, strict=True)]
            return None if None in parts else Sequence(tuple(p for p in parts if p is not None))
        case Scope(), Scope():
            inside = _trees(here, one.child, there, other.child, whole=whole)
            return None if inside is None else Scope((*one.promotions, *other.promotions), inside)
        case Leaf(), Leaf():
            return Sequence((Filter(here, one), Filter(there, other)))
        case Sequence(children=children), Leaf() if all(f.child == other for f in children):
            return Sequence((*children, Filter(there, other)))
        case _:
            return None


def _bands(here: IteratorNames, one: Band, there: IteratorNames, other: Band, *, whole: bool) -> Tree | None:
    """Return the loops of both; from the first that is not serial on each has its own, unless they share the `whole` tree."""
    a, b = one.members[0], other.members[0]
    if (a.kind, a.extent) != (b.kind, b.extent):
        return None
    if a.kind is not MemberKind.SERIAL and not whole:
        return Sequence((Filter(here, one), Filter(there, other)))
    inside = _trees(here, _rest(one), there, _rest(other), whole=whole)
    return None if inside is None else Band((replace(a, times=(*a.times, *b.times)),), inside)


def _rest(band: Band) -> Tree:
    return Band(band.members[1:], band.child) if len(band.members) > 1 else band.child
