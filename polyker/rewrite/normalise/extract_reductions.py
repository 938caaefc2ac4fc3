"""Lift inline reductions to statements over temporaries.

Before: `P[i] = exp(X[i]) / sum[l](exp(X[l]))`. After: `T[] = 0;  T[] += exp(X[l]);  P[i] = exp(X[i]) / T[]`.
A temporary has only the indices that its reduction depends on, and equal reductions of one statement share one.
"""

from __future__ import annotations

from collections.abc import Iterator

import islpy as isl
from msgspec import Struct

from polyker.ir.expr import Expr, IndexExpr, Read, Reduce, children, converted, rebuild, walk
from polyker.ir.quasi_affine import (
    coefficients,
    index,
    indices,
    indices_of,
    is_quasi_affine,
    lit,
    renaming,
    substitute,
)
from polyker.ir.typed import TypedLoop, TypedNode, TypedProgram, TypedStatement, replaced
from polyker.poly.isl import read_map, read_set
from polyker.poly.scop import access_relation, map_onto, parameters
from polyker.poly.symbolic import box_of, from_least
from polyker.rewrite.core.fresh import Fresh, identity
from polyker.rewrite.normalise.expand_reductions import expand_reductions
from polyker.rewrite.normalise.log_sums import log_sums
from polyker.rewrite.reductions.short_sums import MAX_UNROLLED_TERMS, combined, few_points
from polyker.structs import replace

_UPDATES = {"sum": "add", "prod": "mul", "max": "max", "min": "min", "any": "any", "all": "all"}


def extract_reductions(program: TypedProgram) -> TypedProgram:
    """Return the program with every inline reduction lifted to statements before the one it stands in."""
    program = log_sums(program)
    fresh = Fresh(program)

    def change(statement: TypedStatement) -> list[TypedNode]:
        reduces = any(isinstance(e, Reduce) for e in walk(statement.expr))
        return _extract(program, fresh, statement) if reduces else [statement]

    body = replaced(program.body, change)
    return fresh.finish((*(_zero(fresh, t.name) for t in fresh.tensors if t.outside is not None), *body))


def _zero(fresh: Fresh, tensor: str) -> TypedStatement:
    """Return the statement that sets the one element of a tensor, which is gathered to say that nothing is chosen."""
    iterators = fresh.iterators(1)
    return fresh.sets(read_set("{ [i] : i = 0 }"), iterators, (tensor, indices(iterators)), lit(0))


def _extract(program: TypedProgram, fresh: Fresh, statement: TypedStatement) -> list[TypedNode]:
    """Return the statement with its reductions before it; interleaved with it where they read what it writes."""
    expanded = _written_out(replace(statement, expr=expand_reductions(program, fresh, statement)))
    reads = {e.tensor for r in walk(expanded.expr) if isinstance(r, Reduce) for e in walk(r) if isinstance(e, Read)}
    interleaved = statement.target in reads
    if interleaved:
        depth = _carrying(program, expanded)
        interleaved = depth > expanded.outer
        reduced = tuple(i for i in expanded.reduced if i not in expanded.iterators[:depth])
        expanded = replace(expanded, outer=depth, reduced=reduced)
    lift = _Lift(program, fresh, expanded, interleaved)
    if statement.target not in reads and lift.in_place():
        return list(lift.statements)
    value = lift.change(expanded.expr, expanded.iterators, read_set(expanded.domain))
    body: tuple[TypedNode, ...] = (*lift.statements, replace(expanded, expr=value))
    for iterator in reversed(expanded.iterators[statement.outer : expanded.outer]):
        body = (TypedLoop(iterator, body),)
    return list(body)


def _written_out(statement: TypedStatement) -> TypedStatement:
    """Return a statement in which short reductions over what it writes itself, the taps of a filter, are values.

    As statements of their own they would run step by step with it, and each on its few terms.
    """

    def change(expr: Expr) -> Expr:
        expr = rebuild(expr, change)
        if not isinstance(expr, Reduce) or expr.op not in _UPDATES or expr.domain is None or expr.acc is None:
            return expr
        mine = [e for e in walk(expr.body) if isinstance(e, Read) and e.tensor == statement.target]
        if (
            not mine
            or not all(_is_tap(statement, r) for r in mine)
            or any(isinstance(e, Reduce) for e in walk(expr.body))
        ):
            return expr
        own, domain = [r.index for r in expr.ranges], read_set(expr.domain)
        first = domain.dim(isl.dim_type.set) - len(own)
        points = few_points(domain, range(first, first + len(own)), MAX_UNROLLED_TERMS)
        if not points:
            return expr
        at = ({i: lit(n) for i, n in zip(own, point, strict=True)} for point in points)
        terms = [converted(substitute(expr.body, values), expr.acc) for values in at]
        value = terms[0]
        for term in terms[1:]:
            value = combined(_UPDATES[expr.op], expr.acc, value, term)
        return converted(value, expr.dtype)

    return replace(statement, expr=change(statement.expr))


def _is_tap(statement: TypedStatement, read: Read) -> bool:
    """Whether what a term reads lies at a distance from the element that is written which the term alone decides."""
    for here, there in zip(statement.subscripts, read.subscripts, strict=True):
        target, element = coefficients(here), coefficients(there)
        if target is None or element is None:
            return False
        if any(target.get(i, 0) != element.get(i, 0) for i in statement.iterators):
            return False
    return True


def _carrying(program: TypedProgram, statement: TypedStatement) -> int:
    """Return how many loops have to stay around a statement and its reductions, so that these read what it wrote before.

    `B[i,j] = B[i,j] + sum[k in i+1:N](A[k,i] * B[k,j])` reads elements that it writes later only: none.
    """
    every, least = len(statement.iterators), statement.outer
    write = read_map(access_relation(program, statement, statement.target, statement.subscripts))
    write = write.intersect_domain(read_set(statement.domain))
    depth = least
    for reduction, inner in _reductions(statement.expr, statement.iterators):
        if reduction.domain is None:
            return every
        terms = read_set(reduction.domain).set_tuple_name(statement.name)
        around = replace(statement, iterators=inner, domain=str(terms.to_str()))
        onto = map_onto(program, around, statement.iterators, statement.name)
        for read in (e for e in _outside_reductions(reduction.body) if e.tensor == statement.target):
            elsewhere = read.pad is not None and read.pad.mode != "constant"
            if elsewhere or not all(map(is_quasi_affine, read.subscripts)):
                return every
            elements = read_map(access_relation(program, around, read.tensor, read.subscripts)).intersect_domain(terms)
            pairs = onto.reverse().apply_range(elements).apply_range(write.reverse())  # reader -> writer
            for level in range(depth, every):
                if not _earlier(pairs, level).is_empty():
                    depth = level + 1
    return depth


def _reductions(expr: Expr, around: tuple[str, ...]) -> Iterator[tuple[Reduce, tuple[str, ...]]]:
    """Yield the reductions of an expression, those within others too, each with the iterators of its terms."""
    if isinstance(expr, Reduce):
        around = (*around, *(r.index for r in expr.ranges))
        yield expr, around
    for part in children(expr):
        yield from _reductions(part, around)


def _outside_reductions(expr: Expr) -> Iterator[Read]:
    """Yield what an expression reads by itself, not within reductions."""
    if isinstance(expr, Read):
        yield expr
    if not isinstance(expr, Reduce):
        for part in children(expr):
            yield from _outside_reductions(part)


def _earlier(pairs: isl.Map, level: int) -> isl.Map:
    """Return the pairs of (reader, writer) of which the writer comes first, by the loop `level`."""
    for d in range(level):
        pairs = pairs.equate(isl.dim_type.in_, d, isl.dim_type.out, d)
    return pairs.order_gt(isl.dim_type.in_, level, isl.dim_type.out, level)


class _LiftedReduction(Struct, frozen=True):
    op: str
    body: str
    domain: isl.Set
    elements: isl.Set  # those that it is started for
    used: tuple[str, ...]
    read: Read  # of the element of the iterators `used`


class _Lift:
    """Lifts the reductions of one statement; `statements` collects what has to come before it."""

    def __init__(self, program: TypedProgram, fresh: Fresh, statement: TypedStatement, interleaved: bool) -> None:
        self.program, self.fresh, self.statement, self.interleaved = program, fresh, statement, interleaved
        self.statements: list[TypedStatement] = []
        self.found: list[_LiftedReduction] = []

    def change(self, expr: Expr, around: tuple[str, ...], domain: isl.Set) -> Expr:
        """Return the expression with its reductions read from temporaries; `domain` is over the iterators `around`."""
        if not isinstance(expr, Reduce):
            return rebuild(expr, lambda e: self.change(e, around, domain))
        assert expr.domain is not None
        own = tuple(r.index for r in expr.ranges)
        whole = read_set(expr.domain)
        body = self.change(expr.body, (*around, *own), whole)
        return self._lift(replace(expr, body=body), around, own, domain, whole)

    def in_place(self) -> bool:
        """Make the statements of a reduction that is the statement's whole value, on the target itself; else return False."""
        statement, expr = self.statement, self.statement.expr
        target = self.program.tensor(statement.target).dtype
        if (
            not isinstance(expr, Reduce)
            or statement.op != "set"
            or statement.scatters
            or {expr.acc, expr.dtype or target} != {target}
        ):
            return False
        assert expr.domain is not None
        around, own = statement.iterators, tuple(r.index for r in expr.ranges)
        whole, kept = read_set(expr.domain), self._by_place(around)
        expr = replace(expr, body=self.change(expr.body, (*around, *own), whole))
        elements = self._onto(read_set(statement.domain), around, kept)
        terms = self._onto(whole, around + own, kept + own)
        self._reduction(expr, (kept, own), (statement.target, statement.subscripts), elements, terms)
        return True

    def _onto(self, points: isl.Set, around: tuple[str, ...], kept: tuple[str, ...]) -> isl.Set:
        """Return the values of some iterators, in the order given, at points over others."""
        head = parameters(self.program)
        onto = read_map(f"{head}{{ R[{', '.join(around)}] -> [{', '.join(kept)}] }}")
        return points.set_tuple_name("R").apply(onto)

    def _lift(
        self, expr: Reduce, around: tuple[str, ...], own: tuple[str, ...], domain: isl.Set, whole: isl.Set
    ) -> Expr:
        fixed = self.statement.iterators[: self.statement.outer]
        keep = tuple(i for i in around if i in fixed) if self.interleaved or fixed else ()
        used = self._used(expr, around, own, domain, whole, keep)
        terms = self._onto(whole, around + own, used + own)
        elements = self._onto(domain, around, used)
        canonical = {i: index(f"k{n}") for n, i in enumerate(used + own)}
        shape_of_body = repr(substitute(expr.body, canonical))
        for found in self.found:
            same = found.op == expr.op and found.body == shape_of_body and found.domain.is_equal(terms)
            if same and elements.is_subset(found.elements):
                here = renaming(dict(zip(found.used, used, strict=True)))
                place = tuple(substitute(e, here) for e in found.read.subscripts)
                return converted(replace(found.read, subscripts=place), expr.dtype)
        assert expr.acc is not None
        lows, extents = box_of(self.program, elements, range(len(used)))
        read = Read(self.fresh.temporary(expr.op, expr.acc, extents), from_least(indices(used), lows), dtype=expr.acc)
        self._reduction(expr, (used, own), (read.tensor, read.subscripts), elements, terms)
        self.found.append(_LiftedReduction(expr.op, shape_of_body, terms, elements, used, read))
        return converted(read, expr.dtype)

    def _used(
        self,
        expr: Reduce,
        around: tuple[str, ...],
        own: tuple[str, ...],
        domain: isl.Set,
        whole: isl.Set,
        keep: tuple[str, ...],
    ) -> tuple[str, ...]:
        """Return the outer iterators that the reduction depends on, by its body or by the set it runs over."""
        names = {e.name for e in walk(expr.body) if isinstance(e, IndexExpr)} | set(keep)
        used, left = list(around), whole
        for iterator in around:
            if iterator in names:
                continue
            position = around.index(iterator)
            # It does not matter if the terms, with it and those before it forgotten, are still the same for each value: each
            # of two that are bound to each other could be forgotten alone.
            forgotten = left.project_out(isl.dim_type.set, position, 1).insert_dims(isl.dim_type.set, position, 1)
            lifted = domain.reset_tuple_id().add_dims(isl.dim_type.set, len(own))
            if forgotten.reset_tuple_id().intersect(lifted).is_equal(whole.reset_tuple_id()):
                used.remove(iterator)
                left = forgotten
        # What reads the results walks them as it walks the target.
        return tuple(i for i in self._by_place(around) if i in used)

    def _by_place(self, around: tuple[str, ...]) -> tuple[str, ...]:
        """Return iterators in the order of the target's memory, those of the loops around first, those of no place last."""
        places = [i for t in self.statement.subscripts for i in around if i in indices_of(t)]
        return tuple(dict.fromkeys((*around[: self.statement.outer], *places, *around)))

    def _reduction(
        self,
        expr: Reduce,
        iterators: tuple[tuple[str, ...], tuple[str, ...]],
        target: tuple[str, tuple[Expr, ...]],
        elements: isl.Set,
        terms: isl.Set,
    ) -> None:
        """Add the statements that start a reduction's elements and combine its terms; `iterators`: kept, and reduced ones."""
        acc, op, (kept, own), outer = expr.acc, _UPDATES[expr.op], iterators, self.statement.outer
        assert acc is not None
        start = self.fresh.sets(elements, kept, target, identity(op, acc), self.statement, outer)
        update = self.fresh.sets(terms, kept + own, target, expr.body, self.statement, outer)
        self.statements += [start, replace(update, op=op, acc=acc, reduced=own)]
