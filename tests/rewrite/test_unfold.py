"""Windows along short rows are copied one by one; the values stay."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polyker as pk
from polyker.einsum_frontend import parse
from polyker.ir.dtypes import f32
from polyker.machine.known import known
from polyker.poly.binding.bind import bind
from polyker.rewrite.materialise.unfold_windows import unfold_windows
from polyker.rewrite.normalise.extract_reductions import extract_reductions
from polyker.rewrite.normalise.start_reductions import start_reductions

TEXT = "O[f,h,w] += X[c,h+r-1,w+s-1; pad=0] * K[f,c,r,s]  for h in 0:{h}, w in 0:{w}"


def statements(text: str, **shapes: tuple[int, ...]) -> int:
    typed = bind(parse(text), {n: f32[s] for n, s in shapes.items()}, {})
    flat = start_reductions(extract_reductions(typed))
    return len(list(unfold_windows(flat, known()["cpu:x86-64-v4"]).statements())) - len(list(flat.statements()))


@pytest.mark.parametrize(("extent", "filters", "copies"), [(7, 256, 1), (7, 2, 0), (64, 256, 0)])
def test_windows_are_copied_where_rows_are_short_and_filters_many(extent: int, filters: int, copies: int) -> None:
    text = TEXT.format(h=extent, w=extent)
    assert statements(text, X=(64, extent, extent), K=(filters, 64, 3, 3)) == copies


def test_a_copy_does_not_come_between_a_reduction_and_its_start() -> None:
    typed = bind(parse(TEXT.format(h=7, w=7)), {"X": f32[64, 7, 7], "K": f32[256, 64, 3, 3]}, {})
    flat = unfold_windows(start_reductions(extract_reductions(typed)), known()["cpu:x86-64-v4"])
    copy, start, update = flat.statements()
    assert flat.tensor(copy.target).label == "windows"
    assert start.target == update.target


@given(st.data())
@settings(max_examples=6, deadline=None)
def test_short_convolutions_give_numpys_values(data: st.DataObject) -> None:
    c, f = data.draw(st.integers(1, 12)), data.draw(st.sampled_from((3, 64, 130)))
    h, w = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 9))
    stride = data.draw(st.integers(1, 2))
    x = np.arange(c * h * w, dtype="f4").reshape(c, h, w) % 7 - 3
    k = np.arange(f * c * 9, dtype="f4").reshape(f, c, 3, 3) % 5 - 2
    oh, ow = (h - 1) // stride + 1, (w - 1) // stride + 1
    text = TEXT.format(h=oh, w=ow).replace("h+r", f"{stride}*h+r").replace("w+s", f"{stride}*w+s")
    padded = np.pad(x, [(0, 0), (1, 1), (1, 1)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))[:, ::stride, ::stride]
    np.testing.assert_array_equal(pk.op(text)(x, k), np.einsum("chwrs,fcrs->fhw", windows, k))
