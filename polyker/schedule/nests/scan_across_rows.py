"""Vectorise recurrences along the contiguous dimension with one row a lane.

    S[b,t] = S[b,t-1] + X[b,t]      for b.tile: for t: vector b.lanes: …

A row's steps are carried; the rows are independent. A vector has an element of each of its rows, which is strided: the code
generator takes as many steps as there are lanes, and transposes what is read and written in registers
(polyker.codegen.passes.by_columns).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log2

from polyker.cost.measure import MeasuredStatement, MemoryAccess
from polyker.cost.plan import TilePlan, is_costly, unit_iterator, values, vector_lanes
from polyker.ir.expr import Call, Expr, Read, children
from polyker.ir.functions import cost_of
from polyker.ir.quasi_affine import coefficients, is_quasi_affine
from polyker.ir.typed import TypedStatement
from polyker.machine.model import Target
from polyker.poly.steps import MAX_REGISTER_DISTANCE
from polyker.structs import replace

# Cycles of a vector's load or store besides log2(lanes) shuffles; of each operation and access of an element where rows go one by
# one, and of an access where they are gathered (experience values).
MOVE_CYCLES, SINGLE_ELEMENT_CYCLES, GATHERED_CYCLES = 1.0, 0.45, 1.0
# Cycles that a function of floats is waited for; twice that for doubles (experience value).
FUNCTION_LATENCY = 40.0


def across_rows(
    measured: MeasuredStatement, plan: TilePlan, free: Sequence[str], order: tuple[str, ...], target: Target
) -> TilePlan | None:
    """Return the plan by vectors along the innermost free iterator of the loops `order`, None where another one is quicker:
    rows one by one, some side by side, or vectors along `plan`'s iterator.

    The innermost loop carries the recurrence, along the result's memory.
    """
    carrying = order[-1] if order else ""
    row = next((i for i in reversed(order) if i in free), None)
    if row is None or carrying in free or not _keeps_step(measured.statement, carrying):
        return None
    write = measured.write
    if abs(write.stride(carrying)) != 1 or abs(write.stride(row)) <= 1:
        return None
    reads = [a for a in measured.accesses if not a.is_write and a.tensor != write.tensor]
    lanes, extent = vector_lanes(measured, target, row), measured.extent(row)
    if lanes < 2 or measured.extent(carrying) < 2 * lanes or not all(_suits(measured, a, row, carrying) for a in reads):
        return None
    expr, width = measured.statement.expr, write.itemsize / 4
    operations = [e for e in values(expr) if isinstance(e, Call)]
    strided = 1 + sum(abs(a.stride(row)) > 1 for a in reads)
    functions = width * sum(cost_of(e.op).usual for e in operations if is_costly(e))
    computed = len(operations) + functions
    waits = _waits(expr, write.tensor, target.fma_latency, FUNCTION_LATENCY * width) - target.fma_latency
    cost = max(computed + len(reads) + strided * (log2(lanes) + MOVE_CYCLES), waits) * -(-extent // lanes) / extent
    if plan.vector is None:
        other = SINGLE_ELEMENT_CYCLES * (len(operations) + len(reads) + 1) + functions
    elif abs(write.stride(plan.vector)) > 1:
        other = computed / lanes + GATHERED_CYCLES * strided
    else:
        other = plan.cost
    if cost >= other:
        return None
    return replace(plan, vector=row, lanes=lanes, chunks=1, others=(), cost=cost)


def _suits(measured: MeasuredStatement, access: MemoryAccess, row: str, carrying: str) -> bool:
    """Whether vectors across rows read an operand as it is, or by tiles."""
    read = access.read
    if read is None or read.pad is not None or not all(map(is_quasi_affine, read.subscripts)):
        return False
    return abs(access.stride(row)) <= 1 or unit_iterator(measured, access, row) == carrying


def _keeps_step(statement: TypedStatement, carrying: str) -> bool:
    """Whether a statement sets its elements, and reads of its own tensor only those of a few steps before along an iterator."""
    own = [r for r in statement.reads() if r.tensor == statement.target]
    return statement.op == "set" and bool(own) and all(_steps(statement, r, carrying) for r in own)


def _steps(statement: TypedStatement, read: Read, carrying: str) -> bool:
    """Whether a read is of the element of so few steps before that it is kept in a register."""
    if read.pad is not None:
        return False
    distances = set()
    for own, other in zip(statement.subscripts, read.subscripts, strict=True):
        here, there = coefficients(own), coefficients(other)
        if here is None or there is None:
            return False
        moves = here.get(carrying, 0)
        gap = here.get("", 0) - there.get("", 0)
        if {k: v for k, v in here.items() if k and v} != {k: v for k, v in there.items() if k and v}:
            return False
        if moves == 0 and gap != 0:
            return False
        if moves != 0:
            distances.add(gap / moves)
    return len(distances) == 1 and distances <= set(range(1, MAX_REGISTER_DISTANCE + 1))


def _waits(expr: Expr, own: str, latency: int, function: float) -> float:
    """Return the cycles from what an expression reads of the tensor `own` to its value, 0 where it reads nothing of it."""
    if isinstance(expr, Read):
        return float(latency) if expr.tensor == own else 0.0
    found = max((_waits(e, own, latency, function) for e in children(expr)), default=0.0)
    if not found or not isinstance(expr, Call):
        return found
    return found + (function if is_costly(expr) else latency)
