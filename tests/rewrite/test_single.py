"""An index with one value leaves the subscripts that it stands in with others, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polyker as pk
from polyker.einsum_frontend import parse
from polyker.ir.dtypes import f32
from polyker.ir.typed_printing import print_typed
from polyker.poly.binding.bind import bind
from polyker.rewrite.normalise.drop_unit_dims import fix_single_values

CONV = "O[f,h,w] += X[c,h+r,w+s] * K[f,c,r,s]"


def fixed(text: str, **shapes: tuple[int | str, ...]) -> str:
    return print_typed(fix_single_values(bind(parse(text), {n: f32[s] for n, s in shapes.items()}, {})))


@pytest.mark.parametrize(
    ("text", "window", "found"),
    [
        (CONV, (1, 1), "X[c, h, w]"),
        (CONV, (1, 3), "X[c, h, w + s]"),
        (CONV, (3, 3), "X[c, h + r, w + s]"),
        ("O[f,h,w] += X[c,2*h+r,2*w+s] * K[f,c,r,s]", (1, 1), "X[c, 2*h + r, 2*w + s]"),
        ("O[f,h,w] += X[c,h+3*r+2,w+s] * K[f,c,r,s] for h in 0:9", (1, 1), "X[c, h + 2, w]"),
        ("O[f,h,w] += X[c,h+r-1,w+s; pad=0] * K[f,c,r,s] for h in 0:9, w in 0:9", (1, 1), "X[c, h - 1, w; pad=0.0]"),
    ],
)
def test_windows_of_one_element_are_none(text: str, window: tuple[int, int], found: str) -> None:
    shown = fixed(text, X=(4, 20, 20), K=(5, 4, *window))
    assert found in shown


def test_sizes_and_bare_indices_stay() -> None:
    assert "X[c, h + r" in fixed(CONV, X=("C", "H", "W"), K=("F", "C", "R", "S"))
    assert "X[i, j]" in fixed("O[i] += X[i,j]", X=(1, 1))


def test_a_product_with_a_window_of_one_element_is_one_over_merged_rows() -> None:
    kernel = pk.op(CONV).compile(pk.f32[64, 14, 14], pk.f32[64, 64, 1, 1])
    assert "windows" not in kernel.source("schedule")


@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_values_are_numpys(data: st.DataObject) -> None:
    r, s, c, f = (data.draw(st.integers(1, 3)) for _ in range(4))
    h, w = data.draw(st.integers(1, 12)), data.draw(st.integers(1, 20))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    x = rng.integers(-4, 5, (c, h + r - 1, w + s - 1)).astype(np.float64)
    k = rng.integers(-4, 5, (f, c, r, s)).astype(np.float64)
    windows = np.lib.stride_tricks.sliding_window_view(x, (r, s), (1, 2))
    np.testing.assert_array_equal(pk.op(CONV)(x, k), np.einsum("chwrs,fcrs->fhw", windows, k))
