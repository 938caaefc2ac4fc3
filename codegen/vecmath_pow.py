"""The general power x^y = exp(y log x), the logarithm to about twice the precision of the result's format.

In f64, log x is a pair of numbers (high, low); in f32 everything is computed in f64. Special values: C99, F.9.4.4.
"""

from __future__ import annotations

from polyker.codegen import vecmath_exp as exponential
from polyker.codegen import vecmath_log as logarithm
from polyker.codegen import vecmath_tables as tables
from polyker.codegen.vecmath_build import Builder, Value
from polyker.codegen.vecmath_double import fast_two_sum, two_product


def log_pair(b: Builder, x: Value) -> tuple[Value, Value]:
    """Return the logarithm of a positive finite f64 as a pair: k ln 2 + 2 (s + s^3 / 3 + s^5 P(s^2)), s = f / (2 + f)."""
    parts = logarithm.split(b, x)
    f = parts.m - 1.0
    d = parts.m + 1.0
    inverse = 1.0 / d
    s = f * inverse
    product, error = two_product(b, s, d)
    # d may have been rounded: parts.m - (d - 1) is what it lost.
    rest = (((f - product) - error) - s * (parts.m - (d - 1.0))) * inverse
    z, z_low = two_product(b, s, s)
    z_low = b.fma(s + s, rest, z_low)
    w, w_low = fast_two_sum(b, tables.THIRD[0], z * b.horner(z, tables.POW_F64))
    w_low = w_low + tables.THIRD[1]
    v, v_low = two_product(b, z, w)
    v_low = v_low + b.fma(z, w_low, z_low * w)
    u, u_low = two_product(b, s, v)
    u_low = u_low + b.fma(s, v_low, rest * v)
    h, l = fast_two_sum(b, s + s, u + u)
    l = b.fma(rest + u_low, 2.0, l)
    high, low = fast_two_sum(b, parts.k * tables.LN2_F64[0], h)
    return high, low + b.fma(parts.k, tables.LN2_F64[1], l)


def _ends(b: Builder, a: Value, x: Value) -> Value:
    """Return `x`, the logarithm of a >= 0, with the right values at 0, inf and NaN."""
    return b.select(a.eq(0.0), float("-inf"), b.select(a < float("inf"), x, a))


def _magnitude_f64(b: Builder, a: Value, y: Value) -> Value:
    """Return a^y, a >= 0."""
    high, low = log_pair(b, a)
    high = _ends(b, a, high)
    product, error = two_product(b, y, high)
    error = b.fma(y, low, error)
    # Beyond the range of exp the error may be NaN.
    return exponential.exp(b, product, b.select(b.abs(product) < 1000.0, error, 0.0))


def _magnitude_f32(b: Builder, a: Value, y: Value) -> Value:
    """Return a^y, a >= 0, in f64, whose range holds every result before it is rounded."""
    wide, power = b.convert("fpext", a, "double"), b.convert("fpext", y, "double")
    parts = logarithm.split(b, wide, subnormal=False)
    f = parts.m - 1.0
    tail = b.horner(f, (1.0, -0.5, *tables.LOG_F32_WIDE))
    value = power * _ends(b, wide, b.fma(f, tail, parts.k * tables.LN2[0]))
    value = b.at_most(b.at_least(value, -200.0), 200.0)
    reduced = exponential.reduce(b, value, tail=tables.EXP_F32)
    r = reduced.r
    grown = b.fma(r * r, reduced.tail, r) + 1.0
    return b.convert("fptrunc", grown * exponential.power_of_two(b, reduced.shifted), "float")


def power(b: Builder, x: Value, y: Value) -> Value:
    """Return x^y."""
    a = b.abs(x)
    infinite = float("inf")
    value = (_magnitude_f64 if x.element == "double" else _magnitude_f32)(b, a, y)
    whole = b.intrinsic("trunc", y).eq(y)
    half = y * 0.5
    odd = whole & b.intrinsic("trunc", half).ne(half)
    value = b.select(odd, b.copysign(value, x), value)
    fraction = b.choose(whole, b.constant(False, "i1"), (x < 0.0) & (x > -infinite))
    value = b.select(fraction, float("nan"), value)
    one = y.eq(0.0) | x.eq(1.0) | (a.eq(1.0) & b.abs(y).eq(infinite))
    return b.select(one, 1.0, value)


def rsqrt(b: Builder, x: Value) -> Value:
    """Return 1 / sqrt(x)."""
    return 1.0 / b.sqrt(x)
