"""Whole programs: layers of networks and contractions of several factors, written as their users write them.

Peers have what they have for each (torch's linear, layer_norm, scaled_dot_product_attention …); torch.compile and jax fuse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from benchmarks.case import Array, Case, Operand, Problem, Spelling
from benchmarks.cases import filters, pictures
from benchmarks.einsum_case import einsum
from benchmarks.special import erf


def program(
    text: str,
    inputs: tuple[Operand, ...],
    output: Operand,
    reference: Callable[..., Any],
    *,
    terms: int,
    flops: int | None = None,
    fixed: dict[str, int] | None = None,
    **spellings: Spelling,
) -> Problem:
    """Return a problem that is compared by the size of its largest result."""
    return Problem(text, inputs, output, flops, reference, spellings, "scaled", terms, fixed or {})


def f32(name: str, *shape: int) -> Operand:
    """Return an input of normal values."""
    return Operand(name, "f32", shape)


def _gelu(x: Array) -> Array:
    return np.asarray(0.5 * x * (1 + erf(x / np.sqrt(2.0))))


def linear_gelu(*, n: int, i: int, o: int) -> Problem:
    """Return a linear layer with gelu."""
    return program(
        "O[n,o] = gelu(sum[i](X[n,i] * W[o,i]) + b[o])",
        (f32("X", n, i), f32("W", o, i), f32("b", o)), f32("O", n, o), lambda X, W, b: _gelu(X @ W.T + b),
        terms=i, flops=2 * n * i * o,
        torch=lambda torch, X, W, b, out: torch.nn.functional.gelu(torch.nn.functional.linear(X, W, b)),
        jax=lambda jax, X, W, b, out: jax.nn.gelu(X @ W.T + b, approximate=False),
    )  # fmt: skip


def mlp3(*, n: int, i: int, a: int, b: int, o: int) -> Problem:
    """Return a perceptron of three layers."""

    def reference(X: Any, U: Any, c: Any, V: Any, d: Any, W: Any, e: Any) -> Any:
        return np.maximum(np.maximum(X @ U.T + c, 0) @ V.T + d, 0) @ W.T + e

    def torch(torch: Any, X: Any, U: Any, c: Any, V: Any, d: Any, W: Any, e: Any, out: Any) -> Any:
        linear = torch.nn.functional.linear
        return linear(linear(linear(X, U, c).relu_(), V, d).relu_(), W, e)

    def jax(jax: Any, X: Any, U: Any, c: Any, V: Any, d: Any, W: Any, e: Any, out: Any) -> Any:
        return jax.nn.relu(jax.nn.relu(X @ U.T + c) @ V.T + d) @ W.T + e

    return program(
        "P[n,a] = relu(sum[i](X[n,i] * U[a,i]) + c[a])\nQ[n,b] = relu(sum[a](P[n,a] * V[b,a]) + d[b])\n"
        "O[n,o] = sum[b](Q[n,b] * W[o,b]) + e[o]",
        (f32("X", n, i), f32("U", a, i), f32("c", a), f32("V", b, a), f32("d", b), f32("W", o, b), f32("e", o)),
        f32("O", n, o), reference, terms=i + a + b, flops=2 * n * (i * a + a * b + b * o), torch=torch, jax=jax,
    )  # fmt: skip


def attention(causal: bool, *, h: int, q: int, d: int) -> Problem:
    """Return scaled attention of several heads; with `causal`, of no later key."""
    where = " where k <= q" if causal else ""
    scale = np.float32(d**-0.5)

    def reference(Q: Array, K: Array, V: Array) -> Array:
        out = np.empty_like(Q)
        later = np.arange(q) > np.arange(q)[:, None]
        for head in range(h):
            for first in range(0, q, 512):
                rows = slice(first, first + 512)
                S = Q[head, rows] @ K[head].T * d**-0.5
                if causal:
                    S[later[rows]] = -np.inf
                P = np.exp(S - S.max(1, keepdims=True))
                out[head, rows] = P @ V[head] / P.sum(1, keepdims=True)
        return out

    def jax(jax: Any, Q: Any, K: Any, V: Any, out: Any) -> Any:
        m = jax.numpy
        S = m.einsum("hqd,hkd->hqk", Q, K) * scale
        S = m.where(m.arange(q) <= m.arange(q)[:, None], S, -m.inf) if causal else S
        return m.einsum("hqk,hkd->hqd", jax.nn.softmax(S), V)

    def torch(torch: Any, Q: Any, K: Any, V: Any, out: Any) -> Any:
        heads = torch.nn.functional.scaled_dot_product_attention(Q[None], K[None], V[None], is_causal=causal)
        return heads[0].contiguous()

    return program(
        f"S[h,q,k] = sum[d](Q[h,q,d] * K[h,k,d]) * {d**-0.5}{where}\nM[h,q] max= S[h,q,k]{where}\n"
        f"P[h,q,k] = exp(S[h,q,k] - M[h,q]){where}\nL[h,q] += P[h,q,k]{where}\n"
        f"O[h,q,d] = sum[k](P[h,q,k] * V[h,k,d]{where}) / L[h,q]",
        (f32("Q", h, q, d), f32("K", h, q, d), f32("V", h, q, d)), f32("O", h, q, d), reference,
        terms=q + d, flops=4 * h * q * q * d // (2 if causal else 1), torch=torch, jax=jax,
    )  # fmt: skip


def cross_entropy(*, n: int, c: int) -> Problem:
    """Return the mean cross-entropy of rows of logits."""

    def reference(X: Array, y: Array) -> Any:
        top = X.max(1)
        return np.mean(np.log(np.exp(X - top[:, None]).sum(1)) + top - X[np.arange(n), y])

    def jax(jax: Any, X: Any, y: Any, out: Any) -> Any:
        return -jax.numpy.take_along_axis(jax.nn.log_softmax(X), y[:, None], 1).mean()

    return program(
        "L = mean[n](logsumexp[c](X[n,c]) - X[n,y[n]])",
        (f32("X", n, c), Operand("y", "i64", (n,), "index", c)), Operand("L", "f32", ()), reference, terms=n + c,
        torch=lambda torch, X, y, out: torch.nn.functional.cross_entropy(X, y), jax=jax,
        numba=lambda loops, X, y, out: loops.cross_entropy(X, y, out),
    )  # fmt: skip


def layer_norm_linear(*, n: int, c: int, o: int) -> Problem:
    """Return a linear layer of normalised rows."""

    def normalised(m: Any, X: Any, g: Any, b: Any) -> Any:
        centred = X - m.mean(X, axis=1, keepdims=True)
        return centred / m.sqrt(m.mean(centred * centred, axis=1, keepdims=True) + 1e-5) * g + b

    def torch(torch: Any, X: Any, g: Any, b: Any, W: Any, e: Any, out: Any) -> Any:
        f = torch.nn.functional
        return f.linear(f.layer_norm(X, (c,), g, b, 1e-5), W, e)

    return program(
        "m[n] = mean[c](X[n,c])\nv[n] = mean[c]((X[n,c] - m[n]) ** 2)\n"
        "Y[n,c] = (X[n,c] - m[n]) * rsqrt(v[n] + 1e-5) * g[c] + b[c]\nO[n,o] = sum[c](Y[n,c] * W[o,c]) + e[o]",
        (f32("X", n, c), f32("g", c), f32("b", c), f32("W", o, c), f32("e", o)), f32("O", n, o),
        lambda X, g, b, W, e: normalised(np, X, g, b) @ W.T + e, terms=2 * c, flops=2 * n * c * o, torch=torch,
        jax=lambda jax, X, g, b, W, e, out: normalised(jax.numpy, X, g, b) @ W.T + e,
    )  # fmt: skip


def conv_relu(*, n: int, c: int, f: int, h: int, w: int) -> Problem:
    """Return a convolution of 3 by 3 with bias and relu."""

    def reference(X: Array, K: Array, b: Array) -> Array:
        padded = np.pad(X, ((0, 0), (0, 0), (1, 1), (1, 1)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
        return np.maximum(np.einsum("nchwrs,fcrs->nfhw", windows, K, optimize=True) + b[:, None, None], 0)

    def jax(jax: Any, X: Any, K: Any, b: Any, out: Any) -> Any:
        return jax.nn.relu(jax.lax.conv(X, K, (1, 1), "SAME") + b[:, None, None])

    return program(
        "O[n,f,h,w] = relu(sum[c,r,s](X[n,c,h+r-1,w+s-1; pad=0] * K[f,c,r,s]) + b[f])  for h in 0:H, w in 0:W",
        (f32("X", n, c, h, w), f32("K", f, c, 3, 3), f32("b", f)), f32("O", n, f, h, w), reference,
        terms=9 * c, flops=18 * n * f * c * h * w, fixed={"H": h, "W": w}, jax=jax,
        torch=lambda torch, X, K, b, out: torch.nn.functional.conv2d(X, K, b, padding=1).relu_(),
    )  # fmt: skip


def gated_mlp(*, n: int, d: int, h: int) -> Problem:
    """Return a gated feed-forward layer."""

    def reference(X: Array, U: Array, V: Array, W: Array) -> Array:
        gate = X @ U.T
        return np.asarray((gate / (1 + np.exp(-gate)) * (X @ V.T)) @ W.T)

    def torch(torch: Any, X: Any, U: Any, V: Any, W: Any, out: Any) -> Any:
        f = torch.nn.functional
        return f.linear(f.silu(f.linear(X, U)) * f.linear(X, V), W)

    return program(
        "G[n,h] = silu(sum[d](X[n,d] * U[h,d])) * sum[d](X[n,d] * V[h,d])\nO[n,e] += G[n,h] * W[e,h]",
        (f32("X", n, d), f32("U", h, d), f32("V", h, d), f32("W", d, h)), f32("O", n, d), reference,
        terms=2 * d + h, flops=6 * n * d * h, torch=torch,
        jax=lambda jax, X, U, V, W, out: (jax.nn.silu(X @ U.T) * (X @ V.T)) @ W.T,
    )  # fmt: skip


def group_norm(*, n: int, g: int, c: int, h: int, w: int) -> Problem:
    """Return the normalisation of groups of channels, with scale and shift."""

    def expression(m: Any, X: Any, s: Any, b: Any) -> Any:
        centred = X - X.mean((2, 3, 4), keepdims=True)
        scale = 1 / m.sqrt((centred * centred).mean((2, 3, 4), keepdims=True) + 1e-5)
        return centred * scale * s[:, :, None, None] + b[:, :, None, None]

    def torch(torch: Any, X: Any, s: Any, b: Any, out: Any) -> Any:
        flat = X.view(n, g * c, h, w)
        return torch.nn.functional.group_norm(flat, g, s.view(-1), b.view(-1), 1e-5).view(n, g, c, h, w)

    return program(
        "m[n,g] = mean[c,h,w](X[n,g,c,h,w])\nv[n,g] = mean[c,h,w]((X[n,g,c,h,w] - m[n,g]) ** 2)\n"
        "O[n,g,c,h,w] = (X[n,g,c,h,w] - m[n,g]) * rsqrt(v[n,g] + 1e-5) * s[g,c] + b[g,c]",
        (f32("X", n, g, c, h, w), f32("s", g, c), f32("b", g, c)), f32("O", n, g, c, h, w),
        partial(expression, np), terms=c * h * w, torch=torch,
        jax=lambda jax, X, s, b, out: expression(jax.numpy, X, s, b),
    )  # fmt: skip


def moments(dtype: str, *, n: int, c: int) -> Problem:
    """Return the mean and the variance of rows, in two columns."""

    def expression(m: Any, X: Any) -> Any:
        return m.stack((m.mean(X, 1), m.var(X, 1)), 1)

    return program(
        "m[n] = mean[c](X[n,c])\nM[n,0] = m[n]\nM[n,1] = mean[c](X[n,c] ** 2) - m[n] ** 2",
        (Operand("X", dtype, (n, c)),), Operand("M", dtype, (n, 2)), partial(expression, np), terms=c,
        torch=lambda torch, X, out: torch.stack(torch.var_mean(X, 1, correction=0)[::-1], 1, out=out),
        jax=lambda jax, X, out: expression(jax.numpy, X), numba=lambda loops, X, out: loops.moments(X, out),
    )  # fmt: skip


def variance(*, n: int) -> Problem:
    """Return the variance of a long row."""
    return program(
        "v = mean[k]((x[k] - mean[l](x[l])) ** 2)", (f32("x", n),), f32("v"), lambda x: x.var(), terms=n,
        torch=lambda torch, x, out: torch.var(x, correction=0), jax=lambda jax, x, out: jax.numpy.var(x),
        numba=lambda loops, x, out: loops.variance(x, out), numpy=lambda np, x, out: np.var(x),
    )  # fmt: skip


def place(*, n: int) -> Problem:
    """Return where the greatest value of a long row is."""
    return program(
        "p = argmax[k](x[k])", (f32("x", n),), Operand("p", "i64", ()), lambda x: x.argmax(), terms=n,
        torch=lambda torch, x, out: torch.argmax(x), jax=lambda jax, x, out: jax.numpy.argmax(x),
        numba=lambda loops, x, out: loops.place(x, out), numpy=lambda np, x, out: np.argmax(x),
    )  # fmt: skip


def bilinear(*, n: int, o: int, i: int, j: int) -> Problem:
    """Return a bilinear layer."""
    whole = "ni,oij,nj->no"
    return program(
        "O[n,o] = sum[i,j](X[n,i] * W[o,i,j] * Y[n,j]) + b[o]",
        (f32("X", n, i), f32("W", o, i, j), f32("Y", n, j), f32("b", o)), f32("O", n, o),
        lambda X, W, Y, b: np.einsum(whole, X, W, Y, optimize=True) + b, terms=i * j, flops=2 * n * o * (i * j + j),
        torch=lambda torch, X, W, Y, b, out: torch.nn.functional.bilinear(X, Y, W, b),
        jax=lambda jax, X, W, Y, b, out: jax.numpy.einsum(whole, X, W, Y, optimize="optimal") + b,
    )  # fmt: skip


SHORT, LONG = {"h": 8, "q": 384, "d": 64}, {"h": 16, "q": 1024, "d": 64}
# group, name, make, sizes
PROGRAMS: tuple[tuple[str, str, Callable[..., Problem], dict[str, int]], ...] = (
    ("linear", "linear-gelu", linear_gelu, {"n": 384, "i": 768, "o": 3072}),
    ("linear", "mlp3", mlp3, {"n": 2048, "i": 128, "a": 64, "b": 32, "o": 2}),
    ("linear", "layer-norm-linear", layer_norm_linear, {"n": 512, "c": 768, "o": 768}),
    ("linear", "gated-mlp", gated_mlp, {"n": 256, "d": 512, "h": 1376}),
    ("linear", "bilinear", bilinear, {"n": 128, "o": 64, "i": 128, "j": 96}),
    ("attention", "attention-8x384", partial(attention, False), SHORT),
    ("attention", "attention-8x384-causal", partial(attention, True), SHORT),
    ("attention", "attention-16x1024", partial(attention, False), LONG),
    ("attention", "attention-16x1024-causal", partial(attention, True), LONG),
    ("rows", "cross-entropy", cross_entropy, {"n": 4096, "c": 1000}),
    ("rows", "cross-entropy-words", cross_entropy, {"n": 256, "c": 32000}),
    ("rows", "group-norm", group_norm, {"n": 8, "g": 16, "c": 8, "h": 28, "w": 28}),
    ("rows", "moments", partial(moments, "f32"), {"n": 4096, "c": 1024}),
    ("rows", "moments-f64", partial(moments, "f64"), {"n": 4096, "c": 1024}),
    ("rows", "moments-small", partial(moments, "f32"), {"n": 128, "c": 1024}),
    ("convolution", "conv-relu", conv_relu, {"n": 2, "c": 64, "f": 64, "h": 56, "w": 56}),
    ("tensors", "kronecker3", partial(einsum, "mijk,ai,bj,ck->mabc", "f32"),
     {"m": 256, "i": 16, "j": 16, "k": 32, "a": 16, "b": 16, "c": 32}),
    ("tensors", "mttkrp4", partial(einsum, "ijkl,jr,kr,lr->ir", "f32"), {"i": 50, "j": 60, "k": 40, "l": 70, "r": 32}),
    ("tensors", "tucker", partial(einsum, "ijk,ai,bj,ck->abc", "f32"),
     {"i": 160, "j": 180, "k": 200, "a": 32, "b": 24, "c": 40}),
    ("filters", "gated-rows", partial(filters.gated, "f32"), {"n": 100, "t": 500}),
    ("filters", "gated-rows-f64", partial(filters.gated, "f64"), {"n": 100, "t": 500}),
    ("filters", "second-order", filters.second_order, {"n": 100, "t": 500}),
    ("filters", "state-space", filters.state_space, {"t": 1000, "n": 256}),
    ("types", "f32-f64", partial(filters.mixed, "f32", "f64"), {"i": 200, "k": 201, "j": 202}),
    ("pictures", "blur", pictures.blur, {"h": 2048, "w": 2048}),
    ("pictures", "gauss", pictures.gauss, {"h": 2048, "w": 2048}),
    ("pictures", "harris", pictures.harris, {"h": 2048, "w": 2048}),
    ("beyond", "attention-8x8192", partial(attention, False), {"h": 8, "q": 8192, "d": 64}),
    ("beyond", "variance-long", variance, {"n": 10**7}),
    ("beyond", "argmax-long", place, {"n": 10**7}),
    ("beyond", "blur-12000", pictures.blur, {"h": 12000, "w": 12000}),
    ("beyond", "chain", pictures.chain, {"h": 5000, "w": 5000}),
    ("beyond", "state-space-long", filters.state_space, {"t": 2000, "n": 6000}),
)  # fmt: skip


def cases() -> Iterator[Case]:
    """Yield the family."""
    for group, name, make, sizes in PROGRAMS:
        yield Case(f"programs/{group}/{name}", "programs", group, make, sizes)
