"""Programs by blocks of rows: what is cut, what is left as it is, and that all numbers stay."""

from __future__ import annotations

import numpy as np
import pytest

import polyker as pk
from polyker.ir.typed import Role, TypedProgram
from polyker.ir.typed_printing import print_typed
from polyker.poly.isl import isl_job
from polyker.rewrite.time.row_blocks import row_blocks
from tests.covering import pairs
from tests.schedule.support import case

BLUR = """
    H[i,j] = (X[i,j] + X[i,j+1]) / 3  for j in 0:W-1
    O[i,j] = (H[i,j] + H[i+1,j] + H[i+2,j]) / 3  for i in 0:N-2"""
EDGES = """
    H[i,j] = X[i-1,j; pad=0] + X[i+1,j; pad=edge]  for i in 0:N
    G[i,j] = H[i,j] * H[i,(j+1)%W]
    O[i,j] = where(i > 3, G[i+1,j] - i, G[i,j])  for i in 0:N-1
    P[i,j] = G[i+1,j] + X[i,j]  for i in 0:N-1"""


def blocked(text: str, blocks: int = 4, **given: str | int) -> TypedProgram | None:
    with isl_job("test"):
        return row_blocks(case(text, **given).flat, blocks)


def test_rows_of_a_window_are_counted_in_each_block() -> None:
    found = blocked(BLUR, X="f32[66,40]", N=66, W=40)
    assert found is not None
    (rows,) = (t for t in found.tensors if t.role is Role.TEMPORARY)
    assert [getattr(e, "value", None) for e in rows.shape] == [4, 18, 39]
    assert "O" in print_typed(found)


@pytest.mark.parametrize(
    "text",
    [
        "O[i,j] = X[i,j] * 2",
        "H[i,j] = X[i,j] * 2;  O[i,j] = H[i,j] / 3",  # nothing would be computed twice
        "H[i,j] += X[i,k] * X[k,j];  O[i,j] = H[i,j] + H[i+1,j] for i in 0:39",  # in an order of its own
        "H[i,j] = X[i,j] / 3;  O[i,j] = H[i,j] + H[j,i]",
        "H[i,j] = X[i,j] / 3;  O[i,j] = H[i,j] + H[i-1,j; pad=0]",
        "O[0,j] = X[0,j];  O[i,j] = O[i-1,j] / 3 + X[i,j] for i in 1:40",
        "H[i,j] = X[i,j] / 3;  O[i,j] = H[2*i,j] + H[2*i+1,j] for i in 0:20",
        "H[i,j] = X[i,j] / 3;  O[i,j] = H[i,j] + H[i+30,j] for i in 0:10",
    ],
)
def test_what_does_not_go_row_by_row_is_left(text: str) -> None:
    assert blocked(text, X="f32[40,40]") is None


@pytest.mark.parametrize(
    ("size", "text", "threads"), pairs([(700, 900), (2011, 517), (97, 3000)], [BLUR, EDGES], [2, 3])
)
def test_no_number_changes(size: tuple[int, int], text: str, threads: int) -> None:
    rows, columns = size
    X = np.random.default_rng(3).random((rows, columns)).astype("f4")
    one, several = (pk.op(text, N=rows, W=columns).compile(X, threads=n)(X) for n in (1, threads))
    for a, b in zip(*(f if isinstance(f, tuple) else (f,) for f in (one, several)), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_picture_is_blurred_by_blocks_of_rows() -> None:
    kernel = pk.op(BLUR, N=2048, W=2048).compile(pk.f32[2048, 2048], threads=2)
    assert "4 blocks of rows" in kernel.source("schedule")
