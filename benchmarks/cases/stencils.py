"""Stencils over many time steps, within the caches and beyond: PolyBench's, and heat whose steps are copied back.

Peers are written as their users write them: slices in numpy and torch, `fori_loop` in jax, plain loops in numba.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.case import Case, Operand, Problem


def _shifted(rank: int, axis: int, by: int) -> tuple[slice, ...]:
    """Return the slices of the inner elements, moved by -1 or 1 along an axis."""
    inner = [slice(1, -1)] * rank
    inner[axis] = slice(1 + by, by - 1 or None)
    return tuple(inner)


def _near(rank: int) -> tuple[tuple[slice, ...], ...]:
    return tuple(_shifted(rank, axis, by) for axis in range(rank) for by in (-1, 1))


def _heat(A: Any) -> Any:
    up, down, left, right = _near(2)
    return 0.25 * (A[up] + A[down] + A[left] + A[right])


def _jacobi_2d(A: Any) -> Any:
    up, down, left, right = _near(2)
    return 0.2 * (A[1:-1, 1:-1] + A[left] + A[right] + A[down] + A[up])


def _jacobi_1d(A: Any) -> Any:
    return 0.33333 * (A[:-2] + A[1:-1] + A[2:])


def _heat_3d(A: Any) -> Any:
    inner = A[1:-1, 1:-1, 1:-1]
    near = _near(3)
    parts = [0.125 * (A[near[n + 1]] - 2.0 * inner + A[near[n]]) for n in (0, 2, 4)]
    return parts[0] + parts[1] + parts[2] + inner


def _sweeps(text: str, rank: int, n: int, steps: int, step: Callable[[Any], Any], loops: str, flops: int) -> Problem:
    """Return a problem whose steps each compute the inner elements anew from the last step's."""
    inner = (slice(1, -1),) * rank

    def run(A: Any) -> Any:
        for _ in range(steps):
            A[inner] = step(A)
        return A

    def numpy(_: Any, A: Any, out: Any) -> Any:
        out[...] = A
        return run(out)

    def torch(torch: Any, A: Any, out: Any) -> Any:
        return run(out.copy_(A))

    def jax(jax: Any, A: Any, out: Any) -> Any:
        return jax.lax.fori_loop(0, steps, lambda _, B: B.at[inner].set(step(B)), A)

    def numba(nests: Any, A: Any, out: Any) -> Any:
        return getattr(nests, loops)(A, out, steps)

    shape = (n,) * rank
    return Problem(
        text, (Operand("A", "f64", shape),), Operand("A", "f64", shape), flops * steps * (n - 2) ** rank,
        lambda A: run(A.copy()), {"numpy": numpy, "torch": torch, "jax": jax, "numba": numba}, "scaled",
        8 * steps, {"steps": steps},
    )  # fmt: skip


def heat_2d(*, n: int, steps: int) -> Problem:
    """Return heat in two dimensions, each step copied back."""
    text = """
heat(A: f64[N,N], steps) -> A:
    for t in 0:steps:
        B[i,j] = 0.25 * (A[i-1,j] + A[i+1,j] + A[i,j-1] + A[i,j+1])  for i in 1:N-1, j in 1:N-1
        A[i,j] = B[i,j]                                              for i in 1:N-1, j in 1:N-1
"""
    return _sweeps(text, 2, n, steps, _heat, "heat_2d", 4)


def jacobi_2d(*, n: int, steps: int) -> Problem:
    """Return Jacobi's iteration in two dimensions, to and fro between two arrays; `steps` is even."""
    text = """
jacobi(A: f64[N,N], steps) -> A:
    B[i,j] = A[i,j]
    for t in 0:steps//2:
        B[i,j] = 0.2 * (A[i,j] + A[i,j-1] + A[i,j+1] + A[i+1,j] + A[i-1,j])  for i in 1:N-1, j in 1:N-1
        A[i,j] = 0.2 * (B[i,j] + B[i,j-1] + B[i,j+1] + B[i+1,j] + B[i-1,j])  for i in 1:N-1, j in 1:N-1
"""
    return _sweeps(text, 2, n, steps // 2 * 2, _jacobi_2d, "jacobi_2d", 5)


def jacobi_1d(*, n: int, steps: int) -> Problem:
    """Return Jacobi's iteration in one dimension, to and fro between two arrays; `steps` is even."""
    text = """
jacobi(A: f64[N], steps) -> A:
    B[i] = A[i]
    for t in 0:steps//2:
        B[i] = 0.33333 * (A[i-1] + A[i] + A[i+1])  for i in 1:N-1
        A[i] = 0.33333 * (B[i-1] + B[i] + B[i+1])  for i in 1:N-1
"""
    return _sweeps(text, 1, n, steps // 2 * 2, _jacobi_1d, "jacobi_1d", 3)


def heat_3d(*, n: int, steps: int) -> Problem:
    """Return heat in three dimensions, to and fro between two arrays; `steps` is even."""

    def line(t: str, s: str) -> str:
        around = [("i+1,j,k", "i-1,j,k"), ("i,j+1,k", "i,j-1,k"), ("i,j,k+1", "i,j,k-1")]
        parts = [f"0.125 * ({s}[{a}] - 2*{s}[i,j,k] + {s}[{b}])" for a, b in around]
        return f"        {t}[i,j,k] = {' + '.join(parts)} + {s}[i,j,k]  for i in 1:N-1, j in 1:N-1, k in 1:N-1\n"

    text = "heat(A: f64[N,N,N], steps) -> A:\n    B[i,j,k] = A[i,j,k]\n    for t in 0:steps//2:\n"
    return _sweeps(text + line("B", "A") + line("A", "B"), 3, n, steps // 2 * 2, _heat_3d, "heat_3d", 15)


def seidel_2d(*, n: int, steps: int) -> Problem:
    """Return Seidel's iteration in two dimensions, in place."""
    text = """
seidel(A: f64[N,N], steps) -> A:
    for t in 0:steps:
        A[i,j] = (A[i-1,j-1] + A[i-1,j] + A[i-1,j+1] + A[i,j-1] + A[i,j] + A[i,j+1] + A[i+1,j-1] + A[i+1,j]
                  + A[i+1,j+1]) / 9.0  for i in 1:N-1, j in 1:N-1
"""

    def reference(A: Any) -> Any:
        A = A.copy()
        for _ in range(steps):
            # Elements of which 2i + j is equal do not depend on each other.
            for wave in range(3, 3 * n - 5):
                i = np.arange(max(1, (wave - n + 3) // 2), min(n - 2, (wave - 1) // 2) + 1)
                j = wave - 2 * i
                A[i, j] = sum(A[i + a, j + b] for a in (-1, 0, 1) for b in (-1, 0, 1)) / 9.0
        return A

    shape = (n, n)
    return Problem(
        text, (Operand("A", "f64", shape),), Operand("A", "f64", shape), 9 * steps * (n - 2) ** 2, reference,
        {"numba": lambda loops, A, out: loops.seidel_2d(A, out, steps)}, "scaled", 9 * steps, {"steps": steps},
    )  # fmt: skip


def fdtd_2d(*, n: int, steps: int) -> Problem:
    """Return a wave of electric and magnetic fields in two dimensions; the magnetic one is the result."""
    text = """
fdtd(X: f64[N,N], Y: f64[N,N], H: f64[N,N], steps) -> H:
    ex[i,j] = X[i,j]
    ey[i,j] = Y[i,j]
    for t in 0:steps:
        ey[0,j] = 0.1 * t                                                              for j in 0:N
        ey[i,j] = ey[i,j] - 0.5 * (H[i,j] - H[i-1,j])                                  for i in 1:N, j in 0:N
        ex[i,j] = ex[i,j] - 0.5 * (H[i,j] - H[i,j-1])                                  for i in 0:N, j in 1:N
        H[i,j] = H[i,j] - 0.7 * (ex[i,j+1] - ex[i,j] + ey[i+1,j] - ey[i,j])            for i in 0:N-1, j in 0:N-1
"""

    def run(ex: Any, ey: Any, H: Any) -> Any:
        for t in range(steps):
            ey[0] = 0.1 * t
            ey[1:] -= 0.5 * (H[1:] - H[:-1])
            ex[:, 1:] -= 0.5 * (H[:, 1:] - H[:, :-1])
            H[:-1, :-1] -= 0.7 * (ex[:-1, 1:] - ex[:-1, :-1] + ey[1:, :-1] - ey[:-1, :-1])
        return H

    def numpy(_: Any, X: Any, Y: Any, H: Any, out: Any) -> Any:
        out[...] = H
        return run(X.copy(), Y.copy(), out)

    def torch(torch: Any, X: Any, Y: Any, H: Any, out: Any) -> Any:
        return run(X.clone(), Y.clone(), out.copy_(H))

    def jax(jax: Any, X: Any, Y: Any, H: Any, out: Any) -> Any:
        def step(t: Any, fields: Any) -> Any:
            ex, ey, H = fields
            ey = ey.at[0].set(0.1 * t).at[1:].add(-0.5 * (H[1:] - H[:-1]))
            ex = ex.at[:, 1:].add(-0.5 * (H[:, 1:] - H[:, :-1]))
            around = ex[:-1, 1:] - ex[:-1, :-1] + ey[1:, :-1] - ey[:-1, :-1]
            return ex, ey, H.at[:-1, :-1].add(-0.7 * around)

        return jax.lax.fori_loop(0, steps, step, (X, Y, H))[2]

    shape = (n, n)
    return Problem(
        text, tuple(Operand(x, "f64", shape) for x in "XYH"), Operand("H", "f64", shape), 11 * steps * n * n,
        lambda X, Y, H: run(X.copy(), Y.copy(), H.copy()),
        {"numpy": numpy, "torch": torch, "jax": jax,
         "numba": lambda loops, X, Y, H, out: loops.fdtd_2d(X, Y, H, out, steps)},
        "scaled", 8 * steps, {"steps": steps},
    )  # fmt: skip


def cases() -> Iterator[Case]:
    """Yield the family's cases: the first of each size is beyond the last cache, the last within the second."""
    listed: tuple[tuple[str, Callable[..., Problem], tuple[tuple[int, int], ...]], ...] = (
        ("heat-2d", heat_2d, ((4000, 100), (1000, 100), (200, 100))),
        ("jacobi-2d", jacobi_2d, ((4000, 100), (1000, 100), (200, 100))),
        ("jacobi-1d", jacobi_1d, ((8_000_000, 100), (500_000, 100), (4000, 100))),
        ("heat-3d", heat_3d, ((256, 20), (100, 100), (40, 100))),
        ("seidel-2d", seidel_2d, ((2000, 20), (400, 100))),
        ("fdtd-2d", fdtd_2d, ((2500, 20), (600, 100), (150, 100))),
    )
    for name, make, sizes in listed:
        for n, steps in sizes:
            yield Case(f"stencils/{name}/{n}x{steps}", "stencils", name, make, {"n": n, "steps": steps})
