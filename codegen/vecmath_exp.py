"""The exponential function and what is made of it: exp, expm1, sigmoid, silu, tanh.

exp(x) = 2^n exp(r), with n the integer nearest to x / ln 2 and r = x - n ln 2 in two parts, |r| <= ln 2 / 2;
exp(r) = 1 + r + r^2 P(r). Source: Cody and Waite, "Software Manual for the Elementary Functions", 1980, chapter 6.
"""

from __future__ import annotations

from dataclasses import dataclass

from polyker.codegen import vecmath_tables as tables
from polyker.codegen.vecmath_build import F32, F64, Builder, Value


@dataclass(frozen=True, slots=True)
class _Constants:
    """For one format: adding `shift` rounds to an integer, which then stands in the low bits of the sum; `lo` and `hi` bound
    the arguments whose result is neither 0 nor infinite; below `small` it may be subnormal."""

    shift: float
    lo: float
    hi: float
    small: float
    ln2: tuple[float, ...]
    tail: tuple[float, ...]
    tanh: tuple[float, ...]


_CONSTANTS = {
    "f32": _Constants(1.5 * 2.0**23, -110.0, 89.0, -86.0, tables.LN2_F32, tables.EXP_F32, tables.TANH_F32),
    "f64": _Constants(1.5 * 2.0**52, -752.5, 710.0, -707.0, tables.LN2_F64, tables.EXP_F64, tables.TANH_F64),
}
_LOG2E = 1.4426950408889634


@dataclass(frozen=True, slots=True)
class Reduced:
    """x = n ln 2 + r: `shifted` holds n in its low bits, `n` and `r` as numbers, `tail` = (exp(r) - 1 - r) / r^2."""

    shifted: Value
    n: Value
    r: Value
    tail: Value


def _integer(b: Builder, x: Value) -> tuple[Value, Value, Value]:
    """Return (a number with n in its low bits, n, x - n times the first part of ln 2, which is exact)."""
    c = _CONSTANTS[b.format(x).name]
    shifted = b.fma(x, _LOG2E, c.shift)
    n = shifted - c.shift
    return shifted, n, b.fma(n, -c.ln2[0], x)


def reduce(b: Builder, x: Value, low: Value | None = None, tail: tuple[float, ...] = ()) -> Reduced:
    """Reduce an argument that lies within the bounds of the format; `low` is added to it in full precision.

    `tail`: another polynomial than the format's own.
    """
    c = _CONSTANTS[b.format(x).name]
    shifted, n, first = _integer(b, x)
    r = b.fma(n, -c.ln2[1], first) if low is None else first + b.fma(n, -c.ln2[1], low)
    return Reduced(shifted, n, r, b.horner(r, tail or c.tail))


def _grown(b: Builder, x: Value) -> tuple[Value, Value]:
    """Return (a number with n in its low bits, exp(r) - 1), with the rounding error of r made good."""
    c = _CONSTANTS[b.format(x).name]
    shifted, n, first = _integer(b, x)
    r = b.fma(n, -c.ln2[1], first)
    lost = b.fma(n, -c.ln2[1], first - r)
    return shifted, b.fma(r * r, b.horner(r, c.tail), lost) + r


def scale(b: Builder, p: Value, reduced: Reduced, x: Value) -> Value:
    """Return p * 2^n with one rounding; subnormal results and overflow come out as they should.

    2^n may have no representation of its own: so p 2^(n + 64) 2^-64 where the result may be subnormal, else p 2^(n - 1) 2.
    """
    form = b.format(p)
    small = x < _CONSTANTS[form.name].small
    exponent = b.bits(reduced.shifted) + b.choose(
        small, b.constant(form.bias + 64, form.integer), b.constant(form.bias - 1, form.integer)
    )
    power = b.from_bits(exponent << form.mantissa)
    last = b.choose(small, b.constant(2.0**-64, form.element), b.constant(2.0, form.element))
    return p * power * last


def bounded(b: Builder, x: Value) -> Value:
    """Return x, moved to the bounds beyond which exp is 0 or infinite; NaN stays."""
    c = _CONSTANTS[b.format(x).name]
    return b.at_most(b.at_least(x, c.lo), c.hi)


def exp(b: Builder, x: Value, low: Value | None = None) -> Value:
    """Return exp(x + low), `low` much smaller than x."""
    x = bounded(b, x)
    reduced = reduce(b, x, low)
    r = reduced.r
    return scale(b, b.fma(r * r, reduced.tail, r) + 1.0, reduced, x)


def power_of_two(b: Builder, shifted: Value) -> Value:
    """Return 2^n as a number, n in the low bits of `shifted` and within the normal exponents."""
    form = F32 if shifted.element == "float" else F64
    return b.from_bits((b.bits(shifted) + form.bias) << form.mantissa)


def expm1(b: Builder, x: Value) -> Value:
    """Return exp(x) - 1 = 2 (2^(n-1) (exp(r) - 1) + 2^(n-1) - 1/2): halved, so that 2^n does not overflow."""
    form = b.format(x)
    inside = b.at_most(b.at_least(x, -40.0), _CONSTANTS[form.name].hi)
    shifted, grown = _grown(b, inside)
    power = b.from_bits((b.bits(shifted) + (form.bias - 1)) << form.mantissa)
    half = b.fma(power, grown, power - 0.5)
    return b.copysign(half * 2.0, x)


def tanh(b: Builder, x: Value) -> Value:
    """Return tanh(x): x + x^3 P(x^2) below 0.55, 1 - 2 / (exp(2 |x|) + 1) from there on."""
    c = _CONSTANTS[b.format(x).name]
    a = b.abs(x)
    z = x * x
    near = b.fma(x * z, b.horner(z, c.tanh), x)
    reduced = reduce(b, b.at_most(a * 2.0, 42.0))
    r, power = reduced.r, power_of_two(b, reduced.shifted)
    far = 1.0 - 2.0 / b.fma(power, b.fma(r * r, reduced.tail, r), power + 1.0)
    return b.choose(a < 0.55, near, b.copysign(far, x))


def _decay(b: Builder, x: Value, bound: float) -> tuple[Value, Reduced, Value]:
    """Return -|x|, its reduction, and exp of the reduced argument."""
    inside = b.at_least(-b.abs(x), bound)
    reduced = reduce(b, inside)
    r = reduced.r
    return inside, reduced, b.fma(r * r, reduced.tail, r) + 1.0


def sigmoid(b: Builder, x: Value) -> Value:
    """Return 1 / (1 + exp(-x)), from exp(-|x|), which does not overflow."""
    inside, reduced, p = _decay(b, x, _CONSTANTS[b.format(x).name].lo)
    e = scale(b, p, reduced, inside)
    return b.select(x >= 0.0, 1.0, e) / (e + 1.0)


def silu(b: Builder, x: Value) -> Value:
    """Return x / (1 + exp(-x)), NaN at -inf as the formula; x goes into the product before it can become subnormal."""
    lo = _CONSTANTS[b.format(x).name].lo
    inside, reduced, p = _decay(b, x, lo)
    e = scale(b, p, reduced, inside)
    low = b.select(x < lo, x * 0.0, scale(b, p * inside, reduced, inside))
    return b.select(x >= 0.0, x, low) / (e + 1.0)


def relu(b: Builder, x: Value) -> Value:
    """Return the larger of x and 0; NaN stays."""
    return b.select(x <= 0.0, 0.0, x)
