"""What several statements compute alike is computed once: the meaning stays, and what may differ is left alone."""

from __future__ import annotations

import numpy as np
import pytest

import polyker as pk
from polyker.poly.scop import build_scop
from polyker.rewrite.sharing.share_results import share_results
from polyker.schedule.legality.prove import prove
from polyker.schedule.nests.text_order import default_schedule
from tests.schedule.support import assert_same, case


def fewer(text: str, **types: str | int) -> int:
    """Return how many statements are spared, those that read a stored value counted, too; the results stay the same."""
    found = case(text, **types)
    program, notes = share_results(found.flat)
    scop, schedule = build_scop(program), default_schedule(program)
    prove(scop, schedule)
    assert_same(found, scop, schedule)
    again = sum("reads" in n for n in map(str, notes))
    return len(list(found.flat.statements())) - len(list(program.statements())) + again


X = "f64[4,4]"
SHARED = {
    "a maximum of rows": ("P[i] = X[i,0] - max[k](X[i,k]);  Q[j,l] = X[j,l] * max[m](X[j,m])", 2),
    "the other order of dimensions": (
        "P[i,j] = X[i,j] - sum[k](X[i,k] * X[k,j] / 8);  Q[j,i] = X[i,j] + sum[m](X[i,m] * X[m,j] / 8)",
        2,
    ),
    "what needs what is shared": (
        "P[i] = sum[k](X[i,k] - max[l](X[i,l]));  Q[j] = 2 * sum[m](X[j,m] - max[n](X[j,n]))", 4,
    ),
    "factors in another order": ("P[i] = sum[k](X[i,k] * (k + 1));  Q[i] = 1 - sum[k]((k + 1) * X[i,k])", 2),
    "two results": ("A[i] += X[i,k];  B[j] += X[j,l]", 1),  # the second is copied
    "a result and a temporary before it": ("T[i] += X[i,k];  P[i] = T[i] * 2;  f[j] += X[j,l]", 2),
    "fewer elements": ("P[i] = X[i,0] - max[k](X[i,k]);  Q[i] = max[k](X[i,k]) for i in 0:2", 1),  # copied
    "a triangle": ("P[i] = sum[k in 0:i+1](X[i,k]) + 1;  Q[j] = sum[l](X[j,l] where l <= j) - 1", 2),
    "elements in other places": ("T[i+2] = X[i,0] / 3;  U[i+1] = X[i,0] / 3;  P[i] = T[i+2] * U[i+1] for i in 0:4", 1),
    "a recurrence": (
        "f(X: f64[4,4]) -> O:\n    S[i,0] = X[i,0]\n    S[i,t] = S[i,t-1] / 2 + X[i,t] for t in 1:4\n    T[j,0] = X[j,0]\n"
        "    T[j,u] = T[j,u-1] / 2 + X[j,u] for u in 1:4\n    O[i] = S[i,3] - T[i,2]", 2,
    ),
    "in a time loop": (
        "f(X: f64[4,4], n) -> X:\n    for t in 0:n:\n        A[i] = max[k](X[i,k]) / 2\n        B[j] = max[l](X[j,l]) - 1\n"
        "        X[i,j] = X[i,j] - A[i] + B[i]", 2,
    ),
    "a stored value": ("E[i,j] = exp(X[i,j]);  S[i] += exp(X[i,k])", 1),
    "a stored value of fewer elements": ("E[j,i] = 9 / (X[i,j] + 20);  S[i] += 9 / (X[k,i] + 20) for k in 0:2", 1),
}  # fmt: skip


@pytest.mark.parametrize("name", SHARED)
def test_what_statements_compute_alike_is_computed_once(name: str) -> None:
    text, spared = SHARED[name]
    assert fewer(text, X=X, **({"n": 3} if "n)" in text else {})) == spared


APART = {
    "what is read changes": "f(X: f64[4,4]) -> A, X, B:\n    A[i] = max[k](X[i,k])\n    X[i,0] = 9\n    B[i] = max[k](X[i,k])",
    "other terms": "A[i] = 1 + sum[k in 0:3](X[i,k]);  B[i] = 1 - sum[k](X[i,k])",
    "more elements": "A[i] = 1 + max[k](X[i+1,k]) for i in 0:2;  B[i] = 1 - max[k](X[i,k])",
    "another operator": "A[i] = 1 + max[k](X[i,k]);  B[i] = 1 - min[k](X[i,k])",
    "another type": "A[i] = 1 + sum[k](X[i,k]);  B[i] = 1 - f64(sum[k](f32(X[i,k])))",
    "another zero": "A[i] = 1 / min[k](0.0 / X[i,k]) + 2;  B[i] = 1 / min[k](-0.0 / X[i,k]) + 2",
    "the transpose": "A[i] = 1 + sum[k](X[i,k] / 3) ;  B[i] = 1 - sum[k](X[k,i] / 3) ",
    "two indices where one was": "E[i] = 1 / (X[i,i] + 20);  S[i,j] = 1 / (X[i,j] + 20) for j in 0:3",
    "values of elements that are not stored": "E[i,j] = 1 / (X[i,j] + 20) for i in 0:2;  S[i] += 1 / (X[i,k] + 20)",
    "only cheap copies": "A[i,j] = X[i,j];  B[i,j] = X[i,j]",
    "later steps": "f(X: f64[4,4], n) -> X, O:\n    for t in 0:n:\n        A[i] = max[k](X[i,k])\n        X[i,j] = X[i,j] - A[i]"
    "\n    O[i] = max[k](X[i,k])",
    "what is accumulated on": "f(X: f64[4,4], A: f64[4]) -> A, B:\n    A[i] += X[i,k]\n    B[i] += X[i,k]",
}  # fmt: skip


@pytest.mark.parametrize("name", APART)
def test_what_may_differ_is_computed_for_each(name: str) -> None:
    more = {"n": 3} if "n)" in APART[name] else {"A": "f64[4]"} if "A: " in APART[name] else {}
    assert fewer(APART[name], X=X, **more) == 0


def test_a_padded_read_keeps_the_extent_that_it_is_padded_at() -> None:
    text = "T[i] = X[i,0] / 3;  U[i] = X[i,0] / 3 for i in 0:2;  P[i] = T[i] * 2;  Q[i] = U[i+1; pad=7] for i in 0:3"
    assert fewer(text, X=X) == 0


def test_gathers_into_the_same_elements_are_one() -> None:
    text = """f(idx: i64[4], w: f64[4]) -> O:
    H: f64[5]
    G: f64[5]
    H[idx[i]] += w[i]
    G[idx[j]] += w[j]
    O[i] = H[i] + G[i]"""
    assert fewer(text, idx="i64[4]", w="f64[4]") == 2


def test_softmax_and_its_logarithm_share_maximum_and_sum() -> None:
    operator = pk.op(
        "P[i,j] = exp(X[i,j] - max[k](X[i,k])) / sum[l](exp(X[i,l] - max[k](X[i,k])))\n"
        "L[i] = log(sum[l](exp(X[i,l] - max[k](X[i,k])))) + max[k](X[i,k])"
    )
    data = np.random.default_rng(0).standard_normal((40, 300)).astype("f4")
    data[3, 4], data[5] = np.nan, -np.inf
    with np.errstate(all="ignore"):
        kernel = operator.compile(data)
        found = kernel(data)
        e = np.exp(data - data.max(1, keepdims=True))
        np.testing.assert_allclose(found.P, e / e.sum(1, keepdims=True), rtol=2e-6)
        np.testing.assert_allclose(found.L, np.log(e.sum(1)) + data.max(1), rtol=2e-6, atol=2e-6)
    assert str(kernel.explain()).count("computed once") >= 2
