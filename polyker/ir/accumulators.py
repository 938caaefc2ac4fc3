"""The types of reductions: of their results, and of what they accumulate in."""

from __future__ import annotations

from polyker.errors.base import Span, failure
from polyker.errors.types import NO_LOOP
from polyker.ir.dtypes import DType, bool_, c64, c128, f64, i64
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
