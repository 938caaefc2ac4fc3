"""What defines a tensor: the statements, and how much of the tensor's change each of their terms is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import combinations

from msgspec import Struct

from polyker.errors.base import failure
from polyker.errors.gradients import NO_REVERSE
from polyker.grad.bound import PlainProgram, PlainStatement
from polyker.grad.values import ONE, ZERO, call, div, where
from polyker.ir.expr import Expr, Read
from polyker.ir.program import Statement
from polyker.poly.scop import elements_written


class Writers(Struct, frozen=True):
    """The statements that define a tensor: `op` is how their terms come together, "set" where each element has one."""

    op: str
    statements: tuple[PlainStatement, ...]


def writers_of(program: PlainProgram) -> dict[str, Writers]:
    """Return the statements that define each tensor; raises GradientError where one is changed after it was read."""
    found: dict[str, list[tuple[int, PlainStatement]]] = {}
    first_read: dict[str, int] = {}
    for n, a in enumerate(program.assignments):
        found.setdefault(a.target, []).append((n, a))
        for read in a.own.reads():
            first_read.setdefault(program.names.tensors[read.tensor], n)
    made: dict[str, Writers] = {}
    for tensor, places in found.items():
        last, written = places[-1]
        if tensor in program.inputs:
            raise _refused(written, tensor, "it is an argument and a result", "return a tensor of its own")
        if last > first_read.get(tensor, last):
            raise _refused(written, tensor, "it is changed after it was read")
        ops = {a.op for _, a in places} - {"set"}
        is_late = any(a.op == "set" and any(b.op != "set" for _, b in places[:k]) for k, (_, a) in enumerate(places))
        if len(ops) > 1 or is_late or not _are_apart(program, [a for _, a in places if a.op == "set"]):
            raise _refused(written, tensor, "it is defined more than once")
        made[tensor] = Writers(ops.pop() if ops else "set", tuple(a for _, a in places))
    return made


def _refused(a: PlainStatement, tensor: str, reason: str, advice: str = "") -> Exception:
    advice = advice or "give what is defined anew a name of its own"
    return failure(NO_REVERSE, span=a.own.span, tensor=tensor, reason=reason, advice=advice)


def _are_apart(program: PlainProgram, sets: Iterable[PlainStatement]) -> bool:
    """Whether no element is set by two statements."""
    written = [elements_written(program.typed, a.own).reset_tuple_id() for a in sets]
    return all(one.is_disjoint(other) for one, other in combinations(written, 2))


def weights(tensor: str, writers: Writers, emit: Callable[[str, Statement], str]) -> Callable[[PlainStatement], Expr]:
    """Return the derivative of a tensor's element by the term of a statement.

    Of an extremum it is shared out equally among the terms that attain it. `emit` takes what a tensor more is for and a statement
    for it, and returns its name.
    """
    if writers.op in ("max", "min"):
        ties = ""
        for a in writers.statements:
            attains = where(call("eq", a.expr, Read(tensor, a.subscripts)), ONE)
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
