"""Inline reductions as statements of their own: which outer indices they depend on."""

from __future__ import annotations

import numpy as np

import polyker as pk


def test_a_reduction_keeps_an_index_that_another_is_bound_to() -> None:
    """`b` alone could be told from `w` by the parity, and `w` from `b`: the mean depends on one of them."""
    op = pk.op("E[w,b] += D[w] * mean[m](B[m] where m <= b) * Y[b] where (w + b) % 2 == 0")
    d, b, y = np.arange(1, 4, dtype="f8"), np.array([1.0, 4.0, 7.0]), np.array([2.0, 3.0])
    want = np.zeros((3, 2))
    for w in range(3):
        for k in range(2):
            if (w + k) % 2 == 0:
                want[w, k] = d[w] * b[: k + 1].mean() * y[k]
    np.testing.assert_array_equal(op(d, b, y), want)
