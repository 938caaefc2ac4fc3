"""Reductions: the types of their results and of what they accumulate in, their identities."""

from __future__ import annotations

from polyker.errors.base import Span, failure
from polyker.errors.types import NO_LOOP
from polyker.ir.dtypes import DType, bool_, c64, c128, f64, i64
from polyker.ir.expr import Call, Expr, Literal
from polyker.ir.promotion import ValueType, computed


def reduction(op: str, body: ValueType, acc: DType | None, span: Span | None) -> tuple[ValueType, DType]:
    """Return the result's type and the type accumulated in, of an inline reduction over values of type `body`.

    Raises:
        DTypeError: for an order of complex numbers.
    """
    if op in ("any", "all"):
        return ValueType(bool_), bool_
    if body.dtype.is_complex and op in ("max", "min", "argmax", "argmin", "logsumexp"):
        raise failure(NO_LOOP, span=span, op=op, types=body, advice="take `abs(...)` or `real(...)`")
    if op in ("max", "min"):
        return body, computed(body.dtype)
    if op in ("argmax", "argmin"):
        return ValueType(i64), computed(body.dtype)
    result = body
    if op in ("mean", "logsumexp") and body.dtype.kind in "biu":
        result = ValueType(f64, body.weak)
    elif body.dtype == bool_:
        result = ValueType(i64)
    return result, accumulator(computed(result.dtype), acc)


def accumulator(dtype: DType, acc: DType | None) -> DType:
    """Return the type to accumulate sums and products of `dtype` in: `acc` where it is of the same sort of number."""
    if acc is None:
        return dtype
    if dtype.is_complex:
        return acc if acc.is_complex else {4: c64, 8: c128}[acc.itemsize] if acc.is_float else dtype
    if dtype.is_float:
        return acc if acc.is_float else dtype
    return acc if acc.is_integer and dtype.is_integer else dtype


def identity(op: str, dtype: DType) -> Literal:
    """Return the identity of a reduction in a type: 0, 1, -inf or the least value, +inf or the greatest, false, true."""
    if op in ("add", "sum", "any"):
        return Literal(False if dtype.kind == "b" else 0, dtype)
    if op in ("mul", "prod", "all"):
        return Literal(True if dtype.kind == "b" else 1, dtype)
    if op not in ("max", "min", "logsumexp"):
        raise ValueError(f"no identity for {op}")
    lowest = op != "min"
    if dtype.kind == "b":
        return Literal(not lowest, dtype)
    if dtype.kind == "f":
        return Literal(float("-inf" if lowest else "inf"), dtype)
    bits = 8 * dtype.itemsize
    if dtype.kind == "u":
        return Literal(0 if lowest else 2**bits - 1, dtype)
    return Literal(-(2 ** (bits - 1)) if lowest else 2 ** (bits - 1) - 1, dtype)


def admitted(op: str, term: Expr, condition: Expr | None) -> Expr:
    """Return a term of a reduction, or its identity where a condition (bool) is false; the term's NaN and inf are then gone.

    >>> from polyker.ir.dtypes import f32
    >>> admitted("sum", Literal(2.0, f32), Literal(False, bool_)).op
    'where'
    """
    if condition is None:
        return term
    if op == "any":
        return Call("and", (condition, term), bool_)
    if op == "all":
        return Call("or", (Call("not", (condition,), bool_), term), bool_)
    assert term.dtype is not None
    return Call("where", (condition, term, identity(op, term.dtype)), term.dtype)
