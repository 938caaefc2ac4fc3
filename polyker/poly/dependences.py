"""Dependences between statement instances, by memory: two instances that touch one cell, one of them writing.

Reductions are relaxed: instances of one reduction statement combine into their cell in any order, so the pairs through its
own target are left out (and kept apart, for whoever runs instances at the same time).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import islpy as isl

from polyker.poly.scop import Access, Scop


@dataclass(frozen=True)
class Dependence:
    """{source instance -> sink instance}, the source first in the text's order; kind is raw, war, waw or reduction."""

    kind: str
    source: str
    sink: str
    tensor: str
    relation: isl.Map


def dependences(scop: Scop) -> Iterator[Dependence]:
    """Yield the non-empty dependences of a program, one for each pair of accesses."""
    for first in scop.accesses:
        for second in scop.accesses:
            if first.tensor != second.tensor or not (first.is_write or second.is_write):
                continue
            relation = first.relation.apply_range(second.relation.reverse())
            before = scop.order[first.statement].lex_lt_map(scop.order[second.statement])
            relation = relation.intersect(before).intersect_params(scop.context)
            if not relation.is_empty():
                yield Dependence(_kind(first, second), first.statement, second.statement, first.tensor, relation)


def _kind(first: Access, second: Access) -> str:
    if first.is_update and second.is_update and first.statement == second.statement:
        return "reduction"
    return {(True, False): "raw", (False, True): "war", (True, True): "waw"}[first.is_write, second.is_write]
