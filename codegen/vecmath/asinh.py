"""The inverse hyperbolic functions.

asinh(a) = log(a + sqrt(a^2 + 1)) and acosh(x) = log(x + sqrt(x^2 - 1)), with the argument of the logarithm as a pair of numbers,
so that nothing cancels where it is near 1. atanh(a) = log((1 + a) / (1 - a)) / 2, whose quotient is brought near 1 by a power of
two before it is divided: 2 atanh(s) is the logarithm of n / d where s = (n - d) / (n + d).
"""

from __future__ import annotations

from polyker.codegen.vecmath import log as logarithm
from polyker.codegen.vecmath.core.build import MathBuilder, MathValue
from polyker.codegen.vecmath.core.double import fast_two_sum, less_product, two_product, two_sum

_ROOT_2 = 2.0**0.5
_INFINITE = float("inf")


def _large(b: MathBuilder, a: MathValue) -> MathValue:
    """Return whether a^2 + 1 and a^2 - 1 are a^2, as far as the logarithm is concerned."""
    return a > (2.0**15 if a.element == "float" else 2.0**30)


def _root(b: MathBuilder, square: MathValue, square_low: MathValue) -> tuple[MathValue, MathValue]:
    """Return the root of a pair as a pair; 0 of 0."""
    root = b.sqrt(square)
    low = (less_product(b, square, root, root) + square_low) * (0.5 / root)
    return root, b.select(square > 0.0, low, 0.0)


def asinh(b: MathBuilder, x: MathValue) -> MathValue:
    """Return the inverse hyperbolic sine of x."""
    a = b.abs(x)
    large = _large(b, a)
    inside = b.select(large, 1.0, a)
    product, error = two_product(b, inside, inside)
    square, lost = two_sum(b, product, b.constant(1.0, x.element))
    root, root_low = _root(b, square, lost + error)
    high, low = fast_two_sum(b, root, inside)
    value = logarithm.of_pair(b, b.choose(large, a, high), b.select(large, 0.0, low + root_low), large)
    return b.copysign(b.choose(a < _INFINITE, value, a), x)


def acosh(b: MathBuilder, x: MathValue) -> MathValue:
    """Return the inverse hyperbolic cosine of x, NaN below 1."""
    large = _large(b, x)
    inside = b.select(large, 2.0, x)
    product, error = two_product(b, inside, inside)
    less, lost = two_sum(b, product, b.constant(-1.0, x.element))
    square, square_low = fast_two_sum(b, less, lost + error)
    root, root_low = _root(b, square, square_low)
    high, low = fast_two_sum(b, inside, root)
    value = logarithm.of_pair(b, b.choose(large, x, high), b.select(large, 0.0, low + root_low), large)
    return b.select(x >= 1.0, b.choose(x < _INFINITE, value, x), float("nan"))


def atanh(b: MathBuilder, x: MathValue) -> MathValue:
    """Return the inverse hyperbolic tangent of x: infinite at 1, NaN beyond."""
    a = b.abs(x)
    top, top_low = fast_two_sum(b, 1.0, a)
    below, below_low = fast_two_sum(b, 1.0, -a)
    parts = logarithm.split(b, below, subnormal=False)
    more = top > parts.m * _ROOT_2
    k = b.choose(more, 1.0 - parts.k, -parts.k)
    scale = b.select(more, 2.0, b.constant(1.0, x.element))
    bottom, bottom_low = parts.m * scale, below_low * parts.inverse * (scale * 0.5)
    # The first difference is exact.
    above = (top - bottom) + (top_low - bottom_low)
    total, total_low = two_sum(b, top, bottom)
    total_low = total_low + (top_low + bottom_low)
    inverse = 1.0 / total
    s = above * inverse
    s_low = b.fma(-s, total_low, less_product(b, above, s, total)) * inverse
    z = s * s
    ln2, ln2_low = b.table("LN2", x)
    tail = b.fma(s * z, b.horner(z, b.table("ATANH", x)), b.fma(k, ln2_low / 2, s_low))
    value = b.fma(k, ln2 / 2, s) + tail
    value = b.select(a < 1.0, value, b.select(a.eq(1.0), _INFINITE, b.constant(float("nan"), x.element)))
    return b.copysign(value, x)
