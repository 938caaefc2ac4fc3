"""Index expressions on the host: numbers of blocks, bounds of time loops, extents."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from polyker.codegen.ir.kernel import Const, KExpr, Op, Var
from polyker.errors.base import InternalError


def evaluate(expr: KExpr, env: Mapping[str, int]) -> int:
    """Return the value of an expression of sizes and loop variables; a condition's is 0 or 1.

    >>> evaluate(Op("floordiv", (Var("n"), Const(4))), {"n": 9})
    2
    """
    match expr:
        case Const(value=value):
            return int(value.real)
        case Var(name=name):
            return env[name]
        case Op(op="where", args=(c, a, b)):
            return evaluate(a if evaluate(c, env) else b, env)
        case Op(op=op, args=args):
            return _apply(op, [evaluate(a, env) for a in args])
        case _:
            raise InternalError(f"{type(expr).__name__} has no place on the host")


def _apply(op: str, values: list[int]) -> int:
    x, y = values[0], values[-1]
    match op:
        case "add":
            return sum(values)
        case "sub":
            return x - y
        case "mul":
            return prod(values)
        case "neg":
            return -x
        case "floordiv":
            return x // y if y else 0
        case "mod":
            return x % y if y else 0
        case "minimum":
            return min(values)
        case "maximum":
            return max(values)
        case "lt" | "le" | "gt" | "ge" | "eq" | "ne":
            return int({"lt": x < y, "le": x <= y, "gt": x > y, "ge": x >= y, "eq": x == y, "ne": x != y}[op])
        case "and":
            return int(all(values))
        case "or":
            return int(any(values))
        case "not":
            return int(not x)
        case _:
            raise InternalError(f"no operation {op!r} on the host")
