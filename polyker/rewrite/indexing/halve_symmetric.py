"""Compute symmetric results on one side of the diagonal, and copy them to the other.

Before: `C[i,j] += A[k,i] * A[k,j]`. After: the same for j <= i, then `C[i,j] = C[j,i]` for j > i. A reduction is symmetric in
two of its indices if they have the same values and it is the same, its factors in another order, with the two exchanged.
"""

from __future__ import annotations

from itertools import combinations
from math import prod

from polyker.ir.decision import Decision
from polyker.ir.expr import Call, Expr, IndexExpr, Literal, Read, transform
from polyker.ir.quasi_affine import renaming, substitute
from polyker.ir.typed import Role, TypedProgram, TypedStatement
from polyker.poly.boxes import corners
from polyker.poly.isl import read_map, read_set
from polyker.poly.scop import domain_text, image
from polyker.rewrite.core.accumulate import starts_fresh
from polyker.rewrite.core.fresh import Fresh
from polyker.rewrite.core.reindex import replaced_after
from polyker.structs import replace

# Least rows of results, terms of each result, and terms of all, so that half of the work exceeds the copy and the partial tiles
# at the diagonal (experience values).
MIN_SYMMETRIC_ROWS, MIN_TERMS_PER_RESULT, MIN_TOTAL_TERMS = 48, 64, 2 << 20
COMMUTATIVE = frozenset({"add", "mul", "maximum", "minimum", "and", "or", "bit_and", "bit_or", "bit_xor"})


def halve_symmetric(program: TypedProgram) -> tuple[TypedProgram, tuple[Decision, ...]]:
    """Return the program with one half of each symmetric result computed, and which these are in words."""
    if program.sizes:
        return program, ()
    fresh, notes = Fresh(program), list[Decision]()

    def change(before: TypedStatement | None, node: TypedStatement) -> list[TypedStatement] | None:
        pair = None if before is None else _pair(program, before, node)
        if before is None or pair is None:
            return None
        half, copy = _halves(fresh, node, *pair)
        chosen = f"is symmetric in {' and '.join(pair)}; one half is computed, the other copied"
        notes.append(Decision(node.name, chosen))
        return [_without(before, copy), half, copy]

    body = replaced_after(program.body, change)
    return fresh.finish(body), tuple(notes)


def _pair(program: TypedProgram, start: TypedStatement, statement: TypedStatement) -> tuple[str, str] | None:
    """Return the two indices that a reduction is symmetric in, None where it is in none, or little is saved."""
    target = program.tensor(statement.target)
    if not statement.reduced or statement.in_order or target.dtype != statement.acc or target.role is Role.INOUT:
        return None
    if statement.reads_own:
        return None
    names = [s.name for s in statement.subscripts if isinstance(s, IndexExpr)]
    pairs = [pair for pair in combinations(names, 2) if _is_same(statement.expr, *pair)]
    if not pairs or not starts_fresh(program, start, statement):
        return None
    box = corners(read_set(statement.domain))
    if box is None:
        return None
    ends = dict(zip(statement.iterators, box, strict=True))
    extents = {i: greatest - least + 1 for i, (least, greatest) in ends.items()}
    if prod(extents[i] for i in statement.reduced) < MIN_TERMS_PER_RESULT or prod(extents.values()) < MIN_TOTAL_TERMS:
        return None
    return next((p for p in pairs if ends[p[0]] == ends[p[1]] and extents[p[0]] >= MIN_SYMMETRIC_ROWS), None)


def _is_same(expr: Expr, i: str, j: str) -> bool:
    """Whether a value is the same with two indices exchanged."""
    transposed = substitute(expr, renaming({i: j, j: i}))
    return transposed != expr and repr(transform(transposed, _ordered)) == repr(transform(expr, _ordered))


def _ordered(expr: Expr) -> Expr:
    """Return an operation with its operands sorted where it does not care for their order; these are sorted inside."""
    match expr:
        case Call(op=op, args=args) if op in COMMUTATIVE:
            return replace(expr, args=tuple(sorted(args, key=repr)))
        # What does not care for the sign of a difference: x - y is x + -y.
        case Call(op="abs", args=(Call(op="add") as inner,)):
            return replace(expr, args=(_either(inner),))
        case Call(op="pow", args=(Call(op="add") as inner, Literal(value=2) as two)):
            return replace(expr, args=(_either(inner), two))
    return expr


def _either(total: Call) -> Call:
    """Return a sum or the same with all signs changed, whichever comes first by its text."""
    negated = (a.args[0] if isinstance(a, Call) and a.op == "neg" else Call("neg", (a,), a.dtype) for a in total.args)
    other = replace(total, args=tuple(sorted(negated, key=repr)))
    return min(total, other, key=repr)


def _without(start: TypedStatement, copy: TypedStatement) -> TypedStatement:
    """Return a start without the elements that a copy sets later."""
    elements = [s.name for s in start.subscripts if isinstance(s, IndexExpr)]
    names = [s.name for s in copy.subscripts if isinstance(s, IndexExpr)]
    if len(names) < len(copy.subscripts) or len(elements) < len(start.subscripts):
        return start
    copied = read_set(copy.domain).reset_tuple_id()
    at = read_map(f"{{ [{', '.join(elements)}] -> [{', '.join(start.iterators)}] }}")
    transposed = read_map(f"{{ [{', '.join(copy.iterators)}] -> [{', '.join(names)}] }}")
    domain = read_set(start.domain).reset_tuple_id().subtract(copied.apply(transposed).apply(at))
    return replace(start, domain=domain_text(domain.coalesce(), start.name))


def _halves(fresh: Fresh, statement: TypedStatement, i: str, j: str) -> tuple[TypedStatement, TypedStatement]:
    """Return the reduction on one side of the diagonal, and the copy."""
    domain = read_set(statement.domain).reset_tuple_id()
    side = read_set(f"{{ [{', '.join(statement.iterators)}] : {j} <= {i} }}")
    half = replace(statement, domain=domain_text(domain.intersect(side), statement.name))
    transposed = statement.substituted(renaming({i: j, j: i})).subscripts
    value, place = Read(statement.target, transposed, dtype=statement.acc), (statement.target, statement.subscripts)
    points = image(fresh.program, statement, statement.kept, where=f"{j} > {i}")
    return half, fresh.sets(points, statement.kept, place, value, statement)
