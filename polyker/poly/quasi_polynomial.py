"""Quasi-polynomials: polynomials over names and floors of affine terms by constants, exact; sums of them over a range.

Σ y^k for y = 0 … n is a polynomial in n (Faulhaber), so that sums over affine ranges stay in the class.
Source: Verdoolaege et al., "Counting Integer Points in Parametric Polytopes Using Barvinok's Rational Functions", 2007.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import cache
from math import comb, lcm
from typing import Any, TypeAlias

from msgspec import Struct


class FloorTerm(Struct, frozen=True):
    """floor((Σ factor * atom + constant) / divisor), all integers, `terms` sorted."""

    terms: tuple[tuple[Atom, int], ...]
    constant: int
    divisor: int


Atom: TypeAlias = str | FloorTerm
Monomial: TypeAlias = tuple[tuple[Atom, int], ...]  # (atom, power), sorted
Poly: TypeAlias = dict[Monomial, Fraction]


def constant(value: int | Fraction) -> Poly:
    """Return a constant."""
    return {(): Fraction(value)} if value else {}


def atom(name: Atom) -> Poly:
    """Return a name, or a floor, as a polynomial."""
    return {((name, 1),): Fraction(1)}


def plus(a: Poly, b: Poly) -> Poly:
    """Return a + b."""
    total = dict(a)
    for monomial, factor in b.items():
        value = total.get(monomial, Fraction(0)) + factor
        if value:
            total[monomial] = value
        else:
            total.pop(monomial, None)
    return total


def scaled(a: Poly, factor: int | Fraction) -> Poly:
    """Return factor * a."""
    return {m: c * factor for m, c in a.items()} if factor else {}


def minus(a: Poly, b: Poly) -> Poly:
    """Return a - b."""
    return plus(a, scaled(b, -1))


def times(a: Poly, b: Poly) -> Poly:
    """Return a * b."""
    total: Poly = {}
    for left, x in a.items():
        for right, y in b.items():
            monomial = _product(left, right)
            value = total.get(monomial, Fraction(0)) + x * y
            if value:
                total[monomial] = value
            else:
                del total[monomial]
    return total


def _product(left: Monomial, right: Monomial) -> Monomial:
    if not left or not right:
        return left or right
    powers = dict(left)
    for name, power in right:
        powers[name] = powers.get(name, 0) + power
    return tuple(sorted(powers.items(), key=_key))


def _key(factor: tuple[Atom, int]) -> tuple[bool, str]:
    return isinstance(factor[0], FloorTerm), str(factor[0])


def power(a: Poly, exponent: int) -> Poly:
    """Return a ** exponent."""
    result = constant(1)
    for _ in range(exponent):
        result = times(result, a)
    return result


def floor(a: Poly, divisor: int) -> Poly:
    """Return floor(a / divisor) of an affine `a` with integer coefficients; what divides evenly is taken out."""
    out: Poly = {}
    terms: list[tuple[Atom, int]] = []
    rest = 0
    for monomial, factor in a.items():
        value = int(factor)
        if value != factor or (monomial and (len(monomial) > 1 or monomial[0][1] > 1)):
            raise ValueError("not affine with integer coefficients")
        quotient, left = divmod(value, divisor)
        if quotient:
            out[monomial] = Fraction(quotient)
        if left and monomial:
            terms.append((monomial[0][0], left))
        elif left:
            rest = left
    if not terms:
        return out
    return plus(out, atom(FloorTerm(tuple(sorted(terms, key=_key)), rest, divisor)))


def names_in(a: Poly) -> frozenset[str]:
    """Return the names that stand in a polynomial, in its floors too."""
    return frozenset(n for monomial in a for found, _ in monomial for n in _names(found))


def _names(found: Atom) -> frozenset[str]:
    if isinstance(found, str):
        return frozenset((found,))
    return frozenset(n for inner, _ in found.terms for n in _names(inner))


def floors_of(a: Poly, name: str) -> set[FloorTerm]:
    """Return the floors of a polynomial in which a name stands."""
    return {f for m in a for f, _ in m if isinstance(f, FloorTerm) and name in _names(f)}


def period(found: FloorTerm) -> int:
    """Return a number by whose multiples every name may grow so that the floor grows by an integer for each."""
    inner = (period(f) for f, _ in found.terms if isinstance(f, FloorTerm))
    return found.divisor * lcm(1, *inner)


def substitute(a: Poly, values: Mapping[str, Poly]) -> Poly:
    """Return the polynomial with names replaced; those in floors by affine terms with integer coefficients."""

    def value(found: Atom) -> Poly:
        if isinstance(found, str):
            return values.get(found, atom(found))
        total = constant(found.constant)
        for inner, factor in found.terms:
            total = plus(total, scaled(value(inner), factor))
        return floor(total, found.divisor)

    if not values or not names_in(a) & values.keys():
        return a
    result: Poly = {}
    for monomial, factor in a.items():
        term = constant(factor)
        for found, exponent in monomial:
            term = times(term, power(value(found), exponent))
        result = plus(result, term)
    return result


def evaluate(a: Poly, values: Mapping[str, int]) -> Fraction:
    """Return the value for integers."""

    def number(found: Atom) -> int:
        if isinstance(found, str):
            return values[found]
        return (sum(number(f) * c for f, c in found.terms) + found.constant) // found.divisor

    total = Fraction(0)
    for monomial, factor in a.items():
        term = factor
        for found, exponent in monomial:
            term *= number(found) ** exponent
        total += term
    return total


@cache
def _power_sum(exponent: int) -> tuple[Fraction, ...]:
    """Return the coefficients c of Σ y^exponent for y = 0 … n as Σ c[j] n^j.

    From (n + 1)^(k+1) = Σ over j <= k of comb(k + 1, j) Σ y^j.
    """
    k = exponent
    found = [Fraction(comb(k + 1, j)) for j in range(k + 2)]
    for j in range(k):
        for p, c in enumerate(_power_sum(j)):
            found[p] -= comb(k + 1, j) * c
    return tuple(c / (k + 1) for c in found)


def sum_over(a: Poly, name: str, first: Poly, count: Poly, step: int = 1) -> Poly:
    """Return Σ a over name = first, first + step, …, `count` + 1 values in all; no floor of `a` may hold the name."""
    by_power: dict[int, Poly] = {}
    for monomial, factor in a.items():
        exponent = next((p for f, p in monomial if f == name), 0)
        rest = tuple(x for x in monomial if x[0] != name)
        by_power.setdefault(exponent, {})[rest] = factor
    total: Poly = {}
    for k, coefficient in by_power.items():
        for j in range(k + 1):
            inner: Poly = {}
            for p, c in enumerate(_power_sum(j)):
                inner = plus(inner, scaled(power(count, p), c))
            term = times(power(first, k - j), scaled(inner, comb(k, j) * step**j))
            total = plus(total, times(coefficient, term))
    return total


def to_sympy(a: Poly, symbol: Callable[[str], Any]) -> Any:
    """Return a sympy expression, each name through `symbol`."""
    import sympy

    def value(found: Atom) -> Any:
        if isinstance(found, str):
            return symbol(found)
        inner = sum((value(f) * c for f, c in found.terms), sympy.Integer(found.constant))
        return sympy.floor(inner / found.divisor)

    terms = []
    for monomial, factor in a.items():
        term = sympy.Rational(factor.numerator, factor.denominator)
        for found, exponent in monomial:
            term *= value(found) ** exponent
        terms.append(term)
    return sympy.Add(*terms)
