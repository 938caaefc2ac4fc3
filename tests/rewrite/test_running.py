"""Reductions over all terms up to each element are recurrences, where there are many of them."""

import numpy as np
import pytest

import polyker as pk
from tests.artifacts import compiled_to


def compiled(text, *types):
    return pk.op(text).compile(*types, target="cpu")


def is_running(kernel):
    program, _ = compiled_to(kernel).scheduled
    return any(s.reads_own for s in program.statements())


def coded(*shape, dtype="f8"):
    return ((np.arange(int(np.prod(shape))) * 7 + 3) % 11 - 5).reshape(shape).astype(dtype)


CASES = {
    "sums": ("S[b,t] += X[b,j] for t in 0:90 where j <= t", lambda x: x.cumsum(1)),
    "sums before": ("S[b,t] += X[b,j] for t in 0:90 where j < t", lambda x: x.cumsum(1) - x),
    "columns": ("S[b,t] += X[j,t] for b in 0:70 where j <= b", lambda x: x[:70].cumsum(0)),
    "sums from an element on": ("S[b,t] += X[b,j] for t in 0:90 where j >= t", lambda x: x[:, ::-1].cumsum(1)[:, ::-1]),
    "sums after": ("S[b,t] += X[b,j] for t in 0:90 where j > t", lambda x: x[:, ::-1].cumsum(1)[:, ::-1] - x),
    "columns from below": ("S[b,t] += X[j,t] for b in 0:80 where j >= b", lambda x: x[::-1].cumsum(0)[::-1]),
    "an inline sum": ("S[b,t] = sum[j in 0:t+1](X[b,j]) for t in 0:90", lambda x: x.cumsum(1)),
    "an inline sum, the elements in another order": (
        "S[t,b] = sum[j in t:90](X[b,j]) for t in 0:90",
        lambda x: x[:, ::-1].cumsum(1)[:, ::-1].T,
    ),
    "least": ("S[b,t] min= X[b,j] for t in 0:90 where j >= t", lambda x: np.minimum.accumulate(x[:, ::-1], 1)[:, ::-1]),
    "greatest": ("S[t,b] max= X[b,j] for t in 0:90 where j <= t", lambda x: np.maximum.accumulate(x, 1).T),
}


@pytest.mark.parametrize("case", CASES)
def test_each_element_goes_on_from_the_one_before(case):
    text, want = CASES[case]
    x = coded(80, 90)
    kernel = compiled(text, x)
    assert is_running(kernel)
    np.testing.assert_array_equal(kernel(x), want(x))


@pytest.mark.parametrize(
    "text, dtype",
    [
        ("S[b,t] += X[b,j] for t in 0:12 where j <= t", "f8"),  # few terms
        ("S[b,t] += X[b,j] for t in 0:90 where j <= t", "f2"),  # summed in f32
        ("S[b,t] += X[b,j] for t in 0:90 where j <= t and j > t - 40", "f8"),
        ("S[b,t] += X[b,j] for t in 0:90 where j >= t and j < t + 40", "f8"),
        ("S[b,t] += X[b,j] * Y[t] for t in 0:90 where j <= t", "f8"),
        ("S[b,t] += X[b,j] for t in 0:90 where 2 * j <= t", "f8"),
        ("S[b,t] += X[b,j] for t in 0:90 where j <= t + 2", "f8"),  # the first element has three
    ],
)
def test_other_reductions_stay_as_they_are(text, dtype):
    x = coded(3, 12 if "12" in text else 90, dtype=dtype)
    inputs = (x, coded(90, dtype=dtype)) if "Y" in text else (x,)
    kernel = compiled(text, *inputs)
    assert not is_running(kernel)
    t, j = np.ogrid[: x.shape[1], : x.shape[1]]
    mask = 2 * j <= t if "2 *" in text else (j <= t) & ((j > t - 40) | ("40" not in text))
    mask = (j >= t) & (j < t + 40) if ">=" in text else mask
    mask = j <= t + 2 if "+ 2" in text else mask
    want = x.astype("f8") @ mask.T * (inputs[1] if "Y" in text else 1)
    np.testing.assert_array_equal(kernel(*inputs), want.astype(dtype))


def test_sizes_may_be_symbols_and_elements_may_hold_something_before():
    text = "f(X: f64[B,N]) -> S:\n    S[b,t] += X[b,j] for t in 0:N where j <= t"
    kernel = compiled(text, pk.f64["B", "N"])
    assert is_running(kernel)
    for shape in ((2, 0), (0, 3), (3, 1), (2, 100)):
        np.testing.assert_array_equal(kernel(coded(*shape)), coded(*shape).cumsum(1))
    text = "f(S: f64[40], X: f64[40]) -> S:\n    S[t] += X[j] for t in 0:40 where j <= t"
    kernel = compiled(text, pk.f64[40], pk.f64[40])
    np.testing.assert_array_equal(kernel(coded(40), coded(40)), coded(40) + coded(40).cumsum())


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("f(X: f64[N]) -> Y:\n  Y[i] = max[k](X[k] where k >= i) for i in 0:N", np.maximum.accumulate),
        ("f(X: f64[N]) -> Y:\n  Y[i] += X[k] for i in 0:N, k in i:N", np.cumsum),
        ("f(X: f64[B,N]) -> Y:\n  Y[b,i] min= X[b,k] for b in 0:B, i in 0:N, k in i:N", np.minimum.accumulate),
    ],
)
def test_reductions_from_a_element_on_of_symbolic_sizes_go_backwards(text, want):
    kernel = pk.op(text).compile(target="cpu")
    assert "depends on itself" in kernel.source("schedule")
    for n in (1, 40, 97):
        x = coded(*((3, n) if "B,N" in text else (n,)))
        np.testing.assert_array_equal(kernel(x), want(x[..., ::-1], -1)[..., ::-1])
