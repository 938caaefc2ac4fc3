"""Inline reductions as statements of their own: which outer indices they depend on."""

from __future__ import annotations

import numpy as np
import pytest

import polyker as pk
from polyker.codegen.llvm.jit.detect import target
from polyker.ir.quasi_affine import lit
from polyker.rewrite.normalise.extract_reductions import extract_reductions
from tests.schedule.support import SMALL, assert_same, case


def test_a_reduction_keeps_an_index_that_another_is_bound_to() -> None:
    """`b` alone could be told from `w` by the parity, and `w` from `b`: the mean depends on one of them."""
    op = pk.op("E[w,b] += D[w] * mean[m](B[m] where m <= b) * Y[b] where (w + b) % 2 == 0")
    d, b, y = np.arange(1, 4, dtype="f8"), np.array([1.0, 4.0, 7.0]), np.array([2.0, 3.0])
    want = np.zeros((3, 2))
    for w in range(3):
        for k in range(2):
            if (w + k) % 2 == 0:
                want[w, k] = d[w] * b[: k + 1].mean() * y[k]
    np.testing.assert_array_equal(op(d, b, y), want)


IN_PLACE = {
    "f(A: f64[6,6], B: f64[6,5]) -> B:\n    B[i,j] = B[i,j] + sum[k in i+1:6](A[k,i] * B[k,j])": 0,  # what is not written yet
    "f(A: f64[6,6], B: f64[6,5]) -> B:\n    B[i,j] = B[i,j] - sum[k in 0:i](A[i,k] * B[k,j])": 1,  # the rows before
    "f(A: f64[6,6], B: f64[6,5]) -> B:\n    B[i,j] = B[i,j] - sum[k in 0:j](A[k,i] * B[i,k])": 2,  # the row itself
    "f(A: f64[6,6], B: f64[6,5]) -> B:\n    B[i,j] = A[i,0] - sum[k](B[k,j; pad=edge])": 2,  # anything
    "f(A: f64[6,6], B: f64[6,5]) -> B:\n    for t in 0:3:\n        B[i,j] = A[i,0] - sum[k in 0:i+2](B[i+k,j; pad=0])": 1,
    # Reductions within reductions: what the inner one reads counts by the terms of both.
    "f(A: f64[6,6], B: f64[6,5]) -> B:\n    B[i,j] = B[i,j] - sum[k in i+1:6](A[k,i] * sum[l](B[k,l] * B[k,j]))": 0,
    "f(A: f64[6,6], B: f64[6,5]) -> B:\n    B[i,j] = B[i,j] - sum[k in 0:i](A[i,k] * max[l](B[k,l] + B[i,l]))": 2,
    "f(A: f64[6,6], B: f64[6,5]) -> B:\n    B[i,j] = A[i,0] - sum[k in 0:i](A[i,k] * max[l](B[k,l] * A[k,0]))": 1,
}


@pytest.mark.parametrize("text", IN_PLACE)
def test_only_loops_that_carry_what_a_reduction_reads_stay_around_it(text: str) -> None:
    found = case(text, A="f64[6,6]", B="f64[6,5]")
    depth = {s.outer for s in extract_reductions(found.typed).statements() if s.op != "set"}
    assert depth == {IN_PLACE[text]}
    scop, schedule = found.automatic(target(SMALL))
    assert_same(found, scop, schedule)


TAPS = (
    "f(A: f64[6,6], B: f64[6,5]) -> B:\n    B[i,j] = A[i,0] - sum[k in 0:3](A[k,0] * B[i-k,j+1; pad=edge])",
    "f(A: f64[6,6], B: f64[6,5]) -> B:\n    B[i,j] = max[k in 1:3](A[i,k] + B[i-k,j; pad=-inf])",
    "f(A: f64[6,6], B: f64[6,5]) -> B:\n    for t in 0:3:\n        B[i,j] = A[i,0] - sum[k in 0:2](B[i+k,j; pad=0])",
)


@pytest.mark.parametrize("text", TAPS)
def test_short_reductions_over_what_is_written_are_values(text: str) -> None:
    found = case(text, A="f64[6,6]", B="f64[6,5]")
    assert all(s.op == "set" for s in extract_reductions(found.typed).statements())
    scop, schedule = found.automatic(target(SMALL))
    assert_same(found, scop, schedule)


def test_a_maximum_within_a_sum_over_the_steps_before_is_taken_once_a_element() -> None:
    found = case(
        "S[0,j] = A[0,j]; S[t,j] = logsumexp[i](S[t-1,i] + A[i,j]) for t in 1:6", A="f64[6,6]"
    )  # fmt: skip
    made = extract_reductions(found.typed)
    sums = [s for s in made.statements() if s.reduced]
    assert [(s.op, len(s.iterators)) for s in sums] == [("max", 3), ("add", 3)]
    scop, schedule = found.automatic(target(SMALL))
    assert_same(found, scop, schedule)


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("O[i,j] = sum[k in 0:j+1](X[i,k]) for j in 0:6", 0),
        ("O[j,i] = max[k](X[i,k] + X[j,k])", 0),
        ("O[2*i] = sum[k](X[i,k]); O[2*i+1] = prod[k](X[i,k])", 0),
        ("O[i] = sum[k](X[i,k]) + 1", 1),
        ("O[i] = mean[k](X[i,k])", 1),
        ("f(X: f64[6,6]) -> X:\n    X[i,j] = sum[k](X[k,j])", 1),  # it reads what it writes
    ],
)
def test_a_reduction_that_is_all_of_a_value_has_no_temporary(text: str, made: int) -> None:
    found = case(text, X="f64[6,6]")
    assert len(extract_reductions(found.typed).tensors) - len(found.typed.tensors) == made
    scop, schedule = found.automatic(target(SMALL))
    assert_same(found, scop, schedule)


@pytest.mark.parametrize("where", ["l < i - 3", "l + i < 7", "l > i", "l <= i", "l < 30"])
def test_one_maximum_of_all_elements_serves_a_logsumexp_over_windows(where: str) -> None:
    """Elements without terms have a maximum, too: the sum's terms, and what is added to its logarithm, read the same place."""
    X = np.random.default_rng(7).standard_normal((20, 30))
    term = eval(where, {"i": np.arange(20)[:, None], "l": np.arange(30)[None, :]})
    with np.errstate(divide="ignore"):
        want = np.log(np.where(term, np.exp(X), 0).sum(axis=1))
    text = f"Y[i] = logsumexp[l](X[i,l] where {where})"
    np.testing.assert_allclose(pk.op(text)(X=X), want, rtol=1e-12)
    found = case(text, X="f64[20,30]")
    shapes = {t.label: t.shape for t in extract_reductions(found.typed).tensors if t.label == "max"}
    assert shapes == {"max": (lit(20),)}  # one


def test_a_reduction_of_fewer_elements_is_read_where_the_one_of_all_has_them() -> None:
    text = "Y[i] = sum[k](X[i,k] where k < i - 2) + sum[j](X[j+3,j] * sum[k](X[i,k] where k < i - 2) where j < i - 2)"
    X = np.random.default_rng(7).standard_normal((9, 8))
    low = [X[i, : max(0, i - 2)].sum() for i in range(9)]
    want = [low[i] + sum(X[j + 3, j] * low[i] for j in range(6) if j < i - 2) for i in range(9)]
    np.testing.assert_allclose(pk.op(text)(X=X), want, rtol=1e-12)
    swapped = (
        "Y[i] = sum[j](X[j+3,j] * sum[k](X[i,k] where k < i - 2) where j < i - 2) + sum[k](X[i,k] where k < i - 2)"
    )
    np.testing.assert_allclose(pk.op(swapped)(X=X), want, rtol=1e-12)


@pytest.mark.parametrize("where", ["i + k < 4", "k >= i", "k < i"])
@pytest.mark.parametrize("terms", [1, 3])
def test_a_mean_counts_the_terms_of_each_element(where: str, terms: int) -> None:
    """An element without terms has no mean, also where all others have the same number."""
    X = np.arange(1.0, 1 + terms)
    taken = eval(where, {"i": np.arange(9)[:, None], "k": np.arange(terms)[None, :]})
    with np.errstate(invalid="ignore"):
        want = (taken * X).sum(1) / taken.sum(1)
    np.testing.assert_array_equal(pk.op(f"O[i] = mean[k](X[k] where {where}) for i in 0:9")(X=X), want)
