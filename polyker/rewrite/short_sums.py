"""Reductions of a few terms as plain values.

Before: `T[i] = 0;  T[i] += A[i+r] * B[i+r]  for r in 0:3`. After: `T[i] = fma(A[i+2], B[i+2], fma(A[i+1], B[i+1], fma(A[i], B[i],
0)))`. As a value it can be computed where it is read, with the others that read the same cells.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import prod

from polyker.ir.expr import Call, Expr, Literal
from polyker.ir.quasi_affine import indices_of, is_quasi_affine, lit, substitute
from polyker.ir.typed import Role, TypedNode, TypedProgram, TypedStatement
from polyker.poly.boxes import corners
from polyker.poly.isl import dim, read_map, read_set
from polyker.poly.scop import access_relation, domain_text
from polyker.rewrite.accumulate import COMBINE, starts_fresh

# Terms that are written out, at most.
MOST_TERMS = 16


def unfold_sums(program: TypedProgram, only: frozenset[str]) -> TypedProgram:
    """Return the program in which the short reductions into the temporaries `only` are values."""
    body: list[TypedNode] = []
    for node in program.body:
        start = body[-1] if body and isinstance(body[-1], TypedStatement) else None
        if isinstance(node, TypedStatement) and node.target in only and start is not None:
            value = _value(program, start, node)
            if value is not None:
                body[-1] = value
                continue
        body.append(node)
    return replace(program, body=tuple(body))


def short_sums(program: TypedProgram) -> frozenset[str]:
    """Return the temporaries of reductions that can be written out, and whose terms no other cells of the result share.

    (A tile of a product of matrices in registers uses what it loads for several cells.)
    """
    found = set()
    for before, node in zip(program.body, program.body[1:], strict=False):
        if isinstance(before, TypedStatement) and isinstance(node, TypedStatement):
            temporary = program.tensor(node.target).role is Role.TEMPORARY and node.op != "set" and not node.in_order
            if temporary and _is_apart(node) and _value(program, before, node) is not None:
                found.add(node.target)
    return frozenset(found)


def _is_apart(statement: TypedStatement) -> bool:
    """Whether each read moves with all iterators of the result, or with none."""
    kept = set(statement.iterators) - set(statement.reduced)
    moved = [{i for s in r.subscripts for i in indices_of(s)} & kept for r in statement.reads()]
    return all(not m or m == kept for m in moved)


def _value(program: TypedProgram, start: TypedStatement, statement: TypedStatement) -> TypedStatement | None:
    """Return the statement that computes all terms of a reduction at once, None where they are many or not a box."""
    reduced = statement.reduced
    if (
        not reduced
        or statement.acc != program.tensor(statement.target).dtype
        or not starts_fresh(program, start, statement)
    ):
        return None
    if not all(is_quasi_affine(s) for r in statement.reads() for s in r.subscripts):
        return None
    box = corners(read_set(statement.domain))
    if box is None:
        return None
    ranges = [range(low, high + 1) for i, (low, high) in zip(statement.iterators, box, strict=True) if i in reduced]
    if prod(map(len, ranges)) > MOST_TERMS:
        return None
    value: Expr = start.expr
    for point in product(*ranges):
        at = {i: lit(n) for i, n in zip((i for i in statement.iterators if i in reduced), point, strict=True)}
        value = _combined(statement, value, substitute(statement.expr, at))
    kept = tuple(i for i in statement.iterators if i not in reduced)
    cells = read_set(statement.domain)
    for d in reversed(range(len(statement.iterators))):
        if statement.iterators[d] in reduced:
            cells = cells.project_out(dim.set, d, 1)
    made = TypedStatement(
        statement.name, kept, statement.outer, domain_text(cells, statement.name), statement.target,
        statement.subscripts, "set", value, statement.acc, (), statement.span,
    )  # fmt: skip
    target = read_map(access_relation(program, made, made.target, made.subscripts))
    reached = read_set(made.domain).apply(target)
    # Cells without terms keep the identity.
    return made if read_set(start.domain).set_tuple_name(made.target).is_subset(reached) else None


def _combined(statement: TypedStatement, total: Expr, term: Expr) -> Expr:
    """Return a total and a term combined; the product of a term of a sum is added to it with one rounding."""
    acc = statement.acc
    match term:
        case Call(op="mul", args=(x, y)) if statement.op == "add" and acc.kind == "f" and acc.itemsize >= 4:
            return Call("multiply_add", (x, y, total), acc)
        case Call(op="pow", args=(x, Literal(value=2))) if (
            statement.op == "add" and acc.kind == "f" and acc.itemsize >= 4
        ):
            return Call("multiply_add", (x, x, total), acc)
        case _:
            return Call(COMBINE[statement.op], (total, term), acc)
