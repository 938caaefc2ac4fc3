"""The logarithm of the gamma function, and its derivative, digamma; in f32 computed in f64.

lgamma(x): on [1, 3] (x - 1) (x - 2) P(x), which holds both zeros; lgamma(1 + x) - log(x) below; Stirling's formula in y = x - 1/2
beyond. digamma(x): on [1, 2] (x - x0) P(x), x0 its zero; digamma(1 + x) - 1 / x below; log(y) + R(y) / y^2 beyond. Negative
numbers take a slow path, the reflection from |x|, whose distance to the nearest integer is exact.
Source of the expansions in y: Luke, "The Special Functions and Their
Approximations", 1969, 2.11.
"""

from __future__ import annotations

from polyker.codegen.vecmath import log as logarithm
from polyker.codegen.vecmath.core.build import MathBuilder, MathValue
from polyker.codegen.vecmath.core.tables import table

_INFINITE = float("inf")
_NAN = float("nan")


def _wide(b: MathBuilder, x: MathValue) -> MathValue:
    return b.convert("fpext", x, "double") if x.element == "float" else x


def _narrow(b: MathBuilder, result: MathValue, x: MathValue) -> MathValue:
    return b.convert("fptrunc", result, "float") if x.element == "float" else result


def _log(b: MathBuilder, x: MathValue, single: bool) -> tuple[MathValue, MathValue]:
    """Return a logarithm and what it lost."""
    return (logarithm.wide(b, x), b.constant(0.0, "double")) if single else logarithm.with_rest(b, x)


def lgamma(b: MathBuilder, x: MathValue) -> MathValue:
    """Return the logarithm of |gamma(x)|: infinite at 0 and the negative integers."""
    single = x.element == "float"
    wide = _wide(b, x)
    a = b.abs(wide)
    low, far = a < 1.0, a >= 3.0
    first, second = b.choose(low, a, a - 1.0), b.choose(low, a - 1.0, a - 2.0)
    tail = b.horner2(second, second * second, b.table("LGAMMA", x))
    middle = b.fma(first * second, tail, 0.0)  # no negative zero at 1
    y = a - 0.5
    log, rest = _log(b, b.choose(low, a, y), single)
    inverse = 1.0 / y
    series = inverse * b.horner(inverse * inverse, b.table("LGAMMA_FAR", x))
    constant, constant_low = table("HALF_LOG_2PI")
    stirling = b.fma(y, log - 1.0, constant) + b.fma(y, rest, series + constant_low)
    value = b.choose(far, stirling, b.choose(low, (middle - log) - rest, middle))
    negative = wide < 0.0
    partner = b.choose(low, middle, value)
    value = b.rarely(negative, value, "lgamma.negative", _reflected, a, partner)
    value = b.select(a.eq(0.0) | a.eq(_INFINITE), _INFINITE, value)
    return _narrow(b, value, x)


def _distance(b: MathBuilder, a: MathValue) -> MathValue:
    """Return a less the nearest integer."""
    fraction = a - b.intrinsic("trunc", a)
    return b.choose(fraction > 0.5, fraction - 1.0, fraction)


def _reflected(b: MathBuilder, a: MathValue, partner: MathValue) -> MathValue:
    """Return lgamma(-a) = -log(a |sin(pi a)| / pi) - lgamma(a), which is `partner`.

    Below 1 that is lgamma(1 + a), beside which the logarithm has no factor a.
    """
    r = b.abs(_distance(b, a))
    size = r * b.horner(r * r, table("SINE_PI")) * b.at_least(a, 1.0)
    log, rest = logarithm.with_rest(b, size)
    return b.select(r.eq(0.0), _INFINITE, -(log + partner) - rest)


def digamma(b: MathBuilder, x: MathValue) -> MathValue:
    """Return the derivative of lgamma(x): infinite at 0, NaN at the negative integers."""
    single = x.element == "float"
    wide = _wide(b, x)
    a = b.abs(wide)
    low, far = a < 1.0, a >= 2.0
    zero, zero_low = table("PSI_ZERO")
    t = (a - b.select(low, zero - 1.0, b.constant(zero, "double"))) - zero_low
    middle = t * b.horner2(t, t * t, b.table("DIGAMMA", x))
    # Beyond 2^60 the series is nothing beside the logarithm.
    y = a - 0.5
    inside = b.at_most(y, 2.0**60)
    square, total = inside * inside, inside + 1.5
    inverse = 1.0 / b.choose(low, a, square * total)
    u = (inside - 1.5) * square * inverse
    log, rest = _log(b, y, single)
    beyond = b.fma(total * inverse, b.horner2(u, u * u, b.table("DIGAMMA_FAR", x)), rest) + log
    value = b.choose(far, beyond, b.choose(low, middle - inverse, middle))
    negative = wide < 0.0
    partner = b.choose(low, middle, value)
    value = b.rarely(negative, value, "digamma.negative", _reflected_slope, a, partner)
    value = b.select(wide.eq(_INFINITE), _INFINITE, value)
    value = b.choose(a.eq(0.0), b.copysign(b.constant(_INFINITE, "double"), -wide), value)
    return _narrow(b, value, x)


def _reflected_slope(b: MathBuilder, a: MathValue, partner: MathValue) -> MathValue:
    """Return digamma(-a) = digamma(a) + 1 / a + pi cot(pi a); below 1 `partner` is digamma(1 + a), the sum of the first two."""
    r = _distance(b, a)
    value = b.choose(a < 1.0, partner, partner + 1.0 / a)
    value = value + (1.0 / r - r * b.horner(r * r, table("COTANGENT_PI")))
    return b.select(r.eq(0.0) | a.eq(_INFINITE), _NAN, value)
