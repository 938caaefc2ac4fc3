"""Expand mean, logsumexp, argmax and argmin to sums, maxima and minima."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import islpy as isl
from msgspec import Struct

from polyker.errors.shapes import NOTHING_TO_CHOOSE
from polyker.ir.dtypes import DType, bool_, i32, i64
from polyker.ir.expr import Call, Cast, Expr, IndexExpr, Literal, Read, Reduce, converted, rebuild, transform
from polyker.ir.promotion import integer_range
from polyker.ir.reductions import admitted
from polyker.ir.typed import Outside, TypedProgram, TypedStatement
from polyker.poly.boxes import ends, free_range
from polyker.poly.isl import read_set
from polyker.rewrite.core.exponentials import finite, log_of_sum, shifted_exp
from polyker.rewrite.core.fresh import Fresh
from polyker.structs import replace


def expand_reductions(program: TypedProgram, fresh: Fresh, statement: TypedStatement) -> Expr:
    """Return the statement's expression with only sum, prod, max, min, any and all among its inline reductions."""

    def change(expr: Expr, depth: int, around: isl.Set) -> Expr:
        if not isinstance(expr, Reduce):
            return rebuild(expr, lambda e: change(e, depth, around))
        assert expr.domain is not None
        body, *conditions = (
            change(e, depth + len(expr.ranges), read_set(expr.domain)) for e in (expr.body, *expr.conditions)
        )
        inner = replace(expr, body=body, conditions=tuple(conditions))
        if inner.op not in _EXPANSIONS:
            return inner
        return _EXPANSIONS[inner.op](inner, Site(fresh, depth, around))

    return change(statement.expr, len(statement.iterators), read_set(statement.domain))


class Site(Struct, frozen=True):
    """Where a reduction stands: inside `depth` iterators, whose values are `around`."""

    fresh: Fresh
    depth: int
    around: isl.Set

    def copy(self, expr: Reduce) -> Reduce:
        """Return the reduction with iterators of its own, so that it can stand beside the original or around it."""
        names = {r.index: self.fresh.iterator() for r in expr.ranges}

        def rename(e: Expr) -> Expr:
            return replace(e, name=names[e.name]) if isinstance(e, IndexExpr) and e.name in names else e

        ranges = tuple(replace(r, index=names[r.index]) for r in expr.ranges)
        conditions = tuple(transform(c, rename) for c in expr.conditions)
        return replace(expr, ranges=ranges, body=transform(expr.body, rename), conditions=conditions)

    def found(self, place: Reduce, none: int, expr: Reduce) -> Expr:
        """Return a place, or an error at run time where it is none: an index is gathered from one element, outside it then."""
        nothing = Outside(NOTHING_TO_CHOOSE, (("op", expr.op), ("sizes", " that `where` admits")), expr.span)
        zero = self.fresh.temporary(expr.op, i64, (Literal(1, i64),), nothing)
        assert place.dtype is not None
        some = Call("lt", (place, Literal(none, place.dtype)), bool_)
        inside = Call("where", (some, Literal(0, i64), Literal(1, i64)), i64)
        return Call("add", (converted(place, i64), Read(zero, (inside,), dtype=i64)), i64)

    def inside(self, expr: Reduce, other: Reduce) -> Reduce:
        """Return `expr`, which stood beside `other`, as it stands in `other`'s body: other's iterators come before its own."""
        assert other.domain is not None
        around = read_set(other.domain).reset_tuple_id()

        def widen(e: Expr) -> Expr:
            if not isinstance(e, Reduce):
                return e
            assert e.domain is not None
            widened = read_set(e.domain).reset_tuple_id()
            widened = widened.insert_dims(isl.dim_type.set, self.depth, len(other.ranges))
            more = widened.dim(isl.dim_type.set) - around.dim(isl.dim_type.set)
            inside = widened.intersect(around.add_dims(isl.dim_type.set, more))
            return replace(e, domain=str(inside.set_tuple_name("R")))

        widened = transform(expr, widen)
        assert isinstance(widened, Reduce)
        return widened


def _mean(expr: Reduce, site: Site) -> Expr:
    assert expr.acc is not None
    total = _of_admitted(replace(expr, op="sum", dtype=expr.acc))
    count = _count(expr, site)
    return converted(Call("div", (total, Cast(expr.acc, count, expr.acc)), expr.acc), expr.dtype)


def _count(expr: Reduce, site: Site) -> Expr:
    """Return the number of terms: a constant where it is the same for all instances, and none has no terms."""
    assert expr.domain is not None
    if expr.conditions:
        return _of_admitted(replace(site.copy(expr), op="sum", body=Literal(1, i64), acc=i64, dtype=i64))
    points = read_set(expr.domain)
    every = points.dim(isl.dim_type.set)
    some = points.project_out(isl.dim_type.set, site.depth, every - site.depth).reset_tuple_id()
    ranges: list[tuple[int, int] | None] = [None]
    if not points.is_empty() and site.around.reset_tuple_id().is_subset(some):
        ranges = [free_range(points, d) for d in range(site.depth, every)]
    known = [r for r in ranges if r is not None]
    if len(known) < len(ranges):
        return replace(site.copy(expr), op="sum", body=Literal(1, i64), acc=i64, dtype=i64)
    return Literal(prod(high - low + 1 for low, high in known), i64)


def _of_admitted(expr: Reduce) -> Reduce:
    """Return a sum or an extremum over what its conditions admit as one over all terms, the others its identity."""
    if not expr.conditions:
        return expr
    return replace(expr, body=admitted(expr.op, expr.body, expr.conditions[0]), conditions=())


def _logsumexp(expr: Reduce, site: Site) -> Expr:
    acc = expr.acc
    assert acc is not None
    greatest = replace(expr, op="max", dtype=acc)
    other = site.copy(expr)
    inner = shifted_exp(other.body, finite(site.inside(greatest, other)))
    total = replace(other, op="sum", body=inner, dtype=acc)
    # The maximum of every element comes first: the sum, of elements with terms, reads the same one.
    return converted(log_of_sum(finite(greatest), total), expr.dtype)


def _argument(op: str) -> Callable[[Reduce, Site], Expr]:
    def expand(expr: Reduce, site: Site) -> Expr:
        """The first index at which the body equals the extremum; a NaN is the extremum wherever there is one."""
        kind = expr.body.dtype
        assert kind is not None
        other = site.copy(expr)
        best = site.inside(_of_admitted(replace(expr, op=op, dtype=kind, acc=kind)), other)
        hit: Expr = Call("eq", (other.body, best), bool_)
        if kind.kind == "f":
            hit = Call("or", (hit, Call("ne", (other.body, other.body), bool_)), bool_)
        if other.conditions:
            hit = Call("and", (other.conditions[0], hit), bool_)
        held = _place_type(other, site)
        place: Expr = converted(IndexExpr(other.ranges[0].index, i64), held)
        none = integer_range(held)[1]  # greater than every index
        value = Call("where", (hit, place, Literal(none, held)), held)
        first = replace(other, op="min", body=value, conditions=(), dtype=held, acc=held)
        return site.found(first, none, expr) if expr.conditions else converted(first, i64)

    return expand


def _place_type(expr: Reduce, site: Site) -> DType:
    """Return the type that places are compared in: i32, of which a vector holds twice as many, where all are known to fit."""
    assert expr.domain is not None
    found = ends(read_set(expr.domain), site.depth)
    least, most = integer_range(i32)
    return i32 if found is not None and least <= found[0] and found[1] < most else i64


_EXPANSIONS: dict[str, Callable[[Reduce, Site], Expr]] = {
    "mean": _mean,
    "logsumexp": _logsumexp,
    "argmax": _argument("max"),
    "argmin": _argument("min"),
}
