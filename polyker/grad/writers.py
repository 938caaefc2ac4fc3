"""What defines a tensor: the statements, and how much of the tensor's change each of their terms is."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from polyker.grad.bound import PlainNode, PlainStatement
from polyker.grad.values import ONE, ZERO, call, div, where
from polyker.ir.expr import Expr, Read
from polyker.ir.program import Statement


class Writers(Struct, frozen=True):
    """The statements that define a tensor: `op` is how their terms come together, "set" where each element has one."""

    op: str
    statements: tuple[PlainStatement, ...]


def writers_of(nodes: Sequence[PlainNode]) -> dict[str, Writers]:
    """Return the statements of a block that define each tensor, whose elements have one value (see polyker.grad.forms.versions).

    Those in loops inside the block are of other blocks, and define other elements.
    """
    found: dict[str, list[PlainStatement]] = {}
    for s in nodes:
        if isinstance(s, PlainStatement):
            found.setdefault(s.target, []).append(s)
    return {t: Writers(next((s.op for s in of if s.op != "set"), "set"), tuple(of)) for t, of in found.items()}


def weights(tensor: str, writers: Writers, emit: Callable[[str, Statement], str]) -> Callable[[PlainStatement], Expr]:
    """Return the derivative of a tensor's element by the term of a statement.

    Of an extremum it is shared out equally among the terms that attain it. `emit` takes what a tensor more is for and a statement
    for it, and returns its name.
    """
    if writers.op in ("max", "min"):
        ties = ""
        for a in writers.statements:
            # A 1 of the term's type: a sum of constants alone would be f64, and so would the gradient.
            one = call("clip", a.expr, ONE, ONE)
            attains = where(call("eq", a.expr, Read(tensor, a.subscripts)), one)
            ties = emit("ties", _statement(a, "add", attains))
        return lambda a: where(call("eq", a.expr, Read(tensor, a.subscripts)), div(ONE, Read(ties, a.subscripts)))
    if writers.op == "mul":
        zeros = rest = ""
        for a in writers.statements:
            is_zero = call("eq", a.expr, ZERO)
            zeros = emit("zeros", _statement(a, "add", where(is_zero, ONE)))
            rest = emit("rest", _statement(a, "mul", where(is_zero, ONE, a.expr)))

        def others(a: PlainStatement) -> Expr:
            count = Read(zeros, a.subscripts)
            only = call("and", call("eq", count, ONE), call("eq", a.expr, ZERO))
            others_if_none = where(call("eq", count, ZERO), div(Read(tensor, a.subscripts), a.expr))
            return where(only, Read(rest, a.subscripts), others_if_none)

        return others
    return lambda a: ONE


def _statement(a: PlainStatement, op: str, value: Expr) -> Statement:
    """Return a statement with the instances of another; its target is for `emit` to name."""
    return Statement("", a.subscripts, op, value, a.ranges, a.conditions)
