"""Say how many terms a mean has by its sizes, which have no type of their own.

Before: `c += 1 for j in 0:M; m[i] = s[i] / c`. After: `m[i] = s[i] / M`: a count in a tensor would make f64 of f32.
A count whose terms are chosen by a condition stays.
"""

from __future__ import annotations

from collections.abc import Iterable

from polyker.grad.bound import PlainLoop, PlainNode, PlainProgram, PlainStatement
from polyker.grad.values import call
from polyker.ir.expr import Expr, Literal, Read, rebuild
from polyker.ir.quasi_affine import indices_of
from polyker.structs import replace


def with_counts(program: PlainProgram) -> PlainProgram:
    """Return the program that reads sizes for such counts."""
    counts = {
        s.target: count
        for s in program.statements
        if (count := _count(s)) is not None and [w.target for w in program.statements].count(s.target) == 1
    }

    def change(e: Expr) -> Expr:
        return counts[e.tensor] if isinstance(e, Read) and e.tensor in counts else rebuild(e, change)

    def nodes(found: Iterable[PlainNode]) -> tuple[PlainNode, ...]:
        return tuple(
            replace(n, body=nodes(n.body)) if isinstance(n, PlainLoop) else n.rewritten(change)
            for n in found
            if isinstance(n, PlainLoop) or n.target not in counts
        )

    return replace(program, nodes=nodes(program.nodes)) if counts else program


def _count(s: PlainStatement) -> Expr | None:
    """Return how many ones a statement adds up in each element, None where it does something else."""
    if s.op != "add" or not isinstance(s.expr, Literal) or s.expr.value != 1:
        return None
    kept = frozenset().union(*map(indices_of, s.subscripts))
    reduced = [r for r in s.ranges if r.index not in kept]
    if not reduced or frozenset(r.index for r in reduced) & frozenset().union(*map(indices_of, s.conditions)):
        return None
    extents = [call("add", r.hi, call("neg", r.lo)) for r in reduced if r.lo is not None and r.hi is not None]
    return extents[0] if len(extents) == 1 else call("mul", *extents)
