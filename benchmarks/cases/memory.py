"""Programs that memory bounds: normalisations, softmax, elementwise chains, gathers, broadcasts, recurrences, transposes.

Each is there twice: in a core's second cache, and beyond the last cache of most machines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from benchmarks.case import Case, Operand, Problem, Spelling
from benchmarks.special import erf


def problem(
    text: str,
    inputs: tuple[Operand, ...],
    output: Operand,
    expression: Callable[..., Any],
    *,
    terms: int = 1,
    rule: str = "scaled",
    moved: int | None = None,
    fixed: dict[str, int] | None = None,
    **spellings: Spelling,
) -> Problem:
    """Return a problem whose reference and jax spelling are one `expression(m, *inputs)` of numpy's or jax's functions."""
    own: dict[str, Spelling] = {"jax": lambda jax, *xs, out: expression(jax.numpy, *xs)}
    reference = partial(expression, np)
    return Problem(text, inputs, output, None, reference, own | spellings, rule, terms, fixed or {}, moved)


def layer_norm(dtype: str, *, n: int, c: int) -> Problem:
    """Return the layer normalisation of rows, with scale and shift."""

    def expression(m: Any, X: Any, g: Any, b: Any) -> Any:
        centred = X - m.mean(X, axis=1, keepdims=True)
        return centred / m.sqrt(m.mean(centred * centred, axis=1, keepdims=True) + 1e-5) * g + b

    def numpy(np: Any, X: Any, g: Any, b: Any, out: Any) -> Any:
        np.subtract(X, X.mean(axis=1, keepdims=True), out=out)
        scale = np.einsum("nc,nc->n", out, out)[:, None] / X.dtype.type(c)
        out /= np.sqrt(scale + X.dtype.type(1e-5))
        out *= g
        out += b
        return out

    return problem(
        "m[n] = mean[c](X[n,c])\nv[n] = mean[c]((X[n,c] - m[n]) ** 2)\n"
        "O[n,c] = (X[n,c] - m[n]) * rsqrt(v[n] + 1e-5) * g[c] + b[c]",
        (Operand("X", dtype, (n, c)), Operand("g", dtype, (c,)), Operand("b", dtype, (c,))),
        Operand("O", dtype, (n, c)), expression, terms=c, numpy=numpy,
        torch=lambda torch, X, g, b, out: torch.nn.functional.layer_norm(X, (c,), g, b, 1e-5),
    )  # fmt: skip


def rms_norm(*, n: int, c: int) -> Problem:
    """Return the root-mean-square normalisation of rows."""

    def expression(m: Any, X: Any, g: Any) -> Any:
        return X / m.sqrt(m.mean(X * X, axis=1, keepdims=True) + 1e-6) * g

    def numpy(np: Any, X: Any, g: Any, out: Any) -> Any:
        scale = np.einsum("nc,nc->n", X, X)[:, None] / np.float32(c)
        np.divide(X, np.sqrt(scale + np.float32(1e-6)), out=out)
        out *= g
        return out

    return problem(
        "O[n,c] = X[n,c] * rsqrt(mean[k](X[n,k] ** 2) + 1e-6) * g[c]",
        (Operand("X", "f32", (n, c)), Operand("g", "f32", (c,))), Operand("O", "f32", (n, c)), expression, terms=c,
        numpy=numpy, torch=lambda torch, X, g, out: torch.nn.functional.rms_norm(X, (c,), g, 1e-6),
    )  # fmt: skip


def batch_norm(*, n: int, c: int, h: int, w: int) -> Problem:
    """Return the batch normalisation of images with given statistics."""

    def expression(m: Any, X: Any, mu: Any, v: Any, g: Any, b: Any) -> Any:
        scale = (g / m.sqrt(v + 1e-5))[:, None, None]
        return (X - mu[:, None, None]) * scale + b[:, None, None]

    def numpy(np: Any, X: Any, mu: Any, v: Any, g: Any, b: Any, out: Any) -> Any:
        scale = g / np.sqrt(v + np.float32(1e-5))
        np.multiply(X, scale[:, None, None], out=out)
        out += (b - mu * scale)[:, None, None]
        return out

    vectors = tuple(Operand(x, "f32", (c,), "positive" if x == "v" else "normal") for x in ("mu", "v", "g", "b"))
    return problem(
        "O[n,c,h,w] = (X[n,c,h,w] - mu[c]) * rsqrt(v[c] + 1e-5) * g[c] + b[c]",
        (Operand("X", "f32", (n, c, h, w)), *vectors), Operand("O", "f32", (n, c, h, w)), expression, numpy=numpy,
        torch=lambda torch, X, mu, v, g, b, out: torch.nn.functional.batch_norm(X, mu, v, g, b, False, 0.0, 1e-5),
    )  # fmt: skip


def softmax(*, n: int, c: int) -> Problem:
    """Return the softmax of rows."""

    def expression(m: Any, X: Any) -> Any:
        e = m.exp(X - m.max(X, axis=1, keepdims=True))
        return e / m.sum(e, axis=1, keepdims=True)

    def numpy(np: Any, X: Any, out: Any) -> Any:
        np.subtract(X, X.max(axis=1, keepdims=True), out=out)
        np.exp(out, out=out)
        return np.divide(out, out.sum(axis=1, keepdims=True), out=out)

    return problem(
        "e[n,c] = exp(X[n,c] - max[j](X[n,j]))\nO[n,c] = e[n,c] / sum[j](e[n,j])",
        (Operand("X", "f32", (n, c)),), Operand("O", "f32", (n, c)), expression, terms=c, numpy=numpy,
        torch=lambda torch, X, out: torch.softmax(X, 1),
    )  # fmt: skip


def log_softmax(*, n: int, c: int) -> Problem:
    """Return the logarithm of the softmax of rows."""

    def expression(m: Any, X: Any) -> Any:
        centred = X - m.max(X, axis=1, keepdims=True)
        return centred - m.log(m.sum(m.exp(centred), axis=1, keepdims=True))

    def numpy(np: Any, X: Any, out: Any) -> Any:
        np.subtract(X, X.max(axis=1, keepdims=True), out=out)
        return np.subtract(out, np.log(np.exp(out).sum(axis=1, keepdims=True)), out=out)

    return problem(
        "O[n,c] = X[n,c] - logsumexp[j](X[n,j])",
        (Operand("X", "f32", (n, c)),), Operand("O", "f32", (n, c)), expression, terms=c, numpy=numpy,
        torch=lambda torch, X, out: torch.log_softmax(X, 1),
    )  # fmt: skip


def gated(*, n: int) -> Problem:
    """Return WaveNet's gate with its residual."""

    def numpy(np: Any, X: Any, Y: Any, Z: Any, out: Any) -> Any:
        np.exp(np.negative(Y, out=out), out=out)
        out += np.float32(1)
        np.divide(np.tanh(X), out, out=out)
        out += Z
        return out

    return problem(
        "O[i] = tanh(X[i]) * sigmoid(Y[i]) + Z[i]",
        tuple(Operand(x, "f32", (n,)) for x in "XYZ"), Operand("O", "f32", (n,)),
        lambda m, X, Y, Z: m.tanh(X) / (1 + m.exp(-Y)) + Z, numpy=numpy,
        torch=lambda torch, X, Y, Z, out: torch.addcmul(Z, torch.tanh(X), torch.sigmoid(Y), out=out),
        numba=lambda loops, X, Y, Z, out: loops.gated(X, Y, Z, out),
    )  # fmt: skip


def chain(*, n: int) -> Problem:
    """Return a chain of cheap operations on three arrays."""

    def numpy(np: Any, X: Any, Y: Any, Z: Any, out: Any) -> Any:
        np.multiply(X, Y, out=out)
        out += np.float32(0.5)
        np.maximum(out, np.float32(0), out=out)
        out *= Z
        return np.subtract(out, X, out=out)

    def torch(torch: Any, X: Any, Y: Any, Z: Any, out: Any) -> Any:
        y = torch.mul(X, Y, out=out)
        return y.add_(0.5).relu_().mul_(Z).sub_(X)

    return problem(
        "O[i] = relu(X[i] * Y[i] + 0.5) * Z[i] - X[i]",
        tuple(Operand(x, "f32", (n,)) for x in "XYZ"), Operand("O", "f32", (n,)),
        lambda m, X, Y, Z: m.maximum(X * Y + 0.5, 0) * Z - X, numpy=numpy, torch=torch,
        numba=lambda loops, X, Y, Z, out: loops.chain(X, Y, Z, out),
    )  # fmt: skip


def axpy(*, n: int) -> Problem:
    """Return a scaled vector plus a vector, in f64."""
    return problem(
        "O[i] = 2.5 * X[i] + Y[i]",
        tuple(Operand(x, "f64", (n,)) for x in "XY"), Operand("O", "f64", (n,)), lambda m, X, Y: 2.5 * X + Y,
        numpy=lambda np, X, Y, out: np.add(np.multiply(X, 2.5, out=out), Y, out=out),
        torch=lambda torch, X, Y, out: torch.add(Y, X, alpha=2.5, out=out),
        numba=lambda loops, X, Y, out: loops.axpy(X, Y, out),
    )  # fmt: skip


def dot(dtype: str, *, n: int) -> Problem:
    """Return the inner product of two vectors."""
    return problem(
        "s += X[i] * Y[i]",
        tuple(Operand(x, dtype, (n,)) for x in "XY"), Operand("s", dtype, ()),
        lambda m, X, Y: m.dot(X, Y), terms=n, rule="sum",
        numpy=lambda np, X, Y, out: np.dot(X, Y, out=out), torch=lambda torch, X, Y, out: torch.dot(X, Y, out=out),
        tblis=lambda tblis, X, Y, out: tblis.contract("i,i->", X, Y),
    )  # fmt: skip


def gelu(*, n: int) -> Problem:
    """Return gelu in its exact form."""
    return problem(
        "O[i] = gelu(X[i])",
        (Operand("X", "f32", (n,)),), Operand("O", "f32", (n,)),
        lambda m, X: 0.5 * X * (1 + erf(X / np.sqrt(2.0))),
        torch=lambda torch, X, out: torch.nn.functional.gelu(X),
        jax=lambda jax, X, out: jax.nn.gelu(X, approximate=False),
    )  # fmt: skip


def swiglu(*, n: int, c: int) -> Problem:
    """Return the gate of a transformer's feed-forward layer: silu of one half of a row times the other."""

    def numpy(np: Any, X: Any, out: Any) -> Any:
        np.exp(np.negative(X[:, :c], out=out), out=out)
        out += np.float32(1)
        np.divide(X[:, :c], out, out=out)
        out *= X[:, c:]
        return out

    return problem(
        "O[n,c] = silu(X[n,c]) * X[n,c+C]  for c in 0:C",
        (Operand("X", "f32", (n, 2 * c)),), Operand("O", "f32", (n, c)),
        lambda m, X: X[:, :c] / (1 + m.exp(-X[:, :c])) * X[:, c:], fixed={"C": c}, numpy=numpy,
        torch=lambda torch, X, out: torch.mul(torch.nn.functional.silu(X[:, :c]), X[:, c:], out=out),
    )  # fmt: skip


def gather_rows(*, rows: int, n: int, c: int) -> Problem:
    """Return rows of a table."""
    return problem(
        "O[n,c] = T[index[n],c]",
        (Operand("T", "f32", (rows, c)), Operand("index", "i64", (n,), "index", rows)), Operand("O", "f32", (n, c)),
        lambda m, T, index: m.take(T, index, axis=0), rule="exact", moved=8 * n * c + 8 * n,
        numpy=lambda np, T, index, out: np.take(T, index, axis=0, out=out, mode="clip"),
        torch=lambda torch, T, index, out: torch.index_select(T, 0, index, out=out),
        numba=lambda loops, T, index, out: loops.gather_rows(T, index, out),
    )  # fmt: skip


def gather_bags(*, rows: int, n: int, k: int, c: int) -> Problem:
    """Return sums of rows of a table."""
    return problem(
        "O[n,c] += T[index[n,k],c]",
        (Operand("T", "f32", (rows, c)), Operand("index", "i64", (n, k), "index", rows)), Operand("O", "f32", (n, c)),
        lambda m, T, index: m.take(T, index, axis=0).sum(axis=1), rule="sum", terms=k,
        moved=4 * n * k * c + 8 * n * k + 4 * n * c,
        numpy=lambda np, T, index, out: np.sum(T[index], axis=1, out=out),
        torch=lambda torch, T, index, out: torch.nn.functional.embedding_bag(index, T, mode="sum"),
        numba=lambda loops, T, index, out: loops.gather_bags(T, index, out),
    )  # fmt: skip


def gather_elements(*, elements: int, n: int) -> Problem:
    """Return elements of a table; what has to move of it is whole cache lines."""
    return problem(
        "O[i] = T[index[i]]",
        (Operand("T", "f32", (elements,)), Operand("index", "i32", (n,), "index", elements)), Operand("O", "f32", (n,)),
        lambda m, T, index: m.take(T, index), rule="exact", moved=min(4 * elements, 64 * n) + 8 * n,
        numpy=lambda np, T, index, out: np.take(T, index, out=out, mode="clip"),
        torch=lambda torch, T, index, out: torch.index_select(T, 0, index, out=out),
        numba=lambda loops, T, index, out: loops.gather_elements(T, index, out),
    )  # fmt: skip


def outer_sum(*, n: int, c: int) -> Problem:
    """Return the sum of a column and a row."""
    return problem(
        "O[i,j] = X[i] + Y[j]",
        (Operand("X", "f32", (n,)), Operand("Y", "f32", (c,))), Operand("O", "f32", (n, c)),
        lambda m, X, Y: X[:, None] + Y,
        numpy=lambda np, X, Y, out: np.add(X[:, None], Y, out=out),
        torch=lambda torch, X, Y, out: torch.add(X[:, None], Y, out=out),
    )  # fmt: skip


def bias_relu(*, n: int, c: int) -> Problem:
    """Return relu of rows plus a bias."""

    def torch(torch: Any, X: Any, b: Any, out: Any) -> Any:
        return torch.relu_(torch.add(X, b, out=out))

    return problem(
        "O[i,j] = relu(X[i,j] + b[j])",
        (Operand("X", "f32", (n, c)), Operand("b", "f32", (c,))), Operand("O", "f32", (n, c)),
        lambda m, X, b: m.maximum(X + b, 0), torch=torch,
        numpy=lambda np, X, b, out: np.maximum(np.add(X, b, out=out), np.float32(0), out=out),
    )  # fmt: skip


def prefix(axis: int, *, n: int, t: int) -> Problem:
    """Return running sums, along rows (axis 1) or down the columns (axis 0)."""
    shape = (n, t) if axis else (t, n)
    first, last, now = ("b,0", "b,t-1", "b,t") if axis else ("0,b", "t-1,b", "t,b")
    return problem(
        f"S[{first}] = X[{first}]\nS[{now}] = S[{last}] + X[{now}]  for t in 1:T",
        (Operand("X", "f32", shape),), Operand("S", "f32", shape),
        lambda m, X: m.cumsum(X, axis=axis), terms=t, fixed={"T": t},
        numpy=lambda np, X, out: np.cumsum(X, axis=axis, out=out),
        torch=lambda torch, X, out: torch.cumsum(X, dim=axis, out=out),
        numba=lambda loops, X, out: (loops.prefix_rows if axis else loops.prefix_columns)(X, out),
    )  # fmt: skip


def recurrence(*, t: int, b: int) -> Problem:
    """Return a linear recurrence in time of many channels: a state-space layer."""

    def numpy(np: Any, X: Any, A: Any, out: Any) -> Any:
        out[0] = X[0]
        for n in range(1, t):
            np.multiply(A[n], out[n - 1], out=out[n])
            out[n] += X[n]
        return out

    def torch(torch: Any, X: Any, A: Any, out: Any) -> Any:
        out = torch.empty_like(X) if out is None else out
        out[0] = X[0]
        for n in range(1, t):
            torch.addcmul(X[n], A[n], out[n - 1], out=out[n])
        return out

    def jax(jax: Any, X: Any, A: Any, out: Any) -> Any:
        def step(last: Any, now: Any) -> Any:
            state = now[0] * last + now[1]
            return state, state

        return jax.lax.scan(step, jax.numpy.zeros_like(X[0]), (A, X))[1]

    return problem(
        "S[0,b] = X[0,b]\nS[t,b] = A[t,b] * S[t-1,b] + X[t,b]  for t in 1:T",
        (Operand("X", "f32", (t, b)), Operand("A", "f32", (t, b), "unit")), Operand("S", "f32", (t, b)),
        lambda m, X, A: numpy(np, X, A, np.empty_like(X)), terms=t, fixed={"T": t},
        numpy=numpy, torch=torch, jax=jax, numba=lambda loops, X, A, out: loops.recurrence(X, A, out),
    )  # fmt: skip


def transpose_add(dtype: str, *, n: int, m: int) -> Problem:
    """Return a matrix plus another's transpose."""
    return problem(
        "O[i,j] = A[i,j] + B[j,i]",
        (Operand("A", dtype, (n, m)), Operand("B", dtype, (m, n))), Operand("O", dtype, (n, m)),
        lambda m, A, B: A + B.T,
        numpy=lambda np, A, B, out: np.add(A, B.T, out=out),
        torch=lambda torch, A, B, out: torch.add(A, B.T, out=out),
        numba=lambda loops, A, B, out: loops.transpose_add(A, B, out),
    )  # fmt: skip


ROWS = {"small": {"n": 96, "c": 768}, "large": {"n": 12000, "c": 1024}}
FLAT = {"small": {"n": 40000}, "large": {"n": 12_000_000}}
# group, name, make, sizes in cache and beyond
PROGRAMS: tuple[tuple[str, str, Callable[..., Problem], dict[str, dict[str, int]]], ...] = (
    ("norms", "layer-norm", partial(layer_norm, "f32"), ROWS),
    ("norms", "layer-norm-f64", partial(layer_norm, "f64"), {"small": {"n": 60, "c": 500}, "large": {"n": 6000, "c": 1000}}),
    ("norms", "rms-norm", rms_norm, ROWS),
    ("norms", "batch-norm", batch_norm, {
        "small": {"n": 1, "c": 64, "h": 28, "w": 28}, "large": {"n": 32, "c": 128, "h": 56, "w": 56}}),
    ("softmax", "softmax", softmax, ROWS),
    ("softmax", "log-softmax", log_softmax, ROWS),
    ("elementwise", "gated", gated, FLAT),
    ("elementwise", "chain", chain, FLAT),
    ("elementwise", "axpy-f64", axpy, {"small": {"n": 20000}, "large": {"n": 6_000_000}}),
    ("elementwise", "gelu", gelu, FLAT),
    ("elementwise", "swiglu", swiglu, {"small": {"n": 48, "c": 768}, "large": {"n": 6000, "c": 1024}}),
    ("reductions", "dot", partial(dot, "f32"), FLAT),
    ("reductions", "dot-f64", partial(dot, "f64"), {"small": {"n": 20000}, "large": {"n": 6_000_000}}),
    ("gathers", "rows", gather_rows, {
        "small": {"rows": 1000, "n": 500, "c": 128}, "large": {"rows": 300_000, "n": 100_000, "c": 128}}),
    ("gathers", "bags", gather_bags, {
        "small": {"rows": 1000, "n": 64, "k": 20, "c": 64}, "large": {"rows": 500_000, "n": 8000, "k": 40, "c": 64}}),
    ("gathers", "cells", gather_elements, {
        "small": {"elements": 50_000, "n": 40_000}, "large": {"elements": 16_000_000, "n": 8_000_000}}),
    ("broadcasts", "outer-sum", outer_sum, {"small": {"n": 200, "c": 500}, "large": {"n": 4000, "c": 4100}}),
    ("broadcasts", "bias-relu", bias_relu, ROWS),
    ("recurrences", "prefix-rows", partial(prefix, 1), {"small": {"n": 100, "t": 500}, "large": {"n": 6000, "t": 2000}}),
    ("recurrences", "prefix-columns", partial(prefix, 0), {"small": {"n": 500, "t": 100}, "large": {"n": 2000, "t": 6000}}),
    ("recurrences", "linear", recurrence, {"small": {"t": 128, "b": 256}, "large": {"t": 4000, "b": 2048}}),
    ("transposes", "transpose-add", partial(transpose_add, "f32"), {
        "small": {"n": 200, "m": 240}, "large": {"n": 3000, "m": 3100}}),
    ("transposes", "transpose-add-f64", partial(transpose_add, "f64"), {
        "small": {"n": 120, "m": 160}, "large": {"n": 2000, "m": 2100}}),
)  # fmt: skip


def cases() -> Iterator[Case]:
    """Yield the family."""
    for group, name, make, sizes in PROGRAMS:
        for extent, found in sizes.items():
            yield Case(f"memory/{group}/{name}-{extent}", "memory", group, make, found)
