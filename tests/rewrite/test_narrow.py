"""Indices in values: in i32 where all fits, in i64 where it may not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polyker as pk

FORMS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "y[i,j] = where(j <= i, x[i,j], -inf)": lambda x, i, j: np.where(j <= i, x, -np.inf),
    "y[i,j] = where((i + j) % 3 == j // 2, x[i,j], 0)": lambda x, i, j: np.where((i + j) % 3 == j // 2, x, 0),
    "y[i,j] = x[i,j] * f32(2*i - 3*j)": lambda x, i, j: x * (2 * i - 3 * j),
    "y[i,j] = x[i,j] + i8(i - j)": lambda x, i, j: x + (i - j).astype(np.int8),
    "y[i,j] = where(-i < minimum(j, 4) - 9 and maximum(i, j) != 5, x[i,j], 1)": lambda x, i, j: np.where(
        (-i < np.minimum(j, 4) - 9) & (np.maximum(i, j) != 5), x, 1
    ),
    # Neither fits 32 bits, nor does what each is made of.
    "y[i,j] = where(i * 65536 * 40000 > j * 1000000007, x[i,j], 2)": lambda x, i, j: np.where(
        i * 65536 * 40000 > j * 1000000007, x, 2
    ),
    "y[i,j] = where((i * 3000000000) // 3000000000 == j, x[i,j], 2)": lambda x, i, j: np.where(i == j, x, 2),
    "y[i,j] = where(i % 5000000000 - 2147483648 < -2147483640 - j, x[i,j], 2)": lambda x, i, j: np.where(
        i - 2147483648 < -2147483640 - j, x, 2
    ),
}


@pytest.mark.parametrize("text", FORMS)
@given(n=st.integers(0, 20), m=st.integers(0, 70), specialize=st.sampled_from(["always", "never"]))
@settings(max_examples=6, deadline=None)
def test_what_is_computed_of_indices_is_numpys(text: str, n: int, m: int, specialize: str) -> None:
    x = np.arange(n * m, dtype=np.float32).reshape(n, m) + 7
    i, j = np.arange(n)[:, None], np.arange(m)
    wanted = np.broadcast_to(FORMS[text](x, i, j), (n, m)).astype(np.float32)
    with pk.options(specialize=specialize):
        np.testing.assert_array_equal(pk.op(text)(x), wanted)


@given(n=st.integers(1, 300), m=st.integers(1, 40), seed=st.integers(0, 99), low=st.sampled_from([-7, 0, 1]))
@settings(max_examples=6, deadline=None)
def test_places_of_extrema_are_numpys_from_wherever_they_count(n: int, m: int, seed: int, low: int) -> None:
    x = np.random.default_rng(seed).integers(0, 5, (n, m)).astype(np.float32)
    x[seed % n, seed % m] = np.nan if seed % 3 == 0 else 1
    text = f"p[j] = argmax[i in {low}:{low}+N](x[i-{low},j]);  q[i] = argmin[j](x[i,j])".replace("--", "+")
    found = pk.op(text)(x, N=n)
    np.testing.assert_array_equal(found.p, np.argmax(x, 0) + low)
    np.testing.assert_array_equal(found.q, np.argmin(x, 1))
    assert found.p.dtype == np.int64


def test_a_masked_or_weighted_row_of_floats_fills_its_vectors() -> None:
    for text in ("y[i] = sum[j](x[i,j] * j)", "y[i] max= where(j <= i, x[i,j], -inf)", "y[i] = argmax[j](x[i,j])"):
        kernel = pk.op(text).compile(pk.f32[64, 512], target="cpu:x86-64-v4")
        assert "vector(16)" in kernel.source("schedule"), text
        assert "vector(8)" not in kernel.source("schedule"), text
