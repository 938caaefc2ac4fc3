"""Drop reduction indices with one value.

Before: `O[f,h,w] += X[c,h+r,w+s] * K[f,c,r,s]` with r and s in 0:1. After: `O[f,h,w] += X[c,h,w] * K[f,c,r,s]`: no window is
left, and h and w walk dimensions of X together, as in O (polyker.rewrite.indexing.collapse_dims).
"""

from __future__ import annotations

from collections.abc import Mapping

from polyker.ir.dtypes import i64
from polyker.ir.expr import Expr, IndexExpr, Read, reads_in, transform
from polyker.ir.quasi_affine import add, coefficients, indices_of, is_quasi_affine, lit, scale, substitute
from polyker.ir.typed import TypedProgram, TypedStatement, replaced
from polyker.poly.boxes import ends
from polyker.poly.isl import read_set
from polyker.structs import replace


def fix_single_values(program: TypedProgram) -> TypedProgram:
    """Return the program with the value of an index in its place where it has one and a subscript moves with others, too.

    What is strided along the others stays as it is.
    """
    return replace(program, body=replaced(program.body, lambda statement: (_fixed(statement),)))


def _fixed(statement: TypedStatement) -> TypedStatement:
    names = {i for r in reads_in(statement.expr) for s in r.subscripts if _is_sum(s) for i in indices_of(s)}
    if not names:
        return statement
    domain = read_set(statement.domain)
    if domain.is_empty():
        return statement
    values: dict[str, Expr] = {}
    for dimension, name in enumerate(statement.iterators):
        if name in names and (found := ends(domain, dimension)) is not None and found[0] == found[1]:
            values[name] = lit(found[0])
    if not values:
        return statement

    def change(expr: Expr) -> Expr:
        if not isinstance(expr, Read):
            return expr
        return replace(expr, subscripts=tuple(_folded(s, values) if _is_sum(s) else s for s in expr.subscripts))

    return replace(statement, expr=transform(statement.expr, change))


def _folded(subscript: Expr, values: Mapping[str, Expr]) -> Expr:
    """Return an affine subscript with the values in it and one constant. One that has a stride then stays as it is: a copy of its
    windows has none (polyker.rewrite.materialise.unfold_windows)."""
    fixed = substitute(subscript, values)
    parts, names = coefficients(fixed), indices_of(fixed)
    if parts is None or not set(parts) <= {*names, ""} or any(abs(parts[n]) > 1 for n in names):
        return subscript
    return add(*(scale(f, IndexExpr(n, i64)) for n, f in parts.items() if n and f), lit(parts.get("", 0)))


def _is_sum(subscript: Expr) -> bool:
    """Whether a subscript moves with several indices."""
    return not isinstance(subscript, IndexExpr) and is_quasi_affine(subscript) and len(indices_of(subscript)) > 1
