"""The general power x^y = exp(y log x), with log x as a pair of numbers (high, low).

Zeros, subnormals, infinities, NaN, x < 0, and results near overflow or underflow take a slow path, in f32 through f64.
Special values: C99, F.9.4.4.
"""

from __future__ import annotations

from polyker.codegen.vecmath import exp as exponential
from polyker.codegen.vecmath import log as logarithm
from polyker.codegen.vecmath.core.build import F32, MathBuilder, MathValue
from polyker.codegen.vecmath.core.double import fast_two_sum, less_product, two_product
from polyker.codegen.vecmath.core.registers import reciprocal_root
from polyker.codegen.vecmath.core.tables import table
from polyker.codegen.vecmath.pow_lookup import power as from_tables


def log_pair(b: MathBuilder, x: MathValue, *, subnormal: bool = True) -> tuple[MathValue, MathValue]:
    """Return the logarithm of a positive finite number as a pair: k ln 2 + 2 (s + s^3 / 3 + s^5 P(s^2)), s = f / (2 + f)."""
    parts = logarithm.split(b, x, subnormal=subnormal)
    f = parts.m - 1.0
    d = parts.m + 1.0
    inverse = 1.0 / d
    s = f * inverse
    # d may have been rounded: parts.m - (d - 1) is what it lost.
    rest = b.fma(-s, parts.m - (d - 1.0), less_product(b, f, s, d)) * inverse
    double = s + s
    v, v_low, slope = (_cube_f32 if b.format(x).name == "f32" else _cube_f64)(b, s, double, rest)
    h, h_low = _and_product(b, double, v)
    h_low = b.fma(double, v_low, b.fma(rest, slope, h_low))
    ln2 = b.table("LN2", x)
    # k ln2[0] is exact: these are its sum with h, and what that has lost.
    high = b.fma(parts.k, ln2[0], h)
    low = h - b.fma(parts.k, -ln2[0], high)
    return high, low + b.fma(parts.k, ln2[1], h_low)


def _and_product(b: MathBuilder, x: MathValue, v: MathValue) -> tuple[MathValue, MathValue]:
    """Return x + x v and its error; |v| < 1/2."""
    if b.features.fma:
        total = b.fma(x, v, x)
        return total, b.fma(x, v, x - total)
    product, error = two_product(b, x, v)
    total, rest = fast_two_sum(b, x, product)
    return total, rest + error


def _cube_f64(
    b: MathBuilder, s: MathValue, double: MathValue, rest: MathValue
) -> tuple[MathValue, MathValue, MathValue]:
    """Return v = s^2 / 3 + s^4 P(s^2) as a pair, s being s + rest, and the slope of 2 (s + s v) where v is left as it is."""
    z, z_low = two_product(b, s, s)
    z_low = b.fma(double, rest, z_low)
    tail = b.horner2(z, z * z, table("POW_F64"))
    w = b.fma(z, tail, table("THIRD_F64")[0])
    w_low = b.fma(z, tail, table("THIRD_F64")[0] - w)
    v, v_low = two_product(b, z, w)
    return v, b.fma(z_low, w, b.fma(z, w_low + table("THIRD_F64")[1], v_low)), b.fma(v, 2.0, 2.0)


def _cube_f32(
    b: MathBuilder, s: MathValue, double: MathValue, rest: MathValue
) -> tuple[MathValue, MathValue, MathValue]:
    """Return the same in f32, the slope with v's; as v is below 1/50, the rounding errors of s^2 and P do no harm."""
    z = s * s
    v, v_low = two_product(b, z, b.horner(z, (table("THIRD_F32")[0], *table("POW_F32"))))
    return v, v_low, b.fma(v, 6.0, 2.0)


def _ends(b: MathBuilder, a: MathValue, x: MathValue) -> MathValue:
    """Return `x`, the logarithm of a >= 0, with the right values at 0, inf and NaN."""
    return b.select(a.eq(0.0), float("-inf"), b.select(a < float("inf"), x, a))


def _magnitude_f64(b: MathBuilder, a: MathValue, y: MathValue) -> MathValue:
    """Return a^y, a >= 0."""
    high, low = log_pair(b, a)
    high = _ends(b, a, high)
    product, error = two_product(b, y, high)
    error = b.fma(y, low, error)
    # Beyond the range of exp the error may be NaN.
    return exponential.exp(b, product, b.select(b.abs(product) < 1000.0, error, 0.0))


def _magnitude_f32(b: MathBuilder, a: MathValue, y: MathValue) -> MathValue:
    """Return a^y, a >= 0, in f64, whose range holds every result before it is rounded."""
    wide, power = b.convert("fpext", a, "double"), b.convert("fpext", y, "double")
    parts = logarithm.split(b, wide, subnormal=False)
    f = parts.m - 1.0
    tail = b.horner(f, (1.0, -0.5, *table("LOG_F32_WIDE")))
    value = power * _ends(b, wide, b.fma(f, tail, parts.k * table("LN2")[0]))
    value = b.at_most(b.at_least(value, -200.0), 200.0)
    reduced = exponential.reduce(b, value, tail=table("EXP_F32"))
    grown = reduced.grown + 1.0
    return b.convert("fptrunc", grown * exponential.power_of_two(b, reduced.shifted), "float")


def _general(b: MathBuilder, x: MathValue, y: MathValue) -> MathValue:
    """Return x^y for all x and y."""
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


def _usual(b: MathBuilder, x: MathValue, y: MathValue) -> tuple[MathValue, MathValue]:
    """Return (x^y, y log x) of x positive, finite and normal, and a result that neither overflows nor is subnormal."""
    high, low = log_pair(b, x, subnormal=False)
    product, error = two_product(b, y, high)
    reduced = exponential.reduce(b, product, b.fma(y, low, error))
    power = exponential.power_of_two(b, reduced.shifted)
    return b.fma(reduced.grown, power, power), product


def power(b: MathBuilder, x: MathValue, y: MathValue) -> MathValue:
    """Return x^y: directly where x is positive, finite and normal and the result safely so; `_general` elsewhere."""
    form = b.format(x)
    usual, product = (from_tables if form.name == "f32" and b.features.avx512 else _usual)(b, x, y)
    # Also true where y is NaN or infinite.
    beyond = b.negation(b.abs(product) < (708.0 - 1.0 if form.name == "f64" else 87.0))
    rare = logarithm.special(b, x) | beyond
    return b.rarely(rare, usual, "pow.rare", _general, x, y)


def whole_power(b: MathBuilder, x: MathValue, exponent: int) -> MathValue:
    """Return x^n of a whole number n other than 0, by squaring pairs (high, low): within an ulp, or 2 next to the least numbers.

    Source: Graillat, "Accurate Floating-Point Product and Exponentiation", 2009.
    """
    base, base_low = x, None
    if exponent < 0:
        base = 1.0 / x
        # What the quotient has lost, which is exact only where the multiply-add is fused.
        base_low = base * less_product(b, b.constant(1.0, x.element), x, base)
    high, low = base, base_low
    for bit in bin(abs(exponent))[3:]:
        high, low = _product(b, high, low, high, low)
        if bit == "1":
            high, low = _product(b, high, low, base, base_low)
    if low is None:
        return high
    total = high + low
    # Where the power is infinite, its error is NaN; and a zero keeps its sign.
    return b.select(b.abs(total) > 0.0, total, high)


def _product(
    b: MathBuilder, x: MathValue, x_low: MathValue | None, y: MathValue, y_low: MathValue | None
) -> tuple[MathValue, MathValue]:
    """Return the product of two pairs; None is a low part of 0."""
    product, error = two_product(b, x, y)
    if x_low is not None and x_low is y_low:
        return product, b.fma(x + x, x_low, error)
    if x_low is not None:
        error = b.fma(x_low, y, error)
    return product, error if y_low is None else b.fma(x, y_low, error)


def rsqrt(b: MathBuilder, x: MathValue) -> MathValue:
    """Return 1 / sqrt(x): with an estimate e of 14 bits, where AVX-512 has one, e (1 - d)^(-1/2) of d = 1 - x e^2."""
    if not b.features.avx512:
        return 1.0 / b.sqrt(x)
    estimate = reciprocal_root(b, x)
    rest = b.fma(-(x * estimate), estimate, 1.0)
    series = (1 / 2, 3 / 8) if b.format(x) is F32 else (1 / 2, 3 / 8, 5 / 16, 35 / 128)
    better = b.fma(estimate * rest, b.horner(rest, series), estimate)
    # Of zeros and of infinity, whose estimates are exact, the rest is NaN.
    return b.choose(better.eq(better), better, estimate)
