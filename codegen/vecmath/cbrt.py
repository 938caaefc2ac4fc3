"""The cube root.

|x| = 2^(3 q) m with m from about 0.35 to 4. A polynomial estimates y = m^(-1/3). The root of m is m y^2 (1 - e)^(-2/3) with
e = 1 - m y^3, by the power series in e.
"""

from __future__ import annotations

from polyker.codegen.vecmath import exp as exponential
from polyker.codegen.vecmath import log as logarithm
from polyker.codegen.vecmath.core.build import MathBuilder, MathValue
from polyker.codegen.vecmath.core.registers import exponent, repaired, scaled, significand
from polyker.codegen.vecmath.core.tables import table

# The series of (1 - e)^(-2/3) after its 1.
_SERIES = (2 / 3, 5 / 9, 40 / 81, 110 / 243, 308 / 729)
# The same estimate of numbers that are larger by the root of 2.
_ESTIMATE_FROM_1 = tuple(c * 2.0 ** (-1 / 6 - k / 2) for k, c in enumerate(table("CBRT")))
_CLASSES = {"quiet": "quiet", "signaling": "quiet", "zero": "operand", "-inf": "operand", "inf": "operand"}


def cbrt(b: MathBuilder, x: MathValue) -> MathValue:
    """Return the cube root of x, which has the sign of x."""
    single = b.format(x).name == "f32"
    registers = b.features.avx512 and single  # in f64 these instructions take longer than those on integers
    a = b.abs(x)
    if registers:
        k, m, curve = exponent(b, a), significand(b, a), _ESTIMATE_FROM_1
    else:
        parts = logarithm.split(b, a)
        k, m, curve = parts.k, parts.m, table("CBRT")
    shift = b.format(x).shift
    shifted = b.fma(k, 1 / 3, shift)
    third = shifted - shift
    rest = b.fma(third, -3.0, k)  # -1, 0 or 1
    more, less = rest > 0.0, rest < 0.0
    one, (two,) = b.constant(1.0, x.element), table("CBRT_2")
    estimate = b.horner(m, curve) * b.select(more, 1 / two, b.select(less, two, one))
    m = scaled(b, m, rest) if registers else m * b.select(more, 2.0, b.select(less, 0.5, one))
    root = m * (estimate * estimate)
    error = b.fma(-root, estimate, 1.0)
    root = b.fma(root * error, b.horner(error, _SERIES[: 2 if single else 5]), root)
    if registers:
        return repaired(b, b.copysign(scaled(b, root, third), x), x, _CLASSES)
    root = b.copysign(root * exponential.power_of_two(b, shifted), x)
    return b.select((a > 0.0) & (a < float("inf")), root, x)
