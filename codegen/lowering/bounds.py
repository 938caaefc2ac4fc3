"""Bounds of isl's loops in Kernel IR."""

from __future__ import annotations

from polyker.codegen.ir.kernel import Const, KExpr, Op
from polyker.ir.expr import Call, Expr, Literal
from polyker.schedule.tree.nodes import Member, MemberKind


def least_start(
    lo: KExpr, hi: KExpr, least: int | None, end: int | None, step: int, member: Member | None
) -> int | None:
    """Return a constant that a loop inside a tile may start from, under a condition; None where it starts at one, or may not.

    `for v in range(max(0, e), min(6, f))`, or `range(e, 6)`, of at most 6 iterations: 0. So the places that it is unrolled to,
    or its vectors, are constants, and what lies there can be in registers. `least`, `end`: what is known of lo and hi.
    """
    if member is None or member.kind not in (MemberKind.UNROLL, MemberKind.VECTOR) or step != 1:
        return None
    places = all(_is_place(time, member.extent) for _, time in member.times)
    if isinstance(lo, Const):
        # A vector that began at its fifth lane would lie across two of a tile.
        return 0 if member.kind is MemberKind.VECTOR and places and lo.value != 0 else None
    if member.kind is MemberKind.UNROLL and places:
        return 0
    if isinstance(hi, Const):
        before = int(hi.value.real) - member.extent
        least = before if least is None else max(least, before)
    return least if least is not None and end is not None and end <= least + member.extent else None


def _is_place(time: Expr, extent: int) -> bool:
    """Whether a time is below an extent by what it is: a value modulo that."""
    match time:
        case Call(op="mod", args=(_, Literal(value=value))):
            return value == extent
        case _:
            return False


def plus_one(bound: KExpr) -> KExpr:
    """Return a bound plus one: an inclusive bound as one that is not."""
    match bound:
        case Const(value=value):
            return Const(int(value.real) + 1)
        case Op(op="sub", args=(a, Const(value=1))):
            return a
        case Op(op="minimum", args=args):
            return Op("minimum", tuple(plus_one(a) for a in args))
        case _:
            return Op("add", (bound, Const(1)))
