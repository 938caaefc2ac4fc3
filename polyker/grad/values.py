"""Expressions of derivatives, with what a factor of 0 or 1 makes of them folded."""

from __future__ import annotations

from functools import reduce

from polyker.ir.expr import Call, Expr, Literal

ZERO, ONE = Literal(0.0), Literal(1.0)


def number(value: float) -> Literal:
    """Return a constant; it takes the type of what it is combined with."""
    return Literal(float(value))


def is_number(expr: Expr, value: float) -> bool:
    """Whether an expression is that constant."""
    return isinstance(expr, Literal) and not isinstance(expr.value, bool) and expr.value == value


def add(*terms: Expr) -> Expr:
    """Return a sum."""
    kept = [t for t in terms if not is_number(t, 0)]
    if len(kept) < 2:
        return kept[0] if kept else ZERO
    return Call("add", tuple(kept))


def mul(*factors: Expr) -> Expr:
    """Return a product; 0 where a factor is the constant 0, whatever the others are."""
    if any(is_number(f, 0) for f in factors):
        return ZERO
    kept = [f for f in factors if not is_number(f, 1)]
    signs = sum(is_number(f, -1) for f in kept)
    kept = [f for f in kept if not is_number(f, -1)]
    value = (kept[0] if len(kept) == 1 else Call("mul", tuple(kept))) if kept else ONE
    return neg(value) if signs % 2 else value


def neg(value: Expr) -> Expr:
    """Return the negative."""
    if isinstance(value, Literal) and not isinstance(value.value, bool):
        return Literal(-value.value)
    return value.args[0] if isinstance(value, Call) and value.op == "neg" else Call("neg", (value,))


def sub(a: Expr, b: Expr) -> Expr:
    """Return a difference."""
    return add(a, neg(b))


def div(a: Expr, b: Expr) -> Expr:
    """Return a quotient."""
    return a if is_number(b, 1) or is_number(a, 0) else Call("div", (a, b))


def plus(a: Expr, b: Expr) -> Expr:
    """Return a sum of subscripts."""
    if is_whole(a, 0) or is_whole(b, 0):
        return b if is_whole(a, 0) else a
    if isinstance(a, Call) and a.op == "add" and isinstance(a.args[-1], Literal) and isinstance(b, Literal):
        return plus(Call("add", a.args[:-1]) if len(a.args) > 2 else a.args[0], Literal(a.args[-1].value + b.value))
    if isinstance(a, Literal) and isinstance(b, Literal):
        return Literal(a.value + b.value)
    return Call("add", (a, b))


def minus(a: Expr, b: Expr) -> Expr:
    """Return a difference of subscripts."""
    if isinstance(b, Literal):
        return plus(a, Literal(-b.value))
    return Call("add", (a, Call("neg", (b,))))


def is_whole(expr: Expr, value: int) -> bool:
    """Whether an expression is that integer."""
    return isinstance(expr, Literal) and expr.value == value


def call(op: str, *args: Expr) -> Expr:
    """Return an operator or a function of the notation on arguments."""
    return Call(op, args)


def where(condition: Expr, a: Expr, b: Expr = ZERO) -> Expr:
    """Return a choice."""
    return a if a == b else Call("where", (condition, a, b))


def both(conditions: tuple[Expr, ...]) -> Expr:
    """Return that all of some conditions hold."""
    return reduce(lambda a, b: Call("and", (a, b)), conditions)
