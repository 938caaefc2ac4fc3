"""Move some of a statement's iterators outside the others."""

from __future__ import annotations

from dataclasses import replace

from polyker.ir.typed import TypedProgram, TypedStatement
from polyker.poly.isl import read_map, read_set
from polyker.poly.scop import parameters


def moved(program: TypedProgram, statement: TypedStatement, first: tuple[str, ...], more: int = 0) -> TypedStatement:
    """Return the statement with the iterators `first` before its other inner ones, and `more` of them as outer ones."""
    outer = statement.iterators[: statement.outer]
    inner = tuple(i for i in statement.iterators[statement.outer :] if i not in first)
    order = (*outer, *first, *inner)
    statement = replace(statement, outer=statement.outer + more)
    if order == statement.iterators:
        return statement
    name = statement.name
    swap = read_map(
        f"{parameters(program)}{{ {name}[{', '.join(statement.iterators)}] -> {name}[{', '.join(order)}] }}"
    )
    return replace(statement, iterators=order, domain=str(read_set(statement.domain).apply(swap)))
