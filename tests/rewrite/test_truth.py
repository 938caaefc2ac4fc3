"""Reductions of truth values in bytes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polyker as pk

FORMS = {
    "C[i,j] any= A[i,k] and B[k,j]": lambda a, b: (a[:, :, None] & b[None]).any(1),
    "C[i,j] all= A[i,k] or B[k,j]": lambda a, b: (a[:, :, None] | b[None]).all(1),
    "C[i,j] any= not (A[i,k] or not B[k,j])": lambda a, b: (~a[:, :, None] & b[None]).any(1),
    "C[i,j] all= A[i,k] and B[k,j] where k < 3": lambda a, b: (a[:, :3, None] & b[None, :3]).all(1),
}


@pytest.mark.parametrize("text", FORMS)
@given(n=st.integers(0, 20), m=st.integers(0, 70), k=st.integers(0, 9), seed=st.integers(0, 99), flip=st.booleans())
@settings(max_examples=6, deadline=None)
def test_products_of_truths_are_numpys(text: str, n: int, m: int, k: int, seed: int, flip: bool) -> None:
    rng = np.random.default_rng(seed)
    a, b = (rng.integers(0, 3, shape) == 0 for shape in ((n, k), (k, m)))
    if flip:
        a, b = a[::-1, ::-1], np.asfortranarray(b)
    np.testing.assert_array_equal(pk.op(text)(a, b), FORMS[text](a, b))


def test_any_byte_but_zero_is_true() -> None:
    a = np.array([[2, 0, 128], [0, 0, 0]], np.uint8).view(np.bool_)
    b = np.array([[4], [1], [0]], np.uint8).view(np.bool_)
    found = pk.op("C[i,j] any= A[i,k] and B[k,j]")(a, b)
    np.testing.assert_array_equal(found.view(np.uint8), [[1], [0]])


def test_results_that_share_a_element_stay_truths() -> None:
    a, where = np.array([True, False, False, True]), np.array([0, 0, 1, 2])
    found = pk.op("s(I: i64[N], A: bool[N]) -> C:\n    C: bool[4]\n    C[I[n]] any= A[n]")(where, a)
    np.testing.assert_array_equal(found, [True, False, True, False])


def test_no_bit_is_tested_in_the_innermost_loop_of_a_product() -> None:
    kernel = pk.op("C[i,j] any= A[i,k] and B[k,j]").compile(pk.bool_[64, 64], pk.bool_[64, 64])
    assert "u8" in str(kernel.source("loops"))
