"""Whether a result is right: compared with the same operator in float64, by one of four rules.

- sum: |x - r| <= gamma * s for every element, where s is the operator of the inputs' absolute values. gamma is the smaller of
  gamma_n = n u / (1 - n u), which no order of summation exceeds, and exp(8 sqrt(n) u) - 1, which rounding errors of mean zero
  exceed with a probability below 1e-13; n the terms of an element and 8 more, u half a unit in the last place. In float64, where
  the reference errs as much, twice that.
- scaled: |x - r| <= 2 gamma * max|r|: for what is no sum of products.
- exact: the same values.
- index: positions; at most one in 10,000 may differ, where rounding makes ties that float64 does not see.

Sources: Higham, Accuracy and Stability of Numerical Algorithms, 2002, section 3.1; Higham and Mary, A New Approach to
Probabilistic Rounding Error Analysis, SIAM J. Sci. Comput. 41(5), 2019, theorem 2.4.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from benchmarks.case import DTYPES, Array, Problem

TIES = 1e-4
CONFIDENCE = 8.0


class Expected(Struct, frozen=True):
    """The reference result, and the largest error allowed (one number, or one an element)."""

    value: Array
    limit: Array


def expected(problem: Problem, arrays: Sequence[Array]) -> Expected:
    """Return what a result of the problem is compared with."""
    wide = [a.astype(np.float64) if a.dtype.kind == "f" else a for a in arrays]
    value = np.asarray(problem.reference(*wide))
    kind = np.dtype(DTYPES[problem.output.dtype])
    if problem.rule in ("exact", "index") or kind.kind != "f":
        return Expected(value, np.zeros(()))
    unit = float(np.finfo(kind).eps) / 2
    bound = gamma(problem.terms + 8, unit) * (2 if kind == np.float64 or problem.rule == "scaled" else 1)
    if problem.rule == "scaled":
        return Expected(value, np.asarray(bound * float(np.max(np.abs(value), initial=0.0))))
    positive = [np.abs(a) if a.dtype.kind == "f" else a for a in wide]
    return Expected(value, bound * np.asarray(problem.reference(*positive)))


def gamma(n: int, unit: float) -> float:
    """Return the relative error allowed after n roundings of at most `unit` each."""
    likely = math.expm1(CONFIDENCE * math.sqrt(n) * unit)
    return min(likely, n * unit / (1 - n * unit)) if n * unit < 1 else likely


def wrong(problem: Problem, got: Array, want: Expected) -> str:
    """Return what is wrong with a result, or an empty text."""
    kind = np.dtype(DTYPES[problem.output.dtype])
    if got.shape != problem.output.shape or got.dtype != kind:
        return f"{got.dtype}{list(got.shape)} instead of {kind}{list(problem.output.shape)}"
    if not got.flags.c_contiguous:
        return f"strides {got.strides} are not row-major"
    if problem.rule == "index":
        share = float(np.mean(got != want.value))
        return f"{share:.2%} of the positions differ" if share > TIES else ""
    if problem.rule == "exact" or kind.kind != "f":
        return "" if np.array_equal(got, want.value) else "values differ"
    error = np.abs(got - want.value)
    bad = ~(error <= want.limit)  # NaN is within no limit
    if not np.any(bad):
        return ""
    return f"{np.count_nonzero(bad)} elements are off, by up to {float(np.max(error)):.2g}"
