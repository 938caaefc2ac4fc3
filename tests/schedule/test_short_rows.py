"""Short rows are written out element by element; the values stay, long rows and rows that are used again are left alone."""

import numpy as np
import pytest

import polyker as pk
from polyker.ir.layout import DENSE
from polyker.rewrite.indexing.unroll_short_rows import sum_short_rows, unroll_short_rows
from tests.covering import pairs
from tests.schedule.support import case


def dense(tensor):
    return DENSE


def statements(text, **types):
    flat = sum_short_rows(case(text, **types).flat, dense)
    return [s for s in unroll_short_rows(flat, dense).statements() if s.target in {t.name for t in flat.tensors}]


@pytest.mark.parametrize(
    ("text", "types", "count"),
    [
        ("T[p,c] = A[c,p]", {"A": "f32[3,100]"}, 3),
        ("T[c,p] = A[p,c]", {"A": "f32[100,4]"}, 4),
        ("T[c,p] = A[p,c]", {"A": "f32[100,5]"}, 1),
        ("T[c,p] = A[p,c]", {"A": "f32[9,3]"}, 1),  # no vector of them
        ("O[p,c] = a[p] * X[p,c]", {"a": "f32[50]", "X": "f32[50,3]"}, 3),
        (
            "O[p,c] = a[p] * X[p,c] for p in 2:50 where c <= p; O[p,c] = 0 for p in 0:2, c in 0:3",
            {"a": "f32[50]", "X": "f32[50,3]"},
            4,
        ),
        ("s[p] += X[p,c]", {"X": "f32[50,3]"}, 1),  # written out: no start
        ("s[p] += X[p,c]", {"X": "f32[50,8]"}, 2),
        ("D[i,j] += abs(A[i,k] - B[j,k])", {"A": "f32[50,3]", "B": "f32[60,3]"}, 2),  # B is better copied
        ("O[p,d] += X[p,c] * R[d,c]", {"X": "f32[50,3]", "R": "f32[3,3]"}, 3),
        ("O[n,h,w] max= X[n,2*h+r,2*w+s] for r in 0:2, s in 0:2", {"X": "f32[2,40,60]"}, 1),
    ],
)
def test_rows_are_written_out(text, types, count):
    assert len(statements(text, **types)) == count


@pytest.mark.parametrize(("n", "dtype", "channels"), pairs([16, 17, 31, 64, 1000], ["f4", "f8", "u1", "i8"], [2, 3, 4]))
def test_values_are_those_of_numpy(n, channels, dtype):
    x = (np.arange(n * channels) * 13 % 101).reshape(n, channels).astype(dtype)
    a, k = (np.arange(n) % 5).astype(dtype), (np.arange(channels) + 1).astype(dtype)
    wide, flipped = np.repeat(x, 2, 1)[:, ::2], x[::-1]
    for y in (x, wide, flipped):
        np.testing.assert_array_equal(pk.op("T[c,p] = A[p,c]")(y), y.T)
        np.testing.assert_array_equal(pk.op("O[p,c] = a[p] * X[p,c] + a[p]")(a, y), a[:, None] * y + a[:, None])
        np.testing.assert_array_equal(pk.op("s[p] += X[p,c] * k[c]")(y, k), (y * k).sum(1, dtype=dtype))
        np.testing.assert_array_equal(pk.op("s[p] max= X[p,c]")(y), y.max(1))
    np.testing.assert_array_equal(pk.op("T[p,c] = A[c,p]")(np.ascontiguousarray(x.T)), x)
    out = np.zeros((n, 2 * channels), dtype)[:, ::2]
    pk.op("O[p,c] = X[p,c] * k[c]")(x, k, out=out)
    np.testing.assert_array_equal(out, x * k)


def test_softmax_of_short_rows():
    x = np.random.default_rng(0).normal(size=(333, 3)).astype("f4")
    text = "O[i,j] = exp(X[i,j] - max[k](X[i,k])) / sum[l](exp(X[i,l] - max[k](X[i,k])))"
    e = np.exp(x.astype("f8") - x.max(1, keepdims=True))
    np.testing.assert_allclose(pk.op(text)(x), e / e.sum(1, keepdims=True), rtol=1e-5)
