"""The trigonometric functions: sin, cos, tan, and sin and cos at once.

sin and cos take off the nearest multiple (for cos: half-odd multiple) of pi, so that one odd polynomial on [-pi/2, pi/2] does;
tan takes off the nearest multiple of pi / 2. Up to a limit pi / 2 in three parts is enough (Cody and Waite); a vector with
a larger argument in any lane branches to `vecmath_huge`.
"""

from __future__ import annotations

from polyker.codegen.vecmath import huge
from polyker.codegen.vecmath.core.build import MathBuilder, MathValue
from polyker.codegen.vecmath.core.double import fast_two_sum
from polyker.codegen.vecmath.core.tables import table

_TWO_OVER_PI = 0.6366197723675814
_HALF_PI, _HALF_PI_LOW, _ = table("HALF_PI_F64")


# The largest arguments of which the parts of pi / 2 are enough, without and with fused products, which need not be exact.
_LIMITS = {"f32": (2.0**13, 2.0**16), "f64": (2.0**24, 2.0**24)}


def _remainder(b: MathBuilder, x: MathValue, m: MathValue, unit: float) -> tuple[MathValue, MathValue]:
    """Return (r, m * the third part of pi / 2 and what r lost): x - m * unit * pi / 2 is their sum.

    With a fused multiply-add the first step is exact, as x - m P1 is a multiple of the last place of P1 and below 2. Without
    it the parts are so short that m times each of the first three is exact, and the rounding errors are kept.
    """
    if b.features.fma:
        first, second, third = (unit * p for p in b.table("HALF_PI", x))
        one = b.fma(m, -first, x)
        r = b.fma(m, -second, one)
        off = one - r
        lost = (one - off) - r  # not nothing where r is so much smaller that `off` was rounded
        return r, b.fma(m, -third, b.fma(m, -second, off) + lost)
    *exact, last = (unit * p for p in b.table("HALF_PI_SHORT", x))
    r = x - m * exact[0]
    kept: MathValue | None = None
    for part in exact[1:]:
        off = m * part
        less = r - off
        error = (r - less) - off
        r, kept = less, error if kept is None else kept + error
    return r, kept - m * last  # type: ignore[operator]


def _single(b: MathBuilder, x: MathValue, m: MathValue, unit: float) -> MathValue:
    """Return x - m * unit * pi / 2 in one number."""
    if not b.features.fma:
        r, low = _remainder(b, x, m, unit)
        return r + low
    r = x
    for part in b.table("HALF_PI", x):
        r = b.fma(m, -unit * part, r)
    return r


def _huge(b: MathBuilder, x: MathValue) -> list[MathValue]:
    """Return (r high, r low, quadrant) of |x|, r in f64, the quadrant as i64."""
    wide = x if x.element == "double" else b.convert("fpext", x, "double")
    return b.call(huge.reduction(b.lanes, b.features), ("double", "double", "i64"), wide)


def _narrow(b: MathBuilder, like: MathValue, r: MathValue, whole: MathValue) -> tuple[MathValue, MathValue]:
    """Convert a number in f64 and an i64 to the format of `like`."""
    if like.element == "double":
        return r, whole
    return b.convert("fptrunc", r, "float"), b.convert("trunc", whole, "i32")


def _limit(b: MathBuilder, a: MathValue) -> float:
    """Return the largest |x| = a that is not huge."""
    return _LIMITS[b.format(a).name][b.features.fma]


def _half_turn(b: MathBuilder, a: MathValue, r: MathValue, parity: MathValue, quarter: int) -> list[MathValue]:
    """Return r and parity, computed anew where |x| = a is huge: sin(x + quarter pi / 2) = (-1)^parity sin(r)."""

    def repair() -> list[MathValue]:
        high, low, quadrant = _huge(b, a)
        turned = quadrant + quarter if quarter else quadrant
        odd = turned & 1
        turn = -b.copysign(b.constant(_HALF_PI, "double"), high)
        moved, lost = fast_two_sum(b, turn, high)
        moved = moved + (b.fma(turn, _HALF_PI_LOW / _HALF_PI, low) + lost)
        fresh = b.select(odd.eq(1), moved, high)
        half = (turned + odd).shr(1) - (odd & b.bits(high).shr(63))
        fresh, half = _narrow(b, r, fresh, half)
        return [b.select(big, fresh, r), b.select(big, half, parity)]

    big = a > _limit(b, a)
    return b.rare(big, [r, parity], repair)


def _sign_bit(b: MathBuilder, whole: MathValue) -> MathValue:
    """Move the lowest bit to the place of the sign."""
    return whole << (int(whole.element[1:]) - 1)


def _with_sign(b: MathBuilder, x: MathValue, bit: MathValue) -> MathValue:
    return b.from_bits(b.bits(x) ^ bit)


def _sign_of(b: MathBuilder, x: MathValue) -> MathValue:
    return b.bits(x) & (1 << (b.format(x).bits - 1))


def _odd(b: MathBuilder, r: MathValue) -> MathValue:
    """Return sin(r) for |r| <= pi / 2 or a little more; rounding may take the polynomial past 1, never the result."""
    z = r * r
    value = b.fma(r * z, b.horner(z, b.table("SIN", r)), r)
    return b.at_most(b.at_least(value, -1.0), 1.0)


def sin(b: MathBuilder, x: MathValue) -> MathValue:
    """Return sin(x), x in radians."""
    a, shift = b.abs(x), b.format(x).shift
    shifted = b.fma(a, _TWO_OVER_PI / 2, shift)
    r = _single(b, a, shifted - shift, 2.0)
    r, parity = _half_turn(b, a, r, b.bits(shifted), 0)
    return _with_sign(b, _odd(b, r), _sign_bit(b, parity) ^ _sign_of(b, x))


def cos(b: MathBuilder, x: MathValue) -> MathValue:
    """Return cos(x), x in radians: with x = (2 n + 1) pi / 2 - r it is (-1)^n sin(r)."""
    a, shift = b.abs(x), b.format(x).shift
    shifted = b.fma(a, _TWO_OVER_PI / 2, -0.5) + shift
    m = b.fma(shifted - shift, 2.0, 1.0)
    r, parity = _half_turn(b, a, _single(b, a, m, 1.0), b.bits(shifted) + 1, 1)
    return _with_sign(b, _odd(b, r), _sign_bit(b, parity))


def _quarter(b: MathBuilder, a: MathValue) -> tuple[MathValue, MathValue, MathValue]:
    """Return (r, what r lost, quadrant) of a >= 0: r is its distance from the nearest multiple of pi / 2."""
    shift = b.format(a).shift
    shifted = b.fma(a, _TWO_OVER_PI, shift)
    high, low = _remainder(b, a, shifted - shift, 1.0)

    def repair() -> list[MathValue]:
        r, rest, quadrant = _huge(b, a)
        fresh, whole = _narrow(b, high, r, quadrant)
        # What the number lost on its way to f32 belongs to the low part.
        lost = rest if fresh is r else rest + (r - b.convert("fpext", fresh, "double"))
        tail, _ = _narrow(b, low, lost, quadrant)
        return [b.select(big, fresh, high), b.select(big, tail, low), b.select(big, whole, b.bits(shifted))]

    big = a > _limit(b, a)
    r, rest, quadrant = b.rare(big, [high, low, b.bits(shifted)], repair)
    return r, rest, quadrant


def tan(b: MathBuilder, x: MathValue) -> MathValue:
    """Return tan(x), x in radians: tan r, or -1 / tan r in odd quadrants."""
    r, rest, quadrant = _quarter(b, b.abs(x))
    z = r * r
    # The slope of tan at r is about 1 + z.
    grown = b.fma(r * z, b.horner(z, b.table("TAN", x)), b.fma(z, rest, rest))
    value = grown + r
    value = b.choose((quadrant & 1).eq(1), 1.0 / value, value)
    return _with_sign(b, value, _sign_bit(b, quadrant) ^ _sign_of(b, x))


def sincos(b: MathBuilder, x: MathValue) -> tuple[MathValue, MathValue]:
    """Return (sin(x), cos(x)), x in radians."""
    r, rest, quadrant = _quarter(b, b.abs(x))
    z = r * r
    sine = b.fma(r * z, b.horner(z, b.table("SIN_QUARTER", x)), rest) + r
    cosine = b.fma(z, -0.5, b.fma(z * z, b.horner(z, b.table("COS_QUARTER", x)), -(r * rest))) + 1.0
    odd = (quadrant & 1).eq(1)
    first, second = b.choose(odd, cosine, sine), b.choose(odd, sine, cosine)
    turned = _sign_bit(b, quadrant.shr(1)) ^ _sign_of(b, x)
    return _with_sign(b, first, turned), _with_sign(b, second, _sign_bit(b, (quadrant + 1).shr(1)))
