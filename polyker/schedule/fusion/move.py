"""Move some of a statement's iterators outside the others."""

from __future__ import annotations

from polyker.ir.typed import TypedProgram, TypedStatement
from polyker.poly.scop import image
from polyker.rewrite.core.reindex import reindexed
from polyker.structs import replace


def moved(program: TypedProgram, statement: TypedStatement, first: tuple[str, ...], more: int = 0) -> TypedStatement:
    """Return the statement with the iterators `first` before its other inner ones, and `more` of them as outer ones."""
    outer = statement.iterators[: statement.outer]
    inner = tuple(i for i in statement.iterators[statement.outer :] if i not in first)
    order = (*outer, *first, *inner)
    statement = replace(statement, outer=statement.outer + more)
    if order == statement.iterators:
        return statement
    return reindexed(statement, order, image(program, statement, order), {})
