"""Say how many terms a mean has by its sizes, which have no type of their own.

Before: `c += 1 for j in 0:M; m[i] = s[i] / c`. After: `m[i] = s[i] / M`: a count in a tensor would make f64 of f32.
Of a count whose terms are chosen by a condition, the ones are given the type of the terms of the sum that it divides:
`c += clip(x[i,j], 1, 1) where j <= i`.
"""

from __future__ import annotations

from collections.abc import Iterable

from polyker.grad.bound import PlainLoop, PlainNode, PlainProgram, PlainStatement
from polyker.grad.values import call, where
from polyker.ir.expr import Call, Expr, IndexExpr, Literal, Read, rebuild, walk
from polyker.ir.quasi_affine import indices_of, substitute
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

    made = replace(program, nodes=nodes(program.nodes)) if counts else program
    return _typed(made)


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


def _typed(program: PlainProgram) -> PlainProgram:
    """Return the program with ones of the type of what is summed, in counts that sums are divided by."""
    writers = {s.target: s for s in program.statements if s.op == "add"}
    sums: dict[str, PlainStatement] = {}
    for e in (e for s in program.statements for e in walk(s.expr)):
        match e:
            case Call(op="div", args=(Read(tensor=total), Read(tensor=count))) if {total, count} <= writers.keys():
                sums[count] = writers[total]

    def node(n: PlainNode) -> PlainNode:
        if isinstance(n, PlainLoop):
            return replace(n, body=tuple(map(node, n.body)))
        if n is not writers.get(n.target) or n.target not in sums or not _is_count(n.expr):
            return n
        total = sums[n.target]
        if len(total.ranges) != len(n.ranges):
            return n
        here = {t.index: IndexExpr(c.index) for t, c in zip(total.ranges, n.ranges, strict=True)}
        term = substitute(total.expr, here)
        if isinstance(term, Call) and term.op == "where":  # what is not chosen adds 0
            term = term.args[1]

        one = call("clip", term, Literal(1.0), Literal(1.0))
        return replace(n, expr=where(n.expr.args[0], one) if isinstance(n.expr, Call) else one)

    return replace(program, nodes=tuple(map(node, program.nodes))) if sums else program


def _is_count(expr: Expr) -> bool:
    """Whether a term is 1, or 1 where a condition holds and else 0."""
    match expr:
        case Literal(value=1) | Call(op="where", args=(_, Literal(value=1), Literal(value=0))):
            return True
    return False
