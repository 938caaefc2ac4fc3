"""The exponential function and what is made of it: exp, exp2, expm1, sigmoid, silu, softplus, sinh, cosh, tanh.

exp(x) = 2^n exp(r), with n the integer nearest to x / ln 2 and r = x - n ln 2 in two parts, |r| <= ln 2 / 2;
exp(r) = 1 + r + r^2 P(r). Source: Cody and Waite, "Software Manual for the Elementary Functions", 1980, chapter 6.
"""

from __future__ import annotations

from msgspec import Struct

from polyker.codegen.vecmath.core.build import F32, F64, MathBuilder, MathValue
from polyker.codegen.vecmath.core.double import fast_two_sum
from polyker.codegen.vecmath.core.registers import scaled
from polyker.codegen.vecmath.core.tables import table
from polyker.codegen.vecmath.log import natural


class _ExpConstants(Struct, frozen=True):
    """For one format, with its `shift`: below `lo` x exp(x) is 0, below `zero` exp(x), which may be subnormal below `small` and
    is infinite above `hi`."""

    shift: float
    lo: float
    zero: float
    hi: float
    small: float
    ln2: tuple[float, ...]
    tail: tuple[float, ...]
    tanh: tuple[float, ...]


_CONSTANTS = {
    "f32": _ExpConstants(
        F32.shift, -110.0, -103.98, 89.0, -86.0, table("LN2_F32"), table("EXP_F32"), table("TANH_F32")
    ),
    "f64": _ExpConstants(
        F64.shift, -752.5, -745.14, 710.0, -707.0, table("LN2_F64"), table("EXP_F64"), table("TANH_F64")
    ),
}
_LOG2E = 1.4426950408889634  # log2(e)


class Reduced(Struct, frozen=True):
    """x = n ln 2 + r: `shifted` holds n in its low bits; `grown` = exp(r) - 1."""

    shifted: MathValue
    n: MathValue
    grown: MathValue


def _integer(b: MathBuilder, x: MathValue) -> tuple[MathValue, MathValue, MathValue]:
    """Return (a number with n in its low bits, n, x - n times the first part of ln 2, which is exact)."""
    c = _CONSTANTS[b.format(x).name]
    shifted = b.fma(x, _LOG2E, c.shift)
    n = shifted - c.shift
    return shifted, n, b.fma(n, -c.ln2[0], x)


def reduce(b: MathBuilder, x: MathValue, low: MathValue | None = None, tail: tuple[float, ...] = ()) -> Reduced:
    """Reduce an argument that lies within the bounds of the format; `low` is added to it in full precision.

    `tail`: another polynomial than the format's own.
    """
    c = _CONSTANTS[b.format(x).name]
    shifted, n, first = _integer(b, x)
    r = b.fma(n, -c.ln2[1], first) if low is None else first + b.fma(n, -c.ln2[1], low)
    square = r * r
    return Reduced(shifted, n, b.fma(square, b.horner2(r, square, tail or c.tail), r))


def reduce_pair(b: MathBuilder, x: MathValue, low: MathValue) -> tuple[Reduced, MathValue, MathValue]:
    """Reduce x + low as `reduce` does, and return exp(r) - 1 as a sum: r, and a rest that holds what its rounding lost."""
    c = _CONSTANTS[b.format(x).name]
    shifted, n, first = _integer(b, x)
    rest = b.fma(n, -c.ln2[1], low)
    r = first + rest
    square = r * r
    tail = b.fma(square, b.horner2(r, square, c.tail), (first - r) + rest)
    return Reduced(shifted, n, r + tail), r, tail


def _with_lost(b: MathBuilder, x: MathValue) -> tuple[MathValue, MathValue, MathValue, MathValue]:
    """Return (a number with n in its low bits, n, r, what r lost)."""
    shifted, n, first = _integer(b, x)
    low = -_CONSTANTS[b.format(x).name].ln2[1]
    r = b.fma(n, low, first)
    return shifted, n, r, b.fma(n, low, first - r)


def _reduce_well(b: MathBuilder, x: MathValue) -> Reduced:
    """Reduce as `reduce` does, with the rounding error of r made good."""
    c = _CONSTANTS[b.format(x).name]
    shifted, n, r, lost = _with_lost(b, x)
    square = r * r
    return Reduced(shifted, n, b.fma(square, b.horner2(r, square, c.tail), lost) + r)


def scale(b: MathBuilder, p: MathValue, reduced: Reduced, x: MathValue, none: MathValue) -> MathValue:
    """Return p * 2^n with one rounding, and 0 where `none`; subnormal results and overflow come out as they should.

    2^n may have no representation of its own: so p 2^(n + 64) 2^-64 where the result may be subnormal, else p 2^(n - 1) 2.
    What rounds to 0 is not computed: results below the normal numbers take processors a hundred cycles. With AVX-512 p and n may
    be anything there; elsewhere x has to lie within the bounds.
    """
    if b.features.avx512:
        return b.select(none, 0.0, scaled(b, p, reduced.n))
    form = b.format(p)
    p = b.select(none, 0.0, p)
    small = x < _CONSTANTS[form.name].small
    exponent = b.bits(reduced.shifted) + b.choose(
        small, b.constant(form.bias + 64, form.integer), b.constant(form.bias - 1, form.integer)
    )
    power = b.from_bits(exponent << form.mantissa)
    last = b.choose(small, b.constant(2.0**-64, form.element), b.constant(2.0, form.element))
    return p * power * last


def vanishes(b: MathBuilder, x: MathValue) -> MathValue:
    """Return whether exp(x) is 0."""
    return x < _CONSTANTS[b.format(x).name].zero


def exp(b: MathBuilder, x: MathValue, low: MathValue | None = None) -> MathValue:
    """Return exp(x + low), `low` much smaller than x."""
    none = vanishes(b, x)
    c = _CONSTANTS[b.format(x).name]
    # Where what vanishes is masked it may be anything before.
    x = b.at_most(x if b.features.avx512 else b.at_least(x, c.zero), c.hi)
    reduced = reduce(b, x, low)
    return scale(b, reduced.grown + 1.0, reduced, x, none)


def exp2(b: MathBuilder, x: MathValue) -> MathValue:
    """Return 2^x = 2^n exp(r ln 2), n the integer nearest to x and r exactly what is left; exact of integers."""
    form = b.format(x)
    c = _CONSTANTS[form.name]
    least, most = float(1 - form.bias - form.mantissa - 1), float(form.bias + 1)
    none = x <= least
    x = b.at_most(x if b.features.avx512 else b.at_least(x, least), most)
    shifted = x + c.shift
    n = shifted - c.shift
    r = (x - n) * table("LN2")[0]
    square = r * r
    grown = b.fma(square, b.horner2(r, square, c.tail), r)
    return scale(b, grown + 1.0, Reduced(shifted, n, grown), x * table("LN2")[0], none)


def power_of_two(b: MathBuilder, shifted: MathValue) -> MathValue:
    """Return 2^n as a number, n in the low bits of `shifted` and within the normal exponents."""
    form = F32 if shifted.element == "float" else F64
    return b.from_bits((b.bits(shifted) + form.bias) << form.mantissa)


def expm1(b: MathBuilder, x: MathValue) -> MathValue:
    """Return exp(x) - 1 = 2 (2^(n-1) (exp(r) - 1) + 2^(n-1) - 1/2): halved, so that 2^n does not overflow."""
    form = b.format(x)
    inside = b.at_most(b.at_least(x, -40.0), _CONSTANTS[form.name].hi)
    reduced = _reduce_well(b, inside)
    power = b.from_bits((b.bits(reduced.shifted) + (form.bias - 1)) << form.mantissa)
    half = b.fma(power, reduced.grown, power - 0.5)
    return b.copysign(half * 2.0, x)


def tanh(b: MathBuilder, x: MathValue) -> MathValue:
    """Return tanh(x): x + x^3 P(x^2) below 0.55, 1 - 1 / (exp(2 |x|) / 2 + 1 / 2) from there on.

    The doubling of |x| is taken into the constants: r is half of the reduced 2 |x|.
    """
    c = _CONSTANTS[b.format(x).name]
    a = b.abs(x)
    z = x * x
    near = b.fma(x * z, b.horner(z, c.tanh), x)
    inside = b.at_most(a, 21.0)
    shifted = b.fma(inside, 2 * _LOG2E, c.shift)
    n = shifted - c.shift
    r = b.fma(n, -c.ln2[1] / 2, b.fma(n, -c.ln2[0] / 2, inside))
    square = r * r
    half = b.fma(square, b.horner2(r, square, tuple(t * 2.0 ** (k + 1) for k, t in enumerate(c.tail))), r)
    far = 1.0 - 1.0 / b.fma(power_of_two(b, shifted), half + 0.5, 0.5)
    return b.copysign(b.choose(a < 0.55, near, far), x)


class _Hyperbolic(Struct, frozen=True):
    """|x| = n ln 2 + r by its parts: sinh r, cosh r - 1, and 2^(n - 2) - 2^(-n - 2) and 2^(n - 2) + 2^(-n - 2)."""

    n: MathValue
    sinh: MathValue
    cosh: MathValue
    minus: MathValue
    plus: MathValue


def _hyperbolic(b: MathBuilder, x: MathValue) -> _Hyperbolic:
    form = b.format(x)
    c = _CONSTANTS[form.name]
    # A little beyond what overflows, and a quarter of exp of that does not.
    a = b.at_most(b.abs(x), 89.5 if form.name == "f32" else 710.6)
    shifted, n, r, lost = _with_lost(b, a)
    square = r * r
    # The polynomial's odd and even parts are those of the exponential function: its hyperbolic sine and cosine.
    sinh = b.fma(square * r, b.horner(square, c.tail[1::2]), lost) + r
    cosh = square * b.horner(square, c.tail[::2])
    quarter = form.bias - 2
    up = b.from_bits((b.bits(shifted) + quarter) << form.mantissa)
    # From some n on this one counts for nothing.
    down = b.from_bits((b.bits(c.shift - b.at_most(n, 60.0)) + quarter) << form.mantissa)
    return _Hyperbolic(n, sinh, cosh, up - down, up + down)


def sinh(b: MathBuilder, x: MathValue) -> MathValue:
    """Return sinh(x) = sinh(n ln 2) cosh r + cosh(n ln 2) sinh r."""
    h = _hyperbolic(b, x)
    far = (h.minus + b.fma(h.minus, h.cosh, h.plus * h.sinh)) * 2.0
    return b.copysign(b.choose(h.n.eq(0.0), h.sinh, far), x)


def cosh(b: MathBuilder, x: MathValue) -> MathValue:
    """Return cosh(x) = cosh(n ln 2) cosh r + sinh(n ln 2) sinh r."""
    h = _hyperbolic(b, x)
    return (h.plus + b.fma(h.plus, h.cosh, h.minus * h.sinh)) * 2.0


def softplus(b: MathBuilder, x: MathValue) -> MathValue:
    """Return log(1 + exp(x)) = max(x, 0) + log(1 + u), u = exp(-|x|) as a pair of numbers (high, low)."""
    c = _CONSTANTS[b.format(x).name]
    a = -b.abs(x)
    none = vanishes(b, a)
    inside = b.at_least(a, c.zero)
    reduced = _reduce_well(b, inside)
    p, rest = fast_two_sum(b, 1.0, reduced.grown)
    u = scale(b, p, reduced, inside, none)
    # Where 1 + u rounds to 1 the low part counts for nothing.
    low = b.select(a < -40.0, 0.0, rest * power_of_two(b, reduced.shifted))
    upper = u > 2.0**0.5 - 1.0
    f = b.choose(upper, b.fma(u, 0.5, -0.5), u)
    low = b.choose(upper, low * 0.5, low)
    k = b.select(upper, 1.0, b.constant(0.0, x.element))
    return b.at_least(x, 0.0) + natural(b, k, f, b.fma(-f, low, low))


def _logistic(b: MathBuilder, x: MathValue, above: MathValue, exponent: MathValue) -> MathValue:
    """Return f + f exp(-x), where `above` = f is a power of two and `exponent` its bits' exponent field less the bias.

    With f = 2^-64 nothing overflows down to where the result of the caller is 0; upwards x is bounded, at a place where
    exp(-x) counts for nothing.
    """
    form = b.format(x)
    c = _CONSTANTS[form.name]
    inside = b.at_most(b.at_least(x, c.lo), 42.0)
    shifted = b.fma(inside, -_LOG2E, c.shift)
    n = shifted - c.shift
    r = b.fma(n, -c.ln2[1], b.fma(n, -c.ln2[0], -inside))
    square = r * r
    p = b.fma(square, b.horner2(r, square, c.tail), r) + 1.0
    power = b.from_bits((b.bits(shifted) + exponent) << form.mantissa)
    return b.fma(p, power, above)


def sigmoid(b: MathBuilder, x: MathValue) -> MathValue:
    """Return 1 / (1 + exp(-x)) as 2^-64 / (2^-64 + 2^-64 exp(-x)), which rounds once where it is subnormal."""
    form = b.format(x)
    factor = b.constant(2.0**-64, form.element)
    top = b.select(vanishes(b, x), 0.0, factor)
    return top / _logistic(b, x, factor, b.constant(form.bias - 64, form.integer))


def silu(b: MathBuilder, x: MathValue) -> MathValue:
    """Return x / (1 + exp(-x)), NaN at -inf as the formula; the factor 2^-64 of `sigmoid` on the left only."""
    form = b.format(x)
    left = x < 0.0
    factor = b.choose(left, b.constant(2.0**-64, form.element), b.constant(1.0, form.element))
    exponent = b.choose(left, b.constant(form.bias - 64, form.integer), b.constant(form.bias, form.integer))
    top = b.select(x < _CONSTANTS[form.name].lo, x * 0.0, x)
    return top / _logistic(b, x, factor, exponent) * factor
