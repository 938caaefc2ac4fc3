"""Shortest paths, folding of RNA, and an edge detector of recursive filters."""

from __future__ import annotations

import numpy as np

from benchmarks.polybench.case import Case, Inputs, near, table


def floyd_warshall_initial(N: int) -> Inputs:
    def length(i, j):
        far = ((i + j) % 13 == 0) | ((i + j) % 7 == 0) | ((i + j) % 11 == 0)
        return np.where(far, 999, i * j % 7 + 1)

    return {"P": table(length, N, N, dtype="int32")}


def floyd_warshall_loops(P):
    N = len(P)
    for k in range(N):
        for i in range(N):
            for j in range(N):
                P[i, j] = min(P[i, j], P[i, k] + P[k, j])
    return P


def floyd_warshall_numpy(P):
    for k in range(len(P)):
        np.minimum(P, P[:, k, None] + P[k], out=P)
    return P


def nussinov_initial(N: int) -> Inputs:
    return {"base": table(lambda i: (i + 1) % 4, N, dtype="int32")}


def nussinov_loops(base):
    N = len(base)
    S = np.zeros((N, N), np.int32)
    for i in range(N - 1, -1, -1):
        for j in range(i + 1, N):
            S[i, j] = max(S[i, j], S[i, j - 1])
            if i + 1 < N:
                S[i, j] = max(S[i, j], S[i + 1, j])
                if i < j - 1:
                    S[i, j] = max(S[i, j], S[i + 1, j - 1] + (1 if base[i] + base[j] == 3 else 0))
                else:
                    S[i, j] = max(S[i, j], S[i + 1, j - 1])
            for k in range(i + 1, j):
                S[i, j] = max(S[i, j], S[i, k] + S[k + 1, j])
    return S


def nussinov_numpy(base):
    N = len(base)
    S = np.zeros((N, N), np.int32)
    for i in range(N - 2, -1, -1):
        for j in range(i + 1, N):
            pair = int(i < j - 1 and base[i] + base[j] == 3)
            best = max(S[i, j - 1], S[i + 1, j], S[i + 1, j - 1] + pair)
            if j > i + 1:
                best = max(best, (S[i, i + 1 : j] + S[i + 2 : j + 1, j]).max())
            S[i, j] = best
    return S


def deriche_initial(W: int, H: int) -> Inputs:
    return {
        "X": table(lambda i, j: (313 * i + 991 * j) % 65536 / 65535.0, W, H, dtype="float32"),
        "a": deriche_weights(0.25),
    }


def deriche_weights(alpha):
    """Return the filters' coefficients, in single precision as the suite computes."""
    k = (1 - np.exp(-alpha)) ** 2 / (1 + 2 * alpha * np.exp(-alpha) - np.exp(2 * alpha))
    tail = k * np.exp(-alpha)
    weights = (k, tail * (alpha - 1), tail * (alpha + 1), -k * np.exp(-2 * alpha), 2.0 ** (-alpha), -np.exp(-2 * alpha))
    return np.array(weights, np.float32)


def deriche_loops(X, weights):
    W, H = X.shape
    a1, a2, a3, a4, b1, b2 = weights
    F = np.empty((W, H), np.float32)
    G = np.empty((W, H), np.float32)
    T = np.empty((W, H), np.float32)
    for i in range(W):
        y1 = np.float32(0)
        y2 = np.float32(0)
        x1 = np.float32(0)
        for j in range(H):
            F[i, j] = a1 * X[i, j] + a2 * x1 + b1 * y1 + b2 * y2
            x1 = X[i, j]
            y2 = y1
            y1 = F[i, j]
    for i in range(W):
        y1 = np.float32(0)
        y2 = np.float32(0)
        x1 = np.float32(0)
        x2 = np.float32(0)
        for j in range(H - 1, -1, -1):
            G[i, j] = a3 * x1 + a4 * x2 + b1 * y1 + b2 * y2
            x2 = x1
            x1 = X[i, j]
            y2 = y1
            y1 = G[i, j]
    for i in range(W):
        for j in range(H):
            T[i, j] = F[i, j] + G[i, j]
    for j in range(H):
        t1 = np.float32(0)
        y1 = np.float32(0)
        y2 = np.float32(0)
        for i in range(W):
            F[i, j] = a1 * T[i, j] + a2 * t1 + b1 * y1 + b2 * y2
            t1 = T[i, j]
            y2 = y1
            y1 = F[i, j]
    for j in range(H):
        t1 = np.float32(0)
        t2 = np.float32(0)
        y1 = np.float32(0)
        y2 = np.float32(0)
        for i in range(W - 1, -1, -1):
            G[i, j] = a3 * t1 + a4 * t2 + b1 * y1 + b2 * y2
            t2 = t1
            t1 = T[i, j]
            y2 = y1
            y1 = G[i, j]
    for i in range(W):
        for j in range(H):
            T[i, j] = F[i, j] + G[i, j]
    return T


def deriche_numpy(X, weights):
    a1, a2, a3, a4, b1, b2 = weights

    def down(X):
        F, G = np.zeros_like(X), np.zeros_like(X)
        F[0] = a1 * X[0]
        F[1] = a1 * X[1] + a2 * X[0] + b1 * F[0]
        for i in range(2, len(X)):
            F[i] = a1 * X[i] + a2 * X[i - 1] + b1 * F[i - 1] + b2 * F[i - 2]
        G[-2] = a3 * X[-1]
        for i in range(len(X) - 3, -1, -1):
            G[i] = a3 * X[i + 1] + a4 * X[i + 2] + b1 * G[i + 1] + b2 * G[i + 2]
        return F + G

    return np.ascontiguousarray(down(down(X.T).T))


def cases() -> tuple[Case, ...]:
    """Return the group."""
    return (
        Case(
            "floyd-warshall",
            """
floyd_warshall(P: i32[N,N]) -> P:
    for k in 0:N:
        P[i,j] = minimum(P[i,j], P[i,k] + P[k,j])
""",
            "N", ((60,), (180,), (500,), (2800,)),
            floyd_warshall_initial, floyd_warshall_loops, floyd_warshall_numpy,
        ),
        Case(
            # From the last row up. A row starts with what is below it; then each of its elements, once it is final, goes on to
            # those right of it, with what it splits off.
            "nussinov",
            """
nussinov(base: i32[N]) -> S:
    S[i,j] = i32(0)  for i in 0:N, j in 0:N
    for r in 1:N:
        S[N-1-r,j] = maximum(S[N-r,j], S[N-r,j-1] + i32(base[N-1-r] + base[j] == 3))  for j in N-r+1:N
        S[N-1-r,N-r] = maximum(S[N-r,N-r], S[N-r,N-r-1])
        for k in N-r:N-1:
            S[N-1-r,k+1] = maximum(S[N-1-r,k+1], S[N-1-r,k])
            S[N-1-r,j] = maximum(S[N-1-r,j], S[N-1-r,k] + S[k+1,j])  for j in k+1:N
""",
            "N", ((60,), (180,), (500,), (2500,)),
            nussinov_initial, nussinov_loops, nussinov_numpy,
        ),
        Case(
            "deriche",
            """
deriche(X: f32[W,H], a: f32[6]) -> Y:
    F: f32[W,H]
    G: f32[W,H]
    D: f32[W,H]
    U: f32[W,H]
    F[i,j] = a[0]*X[i,j] + a[1]*X[i,j-1; pad=0] + a[4]*F[i,j-1; pad=0] + a[5]*F[i,j-2; pad=0]  for i in 0:W, j in 0:H
    G[i,H-1-j] = (a[2]*X[i,H-j; pad=0] + a[3]*X[i,H+1-j; pad=0]
        + a[4]*G[i,H-j; pad=0] + a[5]*G[i,H+1-j; pad=0])  for i in 0:W, j in 0:H
    T[i,j] = F[i,j] + G[i,j]
    D[i,j] = a[0]*T[i,j] + a[1]*T[i-1,j; pad=0] + a[4]*D[i-1,j; pad=0] + a[5]*D[i-2,j; pad=0]  for i in 0:W, j in 0:H
    U[W-1-i,j] = (a[2]*T[W-i,j; pad=0] + a[3]*T[W+1-i,j; pad=0]
        + a[4]*U[W-i,j; pad=0] + a[5]*U[W+1-i,j; pad=0])  for i in 0:W, j in 0:H
    Y[i,j] = D[i,j] + U[i,j]
""",
            "W H", ((64, 64), (192, 128), (720, 480), (4096, 2160)),
            deriche_initial, deriche_loops, deriche_numpy, near(1e-5),
        ),
    )  # fmt: skip
