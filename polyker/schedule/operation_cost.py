"""What the arithmetic of one instance of a statement costs."""

from __future__ import annotations

from polyker.ir.expr import DOTS, Call, Expr
from polyker.schedule.measure import Measured
from polyker.schedule.plan import is_costly, values
from polyker.target.model import Target

# Operations for each element of the inputs that are worth a look through these beforehand (polyker.codegen.checked_inputs).
LOOKED_THROUGH = 32


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


def takes_pairs(measured: Measured, target: Target) -> bool:
    """Whether the terms of an extremum of floats are taken two at a time and tested for NaN (polyker.codegen.pair_extrema)."""
    statement = measured.statement
    term = isinstance(statement.expr, Call) and statement.expr.op not in ("maximum", "minimum")
    pairs = statement.op in ("max", "min") and statement.acc.kind == "f" and term and target.pairs_extrema
    return pairs and not _are_looked_through(measured)


def _are_looked_through(measured: Measured) -> bool:
    """Whether there are so many terms that inputs are looked through for NaN beforehand, and the terms taken without tests."""
    elements = {a.tensor: measured.footprint(a) for a in measured.accesses if a.read is not None}
    work = measured.points * operations(measured)
    return all(hi is not None for _, hi in measured.bounds.values()) and work >= LOOKED_THROUGH * sum(elements.values())
