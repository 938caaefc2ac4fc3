"""Recognise first-order recurrences: each element is the previous one combined with a term by an associative operator."""

from __future__ import annotations

from msgspec import Struct

from polyker.ir.dtypes import i64
from polyker.ir.expr import Call, Expr, IndexExpr, Read
from polyker.ir.quasi_affine import add, coefficients, is_quasi_affine, lit, substitute
from polyker.ir.typed import TypedStatement

# The farthest step back whose element is kept in a register: each is one, and a copy in every iteration
# (polyker.codegen.passes.scalar_replacement; chosen).
MAX_REGISTER_DISTANCE = 4
# What is combined, by the operator's name in expressions, and the reduction that it is.
OPERATORS = {"add": "add", "mul": "mul", "maximum": "max", "minimum": "min", "or": "any", "and": "all"}


class RecurrenceStep(Struct, frozen=True):
    """A statement is `element = before op term`, `before` the element of the instance one value of `iterator` earlier."""

    iterator: str
    op: str
    before: Read
    term: Expr


def step_of(statement: TypedStatement, iterator: str, *, in_place: bool = False) -> RecurrenceStep | None:
    """Return a statement as a step along an iterator, None where it is none, or reads its tensor elsewhere, too.

    `in_place`: the term may read what the very element held before.
    """
    expr = statement.expr
    if statement.op != "set" or not isinstance(expr, Call) or expr.op not in OPERATORS:
        return None

    def is_here(read: Read) -> bool:
        return in_place and read.subscripts == statement.subscripts

    own = [r for r in statement.reads() if r.tensor == statement.target and not is_here(r)]
    if len(own) != 1 or own[0] not in expr.args:
        return None
    (before,) = own
    rest = tuple(a for a in expr.args if a != before)
    padded = before.pad is not None and before.pad.mode != "constant"
    if padded or not rest or not _is_step(statement, before, iterator):
        return None
    return RecurrenceStep(iterator, expr.op, before, rest[0] if len(rest) == 1 else Call(expr.op, rest, expr.dtype))


def _is_step(statement: TypedStatement, before: Read, iterator: str) -> bool:
    """Return whether a read is of the element that the instance one earlier along an iterator writes."""
    earlier = {iterator: add(IndexExpr(iterator, i64), lit(-1))}
    for own, read in zip(statement.subscripts, before.subscripts, strict=True):
        if not (is_quasi_affine(own) and is_quasi_affine(read)):
            return False
        one, other = coefficients(substitute(own, earlier)), coefficients(read)
        if one is None or other is None or _terms(one) != _terms(other):
            return False
    return any((coefficients(s) or {}).get(iterator) for s in statement.subscripts)


def _terms(parts: dict[str, int]) -> dict[str, int]:
    return {name: factor for name, factor in parts.items() if factor}
