"""Rewrite scattered reductions to gather form: each element reduces the terms that fall into it.

Before, a transposed convolution: several pairs (h, r) fall into one element, and no two instances of different h can run at once.

    O[2h+r] += X[h] * K[r]  for r in 0:4

After, with r = 2t + s and q = h + t, whose elements 2q + s are all different:

    O[2q+s] += X[q-t] * K[2t+s]  for s in 0:2, over t in 0:2 where q-t is an h

Either may count down: of `R[h-r+3] += X[h] * Y[r]` element q+3 sums X[q+t] * Y[t].
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from polyker.ir.dtypes import i64
from polyker.ir.expr import Expr, IndexExpr
from polyker.ir.quasi_affine import add, coefficients, indices_of, lit, scale, subtract
from polyker.ir.typed import TypedProgram, TypedStatement, replaced
from polyker.poly.boxes import ends, is_free
from polyker.poly.isl import Set, read_set
from polyker.poly.scop import image
from polyker.poly.symbolic import expected
from polyker.rewrite.core.fresh import Fresh
from polyker.rewrite.core.reindex import reindexed
from polyker.structs import replace


def gather_terms(
    program: TypedProgram, is_better: Callable[[TypedProgram, TypedStatement, TypedStatement], bool]
) -> TypedProgram:
    """Return the program with scattered reductions along a stride in gather form: each element reduces its own terms.

    `is_better`: whether a statement (the second one) is cheaper than what it would replace.
    """
    fresh = Fresh(program)

    def change(statement: TypedStatement) -> list[TypedStatement]:
        made = statement
        while (found := _scattered(program, made)) is not None:
            made = _gathered(program, fresh, made, found)
        return [made if made is not statement and is_better(program, statement, made) else statement]

    body = replaced(program.body, change)
    return program if body == program.body else fresh.finish(body)


class _Window(Struct, frozen=True):
    """A dimension `stride * ways[0] * h + ways[1] * r` of the target, ways being 1 or -1, of which several pairs are one
    element."""

    h: str
    r: str
    stride: int
    ways: tuple[int, int]


def _scattered(program: TypedProgram, statement: TypedStatement) -> _Window | None:
    """Return a dimension of the target of which several pairs of values are one element; None if there is none."""
    if statement.op == "set" or statement.outer or statement.in_order or statement.reads_own:
        return None
    forms = [coefficients(s) for s in statement.subscripts]
    if any(f is None for f in forms):
        return None
    domain = read_set(statement.domain).intersect_params(read_set(program.context))
    for d, form in enumerate(forms):
        moving = {i: c for i, c in (form or {}).items() if i and c}
        elsewhere = {i for n, s in enumerate(statement.subscripts) if n != d for i in indices_of(s)}
        if len(moving) != 2 or not moving.keys() <= {*statement.iterators} - elsewhere - {*statement.reduced}:
            continue
        # Phases of a stride count up.
        taps = [i for i, c in moving.items() if c == 1 or (c == -1 and {abs(n) for n in moving.values()} == {1})]
        counts = {i: _count(program, domain, statement.iterators.index(i)) for i in taps}
        known = {i: n for i, n in counts.items() if n is not None}
        if known:
            r = min(known, key=lambda i: known[i])  # the shorter of two counts the terms of an element
            (h,) = moving.keys() - {r}
            if 1 <= abs(moving[h]) < known[r]:
                return _Window(h, r, abs(moving[h]), (1 if moving[h] > 0 else -1, moving[r]))
    return None


def _count(program: TypedProgram, domain: Set, dimension: int) -> int | None:
    """Return how many values a dimension has from 0 on, the expected number where sizes decide; None where others decide."""
    if not is_free(domain, dimension):
        return None
    found = ends(expected(program, domain), dimension)
    return None if found is None or found[0] != 0 else found[1] + 1


def _gathered(program: TypedProgram, fresh: Fresh, statement: TypedStatement, window: _Window) -> TypedStatement:
    h, r, stride, (way, tap) = window.h, window.r, window.stride, window.ways
    q, s, t = fresh.iterator(), fresh.iterator(), fresh.iterator()
    phase: Expr = IndexExpr(s, i64) if stride > 1 else lit(0)
    before = subtract(IndexExpr(q, i64), scale(tap, IndexExpr(t, i64)))
    values = {h: scale(way, before), r: add(scale(stride, IndexExpr(t, i64)), phase)}
    subscripts = []
    for e in statement.subscripts:
        if h in indices_of(e):
            constant = (coefficients(e) or {}).get("", 0)
            e = add(scale(stride, IndexExpr(q, i64)), phase, lit(constant))
        subscripts.append(e)
    kept = [i for i in statement.kept if i != r or stride > 1]
    iterators = (*({h: q, r: s}.get(i, i) for i in kept), *statement.reduced, t)
    places = {h: f"{way}*{h} + {tap}*floor({r}/{stride})", r: f"{r} mod {stride}"}
    onto = [*(places.get(i, i) for i in kept), *statement.reduced, f"floor({r}/{stride})"]
    points = image(program, statement, onto).coalesce()
    made = reindexed(statement, iterators, points, values, reduced=(*statement.reduced, t))
    return replace(made, subscripts=tuple(subscripts))
