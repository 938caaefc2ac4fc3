"""Half-precision sums into shared elements are rounded once."""

from __future__ import annotations

import numpy as np
import pytest

import polyker as pk

ml_dtypes = pytest.importorskip("ml_dtypes")


def test_a_scatter_in_half_precision_rounds_once() -> None:
    rng = np.random.default_rng(0)
    weights, places = rng.standard_normal(200).astype("f2"), rng.integers(0, 5, 200)
    wanted = np.zeros(5, "f4")
    np.add.at(wanted, places, weights.astype("f4"))
    got = pk.op("s(I: i64[N], W: f16[N]) -> H:\n    H: f16[5]\n    H[I[n]] += W[n]")(places, weights)
    assert (got == wanted.astype("f2")).all()


def test_diagonal_sums_in_half_precision_round_once() -> None:
    x = np.random.default_rng(1).random((20, 30)).astype("f2")
    wanted = np.zeros(49, "f4")
    for i in range(20):
        wanted[i : i + 30] += x[i]
    assert (pk.op("S[i+j] += A[i,j]")(x) == wanted.astype("f2")).all()


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_one_step_of_a_time_loop_rounds_what_it_stores_once(dtype: str) -> None:
    kind = np.dtype(ml_dtypes.bfloat16 if dtype == "bf16" else np.float16)
    rng = np.random.default_rng(5)
    a, b = (rng.standard_normal(s).astype(kind) for s in ((3, 40), 40))
    want = np.zeros(40, kind)
    for row in a:
        want = (want.astype("f4") + (row.astype("f4") + b.astype("f4"))).astype(kind)
    got = pk.op("for t in 0:3:\n    C[i] += A[t,i] + B[i]")(a, b)
    np.testing.assert_array_equal(got.view("u2"), want.view("u2"))


def test_elements_that_sums_share_in_a_loop_round_once_each_time_around() -> None:
    text = "s(X: f16[N]) -> H:\n    H: f16[3]\n    for t in 0:2:\n        H[i//4000 + t] += X[i] for i in 0:N"
    np.testing.assert_array_equal(pk.op(text)(X=np.ones(8000, "f2")), [4000, 8000, 4000])
