"""The exponential function and what is made of it: exp, expm1, sigmoid, silu, tanh.

exp(x) = 2^n exp(r), with n the integer nearest to x / ln 2 and r = x - n ln 2 in two parts, |r| <= ln 2 / 2;
exp(r) = 1 + r + r^2 P(r). Source: Cody and Waite, "Software Manual for the Elementary Functions", 1980, chapter 6.
"""

from __future__ import annotations

from dataclasses import dataclass

from polyker.codegen import vecmath_tables as tables
from polyker.codegen.vecmath_build import Builder, Value


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


_CONSTANTS = {
    "f32": _Constants(1.5 * 2.0**23, -104.5, 89.0, -86.0, tables.LN2_F32, tables.EXP_F32),
    "f64": _Constants(1.5 * 2.0**52, -746.0, 710.0, -707.0, tables.LN2_F64, tables.EXP_F64),
}
_LOG2E = 1.4426950408889634


@dataclass(frozen=True, slots=True)
class Reduced:
    """x = n ln 2 + r: `shifted` holds n in its low bits, `n` and `r` as numbers, `tail` = (exp(r) - 1 - r) / r^2."""

    shifted: Value
    n: Value
    r: Value
    tail: Value


def reduce(b: Builder, x: Value, low: Value | None = None) -> Reduced:
    """Reduce an argument that lies within the bounds of the format; `low` is added to it in full precision."""
    c = _CONSTANTS[b.format(x).name]
    shifted = b.fma(x, _LOG2E, c.shift)
    n = shifted - c.shift
    r = b.fma(n, -c.ln2[0], x)
    r = b.fma(n, -c.ln2[1], r) if low is None else r + b.fma(n, -c.ln2[1], low)
    return Reduced(shifted, n, r, b.horner(r, c.tail))


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
