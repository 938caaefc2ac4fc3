"""Recognise statements that the threads of a block run as a scan.

    C[g+1] = C[g] + P[g]        thread g mod 256: all threads hand on what they have; the first one of the loop reads C[g]

So a recurrence's instances lie on different threads of one loop: polyker.codegen.passes.gpu.combine writes out how they meet.
"""

from __future__ import annotations

from polyker.ir.dtypes import i64
from polyker.ir.expr import Call, IndexExpr
from polyker.ir.quasi_affine import mod
from polyker.ir.typed import TypedStatement
from polyker.poly.steps import step_of
from polyker.schedule.tree.nodes import Member, MemberKind


def is_scan(statement: TypedStatement, member: Member) -> bool:
    """Return whether the instances of a step lie on different threads of a loop along x, in their order."""
    if not statement.regroups or member.kind is not MemberKind.THREAD or member.axis != "x" or member.extent < 2:
        return False
    time, steps = member.time(statement.name), [step_of(statement, i) for i in statement.iterators]
    # Code generation takes the two arguments in this order.
    return any(
        s is not None
        and statement.expr.args == (s.before, s.term)
        and time == mod(IndexExpr(s.iterator, i64), member.extent)
        for s in steps
        if isinstance(statement.expr, Call)
    )
