"""The special functions where they are hard: underflow, next to zeros and poles, on the left, and in whole programs."""

from __future__ import annotations

import numpy as np
import pytest
from mpmath import mp, mpf

import polyker as pk
from polyker.ir.dtypes import DType, f32, f64
from tests.codegen.vecmath_harness import HAS_AVX512, Compiled
from tests.codegen.vecmath_reference import EXACT, LIMIT, worst

BOTH = pytest.mark.parametrize(("dtype", "lanes"), [(f32, 16), (f64, 8)], ids=["f32", "f64"])


def compiled(op: str, dtype: DType, lanes: int) -> Compiled:
    return Compiled(op, dtype, lanes, avx512=HAS_AVX512)


@BOTH
def test_erfc_underflows_gradually_to_zero(dtype: DType, lanes: int) -> None:
    function = compiled("erfc", dtype, lanes)
    low, high = (9.0, 10.2) if dtype == f32 else (26.0, 27.4)
    x = np.linspace(low, high, 3000).astype(function.element)
    got = function(x)[0]
    error, where = worst("erfc", got, (x,), function.element)
    assert error <= LIMIT["erfc"], where
    tiny = np.finfo(function.element).smallest_normal
    assert np.count_nonzero((got > 0) & (got < tiny)) > 100
    assert got[-1] == 0


@BOTH
@pytest.mark.parametrize(("op", "zero"), [("lgamma", 1.0), ("lgamma", 2.0), ("digamma", 1.4616321449683623)])
def test_next_to_a_zero_the_error_stays_relative(op: str, zero: float, dtype: DType, lanes: int) -> None:
    function = compiled(op, dtype, lanes)
    steps = np.arange(-600, 600)
    x = (function.element(zero) * (1 + steps * np.finfo(function.element).eps)).astype(function.element)
    error, where = worst(op, function(x)[0], (x,), function.element)
    assert error <= LIMIT[op], where


@BOTH
@pytest.mark.parametrize("op", ["lgamma", "digamma"])
def test_on_the_left_the_error_is_that_of_what_cancels(op: str, dtype: DType, lanes: int) -> None:
    function = compiled(op, dtype, lanes)
    rng = np.random.default_rng(2)
    near = -rng.integers(1, 40, 1000) * (1 + rng.choice([-1, 1], 1000) * 2.0 ** -rng.uniform(3, 52, 1000))
    far = -np.exp(rng.uniform(0, 16, 1000))
    x = np.concatenate([rng.uniform(-50, 0, 1000), near, far, -np.exp(-rng.uniform(0, 80, 1000))])
    x = x.astype(function.element)
    x = x[x != np.floor(x)]
    error, where = worst(op, function(x)[0], (x,), function.element)
    assert error <= LIMIT[op], where


@BOTH
def test_erfinv_is_right_as_far_as_the_last_number_below_1(dtype: DType, lanes: int) -> None:
    function = compiled("erfinv", dtype, lanes)
    away = 2.0 ** -np.linspace(1, np.finfo(function.element).nmant + 1, 500)
    x = (1 - away).astype(function.element)
    x = np.concatenate([x[x < 1], [np.nextafter(function.element(1), function.element(0))]])
    for sign in (1, -1):
        error, where = worst("erfinv", function(sign * x)[0], (sign * x,), function.element)
        assert error <= LIMIT["erfinv"], where


@BOTH
def test_angles_of_extreme_points_neither_overflow_nor_lose_digits(dtype: DType, lanes: int) -> None:
    function = compiled("atan2", dtype, lanes)
    info = np.finfo(function.element)
    sizes = [info.max, info.max / 2, info.max * 0.45, 1, info.smallest_normal]
    sizes += [n * info.smallest_subnormal for n in (1, 2, 3, 5, 7)]  # of which an eighth of a turn is rounded
    y, x = (m.ravel().astype(function.element) for m in np.meshgrid(sizes, [*sizes, *(-s for s in sizes)]))
    error, where = worst("atan2", function(y, x)[0], (y, x), function.element)
    assert error <= LIMIT["atan2"], where


@pytest.mark.parametrize(
    "op", ["cbrt", "asin", "acos", "atan", "asinh", "atanh", "erfc", "erfinv", "lgamma", "digamma"]
)
@pytest.mark.parametrize("kind", ["f4", "f8"])
def test_programs_of_odd_lengths_and_any_strides(op: str, kind: str) -> None:
    base = np.random.default_rng(1).uniform(0.05, 0.95, 200).astype(kind)
    program = pk.op(f"O[i] = {op}(X[i])")
    exact = {float(v): float(EXACT[op](mpf(float(v)))) for v in base}
    with mp.workprec(100):
        for x in (
            base[:1],
            base[:17],
            base[:67],
            base[::-1],
            base[3::7],
            base[::-3],
            base[:0],
            np.broadcast_to(base[5], 9),
        ):
            got = program(x)
            assert got.dtype == x.dtype
            expected = np.array([exact[float(v)] for v in x])
            np.testing.assert_allclose(got, expected, rtol=4 * np.finfo(kind).eps)
