"""Reductions whose operand is read by rows and transposed in registers: tall products of few columns."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import polyker as pk
from polyker.machine.model import Cache

DTYPES = (np.float32, np.float64, np.int32, np.uint8, np.complex64, np.float16)


@given(
    rows=st.integers(1, 70),
    columns=st.integers(1, 14),
    terms=st.integers(1, 37),
    dtype=st.sampled_from(DTYPES),
    flips=st.tuples(st.booleans(), st.booleans(), st.booleans()),
    adds=st.booleans(),
)
@settings(max_examples=15, deadline=None)
def test_tall_products_are_numpys(
    rows: int, columns: int, terms: int, dtype: type, flips: tuple[bool, bool, bool], adds: bool
) -> None:
    rng = np.random.default_rng(rows * columns * terms)
    a, b = (rng.integers(0, 4, shape).astype(dtype) for shape in ((rows, terms), (terms, columns)))
    a, b = (x[:, ::-1] if flip else x for x, flip in zip((a, b), flips, strict=False))
    if flips[2]:
        a = np.ascontiguousarray(a.T).T
    start = rng.integers(0, 4, (rows, columns)).astype(dtype)
    if adds:
        found = pk.op("C[i,j] = S[i,j]; C[i,j] += A[i,k] * B[k,j]")(start, a, b)
        np.testing.assert_array_equal(found, start + a @ b)
    else:
        np.testing.assert_array_equal(pk.op("C[i,j] += A[i,k] * B[k,j]")(a, b), a @ b)


@given(rows=st.integers(1, 40), columns=st.integers(1, 9), terms=st.integers(1, 20), window=st.integers(1, 4))
@settings(max_examples=6, deadline=None)
def test_windows_along_the_terms(rows: int, columns: int, terms: int, window: int) -> None:
    rng = np.random.default_rng(rows + terms)
    a = rng.integers(0, 4, (rows, terms + window - 1)).astype(np.float32)
    b = rng.integers(0, 4, (terms, window, columns)).astype(np.float32)
    found = pk.op("C[i,j] += A[i,k+w] * B[k,w,j]")(a, b)
    wide = np.lib.stride_tricks.sliding_window_view(a, window, axis=1)
    np.testing.assert_array_equal(found, np.einsum("ikw,kwj->ij", wide, b))


def test_a_tall_product_of_few_columns_reads_and_writes_by_rows() -> None:
    kernel = pk.op("C[i,j] += A[i,k] * B[k,j]").compile(pk.f32[1920, 64], pk.f32[64, 8], target="cpu:x86-64-v4")
    text = str(kernel.source("loops"))
    assert text.count("# transpose(4)") == 1  # of the terms
    assert text.count(" # transpose(") == 2  # the other: of the result
    assert "gather" not in str(kernel.source("llvm"))
    assert "scatter" not in str(kernel.source("llvm"))


@pytest.mark.parametrize(("rows", "shapes"), [(60, 2), (63, 2), (1920, 1), (1927, 2)])
def test_a_vector_that_the_end_of_the_rows_cuts_is_read_by_pieces_too(rows: int, shapes: int) -> None:
    kernel = pk.op("C[i,j] += A[i,k] * B[k,j]").compile(pk.f32[rows, 64], pk.f32[64, 4], target="cpu:x86-64-v4")
    text = str(kernel.source("llvm"))
    assert str(kernel.source("loops")).count("# transpose(4)") == shapes
    assert len(re.findall("load float,|gather", text)) == shapes * 4 * 4  # B's


def test_rows_a_large_power_of_two_apart_are_not_read_side_by_side() -> None:
    held = Cache(48 * 1024, 64, 12)
    assert held.holds_rows(10, 4096)
    assert not held.holds_rows(11, 4096)
    assert held.holds_rows(20, 2048)
    assert held.holds_rows(600, 4096 + 64)
    assert held.holds_rows(1000, 8)  # neighbours in one line


@given(
    rows=st.integers(1, 40),
    terms=st.integers(1, 9),
    left=st.sampled_from(DTYPES[:4]),
    right=st.sampled_from(DTYPES[:3]),
)
@example(rows=25, terms=2, left=np.uint8, right=np.float64)
@settings(max_examples=8, deadline=None)
def test_terms_that_are_compared(rows: int, terms: int, left: type, right: type) -> None:
    """Of a vector with one lane LLVM narrows comparisons, and has taken the wrong half of a piece."""
    rng = np.random.default_rng(rows * terms)
    a, m = rng.integers(0, 4, (rows, terms)).astype(left), rng.integers(0, 3, (3, terms)).astype(left)
    t = rng.integers(0, 4, (rows, terms)).astype(right)
    found = pk.op("P[z,m] += (A[z,s] * M[m,s] <= T[z,s])")(a, m, t)
    np.testing.assert_array_equal(found, (a[:, None] * m[None] <= t[:, None]).sum(2))
