"""Materialise a costly subexpression that several statements share.

Before: `S[i] += exp(X[i,l] - M[i]);  P[i,j] = exp(X[i,j] - M[i]) / S[i]`.
After: `E[i,j] = exp(X[i,j] - M[i]);  S[i] += E[i,l];  P[i,j] = E[i,j] / S[i]`.
"""

from __future__ import annotations

from collections.abc import Iterator

import islpy as isl
from msgspec import Struct

from polyker.cost.plan import HEAVY, values
from polyker.ir.dtypes import i64
from polyker.ir.expr import Call, Expr, IndexExpr, Read, reads_in, transform, walk
from polyker.ir.quasi_affine import indices, substitute
from polyker.ir.typed import TypedNode, TypedProgram, TypedStatement
from polyker.poly.scop import image
from polyker.poly.symbolic import box_of, from_least
from polyker.rewrite.core.fresh import Fresh
from polyker.structs import replace


class SharedValue(Struct, frozen=True):
    """A value that a statement computes, of `indices`, in the order in which it names them."""

    statement: TypedStatement
    expr: Expr
    indices: tuple[str, ...]

    @property
    def shape(self) -> Expr:
        """The expression with canonical names: equal for values that differ in the names of their indices alone."""
        names = {i: IndexExpr(f"k{n}", i64) for n, i in enumerate(self.indices)}
        return substitute(self.expr, names)

    def points(self, program: TypedProgram) -> isl.Set:
        """Return the values of the indices for which it is computed."""
        return image(program, self.statement, self.indices)


def share_values(program: TypedProgram) -> tuple[TypedProgram, int, tuple[str, ...]]:
    """Return the program with such values in temporaries, how many there are, and which of them pay in buffers alone.

    A value that has fewer indices than some statement reading it is small beside that statement's work: it may be stored whole.
    """
    count, held = 0, list[str]()
    while (shared := _largest(program)) is not None:
        program, name = _stored(program, Fresh(program), shared)
        count += 1
        if all(len(p.statement.iterators) == len(p.indices) for p in shared):
            held.append(name)
    return program, count, tuple(held)


def _largest(program: TypedProgram) -> list[SharedValue] | None:
    """Return the places that compute the largest such value."""
    found: dict[str, list[SharedValue]] = {}
    for node in program.body:
        if isinstance(node, TypedStatement) and not node.outer:
            for value in _costly(node):
                found.setdefault(repr(value.shape), []).append(value)
    best: tuple[int, list[SharedValue]] | None = None
    for places in found.values():
        if len({v.statement.name for v in places}) < 2:
            continue
        size = sum(1 for _ in walk(places[0].expr))
        if best is not None and size <= best[0]:
            continue
        points = places[0].points(program)
        alike = [places[0], *(p for p in places[1:] if p.points(program).is_equal(points))]
        if len({v.statement.name for v in alike}) > 1 and _keeps(program, alike):
            best = size, alike
    return best[1] if best else None


def _costly(statement: TypedStatement) -> Iterator[SharedValue]:
    """Yield the values below a statement's own that hold a costly function of what is read."""
    for e in values(statement.expr):
        parts = list(values(e))
        costly = isinstance(e, Call) and any(isinstance(p, Call) and p.op in HEAVY for p in parts)
        if costly and any(isinstance(p, Read) for p in parts):
            indices = dict.fromkeys(p.name for p in walk(e) if isinstance(p, IndexExpr))
            if indices:
                yield SharedValue(statement, e, tuple(indices))


def _keeps(program: TypedProgram, places: list[SharedValue]) -> bool:
    """Whether nothing that the value is computed from changes between the places."""
    reads = {r.tensor for r in reads_in(places[0].expr)}
    names = [n.name if isinstance(n, TypedStatement) else "" for n in program.body]
    where = [names.index(p.statement.name) for p in places]
    between = replace(program, body=program.body[min(where) : max(where)])
    return not any(s.target in reads for s in between.statements())


def _stored(program: TypedProgram, fresh: Fresh, places: list[SharedValue]) -> tuple[TypedProgram, str]:
    """Return the program that computes a value into a temporary first, and the temporary."""
    first = places[0]
    points = first.points(program)
    lows, extents = box_of(program, points, range(len(first.indices)))
    dtype = first.expr.dtype
    assert dtype is not None
    name = fresh.temporary("value", dtype, extents)
    reads = {(p.statement.name, p.expr): Read(name, from_least(indices(p.indices), lows), dtype=dtype) for p in places}
    place = name, reads[first.statement.name, first.expr].subscripts
    definition = fresh.sets(points, first.indices, place, first.expr, first.statement)
    body: list[TypedNode] = []
    for node in program.body:
        if isinstance(node, TypedStatement):
            if node is first.statement:
                # A reduction's start stays directly before it.
                starts = bool(body) and isinstance(body[-1], TypedStatement) and body[-1].target == node.target
                body.insert(len(body) - starts, definition)
            own = {e: read for (s, e), read in reads.items() if s == node.name}
            if own:
                node = replace(node, expr=transform(node.expr, lambda e, own=own: own.get(e, e)))  # type: ignore[misc]
        body.append(node)
    return fresh.finish(tuple(body)), name
