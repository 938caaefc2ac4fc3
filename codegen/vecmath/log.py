"""Logarithms: log, log2, log10 and log1p.

x = 2^k m with sqrt(1/2) <= m < sqrt(2), log(x) = k ln 2 + log(1 + f), f = m - 1. In f64, log(1 + f) = 2 atanh(s) with
s = f / (2 + f) (Source: Tang, "Table-driven implementation of the logarithm function", 1990; fdlibm, 1993); in f32 a
polynomial in f, which needs no division.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from polyker.codegen.vecmath.core.build import Format, MathBuilder, MathValue
from polyker.codegen.vecmath.core.double import fast_two_sum
from polyker.codegen.vecmath.core.registers import exponent, repaired, significand
from polyker.codegen.vecmath.core.tables import table

# The bits of sqrt(1/2), and the least normal number.
_ROOT_HALF = {"f32": 0x3F3504F3, "f64": 0x3FE6A09E667F3BCD}
_LEAST_NORMAL = {"f32": 2.0**-126, "f64": 2.0**-1022}


def one_bits(form: Format) -> int:
    """Return the bits of 1.0."""
    return form.bias << form.mantissa


class Split(Struct, frozen=True):
    """x = 2^k m: `k` as a number, `m`, and `inverse` = 2^(1 - k)."""

    k: MathValue
    m: MathValue
    inverse: MathValue


def split(b: MathBuilder, x: MathValue, *, subnormal: bool = True) -> Split:
    """Take a positive finite number apart; without `subnormal` it is a normal one. Anything else gives nonsense."""
    form = b.format(x)
    root = _ROOT_HALF[form.name]
    magic = 2.0**form.mantissa
    bias: MathValue = b.constant(magic + form.bias, form.element)
    if subnormal:
        tiny = x < _LEAST_NORMAL[form.name]
        lift = form.mantissa + 2
        x = b.choose(tiny, x * 2.0**lift, x)
        bias = b.choose(tiny, b.constant(magic + form.bias + lift, form.element), bias)
    moved = b.bits(x) + (one_bits(form) - root)
    m = b.from_bits((moved & ((1 << form.mantissa) - 1)) + root)
    # The exponent becomes a number as the low bits of 2^mantissa.
    k = b.from_bits(moved.shr(form.mantissa) | ((form.bias + form.mantissa) << form.mantissa)) - bias
    field = ((1 << (form.bits - 1 - form.mantissa)) - 1) << form.mantissa
    inverse = b.from_bits((moved & field) ^ field)
    return Split(k, m, inverse)


def natural(b: MathBuilder, k: MathValue, f: MathValue, more: MathValue | None = None) -> MathValue:
    """Return k ln 2 + log(1 + f), and `more`, which is much smaller."""
    form = b.format(f)
    high, low = b.table("LN2", f)
    small = k * low if more is None else b.fma(k, low, more)
    square = f * f
    if form.name == "f32":
        tail = b.horner(f, (-0.5, *table("LOG_F32")))
        return b.fma(k, high, f + b.fma(square, tail, small))
    s = f / (f + 2.0)
    z = s * s
    half = square * 0.5
    inner = b.fma(s, b.fma(z, b.horner(z, table("LOG_F64")), half), small)
    return b.fma(k, high, f - (half - inner))


def _pair(b: MathBuilder, f: MathValue) -> tuple[MathValue, MathValue]:
    """Return log(1 + f) and about what its rounding has lost."""
    square = f * f
    if b.format(f).name == "f32":
        return fast_two_sum(b, f, square * b.horner(f, (-0.5, *table("LOG_F32"))))
    s = f / (f + 2.0)
    z = s * s
    half = square * 0.5
    return fast_two_sum(b, f, b.fma(s, b.fma(z, b.horner(z, table("LOG_F64")), half), -half))


def _binary(b: MathBuilder, k: MathValue, f: MathValue) -> MathValue:
    """Return k + log2(1 + f)."""
    high, low = _pair(b, f)
    factor, rest = b.table("LOG2E", f)
    return b.fma(high, factor, b.fma(low, factor, b.fma(high, rest, k)))


def _decimal(b: MathBuilder, k: MathValue, f: MathValue) -> MathValue:
    """Return log10(2^k (1 + f))."""
    high, low = _pair(b, f)
    factor, rest = b.table("LOG10E", f)
    first, second = b.table("LOG10_2", f)
    return b.fma(k, first, b.fma(high, factor, b.fma(low, factor, b.fma(high, rest, k * second))))


def of_pair(b: MathBuilder, high: MathValue, low: MathValue, double: MathValue | None = None) -> MathValue:
    """Return log(high + low) of a normal number and its rounding error; with ln 2 more where `double` holds."""
    parts = split(b, high, subnormal=False)
    k = parts.k if double is None else b.choose(double, parts.k + 1.0, parts.k)
    return natural(b, k, b.fma(low * parts.inverse, 0.5, parts.m - 1.0))


def with_rest(b: MathBuilder, x: MathValue) -> tuple[MathValue, MathValue]:
    """Return the logarithm of a positive finite number, and about what its rounding has lost."""
    parts = split(b, x)
    ln2, ln2_low = b.table("LN2", x)
    high, low = _pair(b, parts.m - 1.0)
    # k times the first part of ln 2 is exact.
    total = b.fma(parts.k, ln2, high)
    lost = high - b.fma(parts.k, -ln2, total)
    return total, lost + b.fma(parts.k, ln2_low, low)


def wide(b: MathBuilder, x: MathValue) -> MathValue:
    """Return the logarithm of a positive finite number that came from f32, in f64, to more than f32's precision."""
    parts = split(b, x, subnormal=False)
    f = parts.m - 1.0
    return b.fma(f, b.horner2(f, f * f, (1.0, -0.5, *table("LOG_F32_WIDE"))), parts.k * table("LN2")[0])


# By classes of x: NaN stays, 0 gives -inf, what is negative NaN, inf itself.
_CLASSES = {"quiet": "quiet", "signaling": "quiet", "zero": "-inf", "-inf": "nan", "inf": "inf", "negative": "nan"}


def _special(b: MathBuilder, usual: MathValue, x: MathValue, pole: float) -> MathValue:
    """Return `usual` where pole < x < inf; -inf at the pole, NaN below, inf and NaN for themselves."""
    outside = b.select(x < pole, float("nan"), b.select(x.eq(pole), float("-inf"), x))
    return b.select((x > pole) & (x < float("inf")), usual, outside)


def _subnormal(b: MathBuilder, x: MathValue) -> MathValue:
    """Return whether x is a positive number below the normal ones."""
    least = 1 << b.format(x).mantissa
    return b.negation(b.unsigned_ge(b.bits(x) - 1, least - 1))


def special(b: MathBuilder, x: MathValue) -> MathValue:
    """Return whether x is anything but a positive, finite, normal number."""
    form = b.format(x)
    least = 1 << form.mantissa
    span = ((2 * form.bias + 1) << form.mantissa) - least
    return b.unsigned_ge(b.bits(x) - least, span)


def _logarithm(
    b: MathBuilder, x: MathValue, name: str, total: Callable[[MathBuilder, MathValue, MathValue], MathValue]
) -> MathValue:
    """Return `total` of k and f: in f32 with AVX-512 of all numbers alike, else of normal ones directly."""

    def of_any(b: MathBuilder, x: MathValue) -> MathValue:
        parts = split(b, x)
        return _special(b, total(b, parts.k, parts.m - 1.0), x, 0.0)

    if b.features.avx512 and x.element == "float":
        # These instructions take subnormal numbers apart, too; in f64 they take longer than those on integers.
        k, m = exponent(b, x), significand(b, x)
        upper = m > 2.0**0.5
        f = b.choose(upper, m * 0.5, m) - 1.0
        return repaired(b, total(b, b.choose(upper, k + 1.0, k), f), x, _CLASSES)
    parts = split(b, x, subnormal=False)
    usual = total(b, parts.k, parts.m - 1.0)
    if b.features.avx512:
        usual, rare = repaired(b, usual, x, _CLASSES), _subnormal(b, x)
    else:
        rare = special(b, x)
    return b.rarely(rare, usual, f"{name}.rare", of_any, x)


def log(b: MathBuilder, x: MathValue) -> MathValue:
    """Return the natural logarithm of x."""
    return _logarithm(b, x, "log", natural)


def log2(b: MathBuilder, x: MathValue) -> MathValue:
    """Return the logarithm of x to the base 2, exact of powers of 2."""
    return _logarithm(b, x, "log2", _binary)


def log10(b: MathBuilder, x: MathValue) -> MathValue:
    """Return the logarithm of x to the base 10."""
    return _logarithm(b, x, "log10", _decimal)


def log1p(b: MathBuilder, x: MathValue) -> MathValue:
    """Return log(1 + x): the logarithm of u = 1 + x as rounded, whose f gets the rounding error of u back."""
    u = x + 1.0
    usual = b.copysign(of_pair(b, u, x - (u - 1.0)), x)
    # u is subnormal only where it is 0.
    return b.rare(special(b, u), [usual], lambda: [_special(b, usual, x, -1.0)])[0]
