"""The cube root.

x = 2^(3 q) m with m from about 0.35 to 2.9: a polynomial begins 1 / cbrt(m), a step of Newton's method (in f64 of the third order) betters
it, and another, whose residual is exact, rounds the root.
"""

from __future__ import annotations

from polyker.codegen import vecmath_exp as exponential
from polyker.codegen import vecmath_log as logarithm
from polyker.codegen import vecmath_special_tables as special
from polyker.codegen.vecmath_build import Builder, Value
from polyker.codegen.vecmath_double import less_product, two_product


def cbrt(b: Builder, x: Value) -> Value:
    """Return the cube root of x, which has the sign of x."""
    form = b.format(x)
    a = b.abs(x)
    parts = logarithm.split(b, a)
    shift = 1.5 * 2.0**form.mantissa
    shifted = b.fma(parts.k, 1 / 3, shift)
    rest = parts.k - (shifted - shift) * 3.0  # -1, 0 or 1
    more, less = rest > 0.0, rest < 0.0
    one, (two,) = b.constant(1.0, x.element), special.CBRT_2
    m = parts.m * b.select(more, 2.0, b.select(less, 0.5, one))
    inverse = b.horner(parts.m, special.CBRT) * b.select(more, 1 / two, b.select(less, two, one))
    error = b.fma(-(m * inverse), inverse * inverse, 1.0)
    series = b.constant(1 / 3, x.element) if form.name == "f32" else b.fma(error, 2 / 9, 1 / 3)
    inverse = b.fma(inverse * error, series, inverse)
    square = inverse * inverse
    root = m * square
    power, power_low = two_product(b, root, root)
    residual = less_product(b, m, root, power) - root * power_low
    root = b.fma(residual * square, 1 / 3, root) * exponential.power_of_two(b, shifted)
    return b.select((a > 0.0) & (a < float("inf")), b.copysign(root, x), x)
