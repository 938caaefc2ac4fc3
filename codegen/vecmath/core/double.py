"""Sums and products with their rounding errors: pairs (high, low) of which low is the error of high.

Source: Dekker, "A floating-point technique for extending the available precision", 1971; Knuth, TAOCP 2, 4.2.2.
"""

from __future__ import annotations

from polyker.codegen.vecmath.core.build import MathBuilder, MathOperand, MathValue


def fast_two_sum(b: MathBuilder, x: MathOperand, y: MathValue) -> tuple[MathValue, MathValue]:
    """Return x + y and its error; |x| >= |y|, or x is 0."""
    first = b.value(x, y.element)
    total = first + y
    return total, y - (total - first)


def two_sum(b: MathBuilder, x: MathValue, y: MathValue) -> tuple[MathValue, MathValue]:
    """Return x + y and its error."""
    total = x + y
    rest = total - x
    return total, (x - (total - rest)) + (y - rest)


def _halves(b: MathBuilder, x: MathValue) -> tuple[MathValue, MathValue]:
    form = b.format(x)
    mask = -1 << ((form.mantissa + 2) // 2)
    high = b.from_bits(b.bits(x) & mask)
    return high, x - high


def two_product(b: MathBuilder, x: MathValue, y: MathValue) -> tuple[MathValue, MathValue]:
    """Return x * y and its error (exact where nothing overflows or is subnormal; without a fused multiply-add, nearly)."""
    product = x * y
    if b.features.fma:
        return product, b.fma(x, y, -product)
    xh, xl = _halves(b, x)
    yh, yl = _halves(b, y)
    return product, ((xh * yh - product) + xh * yl + xl * yh) + xl * yl


def less_product(b: MathBuilder, f: MathValue, s: MathValue, d: MathValue) -> MathValue:
    """Return f - s d, which is exact where s is near the quotient."""
    if b.features.fma:
        return b.fma(-s, d, f)
    product, error = two_product(b, s, d)
    return (f - product) - error
