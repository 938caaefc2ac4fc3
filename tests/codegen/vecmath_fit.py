"""Compute the coefficients of codegen/vecmath_tables.py: `python tests/codegen/vecmath_fit.py > codegen/vecmath_tables.py`,
or with names of tables to see those.

Weighted least squares on Chebyshev nodes in 60 digits, which comes within a bit of the minimax polynomial; the coefficients
are rounded to the format one by one from the constant upwards, and the rest is fitted again after each, so that a later
coefficient makes up for the rounding of an earlier one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mpmath import mp, mpf

mp.dps = 60


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


@dataclass(frozen=True)
class Fit:
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


def show(name: str, values: Sequence[mpf], error: mpf | None = None) -> str:
    """Return a table entry as Python source."""
    comment = "" if error is None else f"# weighted error 2^{float(mp.log(error, 2)):.1f}\n"
    body = "".join(f'    "{float(v).hex()}",\n' for v in values)
    return f"{comment}{name} = _table(\n{body})"


def split(value: mpf, *bits: int) -> list[mpf]:
    """Return numbers of these many significant bits that add up to the value as nearly as they can."""
    parts = []
    for count in bits:
        parts.append(rounded(value, count))
        value -= parts[-1]
    return parts


# The first part leaves room for the bits of the multiple n, so that n times it is exact without a fused multiply-add.
SPLITS: dict[str, list[mpf]] = {
    "LN2_F64": split(mp.ln(2), 42, 53),
    "LN2_F32": split(mp.ln(2), 16, 24),
}


def _exp_tail(r: mpf) -> mpf:
    """Return (e^r - 1 - r) / r^2 without cancellation."""
    if abs(r) < mpf("1e-6"):
        return sum((r**k / mp.factorial(k + 2) for k in range(8)), mpf(0))
    return (mp.expm1(r) - r) / r**2


FITS: list[Fit] = [
    Fit("EXP_F64", _exp_tail, -0.3466, 0.3466, 10, lambda r: r * r, 53),
    Fit("EXP_F32", _exp_tail, -0.3467, 0.3467, 5, lambda r: r * r, 24),
]

HEADER = """\
\"\"\"Coefficients of the vector mathematics, as hexadecimal floats, written by tests/codegen/vecmath_fit.py.

The weighted error above a table is the largest of weight * (function - polynomial) over the interval of the fit, with
the weight that makes it relative to the result of the function (before the rounding errors of the evaluation).
\"\"\"


def _table(*values: str) -> tuple[float, ...]:
    return tuple(float.fromhex(v) for v in values)

"""

if __name__ == "__main__":
    if len(sys.argv) == 1:
        print(HEADER)
    for name, parts in SPLITS.items():
        if len(sys.argv) == 1 or name in sys.argv[1:]:
            print(show(name, parts), flush=True)
    for fit in FITS:
        if len(sys.argv) == 1 or fit.name in sys.argv[1:]:
            print(show(fit.name, *fit.solve()), flush=True)
