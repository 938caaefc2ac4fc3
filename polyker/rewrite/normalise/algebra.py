"""Rewrite a value multiplied by itself to a square, which is computed and counted once.

Before: `S[i,j] += (A[i,k] - B[k,j]) * (A[i,k] - B[k,j])`. After: `S[i,j] += (A[i,k] - B[k,j])**2`.
"""

from __future__ import annotations

from polyker.ir.expr import Call, Expr, Literal, transform
from polyker.ir.typed import TypedProgram, replaced
from polyker.structs import replace


def square_products(program: TypedProgram) -> TypedProgram:
    """Return the program with squares for products of a computed real value and the same."""
    return replace(program, body=replaced(program.body, lambda s: (replace(s, expr=transform(s.expr, _squared)),)))


def _squared(expr: Expr) -> Expr:
    match expr:
        # By text, as 0.0 equals -0.0.
        case Call(op="mul", args=(Call() as one, other), dtype=dtype) if (
            dtype is not None and dtype.kind == "f" and one == other and repr(one) == repr(other)
        ):
            return Call("pow", (one, Literal(2, dtype)), dtype, expr.span)
        case _:
            return expr
