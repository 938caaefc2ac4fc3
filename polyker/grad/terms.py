"""Store the terms of extrema that are computed, so that the gradient can tell which of them the extremum is.

Before: `m[i] max= x[i,j] * y[j]`. After: `m_terms[i,j] = x[i,j] * y[j]; m[i] max= m_terms[i,j]`. Computed again a term may differ
from the extremum: that was rounded when it was stored, to f16 for example.
"""

from __future__ import annotations

from collections.abc import Sequence

from polyker.grad.bound import PlainLoop, PlainNode, PlainProgram, PlainStatement
from polyker.grad.values import call
from polyker.ir.expr import Expr, IndexExpr, Literal, Range, Read
from polyker.structs import replace


def with_terms(program: PlainProgram) -> PlainProgram:
    """Return the program with such terms in tensors of their own, one element an instance of the statement."""
    shapes, dtypes = dict(program.shapes), dict(program.dtypes)

    def nodes(found: Sequence[PlainNode], around: tuple[Range, ...]) -> tuple[PlainNode, ...]:
        made: list[PlainNode] = []
        for node in found:
            if isinstance(node, PlainLoop):
                made.append(replace(node, body=nodes(node.body, (*around, node.range))))
            elif node.op in ("max", "min") and not isinstance(node.expr, (Read, Literal)):
                made += stored(node, (*around, *node.ranges))
            else:
                made.append(node)
        return tuple(made)

    def stored(s: PlainStatement, ranges: tuple[Range, ...]) -> tuple[PlainStatement, PlainStatement]:
        name = program.names.fresh(f"{s.target}_terms")
        shapes[name], dtypes[name] = tuple(_from_least(r.hi, r) for r in ranges), dtypes[s.target]
        at = tuple(_from_least(IndexExpr(r.index), r) for r in ranges)
        return replace(s, target=name, subscripts=at, op="set"), replace(s, expr=Read(name, at))

    return replace(program, nodes=nodes(program.nodes, ()), shapes=shapes, dtypes=dtypes)


def _from_least(place: Expr | None, r: Range) -> Expr:
    """Return a place as it is counted from the least of a range."""
    assert place is not None
    assert r.lo is not None
    return place if getattr(r.lo, "value", None) == 0 else call("add", place, call("neg", r.lo))
