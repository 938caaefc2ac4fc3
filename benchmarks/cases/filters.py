"""Recurrences in time, a row for each channel, and products of operands of two types."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.case import DTYPES, Array, Operand, Problem


def _steps(t: int, X: Any, A: Any, order: int) -> Array:
    """Return S[:, t] = A[:, t] S[:, t-1] + X[:, t]; of order 2: S[:, t-1] - A[:, t] S[:, t-2] + X[:, t]."""
    found = np.array(X)
    for n in range(order, t):
        before = A[:, n] * found[:, n - order]
        found[:, n] = X[:, n] + (before if order == 1 else found[:, n - 1] / 2 - before / 2)
    return found


def gated(dtype: str, *, n: int, t: int) -> Problem:
    """Return a linear recurrence along rows, with a gate for each element."""

    def jax(jax: Any, X: Any, A: Any, out: Any) -> Any:
        def joined(x: Any, y: Any) -> Any:
            return x[0] * y[0], y[0] * x[1] + y[1]

        return jax.lax.associative_scan(joined, (A, X), axis=1)[1]

    return Problem(
        "S[n,0] = X[n,0]\nS[n,t] = A[n,t] * S[n,t-1] + X[n,t]  for t in 1:T",
        (Operand("X", dtype, (n, t)), Operand("A", dtype, (n, t), "unit")), Operand("S", dtype, (n, t)), None,
        lambda X, A: _steps(t, X, A, 1), {"jax": jax, "numba": lambda loops, X, A, out: loops.gated_rows(X, A, out)},
        "scaled", t, {"T": t},
    )  # fmt: skip


def second_order(*, n: int, t: int) -> Problem:
    """Return a filter of order two along rows, whose coefficient changes."""
    return Problem(
        "S[n,0] = X[n,0]\nS[n,1] = X[n,1]\nS[n,t] = X[n,t] + S[n,t-1] / 2 - A[n,t] * S[n,t-2] / 2  for t in 2:T",
        (Operand("X", "f32", (n, t)), Operand("A", "f32", (n, t), "unit")), Operand("S", "f32", (n, t)), None,
        lambda X, A: _steps(t, X, A, 2), {"numba": lambda loops, X, A, out: loops.second_order_rows(X, A, out)},
        "scaled", t, {"T": t},
    )  # fmt: skip


def state_space(*, t: int, n: int) -> Problem:
    """Return what is read of a state for each channel, which decays from step to step."""

    def reference(X: Any, A: Any, C: Any) -> Any:
        state = np.array(X)
        for k in range(1, t):
            state[k] += A * state[k - 1]
        return C * state

    return Problem(
        "H[0,n] = X[0,n]\nH[t,n] = A[n] * H[t-1,n] + X[t,n]  for t in 1:T\nY[t,n] = C[n] * H[t,n]",
        (Operand("X", "f32", (t, n)), Operand("A", "f32", (n,), "unit"), Operand("C", "f32", (n,))),
        Operand("Y", "f32", (t, n)), None, reference,
        {"numba": lambda loops, X, A, C, out: loops.state_space(X, A, C, out)}, "scaled", t, {"T": t},
    )  # fmt: skip


def mixed(left: str, right: str, *, i: int, k: int, j: int) -> Problem:
    """Return a product of operands of two types, summed in the wider one."""
    wide = max(left, right)
    return Problem(
        "C[i,j] += A[i,k] * B[k,j]", (Operand("A", left, (i, k)), Operand("B", right, (k, j))),
        Operand("C", wide, (i, j)), 2 * i * j * k, lambda A, B: A @ B,
        {
            "numpy": lambda np, A, B, out: np.matmul(A, B, out=out),
            "torch": lambda torch, A, B, out: A.to(getattr(torch, DTYPES[wide])) @ B.to(getattr(torch, DTYPES[wide])),
            "jax": lambda jax, A, B, out: jax.numpy.matmul(A, B),
        },
        "sum", k,
    )  # fmt: skip
