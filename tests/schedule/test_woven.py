"""Statements that write the elements of one tensor side by side share their vector loops, so that whole rows are stored."""

import numpy as np
import pytest

import polyker as pk

ROTARY = """
O[s,h,2*i] = X[s,h,2*i] * C[s,i] - X[s,h,2*i+1] * T[s,i]
O[s,h,2*i+1] = X[s,h,2*i] * T[s,i] + X[s,h,2*i+1] * C[s,i]
"""
COLOURS = "O[y,3*x] = 2 * A[y,x]; O[y,3*x+1] = A[y,x] + 1; O[y,3*x+2] = A[y,x] * A[y,x]"


def vector_loops(kernel):
    return kernel.source("schedule").count("vector(")


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(6, 4, 64), (5, 3, 34), (40, 8, 128)])
def test_pairs_are_turned_with_whole_vectors(dtype, shape):
    s, h, d = shape
    r = np.random.default_rng(0)
    x, c, t = (
        r.random((s, h, d)).astype(dtype),
        r.random((s, d // 2)).astype(dtype),
        r.random((s, d // 2)).astype(dtype),
    )
    kernel = pk.op(ROTARY).compile(x, c, t, threads=1)
    even, odd = x[..., ::2], x[..., 1::2]
    want = np.stack([even * c[:, None] - odd * t[:, None], even * t[:, None] + odd * c[:, None]], -1).reshape(x.shape)
    np.testing.assert_allclose(kernel(x, c, t), want, rtol=1e-5)


def test_pairs_share_their_vector_loop():
    kernel = pk.op(ROTARY).compile(pk.f32[128, 8, 64], pk.f32[128, 32], pk.f32[128, 32], threads=1)
    assert vector_loops(kernel) == 1
    assert "scatter" not in kernel.source("llvm")


def test_three_statements_share_their_vector_loop():
    a = np.random.default_rng(1).random((200, 96)).astype(np.float32)
    kernel = pk.op(COLOURS).compile(a, threads=1)
    assert vector_loops(kernel) == 1
    np.testing.assert_allclose(kernel(a), np.stack([2 * a, a + 1, a * a], -1).reshape(200, 288), rtol=1e-6)


def test_statements_that_write_elements_of_each_other_keep_their_order():
    a = np.random.default_rng(2).random((200, 96)).astype(np.float32)
    kernel = pk.op("O[y,2*x] = A[y,x]; O[y,2*x+1] = A[y,x]; O[y,2*x] = A[y,x] + 1 for x in 0:50").compile(a, threads=1)
    want = np.stack([a, a], -1)
    want[:, :50, 0] += 1
    np.testing.assert_array_equal(kernel(a), want.reshape(200, 192))
