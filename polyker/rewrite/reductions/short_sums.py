"""Unroll short reductions into expressions.

Before: `T[i] = 0;  T[i] += A[i+r] * B[i+r]  for r in 0:3`. After: `T[i] = fma(A[i+2], B[i+2], fma(A[i+1], B[i+1], fma(A[i], B[i],
0)))`. As a value it can be computed where it is read, with the others that read the same elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

from polyker.ir.dtypes import DType
from polyker.ir.expr import Call, Expr, IndexExpr, Literal
from polyker.ir.quasi_affine import indices_of, is_quasi_affine, lit, substitute
from polyker.ir.typed import Role, TypedLoop, TypedProgram, TypedStatement, statements_of
from polyker.poly.boxes import free_range
from polyker.poly.isl import Set, read_set
from polyker.poly.scop import elements_written, image
from polyker.rewrite.core.accumulate import COMBINE, starts_fresh
from polyker.rewrite.core.fresh import identity
from polyker.rewrite.core.reindex import reindexed, replaced_after
from polyker.structs import replace

# Most terms of a sum that is unrolled, and of a padded sum in a time loop, which has no other way (experience values; bound the
# code).
MAX_UNROLLED_TERMS, MAX_UNROLLED_PADDED_TERMS = 16, 32


def unfold_sums(program: TypedProgram, only: frozenset[str]) -> TypedProgram:
    """Return the program in which the short reductions into the temporaries `only` are values."""
    return _unfolded(program, only, MAX_UNROLLED_TERMS)


def unfold_padded(program: TypedProgram) -> TypedProgram:
    """Return the program in which short sums of a time loop over padded elements that the loop itself writes are values.

    There is no place outside the loop to copy such elements to with their padding; a value is split where its reads are affine.
    """
    found = set[str]()
    for loop in program.body:
        inside = list(statements_of((loop,))) if isinstance(loop, TypedLoop) else []
        written = {s.target for s in inside}
        for s in inside:
            if s.op != "set" and any(r.pad is not None and r.tensor in written for r in s.reads()):
                found.add(s.target)
    made = _unfolded(program, frozenset(found), MAX_UNROLLED_PADDED_TERMS) if found else program
    return program if made.body == program.body else made


def _unfolded(program: TypedProgram, only: frozenset[str], most: int) -> TypedProgram:
    def change(start: TypedStatement | None, node: TypedStatement) -> list[TypedStatement] | None:
        value = _value(program, start, node, most) if node.target in only and start is not None else None
        return None if value is None else [value]

    return replace(program, body=replaced_after(program.body, change, inside=True))


def short_sums(program: TypedProgram) -> frozenset[str]:
    """Return the temporaries of reductions that can be written out, and whose terms no other elements of the result share.

    (A tile of a product of matrices in registers uses what it loads for several elements.)
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
    kept = set(statement.kept)
    moved = [{i for s in r.subscripts for i in indices_of(s)} & kept for r in statement.reads()]
    return all(not m or m == kept for m in moved)


def _value(
    program: TypedProgram, start: TypedStatement, statement: TypedStatement, most: int = MAX_UNROLLED_TERMS
) -> TypedStatement | None:
    """Return the statement that computes all terms of a reduction at once, None where they are many or not a box."""
    reduced = statement.reduced
    if not reduced or statement.in_order or statement.acc != program.tensor(statement.target).dtype:
        return None
    if not (_starts_step(program, start, statement) if statement.outer else starts_fresh(program, start, statement)):
        return None
    if not all(is_quasi_affine(s) for r in statement.reads() for s in r.subscripts):
        return None
    domain = read_set(statement.domain)
    points = few_points(domain, [statement.iterators.index(i) for i in reduced], most)
    if points is None:
        return None
    value: Expr = start.expr
    for point in points:
        at = {i: lit(n) for i, n in zip(reduced, point, strict=True)}
        value = combined(statement.op, statement.acc, value, substitute(statement.expr, at))
    whole = replace(statement, op="set", expr=value, defines=None, seldom=frozenset())
    made = reindexed(whole, statement.kept, image(program, statement, statement.kept), {}, reduced=())
    # Elements without terms keep the identity.
    if statement.outer:
        return made if read_set(start.domain).set_tuple_name(made.name).is_subset(read_set(made.domain)) else None
    reached = elements_written(program, made)
    return made if read_set(start.domain).set_tuple_name(made.target).is_subset(reached) else None


def few_points(domain: Set, dimensions: Sequence[int], most: int) -> list[tuple[int, ...]] | None:
    """Return the values of dimensions that are the same whatever the others are, in order; None where these are more."""
    found = [free_range(domain, d) for d in dimensions]
    ranges = [range(r[0], r[1] + 1) for r in found if r is not None]
    return None if len(ranges) < len(found) or prod(map(len, ranges)) > most else list(product(*ranges))


def _starts_step(program: TypedProgram, start: TypedStatement, statement: TypedStatement) -> bool:
    """Whether `start` sets, in the same iteration of the loops around, the elements that a reduction reaches to the identity."""
    outer, kept = statement.outer, statement.kept
    if start.outer != outer or start.op != "set" or start.target != statement.target or statement.reads_own:
        return False
    if start.expr != identity(statement.op, program.tensor(statement.target).dtype):
        return False
    own = tuple(s.name for s in statement.subscripts if isinstance(s, IndexExpr))
    set_ = [s.name for s in start.subscripts if isinstance(s, IndexExpr)]
    # A temporary of an inline reduction has a dimension for each loop around.
    if own not in (kept, kept[outer:]) or set_ != list(start.iterators)[len(kept) - len(own) :]:
        return False
    reached = image(program, statement, kept, start.name)
    return (
        len(set_) == len(start.subscripts)
        and len(kept) == len(start.iterators)
        and bool(reached.is_subset(read_set(start.domain)))
    )


def combined(op: str, acc: DType, total: Expr, term: Expr) -> Expr:
    """Return a total and a term combined; the product of a term of a sum is added to it with one rounding."""
    fused = op == "add" and acc.kind == "f" and acc.itemsize >= 4
    match term:
        case Call(op="mul", args=(x, y)) if fused:
            return Call("multiply_add", (x, y, total), acc)
        case Call(op="pow", args=(x, Literal(value=2))) if fused:
            return Call("multiply_add", (x, x, total), acc)
        case _:
            return Call(COMBINE[op], (total, term), acc)
