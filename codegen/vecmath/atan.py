"""The angles: atan, and atan2 of a point.

atan(a) of a quotient up to tan(pi / 8) is t + t^3 P(t^2); up to its reciprocal pi / 4 + atan((a - 1) / (a + 1)), beyond
pi / 2 - atan(1 / a). atan2 divides by the larger coordinate, or sum, so the quotient does not overflow.
"""

from __future__ import annotations

from polyker.codegen.vecmath.core.build import MathBuilder, MathValue

_EIGHTH = 0.41421356237309503  # tan(pi / 8)


def atan(b: MathBuilder, x: MathValue) -> MathValue:
    """Return the arc tangent of x."""
    a = b.abs(x)
    small, large = a <= _EIGHTH, a >= 1 / _EIGHTH
    above = b.choose(small, a, b.select(large, -1.0, a - 1.0))
    below = b.select(small, 1.0, b.choose(large, a, a + 1.0))
    t = above / below
    z = t * t
    # The parts of the multiple of pi / 4.
    start, rest = (b.select(small, 0.0, b.select(large, p / 2, b.constant(p / 4, x.element))) for p in b.table("PI", x))
    tail = b.horner2(z, z * z, b.table("ATAN_EIGHTH", x))
    return b.copysign(start + (t + b.fma(t * z, tail, rest)), x)


def atan2(b: MathBuilder, y: MathValue, x: MathValue) -> MathValue:
    """Return the angle of (x, y) in [-pi, pi], signed zeros and infinities as C99's."""
    ax, ay = b.abs(x), b.abs(y)
    steep, left = ax < ay, b.bits(x) < 0
    low, high = b.choose(steep, ax, ay), b.choose(steep, ay, ax)
    zero, same = low.eq(0.0), low.eq(high)
    # Half of each, where the sum may overflow. Scaled up, where `high * _EIGHTH` may be denormal, and so rounded by much.
    bias = b.format(x).bias
    factor = b.select(high > 2.0 ** (bias - 2), 0.5, b.constant(1.0, x.element))
    factor = b.choose(high < 2.0 ** (4 - bias), b.constant(2.0 ** (bias // 2), x.element), factor)
    middle = (low * factor > high * factor * _EIGHTH) | (same & low.ne(0.0))
    above = b.choose(middle, low * factor - high * factor, low)
    below = b.choose(middle, low * factor + high * factor, high)
    t = b.select(zero | same, 0.0, above / below)
    z = t * t
    tail = t * z * b.horner2(z, z * z, b.table("ATAN_EIGHTH", x))
    # The angle is a multiple of pi / 4 and that of t, or less it.
    eighths = b.select(middle, 1.0, b.constant(0.0, x.element))
    eighths = b.choose(steep, 2.0 - eighths, eighths)
    eighths = b.choose(left, 4.0 - eighths, eighths)
    turned = steep ^ left
    t, tail = b.choose(turned, -t, t), b.choose(turned, -tail, tail)
    quarter, rest = (p / 4 for p in b.table("PI", x))
    start = eighths * quarter
    rest_of_start = b.fma(eighths, rest, b.fma(eighths, quarter, -start))
    angle = start + (t + (tail + rest_of_start))
    nan = x.ne(x) | y.ne(y)
    return b.copysign(b.select(nan, float("nan"), angle), y)
