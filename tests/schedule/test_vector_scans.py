"""Running maxima, minima and sums of integers run by whole vectors; what may not be regrouped does not."""

import numpy as np
import pytest

import polyker as pk
from tests.covering import few

RUNNING = "S[0] = X[0]; S[t] = {op}  for t in 1:N"
ROWS = "S[b,0] = X[b,0]; S[b,t] = {op}  for t in 1:N"


def values(dtype, *shape):
    return (np.random.default_rng(0).random(shape) * 1000).astype(dtype)


def is_scanned(kernel):
    return "scan(" in kernel.source("schedule")


@pytest.mark.parametrize("count", [33, 1000, 4099])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32])
@pytest.mark.parametrize(("name", "run"), [("maximum", np.maximum.accumulate), ("minimum", np.minimum.accumulate)])
def test_running_extrema_are_scanned_by_vectors(count, dtype, name, run):
    x = values(dtype, count)
    kernel = pk.op(RUNNING.format(op=f"{name}(S[t-1], X[t])"), N=count).compile(x, threads=1)
    assert is_scanned(kernel)
    np.testing.assert_array_equal(kernel(x), run(x))


def test_rows_are_scanned_one_after_another():
    x = values(np.float32, 37, 500)
    op = pk.op(ROWS.format(op="maximum(S[b,t-1], X[b,t])"), N=500)
    assert is_scanned(op.compile(x, threads=1, target="cpu:x86-64-v4"))
    kernel = op.compile(x, threads=1)
    np.testing.assert_array_equal(kernel(x), np.maximum.accumulate(x, 1))


def test_columns_stay_vectors_across():
    x = values(np.float32, 300, 64)
    kernel = pk.op("S[0,c] = X[0,c]; S[t,c] = maximum(S[t-1,c], X[t,c]) for t in 1:N", N=300).compile(x, threads=1)
    assert not is_scanned(kernel)
    np.testing.assert_array_equal(kernel(x), np.maximum.accumulate(x, 0))


def test_sums_of_integers_are_scanned_and_sums_of_floats_keep_their_order():
    for dtype, scanned in ((np.int64, True), (np.float64, False)):
        x = values(dtype, 1000)
        kernel = pk.op(RUNNING.format(op="S[t-1] + X[t]"), N=1000).compile(x, threads=1)
        assert is_scanned(kernel) is scanned
        np.testing.assert_array_equal(kernel(x), np.add.accumulate(x))


def test_a_reduction_up_to_each_element_is_scanned():
    x = values(np.float32, 1000)
    kernel = pk.op("S[t] max= X[k]  for t in 0:N where k <= t", N=1000).compile(x, threads=1)
    assert is_scanned(kernel)
    np.testing.assert_array_equal(kernel(x), np.maximum.accumulate(x))


def test_sizes_that_are_symbols():
    kernel = pk.op(RUNNING.format(op="maximum(S[t-1], X[t])")).compile(pk.f32["M"])
    assert is_scanned(kernel)
    for count in (1, 2, 16, 17, 100):
        x = values(np.float32, count)
        np.testing.assert_array_equal(kernel(x, N=count), np.maximum.accumulate(x))


@pytest.mark.parametrize(("n", "dtype"), few([32, 33, 47, 64, 300], ["f4", "f8", "i4", "u1"], 2))
def test_elements_may_go_down_as_well_as_up(n, dtype):
    x = (np.arange(5 * n) * 7 % 23).reshape(5, n).astype(dtype)
    down = x[:, ::-1]
    for y in (x, down, np.repeat(x, 2, 1)[:, ::2]):
        wide = y.astype("i8" if dtype == "u1" else dtype)
        after = wide[:, ::-1].cumsum(1)[:, ::-1].astype(dtype)
        np.testing.assert_array_equal(pk.op("S[b,t] = sum[j in t:n](X[b,j]) for t in 0:n", n=n)(y), after)
        np.testing.assert_array_equal(
            pk.op("S[b,t] = sum[j in 0:t+1](X[b,j]) for t in 0:n", n=n)(y), wide.cumsum(1).astype(dtype)
        )
        most = np.maximum.accumulate(y[:, ::-1], 1)[:, ::-1]
        np.testing.assert_array_equal(pk.op("S[b,t] max= X[b,j] for t in 0:n where j >= t", n=n)(y), most)
        np.testing.assert_array_equal(
            pk.op("S[b,n-1-t] = sum[j in 0:t+1](X[b,j]) for t in 0:n", n=n)(y), wide.cumsum(1)[:, ::-1].astype(dtype)
        )


def test_reductions_of_floats_may_be_regrouped_and_recurrences_not():
    x = np.random.default_rng(0).normal(size=(4, 500)).astype("f4")
    running = pk.op("S[b,t] = sum[j in 0:t+1](X[b,j]) for t in 0:500").compile(x)
    assert "scanned" in str(running.explain())
    np.testing.assert_allclose(running(x), x.astype("f8").cumsum(1), atol=1e-4)
    steps = pk.op("S[b,0] = X[b,0]; S[b,t] = S[b,t-1] + X[b,t] for t in 1:500").compile(x)
    assert "scanned" not in str(steps.explain())
    np.testing.assert_array_equal(steps(x), x.cumsum(1))
