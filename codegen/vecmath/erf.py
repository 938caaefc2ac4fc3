"""The error function, its complement, and gelu, which is x times the normal distribution.

erf(x) is x + x P(x^2) up to 1, and 1 - exp(Q(x)) beyond, with Q fitted to log(erfc(x)). gelu needs the tail of the normal
distribution to full relative precision: a Phi(-a) = exp(-a^2 / 2) R(u) with u = (a - c) / (a + c), for a from 0.75 on;
below, Phi(x) = 1/2 + x P(x^2). erfc(a) = exp(-a^2) (1 + (1 + u) R(u)) / (1 + 3 a / 2) for all a >= 0: the numerator's second
factor is nearly flat, so that the error of u does no harm. The change of variable is after Shepherd and Laframboise, "Chebyshev
approximation of (1+2x) exp(x^2) erfc x", 1981.
"""

from __future__ import annotations

from polyker.codegen.vecmath import exp as exponential
from polyker.codegen.vecmath.core.build import MathBuilder, MathValue
from polyker.codegen.vecmath.core.double import less_product, two_product


def erf(b: MathBuilder, x: MathValue) -> MathValue:
    """Return the error function of x."""
    single = b.format(x).name == "f32"
    a = b.abs(x)
    z = a * a
    near = b.fma(x, b.horner2(z, z * z, b.table("ERF", x)), x)
    inside = b.at_most(a, 4.0 if single else 6.0)
    curve = b.horner2(inside, inside * inside, b.table("LOG_ERFC", x))
    reduced = exponential.reduce(b, curve)
    far = 1.0 - exponential.power_of_two(b, reduced.shifted) * (reduced.grown + 1.0)
    return b.select(a > 1.0, b.copysign(far, x), near)


def erfc(b: MathBuilder, x: MathValue) -> MathValue:
    """Return 1 - erf(x), to full relative precision where that is small."""
    single = b.format(x).name == "f32"
    most, c = (10.1, 3.0) if single else (27.25, 4.0)
    a = b.at_most(b.abs(x), most)
    square, low = two_product(b, a, -a)
    reduced, r, grown = exponential.reduce_pair(b, square, low)
    # One division gives u and 1 / (1 + 3 a / 2), which gets its error back.
    total, bottom = a + c, b.fma(a, 1.5, 1.0)
    inverse = 1.0 / (total * bottom)
    u = (a - c) * bottom * inverse
    quotient = total * inverse
    rest = less_product(b, b.constant(1.0, x.element), quotient, bottom) - quotient * b.fma(a, 1.5, 1.0 - bottom)
    # 1 + u, of a small a to full precision, and rounded once.
    beside = a * 2.0 * bottom * inverse
    beside = b.fma(b.fma(-beside, total, a * 2.0), bottom * inverse, beside)
    curve = beside * b.horner2(u, u * u, b.table("ERFC", x))
    p = b.fma(quotient, curve, quotient)
    p_low = b.fma(quotient, curve, quotient - p) + quotient * rest
    p = b.fma(p, r, b.fma(p, grown, b.fma(p_low, r, p_low))) + p
    # p is not below 2^-6: so much earlier may the result be subnormal.
    positive = exponential.scale(b, p, reduced, square - 5.0, a >= most)
    return b.choose(x < 0.0, 2.0 - positive, positive)


def gelu(b: MathBuilder, x: MathValue) -> MathValue:
    """Return x Phi(x), the erf form; NaN at -inf as the formula."""
    single = b.format(x).name == "f32"
    most, c = (14.5, 2.0) if single else (38.7, 4.0)
    a = b.at_most(b.abs(x), most)
    square, low = two_product(b, a, a * -0.5)
    near = x * b.fma(x, b.horner(x * x, b.table("NORMAL", x)), 0.5)
    reduced = exponential.reduce(b, square, low)
    u = (a - c) / (a + c)
    curve = b.horner2(u, u * u, b.table("NORMAL_TAIL", x))
    # a Phi(-a), whole before it can become subnormal, and nothing beside a large x.
    none = (x < -most) | (x > 9.0)
    beyond = -exponential.scale(b, b.fma(curve, reduced.grown, curve), reduced, square, none)
    far = b.select(x > 0.0, x + beyond, b.select(x < -most, x * 0.0, beyond))
    return b.select(a < 0.75, near, b.select(x > most, x, far))
