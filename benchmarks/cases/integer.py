"""Sums of products of narrow integers in i32: products of matrices, with a vector, of vectors, convolutions.

A peer may go through floats where these are exact: f32 up to 2^24, f64 beyond.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from benchmarks.case import Case, Operand, Problem

CUBES = (64, 128, 256, 512, 1024)
ODD = (63, 129, 255, 513, 1001)
LINEAR = ((1, 1024, 1024), (16, 1024, 1024), (128, 768, 768), (1024, 1024, 1024))  # rows, outputs, inputs
VECTORS = ((256, 256), (1000, 1000), (4096, 4096))
DOTS = (10_000, 1_000_000)
# channels, filters, extent of the image, extent of the filter
LAYERS = ((64, 64, 56, 1), (64, 64, 56, 3), (128, 128, 28, 3), (512, 128, 28, 1), (256, 256, 14, 3), (256, 1024, 14, 1))
PAIRS = (("i8", "i8"), ("u8", "i8"))
# The values of 16 bits are so small that a sum fits in i32.
LARGEST = {"i8": 128, "u8": 256, "i16": 1024}


def _exact(dtype: str, terms: int) -> str:
    """Return the float type in which sums of so many products are exact."""
    return "float32" if terms * LARGEST[dtype] ** 2 <= 1 << 24 else "float64"


def _operand(name: str, dtype: str, shape: tuple[int, ...]) -> Operand:
    return Operand(name, dtype, shape, "whole", LARGEST[dtype])


def product(left: str, right: str, *, i: int, j: int, k: int, turned: bool = False) -> Problem:
    """Return a product of matrices; `turned`: the second is given by its columns, as a layer's weights are."""
    kind = _exact(left, k)

    def second(B: Any) -> Any:
        return B.T if turned else B

    def numpy(np: Any, A: Any, B: Any, out: Any) -> Any:
        out[...] = A.astype(kind) @ second(B).astype(kind)
        return out

    def torch(torch: Any, A: Any, B: Any, out: Any) -> Any:
        if left == right == "i8" and i > 16:
            return torch._int_mm(A, second(B)) if out is None else torch._int_mm(A, second(B), out=out)
        floats = getattr(torch, kind)
        return (A.to(floats) @ second(B).to(floats)).to(torch.int32)

    def jax(jax: Any, A: Any, B: Any, out: Any) -> Any:
        dimensions = (((1,), (1 if turned else 0,)), ((), ()))
        return jax.lax.dot_general(A, B, dimensions, preferred_element_type="int32")

    return Problem(
        text=f"C[i,j] += i32(A[i,k]) * i32({'B[j,k]' if turned else 'B[k,j]'})",
        inputs=(_operand("A", left, (i, k)), _operand("B", right, (j, k) if turned else (k, j))),
        output=Operand("C", "i32", (i, j)),
        flops=2 * i * j * k,
        reference=lambda A, B: A.astype(np.int64) @ second(B).astype(np.int64),
        spellings={"numpy": numpy, "torch": torch, **({"jax": jax} if left == right else {})},
        rule="exact",
        terms=k,
    )


def matvec(left: str, right: str, *, i: int, k: int) -> Problem:
    """Return a product of a matrix and a vector."""
    kind = _exact(left, k)

    def numpy(np: Any, A: Any, x: Any, out: Any) -> Any:
        out[...] = A.astype(kind) @ x.astype(kind)
        return out

    return Problem(
        text="y[i] += i32(A[i,k]) * i32(x[k])",
        inputs=(_operand("A", left, (i, k)), _operand("x", right, (k,))),
        output=Operand("y", "i32", (i,)),
        flops=2 * i * k,
        reference=lambda A, x: A.astype(np.int64) @ x.astype(np.int64),
        spellings={
            "numpy": numpy,
            "torch": lambda torch, A, x, out: (A.to(torch.int32) * x.to(torch.int32)).sum(1, dtype=torch.int32),
            "numba": lambda loops, A, x, out: loops.integer_matvec(A, x, out),
        },
        rule="exact",
        terms=k,
    )


def dot(left: str, right: str, *, k: int) -> Problem:
    """Return a product of two vectors."""

    def numpy(np: Any, x: Any, y: Any, out: Any) -> Any:
        out[...] = np.dot(x.astype("float64"), y.astype("float64"))
        return out

    return Problem(
        text="s[] += i32(x[k]) * i32(y[k])",
        inputs=(Operand("x", left, (k,), "whole", 16), Operand("y", right, (k,), "whole", 16)),
        output=Operand("s", "i32", ()),
        flops=2 * k,
        reference=lambda x, y: np.dot(x.astype(np.int64), y.astype(np.int64)),
        spellings={"numpy": numpy, "numba": lambda loops, x, y, out: loops.integer_dot(x, y, out)},
        rule="exact",
        terms=k,
    )


def convolution(left: str, right: str, *, C: int, F: int, H: int, W: int, R: int) -> Problem:
    """Return a 2-d convolution of one image in CHW order, padded to its own extent."""
    pad, kind = R // 2, _exact(left, C * R * R)

    def patches(X: Any) -> Any:
        wide = np.pad(X, ((0, 0), (pad, pad), (pad, pad)))
        return sliding_window_view(wide, (R, R), axis=(1, 2)).transpose(0, 3, 4, 1, 2).reshape(C * R * R, H * W)

    def numpy(np: Any, X: Any, K: Any, out: Any) -> Any:
        columns = X.reshape(C, H * W) if R == 1 else patches(X)
        out.reshape(F, H * W)[...] = K.reshape(F, C * R * R).astype(kind) @ columns.astype(kind)
        return out

    def torch(torch: Any, X: Any, K: Any, out: Any) -> Any:
        if left == right == "i8":
            wide = torch.nn.functional.pad(X, (pad,) * 4) if pad else X
            columns = wide.unfold(1, R, 1).unfold(2, R, 1).permute(0, 3, 4, 1, 2).reshape(C * R * R, H * W)
            return torch._int_mm(K.reshape(F, C * R * R), columns).reshape(F, H, W)
        floats = getattr(torch, kind)
        return torch.nn.functional.conv2d(X[None].to(floats), K.to(floats), padding=pad)[0].to(torch.int32)

    def jax(jax: Any, X: Any, K: Any, out: Any) -> Any:
        found = jax.lax.conv_general_dilated(X[None], K, (1, 1), [(pad, pad)] * 2, preferred_element_type="int32")
        return found[0]

    rows, columns = ("h+r", "w+s") if R == 1 else (f"h+r-{pad}", f"w+s-{pad}; pad=0")
    return Problem(
        text=f"O[f,h,w] += i32(X[c,{rows},{columns}]) * i32(K[f,c,r,s])  for h in 0:{H}, w in 0:{W}",
        inputs=(_operand("X", left, (C, H, W)), _operand("K", right, (F, C, R, R))),
        output=Operand("O", "i32", (F, H, W)),
        flops=2 * F * H * W * C * R * R,
        reference=lambda X, K: (
            K.reshape(F, C * R * R).astype(np.int64) @ patches(X.astype(np.int64))
        ).reshape(F, H, W),
        spellings={"numpy": numpy, "torch": torch, **({"jax": jax} if left == right else {})},
        rule="exact",
        terms=C * R * R,
    )  # fmt: skip


def cases() -> Iterator[Case]:
    """Yield the family."""
    for left, right in (*PAIRS, ("i16", "i16")):
        kinds = f"{left}-{right}"
        for n in CUBES + ODD:
            group = "cubes" if n in CUBES else "odd"
            yield Case(
                f"integer/{group}/{kinds}/{n}",
                "integer",
                group,
                partial(product, left, right),
                {"i": n, "j": n, "k": n},
            )
        for i, j, k in LINEAR:
            yield Case(
                f"integer/linear/{kinds}/{i}x{j}x{k}", "integer", "linear", partial(product, left, right),
                {"i": i, "j": j, "k": k}, {"turned": True},
            )  # fmt: skip
        for i, k in VECTORS:
            yield Case(
                f"integer/matvec/{kinds}/{i}x{k}", "integer", "matvec", partial(matvec, left, right), {"i": i, "k": k}
            )
        for k in DOTS:
            yield Case(f"integer/dot/{kinds}/{k}", "integer", "dot", partial(dot, left, right), {"k": k})
    for left, right in PAIRS:
        for c, f, h, r in LAYERS:
            yield Case(
                f"integer/conv/{left}-{right}/{c}-{f}-{h}-{r}x{r}", "integer", "conv", partial(convolution, left, right),
                {"C": c, "F": f, "H": h, "W": h}, {"R": r},
            )  # fmt: skip
