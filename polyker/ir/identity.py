"""What a reduction starts from, and what stands for a term that its condition leaves out."""

from __future__ import annotations

from polyker.ir.dtypes import DType, bool_
from polyker.ir.expr import Call, Expr, Literal


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
