"""Dependences between statement instances, by memory: two instances that touch one element, one of them writing.

Reductions are relaxed: instances of one reduction statement combine into their element in any order, so the pairs through its
own target are left out (and kept apart, for whoever runs instances at the same time).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property, partial
from typing import ClassVar

import islpy as isl

from polyker.ir.expr import Call, Expr, IndexExpr, Literal
from polyker.poly.scop import Scop, ScopAccess
from polyker.structs import PartlyCompared


class Dependence(PartlyCompared, frozen=True, dict=True):
    """{source instance -> sink instance}, the source first in the text's order; kind is raw, war, waw or reduction.

    `equal`: iterators of the source with those of the sink that have the same value in every pair, as the subscripts show.
    The relation is made when it is asked for: often the text of a schedule shows that the pair is in order.
    """

    UNCOMPARED: ClassVar = frozenset({"make"})

    kind: str
    source: str
    sink: str
    tensor: str
    make: Callable[[], isl.Map]
    equal: tuple[tuple[str, str], ...] = ()

    @cached_property
    def relation(self) -> isl.Map:
        """The pairs of instances."""
        return self.make()


def dependences(scop: Scop) -> Iterator[Dependence]:
    """Yield the non-empty dependences of a program, one for each pair of accesses."""
    return (d for d in candidates(scop) if not d.relation.is_empty())


def candidates(scop: Scop) -> Iterator[Dependence]:
    """Yield the dependences that the text does not exclude; a relation may turn out empty."""
    for first in scop.accesses:
        for second in scop.accesses:
            if first.tensor != second.tensor or not (first.is_write or second.is_write):
                continue
            # Most pairs lie in nests one after the other.
            here, there = scop.places[first.statement], scop.places[second.statement]
            separate = here[0] != there[0]
            if (separate and here > there) or (first is second and _is_injective(scop, first)):
                continue
            make = partial(_relation, scop, first, second, separate)
            kind = _kind(first, second)
            yield Dependence(kind, first.statement, second.statement, first.tensor, make, _equal(first, second))


def _relation(scop: Scop, first: ScopAccess, second: ScopAccess, separate: bool) -> isl.Map:
    relation = first.relation.apply_range(second.inverse)
    if separate:
        return relation
    return relation.intersect(scop.order[first.statement].lex_lt_map(scop.order[second.statement]))


def _is_injective(scop: Scop, access: ScopAccess) -> bool:
    """Whether the subscripts show that two instances never touch one element: every iterator stands alone in one of them."""
    alone = {s.name for s in access.subscripts if isinstance(s, IndexExpr)}
    return set(scop.statement(access.statement).iterators) <= alone


def _equal(first: ScopAccess, second: ScopAccess) -> tuple[tuple[str, str], ...]:
    found = []
    for a, b in zip(first.subscripts, second.subscripts, strict=False):
        here, there = _alone(a), _alone(b)
        if here is not None and there is not None and here[1] == there[1]:
            found.append((here[0], there[0]))
    return tuple(found)


def _alone(subscript: Expr) -> tuple[str, int] | None:
    """Return (index, offset) of a subscript that is an index plus a constant."""
    match subscript:
        case IndexExpr(name=name):
            return name, 0
        case Call(op="add", args=(IndexExpr(name=name), Literal(value=value))):
            return name, int(value.real)
        case _:
            return None


def _kind(first: ScopAccess, second: ScopAccess) -> str:
    if first.is_update and second.is_update and first.statement == second.statement:
        return "reduction"
    return {(True, False): "raw", (False, True): "war", (True, True): "waw"}[first.is_write, second.is_write]
