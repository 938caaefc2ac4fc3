"""The angle of a point, atan2, in f64: for the arguments of complex numbers."""

from __future__ import annotations

from polyker.codegen import vecmath_tables as tables
from polyker.codegen.vecmath_build import Builder, Value

_PI = tables.HALF_PI_F64[0] * 2
_PI_LOW = tables.HALF_PI_F64[1] * 2


def atan2(b: Builder, y: Value, x: Value) -> Value:
    """Return the angle of (x, y) in [-pi, pi], signed zeros and infinities as C99's."""
    ax, ay = b.abs(x), b.abs(y)
    steep = ax < ay
    low, high = b.choose(steep, ax, ay), b.choose(steep, ay, ax)
    same = low.eq(high)
    ratio = b.select(low.eq(0.0), 0.0, b.select(same, 1.0, low / high))
    z = ratio * ratio
    angle = b.fma(ratio * z, b.horner2(z, z * z, tables.ATAN_F64), ratio)
    angle = b.choose(steep, (_PI / 2 - angle) + _PI_LOW / 2, angle)
    left = b.bits(x) < 0
    angle = b.choose(left, (_PI - angle) + _PI_LOW, angle)
    nan = x.ne(x) | y.ne(y)
    return b.copysign(b.select(nan, float("nan"), angle), y)
