"""The inverse of the error function.

erfinv(x) = x P(w) with w = -log(1 - x^2), up to w = 5 (|x| = 0.9966); beyond, which is rare, x Q(sqrt(w)). Source of the change
of variable: Giles, "Approximating the erfinv function", 2011.
"""

from __future__ import annotations

from polyker.codegen.vecmath import log as logarithm
from polyker.codegen.vecmath.core.build import MathBuilder, MathValue
from polyker.codegen.vecmath.core.double import two_product

# The greatest w of P(w), and the middle of its interval.
_LAST = 5.0
_MIDDLE = 2.5


def erfinv(b: MathBuilder, x: MathValue) -> MathValue:
    """Return the number whose error function is x: infinite at 1 and -1, NaN beyond."""
    a = b.abs(x)
    square, error = two_product(b, a, a)
    high = 1.0 - square
    w = -logarithm.of_pair(b, high, ((1.0 - high) - square) - error)
    t = w - _MIDDLE
    factor = b.horner2(t, t * t, b.table("ERFINV", x))
    rare = (w > _LAST) & (a < 1.0)
    factor = b.rarely(rare, factor, "erfinv.rare", _tail, w)
    end = b.select(a.eq(1.0), float("inf"), b.constant(float("nan"), x.element))
    return b.choose(a < 1.0, x * factor, b.copysign(end, x))


def _tail(b: MathBuilder, w: MathValue) -> MathValue:
    t = b.sqrt(w) - (2.236 + (4.0 if w.element == "float" else 6.01)) / 2
    return b.horner2(t, t * t, b.table("ERFINV_TAIL", w))
