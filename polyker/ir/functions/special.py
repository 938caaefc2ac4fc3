"""Special functions on numpy's scalars, in double and extended precision: NumPy has none of them."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

LD = np.longdouble
PI = 4 * np.arctan(LD(1))
_TWO_OVER_ROOT_PI = 2 / np.sqrt(PI)


def error_function(a: Any) -> Any:
    """Return erf of a float64 (by the C library) or a longdouble (by its power series, or its continued fraction)."""
    if isinstance(a, np.float64):
        return np.float64(math.erf(a))
    if not abs(a) < 3:
        return np.sign(a) * (1 - complementary(abs(a)))
    term = total = a
    for n in range(1, 200):
        term = term * 2 * a * a / (2 * n + 1)
        total += term
    return _TWO_OVER_ROOT_PI * np.exp(-a * a) * total


def complementary(a: Any) -> Any:
    """Return 1 - erf, exact where that is small."""
    if isinstance(a, np.float64):
        return np.float64(math.erfc(a))
    if not a >= 1:
        return 1 - error_function(a) if a > -3 else 2 - complementary(-a) if a <= -3 else a
    if a > 120:  # below the least longdouble
        return type(a)(0)
    fraction = type(a)(0)
    for n in range(300, 0, -1):
        fraction = (type(a)(n) / 2) / (a + fraction)
    square = a * a
    # exp(-x) of a large x loses what x was rounded by.
    return np.exp(-square) * (1 - _square_error(a, square)) * (_TWO_OVER_ROOT_PI / 2) / (a + fraction)


def _square_error(a: Any, square: Any) -> Any:
    """Return a^2 - square, by Dekker's splitting of a in two."""
    shifted = a * (2**32 + 1)
    high = shifted - (shifted - a)
    low = a - high
    return ((high * high - square) + 2 * high * low) + low * low


def inverse_error_function(a: Any) -> Any:
    """Return the number whose erf is `a`: Newton's iteration, by the tail where that is more precise."""
    y = LD(a)
    size = abs(y)
    if not size < 1:
        return type(a)(y * np.inf if size == 1 else np.nan)
    if size < 1e-9:
        return type(a)(y / _TWO_OVER_ROOT_PI)
    # Source of the start: Winitzki, "A handy approximation for the error function and its inverse", 2008.
    log = np.log1p(-size * size)
    half = 2 / (PI * LD(0.147)) + log / 2
    x = np.sqrt(np.sqrt(half * half - log / LD(0.147)) - half)
    for _ in range(6):
        off = error_function(x) - size if size < 0.8 else (1 - size) - complementary(x)
        step = off / (_TWO_OVER_ROOT_PI * np.exp(-x * x))
        x -= step / (1 + x * step)
    return type(a)(np.copysign(x, y))


@cache
def _zeta(k: int) -> Any:
    """Return zeta(k) - 1, by Euler and Maclaurin's summation."""
    last = 24
    n = LD(last)
    total = sum((LD(m) ** -k for m in range(2, last)), LD(0)) + n ** (1 - k) / (k - 1) + n**-k / 2
    term = k * n ** (-k - 1)
    for j, bernoulli in enumerate(_BERNOULLI):
        total += bernoulli * term / math.factorial(2 * j + 2)
        term *= (k + 2 * j + 1) * (k + 2 * j + 2) / (n * n)
    return total


_BERNOULLI = [
    LD(p) / q
    for p, q in ((1, 6), (-1, 30), (1, 42), (-1, 30), (5, 66), (-691, 2730), (7, 6), (-3617, 510), (43867, 798))
]
_EULER = LD("0.577215664901532860606512090082402431")
_LARGE = 24


def log_gamma(a: Any) -> Any:
    """Return log |gamma(a)|: its series about 2, Stirling's formula, and reflection on the left."""
    x = LD(a)
    if not np.isfinite(x) or (x <= 0 and x == np.floor(x)):
        return type(a)(np.nan if np.isnan(x) else np.inf)
    if abs(x) < 1e-18:
        return type(a)(-np.log(abs(x)))
    if x < 0.5:
        sine = _sine_of_turn(x)
        return type(a)(np.log(PI / abs(sine)) - LD(log_gamma(1 - x)))
    if x < 2.5:
        z = x - 2 if x >= 1.5 else x - 1
        series = (1 - _EULER) * z + sum(((-z) ** k * _zeta(k) / k for k in range(2, 60)), LD(0))
        return type(a)(series if x >= 1.5 else series - np.log1p(z))
    product = LD(1)
    while x < _LARGE:
        product, x = product * x, x + 1
    tail, power = LD(0), 1 / x
    for j, bernoulli in enumerate(_BERNOULLI):
        tail += bernoulli * power / ((2 * j + 1) * (2 * j + 2))
        power /= x * x
    return type(a)((x - LD(0.5)) * np.log(x) - x + np.log(2 * PI) / 2 + tail - np.log(product))


def digamma(a: Any) -> Any:
    """Return the derivative of log gamma: its asymptotic series, the recurrence to it, and reflection on the left."""
    x = LD(a)
    if not np.isfinite(x):
        return type(a)(np.inf if x > 0 else np.nan)
    if x == 0:
        return type(a)(np.copysign(np.inf, -x))
    if x < 0:
        if x == np.floor(x):
            return type(a)(np.nan)
        return type(a)(LD(digamma(1 - x)) - PI / np.tan(PI * (x - np.rint(x))))
    near = x - _ROOT
    if abs(near) < 0.2:
        return type(a)(_digamma_near(near - _ROOT_LOW, LD(_ROOT)))
    total = LD(0)
    while x < _LARGE:
        total, x = total - 1 / x, x + 1
    tail, power = LD(0), 1 / (x * x)
    for j, bernoulli in enumerate(_BERNOULLI):
        tail += bernoulli * power / (2 * j + 2)
        power /= x * x
    return type(a)(total + np.log(x) - 1 / (2 * x) - tail)


# The positive root, and what it is beyond the number.
_ROOT, _ROOT_LOW = 1.4616321449683622, LD("9.549995429965697715184e-17")


def _digamma_near(h: Any, root: Any) -> Any:
    """Return digamma(root + h) = h sum of 1 / ((n + root) (n + root + h)) over n >= 0, near its positive root."""
    x = root + h
    total = LD(0)
    while root < _LARGE:
        total, root, x = total + 1 / (root * x), root + 1, x + 1
    # The rest is the difference of two asymptotic series, divided by h.
    rest = (np.log1p(h / root) / h if h else 1 / root) + 1 / (2 * root * x)
    for j, bernoulli in enumerate(_BERNOULLI):
        order = 2 * j + 2
        # (root^-order - x^-order) / h
        sums = sum((root ** (-i - 1) * x ** (i - order) for i in range(order)), LD(0))
        rest += bernoulli / order * sums
    return h * (total + rest)


def _sine_of_turn(x: Any) -> Any:
    """Return sin(pi x), of the distance to the nearest integer."""
    away = x - np.rint(x)
    return np.sin(PI * away)
