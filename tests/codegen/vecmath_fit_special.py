"""Compute the coefficients of the inverse and special functions, or the tables that are named:
`python -m tests.codegen.vecmath_fit_special [NAMES]`.

The method, and where they go, is that of vecmath_fit.py.
"""

from __future__ import annotations

import sys

from mpmath import mp, mpf

from tests.codegen.vecmath_fit import Fit, chosen, split

PSI_ZERO = mp.findroot(mp.digamma, mpf("1.4616321449683623"))
PSI_LOW, PSI_HIGH = 0.9999 - float(PSI_ZERO), 2.0001 - float(PSI_ZERO)


def _asin_tail(z: mpf) -> mpf:
    """Return (asin(x) / x - 1) / x^2, z = x^2."""
    x = mp.sqrt(z)
    return (mp.asin(x) / x - 1) / z


def _asin_weight(z: mpf) -> mpf:
    return z * mp.sqrt(z) / mp.asin(mp.sqrt(z))


def _atan_tail(z: mpf) -> mpf:
    """Return (atan(t) / t - 1) / t^2, z = t^2."""
    t = mp.sqrt(z)
    return (mp.atan(t) / t - 1) / z


def _atan_weight(z: mpf) -> mpf:
    return z * mp.sqrt(z) / mp.atan(mp.sqrt(z))


def _atanh_tail(z: mpf) -> mpf:
    """Return (atanh(s) / s - 1) / s^2, z = s^2."""
    s = mp.sqrt(z)
    return (mp.atanh(s) / s - 1) / z


def _root_inverse(m: mpf) -> mpf:
    """Return m^(-1/3)."""
    return 1 / mp.cbrt(m)


def _erfc(name: str, c: float, most: float, count: int, bits: int) -> Fit:
    """Return the fit of ((1 + 3 a / 2) exp(a^2) erfc(a) - 1) / (1 + u) in u = (a - c) / (a + c), a from 0 to `most`."""

    def excess(u: mpf) -> mpf:
        a = c * (1 + u) / (1 - u)
        return (1 + 1.5 * a) * mp.exp(a * a) * mp.erfc(a) - 1

    end = (most - c) / (most + c)
    return Fit(name, lambda u: excess(u) / (1 + u), -1, end, count, lambda u: (1 + u) / (1 + excess(u)), bits)


def _erfinv_near(w: mpf) -> mpf:
    """Return erfinv(x) / x, w = -log(1 - x^2)."""
    x = mp.sqrt(-mp.expm1(-w))
    return mp.erfinv(x) / x


def _erfinv(name: str, lo: float, hi: float, count: int, bits: int) -> Fit:
    """Return the fit of erfinv(x) / x in w = -log(1 - x^2) less the middle of the interval."""
    middle = mpf(lo + hi) / 2
    return Fit(
        name,
        lambda t: _erfinv_near(middle + t),
        lo - middle,
        hi - middle,
        count,
        lambda t: 1 / _erfinv_near(middle + t),
        bits,
    )


def _erfinv_tail(name: str, lo: float, hi: float, count: int, bits: int) -> Fit:
    """Return the fit of erfinv(x) / x in the root of w = -log(1 - x^2) less the middle of the interval."""
    middle = mpf(lo + hi) / 2

    def tail(t: mpf) -> mpf:
        return _erfinv_near((middle + t) ** 2)

    return Fit(name, tail, lo - middle, hi - middle, count, lambda t: 1 / tail(t), bits)


def _lgamma_middle(t: mpf) -> mpf:
    """Return lgamma(2 + t) / (t (1 + t))."""
    if abs(t) < mpf(10) ** -40:
        return 1 - mp.euler
    if abs(1 + t) < mpf(10) ** -40:
        return mp.euler
    return mp.loggamma(2 + t) / (t * (1 + t))


def _lgamma_far(v: mpf) -> mpf:
    """Return the rest of Stirling's formula at x = y + 1/2, times y: v = 1 / y^2."""
    y = 1 / mp.sqrt(v)
    return y * (mp.loggamma(y + 0.5) - y * (mp.log(y) - 1) - mp.log(2 * mp.pi) / 2)


def _digamma_middle(t: mpf) -> mpf:
    """Return digamma(x0 + t) / t, x0 its zero."""
    return mp.digamma(PSI_ZERO + t) / t


def _digamma_far(u: mpf) -> mpf:
    """Return (digamma(y + 1/2) - log y) y^2, u = (y - 3/2) / (y + 3/2)."""
    y = _above(u)
    return (mp.digamma(y + 0.5) - mp.log(y)) * y * y


def _digamma_weight(u: mpf) -> mpf:
    y = _above(u)
    return 1 / (y * y * mp.digamma(y + 0.5))


def _above(u: mpf) -> mpf:
    return (1 + u) / (1 - u) * 3 / 2


def _cotangent(z: mpf) -> mpf:
    """Return (1 / r - pi cot(pi r)) / r, z = r^2."""
    r = mp.sqrt(z)
    return (1 / r - mp.pi * mp.cot(mp.pi * r)) / r


def _sine(z: mpf) -> mpf:
    """Return sin(pi r) / (pi r), z = r^2."""
    r = mp.pi * mp.sqrt(z)
    return mp.sin(r) / r


def _near_one(t: mpf) -> mpf:
    return 1 / _lgamma_middle(t)


def _near_zero(t: mpf) -> mpf:
    return 1 / _digamma_middle(t)


def _lgamma_weight(v: mpf) -> mpf:
    y = 1 / mp.sqrt(v)
    return 1 / (y * mp.loggamma(y + 0.5))


SPLITS: dict[str, list[mpf]] = {
    "PI_F64": split(mp.pi, 53, 53),
    "PI_F32": split(mp.pi, 24, 24),
    "PSI_ZERO": split(PSI_ZERO, 53, 53),
    "CBRT_2": split(mp.cbrt(2), 53),
    "HALF_LOG_2PI": split(mp.log(2 * mp.pi) / 2, 53, 53),
}
TINY = 1e-20  # in place of 0, where the formula of a function is 0 / 0
ATAN_MOST = 0.17158  # tan^2(pi / 8)
ATANH_MOST = 0.02945  # ((sqrt 2 - 1) / (sqrt 2 + 1))^2

FITS: list[Fit] = [
    Fit("CBRT", _root_inverse, 0.7071, 1.41422, 4, mp.cbrt, 24),
    Fit("ASIN_F64", _asin_tail, TINY, 0.25, 13, _asin_weight, 53),
    Fit("ASIN_F32", _asin_tail, TINY, 0.25, 6, _asin_weight, 24),
    Fit("ATAN_EIGHTH_F64", _atan_tail, TINY, ATAN_MOST, 12, _atan_weight, 53),
    Fit("ATAN_EIGHTH_F32", _atan_tail, TINY, ATAN_MOST, 5, _atan_weight, 24),
    Fit("ATANH_F64", _atanh_tail, TINY, ATANH_MOST, 7, lambda z: z, 53),
    Fit("ATANH_F32", _atanh_tail, TINY, ATANH_MOST, 3, lambda z: z, 24),
    _erfc("ERFC_F64", 4, 27.3, 23, 53),
    _erfc("ERFC_F32", 3, 10.1, 11, 24),
    _erfinv("ERFINV_F64", 0, 5, 25, 53),
    _erfinv("ERFINV_F32", 0, 5, 12, 24),
    _erfinv_tail("ERFINV_TAIL_F64", 2.236, 6.01, 33, 53),
    _erfinv_tail("ERFINV_TAIL_F32", 2.236, 4.0, 12, 24),
    Fit("LGAMMA_F64", _lgamma_middle, -1, 1, 28, _near_one, 53),
    Fit("LGAMMA_F32", _lgamma_middle, -1, 1, 15, _near_one, 53),
    Fit("LGAMMA_FAR_F64", _lgamma_far, TINY, 0.16, 13, _lgamma_weight, 53),
    Fit("LGAMMA_FAR_F32", _lgamma_far, TINY, 0.16, 4, _lgamma_weight, 53),
    Fit("SINE_PI", _sine, TINY, 0.25, 9, bits=53),
    Fit("DIGAMMA_F64", _digamma_middle, PSI_LOW, PSI_HIGH, 23, _near_zero, 53),
    Fit("DIGAMMA_F32", _digamma_middle, PSI_LOW, PSI_HIGH, 12, _near_zero, 53),
    Fit("DIGAMMA_FAR_F64", _digamma_far, 0, 1 - 1e-8, 18, _digamma_weight, 53),
    Fit("DIGAMMA_FAR_F32", _digamma_far, 0, 1 - 1e-8, 8, _digamma_weight, 53),
    Fit("COTANGENT_PI", _cotangent, TINY, 0.25, 16, bits=53),
]

HEADER = (
    "# Inverse and special functions; the tables of lgamma and digamma in f32 are for f64, in which these are computed."
)

if __name__ == "__main__":
    if len(sys.argv) == 1:
        print(HEADER)
    for text in chosen(SPLITS, FITS):
        print(text, flush=True)
