"""Partial derivatives of the functions of the notation at numbers, written apart from polyker.grad.

Each takes the value of the call and its arguments, and returns one number an argument. Where a function has a corner they follow
docs/guide/gradients.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

Partials = Callable[..., tuple[float, ...]]
F = np.float64
_PI, _TWO = F(np.pi), F(2)


def _digamma(x: float) -> float:
    """Return the logarithmic derivative of the gamma function: by its recurrence up to 10, then its series."""
    if x <= 0 and x == math.floor(x):
        return math.nan
    if x < 0.5:
        return _digamma(1 - x) - math.pi / math.tan(math.pi * x)
    down = 0.0
    while x < 10:
        down, x = down + 1 / x, x + 1
    r = 1 / (x * x)
    series = r * (1 / 12 - r * (1 / 120 - r * (1 / 252 - r * (1 / 240 - r * (1 / 132 - r * 691 / 32760)))))
    return math.log(x) - 0.5 / x - series - down


def _power(y: float, a: float, b: float) -> tuple[float, ...]:
    by_base = F(0) if b == 0 else b * F(a) ** (b - 1)
    return by_base, F(0) if a == 0 else y * np.log(F(a))


def _share(wins: bool, ties: bool) -> tuple[float, float]:
    return (0.5, 0.5) if ties else (1.0, 0.0) if wins else (0.0, 1.0)


def _clip(y: float, x: float, low: float, high: float) -> tuple[float, ...]:
    if low > high:
        return 0.0, 0.0, 1.0
    return float(low <= x <= high), float(x < low), float(x > high)


def _logistic(x: float) -> float:
    return 1 / (1 + np.exp(-x))


def _normal(x: float) -> tuple[float, float]:
    """Return the distribution and the density of the normal distribution."""
    return math.erfc(-x / math.sqrt(2)) / 2, math.exp(-x * x / 2) / math.sqrt(2 * math.pi)


PARTIALS: dict[str, Partials] = {
    "neg": lambda y, x: (-1,),
    "div": lambda y, a, b: (1 / b, -a / (b * b)),
    "pow": _power,
    "mod": lambda y, a, b: (1, (y - a) / b),
    "fmod": lambda y, a, b: (1, (y - a) / b),
    "minimum": lambda y, a, b: _share(a < b, a == b),
    "maximum": lambda y, a, b: _share(a > b, a == b),
    "clip": _clip,
    "abs": lambda y, x: (0 if x == 0 else y / x,),
    "relu": lambda y, x: (x > 0,),
    "copysign": lambda y, a, b: (0 if a == 0 else y / a, 0),
    "exp": lambda y, x: (np.exp(x),),
    "exp2": lambda y, x: (np.exp2(x) * np.log(_TWO),),
    "expm1": lambda y, x: (np.exp(x),),
    "log": lambda y, x: (1 / x,),
    "log2": lambda y, x: (np.log2(np.e) / x,),
    "log10": lambda y, x: (np.log10(np.e) / x,),
    "log1p": lambda y, x: (1 / (1 + x),),
    "sqrt": lambda y, x: (F(x) ** -0.5 / 2,),
    "cbrt": lambda y, x: (np.abs(F(x)) ** (-2 / 3) / 3,),
    "rsqrt": lambda y, x: (-(F(x) ** -1.5) / 2,),
    "hypot": lambda y, a, b: (a / np.hypot(a, b), b / np.hypot(a, b)),
    "sin": lambda y, x: (np.sin(x + _PI / 2),),
    "cos": lambda y, x: (-np.sin(x),),
    "tan": lambda y, x: (np.cos(x) ** -2,),
    "asin": lambda y, x: (1 / np.sqrt((1 - x) * (1 + x)),),
    "acos": lambda y, x: (-1 / np.sqrt((1 - x) * (1 + x)),),
    "atan": lambda y, x: (np.cos(np.arctan(x)) ** 2,),
    "atan2": lambda y, a, b: (b / np.hypot(a, b) ** 2, -a / np.hypot(a, b) ** 2),
    "sinh": lambda y, x: ((np.exp(x) + np.exp(-x)) / 2,),
    "cosh": lambda y, x: (np.sinh(x),),
    # 1 - y * y is 0 where y is rounded to 1, which the relative error of the derivative should not count.
    "tanh": lambda y, x: (np.where(abs(y) == 1, 0.0, np.cosh(x) ** -2),),
    "asinh": lambda y, x: (1 / np.hypot(1, x),),
    "acosh": lambda y, x: (1 / np.sqrt((x - 1) * (x + 1)),),
    "atanh": lambda y, x: (1 / ((1 - x) * (1 + x)),),
    "erf": lambda y, x: (2 / np.sqrt(_PI) * np.exp(-x * x),),
    "erfc": lambda y, x: (-2 / np.sqrt(_PI) * np.exp(-x * x),),
    "erfinv": lambda y, x: (np.sqrt(_PI) / 2 * np.exp(y * y),),
    "lgamma": lambda y, x: (_digamma(float(x)),),
    "sigmoid": lambda y, x: (np.cosh(x / 2) ** -2 / 4,),
    "gelu": lambda y, x: (_normal(x)[0] + x * _normal(x)[1],),
    "silu": lambda y, x: (_logistic(x) + x * np.cosh(x / 2) ** -2 / 4,),
    "softplus": lambda y, x: (_logistic(x),),
    "conj": lambda y, x: (1,),
    "real": lambda y, x: (1,),
}  # fmt: skip
CONSTANT = frozenset({"floordiv", "floor", "ceil", "trunc", "round", "sign", "imag"})


def partials(op: str, value: float, args: Sequence[float]) -> tuple[float, ...]:
    """Return the partial derivatives of a call by its arguments; raises KeyError for a function that has none."""
    if op in CONSTANT:
        return (0.0,) * len(args)
    return PARTIALS[op](F(value), *map(F, args))
