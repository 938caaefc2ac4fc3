"""Split an index of which quotients and remainders are read into a quotient and a remainder.

Before: `O[w] = X[w // 2]`. After: `O[2*q + r] = X[q]` with r in 0:2. All subscripts are affine then: their strides are known,
and what is contiguous along q is read by vectors.
"""

from __future__ import annotations

from collections.abc import Iterable

from polyker.ir.dtypes import i64
from polyker.ir.expr import Call, Expr, IndexExpr, Literal, transform, walk
from polyker.ir.quasi_affine import add, coefficients, indices_of, is_quasi_affine, lit, scale
from polyker.ir.typed import TypedNode, TypedProgram, TypedStatement, replaced
from polyker.poly.scop import image
from polyker.rewrite.core.fresh import Fresh
from polyker.rewrite.core.reindex import reindexed


def split_quotients(program: TypedProgram) -> TypedProgram:
    """Return the program with the indices split of each statement that only sets elements."""
    fresh = Fresh(program)

    def change(statement: TypedStatement) -> Iterable[TypedNode]:
        if statement.op == "set" and not statement.is_ordered:
            for iterator in statement.iterators[statement.outer :]:
                statement = _split(program, fresh, statement, iterator)
        return (statement,)

    return fresh.finish(replaced(program.body, change))


def _split(program: TypedProgram, fresh: Fresh, statement: TypedStatement, iterator: str) -> TypedStatement:
    """Return a statement with an iterator split if quotients or remainders of it are read by, and all are by one number."""
    found = set[tuple[int, int]]()  # the divisor, and what is added to the iterator before
    for read in statement.reads():
        for subscript in read.subscripts:
            for node in walk(subscript) if is_quasi_affine(subscript) else ():
                if isinstance(node, Call) and node.op in ("floordiv", "mod") and iterator in indices_of(node):
                    form = _form(node, iterator)
                    if form is None:
                        return statement
                    found.add(form)
    if not found:
        return statement
    # Those of the target, of values and of places that are looked up are replaced, too.
    every = (n for e in (*statement.subscripts, statement.expr) for n in walk(e))
    found |= {form for n in every if (form := _form(n, iterator)) is not None}
    if len({d for d, _ in found}) != 1 or len({a % d for d, a in found}) != 1:
        return statement
    divisor, added = min(found)
    quotient, rest = fresh.iterator(), fresh.iterator()
    whole = add(scale(divisor, IndexExpr(quotient, i64)), IndexExpr(rest, i64), lit(-added))

    def change(node: Expr) -> Expr:
        form = _form(node, iterator)
        if form is None:
            return node
        carried = (form[1] - added) // divisor
        assert isinstance(node, Call)
        return IndexExpr(rest, i64) if node.op == "mod" else add(IndexExpr(quotient, i64), lit(carried))

    def on(expr: Expr) -> Expr:
        return transform(expr, change)

    place = statement.iterators.index(iterator)
    new = (*statement.iterators[:place], quotient, rest, *statement.iterators[place + 1 :])
    division = f"{iterator} + {added} = {divisor}*{quotient} + {rest} and 0 <= {rest} < {divisor}"
    points = image(program, statement, new, where=division)
    return reindexed(statement.rewritten(on), new, points, {iterator: whole})


def _form(node: Expr, iterator: str) -> tuple[int, int] | None:
    """Return (d, a) of `(iterator + a) // d` and `(iterator + a) % d`, None for anything else."""
    match node:
        case Call(op="floordiv" | "mod", args=(inner, Literal(value=value))) if is_quasi_affine(inner):
            parts = coefficients(inner)
            if parts is not None and {n: f for n, f in parts.items() if n and f} == {iterator: 1}:
                return int(value.real), parts.get("", 0)
    return None
