"""Programs on pictures, whose stages read windows of what the stages before them made."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.case import Operand, Problem, Spelling


def _problem(
    text: str,
    inputs: tuple[Operand, ...],
    output: tuple[int, ...],
    expression: Callable[..., Any],
    terms: int,
    fixed: dict[str, int],
    **spellings: Spelling,
) -> Problem:
    """Return a problem whose reference, torch and jax spellings are one `expression(m, *inputs)`."""
    own: dict[str, Spelling] = {
        "jax": lambda jax, *xs, out: expression(jax.numpy, *xs),
        "torch": lambda torch, *xs, out: expression(torch, *xs),
    }
    result = Operand("O", "f32", output)
    return Problem(text, inputs, result, None, partial(expression, np), own | spellings, "scaled", terms, fixed)


def blur(*, h: int, w: int) -> Problem:
    """Return a box blur of 3 by 3 in two passes."""

    def expression(m: Any, X: Any) -> Any:
        rows = (X[:, :-2] + X[:, 1:-1] + X[:, 2:]) / 3
        return (rows[:-2] + rows[1:-1] + rows[2:]) / 3

    return _problem(
        "H[i,j] = (X[i,j] + X[i,j+1] + X[i,j+2]) / 3  for j in 0:W-2\n"
        "O[i,j] = (H[i,j] + H[i+1,j] + H[i+2,j]) / 3  for i in 0:N-2",
        (Operand("X", "f32", (h, w)),), (h - 2, w - 2), expression, 9, {"N": h, "W": w},
        numba=lambda loops, X, out: loops.blur(X, out),
    )  # fmt: skip


def gauss(*, h: int, w: int) -> Problem:
    """Return a picture filtered by nine weights along its rows, then down its columns."""

    def expression(m: Any, X: Any, k: Any) -> Any:
        rows = sum(X[:, r : w - 8 + r] * k[r] for r in range(9))
        return sum(rows[r : h - 8 + r] * k[r] for r in range(9))

    def torch(torch: Any, X: Any, k: Any, out: Any) -> Any:
        conv = torch.nn.functional.conv2d
        return conv(conv(X[None, None], k.view(1, 1, 1, 9)), k.view(1, 1, 9, 1))[0, 0]

    return _problem(
        "H[i,j] += X[i,j+r] * k[r]\nO[i,j] += H[i+r,j] * k[r]",
        (Operand("X", "f32", (h, w)), Operand("k", "f32", (9,), "unit")), (h - 8, w - 8), expression, 18, {}, torch=torch,
        numba=lambda loops, X, k, out: loops.gauss(X, k, out),
    )  # fmt: skip


def harris(*, h: int, w: int) -> Problem:
    """Return the response of Harris' corner detector: Sobel gradients, their products summed over 3 by 3."""

    def box(Y: Any) -> Any:
        return sum(Y[r : h - 4 + r, s : w - 4 + s] for r in range(3) for s in range(3))

    def expression(m: Any, X: Any) -> Any:
        a, b, c = X[:-2], X[1:-1], X[2:]
        dx = (a[:, 2:] - a[:, :-2] + 2 * (b[:, 2:] - b[:, :-2]) + c[:, 2:] - c[:, :-2]) / 12
        d = c - a
        dy = (d[:, :-2] + 2 * d[:, 1:-1] + d[:, 2:]) / 12
        xx, xy, yy = box(dx * dx), box(dx * dy), box(dy * dy)
        return xx * yy - xy * xy - 0.04 * (xx + yy) ** 2

    return _problem(
        "A[i,j] = (X[i,j+2] - X[i,j] + 2 * (X[i+1,j+2] - X[i+1,j]) + X[i+2,j+2] - X[i+2,j]) / 12"
        "  for i in 0:N-2, j in 0:W-2\n"
        "B[i,j] = (X[i+2,j] - X[i,j] + 2 * (X[i+2,j+1] - X[i,j+1]) + X[i+2,j+2] - X[i,j+2]) / 12"
        "  for i in 0:N-2, j in 0:W-2\n"
        "xx[i,j] = sum[r in 0:3, s in 0:3](A[i+r,j+s] ** 2)\n"
        "xy[i,j] = sum[r in 0:3, s in 0:3](A[i+r,j+s] * B[i+r,j+s])\n"
        "yy[i,j] = sum[r in 0:3, s in 0:3](B[i+r,j+s] ** 2)\n"
        "O[i,j] = xx[i,j] * yy[i,j] - xy[i,j] ** 2 - 0.04 * (xx[i,j] + yy[i,j]) ** 2",
        (Operand("X", "f32", (h, w)),), (h - 4, w - 4), expression, 200, {"N": h, "W": w},
        numba=lambda loops, X, out: loops.harris(X, out),
    )  # fmt: skip


def chain(*, h: int, w: int) -> Problem:
    """Return a long chain of stages that each fill the whole picture: contrast, sharpening along the rows, thresholds."""

    def expression(m: Any, X: Any) -> Any:
        a = X * 0.5 + 0.25
        b = a * abs(a)
        c = b[:, 1:-1] * 3 - b[:, :-2] - b[:, 2:]
        d = c * c - 0.1
        e = (abs(d) + d) / 2
        return m.sqrt(e + 1) - c

    return _problem(
        "a[i,j] = X[i,j] * 0.5 + 0.25\nb[i,j] = a[i,j] * abs(a[i,j])\nc[i,j] = b[i,j+1] * 3 - b[i,j] - b[i,j+2]  for j in 0:W-2\n"
        "d[i,j] = c[i,j] ** 2 - 0.1\ne[i,j] = (abs(d[i,j]) + d[i,j]) / 2\nO[i,j] = sqrt(e[i,j] + 1) - c[i,j]",
        (Operand("X", "f32", (h, w)),), (h, w - 2), expression, 20, {"W": w},
        numba=lambda loops, X, out: loops.stages(X, out),
    )  # fmt: skip
