"""Compute the coefficients of polyker/data/vecmath.txt, together with vecmath_fit_special.py, or the tables that are named:
`python -m tests.codegen.vecmath_fit [NAMES]`.

Weighted least squares on Chebyshev nodes in 60 digits, which comes within a bit of the minimax polynomial; the coefficients
are rounded to the format one by one from the constant upwards, and the rest is fitted again after each, so that a later
coefficient makes up for the rounding of an earlier one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from mpmath import mp, mpf
from msgspec import Struct

mp.dps = 60
TWO_OVER_PI_BITS = 64 * 20


def rounded(value: mpf, bits: int) -> mpf:
    """Return the nearest number of `bits` significant bits."""
    with mp.workprec(bits):
        return +value


def least_squares(basis: list[list[mpf]], target: list[mpf], weight: list[mpf]) -> list[mpf]:
    """Return the coefficients that minimise sum (weight * (target - sum c basis))^2 over the grid."""
    rows = [[w * b for w, b in zip(weight, row, strict=True)] for row in basis]
    right = [w * t for w, t in zip(weight, target, strict=True)]
    normal = mp.matrix([[mp.fdot(a, b) for b in rows] for a in rows])
    solution = mp.lu_solve(normal, mp.matrix([mp.fdot(a, right) for a in rows]))
    return [solution[i] for i in range(len(basis))]


class Fit(Struct, frozen=True):
    """f(x) = sum c[i] x^(start + i * step) on [lo, hi], the error weighted by `weight`.

    `bits`: of each rounded coefficient; `grid`: the number of nodes (0: chosen).
    """

    name: str
    function: Callable[[mpf], mpf]
    lo: float
    hi: float
    count: int
    weight: Callable[[mpf], mpf] = lambda x: mpf(1)
    bits: int = 53
    start: int = 0
    step: int = 1
    grid: int = 0

    def solve(self) -> tuple[list[mpf], mpf]:
        """Return the rounded coefficients and the weighted error they reach."""
        points = self.grid or max(200, 24 * self.count)
        lo, hi = mpf(self.lo), mpf(self.hi)
        xs = [lo + (hi - lo) * (1 - mp.cos(mp.pi * (k + mpf(1) / 2) / points)) / 2 for k in range(points)]
        target = [self.function(x) for x in xs]
        weight = [self.weight(x) for x in xs]
        basis = [[x ** (self.start + i * self.step) for x in xs] for i in range(self.count)]
        done: list[mpf] = []
        while basis:
            done.append(rounded(least_squares(basis, target, weight)[0], self.bits))
            target = [t - done[-1] * b for t, b in zip(target, basis[0], strict=True)]
            basis = basis[1:]
        return done, max(abs(w * t) for w, t in zip(weight, target, strict=True))


def _lines(name: str, words: list[str], count: int, error: mpf | None = None) -> str:
    """Return lines of the file, each of `count` values."""
    comment = [] if error is None else [f"# weighted error 2^{float(mp.log(error, 2)):.1f}"]
    return "\n".join([*comment, *(" ".join((name, *words[k : k + count])) for k in range(0, len(words), count))])


def show(name: str, values: Sequence[mpf], error: mpf | None = None) -> str:
    """Return a table as lines of the file."""
    return _lines(name, [float(v).hex() for v in values], 4, error)


def split(value: mpf, *bits: int) -> list[mpf]:
    """Return numbers of these many significant bits that add up to the value as nearly as they can."""
    parts = []
    for count in bits:
        parts.append(rounded(value, count))
        value -= parts[-1]
    return parts


def _exp_tail(r: mpf) -> mpf:
    """Return (e^r - 1 - r) / r^2."""
    return (mp.expm1(r) - r) / r**2


def _sin_tail(z: mpf) -> mpf:
    """Return (sin r - r) / r^3, z = r^2."""
    r = mp.sqrt(z)
    return (mp.sin(r) - r) / r**3


def _sin_weight(z: mpf) -> mpf:
    return z ** mpf("1.5") / mp.sin(mp.sqrt(z))


def _tanh_tail(z: mpf) -> mpf:
    """Return (tanh(x) - x) / x^3, z = x^2."""
    x = mp.sqrt(z)
    return (mp.tanh(x) / x - 1) / z


def _tanh_weight(z: mpf) -> mpf:
    return z ** mpf("1.5") / mp.tanh(mp.sqrt(z))


def _tan_tail(z: mpf) -> mpf:
    """Return (tan r - r) / r^3, z = r^2."""
    r = mp.sqrt(z)
    return (mp.tan(r) / r - 1) / z


def _tan_weight(z: mpf) -> mpf:
    return z ** mpf("1.5") / mp.tan(mp.sqrt(z))


def _cos_tail(z: mpf) -> mpf:
    """Return (cos r - 1 + r^2 / 2) / r^4, z = r^2."""
    return (mp.cos(mp.sqrt(z)) - 1 + z / 2) / z**2


def _atanh_tail(z: mpf) -> mpf:
    """Return (2 atanh(s) / s - 2) / s^2, z = s^2."""
    s = mp.sqrt(z)
    return (2 * mp.atanh(s) / s - 2) / z


def _log_tail(f: mpf) -> mpf:
    """Return (log(1 + f) - f + f^2 / 2) / f^3."""
    return (mp.log1p(f) - f + f * f / 2) / f**3


def _erf_head(z: mpf) -> mpf:
    """Return erf(x) / x - 1, z = x^2."""
    x = mp.sqrt(z)
    return mp.erf(x) / x - 1


def _normal_head(z: mpf) -> mpf:
    """Return (Phi(x) - 1/2) / x, z = x^2, Phi the normal distribution."""
    x = mp.sqrt(z)
    return mp.erf(x / mp.sqrt(2)) / 2 / x


def _normal_weight(z: mpf) -> mpf:
    return mp.sqrt(z) / (mp.erfc(mp.sqrt(z / 2)) / 2)


def _normal_tail(name: str, c: int, most: float, count: int, bits: int) -> Fit:
    """Return the fit of a Phi(-a) exp(a^2 / 2) in u = (a - c) / (a + c), a from 0.75 to `most`."""

    def tail(u: mpf) -> mpf:
        a = c * (1 + u) / (1 - u)
        return a * mp.exp(a * a / 2) * mp.erfc(a / mp.sqrt(2)) / 2

    return Fit(name, tail, (0.75 - c) / (0.75 + c), (most - c) / (most + c), count, lambda u: 1 / tail(u), bits)


def _mills(a: mpf) -> mpf:
    """Return Phi(-a) exp(a^2 / 2)."""
    return mp.exp(a * a / 2) * mp.erfc(a / mp.sqrt(2)) / 2


class Pieces(Struct, frozen=True):
    """f(a) = sum c[i] (a - left)^i, `count` terms, with other c in each of 32 intervals, as far as a < `most`: those of a + 1
    from 2^e (1 + m / 8) to 2^e (1 + (m + 1) / 8), e of 0 to 3 and m of 0 to 7. The error is relative.
    `beside_a`: those of the first interval are of f(a) - a.
    """

    name: str
    function: Callable[[mpf], mpf]
    most: float
    count: int
    beside_a: bool = False

    def _value(self, left: mpf, t: mpf) -> mpf:
        return self.function(left + t) - (t if self.beside_a and left == 0 else 0)

    def _weight(self, left: mpf, t: mpf) -> mpf:
        return 1 / self.function(left + t)

    def solve(self) -> tuple[list[list[mpf]], mpf]:
        """Return for each degree the 32 coefficients, in the order of the five bits that tell the intervals, and the error."""
        places, errors = {}, []
        for e in range(4):
            for m in range(8):
                left, width = mpf(2) ** e * (1 + mpf(m) / 8) - 1, mpf(2) ** e / 8
                # Rounding may bring a + 1 to the next interval: then a lies a little to the left of it.
                slack = mpf(0) if left == 0 else mpf(2) ** -22
                row, error = [mpf(0)] * self.count, mpf(0)
                if left < self.most:
                    start = int(left == 0 == self.function(left))  # else 0 would not be met exactly
                    end, count = min(width, self.most - left), self.count - start
                    weight = partial(self._weight, left)
                    fit = Fit("", partial(self._value, left), -slack, end, count, weight, 24, start, grid=120)
                    found, error = fit.solve()
                    row = [mpf(0)] * start + found
                places[(e + 127) % 4 * 8 + m] = row
                errors.append(error)
        return [[places[k][i] for k in range(32)] for i in range(self.count)], max(errors)


def _pow_tail(z: mpf) -> mpf:
    """Return (atanh(s) / s - 1 - s^2 / 3) / s^4, z = s^2."""
    s = mp.sqrt(z)
    return (mp.atanh(s) / s - 1 - z / 3) / z**2


def _inverse(place: int) -> mpf:
    """Return the reciprocal of the middle of an interval of codegen/vecmath/pow_lookup.py, and 1 of the one that has 1 within.

    From 97 / 128 the intervals are 1 / 64 wide as far as 1, from there on 1 / 32.
    """
    left, right = (mpf(97 + 2 * (place + k)) / 128 for k in (0, 1))
    left, right = (v if v <= 1 else 1 + 2 * (v - 1) for v in (left, right))
    return mpf(1) if left < 1 < right else rounded(2 / (left + right), 24)


def inverses() -> list[list[mpf]]:
    """Return these 32 numbers, and minus their logarithms as a multiple of 2^-15 (as in LN2_F32) and the rest."""
    rows = [_inverse(place) for place in range(32)]
    high = [mp.nint(-mp.log(c) * 2**15) / 2**15 for c in rows]
    return [rows, high, [rounded(-mp.log(c) - part, 24) for c, part in zip(rows, high, strict=True)]]


# The first part leaves room for the bits of the multiple n, so that n times it is exact without a fused multiply-add.
SPLITS: dict[str, list[mpf]] = {
    "LN2_F64": split(mp.ln(2), 42, 53),
    "LN2_F32": split(mp.ln(2), 16, 24),
    "LN2": split(mp.ln(2), 53),
    "LOG2E_F64": split(1 / mp.ln(2), 53, 53),
    "LOG2E_F32": split(1 / mp.ln(2), 24, 24),
    "LOG10E_F64": split(1 / mp.ln(10), 53, 53),
    "LOG10E_F32": split(1 / mp.ln(10), 24, 24),
    "LOG10_2_F64": split(mp.log10(2), 42, 53),
    "LOG10_2_F32": split(mp.log10(2), 16, 24),
    "TWICE_LN2_F32": split(2 * mp.ln(2), 11, 24),  # the first part exact in products with 13 bits
    "HALF_PI_F64": split(mp.pi / 2, 53, 53, 53),
    "HALF_PI_F32": split(mp.pi / 2, 24, 24, 24),
    "HALF_PI_SHORT_F64": split(mp.pi / 2, 27, 27, 27, 53),
    "HALF_PI_SHORT_F32": split(mp.pi / 2, 10, 10, 10, 24),
    "THIRD_F64": split(mpf(1) / 3, 53, 53),
    "THIRD_F32": split(mpf(1) / 3, 24, 24),
}
HALF = float(mp.pi / 2) + 0.01  # a little beyond: the multiple that is taken off need not be the nearest one
QUARTER = float(mp.pi / 4) + 0.001
SQUARED = 0.02945  # ((sqrt 2 - 1) / (sqrt 2 + 1))^2

FITS: list[Fit] = [
    Fit("EXP_F64", _exp_tail, -0.3466, 0.3466, 10, lambda r: r * r, 53),
    Fit("EXP_F32", _exp_tail, -0.3467, 0.3467, 5, lambda r: r * r, 24),
    Fit("EXP_32ND_F32", _exp_tail, -0.0109, 0.0109, 2, lambda r: r * r, 24),
    Fit("EXP_HALF_F32", lambda r: mp.expm1(-r / 2) / r, -0.02167, 0.02167, 3, lambda r: r, 24),
    Fit("LOG_F64", _atanh_tail, 0, SQUARED, 7, lambda z: z / 2, 53),
    Fit("LOG_F32", _log_tail, -0.2930, 0.41422, 9, lambda f: f**3 / mp.log1p(f), 24),
    Fit("LOG_F32_WIDE", _log_tail, -0.2930, 0.41422, 12, lambda f: f**3 / mp.log1p(f), 53),
    Fit("SIN_F64", _sin_tail, 0, HALF**2, 9, _sin_weight, 53),
    Fit("SIN_F32", _sin_tail, 0, HALF**2, 5, _sin_weight, 24),
    Fit("SIN_QUARTER_F64", _sin_tail, 0, QUARTER**2, 6, _sin_weight, 53),
    Fit("SIN_QUARTER_F32", _sin_tail, 0, QUARTER**2, 3, _sin_weight, 24),
    Fit("COS_QUARTER_F64", _cos_tail, 0, QUARTER**2, 6, lambda z: z * z, 53),
    Fit("COS_QUARTER_F32", _cos_tail, 0, QUARTER**2, 3, lambda z: z * z, 24),
    Fit("TAN_F64", _tan_tail, 0, QUARTER**2, 14, _tan_weight, 53),
    Fit("TAN_F32", _tan_tail, 0, QUARTER**2, 7, _tan_weight, 24),
    Fit("TANH_F64", _tanh_tail, 0, 0.3025, 10, _tanh_weight, 53),
    Fit("TANH_F32", _tanh_tail, 0, 0.3025, 5, _tanh_weight, 24),
    Fit("ERF_F64", _erf_head, 0, 1, 12, lambda z: mp.sqrt(z) / mp.erf(mp.sqrt(z)), 53),
    Fit("ERF_F32", _erf_head, 0, 1, 7, lambda z: mp.sqrt(z) / mp.erf(mp.sqrt(z)), 24),
    Fit("LOG_ERFC_F64", lambda x: mp.log(mp.erfc(x)), 1, 6, 19, mp.erfc, 53),
    Fit("LOG_ERFC_F32", lambda x: mp.log(mp.erfc(x)), 1, 4, 8, mp.erfc, 24),
    Fit("NORMAL_F64", _normal_head, 0, 0.5625, 9, _normal_weight, 53),
    Fit("NORMAL_F32", _normal_head, 0, 0.5625, 5, _normal_weight, 24),
    _normal_tail("NORMAL_TAIL_F64", 4, 38.7, 22, 53),
    _normal_tail("NORMAL_TAIL_F32", 2, 14.5, 10, 24),
    Fit("POW_F64", _pow_tail, 0, SQUARED, 7, lambda z: z * z, 53),
    Fit("POW_F32", _pow_tail, 0, SQUARED, 3, lambda z: z * z, 24),
    Fit("POW_LOG1P", lambda r: (mp.log1p(r) - r) / r**2, -0.0162, 0.0162, 4, lambda r: r, 24),
]

PIECES = [
    Pieces("TANH", mp.tanh, 9.5, 6),
    Pieces("ERF", mp.erf, 4.25, 6, beside_a=True),
    Pieces("MILLS", _mills, 14.75, 5),
]

HEADER = """\
# Coefficients of the vector mathematics, as hexadecimal floats, written by
#   (python -m tests.codegen.vecmath_fit; python -m tests.codegen.vecmath_fit_special) > polyker/data/vecmath.txt
# A line has the name of a table and values of it; lines of one name belong together.
# The weighted error above a table is the largest of weight * (function - polynomial) over the interval of the fit, with
# the weight that makes it relative to the result of the function (before the rounding errors of the evaluation)."""
PIECES_HEADER = """\
# Functions in 32 pieces: row i of 32 values holds the factors of (a - left)^i, in the order of the five bits of a + 1 that
# tell the intervals (the exponent's last two, the significand's first three)."""
INVERSES_HEADER = """\
# A number near 1 / m for each interval of m (codegen/vecmath/pow_lookup.py), and minus its logarithm in two parts."""


def show_pieces(name: str, rows: list[list[mpf]], error: mpf | None = None) -> str:
    """Return rows of 32 numbers as lines of the file."""
    return _lines(name, [float(v).hex().replace("0000000p", "p") for row in rows for v in row], 8, error)


def chosen(splits: dict[str, list[mpf]], fits: list[Fit]) -> Iterator[str]:
    """Yield the tables that the command line names, all where it names none."""
    wanted = sys.argv[1:]
    for name, parts in splits.items():
        if not wanted or name in wanted:
            yield show(name, parts)
    for fit in fits:
        if not wanted or fit.name in wanted:
            yield show(fit.name, *fit.solve())


def _two_over_pi() -> list[str]:
    with mp.workprec(TWO_OVER_PI_BITS + 64):
        words = int(mp.floor(2 / mp.pi * mpf(2) ** TWO_OVER_PI_BITS))
    return [f"0x{(words >> k) & (2**64 - 1):016X}" for k in range(TWO_OVER_PI_BITS - 64, -1, -64)]


if __name__ == "__main__":
    if len(sys.argv) == 1:
        print(HEADER)
        print(f"# 2 / pi, in 64-bit words from the point on\n{_lines('TWO_OVER_PI', _two_over_pi(), 4)}")
    for text in chosen(SPLITS, FITS):
        print(text, flush=True)
    if len(sys.argv) == 1:
        print(PIECES_HEADER)
        for pieces in PIECES:
            print(show_pieces(pieces.name, *pieces.solve()), flush=True)
        print(f"{INVERSES_HEADER}\n{show_pieces('INVERSES', inverses())}")
