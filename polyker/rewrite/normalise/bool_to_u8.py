"""Compute boolean reductions in u8, of which a vector holds most lanes.

Before: `C[i,j] any= A[i,k] and B[k,j]` (boolean). After: `C[i,j] max= min(u8(A[i,k]), u8(B[k,j]))`, summed in u8 and stored as
a boolean. Vector units keep booleans as one bit a lane in registers of their own, of which there are few, and test and widen
them on each way to memory; bytes that are 0 or 1 stay where they are.
"""

from __future__ import annotations

from polyker.ir.dtypes import bool_, u8
from polyker.ir.expr import Call, Cast, Expr, IndexExpr, Literal, Read
from polyker.ir.quasi_affine import is_quasi_affine
from polyker.ir.typed import TypedProgram, TypedStatement, replaced
from polyker.structs import replace

_REDUCTIONS = {"any": "max", "all": "min"}
_OPERATIONS = {"and": "minimum", "or": "maximum"}


def count_truths(program: TypedProgram) -> TypedProgram:
    """Return the program with bytes in place of booleans where a reduction has nothing else."""

    return replace(program, body=replaced(program.body, lambda s: (_counted(s),)))


def _counted(statement: TypedStatement) -> TypedStatement:
    """Return the statement over bytes: where each result has an element of its own, an accumulator has another type at no
    cost."""
    own = set(statement.kept) <= {s.name for s in statement.subscripts if isinstance(s, IndexExpr)}
    if statement.op not in _REDUCTIONS or not statement.reduced or not own:
        return statement
    value = _bytes(statement.expr)
    return statement if value is None else replace(statement, op=_REDUCTIONS[statement.op], expr=value, acc=u8)


def _bytes(expr: Expr) -> Expr | None:
    """Return a boolean value as 0 or 1 in u8, None where it is not made of booleans alone."""
    match expr:
        case Literal(value=value):
            return Literal(int(bool(value)), u8)
        case Read(dtype=dtype, subscripts=subscripts) if dtype == bool_ and all(map(is_quasi_affine, subscripts)):
            return Cast(u8, expr, u8)
        case Call(op="not", args=(arg,)):
            inner = _bytes(arg)
            return None if inner is None else Call("sub", (Literal(1, u8), inner), u8)
        case Call(op=("and" | "or") as op, args=args):
            parts = [_bytes(a) for a in args]
            known = tuple(p for p in parts if p is not None)
            return Call(_OPERATIONS[op], known, u8) if len(known) == len(args) else None
        case _:
            return None
