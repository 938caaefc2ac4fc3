"""Loops that run from the last iteration to the first, and those that a recurrence stands for."""

from __future__ import annotations

from collections.abc import Sequence

from polyker.grad.bound import PlainStatement
from polyker.grad.values import is_whole, minus, plus
from polyker.ir.expr import Expr, IndexExpr, Range, reads_in, rebuild
from polyker.ir.program import Loop, Node, Statement
from polyker.ir.quasi_affine import indices_of, lit
from polyker.structs import replace


def carrying_indices(s: PlainStatement) -> frozenset[str]:
    """Return the indices along which a statement computes elements of its target from others of it."""
    found: set[str] = set()
    for read in reads_in(s.expr):
        if read.tensor == s.target:
            for here, there in zip(s.subscripts, read.subscripts, strict=True):
                if here != there:
                    found |= indices_of(here) | indices_of(there)
    return frozenset(found) & {r.index for r in s.ranges}


def downwards(over: Range, body: Sequence[Node], first: Sequence[Node] = ()) -> Loop:
    """Return a loop whose iterations come in the other order; each begins with nodes `first`."""
    index, lo, hi = over.index, over.lo, over.hi
    assert lo is not None
    assert hi is not None
    last = minus(hi, lit(1)) if is_whole(lo, 0) else minus(plus(lo, hi), lit(1))
    mirrored = minus(last, IndexExpr(index))

    def change(e: Expr) -> Expr:
        return mirrored if isinstance(e, IndexExpr) and e.name == index else rebuild(e, change)

    def node(n: Node) -> Node:
        if isinstance(n, Loop):
            return replace(n, body=tuple(map(node, n.body)))
        return replace(
            n,
            subscripts=tuple(map(change, n.subscripts)),
            expr=change(n.expr),
            conditions=tuple(map(change, n.conditions)),
        )

    return Loop(over, tuple(map(node, (*first, *body))))


def nested(body: Sequence[Node], ranges: Sequence[Range]) -> list[Node]:
    """Return statements in loops of some of their ranges, each from its last iteration to its first."""
    indices = {r.index for r in ranges}
    made: list[Node] = [
        replace(s, ranges=tuple(r for r in s.ranges if r.index not in indices)) if isinstance(s, Statement) else s
        for s in body
    ]
    for r in reversed(ranges):
        made = [downwards(r, made)]
    return made
