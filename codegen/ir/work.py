"""How much a kernel does, roughly: whether it runs for so long that other threads should run meanwhile."""

from __future__ import annotations

from collections.abc import Mapping

from polyker.codegen.ir.kernel import Allocate, For, Guard, If, KExpr, Let, Load, LoopKind, Op, StmtBlock, Store
from polyker.codegen.ir.polynomial import value_of
from polyker.codegen.ir.walk import operands
from polyker.ir.functions import cost_of


def exceeds(block: StmtBlock, sizes: Mapping[str, int], limit: int) -> bool:
    """Return whether a kernel's body does about `limit` operations or more, a vector's counted as one.

    `sizes`: the kernel's integers. Bounds and conditions that depend on the loops around them count as in the middle of
    these; where a condition cannot be told both branches count. A bound that cannot be told exceeds any limit.
    """
    return _count(block, dict(sizes), float(limit)) >= limit


def _count(block: StmtBlock, values: dict[str, int], limit: float) -> float:
    """Return the operations of a block, or any number from `limit` on."""
    total = 0.0
    for stmt in block:
        if total >= limit:
            break
        match stmt:
            case For(var=var, lo=lo, hi=hi, step=step, body=body, kind=kind):
                low, high = value_of(lo, values), value_of(hi, values)
                if low is None or high is None:
                    return limit
                trips = max(0, -(-(high - low) // step))
                if kind is LoopKind.VECTOR:
                    trips = min(trips, 1)
                if trips:
                    inside = {**values, var: low + (trips // 2) * step}
                    total += trips * ((kind is not LoopKind.UNROLL) + _count(body, inside, (limit - total) / trips))
            case If(condition=condition, body=body, orelse=orelse):
                total += cost(condition)
                holds = value_of(condition, values)
                if holds is None or holds:
                    total += _count(body, dict(values), limit - total)
                if not holds:
                    total += _count(orelse, dict(values), limit - total)
            case Allocate(body=body):
                total += _count(body, values, limit - total)
            case Let(name=name, value=value):
                total += cost(value)
                bound = value_of(value, values)
                if bound is not None:
                    values[name] = bound
            case Guard(condition=condition):
                total += cost(condition)
            case Store(value=value):
                total += 1 + cost(value)
            case _:
                total += 1
    return total


def cost(expr: KExpr) -> int:
    """Return the operations of an expression but for the arithmetic of indices, most of which the loops share."""
    total, stack = 0, [expr]
    while stack:
        node = stack.pop()
        match node:
            case Load(predicate=predicate, other=other):
                total += 1
                stack.extend(e for e in (predicate, other) if e is not None)
            case Op(op=op):
                total += cost_of(op).usual
                stack.extend(operands(node))
            case _:
                stack.extend(operands(node))
    return total
