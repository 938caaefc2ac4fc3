"""Stores that LLVM once got wrong: single constant lanes of narrow types, forwards and backwards."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import polyker as pk

# bf16 is rounded in 32 bits and truncated by the store: there LLVM wrote past the lane.
NARROW = [np.dtype(t) for t in ("int8", "int16", "float16", "float32", ml_dtypes.bfloat16)]


@pytest.mark.parametrize("dtype", NARROW, ids=str)
@pytest.mark.parametrize("n", [1, 15, 17, 31, 33, 49, 65])
def test_a_store_of_one_last_lane_writes_no_neighbour(dtype: np.dtype, n: int) -> None:
    x = (np.arange(n + 2) % 50 + 1).astype(dtype)
    padded = np.full(n + 20, 9, dtype)
    out = padded[10 : 10 + n]
    pk.op(f"O[i] = X[i+2] for i in 0:{n}")(x, out=out)
    assert (out == x[2:]).all()
    assert (padded[:10] == 9).all()
    assert (padded[10 + n :] == 9).all()


@pytest.mark.parametrize("dtype", NARROW, ids=str)
@pytest.mark.parametrize("n", [1, 15, 17, 31, 33, 49, 65])
def test_a_reversed_store_of_one_last_lane_writes_no_neighbour(dtype: np.dtype, n: int) -> None:
    x = (np.arange(n) % 50 + 1).astype(dtype)
    padded = np.full(n + 20, 9, dtype)
    out = padded[10 : 10 + n]
    pk.op(f"O[{n - 1}-i] = X[i]")(x, out=out)
    assert (out == x[::-1]).all()
    assert (padded[:10] == 9).all()
    assert (padded[10 + n :] == 9).all()


def test_a_reversed_sum_of_one_last_lane_writes_no_neighbour() -> None:
    x = np.arange(1, 18).astype(ml_dtypes.bfloat16)
    assert (pk.op("P[16-w] += L[w]")(x) == x[::-1]).all()


def test_a_value_of_the_loop_before_is_not_taken_for_this_one() -> None:
    x = np.array([[10.0, 20, 30]])
    assert pk.op("D[a] = E[0,a%4; pad=reflect] for a in 0:5")(x).tolist() == [10, 20, 30, 20, 10]


def test_sine_and_a_strided_load_of_integers_stand_in_one_kernel() -> None:
    y = np.arange(40)
    got = pk.op("O[i] = cos(f64(Y[3*i]) * 1e17)")(y)
    np.testing.assert_allclose(got, np.cos(y[::3] * 1e17), rtol=1e-15)
