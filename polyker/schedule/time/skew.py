"""Find shifts and skews that make a time loop and its space permutable.

The statements of a time loop define tensors of one rank; the element that an instance defines is its place in space. Where the
statements read those tensors at fixed distances, each dimension n of space gets a *front*

    y[n] = x[n] + step[n] t + shift[n][S]

of which the skew `step[n]` and the shifts of the statements are the least that let no dependence go backwards along it. Then the
time and the fronts are a permutable band: tiles of it, run in the order of their numbers, keep every dependence (Irigoin and
Triolet, "Supernode Partitioning", 1988; Wonnacott, "Time Skewing for Parallel Computers", 1999).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product

import islpy as isl
from msgspec import Struct

from polyker.ir.dtypes import i64
from polyker.ir.expr import Expr, IndexExpr
from polyker.ir.quasi_affine import add, coefficients, is_quasi_affine, lit, scale
from polyker.ir.typed import TypedStatement
from polyker.poly.boxes import corners
from polyker.poly.isl import read_set

# Greatest skew or shift: beyond it tiles would consist of their slanted ends (experience value).
MAX_TIME_SKEW = 16

Interval = tuple[int, int]


class SkewedStatement(Struct, frozen=True):
    """A statement of a time loop: its place in space, and the ranges of its iterators.

    `space`: for each dimension of what it defines the iterator (None: none) and a constant, whose sum is the subscript.
    `bounds` has the loop's iterator only where the number of steps is a constant; `first` is the first of them.
    """

    statement: TypedStatement
    space: tuple[tuple[str | None, int], ...]
    bounds: dict[str, Interval]
    first: int

    @property
    def clock(self) -> str:
        """The time loop's iterator."""
        return self.statement.iterators[0]

    def coordinate(self, dimension: int) -> Expr:
        """Return the place along a dimension."""
        iterator, constant = self.space[dimension]
        return add(*([IndexExpr(iterator, i64)] if iterator else []), lit(constant))


class Distance(Struct, frozen=True):
    """Of two dependent instances the difference of their places, least and greatest by dimension; None: nothing bounds it.

    `same`: both may be in one time step; `later`: the second may be in a later one.
    """

    source: int
    sink: int
    intervals: tuple[Interval | None, ...]
    same: bool
    later: bool


class Front(Struct, frozen=True):
    """The front along a dimension of space: its skew, and the shifts of the statements; see the module."""

    dimension: int
    step: int
    shifts: tuple[int, ...]

    def time(self, place: SkewedStatement, number: int, step: Expr) -> Expr:
        """Return the front of a statement's instance; `number` is the statement's, `step` the time step."""
        skew = [scale(self.step, step)] if self.step else []
        return add(place.coordinate(self.dimension), *skew, lit(self.shifts[number]))


def places_of(statements: tuple[TypedStatement, ...]) -> tuple[SkewedStatement, ...] | None:
    """Return the places of a time loop's statements, None where they have none: other ranks, ranges that depend on others."""
    found = []
    for s in statements:
        box = _box(s)
        if s.op != "set" or s.outer != 1 or box is None or len(s.subscripts) != len(statements[0].subscripts):
            return None
        space = []
        for subscript in s.subscripts:
            parts = coefficients(subscript) if is_quasi_affine(subscript) else None
            names = [n for n, c in (parts or {}).items() if n and c]
            if parts is None or len(names) > 1 or any(parts[n] != 1 or n not in s.iterators[1:] for n in names):
                return None
            space.append((names[0] if names else None, parts.get("", 0)))
        inner = [i for i, _ in space if i is not None]
        if sorted(inner) != sorted(s.iterators[1:]):
            return None
        found.append(SkewedStatement(s, tuple(space), *box))
    return tuple(found) if len({p.first for p in found}) == 1 else None


def distances(places: tuple[SkewedStatement, ...]) -> tuple[Distance, ...] | None:
    """Return the distances of all dependences that the loop's steps may have, None where an access may be anywhere."""
    written = {p.statement.target for p in places}
    offsets: list[list[tuple[str, tuple[Interval | None, ...], bool]]] = []
    for p in places:
        mine: list[tuple[str, tuple[Interval | None, ...], bool]] = [
            (p.statement.target, ((0, 0),) * len(p.space), True)
        ]
        for read in dict.fromkeys(p.statement.reads()):
            if read.tensor not in written:
                continue
            if (read.pad is not None and read.pad.mode != "constant") or len(read.subscripts) != len(p.space):
                return None
            mine.append((read.tensor, tuple(_offset(p, n, s) for n, s in enumerate(read.subscripts)), False))
        offsets.append(mine)
    found: dict[Distance, None] = {}
    for a, b in product(range(len(places)), repeat=2):
        for (tensor, first, writes), (other, second, writes_too) in product(offsets[a], offsets[b]):
            if tensor == other and (writes or writes_too):
                intervals = tuple(
                    None if u is None or v is None else (u[0] - v[1], u[1] - v[0])
                    for u, v in zip(first, second, strict=True)
                )
                found[Distance(a, b, intervals, a < b or (a == b and _may_follow(places[a], intervals)), True)] = None
    return tuple(found)


def fronts(
    places: tuple[SkewedStatement, ...], found: tuple[Distance, ...], units: Mapping[int, int] | None = None
) -> tuple[Front, ...]:
    """Return the fronts of the dimensions that have one; `units`: of which skew and shifts are multiples, by dimension."""
    result: list[Front] = []
    for n in range(len(places[0].space)):
        if all(space is None for space in (p.space[n][0] for p in places)):
            continue
        unit = (units or {}).get(n, 1)
        for step in range(MAX_TIME_SKEW + 1):
            shifts = _shifts(len(places), found, n, step, unit)
            if shifts is not None:
                result.append(Front(n, step * unit, tuple(s * unit for s in shifts)))
                break
    return tuple(result)


def reach(front: Front, found: tuple[Distance, ...]) -> int:
    """Return by how many elements what an instance touches lies around its front, about."""
    shifted = max(front.shifts) - min(front.shifts)
    intervals = [d.intervals[front.dimension] for d in found]
    return shifted + max((max(abs(a[0]), abs(a[1])) for a in intervals if a is not None), default=0)


def _box(statement: TypedStatement) -> tuple[dict[str, Interval], int] | None:
    """Return the ranges of a statement's iterators and the first step; None where they depend on each other, or on sizes.

    The number of steps may depend on sizes.
    """
    domain = read_set(statement.domain)
    count = domain.dim(isl.dim_type.param)
    space = domain.project_out(isl.dim_type.set, 0, 1).project_out(isl.dim_type.param, 0, count)
    inner = corners(space)
    if inner is None:
        return None
    times = domain.project_out(isl.dim_type.set, 1, len(inner))
    low, high = times.dim_min_val(0), times.dim_max_val(0)
    if not low.is_int() or not domain.is_equal(
        times.flat_product(space.reset_tuple_id()).set_tuple_name(statement.name)
    ):
        return None
    first = times.fix_val(isl.dim_type.set, 0, low)
    if not times.params().is_subset(first.params()):
        return None
    bounds = dict(zip(statement.iterators[1:], inner, strict=True))
    if not count and high.is_int():
        bounds[statement.iterators[0]] = low.get_num_si(), high.get_num_si()
    return bounds, low.get_num_si()


def _offset(place: SkewedStatement, dimension: int, subscript: Expr) -> Interval | None:
    """Return how far the element that is read lies from the instance's place, along a dimension."""
    parts = coefficients(subscript) if is_quasi_affine(subscript) else None
    if parts is None:
        return None
    iterator, constant = place.space[dimension]
    if iterator is not None:
        parts[iterator] = parts.get(iterator, 0) - 1
    low = high = parts.pop("", 0) - constant
    for name, factor in parts.items():
        if factor and name not in place.bounds:
            return None
        ends = [factor * e for e in place.bounds[name]] if factor else [0]
        low, high = low + min(ends), high + max(ends)
    return low, high


def _may_follow(place: SkewedStatement, intervals: tuple[Interval | None, ...]) -> bool:
    """Whether one instance may come after another of the same step: the first iterator in which they differ is greater."""
    dims = {iterator: n for n, (iterator, _) in enumerate(place.space) if iterator is not None}
    for iterator in place.statement.iterators[1:]:
        here = intervals[dims[iterator]]
        if here is None or here[1] > 0:
            return True
        if here[1] < 0:
            return False
    return False


def _shifts(count: int, found: tuple[Distance, ...], dimension: int, step: int, unit: int) -> tuple[int, ...] | None:
    """Return the least shifts of the statements, in units, with which no dependence goes backwards; None: there are none."""
    shifts = [0] * count
    for _ in range(count + 1):
        changed = False
        for source, sink, least in _bounds(found, dimension, step, unit):
            if least is None or least > MAX_TIME_SKEW:
                return None
            if shifts[sink] < shifts[source] + least:
                if source == sink:
                    return None
                shifts[sink] = shifts[source] + least
                changed = True
        if not changed:
            return tuple(shifts)
    return None


def _bounds(found: tuple[Distance, ...], dimension: int, step: int, unit: int) -> Iterator[tuple[int, int, int | None]]:
    """Yield (source, sink, least difference of their shifts) in units."""
    for d in found:
        intervals = d.intervals[dimension]
        least = None if intervals is None else -(intervals[0] // unit)
        if d.same:
            yield d.source, d.sink, least
        if d.later:
            yield d.source, d.sink, None if least is None else least - step
