"""What the arithmetic of one instance of a statement costs."""

from __future__ import annotations

from polyker.ir.expr import DOTS, Call, Expr
from polyker.schedule.measure import Measured
from polyker.schedule.plan import is_costly, values


def scalar_cost(measured: Measured) -> float:
    """Return the cycles for one point of the iteration domain without vectors."""
    return 1.0 + 0.7 * len(measured.accesses) + operations(measured)


def operations(measured: Measured) -> float:
    """Return the arithmetic of one instance in multiply-adds; a product that is summed is one."""
    count = 0.0
    nodes = list(values(measured.statement.expr))
    differences = {id(x) for e in nodes if isinstance(e, Call) and e.op == "add" for x in e.args if _is_negated(x)}
    for e in nodes:
        if isinstance(e, Call) and e.op not in DOTS and id(e) not in differences:
            steps = 12.0 if is_costly(e) else 1 if e.op == "multiply_add" else max(1, len(e.args) - 1)
            count += steps * _parts_of(e)
    expr, one = measured.statement.expr, 2 if measured.statement.acc.is_complex else 1
    fused = ("mul", "pow", *DOTS)
    if measured.statement.op == "add" and isinstance(expr, Call) and expr.op in fused and not is_costly(expr):
        return max(count, float(one))
    return count + one * (measured.statement.op != "set")


def _is_negated(expr: Expr) -> bool:
    return isinstance(expr, Call) and expr.op == "neg"


def _parts_of(call: Call) -> int:
    """Return how many real operations one of a call's stands for: a complex product is four multiply-adds, a sum two."""
    if call.dtype is None or not call.dtype.is_complex:
        return 1
    return 4 if call.op in ("mul", "pow") else 2
