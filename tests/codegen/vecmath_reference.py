"""Exact values of the vector functions by mpmath, arguments to try them on, and errors in units in the last place."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any

import numpy as np
from mpmath import mp, mpf

mp.prec = 140

REAL_OPS = (
    "exp", "expm1", "log", "log1p", "sin", "cos", "tan", "tanh", "erf", "sigmoid", "silu", "gelu", "rsqrt", "pow",
    "exp2", "log2", "log10", "hypot", "sinh", "cosh", "softplus", "cbrt", "asin", "acos", "atan", "atan2", "asinh", "acosh",
    "atanh", "erfc", "erfinv", "lgamma", "digamma",
)  # fmt: skip
_LOOSE = ("sigmoid", "silu", "gelu", "erfinv", "lgamma", "digamma")
LIMIT = {op: 4.0 if op in _LOOSE else 2.0 for op in REAL_OPS}
CRITICAL = (
    0.0, -0.0, 1.0, -1.0, 2.0, 0.5, -0.5, 3.0, 1e300, -1e300, 1e38, -1e38, 5e-324, -5e-324, 1e-45, -1e-45,
    2.2250738585072014e-308, 1.1754943508222875e-38, 0.55, 0.75, -0.75, 88.72283, 88.72284, -87.33655, -103.97207,
    709.782712893384, 709.7827128933841, -708.3964185322641, -745.1332191019412, 8192.0, 8193.0, 16777216.0, 16777217.0,
    math.pi, math.pi / 2, math.pi / 4, 5.9, 6.0, 38.5, -38.5, -39.0, -14.2, 1.4142135623730951, 0.7071067811865476,
    6381956970095103.0 * 2.0**797, 16367173.0 * 2.0**72,  # the hardest for the reduction by pi / 2
)  # fmt: skip


def _normal(x: mpf) -> mpf:
    return mp.erfc(-x / mp.sqrt(2)) / 2


def _logistic(x: mpf) -> mpf:
    return 1 / (1 + mp.exp(-x))


def _softplus(x: mpf) -> mpf:
    return max(x, mpf(0)) + mp.log1p(mp.exp(-abs(x)))


def _lgamma(x: mpf) -> mpf:
    if x > 0:
        return mp.loggamma(x)
    return mp.log(mp.pi / abs(x * mp.sinpi(x))) - mp.loggamma(-x)


def _digamma(x: mpf) -> mpf:
    return mp.digamma(x) if x > 0 else mp.digamma(-x) - 1 / x - mp.pi * mp.cospi(x) / mp.sinpi(x)


EXACT: dict[str, Callable[..., mpf]] = {
    "exp": mp.exp, "expm1": mp.expm1, "log": mp.log, "log1p": mp.log1p, "sin": mp.sin, "cos": mp.cos, "tan": mp.tan,
    "tanh": lambda x: mp.tanh(x) if abs(x) < 100 else mp.sign(x),
    "erf": lambda x: mp.erf(x) if abs(x) < 30 else mp.sign(x),
    "sigmoid": lambda x: _logistic(x) if abs(x) < 1e4 else mpf(x > 0),
    "silu": lambda x: x * _logistic(x) if abs(x) < 1e4 else x * (x > 0),
    "gelu": lambda x: x * _normal(x) if abs(x) < 60 else x * (x > 0),
    "rsqrt": lambda x: 1 / mp.sqrt(x), "pow": mp.power,
    "exp2": lambda x: mp.power(2, min(max(x, -2000), 2000)), "log2": lambda x: mp.log(x) / mp.ln(2), "log10": mp.log10,
    "hypot": mp.hypot, "sinh": lambda x: mp.sinh(min(max(x, -2000), 2000)),
    "cosh": lambda x: mp.cosh(min(max(x, -2000), 2000)), "softplus": lambda x: _softplus(min(max(x, -2000), mpf(x))),
    "cbrt": lambda x: mp.sign(x) * mp.cbrt(abs(x)), "asin": mp.asin, "acos": mp.acos, "atan": mp.atan, "atan2": mp.atan2,
    "asinh": mp.asinh, "acosh": mp.acosh, "atanh": mp.atanh, "erfc": lambda x: mp.erfc(min(max(x, -200), 200)),
    "erfinv": mp.erfinv, "lgamma": _lgamma, "digamma": _digamma,
}  # fmt: skip
# Between the poles on the left these have zeros in which two such numbers cancel: there the error is in ulp of the larger one.
BESIDE: dict[str, Callable[..., mpf]] = {
    "lgamma": lambda x: max(mpf(1), mp.loggamma(-x)) if x < -2 else mpf(0),
    "digamma": lambda x: max(mpf(1), mp.digamma(-x)) if x < 0 else mpf(0),
}
# Zeros that arguments are to come close to.
_ZEROS = {"lgamma": 2.0, "digamma": 1.4616321449683623}


def points(kind: type[Any], count: int, seed: int = 0) -> np.ndarray:
    """Return about `count` finite numbers: every exponent with random bits, ranges that matter, and critical points."""
    rng = np.random.default_rng(seed)
    part = count // 8
    whole = np.uint32 if kind is np.float32 else np.uint64
    bits = rng.integers(0, np.iinfo(whole).max, 2 * part, dtype=whole).view(kind)
    sign = rng.choice([-1.0, 1.0], part)
    ranges = [
        rng.uniform(-3, 3, part),
        rng.uniform(-110, 110, part),
        rng.uniform(-800, 800, part),
        sign * np.exp(rng.uniform(-40, 0, part)),
        1 + sign * 2.0 ** -rng.uniform(0, 40, part),
        np.pi / 2 * rng.integers(-3000, 3000, part) * (1 + sign * 2.0 ** -rng.uniform(10, 53, part)),
    ]
    with np.errstate(all="ignore"):
        every = np.concatenate([bits, *(r.astype(kind) for r in ranges), np.array(CRITICAL).astype(kind)])
    return every[np.isfinite(every)]


def arguments(op: str, kind: type[Any], count: int, seed: int = 0) -> tuple[np.ndarray, ...]:
    """Return arguments in the domain of the function."""
    x = points(kind, count, seed)
    if op in ("log", "log2", "log10", "rsqrt", "pow"):
        x = np.abs(x[x != 0])
    if op == "log1p":
        x = x[x > -1]
    if op in ("asin", "acos", "atanh", "erfinv"):
        x = x[(np.abs(x) < 1) | ((np.abs(x) == 1) & (op in ("asin", "acos")))]
    if op == "acosh":
        x = np.abs(x[np.abs(x) >= 1])
    if op in _ZEROS:
        away = np.random.default_rng(seed).choice([-1.0, 1.0], x.size // 8) * 2.0 ** -np.linspace(2, 54, x.size // 8)
        x = np.concatenate([x, (_ZEROS[op] * (1 + away)).astype(kind)])
        x = x[(x > 0) | (x != np.floor(x))]
    if op in ("hypot", "atan2"):
        other = np.roll(points(kind, count, seed + 1), 1)
        near = np.exp(np.random.default_rng(seed).uniform(-4, 4, x.size // 2)).astype(kind)
        with np.errstate(all="ignore"):
            other = np.concatenate([other[: x.size - near.size], x[x.size - near.size :] * near])[: x.size]
        x = x[: other.size]
        both = np.isfinite(other) if op == "hypot" else np.isfinite(other) & (other != 0) & (x != 0)
        return x[both], other[both]
    if op != "pow":
        return (x,)
    rng = np.random.default_rng(seed + 1)
    half = x.size // 2
    near = np.exp(rng.choice([-1.0, 1.0], half) * 2.0 ** rng.uniform(-9, 2.4, half))
    edge = (150, 128) if kind is np.float32 else (1075, 1024)
    # Half of the results lie anywhere in the range of the format, the rest are of any two numbers that stay near it.
    steep = rng.uniform(-edge[0], edge[1], half) * np.log(2) / np.log(near)
    x = np.concatenate([x[half:], near.astype(kind)])
    y = np.concatenate([points(kind, count, seed + 2)[: x.size - half], steep.astype(kind)])
    size = min(x.size, y.size)
    x, y = x[-size:], y[-size:]
    with np.errstate(all="ignore"):
        inside = np.abs(y.astype(float) * np.log(x.astype(float))) < 1e4
    return x[inside], y[inside]


def ulps(got: float, exact: mpf, kind: type[Any], beside: mpf = mpf(0)) -> float:
    """Return |got - exact| in units in the last place of `exact`, or of `beside` where that is larger.

    Results beyond the largest number count as the next one.
    """
    info = np.finfo(kind)
    digits = info.nmant + 1
    if math.isnan(got):
        return math.inf
    top = mpf(2) ** int(info.maxexp)
    value = mp.sign(got) * top if math.isinf(got) else mpf(got)
    exact = min(max(exact, -top), top)
    _, exponent = mp.frexp(max(abs(exact), beside))
    least = int(info.minexp) - info.nmant
    if exact == 0:
        exponent = least + digits
    if abs(exact) == top:
        exponent -= 1
    return float(abs(value - exact) / mpf(2) ** max(int(exponent) - digits, least))


@lru_cache(maxsize=8)
def exact_values(op: str, precision: int, *args: bytes) -> list[tuple[mpf, mpf]]:
    """Return the exact value for each of the doubles, and what its error is measured beside; kept for other code for the same."""
    beside = BESIDE.get(op, lambda *_: mpf(0))
    rows = zip(*(map(mpf, np.frombuffer(a).tolist()) for a in args), strict=True)
    with mp.workprec(precision):
        return [(EXACT[op](*row), beside(*row)) for row in rows]


def worst(op: str, got: np.ndarray, args: tuple[np.ndarray, ...], kind: type[Any]) -> tuple[float, tuple[float, ...]]:
    """Return the largest error in ulp and the arguments where it occurs."""
    values = exact_values(op, mp.prec, *(a.astype(np.float64).tobytes() for a in args))
    errors = [ulps(float(g), exact, kind, beside) for g, (exact, beside) in zip(got, values, strict=True)]
    place = int(np.argmax(errors))
    return errors[place], tuple(float(a[place]) for a in args)


def _extended_logistic(x: np.ndarray) -> np.ndarray:
    small = np.exp(-np.abs(x))
    return np.where(x < 0, small, 1) / (1 + small)


@cache
def _nodes(steepness: str, least: int, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Return, at every 64th between two whole numbers, the integral of a bell from -infinity and the bell, as long doubles.

    `steepness`: 1 is exp(-x²) whose integral is that of erf plus 1, 1/2 the normal distribution's density.
    """
    places = [mpf(k) / 64 for k in range(64 * least, 64 * most + 1)]
    if steepness == "1":
        values = [(mp.erf(x), 2 / mp.sqrt(mp.pi) * mp.exp(-x * x)) for x in places]
    else:
        values = [(_normal(x), mp.exp(-x * x / 2) / mp.sqrt(2 * mp.pi)) for x in places]
    integral, bell = zip(*values, strict=True)
    return tuple(np.array([np.longdouble(mp.nstr(v, 25)) for v in column]) for column in (integral, bell))


def _under_bell(x: np.ndarray, steepness: str, least: int, most: int) -> np.ndarray:
    """Return the integral of a bell up to x by its Taylor series about the nearest node: g' = -2 s x g gives the terms."""
    integral, bell = _nodes(steepness, least, most)
    x = np.clip(x, least, most)
    number = np.rint(x * 64).astype(np.int64) - 64 * least
    place = (number + 64 * least) / np.longdouble(64)
    h, twice = x - place, np.longdouble(2 if steepness == "1" else 1)
    before, term = np.zeros_like(x), bell[number]
    found, power = np.zeros_like(x), h.copy()
    for n in range(1, 20):
        found += term * power / n
        before, term = term, -twice * (place * term + before) / n
        power *= h
    return integral[number] + found


EXTENDED: dict[str, Callable[..., np.ndarray]] = {
    "exp": np.exp, "expm1": np.expm1, "log": np.log, "log1p": np.log1p, "sin": np.sin, "cos": np.cos, "tan": np.tan,
    "tanh": np.tanh, "sigmoid": _extended_logistic, "silu": lambda x: x * _extended_logistic(x),
    "rsqrt": lambda x: 1 / np.sqrt(x), "pow": np.power, "exp2": np.exp2, "log2": np.log2,
    "log10": np.log10, "hypot": np.hypot, "sinh": np.sinh, "cosh": np.cosh, "softplus": lambda x: np.logaddexp(0, x),
    "cbrt": np.cbrt, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "atan2": np.arctan2, "asinh": np.arcsinh,
    "acosh": np.arccosh, "atanh": np.arctanh,
    "erf": lambda x: _under_bell(x, "1", -8, 8), "gelu": lambda x: np.where(x < -41, 0, x * _under_bell(x, "1/2", -42, 12)),
}  # fmt: skip


def dense_worst(
    op: str, function: Callable[..., tuple[np.ndarray, ...]], kind: type[Any], count: int, seed: int = 0
) -> tuple[float, tuple[float, ...]]:
    """Return the largest error over `count` points: long double finds the worst hundred, mpmath measures these.

    What long double lacks, mpmath measures on fewer points.
    """
    if op not in EXTENDED:
        args = arguments(op, kind, min(count, 40_000), seed)
        return worst(op, function(*args)[0], args, kind)
    args = arguments(op, kind, count, seed)
    with np.errstate(all="ignore"):
        exact = EXTENDED[op](*(a.astype(np.longdouble) for a in args))
        error = np.abs(function(*args)[0].astype(np.longdouble) - exact) / np.spacing(np.abs(exact.astype(kind)))
    # Where the result or the exact value is infinite both are, or it is a matter for the test of thresholds.
    error[~np.isfinite(error)] = 0
    chosen = np.argsort(-error)[:100]
    few = tuple(a[chosen] for a in args)
    return worst(op, function(*few)[0], few, kind)
