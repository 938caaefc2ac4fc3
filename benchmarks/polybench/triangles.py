"""Products and statistics over triangles of symmetric and triangular matrices."""

from __future__ import annotations

import numpy as np

from benchmarks.polybench.case import Case, Inputs, table
from benchmarks.polybench.products import PAIRS

SAMPLES = ((28, 32), (80, 100), (240, 260), (1200, 1400))


def syrk_initial(M: int, N: int) -> Inputs:
    return {
        "alpha": 1.5,
        "beta": 1.2,
        "C": table(lambda i, j: (i * j + 2) % M / M, N, N),
        "A": table(lambda i, k: (i * k + 1) % N / N, N, M),
    }


def syrk_loops(alpha, beta, C, A):
    N, M = A.shape
    for i in range(N):
        for j in range(i + 1):
            C[i, j] *= beta
        for k in range(M):
            for j in range(i + 1):
                C[i, j] += alpha * A[i, k] * A[j, k]
    return C


def syrk_numpy(alpha, beta, C, A):
    lower = np.tril_indices(len(C))
    C[lower] = (alpha * (A @ A.T) + beta * C)[lower]
    return C


def syr2k_initial(M: int, N: int) -> Inputs:
    return {
        "alpha": 1.5,
        "beta": 1.2,
        "C": table(lambda i, j: (i * j + 3) % N / M, N, N),
        "A": table(lambda i, k: (i * k + 1) % N / N, N, M),
        "B": table(lambda i, k: (i * k + 2) % M / M, N, M),
    }


def syr2k_loops(alpha, beta, C, A, B):
    N, M = A.shape
    for i in range(N):
        for j in range(i + 1):
            C[i, j] *= beta
        for k in range(M):
            for j in range(i + 1):
                C[i, j] += A[j, k] * alpha * B[i, k] + B[j, k] * alpha * A[i, k]
    return C


def syr2k_numpy(alpha, beta, C, A, B):
    lower = np.tril_indices(len(C))
    product = A @ B.T
    C[lower] = (alpha * (product + product.T) + beta * C)[lower]
    return C


def symm_initial(M: int, N: int) -> Inputs:
    return {
        "alpha": 1.5,
        "beta": 1.2,
        "C": table(lambda i, j: (i + j) % 100 / M, M, N),
        "A": table(lambda i, j: np.where(j <= i, (i + j) % 100 / M, -999.0), M, M),
        "B": table(lambda i, j: (N + i - j) % 100 / M, M, N),
    }


def symm_loops(alpha, beta, C, A, B):
    M, N = C.shape
    for i in range(M):
        for j in range(N):
            t = 0.0
            for k in range(i):
                C[k, j] += alpha * B[i, j] * A[i, k]
                t += B[k, j] * A[i, k]
            C[i, j] = beta * C[i, j] + alpha * B[i, j] * A[i, i] + alpha * t
    return C


def symm_numpy(alpha, beta, C, A, B):
    whole = np.tril(A) + np.tril(A, -1).T
    return alpha * (whole @ B) + beta * C


def trmm_initial(M: int, N: int) -> Inputs:
    return {
        "alpha": 1.5,
        "A": table(lambda i, j: np.where(j < i, (i + j) % M / M, np.where(i == j, 1.0, 0.0)), M, M),
        "B": table(lambda i, j: (N + i - j) % N / N, M, N),
    }


def trmm_loops(alpha, A, B):
    M, N = B.shape
    for i in range(M):
        for j in range(N):
            for k in range(i + 1, M):
                B[i, j] += A[k, i] * B[k, j]
            B[i, j] = alpha * B[i, j]
    return B


def trmm_numpy(alpha, A, B):
    return alpha * (np.tril(A, -1).T @ B + B)


def correlation_initial(M: int, N: int) -> Inputs:
    return {"data": table(lambda i, j: i * j / M + i, N, M)}


def correlation_loops(data):
    N, M = data.shape
    mu = np.zeros(M)
    sd = np.zeros(M)
    D = np.empty((N, M))
    R = np.empty((M, M))
    for j in range(M):
        for i in range(N):
            mu[j] += data[i, j]
        mu[j] /= N
    for j in range(M):
        for i in range(N):
            sd[j] += (data[i, j] - mu[j]) * (data[i, j] - mu[j])
        sd[j] = np.sqrt(sd[j] / N)
        if sd[j] <= 0.1:
            sd[j] = 1.0
    for i in range(N):
        for j in range(M):
            D[i, j] = (data[i, j] - mu[j]) / (np.sqrt(N) * sd[j])
    for i in range(M):
        R[i, i] = 1.0
        for j in range(i + 1, M):
            R[i, j] = 0.0
            for k in range(N):
                R[i, j] += D[k, i] * D[k, j]
            R[j, i] = R[i, j]
    return R


def correlation_numpy(data):
    sd = data.std(axis=0)
    D = (data - data.mean(axis=0)) / (np.sqrt(len(data)) * np.where(sd <= 0.1, 1.0, sd))
    R = D.T @ D
    np.fill_diagonal(R, 1.0)
    return R


def covariance_initial(M: int, N: int) -> Inputs:
    return {"data": table(lambda i, j: i * j / M, N, M)}


def covariance_loops(data):
    N, M = data.shape
    mu = np.zeros(M)
    D = np.empty((N, M))
    V = np.empty((M, M))
    for j in range(M):
        for i in range(N):
            mu[j] += data[i, j]
        mu[j] /= N
    for i in range(N):
        for j in range(M):
            D[i, j] = data[i, j] - mu[j]
    for i in range(M):
        for j in range(i, M):
            V[i, j] = 0.0
            for k in range(N):
                V[i, j] += D[k, i] * D[k, j]
            V[i, j] /= N - 1.0
            V[j, i] = V[i, j]
    return V


def covariance_numpy(data):
    return np.cov(data, rowvar=False)


def cases() -> tuple[Case, ...]:
    """Return the group."""
    return (
        Case(
            "syrk",
            """
syrk(alpha: f64, beta: f64, C: f64[N,N], A: f64[N,M]) -> C:
    C[i,j] = beta * C[i,j] + alpha * sum[k](A[i,k] * A[j,k])  where j <= i
""",
            "M N", PAIRS, syrk_initial, syrk_loops, syrk_numpy,
        ),
        Case(
            "syr2k",
            """
syr2k(alpha: f64, beta: f64, C: f64[N,N], A: f64[N,M], B: f64[N,M]) -> C:
    C[i,j] = beta * C[i,j] + alpha * sum[k](A[j,k] * B[i,k] + B[j,k] * A[i,k])  where j <= i
""",
            "M N", PAIRS, syr2k_initial, syr2k_loops, syr2k_numpy,
        ),
        Case(
            "symm",
            """
symm(alpha: f64, beta: f64, C: f64[M,N], A: f64[M,M], B: f64[M,N]) -> C:
    C[i,j] = beta * C[i,j] + alpha * (sum[k in 0:i+1](A[i,k] * B[k,j]) + sum[k in i+1:M](A[k,i] * B[k,j]))
""",
            "M N", PAIRS, symm_initial, symm_loops, symm_numpy,
        ),
        Case(
            "trmm",
            """
trmm(alpha: f64, A: f64[M,M], B: f64[M,N]) -> B:
    B[i,j] = alpha * (B[i,j] + sum[k in i+1:M](A[k,i] * B[k,j]))
""",
            "M N", PAIRS, trmm_initial, trmm_loops, trmm_numpy,
        ),
        Case(
            "correlation",
            """
correlation(data: f64[N,M]) -> R:
    mu[j] = sum[i](data[i,j]) / N
    sd[j] = sqrt(sum[i]((data[i,j] - mu[j]) * (data[i,j] - mu[j])) / N)
    div[j] = sqrt(f64(N)) * where(sd[j] <= 0.1, 1.0, sd[j])
    D[i,j] = (data[i,j] - mu[j]) / div[j]
    R[i,j] += D[k,i] * D[k,j]  where i < j
    R[i,i] = 1.0  for i in 0:M
    R[j,i] = R[i,j]  where i < j
""",
            "M N", SAMPLES, correlation_initial, correlation_loops, correlation_numpy,
        ),
        Case(
            "covariance",
            """
covariance(data: f64[N,M]) -> V:
    mu[j] = sum[i](data[i,j]) / N
    D[i,j] = data[i,j] - mu[j]
    V[i,j] = sum[k](D[k,i] * D[k,j]) / (N - 1)  where i <= j
    V[j,i] = V[i,j]  where i < j
""",
            "M N", SAMPLES, covariance_initial, covariance_loops, covariance_numpy,
        ),
    )  # fmt: skip
