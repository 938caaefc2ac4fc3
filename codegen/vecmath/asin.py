"""The arc sine and the arc cosine.

asin(x) = x + x^3 P(x^2) up to 1/2; beyond, asin(x) = pi / 2 - 2 asin(s) with s^2 = (1 - x) / 2. acos(x) is pi / 2 - asin(x),
beyond 1/2 it is 2 asin(s), and below -1/2 pi less that.
Source: Cody and Waite, "Software Manual for the Elementary Functions", 1980, chapter 10.
"""

from __future__ import annotations

from polyker.codegen.vecmath.core.build import MathBuilder, MathValue
from polyker.codegen.vecmath.core.double import fast_two_sum


def _reduced(b: MathBuilder, x: MathValue) -> tuple[MathValue, MathValue, MathValue]:
    """Return (whether |x| > 1/2, s, asin(s) - s), s being |x| or the root; NaN beyond 1."""
    a = b.abs(x)
    far = a > 0.5
    z = b.choose(far, (1.0 - a) * 0.5, a * a)
    s = b.choose(far, b.sqrt(z), a)
    tail = b.horner2(z, z * z, b.table("ASIN", x))
    return far, s, s * z * tail


def asin(b: MathBuilder, x: MathValue) -> MathValue:
    """Return the arc sine of x, NaN beyond 1."""
    high, low = b.table("PI", x)
    far, s, tail = _reduced(b, x)
    twice = s * 2.0
    start, lost = fast_two_sum(b, high / 2, -twice)
    beyond = start - (b.fma(tail, 2.0, -low / 2) - lost)
    return b.copysign(b.choose(far, beyond, s + tail), x)


def acos(b: MathBuilder, x: MathValue) -> MathValue:
    """Return the arc cosine of x, NaN beyond 1."""
    far, s, tail = _reduced(b, x)
    positive = x > 0.0
    # What is taken from pi / 2 (asin(x), signed) or from pi (twice asin(s)).
    factor = b.select(far, 2.0, b.copysign(b.constant(1.0, x.element), x))
    start, rest = (b.select(far, p, b.constant(p / 2, x.element)) for p in b.table("PI", x))
    less = (start - factor * s) - (factor * tail - rest)
    return b.choose(far & positive, (s + tail) * 2.0, less)
