"""Factorisations of matrices and solutions of linear systems."""

from __future__ import annotations

import numpy as np

from benchmarks.polybench.case import Array, Case, Inputs, near, table
from benchmarks.polybench.products import PAIRS, SQUARES


def positive(N: int) -> Array:
    """Return a symmetric positive definite matrix: a triangular one times its transpose."""
    lower = table(lambda i, j: np.where(j < i, -j / N + 1.0, np.where(i == j, 1.0, 0.0)), N, N)
    return np.ascontiguousarray(lower @ lower.T)


def cholesky_initial(N: int) -> Inputs:
    return {"A": positive(N)}


def cholesky_loops(A):
    N = A.shape[0]
    for i in range(N):
        for j in range(i):
            for k in range(j):
                A[i, j] -= A[i, k] * A[j, k]
            A[i, j] /= A[j, j]
        for k in range(i):
            A[i, i] -= A[i, k] * A[i, k]
        A[i, i] = np.sqrt(A[i, i])
    return A


def cholesky_numpy(A):
    return np.tril(np.linalg.cholesky(A)) + np.triu(A, 1)


def lu_loops(A):
    N = A.shape[0]
    for i in range(N):
        for j in range(i):
            for k in range(j):
                A[i, j] -= A[i, k] * A[k, j]
            A[i, j] /= A[j, j]
        for j in range(i, N):
            for k in range(i):
                A[i, j] -= A[i, k] * A[k, j]
    return A


def lu_numpy(A):
    for k in range(len(A)):
        A[k + 1 :, k] /= A[k, k]
        A[k + 1 :, k + 1 :] -= np.outer(A[k + 1 :, k], A[k, k + 1 :])
    return A


def ludcmp_initial(N: int) -> Inputs:
    return {"A": positive(N), "b": table(lambda i: (i + 1) / N / 2 + 4, N)}


def ludcmp_loops(A, b):
    N = A.shape[0]
    L = np.empty((N, N))
    y = np.empty(N)
    x = np.empty(N)
    for i in range(N):
        for j in range(i):
            w = A[i, j]
            for k in range(j):
                w -= L[i, k] * L[k, j]
            L[i, j] = w / L[j, j]
        for j in range(i, N):
            w = A[i, j]
            for k in range(i):
                w -= L[i, k] * L[k, j]
            L[i, j] = w
    for i in range(N):
        w = b[i]
        for j in range(i):
            w -= L[i, j] * y[j]
        y[i] = w
    for i in range(N - 1, -1, -1):
        w = y[i]
        for j in range(i + 1, N):
            w -= L[i, j] * x[j]
        x[i] = w / L[i, i]
    return x


def ludcmp_numpy(A, b):
    return np.linalg.solve(A, b)


def trisolv_initial(N: int) -> Inputs:
    return {
        "L": table(lambda i, j: np.where(j <= i, (i + N - j + 1) * 2 / N, -999.0), N, N),
        "b": table(lambda i: i, N),
    }


def trisolv_loops(L, b):
    N = len(b)
    x = np.empty(N)
    for i in range(N):
        x[i] = b[i]
        for j in range(i):
            x[i] -= L[i, j] * x[j]
        x[i] = x[i] / L[i, i]
    return x


def trisolv_numpy(L, b):
    x = np.empty_like(b)
    for i in range(len(b)):
        x[i] = (b[i] - L[i, :i] @ x[:i]) / L[i, i]
    return x


def durbin_initial(N: int) -> Inputs:
    return {"r": table(lambda i: N + 1 - i, N)}


def durbin_loops(r):
    N = len(r)
    y = np.empty(N)
    z = np.empty(N)
    y[0] = -r[0]
    beta = 1.0
    alpha = -r[0]
    for k in range(1, N):
        beta = (1 - alpha * alpha) * beta
        s = 0.0
        for i in range(k):
            s += r[k - i - 1] * y[i]
        alpha = -(r[k] + s) / beta
        for i in range(k):
            z[i] = y[i] + alpha * y[k - i - 1]
        for i in range(k):
            y[i] = z[i]
        y[k] = alpha
    return y


def durbin_numpy(r):
    y = np.empty_like(r)
    y[0] = alpha = -r[0]
    beta = 1.0
    for k in range(1, len(r)):
        beta *= 1 - alpha * alpha
        alpha = -(r[k] + r[k - 1 :: -1] @ y[:k]) / beta
        y[:k] += alpha * y[k - 1 :: -1]
        y[k] = alpha
    return y


def gramschmidt_initial(M: int, N: int) -> Inputs:
    return {"A": table(lambda i, j: i * j % M / M * 100 + 10, M, N)}


def gramschmidt_loops(A):
    M, N = A.shape
    A = A.copy()
    Q = np.empty((M, N))
    R = np.zeros((N, N))
    for k in range(N):
        s = 0.0
        for i in range(M):
            s += A[i, k] * A[i, k]
        R[k, k] = np.sqrt(s)
        for i in range(M):
            Q[i, k] = A[i, k] / R[k, k]
        for j in range(k + 1, N):
            R[k, j] = 0.0
            for i in range(M):
                R[k, j] += Q[i, k] * A[i, j]
            for i in range(M):
                A[i, j] -= Q[i, k] * R[k, j]
    return Q, R


def gramschmidt_numpy(A):
    M, N = A.shape
    A = A.copy()
    Q = np.empty((M, N))
    R = np.zeros((N, N))
    for k in range(N):
        R[k, k] = np.linalg.norm(A[:, k])
        Q[:, k] = A[:, k] / R[k, k]
        R[k, k + 1 :] = Q[:, k] @ A[:, k + 1 :]
        A[:, k + 1 :] -= np.outer(Q[:, k], R[k, k + 1 :])
    return Q, R


def gramschmidt_check(inputs: Inputs, found: tuple[Array, ...], want: tuple[Array, ...]) -> str:
    """Compare the product with the matrix, and the factors as far as the columns are independent.

    The suite's matrix has fewer independent columns than it has columns; what is left of the others is made of rounding errors.
    """
    diagonal = np.abs(np.diag(want[1]))
    full = int(np.argmax(np.append(diagonal, 0.0) < 1e-6 * diagonal[0]))
    (Q, R), A = found, inputs["A"]
    off = float(np.abs(Q[:, :full] @ R[:full, :full] - A[:, :full]).max() / np.abs(A).max())
    if not off <= 1e-10:
        return f"Q R is off by {off:.1e} of the matrix's largest element"
    return near(1e-6)(inputs, (Q[:, :full], R[:full]), (want[0][:, :full], want[1][:full]))


def cases() -> tuple[Case, ...]:
    """Return the group."""
    return (
        Case(
            "cholesky",
            """
cholesky(A: f64[N,N]) -> A:
    for k in 0:N:
        A[k,k] = sqrt(A[k,k])
        A[i,k] = A[i,k] / A[k,k]  for i in k+1:N
        A[i,j] = A[i,j] - A[i,k] * A[j,k]  for i in k+1:N, j in k+1:i+1
""",
            "N", SQUARES, cholesky_initial, cholesky_loops, cholesky_numpy, near(1e-9),
        ),
        Case(
            "lu",
            """
lu(A: f64[N,N]) -> A:
    for k in 0:N:
        A[i,k] = A[i,k] / A[k,k]  for i in k+1:N
        A[i,j] = A[i,j] - A[i,k] * A[k,j]  for i in k+1:N, j in k+1:N
""",
            "N", SQUARES, cholesky_initial, lu_loops, lu_numpy, near(1e-9),
        ),
        Case(
            "ludcmp",
            """
ludcmp(A: f64[N,N], b: f64[N]) -> x: f64[N]:
    y: f64[N]
    L[i,j] = A[i,j]
    for k in 0:N:
        L[i,k] = L[i,k] / L[k,k]  for i in k+1:N
        L[i,j] = L[i,j] - L[i,k] * L[k,j]  for i in k+1:N, j in k+1:N
    y[i] = b[i] - sum[j in 0:i](L[i,j] * y[j])
    for t in 0:N:
        x[N-1-t] = (y[N-1-t] - sum[j in N-t:N](L[N-1-t,j] * x[j])) / L[N-1-t,N-1-t]
""",
            "N", SQUARES, ludcmp_initial, ludcmp_loops, ludcmp_numpy, near(1e-7),
        ),
        Case(
            "trisolv",
            """
trisolv(L: f64[N,N], b: f64[N]) -> x: f64[N]:
    x[i] = (b[i] - sum[j in 0:i](L[i,j] * x[j])) / L[i,i]
""",
            "N", SQUARES, trisolv_initial, trisolv_loops, trisolv_numpy,
        ),
        Case(
            "durbin",
            """
durbin(r: f64[N]) -> y:
    y[0] = -r[0]
    alpha = -r[0]
    beta = 1.0
    for k in 1:N:
        beta = (1 - alpha * alpha) * beta
        alpha = -(r[k] + sum[i in 0:k](r[k-i-1] * y[i])) / beta
        z[i] = y[i] + alpha * y[k-i-1]  for i in 0:k
        y[i] = z[i]  for i in 0:k
        y[k] = alpha
""",
            "N", SQUARES, durbin_initial, durbin_loops, durbin_numpy, near(1e-6),
        ),
        Case(
            "gramschmidt",
            """
gramschmidt(A: f64[M,N]) -> Q, R:
    B[i,j] = A[i,j]
    R[i,j] = 0.0  for i in 0:N, j in 0:N
    for k in 0:N:
        R[k,k] = sqrt(sum[i](B[i,k] * B[i,k]))
        Q[i,k] = B[i,k] / R[k,k]
        R[k,j] = sum[i](Q[i,k] * B[i,j])  for j in k+1:N
        B[i,j] = B[i,j] - Q[i,k] * R[k,j]  for i in 0:M, j in k+1:N
""",
            "M N", PAIRS, gramschmidt_initial, gramschmidt_loops, gramschmidt_numpy, gramschmidt_check,
        ),
    )  # fmt: skip
