"""Normalise iterators whose lower bound depends on outer iterators to start at zero.

Before, below a diagonal: `A[i,j] = A[i,j] - A[i,k] * A[k,j]  for j in k+1:N`. After: `A[i,j+k+1] = A[i,j+k+1] - A[i,k] *
A[k,j+k+1]  for j in 0:N-k-1`. Tiles begin with the first value then, and only the last one of a row is cut.
"""

from __future__ import annotations

from polyker.cost.plan import values
from polyker.ir.expr import IndexExpr
from polyker.ir.quasi_affine import add, index, indices_of, print_affine
from polyker.ir.typed import TypedProgram, TypedStatement
from polyker.poly.isl import read_set
from polyker.poly.least import least_value
from polyker.poly.scop import image
from polyker.rewrite.core.reindex import reindexed


def from_zero(program: TypedProgram, statement: TypedStatement, iterator: str) -> TypedStatement:
    """Return a statement without a reduction whose iterator is counted from its least value for those of the iterators before it,
    the statement itself where that is no affine function of these."""
    place = statement.iterators.index(iterator)
    least = least_value(read_set(statement.domain), statement.iterators, place, place)
    is_a_value = any(isinstance(e, IndexExpr) and e.name == iterator for e in values(statement.expr))
    if least is None or not indices_of(least) or is_a_value:
        return statement
    onto = [f"{i} - {print_affine(least)}" if i == iterator else i for i in statement.iterators]
    there = {iterator: add(index(iterator), least)}
    return reindexed(statement, statement.iterators, image(program, statement, onto), there)
