"""Computed tensors that are read again with padding are copied with it; the values stay numpy's."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polyker as pk
from tests.artifacts import generated

MODES = {"0": {"mode": "constant"}, "edge": {"mode": "edge"}, "wrap": {"mode": "wrap"}, "reflect": {"mode": "reflect"}}


def windows(x, reach):
    views = np.lib.stride_tricks.sliding_window_view(x, (2 * reach + 1,) * 2, axis=(-2, -1))
    return views.sum(axis=(-2, -1))


@settings(deadline=None, max_examples=6)
@given(
    st.sampled_from(sorted(MODES)), st.integers(1, 3), st.integers(3, 40), st.integers(3, 40), st.integers(1, 2),
    st.sampled_from(["value", "sum", "loop"]),
)  # fmt: skip
def test_windows_over_computed_values(mode, channels, rows, columns, reach, kind):
    rng = np.random.default_rng(rows * columns)
    x, m = rng.normal(size=(channels, rows, columns)), rng.normal(size=(channels, channels))
    size, ranges = 2 * reach + 1, f"for c in 0:{channels}, i in 0:{rows}, j in 0:{columns}"
    read = f"sum[a in 0:{size}, b in 0:{size}](Y[c,i+a-{reach},j+b-{reach}; pad={mode}])"
    around = ((0, 0), (reach, reach), (reach, reach))

    def step(y):
        return windows(np.pad(y, around, **MODES[mode]), reach)

    if kind == "loop":
        body = f"B[c,i,j] = {read} {ranges}\n        Y[c,i,j] = B[c,i,j] / 9"
        text = f"f(Y: f64[C,H,W], n) -> Y:\n    for t in 0:n:\n        {body}"
        want = step(step(x) / 9) / 9
        np.testing.assert_allclose(pk.op(text)(x, 2), want, rtol=1e-10, atol=1e-12)
        return
    first = "Y[c,i,j] = 2*X[c,i,j]" if kind == "value" else "Y[c,i,j] += M[c,d] * X[d,i,j]"
    arrays = {"X": x} if kind == "value" else {"X": x, "M": m}
    want = step(2 * x if kind == "value" else np.einsum("cd,dij->cij", m, x))
    np.testing.assert_allclose(pk.op(f"{first}\nZ[c,i,j] = {read} {ranges}")(**arrays), want, rtol=1e-10, atol=1e-12)


def test_what_is_cheap_is_computed_into_the_copy():
    read = "sum[a in 0:3, b in 0:3](Y[i+a-1,j+b-1; pad=0] * K[a,b])"
    op = pk.op(f"Y[i,j] = 2*X[i,j]\nZ[i,j] = {read} for i in 0:60, j in 0:64")
    schedule = generated(op.compile(X=pk.f32[60, 64], K=pk.f32[3, 3]), "schedule")
    assert "Y is not stored" in schedule


@pytest.mark.parametrize("mode", ["edge", "0"])
@pytest.mark.parametrize("dtype", ["f16", "f32"])
def test_an_operand_is_copied_with_its_padding_before_common_loops(dtype, mode):
    depthwise = f"Y[n,h,w,c] += X[n,h+r-1,w+s-1,c; pad={mode}] * D[r,s,c] for h in 0:64, w in 0:64"
    op, kind = pk.op(f"{depthwise}\nZ[n,h,w] += maximum(Y[n,h,w,c], 0)"), getattr(pk, dtype)
    kernel = op.compile(X=kind[16, 64, 64, 32], D=kind[3, 3, 32], target="cpu:x86-64-v4", threads=1)
    schedule = generated(kernel, "schedule")
    assert "run together: loops i2 by 1" in schedule  # n
    assert "X is copied with its padding" in schedule
    rng = np.random.default_rng(0)
    x, d = (rng.integers(-1, 2, s).astype(kind.numpy) for s in ((16, 64, 64, 32), (3, 3, 32)))
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)), **MODES[mode])
    y = sum(padded[:, r : r + 64, s : s + 64] * d[r, s] for r in range(3) for s in range(3))
    np.testing.assert_array_equal(op(x, d), np.maximum(y, 0).sum(-1))
