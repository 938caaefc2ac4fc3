"""The number of points of a set: an integer, or a piecewise quasi-polynomial in the sizes.

isl counts by enumeration. Here a set is split into the factors of which it is the product, and a factor is summed up
dimension by dimension: the last one runs from its least to its greatest value, both quasi-affine on isl's pieces, in steps
that isl tells; what is left is a quasi-polynomial over the other dimensions. Where a floor holds the next dimension, the
residues are summed one by one. Tiles are counted as quotients and remainders. What this does not reach is enumerated if it is
small, and else bounded from above by a box, and `exact` is false.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from math import lcm, prod
from typing import Any

import islpy as isl
from msgspec import Struct

from polyker.errors.base import CompileError
from polyker.poly.boxes import free_range
from polyker.poly.isl import dim, isl_job
from polyker.poly.quasi_polynomial import (
    Poly,
    atom,
    constant,
    evaluate,
    floor,
    floors_of,
    minus,
    period,
    plus,
    scaled,
    substitute,
    sum_over,
    times,
    to_sympy,
)

# Most residues that are summed one by one, of fixed and of symbolic sizes; most pieces and isl operations of a count (a tenth of
# a second); most points that are enumerated (chosen; bound the time).
MAX_RESIDUES, MAX_PIECES, COUNT_ISL_OPERATIONS, MAX_ENUMERATED_POINTS = (64, 24), 128, 400_000, 4096


class Count(Struct, frozen=True):
    """A number of points: `pieces` are disjoint sets of sizes with the number there; elsewhere it is 0.

    `exact`: else the number is an upper bound.
    """

    pieces: tuple[tuple[isl.Set, Poly], ...]
    exact: bool = True

    @property
    def number(self) -> int | None:
        """The number where it depends on no size."""
        if not self.pieces:
            return 0
        if len(self.pieces) == 1 and set(self.pieces[0][1]) <= {()}:
            return int(evaluate(self.pieces[0][1], {}))
        return None

    def at(self, sizes: Mapping[str, int]) -> int:
        """Return the number for values of the sizes."""
        for where, poly in self.pieces:
            inside = where
            for k in range(where.dim(dim.param)):
                inside = inside.fix_val(dim.param, k, sizes[where.get_dim_name(dim.param, k)])
            if not inside.is_empty():
                return int(evaluate(poly, sizes))
        return 0

    def symbolic(self, labels: Mapping[str, str]) -> Any:
        """Return the number, or a sympy expression in the sizes by their labels: a Piecewise where there are several."""
        if self.number is not None:
            return self.number
        import sympy

        def symbol(name: str) -> Any:
            return sympy.Symbol(labels.get(name, name), integer=True, nonnegative=True)

        if len(self.pieces) == 1:
            return sympy.expand(to_sympy(self.pieces[0][1], symbol))
        rows = [(sympy.expand(to_sympy(p, symbol)), _condition(where, symbol)) for where, p in self.pieces]
        return sympy.Piecewise(*rows, (sympy.Integer(0), True))


def count(points: isl.Set, context: isl.Set | None = None) -> Count:
    """Return the number of points of a set; `context`: what holds of the sizes. Raises ValueError for an unbounded set."""
    if context is not None and points.dim(dim.param):
        points = points.intersect_params(context)
    points = points.reset_tuple_id().coalesce()
    for k in range(points.dim(dim.set)):
        if not (points.dim_has_lower_bound(dim.set, k) and points.dim_has_upper_bound(dim.set, k)):
            raise ValueError("the set is not bounded")
    for split in (False, True):
        try:
            with isl_job("count", COUNT_ISL_OPERATIONS):
                return _whole(_split(points) if split else points, context)
        except (CompileError, _TooHardError):
            pass
    return _bounded(points, context)


class _TooHardError(Exception):
    """The sums do not reach this set."""


def _split(points: isl.Set) -> isl.Set:
    """Return as many points with each dimension that is divided by a constant as two: its quotient and its remainder.

    Then tiles have bounds without floors. Raises _TooHardError where no dimension stands alone in a division.
    """
    divisors: dict[int, int] = {}
    for basic in points.get_basic_sets():
        for n in range(basic.dim(dim.div)):
            div = basic.get_div(n)
            used = [k for k in range(points.dim(dim.set)) if not div.get_coefficient_val(dim.in_, k).is_zero()]
            if len(used) == 1:
                divisors[used[0]] = lcm(divisors.get(used[0], 1), div.get_denominator_val().to_python())
    if not divisors:
        raise _TooHardError
    names = [f"x{k}" for k in range(points.dim(dim.set))]
    onto = [f"{divisors[k]}y{k} + {x}" if k in divisors else x for k, x in enumerate(names)]
    split = [f"y{k}, {x}" if k in divisors else x for k, x in enumerate(names)]
    inside = " and ".join(f"0 <= x{k} < {by}" for k, by in divisors.items())
    text = f"{{ [{', '.join(split)}] -> [{', '.join(onto)}] : {inside} }}"
    return points.apply(isl.Map.read_from_str(points.get_ctx(), text).reverse()).coalesce()


def _whole(points: isl.Set, context: isl.Set | None) -> Count:
    factor, rest = _free(points)
    if not rest.dim(dim.set) and not rest.dim(dim.param):
        return Count(((rest.params(), constant(0 if rest.is_empty() else factor)),))
    try:
        pieces = list(_pieces(rest))
    except _TooHardError:
        if rest.dim(dim.param) or not _is_small(rest):
            raise
        pieces = [(rest.params(), constant(rest.count_val().to_python()))]
    return Count(_merged([(where, scaled(p, factor)) for where, p in pieces], context))


def _free(points: isl.Set) -> tuple[int, isl.Set]:
    """Return the product of the fixed extents of the dimensions that depend on no other, and the set of the others."""
    factor = 1
    if points.is_empty():
        return 0, points
    for k in reversed(range(points.dim(dim.set))):
        found = free_range(points, k)
        if found is not None:
            factor *= found[1] - found[0] + 1
            points = points.project_out(dim.set, k, 1)
    return factor, points


def _is_small(points: isl.Set) -> bool:
    box = [points.dim_max_val(k).sub(points.dim_min_val(k)) for k in range(points.dim(dim.set))]
    return all(b.is_int() for b in box) and prod(b.to_python() + 1 for b in box) <= MAX_ENUMERATED_POINTS


def _pieces(points: isl.Set) -> Iterator[tuple[isl.Set, Poly]]:
    """Yield sets of sizes, which may meet, and what each adds to the number there."""
    budget = [MAX_PIECES]
    for basic in points.make_disjoint().compute_divs().get_basic_sets():
        factors = _factors(basic)
        found = list(_sum(factors[0], constant(1), budget))
        for factor in factors[1:]:
            more = _merged(list(_sum(factor, constant(1), budget)), None)
            pairs = [(at.intersect(where), times(p, q)) for at, p in _merged(found, None) for where, q in more]
            found = [(where, poly) for where, poly in pairs if not where.is_empty()]
        yield from found


def _factors(basic: isl.BasicSet) -> list[isl.Set]:
    """Return the sets of which a set is the product: dimensions that no constraint ties to the others, group by group.

    A constraint on the sizes alone is one of each.
    """
    groups: list[set[int]] = []
    for k in range(basic.dim(dim.set)):
        tied = {k}
        for c in basic.get_constraints():
            if c.involves_dims(dim.set, k, 1):
                tied |= {n for n in range(basic.dim(dim.set)) if c.involves_dims(dim.set, n, 1)}
        for group in [g for g in groups if g & tied]:
            groups.remove(group)
            tied |= group
        groups.append(tied)
    found = []
    for group in groups or [set()]:
        factor = basic
        for n in reversed([n for n in range(basic.dim(dim.set)) if n not in group]):
            factor = factor.drop_constraints_involving_dims(dim.set, n, 1).project_out(dim.set, n, 1)
        found.append(isl.Set.from_basic_set(factor))
    return found


def _sum(points: isl.Set, poly: Poly, budget: list[int]) -> Iterator[tuple[isl.Set, Poly]]:
    """Yield the sums of a polynomial in the dimensions x0, x1, … over the points."""
    depth = points.dim(dim.set)
    budget[0] -= 1
    if budget[0] < 0:
        raise _TooHardError
    if not depth:
        if not points.is_empty():
            yield points.params(), poly
        return
    name = f"x{depth - 1}"
    held = floors_of(poly, name)
    if held:
        yield from _residues(points, poly, lcm(*map(period, held)), budget)
        return
    stride = points.get_stride(depth - 1).to_python()
    line = isl.Map.from_range(points).move_dims(dim.in_, 0, dim.out, 0, depth - 1)
    lows = line.lexmin_pw_multi_aff().get_pw_aff(0).get_pieces()
    highs = line.lexmax_pw_multi_aff().get_pw_aff(0).get_pieces()
    whole = all(b.dim(dim.div) == 0 for b in points.get_basic_sets()) and points.n_basic_set() == 1
    for at_low, low in lows:
        for at_high, high in highs:
            where = at_low.intersect(at_high)
            if where.is_empty():
                continue
            if not whole and not _is_progression(points, where, low, high, stride):
                raise _TooHardError
            first, last = _poly(low), _poly(high)
            steps = scaled(minus(last, first), Fraction(1, stride))
            inner = sum_over(poly, name, first, steps, stride)
            for basic in where.reset_tuple_id().coalesce().make_disjoint().get_basic_sets():
                yield from _sum(isl.Set.from_basic_set(basic), inner, budget)


def _residues(points: isl.Set, poly: Poly, modulus: int, budget: list[int]) -> Iterator[tuple[isl.Set, Poly]]:
    """Yield the sums of a polynomial whose floors hold the last dimension, one residue of it after another."""
    last = points.dim(dim.set) - 1
    if modulus > MAX_RESIDUES[points.dim(dim.param) > 0]:
        raise _TooHardError
    budget[0] += modulus
    others = [f"x{k}" for k in range(last)]
    space = f"[{', '.join([*others, 'y'])}]"
    for residue in range(modulus):
        text = f"{{ {space} -> [{', '.join([*others, f'{modulus}y + {residue}'])}] }}"
        expansion = isl.Map.read_from_str(points.get_ctx(), text)
        part = points.apply(expansion.reverse())
        if part.is_empty():
            continue
        again = plus(scaled(atom(f"x{last}"), modulus), constant(residue))
        inner = substitute(poly, {f"x{last}": again})
        for basic in part.coalesce().make_disjoint().get_basic_sets():
            yield from _sum(isl.Set.from_basic_set(basic), inner, budget)


def _is_progression(points: isl.Set, where: isl.Set, low: isl.Aff, high: isl.Aff, stride: int) -> bool:
    """Whether over `where` the last dimension takes all values from low to high in steps of `stride`."""
    depth = where.dim(dim.set)
    space = where.get_space().add_dims(dim.set, 1).reset_tuple_id(dim.set)
    local = isl.LocalSpace.from_space(space)
    value = isl.Aff.var_on_domain(local, dim.set, depth)
    project = isl.MultiAff.project_out_map(space, dim.set, depth, 1)
    low, high = low.pullback_multi_aff(project), high.pullback_multi_aff(project)
    filled = where.reset_tuple_id().insert_dims(dim.set, depth, 1)
    filled = filled.intersect(value.ge_set(low)).intersect(value.le_set(high))
    if stride > 1:
        step = value.sub(low)
        multiple = step.scale_down_val(isl.Val.int_from_si(where.get_ctx(), stride)).floor()
        multiple = multiple.scale_val(isl.Val.int_from_si(where.get_ctx(), stride))
        filled = filled.intersect(step.eq_set(multiple))
    return bool(filled.is_subset(points.reset_tuple_id()))


def _poly(aff: isl.Aff) -> Poly:
    """Return a quasi-affine expression over the dimensions x0, x1, … and the sizes."""
    denominator = aff.get_denominator_val().to_python()
    total = constant(int((aff.get_constant_val() * denominator).to_python()))
    for kind in (dim.in_, dim.param, dim.div):
        for k in range(aff.dim(kind)):
            factor = int((aff.get_coefficient_val(kind, k) * denominator).to_python())
            if not factor:
                continue
            if kind == dim.div:
                div = aff.get_div(k)
                divisor = div.get_denominator_val().to_python()
                term = floor(_poly(div.scale_val(div.get_denominator_val())), divisor)
            else:
                term = atom(f"x{k}" if kind == dim.in_ else aff.get_dim_name(dim.param, k))
            total = plus(total, scaled(term, factor))
    return scaled(total, Fraction(1, denominator))


def _merged(pieces: list[tuple[isl.Set, Poly]], context: isl.Set | None) -> tuple[tuple[isl.Set, Poly], ...]:
    """Return disjoint pieces with their sums; those that another's polynomial covers, too, are part of it."""
    disjoint: list[tuple[isl.Set, Poly]] = []
    for where, poly in pieces:
        fresh: list[tuple[isl.Set, Poly]] = []
        rest = where
        for other, known in disjoint:
            both = other.intersect(rest)
            if both.is_empty():
                fresh.append((other, known))
                continue
            fresh.append((both, plus(known, poly)))
            rest = rest.subtract(both)
            left = other.subtract(both)
            if not left.is_empty():
                fresh.append((left, known))
        if not rest.is_empty():
            fresh.append((rest, poly))
        disjoint = fresh
        if len(disjoint) > MAX_PIECES:
            raise _TooHardError
    if not disjoint:
        return ()
    if not disjoint[0][0].dim(dim.param):
        return ((disjoint[0][0], disjoint[0][1]),)
    elsewhere = isl.Set.universe(disjoint[0][0].get_space()) if context is None else context.params()
    for where, _ in disjoint:
        elsewhere = elsewhere.subtract(where)
    rows = [*disjoint, *([] if elsewhere.is_empty() else [(elsewhere, {})])]
    return _absorbed(rows)


def _absorbed(rows: list[tuple[isl.Set, Poly]]) -> tuple[tuple[isl.Set, Poly], ...]:
    """Return the pieces, those on which another one's polynomial has the same values as their own put into it."""
    parts = [(isl.Set.from_basic_set(b), p) for where, p in rows for b in where.make_disjoint().get_basic_sets()]
    found: list[tuple[isl.Set, Poly]] = []
    for where, poly in sorted(parts, key=lambda r: (_equalities(r[0]), not r[1])):
        for n, (other, known) in enumerate(found):
            if known == poly or _agree(where, known, poly):
                found[n] = (other.union(where).coalesce(), known)
                break
        else:
            found.append((where, poly))
    return tuple((where, poly) for where, poly in found if poly)


def _equalities(where: isl.Set) -> int:
    return len([c for c in where.affine_hull().get_constraints() if c.is_equality()])


def _agree(where: isl.Set, one: Poly, other: Poly) -> bool:
    """Whether two polynomials are equal where sizes are bound by equations with a factor of 1."""
    difference = minus(one, other)
    for c in where.affine_hull().get_constraints():
        if not c.is_equality() or c.get_aff().dim(dim.div):
            continue
        aff = c.get_aff()
        for k in range(aff.dim(dim.param)):
            factor = aff.get_coefficient_val(dim.param, k).to_python()
            if abs(factor) == 1:
                name = aff.get_dim_name(dim.param, k)
                value = minus(atom(name), scaled(_poly(aff), factor))
                difference = substitute(difference, {name: value})
                break
    return not difference


def _bounded(points: isl.Set, context: isl.Set | None) -> Count:
    """Return the number of points of a box around a set."""
    hull = points.remove_divs()
    pieces: list[tuple[isl.Set, Poly]] = [(hull.params(), constant(1))]
    for k in range(hull.dim(dim.set)):
        grown = []
        for at_low, low in hull.dim_min(k).get_pieces():
            for at_high, high in hull.dim_max(k).get_pieces():
                extent = plus(minus(_poly(high), _poly(low)), constant(1))
                for where, poly in pieces:
                    both = where.intersect(at_low.params()).intersect(at_high.params())
                    if not both.is_empty():
                        grown.append((both, times(poly, extent)))
        pieces = grown
        if len(pieces) > MAX_PIECES:
            break
    return Count(_merged(pieces, context), exact=False)


def _condition(where: isl.Set, symbol: Callable[[str], Any]) -> Any:
    """Return a set of sizes as a condition of sympy's."""
    import sympy

    options = []
    for basic in where.get_basic_sets():
        parts = []
        for c in basic.get_constraints():
            value = to_sympy(_poly(c.get_aff()), symbol)
            parts.append(sympy.Eq(value, 0) if c.is_equality() else sympy.Ge(value, 0))
        options.append(sympy.And(*parts))
    return sympy.Or(*options)
