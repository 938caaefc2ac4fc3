"""Reductions with one term for each element are statements that set it; the values stay."""

import numpy as np
import pytest

import polyker as pk
from polyker.einsum_frontend import parse
from polyker.ir.dtypes import f32
from polyker.poly.binding.bind import bind
from polyker.rewrite.normalise.set_single_terms import set_single_terms
from polyker.rewrite.normalise.start_reductions import start_reductions


def statements(text, **shapes):
    flat = start_reductions(bind(parse(text), {n: f32[s] for n, s in shapes.items()}, {}))
    return [s.op for s in set_single_terms(flat).statements()]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("C[i,j] += A[i] * B[j]", ["set"]),
        ("C[j,i] max= A[i] * B[j]", ["set"]),
        ("C[i,j] += A[i] * B[j] where i <= j", ["set", "set"]),  # the others hold 0
        ("C[i] += A[i] * B[j]", ["set", "add"]),
        ("C[i] = A[i]; C[i] += B[i]", ["set", "add"]),
        ("C[i+j] += A[i] * B[j]", ["set", "add"]),  # elements with several terms
    ],
)
def test_only_single_terms_are_set(text, found):
    assert statements(text, A=(5,), B=(5,)) == found


def test_values_and_zeros_stay():
    a, b = np.array([-1.0, 2.0, np.nan]), np.array([0.0, -3.0, np.inf])
    with np.errstate(invalid="ignore"):
        want = a[:, None] * b
    found = pk.op("C[i,j] += A[i] * B[j]")(a, b)
    np.testing.assert_array_equal(found, want)
    assert not np.signbit(found[0, 0])  # 0 + -0
    np.testing.assert_array_equal(pk.op("C[i,j] max= A[i] * B[j]")(a, b), want)
    lower = pk.op("C[i,j] += A[i] * B[j] for i in 0:3, j in 0:3 where j < i")(a, b)
    np.testing.assert_array_equal(lower[:, :2], np.where(np.tri(3, k=-1), want, 0)[:, :2])
    half = np.array([1, 60000, 3], "f2")
    np.testing.assert_array_equal(pk.op("C[i] += A[i] * A[i]")(half), np.float16(half.astype("f4") ** 2))
    np.testing.assert_array_equal(pk.op("n[i] += A[i] > 2")(half), [0, 1, 1])
    np.testing.assert_array_equal(pk.op("C[i] += A[i] * A[i]")(a + 1j), (a + 1j) ** 2)
    np.testing.assert_array_equal(pk.op("f(A: f64[N], C: f64[N]) -> C:\n    C[i] += A[i]")(b, a), a + b)
