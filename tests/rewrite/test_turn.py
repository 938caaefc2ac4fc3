"""Recurrences that go along memory are computed in turned tensors; others are left, and no value changes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polyker as pk
from polyker.ir.layout import DENSE
from polyker.ir.typed import statements_of
from polyker.poly.isl import isl_job
from polyker.rewrite.indexing.transpose_recurrences import transpose_recurrences
from tests.schedule.support import case

PATHS = (
    "Y[j,i] = X[j,i] + maximum(maximum(Y[j-1,i-1; pad=0], Y[j,i-1; pad=0]), Y[j+1,i-1; pad=0]) for i in 0:W, j in 0:H"
)
SWEEP = """f(X: f64[H,W], steps) -> X:
    for t in 0:steps:
        X[j,i] = (X[j,i] + X[j,i-1] - X[j,i+1]) / 2  for i in 1:W-1, j in 0:H"""
CROSS = """f(X: f64[H,W], steps) -> X:
    for t in 0:steps:
        X[j,i] = X[j,i] - X[j,i-1] / 2  for i in 1:W, j in 0:H
        X[j,i] = X[j,i] + X[j-1,i] / 2  for i in 0:W, j in 1:H"""
SOLVE = "A[r,i] = (Y[r,i] - sum[j in 0:i](Z[j,i] * A[r,j])) / (D[i] + 1) for i in 0:W, r in 0:H"
SEIDEL = """f(X: f64[H,W], steps) -> X:
    for t in 0:steps:
        X[j,i] = (X[j,i] + X[j,i-1] + X[j,i+1] + X[j-1,i] + X[j+1,i]) / 5  for i in 1:W-1, j in 1:H-1"""


def notes(text: str, **given: str | int) -> tuple[str, ...]:
    with isl_job("test"):
        return transpose_recurrences(case(text, **given).typed, lambda _: DENSE)[1]


def test_rows_become_the_last_dimension() -> None:
    with isl_job("test"):
        found, said = transpose_recurrences(case(PATHS, X="f32[300,257]", W=257, H=300).typed, lambda _: DENSE)
    first, _, last = statements_of(found.body)
    assert len(said) == 1
    assert [t.label for t in found.tensors if t.name == first.target] == ["X.transposed"]
    assert [t.label for t in found.tensors if t.name == last.target] == ["Y"]


def test_what_has_long_rows_to_go_across_is_turned_in_its_loop_or_around_it() -> None:
    shape = {"X": "f64[40,70]", "W": 70, "H": 40}
    assert notes(SWEEP, steps=4, **shape)
    assert len(notes(CROSS, steps=4, **shape)) == 1  # the second goes across as it is
    assert notes(SEIDEL, steps=4, **shape)
    assert notes(SOLVE, Y="f64[40,70]", Z="f64[70,70]", D="f64[70]", W=70, H=40)


def test_what_other_steps_wrote_is_no_recurrence() -> None:
    """The pivot of a row that is divided by it; nor is a tensor copied in each step for one row."""
    text = """f(X: f64[N,N]) -> X:
    for t in 0:N-1:
        X[t,i] = X[t,i] / X[t,t]  for i in t+1:N
        X[j,i] = X[j,i] - X[t,i] * X[j,t]  for j in t+1:N, i in t+1:N"""
    assert not notes(text, X="f64[60,60]")
    row = """f(X: f64[N,N]) -> X:
    for t in 1:N:
        X[t,i] = X[t,i] + X[t,i-1] * X[t-1,i]  for i in 1:N"""
    assert not notes(row, X="f64[60,60]")


def test_an_elimination_is_transposed_in_no_step() -> None:
    """The column that rows are divided by is one of other steps: its rows' elements need none of each other."""
    text = """f(X: f64[N,N]) -> X:
    for t in 0:4:
        X[j,i] = X[j,i] / (1 + X[j,t])  for j in 4:N, i in 4:N
        X[j,i] = X[j,i] - X[t,i] * X[j,t] / 64  for j in 4:N, i in 4:N"""
    assert not notes(text, X="f64[60,60]")
    X = np.random.default_rng(0).random((60, 60))
    want = X.copy()
    for t in range(4):
        want[4:, 4:] /= 1 + want[4:, t : t + 1]
        want[4:, 4:] -= np.outer(want[4:, t], want[t, 4:]) / 64
    np.testing.assert_allclose(pk.op(text)(X), want, rtol=1e-12)


def test_a_recurrence_along_memory_is_transposed_in_each_step_whatever_it_reads_of_other_steps() -> None:
    text = """f(X: f64[N,N]) -> X:
    for t in 0:4:
        X[j,i] = X[j,i] - X[j,i-1] * X[j,t] / 64  for i in 4:N, j in 0:N
        X[j,i] = X[j,i] + X[j-1,i] / 2  for i in 4:N, j in 1:N"""
    assert len(notes(text, X="f64[60,60]")) == 1
    X = np.random.default_rng(0).random((60, 60))
    want = X.copy()
    for t in range(4):
        for i in range(4, 60):
            want[:, i] -= want[:, i - 1] * want[:, t] / 64
        for j in range(1, 60):
            want[j, 4:] += want[j - 1, 4:] / 2
    np.testing.assert_allclose(pk.op(text)(X), want, rtol=1e-12)


def test_scratch_bytes_bound_the_turned_tensors() -> None:
    X = np.random.default_rng(0).random((60, 90))
    op = pk.op(PATHS, W=90, H=60)
    free = op.compile(X)
    with pk.options(scratch_bytes=4096):
        bound = op.compile(X)
    assert "which is transposed" in free.source("schedule")
    assert "which is transposed" not in bound.source("schedule")
    np.testing.assert_array_equal(free(X), bound(X))


@pytest.mark.parametrize(
    "text",
    [
        "Y[0,i] = X[0,i];  Y[j,i] = Y[j-1,i] + X[j,i] for j in 1:40",  # goes across
        "Y[j,0] = X[j,0];  Y[j,i] = Y[j,i-1] + X[j,i] for i in 1:70",  # several rows side by side
        "Y[j,i] = X[j,i] * 2",
        "f(X: f64[40,70]) -> X:\n    X[j,i] = X[j,i] - X[j,i-1] for i in 1:70, j in 0:3",  # few of the elements
    ],
)
def test_others_are_left(text: str) -> None:
    assert not notes(text, X="f64[40,70]")


@pytest.mark.parametrize("order", ["i in 0:W, r in 0:H", "r in 0:H, i in 0:W"])
@pytest.mark.parametrize(("rows", "columns"), [(40, 70), (17, 133)])
def test_a_solver_may_go_through_its_systems_one_by_one(order: str, rows: int, columns: int) -> None:
    rng = np.random.default_rng(1)
    Y, Z, D = rng.random((rows, columns)), rng.random((columns, columns)), rng.random(columns)
    found = pk.op(SOLVE.replace("i in 0:W, r in 0:H", order), W=columns, H=rows)(Y=Y, Z=Z, D=D)
    want = np.zeros_like(Y)
    for i in range(columns):
        want[:, i] = (Y[:, i] - want[:, :i] @ Z[:i, i]) / (D[i] + 1)
    np.testing.assert_allclose(found, want, rtol=1e-9, atol=1e-9)


@settings(deadline=None, max_examples=6)
@given(
    st.sampled_from([PATHS, SWEEP, CROSS, SEIDEL]), st.sampled_from([16, 17, 40]), st.sampled_from([64, 70, 101]),
    st.sampled_from(["C", "F"]), st.sampled_from(["always", "never"]),
)  # fmt: skip
def test_no_value_changes(text: str, rows: int, columns: int, order: str, specialize: str) -> None:
    X = np.asarray(np.random.default_rng(rows).random((rows, columns)), order=order)
    sizes = {"W": columns, "H": rows} if text is PATHS else {"steps": 3}
    with pk.options(specialize=specialize):
        found = pk.op(text)(X, **sizes)
    want, steps = (np.zeros_like(X), 1) if text is PATHS else (X.copy(), 3)
    for _ in range(steps):
        if text is PATHS:
            for i in range(columns):
                low = np.pad(want[:, i - 1] if i else np.zeros(rows), 1)
                want[:, i] = X[:, i] + np.maximum(np.maximum(low[:-2], low[1:-1]), low[2:])
        elif text is SWEEP:
            for i in range(1, columns - 1):
                want[:, i] = (want[:, i] + want[:, i - 1] - want[:, i + 1]) / 2
        elif text is CROSS:
            for i in range(1, columns):
                want[:, i] -= want[:, i - 1] / 2
            for j in range(1, rows):
                want[j] += want[j - 1] / 2
        else:
            for i in range(1, columns - 1):
                for j in range(1, rows - 1):
                    around = want[j, i] + want[j, i - 1] + want[j, i + 1] + want[j - 1, i] + want[j + 1, i]
                    want[j, i] = around / 5
    np.testing.assert_allclose(found, want, rtol=1e-12)
