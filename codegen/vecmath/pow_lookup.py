"""The usual case of x^y in f32 by tables in registers (AVX-512): log x and 2^f, 32 entries and a polynomial each.

log x = k ln 2 - log(c) + log(1 + r) with 1 + r = c m, x = 2^k m, m in [3/4, 3/2) (a little more, so that one of the 32 intervals
of m has 1 within, where c = 1 and nothing cancels), and c near the reciprocal of m's interval. Source of the method: Tang,
"Table-driven implementation of the logarithm function in IEEE floating-point arithmetic", 1990.
"""

from __future__ import annotations

from polyker.codegen.vecmath.core.build import F32, MathBuilder, MathValue
from polyker.codegen.vecmath.core.double import fast_two_sum, two_product
from polyker.codegen.vecmath.core.piecewise import ROOTS
from polyker.codegen.vecmath.core.registers import lookup, scaled
from polyker.codegen.vecmath.core.tables import rows, table

_INTERVAL_BITS = 5  # of the significand
_WIDTH = F32.mantissa - _INTERVAL_BITS
_LEAST = 0x3F400000 + (1 << (_WIDTH - 1))  # the bits of the least m: 3/4 and half an interval
_HALF, *_TAIL = table("POW_LOG1P")


def log_pair(b: MathBuilder, x: MathValue) -> tuple[MathValue, MathValue]:
    """Return the logarithm of a positive, finite, normal number as a pair (high, low)."""
    bits = b.bits(x)
    moved = bits - _LEAST
    place = moved.ashr(_WIDTH)
    k = b.convert("sitofp", moved.ashr(F32.mantissa), "float")
    m = b.from_bits(bits - (moved & (-1 << F32.mantissa)))
    inverse, log_high, log_low = rows("INVERSES")
    c = lookup(b, inverse, place)
    # c m = 1 + r + e, both exact; so its logarithm is that of 1 + r and e / (1 + r).
    near = m * c
    r, e = near - 1.0, b.fma(m, c, -near)
    rest = b.fma(-e, r, e) + b.fma(k, table("LN2_F32")[1], lookup(b, log_low, place))
    # Exact, as both are multiples of 2^-15.
    start = b.fma(k, table("LN2_F32")[0], lookup(b, log_high, place))
    high, low = fast_two_sum(b, start, r)
    tail = b.fma(r * (r * r), b.horner(r, _TAIL), low + rest)
    # y multiplies the error of each term: so half of the square is rounded only here, with all that is below it.
    return fast_two_sum(b, high, b.fma(r * _HALF, r, tail))


def power(b: MathBuilder, x: MathValue, y: MathValue) -> tuple[MathValue, MathValue]:
    """Return (x^y, y log x as rounded) of x positive, finite and normal, and a result that neither overflows nor is subnormal."""
    high, low = log_pair(b, x)
    product, error = two_product(b, y, high)
    shift = 1.5 * 2.0 ** (F32.mantissa - 5)
    # n is a multiple of 1/32: an instruction scales by its floor, the rest is a root of 2.
    shifted = b.fma(product, 1 / table("LN2")[0], shift)
    n = shifted - shift
    r = b.fma(n, -table("LN2_F32")[0], product) + b.fma(n, -table("LN2_F32")[1], b.fma(y, low, error))
    root = lookup(b, ROOTS, b.bits(shifted))
    grown = b.fma(r * r, b.horner(r, table("EXP_32ND_F32")), r)
    return scaled(b, b.fma(root, grown, root), n), product
