"""Loop nests for numba, as its user writes them. Plain Python functions here; `compiled` makes the fast ones.

`fastmath` lets numba reorder sums and maxima, which the notation lets polyker do in a declared reduction. No nest looks at
values to skip work: how sparse the inputs happen to be is not what is measured.
"""

from __future__ import annotations

import math
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np


def max_plus(A, B, out):
    for i in range(A.shape[0]):
        out[i] = -math.inf
        for k in range(A.shape[1]):
            for j in range(B.shape[1]):
                out[i, j] = max(out[i, j], A[i, k] + B[k, j])
    return out


def min_plus(A, B, out):
    for i in range(A.shape[0]):
        out[i] = math.inf
        for k in range(A.shape[1]):
            for j in range(B.shape[1]):
                out[i, j] = min(out[i, j], A[i, k] + B[k, j])
    return out


def max_min(A, B, out):
    for i in range(A.shape[0]):
        out[i] = -math.inf
        for k in range(A.shape[1]):
            for j in range(B.shape[1]):
                out[i, j] = max(out[i, j], min(A[i, k], B[k, j]))
    return out


def l1(A, B, out):
    for i in range(A.shape[0]):
        for j in range(B.shape[0]):
            total = A.dtype.type(0)
            for k in range(A.shape[1]):
                total += abs(A[i, k] - B[j, k])
            out[i, j] = total
    return out


def squared(A, B, out):
    for i in range(A.shape[0]):
        for j in range(B.shape[0]):
            total = A.dtype.type(0)
            for k in range(A.shape[1]):
                total += (A[i, k] - B[j, k]) * (A[i, k] - B[j, k])
            out[i, j] = total
    return out


def chebyshev(A, B, out):
    for i in range(A.shape[0]):
        for j in range(B.shape[0]):
            largest = A.dtype.type(0)
            for k in range(A.shape[1]):
                largest = max(largest, abs(A[i, k] - B[j, k]))
            out[i, j] = largest
    return out


def logsumexp(A, B, out):
    for i in range(A.shape[0]):
        for j in range(B.shape[1]):
            largest = A[i, 0] + B[0, j]
            for k in range(A.shape[1]):
                largest = max(largest, A[i, k] + B[k, j])
            total = A.dtype.type(0)
            for k in range(A.shape[1]):
                total += math.exp(A[i, k] + B[k, j] - largest)
            out[i, j] = math.log(total) + largest
    return out


def any_and(A, B, out):
    out[:] = False
    for i in range(A.shape[0]):
        for k in range(A.shape[1]):
            for j in range(B.shape[1]):
                out[i, j] |= A[i, k] & B[k, j]
    return out


def argmax_plus(A, B, out):
    for i in range(A.shape[0]):
        for j in range(B.shape[1]):
            best, where = A[i, 0] + B[0, j], 0
            for k in range(1, A.shape[1]):
                value = A[i, k] + B[k, j]
                if value > best:
                    best, where = value, k
            out[i, j] = where
    return out


def filter1d(X, K, out):
    for t in range(out.shape[0]):
        total = X.dtype.type(0)
        for r in range(K.shape[0]):
            total += X[t + r] * K[r]
        out[t] = total
    return out


def gated(X, Y, Z, out):
    one = X.dtype.type(1)
    for i in range(X.shape[0]):
        out[i] = math.tanh(X[i]) / (one + math.exp(-Y[i])) + Z[i]
    return out


def chain(X, Y, Z, out):
    half, zero = X.dtype.type(0.5), X.dtype.type(0)
    for i in range(X.shape[0]):
        out[i] = max(X[i] * Y[i] + half, zero) * Z[i] - X[i]
    return out


def axpy(X, Y, out):
    for i in range(X.shape[0]):
        out[i] = 2.5 * X[i] + Y[i]
    return out


def gather_rows(T, index, out):
    for n in range(index.shape[0]):
        for c in range(T.shape[1]):
            out[n, c] = T[index[n], c]
    return out


def gather_bags(T, index, out):
    for n in range(index.shape[0]):
        out[n] = 0
        for k in range(index.shape[1]):
            for c in range(T.shape[1]):
                out[n, c] += T[index[n, k], c]
    return out


def gather_elements(T, index, out):
    for n in range(index.shape[0]):
        out[n] = T[index[n]]
    return out


def prefix_rows(X, out):
    for n in range(X.shape[0]):
        total = X.dtype.type(0)
        for t in range(X.shape[1]):
            total += X[n, t]
            out[n, t] = total
    return out


def prefix_columns(X, out):
    out[0] = X[0]
    for t in range(1, X.shape[0]):
        for n in range(X.shape[1]):
            out[t, n] = out[t - 1, n] + X[t, n]
    return out


def recurrence(X, A, out):
    out[0] = X[0]
    for t in range(1, X.shape[0]):
        for b in range(X.shape[1]):
            out[t, b] = A[t, b] * out[t - 1, b] + X[t, b]
    return out


def gated_rows(X, A, out):
    for n in range(X.shape[0]):
        out[n, 0] = X[n, 0]
        for t in range(1, X.shape[1]):
            out[n, t] = A[n, t] * out[n, t - 1] + X[n, t]
    return out


def second_order_rows(X, A, out):
    half = X.dtype.type(0.5)
    for n in range(X.shape[0]):
        out[n, 0], out[n, 1] = X[n, 0], X[n, 1]
        for t in range(2, X.shape[1]):
            out[n, t] = X[n, t] + out[n, t - 1] * half - A[n, t] * out[n, t - 2] * half
    return out


def state_space(X, A, C, out):
    state = X[0].copy()
    out[0] = C * state
    for t in range(1, X.shape[0]):
        for n in range(X.shape[1]):
            state[n] = A[n] * state[n] + X[t, n]
            out[t, n] = C[n] * state[n]
    return out


def transpose_add(A, B, out):
    for block in range(0, A.shape[1], 32):
        for i in range(A.shape[0]):
            for j in range(block, min(block + 32, A.shape[1])):
                out[i, j] = A[i, j] + B[j, i]
    return out


def cross_entropy(X, y, out):
    total = X.dtype.type(0)
    for n in range(X.shape[0]):
        largest = X[n, 0]
        for c in range(X.shape[1]):
            largest = max(largest, X[n, c])
        terms = X.dtype.type(0)
        for c in range(X.shape[1]):
            terms += math.exp(X[n, c] - largest)
        total += math.log(terms) + largest - X[n, y[n]]
    out[()] = total / X.shape[0]
    return out


def moments(X, out):
    for n in range(X.shape[0]):
        total, squares = X.dtype.type(0), X.dtype.type(0)
        for c in range(X.shape[1]):
            total += X[n, c]
            squares += X[n, c] * X[n, c]
        mean = total / X.shape[1]
        out[n, 0] = mean
        out[n, 1] = squares / X.shape[1] - mean * mean
    return out


def variance(x, out):
    total, squares = x.dtype.type(0), x.dtype.type(0)
    for k in range(x.shape[0]):
        total += x[k]
    mean = total / x.shape[0]
    for k in range(x.shape[0]):
        squares += (x[k] - mean) * (x[k] - mean)
    out[()] = squares / x.shape[0]
    return out


def place(x, out):
    best, greatest = 0, x[0]
    for k in range(1, x.shape[0]):
        if x[k] > greatest:
            best, greatest = k, x[k]
    out[()] = best
    return out


def blur(X, out):
    third = X.dtype.type(1 / 3)
    H = np.empty((X.shape[0], X.shape[1] - 2), X.dtype)
    for i in range(H.shape[0]):
        for j in range(H.shape[1]):
            H[i, j] = (X[i, j] + X[i, j + 1] + X[i, j + 2]) * third
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] = (H[i, j] + H[i + 1, j] + H[i + 2, j]) * third
    return out


def gauss(X, k, out):
    H = np.empty((X.shape[0], X.shape[1] - 8), X.dtype)
    for i in range(H.shape[0]):
        for j in range(H.shape[1]):
            total = X.dtype.type(0)
            for r in range(9):
                total += X[i, j + r] * k[r]
            H[i, j] = total
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            total = X.dtype.type(0)
            for r in range(9):
                total += H[i + r, j] * k[r]
            out[i, j] = total
    return out


def harris(X, out):
    twelfth, weight = X.dtype.type(1 / 12), X.dtype.type(0.04)
    A = np.empty((X.shape[0] - 2, X.shape[1] - 2), X.dtype)
    B = np.empty((X.shape[0] - 2, X.shape[1] - 2), X.dtype)
    for i in range(A.shape[0]):
        for j in range(A.shape[1]):
            across = X[i + 1, j + 2] - X[i + 1, j]
            A[i, j] = (X[i, j + 2] - X[i, j] + across + across + X[i + 2, j + 2] - X[i + 2, j]) * twelfth
            down = X[i + 2, j + 1] - X[i, j + 1]
            B[i, j] = (X[i + 2, j] - X[i, j] + down + down + X[i + 2, j + 2] - X[i, j + 2]) * twelfth
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            xx = xy = yy = X.dtype.type(0)
            for r in range(3):
                for s in range(3):
                    a, b = A[i + r, j + s], B[i + r, j + s]
                    xx += a * a
                    xy += a * b
                    yy += b * b
            out[i, j] = xx * yy - xy * xy - weight * (xx + yy) * (xx + yy)
    return out


def stages(X, out):
    half, quarter, three = X.dtype.type(0.5), X.dtype.type(0.25), X.dtype.type(3)
    tenth, one = X.dtype.type(0.1), X.dtype.type(1)
    b = np.empty(X.shape[1], X.dtype)
    for i in range(out.shape[0]):
        for j in range(X.shape[1]):
            a = X[i, j] * half + quarter
            b[j] = a * abs(a)
        for j in range(out.shape[1]):
            c = b[j + 1] * three - b[j] - b[j + 2]
            d = c * c - tenth
            out[i, j] = math.sqrt((abs(d) + d) * half + one) - c
    return out


def heat_2d(A, out, steps):
    out[:] = A
    B = np.empty_like(A)
    for _ in range(steps):
        for i in range(1, A.shape[0] - 1):
            for j in range(1, A.shape[1] - 1):
                B[i, j] = 0.25 * (out[i - 1, j] + out[i + 1, j] + out[i, j - 1] + out[i, j + 1])
        for i in range(1, A.shape[0] - 1):
            for j in range(1, A.shape[1] - 1):
                out[i, j] = B[i, j]
    return out


def jacobi_2d(A, out, steps):
    out[:] = A
    B = A.copy()
    for _ in range(steps // 2):
        for i in range(1, A.shape[0] - 1):
            for j in range(1, A.shape[1] - 1):
                B[i, j] = 0.2 * (out[i, j] + out[i, j - 1] + out[i, j + 1] + out[i + 1, j] + out[i - 1, j])
        for i in range(1, A.shape[0] - 1):
            for j in range(1, A.shape[1] - 1):
                out[i, j] = 0.2 * (B[i, j] + B[i, j - 1] + B[i, j + 1] + B[i + 1, j] + B[i - 1, j])
    return out


def jacobi_1d(A, out, steps):
    out[:] = A
    B = A.copy()
    for _ in range(steps // 2):
        for i in range(1, A.shape[0] - 1):
            B[i] = 0.33333 * (out[i - 1] + out[i] + out[i + 1])
        for i in range(1, A.shape[0] - 1):
            out[i] = 0.33333 * (B[i - 1] + B[i] + B[i + 1])
    return out


def heat_3d(A, out, steps):
    out[:] = A
    B = A.copy()
    for step in range(steps):
        S, T = (out, B) if step % 2 == 0 else (B, out)
        for i in range(1, A.shape[0] - 1):
            for j in range(1, A.shape[1] - 1):
                for k in range(1, A.shape[2] - 1):
                    T[i, j, k] = (
                        0.125 * (S[i + 1, j, k] - 2.0 * S[i, j, k] + S[i - 1, j, k])
                        + 0.125 * (S[i, j + 1, k] - 2.0 * S[i, j, k] + S[i, j - 1, k])
                        + 0.125 * (S[i, j, k + 1] - 2.0 * S[i, j, k] + S[i, j, k - 1])
                        + S[i, j, k]
                    )
    return out


def seidel_2d(A, out, steps):
    out[:] = A
    for _ in range(steps):
        for i in range(1, A.shape[0] - 1):
            for j in range(1, A.shape[1] - 1):
                up = out[i - 1, j - 1] + out[i - 1, j] + out[i - 1, j + 1]
                here = out[i, j - 1] + out[i, j] + out[i, j + 1]
                out[i, j] = (up + here + out[i + 1, j - 1] + out[i + 1, j] + out[i + 1, j + 1]) / 9.0
    return out


def fdtd_2d(X, Y, H, out, steps):
    out[:] = H
    ex, ey = X.copy(), Y.copy()
    n = H.shape[0]
    for t in range(steps):
        for j in range(n):
            ey[0, j] = 0.1 * t
        for i in range(1, n):
            for j in range(n):
                ey[i, j] = ey[i, j] - 0.5 * (out[i, j] - out[i - 1, j])
        for i in range(n):
            for j in range(1, n):
                ex[i, j] = ex[i, j] - 0.5 * (out[i, j] - out[i, j - 1])
        for i in range(n - 1):
            for j in range(n - 1):
                out[i, j] = out[i, j] - 0.7 * (ex[i, j + 1] - ex[i, j] + ey[i + 1, j] - ey[i, j])
    return out


def integer_matvec(A, x, out):
    for i in range(A.shape[0]):
        total = np.int32(0)
        for k in range(A.shape[1]):
            total += np.int32(A[i, k]) * np.int32(x[k])
        out[i] = total
    return out


def integer_dot(x, y, out):
    total = np.int32(0)
    for k in range(x.shape[0]):
        total += np.int32(x[k]) * np.int32(y[k])
    out[()] = total
    return out


@cache
def compiled(numba: Any) -> Any:
    """Return all nests, compiled when they are first called."""
    nests = {
        name: f for name, f in globals().items() if getattr(f, "__module__", "") == __name__ and name != "compiled"
    }
    return SimpleNamespace(**{name: numba.njit(fastmath=True)(f) for name, f in nests.items()})
