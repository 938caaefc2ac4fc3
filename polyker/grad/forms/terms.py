"""Store the terms of extrema that are computed, so that the gradient can tell which of them the extremum is.

Before: `m[i] max= x[i,j] * y[j]`. After: `m_terms[i,j] = x[i,j] * y[j]; m[i] max= m_terms[i,j]`. Computed again a term may differ
from the extremum: that was rounded when it was stored, to f16 for example.
"""

from __future__ import annotations

from collections.abc import Sequence

from polyker.grad.bound import PlainLoop, PlainNode, PlainProgram, PlainStatement
from polyker.grad.values import call
from polyker.ir.dtypes import f64
from polyker.ir.expr import Cast, Expr, IndexExpr, Literal, Range, Read
from polyker.structs import replace


def with_terms(program: PlainProgram) -> PlainProgram:
    """Return the program with such terms in tensors of their own, one element an instance of the statement."""
    shapes, dtypes, local = dict(program.shapes), dict(program.dtypes), set(program.local)

    def nodes(found: Sequence[PlainNode], around: tuple[Range, ...]) -> tuple[PlainNode, ...]:
        made: list[PlainNode] = []
        for node in found:
            if isinstance(node, PlainLoop):
                made.append(replace(node, body=nodes(node.body, (*around, node.range))))
            elif node.op in ("max", "min") and node.target not in program.constant and not is_exact(node):
                made += stored(node, (*around, *node.ranges))
            else:
                made.append(node)
        return tuple(made)

    def is_exact(s: PlainStatement) -> bool:
        """Whether the terms are what the extremum keeps of them."""
        if isinstance(s.expr, Read):
            return dtypes.get(s.expr.tensor) == dtypes[s.target]
        return isinstance(s.expr, Literal)

    def stored(s: PlainStatement, ranges: tuple[Range, ...]) -> tuple[PlainStatement, PlainStatement]:
        name = program.names.fresh(f"{s.target}_terms")
        if any(r.index in program.blocks for r in ranges):
            local.add(name)
            ranges = tuple(r for r in ranges if r.index not in program.blocks)
        shapes[name], dtypes[name] = tuple(_from_least(r.hi, r) for r in ranges), dtypes[s.target]
        at = tuple(_from_least(IndexExpr(r.index), r) for r in ranges)
        # Of a declared type the terms are converted first, as nothing declares the type of this tensor.
        kept = s.expr if dtypes[name] == f64 else Cast(dtypes[name], s.expr)
        return replace(s, target=name, subscripts=at, op="set", expr=kept), replace(s, expr=Read(name, at))

    made = nodes(program.nodes, ())
    return replace(program, nodes=made, shapes=shapes, dtypes=dtypes, local=frozenset(local))


def _from_least(place: Expr | None, r: Range) -> Expr:
    """Return a place as it is counted from the least of a range."""
    assert place is not None
    assert r.lo is not None
    return place if getattr(r.lo, "value", None) == 0 else call("add", place, call("neg", r.lo))
