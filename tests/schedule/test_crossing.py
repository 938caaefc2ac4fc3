"""Sums whose operands run along rows and along columns go by way of sums of rows; the values stay."""

import numpy as np
import pytest

import polyker as pk
from polyker.ir.layout import DENSE
from polyker.rewrite.reductions.transposed_sum import sum_crossing
from tests.schedule.support import case


def made(text, **types):
    flat = case(text, **types).flat
    return len(sum_crossing(flat, lambda tensor: DENSE).tensors) - len(flat.tensors)


@pytest.mark.parametrize(
    ("text", "types", "found"),
    [
        ("t += A[i,j] * B[j,i]", {"A": "f32[40,50]", "B": "f32[50,40]"}, 1),
        ("t[b] += A[b,i,j] * B[b,j,i]", {"A": "f32[3,40,50]", "B": "f32[3,50,40]"}, 1),
        ("t[b] += A[b,i,j] * B[b,j,i]", {"A": "f32[60,40,50]", "B": "f32[60,50,40]"}, 0),  # there are results enough
        ("t[b,c] += A[b,i,j] * B[c,j,i]", {"A": "f32[8,40,50]", "B": "f32[9,50,40]"}, 1),
        ("t[b,c] += A[b,i,j] * B[c,j,i]", {"A": "f64[30,110,50]", "B": "f64[30,50,110]"}, 0),  # 792 KB of sums of rows
        ("t += A[i,j] * B[i,j]", {"A": "f32[40,50]", "B": "f32[40,50]"}, 0),
        ("t += A[i,j] * B[j]", {"A": "f32[40,50]", "B": "f32[50]"}, 0),
        ("t += A[i,j] * B[j,i]", {"A": "f32[20,50]", "B": "f32[50,20]"}, 0),  # short
        ("t += A[i,j] * B[j,i] where j <= i", {"A": "f32[50,50]", "B": "f32[50,50]"}, 0),
    ],
)
def test_rows_are_summed_where_operands_cross(text, types, found):
    assert made(text, **types) == found


@pytest.mark.parametrize("shape", [(33, 47), (64, 64), (100, 39)])
def test_values_are_those_of_numpy(shape):
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=shape), rng.normal(size=shape[::-1])
    np.testing.assert_allclose(pk.op("t += A[i,j] * B[j,i]")(a, b), (a * b.T).sum(), rtol=1e-12)
    np.testing.assert_array_equal(pk.op("t max= abs(A[i,j] - B[j,i])")(a, b), abs(a - b.T).max())
    np.testing.assert_array_equal(pk.op("t min= A[i,j] + B[j,i]")(a[::-1], b[:, ::-1]), (a + b.T).min())
    batch = np.stack([a, 2 * a, a - 1])
    found = pk.op("t[c] += A[c,i,j] * B[j,i] for j in 2:n", n=shape[1])(batch, b)
    np.testing.assert_allclose(found, (batch * b.T)[:, :, 2:].sum((1, 2)), rtol=1e-12)
