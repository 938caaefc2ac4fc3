"""Complex functions on pairs (re, im), as compositions of the real ones; c64 is computed in f64 and rounded once.

Special values follow C99's annex G where the formula gives them; where numpy differs between platforms, any is accepted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from polyker.codegen.vecmath import atan as arctangent
from polyker.codegen.vecmath import exp as exponential
from polyker.codegen.vecmath import log as logarithm
from polyker.codegen.vecmath import trig as trigonometric
from polyker.codegen.vecmath.core.build import MathBuilder, MathValue
from polyker.codegen.vecmath.core.double import two_product, two_sum
from polyker.codegen.vecmath.core.tables import table

Pair: TypeAlias = tuple[MathValue, MathValue]
_INFINITE = float("inf")
# Squares down to 2^-90 and 2^-900 are far above the smallest normal numbers, 2^-126 and 2^-1022.
_SQUARE_EXPONENT = {"f32": 90, "f64": 900}


def _scaled(b: MathBuilder, re: MathValue, im: MathValue) -> tuple[MathValue, MathValue, MathValue]:
    """Return (larger part, smaller part, exponent): magnitudes times 2^-exponent, exponent 600, 0 or -600."""
    x, y = b.abs(re), b.abs(im)
    larger = b.choose(x < y, y, x)
    smaller = b.choose(x < y, x, y)
    big, tiny = larger > 2.0**500, larger < 2.0**-400
    factor = b.select(big, 2.0**-600, b.select(tiny, 2.0**600, b.constant(1.0, "double")))
    exponent = b.select(big, 600.0, b.select(tiny, -600.0, b.constant(0.0, "double")))
    return larger * factor, smaller * factor, exponent


def _power(b: MathBuilder, exponent: MathValue, n: int = 600) -> MathValue:
    """Return 2^n, 1 or 2^-n by the sign of one of the three exponents of `_scaled`."""
    return b.select(exponent > 0.0, 2.0**n, b.select(exponent < 0.0, 2.0**-n, b.constant(1.0, "double")))


def absolute(b: MathBuilder, re: MathValue, im: MathValue) -> MathValue:
    """Return |z|, infinite if a part is, even if the other is NaN."""
    form = b.format(re)
    square = b.fma(re, re, im * im)
    # Neither has the square overflowed nor lost the smaller part's to subnormal numbers where that could be seen.
    least, most = (form.bias - _SQUARE_EXPONENT[form.name]) << form.mantissa, (2 * form.bias) << form.mantissa
    rare = b.unsigned_ge(b.bits(square) - least, most - least) & (b.abs(re) + b.abs(im)).ne(0.0)
    usual = b.sqrt(square)
    repair = _absolute_f32 if form.name == "f32" else _absolute_f64
    return b.rarely(rare, usual, "abs.rare", repair, re, im)


def _absolute_f64(b: MathBuilder, re: MathValue, im: MathValue) -> MathValue:
    x, y, exponent = _scaled(b, re, im)
    size = b.sqrt(b.fma(x, x, y * y)) * _power(b, exponent)
    return b.select(b.abs(re).eq(_INFINITE) | b.abs(im).eq(_INFINITE), _INFINITE, size)


def _absolute_f32(b: MathBuilder, re: MathValue, im: MathValue) -> MathValue:
    """Return |z| of single precision: in double precision no square of its overflows, or is too small."""
    x, y = b.convert("fpext", re, "double"), b.convert("fpext", im, "double")
    size = b.convert("fptrunc", b.sqrt(b.fma(x, x, y * y)), "float")
    return b.select(b.abs(re).eq(_INFINITE) | b.abs(im).eq(_INFINITE), _INFINITE, size)


def _log_size(b: MathBuilder, re: MathValue, im: MathValue) -> MathValue:
    """Return log |z|, near |z| = 1 from |z|^2 - 1 without cancellation."""
    x, y, exponent = _scaled(b, re, im)
    xx, x_low = two_product(b, x, x)
    yy, y_low = two_product(b, y, y)
    high, low = two_sum(b, xx - 1.0, yy)
    excess = high + (low + (x_low + y_low))
    near = logarithm.log1p(b, excess) * 0.5
    # log |z| = log(x^2 + y^2) / 2, which cannot overflow after scaling.
    far = b.fma(exponent, table("LN2")[0], logarithm.log(b, b.fma(x, x, yy)) * 0.5)
    chosen = b.select((b.abs(excess) < 0.5) & exponent.eq(0.0), near, far)
    return b.select(b.abs(re).eq(_INFINITE) | b.abs(im).eq(_INFINITE), _INFINITE, chosen)


def log(b: MathBuilder, re: MathValue, im: MathValue) -> Pair:
    """Return the principal logarithm."""
    return _log_size(b, re, im), arctangent.atan2(b, im, re)


def log2(b: MathBuilder, re: MathValue, im: MathValue) -> Pair:
    """Return the principal logarithm to the base 2."""
    x, y = log(b, re, im)
    return x * table("LOG2E_F64")[0], y * table("LOG2E_F64")[0]


def log10(b: MathBuilder, re: MathValue, im: MathValue) -> Pair:
    """Return the principal logarithm to the base 10."""
    x, y = log(b, re, im)
    return x * table("LOG10E_F64")[0], y * table("LOG10E_F64")[0]


def log1p(b: MathBuilder, re: MathValue, im: MathValue) -> Pair:
    """Return log(1 + z): half of log1p(x (2 + x) + y^2) near 0."""
    one = re + 1.0
    xx, x_low = two_product(b, re, re + 2.0)
    yy, y_low = two_product(b, im, im)
    high, low = two_sum(b, xx, yy)
    near = logarithm.log1p(b, high + (low + (x_low + y_low))) * 0.5
    small = (b.abs(re) < 0.5) & (b.abs(im) < 0.5)
    far = _log_size(b, one, im)
    return b.select(small, near, far), arctangent.atan2(b, im, one)


def _turn(b: MathBuilder, size: MathValue, im: MathValue) -> Pair:
    """Return size (cos im, sin im), real where im is 0."""
    sine, cosine = trigonometric.sincos(b, im)
    return size * cosine, b.select(im.eq(0.0), im, size * sine)


def exp(b: MathBuilder, re: MathValue, im: MathValue) -> Pair:
    """Return exp(z); beyond the range of exp(re) in two factors, as the cosine may bring the product back."""
    far = re > 709.0
    base = b.select(far, b.at_most(re, 1500.0) - 700.0, re)
    factor = b.select(far, _EXP_700, b.constant(1.0, "double"))
    x, y = _turn(b, exponential.exp(b, base), im)
    # exp(-inf) is 0 whatever the angle is.
    gone = re.eq(-_INFINITE) & b.negation(b.abs(im) < _INFINITE)
    return b.select(gone, 0.0, x * factor), b.select(gone, 0.0, y * factor)


def exp2(b: MathBuilder, re: MathValue, im: MathValue) -> Pair:
    """Return 2^z = 2^x (cos(y ln 2) + i sin(y ln 2)), the angle as a pair of numbers."""
    far = re > 1023.0
    base = b.select(far, b.at_most(re, 2000.0) - 1000.0, re)
    size, factor = exponential.exp2(b, base), b.select(far, 2.0**1000, b.constant(1.0, "double"))
    angle, low = two_product(b, im, b.constant(table("LN2")[0], "double"))
    sine, cosine = trigonometric.sincos(b, angle)
    low = b.select(b.abs(im) < 2.0**40, b.fma(im, _LN2_LOW, low), 0.0)
    x, y = size * b.fma(-low, sine, cosine), size * b.fma(low, cosine, sine)
    gone = re.eq(-_INFINITE) & b.negation(b.abs(im) < _INFINITE)
    return b.select(gone, 0.0, x * factor), b.select(gone, 0.0, b.select(im.eq(0.0), im, y * factor))


# What ln(2) as a double lacks of it; exp(700), near the greatest number.
_LN2_LOW = 2.3190468138462996e-17
_EXP_700 = 1.0142320547350045e304


def expm1(b: MathBuilder, re: MathValue, im: MathValue) -> Pair:
    """Return exp(z) - 1 = expm1(x) cos y - 2 sin^2(y / 2) + i exp(x) sin y."""
    half = trigonometric.sin(b, im * 0.5)
    sine, cosine = trigonometric.sincos(b, im)
    near = b.fma(exponential.expm1(b, re), cosine, half * half * -2.0)
    x, y = exp(b, re, im)
    small = exponential.exp(b, re) * sine
    inside = b.abs(re) < 700.0
    return b.select(inside, near, x - 1.0), b.select(im.eq(0.0), im, b.select(inside, small, y))


def sqrt(b: MathBuilder, re: MathValue, im: MathValue) -> Pair:
    """Return the square root with a real part >= 0."""
    x, y, exponent = _scaled(b, re, im)
    size = b.sqrt(b.fma(x, x, y * y))
    root = _power(b, exponent, 300)
    real = b.abs(re) * _power(b, exponent, -600)
    big = b.sqrt((size + real) * 0.5)
    other = b.select(big.eq(0.0), 0.0, b.abs(im) * _power(b, exponent, -600) / (big + big))
    big, other = big * root, other * root
    left = re < 0.0
    first, second = b.choose(left, other, big), b.choose(left, big, other)
    infinite = b.abs(im).eq(_INFINITE)
    first = b.select(infinite | re.eq(_INFINITE), _INFINITE, b.select(re.eq(-_INFINITE) & im.eq(im), 0.0, first))
    second = b.select(infinite | re.eq(-_INFINITE), _INFINITE, b.select(re.eq(_INFINITE) & im.eq(im), 0.0, second))
    return first, b.copysign(second, im)


def _hyperbolic(b: MathBuilder, x: MathValue) -> tuple[MathValue, MathValue, MathValue]:
    """Return (sinh x', cosh x', factor) with sinh x = factor sinh x' where x is so large that exp(x) overflows."""
    a = b.abs(x)
    far = a > 700.0
    base = b.select(far, b.at_most(a, 1500.0) - 700.0, a)
    grown = exponential.expm1(b, base)
    e = grown + 1.0
    sinh = b.choose(far, e * 0.5, b.fma(grown, 0.5, grown / (e + e)))
    cosh = b.choose(far, e * 0.5, e * 0.5 + 0.5 / e)
    return b.copysign(sinh, x), cosh, b.select(far, _EXP_700, b.constant(1.0, "double"))


def sin(b: MathBuilder, re: MathValue, im: MathValue) -> Pair:
    """Return sin(x) cosh(y) + i cos(x) sinh(y)."""
    sinh, cosh, factor = _hyperbolic(b, im)
    sine, cosine = trigonometric.sincos(b, re)
    # Zeros stay zeros beside infinities.
    return b.select(re.eq(0.0), re, sine * cosh * factor), b.select(im.eq(0.0), im * cosine, cosine * sinh * factor)


def cos(b: MathBuilder, re: MathValue, im: MathValue) -> Pair:
    """Return cos(x) cosh(y) - i sin(x) sinh(y)."""
    sinh, cosh, factor = _hyperbolic(b, im)
    sine, cosine = trigonometric.sincos(b, re)
    zero = re.eq(0.0) | im.eq(0.0)
    return cosine * cosh * factor, -b.choose(zero, sine * b.copysign(b.abs(im * 0.0), im), sine * sinh * factor)


def sinh(b: MathBuilder, re: MathValue, im: MathValue) -> Pair:
    """Return sinh(z) = -i sin(i z)."""
    x, y = sin(b, -im, re)
    return y, -x


def cosh(b: MathBuilder, re: MathValue, im: MathValue) -> Pair:
    """Return cosh(z) = cos(i z)."""
    return cos(b, -im, re)


def tanh(b: MathBuilder, re: MathValue, im: MathValue) -> Pair:
    """Return tanh(z). Source: Kahan, "Branch cuts for complex elementary functions", 1987."""
    x = b.at_most(b.at_least(re, -25.0), 25.0)
    grown = exponential.expm1(b, b.abs(x))
    e = grown + 1.0
    s = b.copysign(b.fma(grown, 0.5, grown / (e + e)), x)
    t = trigonometric.tan(b, im)
    beta = b.fma(t, t, 1.0)
    rho = e * 0.5 + 0.5 / e
    below = b.fma(beta * s, s, 1.0)
    far = b.abs(re) > 22.0
    # Far out 1 + 4 i sin y cos y exp(-2 |x|).
    sine, cosine = trigonometric.sincos(b, im)
    tail = sine * cosine * exponential.exp(b, b.abs(re) * -2.0) * 4.0
    tail = b.select(b.abs(im) < _INFINITE, tail, im * 0.0)
    endless = b.abs(re).eq(_INFINITE)
    tail = b.select(endless, b.copysign(b.constant(0.0, "double"), im), tail)
    first = b.select(far, b.copysign(b.constant(1.0, "double"), re), beta * rho * s / below)
    return first, b.select(im.eq(0.0), im, b.choose(far, tail, t / below))


def tan(b: MathBuilder, re: MathValue, im: MathValue) -> Pair:
    """Return tan(z) = -i tanh(i z)."""
    x, y = tanh(b, -im, re)
    return y, -x


def multiply(b: MathBuilder, x: Pair, y: Pair) -> Pair:
    """Return the product."""
    return b.fma(x[0], y[0], -(x[1] * y[1])), b.fma(x[0], y[1], x[1] * y[0])


def divide(b: MathBuilder, x: Pair, y: Pair) -> Pair:
    """Return the quotient. Source: Smith, "Algorithm 116: complex division", 1962."""
    swap = b.abs(y[0]) < b.abs(y[1])
    large, small = b.choose(swap, y[1], y[0]), b.choose(swap, y[0], y[1])
    ratio = small / large
    below = b.fma(small, ratio, large)
    p, q = b.choose(swap, x[1], x[0]), b.choose(swap, x[0], x[1])
    first = b.fma(q, ratio, p) / below
    second = b.fma(-p, ratio, q) / below
    # A quotient by 0 is infinite (or NaN) in each part of the numerator.
    none = large.eq(0.0)
    first = b.choose(none, x[0] / b.abs(large), first)
    return first, b.choose(none, x[1] / b.abs(large), b.choose(swap, -second, second))


def _one(b: MathBuilder) -> Pair:
    return b.constant(1.0, "double"), b.constant(0.0, "double")


def reciprocal_sqrt(b: MathBuilder, re: MathValue, im: MathValue) -> Pair:
    """Return 1 / sqrt(z)."""
    return divide(b, _one(b), sqrt(b, re, im))


def sigmoid(b: MathBuilder, re: MathValue, im: MathValue) -> Pair:
    """Return 1 / (1 + exp(-z)), on the left as exp(z) / (1 + exp(z))."""
    left = re < 0.0
    x, y = exp(b, -b.abs(re), b.choose(left, im, -im))
    top = (b.select(left, x, 1.0), b.select(left, y, 0.0))
    return divide(b, top, (x + 1.0, y))


def silu(b: MathBuilder, re: MathValue, im: MathValue) -> Pair:
    """Return z / (1 + exp(-z))."""
    return multiply(b, (re, im), sigmoid(b, re, im))


def power(b: MathBuilder, re: MathValue, im: MathValue, other_re: MathValue, other_im: MathValue) -> Pair:
    """Return z^w = exp(w log z), 1 for w = 0; 0^w is 0 for Re w > 0, else NaN."""
    x, y = multiply(b, (other_re, other_im), log(b, re, im))
    first, second = exp(b, x, y)
    zero = re.eq(0.0) & im.eq(0.0)
    inside = other_re > 0.0
    nothing = b.select(inside, 0.0, b.constant(float("nan"), "double"))
    first, second = b.choose(zero, nothing, first), b.choose(zero, nothing, second)
    one = other_re.eq(0.0) & other_im.eq(0.0)
    first, second = b.select(one, 1.0, first), b.select(one, 0.0, second)
    same = other_re.eq(1.0) & other_im.eq(0.0)
    return b.choose(same, re, first), b.choose(same, im, second)


def quotient(b: MathBuilder, re: MathValue, im: MathValue, other_re: MathValue, other_im: MathValue) -> Pair:
    """Return z / w."""
    return divide(b, (re, im), (other_re, other_im))


COMPLEX: dict[str, Callable[..., Pair]] = {
    "exp": exp, "exp2": exp2, "expm1": expm1, "log": log, "log2": log2, "log10": log10, "log1p": log1p, "sqrt": sqrt,
    "rsqrt": reciprocal_sqrt, "sin": sin, "cos": cos, "tan": tan, "sinh": sinh, "cosh": cosh, "tanh": tanh, "sigmoid": sigmoid,
    "silu": silu, "pow": power, "div": quotient,
}  # fmt: skip


def narrowed(formula: Callable[..., Pair | MathValue]) -> Callable[..., Pair | MathValue]:
    """Return the function of f32 pairs that computes this one in f64."""

    def narrow(b: MathBuilder, *args: MathValue) -> Pair | MathValue:
        result = formula(b, *(b.convert("fpext", a, "double") for a in args))
        if isinstance(result, MathValue):
            return b.convert("fptrunc", result, "float")
        return b.convert("fptrunc", result[0], "float"), b.convert("fptrunc", result[1], "float")

    return narrow
