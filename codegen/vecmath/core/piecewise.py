"""Polynomials on each of 32 intervals, whose coefficients are looked up in registers (AVX-512, f32).

The intervals are those of a + 1, an eighth of its power of two wide: narrow near 0, where these functions bend, and five bits
of its representation tell them. Source of the method: Tang, "Table-lookup algorithms for elementary functions and their error
analysis", 1991.
"""

from __future__ import annotations

from collections.abc import Sequence

from polyker.codegen.vecmath.core.build import F32, MathBuilder, MathValue
from polyker.codegen.vecmath.core.registers import least_magnitude, lookup, scaled
from polyker.codegen.vecmath.core.tables import rows, table

_INTERVAL_BITS = 3  # of the significand
ROOTS = tuple(2.0 ** (k / 32) for k in range(32))


def piecewise(b: MathBuilder, a: MathValue, rows: Sequence[Sequence[float]], *, beside_a: bool = False) -> MathValue:
    """Return the function whose coefficients these are (see the tables) of a >= 0; NaN stays.

    `beside_a`: those of the first interval are of the function less a, so that the rounding of none counts near 0.
    """
    shift = F32.mantissa - _INTERVAL_BITS
    beyond = a + 1.0
    place = b.bits(beyond)
    left = b.from_bits(place & (-1 << shift)) - 1.0
    t, interval = a - left, place.shr(shift)
    result = lookup(b, rows[-1], interval)
    for row in reversed(rows[1:-1]):
        result = b.fma(result, t, lookup(b, row, interval))
    start = lookup(b, rows[0], interval)
    if beside_a:
        start = start + b.select(beyond < 1.0 + 2.0**-_INTERVAL_BITS, a, 0.0)
    return b.fma(result, t, start)


def tanh(b: MathBuilder, x: MathValue) -> MathValue:
    """Return tanh(x)."""
    return b.copysign(piecewise(b, b.at_most(b.abs(x), 9.5), rows("TANH")), x)


def erf(b: MathBuilder, x: MathValue) -> MathValue:
    """Return the error function of x."""
    return b.copysign(piecewise(b, b.at_most(b.abs(x), 4.0), rows("ERF"), beside_a=True), x)


def gelu(b: MathBuilder, x: MathValue) -> MathValue:
    """Return x Phi(x) = max(x, 0) - a Phi(-a), a = |x|; NaN at -inf as the formula.

    a Phi(-a) = a 2^n exp(-r / 2) M(a), a^2 = r - n 2 ln 2, n in 32nds: an instruction scales by the whole ones, the others are
    a root of 2. M(a) = Phi(-a) exp(a^2 / 2).
    """
    shift = 1.5 * 2.0 ** (F32.mantissa - 5)
    a = least_magnitude(b, x, 14.5)
    shifted = b.fma(a * a, -0.5 / table("LN2")[0], shift)
    n = shifted - shift
    # The first part of 2 ln 2 has so few bits that n times it is exact; and so is the square in the sum.
    r = b.fma(n, table("TWICE_LN2_F32")[1], b.fma(a, a, n * table("TWICE_LN2_F32")[0]))
    root = lookup(b, ROOTS, b.bits(shifted))
    power = b.fma(root * r, b.horner(r, table("EXP_HALF_F32")), root)
    # Beyond 6 it is nothing beside x; what is not computed costs no time where it is below the normal numbers.
    tail = b.select((x > 6.0) | (x < -14.4), 0.0, scaled(b, a * piecewise(b, a, rows("MILLS")), n))
    return b.fma(-tail, power, b.choose(x < 0.0, x * 0.0, x))
