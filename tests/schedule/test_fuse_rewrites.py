"""Temporaries that are not stored, and values that are computed once."""

from __future__ import annotations

import numpy as np
import pytest

import polyker as pk
from polyker.codegen.ir.printing import print_kernel
from polyker.codegen.llvm.jit.detect import target
from polyker.rewrite.sharing.inline_values import inline_values
from polyker.rewrite.sharing.store_shared_values import share_values
from tests.schedule.support import SMALL, assert_same, case, lowered
from tests.schedule.test_fuse_programs import TINY, together


def statements(text: str, **types: str | int) -> int:
    """Return how many statements are left when temporaries are inlined; the result stays the same."""
    found = case(text, **types)
    scop, schedule = found.automatic(target(SMALL), inline=True)
    assert_same(found, scop, schedule, native=True)
    return len(list(inline_values(found.flat).statements()))


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("T[i,j] = 2 * X[i,j];  O[i,j] = T[i,j] + 1", 1),
        ("T[i,j] = 2 * X[i,j];  U[i,j] = T[i,j] + 1;  O[j,i] = U[i,j]", 1),
        ("T[i,j] = 2 * X[i,j];  O[i] += T[i,j]", 2),  # and the start of O
        ("T[i+1,j] = X[i,j] * i;  O[i,j] = T[i+1,j] for i in 0:5", 1),
        ("T[i,j] = 2 * X[i,j];  O[i,j] = T[i,j] + T[i,0]", 2),  # two reads
        ("T[i,j] = 2 * X[i,j];  O[i] += T[i,j];  P[i,j] = T[i,j]", 3),  # cheaper to compute twice
        ("T[i,j] = X[i,j+1] - X[i,j] for j in 0:8;  O[i,j] = T[i,j] + T[i,j+1] for j in 0:7", 1),
        ("T[i,j] = X[i,j] / 7;  O[i,j] = T[i,j] + T[i,j+1] for j in 0:8", 2),  # two divisions an element
        ("T[i] = 2 * X[i,0];  O[i,j] = T[i] + X[i,j]", 2),  # read more often than it is written
        ("T[i] = X[i,i];  O[i] = T[i]", 1),
        ("T[9*i+j] = X[i,j];  O[k] = T[k] + 1", 2),  # which row and column an element is of would have to be computed
        ("T[i,j] = X[i,j];  O[i,j] = T[i,j-1; pad=0] for j in 0:9", 2),
    ],
)
def test_a_temporary_that_is_read_once_is_not_stored(text: str, left: int) -> None:
    assert statements(text, X="f32[5,9]" if "i,i" not in text else "f32[5,5]") == left


def test_a_temporary_of_what_changes_meanwhile_is_stored() -> None:
    text = "f(A: f64[N]) -> A, O:\n    T[i] = A[i] * 2\n    A[i] = 7\n    O[i] = T[i]"
    assert statements(text, A="f64[9]") == 3


def test_a_narrow_temporary_rounds_as_if_it_were_stored() -> None:
    X = np.linspace(0, 3, 50, dtype="f4")
    got = pk.op("f(X: f32[N]) -> O:\n    T: f16[N]\n    T[i] = X[i] * 1.001\n    O[i] = f32(T[i]) + 1")(X)
    assert np.array_equal(got, (X * np.float32(1.001)).astype("f2").astype("f4") + np.float32(1))


def test_a_gathered_value_is_still_checked() -> None:
    operator = pk.op("T[i] = X[idx[i]];  O[i] = T[i] for i in 0:2")
    with pytest.raises(IndexError):
        operator(np.ones(3, "f4"), np.array([0, 1, 5]))


ONE = "P[i,j] = exp(X[i,j] - max[k](X[i,k])) / sum[l](exp(X[i,l] - max[k](X[i,k])))"


def test_softmax_in_one_statement_computes_each_exponential_once() -> None:
    found = case(ONE, X="f32[40,48]")
    scop, schedule = found.automatic(TINY)
    assert print_kernel(lowered(scop, schedule).kernel).count("exp(") == 1


# The derivative of softmax: the exponentials stay in a buffer of a row, the quotients, fewer, may be stored whole.
BACKWARD = """f(X: f32[64,96], m: f32[64], s: f32[64], dP: f32[64,96]) -> dX: [64,96]:
    dX[i,j] += dP[i,j] * (1.0 / s[i]) * exp(X[i,j] - m[i])
    ds[i] += dP[i,j] * -(exp(X[i,j] - m[i]) * (1.0 / s[i]) * (1.0 / s[i]))
    dX[i,l] += ds[i] * exp(X[i,l] - m[i])"""


def test_small_shared_values_do_not_keep_larger_ones_from_being_shared() -> None:
    op = pk.op(BACKWARD)
    kernel = op.compile(target="cpu:x86-64-v4", threads=1)
    assert kernel.source("loops").count("exp(") == 1
    X, m, s, dP = (np.random.default_rng(0).random(shape, np.float32) for shape in ((64, 96), 64, 64, (64, 96)))
    p = np.exp(X - m[:, None]) / s[:, None]
    want = p * (dP - (dP * p).sum(1, keepdims=True))
    np.testing.assert_allclose(op(X, m, s, dP), want, rtol=1e-4, atol=1e-4)


def test_a_shared_value_does_not_come_between_a_reduction_and_its_start() -> None:
    body = share_values(case(ONE, X="f32[40,48]").flat)[0].body
    updates = [n for n, s in enumerate(body) if s.op != "set"]
    assert updates
    assert all(body[n - 1].target == body[n].target for n in updates)


def test_a_value_that_no_cache_would_hold_is_computed_twice() -> None:
    found = case(ONE, X="f32[3,4]")  # nothing runs together: the values would go through memory
    scop, schedule = found.automatic(target(SMALL))
    assert print_kernel(lowered(scop, schedule).kernel).count("exp(") == 2


@pytest.mark.parametrize(
    "text",
    [
        "O[i,j] = exp(X[i,j]);  Q[i,j] = exp(X[j+1,i]) for j in 0:4",  # not the same elements
        "O[i,j] = exp(X[i,j]);  Q[i,j] = exp(X[i,j]) for i in 0:3, j in 0:3",
        "f(X: f32[N,N]) -> X, O:\n    O[i,j] = exp(X[i,j])\n    X[i,j] = exp(O[i,j]) + 1\n    O[i,j] = exp(X[i,j])",
    ],
)
def test_values_that_may_differ_are_not_shared(text: str) -> None:
    assert share_values(case(text, X="f32[5,5]").flat)[1] == 0


def test_a_shared_value_keeps_its_rows() -> None:
    X = np.random.default_rng(0).standard_normal((300, 700)).astype("f4")
    e = np.exp(X - X.max(1, keepdims=True))
    np.testing.assert_allclose(pk.op(ONE)(X), e / e.sum(1, keepdims=True), rtol=2e-6)


def test_a_division_by_what_two_statements_share_runs_in_their_loop() -> None:
    text = "s[i] += X[i,j];  A[i,j] = X[i,j] * 8 / s[i];  B[i,j] = X[i,j] * 8 / s[i] + 1"
    assert together(text.replace("s[i] += X[i,j]", "s[i] = 2 + 0 * X[i,0]"), X="f32[40,48]") != []


def stored_window(taps: int, dtype: str, last: str) -> bool:
    """Return whether the sum of so many neighbours, which a recurrence with `last` of its elements reads, is stored."""
    window = " + ".join(f"{r + 1}*X[n,t+{r}]" for r in range(taps))
    text = f"V[n,t] = {window} for n in 0:256, t in 0:1000;  Y[n,t] = V[n,t] - 0.5*{last} for n in 0:256, t in 0:1000"
    kernel = pk.op(text).compile(X=getattr(pk, dtype)[256, 1000 + taps], target="cpu:x86-64-v4", threads=1)
    return "V is not stored" not in kernel.source("schedule")


@pytest.mark.parametrize(("dtype", "most"), [("f32", 3), ("f64", 6)])
def test_windows_that_recurrences_along_memory_read_are_stored_where_registers_hold_no_rows(
    dtype: str, most: int
) -> None:
    along, across = "Y[n,t-1; pad=0]", "Y[n-1,t; pad=0]"
    assert [stored_window(taps, dtype, along) for taps in (most, most + 1)] == [False, True]
    assert not stored_window(most + 1, dtype, across)
