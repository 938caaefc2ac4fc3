"""Products of matrices, and of matrices and vectors."""

# ruff: noqa: E741 (the suite's own names of indices)

from __future__ import annotations

import numpy as np

from benchmarks.polybench.case import Case, Inputs, table

CUBES = ((20, 25, 30), (60, 70, 80), (200, 220, 240), (1000, 1100, 1200))
PAIRS = ((20, 30), (60, 80), (200, 240), (1000, 1200))
VECTORS = ((38, 42), (116, 124), (390, 410), (1900, 2100))
SQUARES = ((40,), (120,), (400,), (2000,))


def gemm_initial(I: int, J: int, K: int) -> Inputs:
    return {
        "alpha": 1.5,
        "beta": 1.2,
        "C": table(lambda i, j: (i * j + 1) % I / I, I, J),
        "A": table(lambda i, k: i * (k + 1) % K / K, I, K),
        "B": table(lambda k, j: k * (j + 2) % J / J, K, J),
    }


def gemm_loops(alpha, beta, C, A, B):
    I, J = C.shape
    for i in range(I):
        for j in range(J):
            C[i, j] *= beta
        for k in range(A.shape[1]):
            for j in range(J):
                C[i, j] += alpha * A[i, k] * B[k, j]
    return C


def gemm_numpy(alpha, beta, C, A, B):
    return alpha * (A @ B) + beta * C


def mm2_initial(I: int, J: int, K: int, L: int) -> Inputs:
    return {
        "alpha": 1.5,
        "beta": 1.2,
        "A": table(lambda i, k: (i * k + 1) % I / I, I, K),
        "B": table(lambda k, j: k * (j + 1) % J / J, K, J),
        "C": table(lambda j, l: (j * (l + 3) + 1) % L / L, J, L),
        "D": table(lambda i, l: i * (l + 2) % K / K, I, L),
    }


def mm2_loops(alpha, beta, A, B, C, D):
    I, K = A.shape
    J, L = C.shape
    T = np.empty((I, J))
    for i in range(I):
        for j in range(J):
            T[i, j] = 0.0
            for k in range(K):
                T[i, j] += alpha * A[i, k] * B[k, j]
    for i in range(I):
        for l in range(L):
            D[i, l] *= beta
            for j in range(J):
                D[i, l] += T[i, j] * C[j, l]
    return D


def mm2_numpy(alpha, beta, A, B, C, D):
    return alpha * A @ B @ C + beta * D


def mm3_initial(I: int, J: int, K: int, L: int, M: int) -> Inputs:
    return {
        "A": table(lambda i, k: (i * k + 1) % I / (5 * I), I, K),
        "B": table(lambda k, j: (k * (j + 1) + 2) % J / (5 * J), K, J),
        "C": table(lambda j, m: j * (m + 3) % L / (5 * L), J, M),
        "D": table(lambda m, l: (m * (l + 2) + 2) % K / (5 * K), M, L),
    }


def mm3_loops(A, B, C, D):
    I, K = A.shape
    J, M = C.shape
    L = D.shape[1]
    E = np.empty((I, J))
    F = np.empty((J, L))
    G = np.empty((I, L))
    for i in range(I):
        for j in range(J):
            E[i, j] = 0.0
            for k in range(K):
                E[i, j] += A[i, k] * B[k, j]
    for j in range(J):
        for l in range(L):
            F[j, l] = 0.0
            for m in range(M):
                F[j, l] += C[j, m] * D[m, l]
    for i in range(I):
        for l in range(L):
            G[i, l] = 0.0
            for j in range(J):
                G[i, l] += E[i, j] * F[j, l]
    return G


def mm3_numpy(A, B, C, D):
    return (A @ B) @ (C @ D)


def atax_initial(M: int, N: int) -> Inputs:
    return {
        "A": table(lambda i, j: (i + j) % N / (5 * M), M, N),
        "x": table(lambda i: 1 + i / N, N),
    }


def atax_loops(A, x):
    M, N = A.shape
    y = np.zeros(N)
    for i in range(M):
        t = 0.0
        for j in range(N):
            t += A[i, j] * x[j]
        for j in range(N):
            y[j] += A[i, j] * t
    return y


def atax_numpy(A, x):
    return A.T @ (A @ x)


def bicg_initial(M: int, N: int) -> Inputs:
    return {
        "A": table(lambda i, j: i * (j + 1) % N / N, N, M),
        "p": table(lambda i: i % M / M, M),
        "r": table(lambda i: i % N / N, N),
    }


def bicg_loops(A, p, r):
    N, M = A.shape
    s = np.zeros(M)
    q = np.empty(N)
    for i in range(N):
        q[i] = 0.0
        for j in range(M):
            s[j] += r[i] * A[i, j]
            q[i] += A[i, j] * p[j]
    return s, q


def bicg_numpy(A, p, r):
    return r @ A, A @ p


def mvt_initial(N: int) -> Inputs:
    return {
        "x1": table(lambda i: i % N / N, N),
        "x2": table(lambda i: (i + 1) % N / N, N),
        "y1": table(lambda i: (i + 3) % N / N, N),
        "y2": table(lambda i: (i + 4) % N / N, N),
        "A": table(lambda i, j: i * j % N / N, N, N),
    }


def mvt_loops(x1, x2, y1, y2, A):
    N = A.shape[0]
    for i in range(N):
        for j in range(N):
            x1[i] += A[i, j] * y1[j]
    for i in range(N):
        for j in range(N):
            x2[i] += A[j, i] * y2[j]
    return x1, x2


def mvt_numpy(x1, x2, y1, y2, A):
    return x1 + A @ y1, x2 + y2 @ A


def gemver_initial(N: int) -> Inputs:
    return {
        "alpha": 1.5,
        "beta": 1.2,
        "A": table(lambda i, j: i * j % N / N, N, N),
        "u1": table(lambda i: i, N),
        "v1": table(lambda i: (i + 1) / N / 4, N),
        "u2": table(lambda i: (i + 1) / N / 2, N),
        "v2": table(lambda i: (i + 1) / N / 6, N),
        "y": table(lambda i: (i + 1) / N / 8, N),
        "z": table(lambda i: (i + 1) / N / 9, N),
    }


def gemver_loops(alpha, beta, A, u1, v1, u2, v2, y, z):
    N = A.shape[0]
    B = np.empty((N, N))
    x = np.zeros(N)
    w = np.zeros(N)
    for i in range(N):
        for j in range(N):
            B[i, j] = A[i, j] + u1[i] * v1[j] + u2[i] * v2[j]
    for i in range(N):
        for j in range(N):
            x[i] += beta * B[j, i] * y[j]
    for i in range(N):
        x[i] += z[i]
    for i in range(N):
        for j in range(N):
            w[i] += alpha * B[i, j] * x[j]
    return w


def gemver_numpy(alpha, beta, A, u1, v1, u2, v2, y, z):
    B = A + np.outer(u1, v1) + np.outer(u2, v2)
    x = beta * (y @ B) + z
    return alpha * (B @ x)


def gesummv_initial(N: int) -> Inputs:
    return {
        "alpha": 1.5,
        "beta": 1.2,
        "A": table(lambda i, j: (i * j + 1) % N / N, N, N),
        "B": table(lambda i, j: (i * j + 2) % N / N, N, N),
        "x": table(lambda i: i % N / N, N),
    }


def gesummv_loops(alpha, beta, A, B, x):
    N = A.shape[0]
    y = np.empty(N)
    for i in range(N):
        a = 0.0
        b = 0.0
        for j in range(N):
            a += A[i, j] * x[j]
            b += B[i, j] * x[j]
        y[i] = alpha * a + beta * b
    return y


def gesummv_numpy(alpha, beta, A, B, x):
    return alpha * (A @ x) + beta * (B @ x)


def doitgen_initial(Q: int, R: int, P: int) -> Inputs:
    return {
        "A": table(lambda r, q, p: (r * q + p) % P / P, R, Q, P),
        "W": table(lambda s, p: s * p % P / P, P, P),
    }


def doitgen_loops(A, W):
    R, Q, P = A.shape
    row = np.empty(P)
    for r in range(R):
        for q in range(Q):
            for p in range(P):
                row[p] = 0.0
                for s in range(P):
                    row[p] += A[r, q, s] * W[s, p]
            for p in range(P):
                A[r, q, p] = row[p]
    return A


def doitgen_numpy(A, W):
    return A @ W


def cases() -> tuple[Case, ...]:
    """Return the group."""
    return (
        Case(
            "gemm",
            """
gemm(alpha: f64, beta: f64, C: f64[I,J], A: f64[I,K], B: f64[K,J]) -> C:
    C[i,j] = alpha * sum[k](A[i,k] * B[k,j]) + beta * C[i,j]
""",
            "I J K", CUBES, gemm_initial, gemm_loops, gemm_numpy,
        ),
        Case(
            "2mm",
            """
mm2(alpha: f64, beta: f64, A: f64[I,K], B: f64[K,J], C: f64[J,L], D: f64[I,L]) -> D:
    T[i,j] += alpha * A[i,k] * B[k,j]
    D[i,l] = sum[j](T[i,j] * C[j,l]) + beta * D[i,l]
""",
            "I J K L", ((16, 18, 22, 24), (40, 50, 70, 80), (180, 190, 210, 220), (800, 900, 1100, 1200)),
            mm2_initial, mm2_loops, mm2_numpy,
        ),
        Case(
            "3mm",
            """
mm3(A: f64[I,K], B: f64[K,J], C: f64[J,M], D: f64[M,L]) -> G:
    E[i,j] += A[i,k] * B[k,j]
    F[j,l] += C[j,m] * D[m,l]
    G[i,l] += E[i,j] * F[j,l]
""",
            "I J K L M",
            ((16, 18, 20, 22, 24), (40, 50, 60, 70, 80), (180, 190, 200, 210, 220), (800, 900, 1000, 1100, 1200)),
            mm3_initial, mm3_loops, mm3_numpy,
        ),
        Case(
            "atax",
            """
atax(A: f64[M,N], x: f64[N]) -> y:
    t[i] += A[i,j] * x[j]
    y[j] += A[i,j] * t[i]
""",
            "M N", VECTORS, atax_initial, atax_loops, atax_numpy,
        ),
        Case(
            "bicg",
            """
bicg(A: f64[N,M], p: f64[M], r: f64[N]) -> s, q:
    s[j] += r[i] * A[i,j]
    q[i] += A[i,j] * p[j]
""",
            "M N", VECTORS, bicg_initial, bicg_loops, bicg_numpy,
        ),
        Case(
            "mvt",
            """
mvt(x1: f64[N], x2: f64[N], y1: f64[N], y2: f64[N], A: f64[N,N]) -> x1, x2:
    x1[i] += A[i,j] * y1[j]
    x2[i] += A[j,i] * y2[j]
""",
            "N", SQUARES, mvt_initial, mvt_loops, mvt_numpy,
        ),
        Case(
            "gemver",
            """
gemver(alpha: f64, beta: f64, A: f64[N,N], u1: f64[N], v1: f64[N], u2: f64[N], v2: f64[N], y: f64[N], z: f64[N]) -> w:
    B[i,j] = A[i,j] + u1[i] * v1[j] + u2[i] * v2[j]
    x[i] = beta * sum[j](B[j,i] * y[j]) + z[i]
    w[i] += alpha * B[i,j] * x[j]
""",
            "N", SQUARES, gemver_initial, gemver_loops, gemver_numpy,
        ),
        Case(
            "gesummv",
            """
gesummv(alpha: f64, beta: f64, A: f64[N,N], B: f64[N,N], x: f64[N]) -> y:
    y[i] = alpha * sum[j](A[i,j] * x[j]) + beta * sum[j](B[i,j] * x[j])
""",
            "N", ((30,), (90,), (250,), (1300,)), gesummv_initial, gesummv_loops, gesummv_numpy,
        ),
        Case(
            "doitgen",
            """
doitgen(A: f64[R,Q,P], W: f64[P,P]) -> A:
    S[r,q,p] += A[r,q,s] * W[s,p]
    A[r,q,p] = S[r,q,p]
""",
            "Q R P", ((8, 10, 12), (20, 25, 30), (40, 50, 60), (140, 150, 160)),
            doitgen_initial, doitgen_loops, doitgen_numpy,
        ),
    )  # fmt: skip
