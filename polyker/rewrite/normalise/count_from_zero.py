"""Normalise iterators whose lower bound depends on outer iterators to start at zero.

Before, below a diagonal: `A[i,j] = A[i,j] - A[i,k] * A[k,j]  for j in k+1:N`. After: `A[i,j+k+1] = A[i,j+k+1] - A[i,k] *
A[k,j+k+1]  for j in 0:N-k-1`. Tiles begin with the first value then, and only the last one of a row is cut.
"""

from __future__ import annotations

from dataclasses import replace

from polyker.ir.dtypes import i64
from polyker.ir.expr import Expr, IndexExpr, Read, children
from polyker.ir.quasi_affine import add, indices_of, print_affine, substitute
from polyker.ir.typed import TypedProgram, TypedStatement
from polyker.poly.isl import read_map, read_set
from polyker.poly.least import least_value
from polyker.poly.scop import domain_text, parameters


def from_zero(program: TypedProgram, statement: TypedStatement, iterator: str) -> TypedStatement:
    """Return a statement without a reduction whose iterator is counted from its least value for those of the iterators before it,
    the statement itself where that is no affine function of these."""
    place = statement.iterators.index(iterator)
    least = least_value(read_set(statement.domain), statement.iterators, place, place)
    if least is None or not indices_of(least) or _is_a_value(statement.expr, iterator):
        return statement
    names = statement.iterators
    onto = [f"{i} - {print_affine(least)}" if i == iterator else i for i in names]
    shift = f"{parameters(program)}{{ {statement.name}[{', '.join(names)}] -> {statement.name}[{', '.join(onto)}] }}"
    domain = read_set(statement.domain).apply(read_map(shift))
    there = {iterator: add(IndexExpr(iterator, i64), least)}
    return replace(
        statement,
        domain=domain_text(domain, statement.name),
        subscripts=tuple(substitute(s, there) for s in statement.subscripts),
        expr=substitute(statement.expr, there),
    )


def _is_a_value(expr: Expr, iterator: str) -> bool:
    """Whether an expression uses an iterator outside the subscripts of its reads."""
    if isinstance(expr, Read):
        return False
    return (isinstance(expr, IndexExpr) and expr.name == iterator) or any(
        _is_a_value(e, iterator) for e in children(expr)
    )
