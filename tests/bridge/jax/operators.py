"""Operators of different families, with arrays and sizes to take their gradients at."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Arrays = dict[str, Any]


def _normal(**shapes: tuple[int, ...]) -> Callable[[], Arrays]:
    return lambda: {n: np.random.default_rng(k).standard_normal(s) for k, (n, s) in enumerate(shapes.items())}


def _distinct(**shapes: tuple[int, ...]) -> Callable[[], Arrays]:
    """Values of which no two are near each other."""
    rng = np.random.default_rng(0)
    return lambda: {n: rng.permutation(int(np.prod(s))).reshape(s) * 0.37 for n, s in shapes.items()}


# Text, arrays, sizes.
OPERATORS: dict[str, tuple[str, Callable[[], Arrays], dict[str, int]]] = {
    "product": ("C[i,j] += A[i,k] * B[k,j]", _normal(A=(3, 4), B=(4, 2)), {}),
    "convolution": ("O[n,f,h,w] += X[n,c,2*h+r,w+s] * K[f,c,r,s]", _normal(X=(1, 2, 7, 5), K=(2, 2, 3, 2)), {}),
    "softmax": (
        "P[i,j] = exp(X[i,j] - max[k](X[i,k])) / sum[l](exp(X[i,l] - max[k](X[i,k])))",
        _distinct(X=(3, 4)),
        {},
    ),
    "attention": (
        "S[i,j] = sum[d](Q[i,d] * K[j,d]); E[i,j] = exp(S[i,j] - max[m](S[i,m]));"
        "O[i,d] = sum[j](E[i,j] * V[j,d]) / sum[j](E[i,j])",
        _normal(Q=(3, 2), K=(4, 2), V=(4, 2)),
        {},
    ),
    "layer norm": (
        "M[i] = mean[j](X[i,j]); V[i] = mean[j]((X[i,j] - M[i])**2);"
        "O[i,j] = (X[i,j] - M[i]) / sqrt(V[i] + 0.1) * g[j] + b[j]",
        _normal(X=(2, 4), g=(4,), b=(4,)),
        {},
    ),
    "max pooling": (
        "O[h,w] = max[r in 0:2, s in 0:2](X[2*h+r, 2*w+s]) for h in 0:2, w in 0:3",
        _distinct(X=(4, 6)),
        {},
    ),
    "gather": ("O[i,d] = T[I[i],d] * W[i]", lambda: {**_normal(T=(4, 3), W=(3,))(), "I": np.array([3, 0, 3])}, {}),
    "logsumexp": ("L[i] = logsumexp[j](X[i,j])", _normal(X=(3, 4)), {}),
    "padded stencil": (
        "O[i] = 0.5 * X[i] + sin(X[i-1; pad=0]) * X[i+1; pad=edge] for i in 0:N",
        _normal(X=(6,)),
        {"N": 6},
    ),
    "recurrence": (
        "S[b,0] = X[b,0]; S[b,t] = a * S[b,t-1] + sin(X[b,t]) for t in 1:T",
        _normal(X=(2, 5), a=()),
        {"T": 5},
    ),
    "triangular": ("L[i,j] += A[i,k] * A[j,k] where j <= i", _normal(A=(4, 3)), {}),
}
