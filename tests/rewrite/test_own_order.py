"""Arguments by columns and the like: the kernel of their own order, equal values, and errors that name the text's dimensions."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polyker as pk
from polyker.ir.layout import DENSE, Layout
from polyker.runtime.memory import layout_of
from tests.artifacts import compiled_to, generated


def in_order(shape: tuple[int, ...], order: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Return random numbers of a shape with the dimensions in memory in an order."""
    inside = np.random.default_rng(seed).random([shape[d] for d in order])
    return inside.transpose(np.argsort(order))


@pytest.mark.parametrize(
    ("shape", "order", "expected"),
    [
        ((3, 4), (1, 0), Layout(order=(1, 0))),
        ((3, 4), (0, 1), DENSE),
        ((3, 1), (1, 0), DENSE),
        ((2, 3, 4), (0, 2, 1), Layout(order=(0, 2, 1))),
        ((2, 3, 4), (2, 0, 1), Layout(order=(2, 0, 1))),
        ((3, 1, 4), (2, 1, 0), Layout(order=(1, 2, 0))),
    ],
)
def test_the_order_of_memory_is_seen(shape: tuple[int, ...], order: tuple[int, ...], expected: Layout) -> None:
    found = in_order(shape, order)
    assert layout_of(found.shape, found.strides, found.itemsize) == expected


def test_other_strides_are_strided() -> None:
    a = np.zeros((6, 8))
    for view in (a[:, ::2], a[::-1], a.T[::2], np.broadcast_to(a[0], (3, 8)), a.T[:5]):
        assert not layout_of(view.shape, view.strides, 8).dense


@settings(deadline=None, max_examples=6)
@given(
    st.sampled_from([*permutations(range(3))]), st.sampled_from([*permutations(range(3))]),
    st.sampled_from([(3, 4, 5), (1, 17, 2), (7, 1, 9), (0, 3, 2)]), st.sampled_from(["always", "never"]), st.booleans(),
)  # fmt: skip
def test_values_are_the_same_in_any_order(
    first: tuple[int, ...], second: tuple[int, ...], shape: tuple[int, ...], specialize: str, given_out: bool
) -> None:
    X, Y = in_order(shape, first), in_order(shape, second, 1)
    out = in_order(shape, second[::-1]) if given_out else None
    with pk.options(specialize=specialize):
        found = pk.op("O[i,j,k] = X[i,j,k] * 2 + i + sum[r in 0:3](Y[i,j+r-1,k; pad=1])")(X, Y, out=out)
    rows = np.pad(Y, ((0, 0), (1, 1), (0, 0)), constant_values=1)
    n = shape[1]
    want = X * 2 + np.arange(shape[0])[:, None, None] + rows[:, :n] + rows[:, 1 : n + 1] + rows[:, 2 : n + 2]
    np.testing.assert_allclose(found, want)


def test_what_is_there_already_stays_in_an_order_of_its_own() -> None:
    X = np.asfortranarray(np.random.default_rng(0).random((9, 11)))
    before = X.copy()
    op = pk.op("f(X: f64[N,M]) -> X:\n    X[i,j] = X[i,j] + X[i-1,j] for i in 1:N")
    np.testing.assert_allclose(op(X), np.cumsum(before, 0))
    op(X, out=X)
    np.testing.assert_allclose(X, np.cumsum(before, 0))


def test_a_matrix_by_columns_has_the_loops_of_its_transpose() -> None:
    op = pk.op("O[i,j] = sum[a in 0:3](X[i+a-1,j; pad=0]) for i in 0:N", N=200)
    X = np.zeros((200, 96), order="F")
    kernel = op.compile(X)
    kernel(X)
    text = generated(compiled_to(kernel, (Layout(order=(1, 0)), DENSE)), "loops")
    assert "t0: f64[96, 200], strides (200, 1)" in text


def test_an_index_out_of_range_names_the_dimension_of_the_text() -> None:
    T = np.asfortranarray(np.zeros((5, 9)))
    op = pk.op("O[i,j] = T[idx[i],j]")
    with pytest.raises(pk.PolykerError, match="dimension 0 of `T` has 5 elements"):
        op(T, np.array([1, 7]))
    places = np.asfortranarray(np.array([[1, 2, 3], [4, 5, 0]]))
    with pytest.raises(pk.PolykerError, match=r"is 5 at `idx\[1, 1\]`"):
        pk.op("O[i,j,k] = T[idx[i,j],k]")(T, places)


def test_a_schedule_of_the_users_runs_on_any_order() -> None:
    op = pk.op("C[i,j] += A[i,k] * B[k,j]")
    rng = np.random.default_rng(0)
    A, B = np.asfortranarray(rng.random((20, 30))), rng.random((30, 10))
    schedule = op.schedule(pk.f64[20, 30], pk.f64[30, 10], auto=False).tile(i=4, j=5)
    np.testing.assert_allclose(op.compile(A, B, schedule=schedule)(A, B), A @ B)
