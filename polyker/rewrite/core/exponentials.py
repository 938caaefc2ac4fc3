"""Sums of exponentials that cannot overflow: their terms are shifted by a maximum, unless that is infinite or no number."""

from __future__ import annotations

from polyker.ir.dtypes import bool_
from polyker.ir.expr import Call, Expr, Literal


def is_finite(value: Expr) -> Expr:
    """Return whether a float is a finite number, as an expression."""
    assert value.dtype is not None
    return Call("lt", (Call("abs", (value,), value.dtype), Literal(float("inf"), value.dtype)), bool_)


def finite(value: Expr) -> Expr:
    """Return a value, or 0 where it is no finite number: inf - inf would be NaN where the answer is inf."""
    assert value.dtype is not None
    return Call("where", (is_finite(value), value, Literal(0, value.dtype)), value.dtype)


def difference(value: Expr, shift: Expr) -> Expr:
    """Return a value less a shift."""
    return Call("add", (value, Call("neg", (shift,), value.dtype)), value.dtype)


def shifted_exp(value: Expr, shift: Expr) -> Expr:
    """Return the exponential of a value less a shift; a sum of exp(x) is exp(m) times that of exp(x - m)."""
    return Call("exp", (difference(value, shift),), value.dtype)


def log_of_sum(shift: Expr, total: Expr) -> Expr:
    """Return the logarithm of a sum of exponentials that were shifted."""
    return Call("add", (shift, Call("log", (total,), total.dtype)), total.dtype)
