"""Emit VECTOR loops: one vector instruction for all iterations, masked where they may be fewer than its lanes."""

from __future__ import annotations

from polyker.codegen.ir.kernel import For
from polyker.codegen.ir.polynomial import as_constant, atom, constant, minus, plus
from polyker.codegen.llvm.access.memory import ActiveLanes
from polyker.codegen.llvm.access.scope import LANE
from polyker.codegen.llvm.operations import integer_extremum
from polyker.codegen.llvm.statements import Statements
from polyker.codegen.llvm.text import Reg, const, prefix_mask, vector


def vector_loop(code: Statements, loop: For) -> None:
    """Emit a VECTOR loop, as it is in the copy of the UNROLL loops around."""
    found = code.in_copies.of(loop, code.at)
    if found is not None:
        _vector(code, found)


def _vector(code: Statements, loop: For) -> None:
    e, b, count = code.e, code.b, loop.lanes
    lo = e.poly(loop.lo)
    length = minus(e.poly(loop.hi), lo) if loop.trip is None else constant(loop.trip)
    known = as_constant(length)
    if known is not None and known <= 0:
        return
    if count == 1:
        if known is None:
            positive = b.compare("icmp sgt", e.uniform(length), const(0, "i64"))
            code.branch(positive, (For(loop.var, loop.lo, loop.hi, loop.body, trip=1),), ())
        else:
            code.bound_block(loop.var, lo, loop.body)
        return
    if known is None:
        lanes = leading(code, e.uniform(length), count, surely=code.facts.positive(loop.hi, lo))
    elif known < count:
        lanes = ActiveLanes(count, prefix_mask(known, count))
    else:
        lanes = ActiveLanes(count)
    e.around(lanes, loop.body)
    code.bound_block(loop.var, plus(lo, atom(LANE)), loop.body)
    e.around(ActiveLanes(1))


def leading(code: Statements, length: Reg, count: int, *, surely: bool) -> ActiveLanes:
    """Return the lanes k < length, which is at most `count`; `surely`: it is known to be positive.

    Compared in integers as wide as the vector register allows.
    """
    b = code.b
    elem = f"i{min(64, max(8, 8 * code.target.vector_bytes // count))}"
    bounded = length if surely else integer_extremum(b, "smax", length, const(0, "i64"))
    narrow = b.convert("trunc", bounded, elem)
    mask = b.compare("icmp ult", vector(list(range(count)), elem), narrow)
    return ActiveLanes(count, mask, None if surely else b.compare("icmp sgt", length, const(0, "i64")))
