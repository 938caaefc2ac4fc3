"""Copies within an iteration of the loops around, and iterators counted from where their values begin."""

from __future__ import annotations

import numpy as np
import pytest

import polyker as pk
from polyker.poly.isl import read_set
from polyker.rewrite.materialise.pack_step import copyable
from polyker.rewrite.normalise.count_from_zero import from_zero
from tests.schedule.support import case

STEP = "f(A: f64[N,N]) -> A:\n    for k in 0:N:\n"
RIGHT = STEP + "        A[i,j] = A[i,j] - A[i,k] * A[j,k]  for i in k+1:N, j in k+1:i+1"


def update(text, size=12):
    found = case(text, A=f"f64[{size},{size}]")
    return found.flat, next(s for s in found.flat.statements() if len(s.iterators) == 3)


def test_what_a_step_does_not_write_can_be_copied_before_it():
    program, statement = update(RIGHT)
    reads = list(dict.fromkeys(statement.reads()))
    assert copyable(program, statement) == {r for r in reads if r.subscripts != statement.subscripts}


def test_what_a_step_writes_cannot_be_copied_before_it():
    program, statement = update(STEP + "        A[i,j] = A[i,j] - A[i-1,k]  for i in 1:N, j in 0:N")
    assert not copyable(program, statement)


def test_a_triangle_is_counted_from_its_diagonal():
    program, statement = update(RIGHT)
    shifted = from_zero(program, statement, statement.iterators[2])
    assert read_set(shifted.domain).dim_min_val(2).get_num_si() == 0
    assert read_set(shifted.domain).is_equal(
        read_set(f"{{ {statement.name}[k, i, j] : 0 <= k < 12 and k < i < 12 and 0 <= j < i - k }}")
    )


def test_a_box_stays_as_it_is():
    program, statement = update(STEP + "        A[i,j] = A[i,j] - A[i,k] * A[k,j] % 2  for i in k+1:N, j in 3:N")
    assert from_zero(program, statement, statement.iterators[2]) is statement


def test_an_iterator_whose_value_counts_stays_as_it_is():
    program, statement = update(STEP + "        A[i,j] = A[i,k] + j  for i in k+1:N, j in k+1:N")
    assert from_zero(program, statement, statement.iterators[2]) is statement


def positive(size):
    r = np.random.default_rng(size).random((size, size))
    return r @ r.T + size * np.eye(size)


@pytest.mark.parametrize("size", [1, 2, 7, 8, 9, 16, 33, 50])
@pytest.mark.parametrize("symbolic", [False, True])
def test_factorisations_column_by_column(size, symbolic):
    text = (
        "f(A: f64[N,N]) -> A:\n    for k in 0:N:\n        A[k,k] = sqrt(A[k,k])\n"
        "        A[i,k] = A[i,k] / A[k,k]  for i in k+1:N\n"
        "        A[i,j] += -A[i,k] * A[j,k]  for i in k+1:N, j in k+1:i+1"
    )
    a = positive(size)
    kernel = pk.op(text).compile(pk.f64["N", "N"] if symbolic else a, threads=1)
    np.testing.assert_allclose(np.tril(kernel(a)), np.linalg.cholesky(a), rtol=1e-9, atol=1e-12)


def test_a_column_is_copied_once_a_step():
    kernel = pk.op(RIGHT).compile(pk.f64[48, 48], threads=1)
    assert "copied along" in kernel.source("schedule")
    a = positive(48) * 1e-4
    want = a.copy()
    for k in range(48):
        for i in range(k + 1, 48):
            want[i, k + 1 : i + 1] -= want[i, k] * want[k + 1 : i + 1, k]
    np.testing.assert_allclose(kernel(a), want, rtol=1e-8, atol=1e-300)


def test_a_diagonal_is_copied_before_all_rows():
    x, d = np.random.default_rng(1).random((40, 64)), np.random.default_rng(2).random((64, 64))
    kernel = pk.op("O[i,j] = X[i,j] * D[j,j]").compile(x, d, threads=1)
    assert "copied along" in kernel.source("schedule")
    np.testing.assert_array_equal(kernel(x, d), x * np.diag(d))
