"""Loop nests for numba, as its user writes them. Plain Python functions here; `compiled` makes the fast ones.

`fastmath` lets numba reorder sums and maxima, which the notation lets polyker do in a declared reduction. No nest looks at
values to skip work: how sparse the inputs happen to be is not what is measured.
"""

from __future__ import annotations

import math
from functools import cache
from types import SimpleNamespace
from typing import Any


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


def gather_cells(T, index, out):
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


def transpose_add(A, B, out):
    for block in range(0, A.shape[1], 32):
        for i in range(A.shape[0]):
            for j in range(block, min(block + 32, A.shape[1])):
                out[i, j] = A[i, j] + B[j, i]
    return out


@cache
def compiled(numba: Any) -> Any:
    """Return all nests, compiled when they are first called."""
    nests = {
        name: f for name, f in globals().items() if getattr(f, "__module__", "") == __name__ and name != "compiled"
    }
    return SimpleNamespace(**{name: numba.njit(fastmath=True)(f) for name, f in nests.items()})
