"""Operators to compile and call: texts with a constant of their own, arguments, and what NumPy makes of them.

The constant makes an operator new, so that it has to be compiled; values are small integers, so that results are exact in any
order of summation, and a result of another operator, of other arguments or of a half-written array is seen.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
from msgspec import Struct

import polyker as pk

Arrays = tuple[np.ndarray, ...]


class Family(Struct, frozen=True):
    """Operators of one kind: `shapes` of the arguments for a size n, `expected` results for arguments and the constant.

    `symbols`: extents of each argument in a symbolic kernel. `sizes`: those given by keyword. `large`: a size at which the
    kernel runs on threads. `own`: the argument that the result starts from.
    """

    name: str
    text: str
    shapes: Callable[[int], tuple[tuple[int, ...], ...]]
    expected: Callable[..., Any]
    symbols: tuple[tuple[str, ...], ...]
    sizes: tuple[tuple[str, int], ...] = ()
    large: int = 0
    exact: bool = True
    own: int | None = None
    integers: tuple[int, ...] = ()

    def program(self, constant: int) -> str:
        """Return the text with a constant."""
        return self.text.replace("§", str(constant))

    def types(self, n: int | None) -> list[Any]:
        """Return the arguments' types for a size, or with symbols."""
        shapes = self.symbols if n is None else self.shapes(n)
        return [(pk.i64 if i in self.integers else pk.f64)[shape] for i, shape in enumerate(shapes)]

    def arguments(self, random: Random, n: int) -> Arrays:
        """Return new arguments of a size."""
        numbers = np.random.default_rng(random.getrandbits(32))
        found = []
        for i, shape in enumerate(self.shapes(n)):
            values = numbers.integers(0, n, shape) if i in self.integers else numbers.integers(-4, 7, shape)
            found.append(values.astype(np.int64 if i in self.integers else np.float64))
        return tuple(found)

    def results(self, args: Arrays, constant: int) -> Arrays:
        """Return what the operator has to give for arguments."""
        found = self.expected(constant, *args)
        return found if isinstance(found, tuple) else (found,)

    def agrees(self, got: Any, wanted: Arrays) -> bool:
        """Whether the results of a call are right."""
        results = got if isinstance(got, tuple) else (got,)
        if len(results) != len(wanted):
            return False
        if self.exact:
            return all(np.array_equal(g, w) for g, w in zip(results, wanted, strict=True))
        return all(np.allclose(g, w, rtol=1e-9, atol=1e-12) for g, w in zip(results, wanted, strict=True))


def _scan(c: int, x: np.ndarray) -> np.ndarray:
    terms = c * x
    terms[:, 0] = x[:, 0]
    return np.cumsum(terms, axis=1)


def _heat(c: int, a: np.ndarray) -> np.ndarray:
    a = a.copy()
    for _ in range(3):
        a[1:-1, 1:-1] = a[:-2, 1:-1] + a[2:, 1:-1] - a[1:-1, :-2] + c
    return a


def _attention(c: int, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    s = q @ k.T / c
    p = np.exp(s - s.max(1, keepdims=True))
    return (p @ v) / p.sum(1, keepdims=True)


def _convolution(c: int, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], axis=(2, 3))
    return c * np.einsum("nchwrs,fcrs->nfhw", windows, w)


FAMILIES = (
    Family(
        "matmul",
        "C[i,j] += § * A[i,k] * B[k,j]",
        lambda n: ((n, n + 1), (n + 1, n + 2)),
        lambda c, a, b: c * (a @ b),
        (("I", "K"), ("K", "J")),
        large=180,
    ),
    Family(
        "pointwise",
        "y[i] = § * x[i] + z[i]",
        lambda n: ((n,), (n,)),
        lambda c, x, z: c * x + z,
        (("N",), ("N",)),
        large=400_000,
    ),
    Family(
        "rows",
        "y[i] = sum[k](x[i,k] * x[i,k]) - §",
        lambda n: ((n, n + 3),),
        lambda c, x: (x * x).sum(1) - c,
        (("I", "K"),),
        large=600,
    ),
    Family(
        "transposed",
        "y[i,j] = x[j,i] + §",
        lambda n: ((n, n + 1),),
        lambda c, x: x.T + c,
        (("J", "I"),),
        large=700,
    ),
    Family(
        "inout",
        "f(A: f64[N], B: f64[N]) -> A:\n  A[i] = A[i] + § * B[i]",
        lambda n: ((n,), (n,)),
        lambda c, a, b: a + c * b,
        (("N",), ("N",)),
        large=400_000,
        own=0,
    ),
    Family(
        "pair",
        "s[i] = A[i] + §; t[i] = A[i] * B[i]",
        lambda n: ((n,), (n,)),
        lambda c, a, b: (a + c, a * b),
        (("N",), ("N",)),
        large=400_000,
    ),
    Family(
        "scan",
        "scan(X: f64[B,N]) -> S:\n  S[b,0] = X[b,0]\n  S[b,t] = S[b,t-1] + § * X[b,t] for t in 1:N",
        lambda n: ((n, n + 1),),
        _scan,
        (("B", "N"),),
        large=500,
    ),
    Family(
        "heat",
        "heat(A: f64[N,N], steps) -> A:\n  for t in 0:steps:\n"
        "    B[i,j] = A[i-1,j] + A[i+1,j] - A[i,j-1] + § for i in 1:N-1, j in 1:N-1\n"
        "    A[i,j] = B[i,j] for i in 1:N-1, j in 1:N-1",
        lambda n: ((n + 2, n + 2),),
        _heat,
        (("N", "N"),),
        sizes=(("steps", 3),),
        large=400,
        own=0,
    ),
    Family(
        "attention",
        "S[q,k] = sum[d](Q[q,d] * K[k,d]) / §\nP[q,k] = exp(S[q,k] - max[j](S[q,j]))\n"
        "O[q,d] = sum[k](P[q,k] * V[k,d]) / sum[k](P[q,k])",
        lambda n: ((n, 8), (n, 8), (n, 8)),
        _attention,
        (("Q", "D"), ("K", "D"), ("K", "D")),
        large=250,
        exact=False,
    ),
    Family(
        "convolution",
        "O[n,f,h,w] += § * X[n,c,h+r,w+s] * K[f,c,r,s]",
        lambda n: ((1, 2, n + 2, n + 2), (3, 2, 3, 3)),
        _convolution,
        (("N", "C", "Y", "X"), ("F", "C", "R", "S")),
        large=120,
    ),
    Family(
        "gather",
        "y[i] = § * x[idx[i]]",
        lambda n: ((n,), (n + 4,)),
        lambda c, x, idx: c * x[idx],
        (("N",), ("M",)),
        integers=(1,),
    ),
    Family(
        "triangle",
        "L[i,j] += § * A[i,k] * A[j,k] where j <= i",
        lambda n: ((n, n + 1),),
        lambda c, a: np.tril(c * (a @ a.T)),
        (("I", "K"),),
        large=180,
    ),
    Family(
        "greatest",
        "m[i] max= x[i,k] + §",
        lambda n: ((n, n + 1),),
        lambda c, x: x.max(1) + c,
        (("I", "K"),),
        large=600,
    ),
)
BY_NAME = {family.name: family for family in FAMILIES}
QUICK = tuple(f for f in FAMILIES if f.name in ("matmul", "pointwise", "rows", "transposed", "inout", "pair"))
LONG = tuple(f for f in FAMILIES if f.name in ("heat", "attention", "convolution", "triangle"))  # to compile


def constant(random: Random) -> int:
    """Return a constant that no other operator of this run is likely to have, small enough for exact results."""
    return random.randrange(2, 1_000_000)


def compile_and_call(random: Random, family: Family | None = None) -> str:
    """Compile an operator that is new and call it; return what is wrong, as text."""
    family = family or random.choice(QUICK)
    c, n = constant(random), random.randrange(2, 12)
    args = family.arguments(random, n)
    got = pk.op(family.program(c))(*args, **dict(family.sizes))
    return "" if family.agrees(got, family.results(args, c)) else f"{family.name} of size {n}, constant {c}: wrong"
