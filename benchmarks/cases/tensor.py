"""Tensor operators: MTTKRP, mode products, Tucker, bilinear, outer products, diagonals, traces, sums, permutations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import permutations
from typing import Any

import numpy as np

from benchmarks.case import Case, Operand, Problem
from benchmarks.einsum_case import einsum

MTTKRP = (
    ("rank3-mode0", "ijk,jr,kr->ir"), ("rank3-mode1", "ijk,ir,kr->jr"), ("rank3-mode2", "ijk,ir,jr->kr"),
    ("rank4-mode0", "ijkl,jr,kr,lr->ir"), ("rank4-mode1", "ijkl,ir,kr,lr->jr"),
    ("rank4-mode2", "ijkl,ir,jr,lr->kr"), ("rank4-mode3", "ijkl,ir,jr,kr->lr"),
)  # fmt: skip
TTM = (
    ("rank3-mode0", "ijk,ai->ajk"), ("rank3-mode1", "ijk,aj->iak"), ("rank3-mode2", "ijk,ak->ija"),
    ("rank4-mode0", "ijkl,ai->ajkl"), ("rank4-mode1", "ijkl,aj->iakl"),
    ("rank4-mode2", "ijkl,ak->ijal"), ("rank4-mode3", "ijkl,al->ijka"),
)  # fmt: skip
RANK3 = {"small": {"i": 40, "j": 48, "k": 56}, "large": {"i": 200, "j": 180, "k": 220}}
RANK4 = {"small": {"i": 12, "j": 16, "k": 14, "l": 18}, "large": {"i": 50, "j": 60, "k": 40, "l": 70}}
PERMUTED = {"small": {"i": 16, "j": 12, "k": 20, "l": 24}, "large": {"i": 64, "j": 48, "k": 56, "l": 80}}

EINSUMS = (
    ("bilinear", "128", "bi,oij,bj->bo", {"b": 64, "o": 32, "i": 128, "j": 128}),
    ("bilinear", "form", "bi,ij,bj->b", {"b": 512, "i": 256, "j": 256}),
    ("outer", "small", "i,j->ij", {"i": 200, "j": 240}),
    ("outer", "large", "i,j->ij", {"i": 4000, "j": 4096}),
    ("outer", "kronecker", "ij,kl->ikjl", {"i": 40, "j": 48, "k": 56, "l": 64}),
    ("outer", "batched", "bi,bj->bij", {"b": 256, "i": 64, "j": 96}),
    ("diagonals", "extract", "ii->i", {"i": 3000}),
    ("diagonals", "extract-batched", "bii->bi", {"b": 200, "i": 150}),
    ("diagonals", "sum", "ii->", {"i": 3000}),
    ("diagonals", "sum-batched", "bii->b", {"b": 500, "i": 120}),
    ("partial-traces", "outer-pair", "ijik->jk", {"i": 40, "j": 60, "k": 80}),
    ("partial-traces", "inner-pair", "bijj->bi", {"b": 60, "i": 50, "j": 70}),
    ("partial-traces", "ends", "abca->bc", {"a": 60, "b": 50, "c": 70}),
    ("partial-traces", "product", "aibi,ij->abj", {"a": 64, "b": 48, "i": 40, "j": 56}),
    ("khatri-rao", "columns-small", "ir,jr->ijr", {"i": 40, "j": 50, "r": 32}),
    ("khatri-rao", "columns-large", "ir,jr->ijr", {"i": 400, "j": 500, "r": 64}),
    ("khatri-rao", "rows-small", "ri,rj->rij", {"r": 32, "i": 40, "j": 50}),
    ("khatri-rao", "rows-large", "ri,rj->rij", {"r": 64, "i": 400, "j": 500}),
    ("sums", "2d-axis0-small", "ij->j", {"i": 300, "j": 400}),
    ("sums", "2d-axis1-small", "ij->i", {"i": 300, "j": 400}),
    ("sums", "2d-all-small", "ij->", {"i": 300, "j": 400}),
    ("sums", "2d-axis0-large", "ij->j", {"i": 4000, "j": 4200}),
    ("sums", "2d-axis1-large", "ij->i", {"i": 4000, "j": 4200}),
    ("sums", "2d-all-large", "ij->", {"i": 4000, "j": 4200}),
)  # fmt: skip


def tucker(dtype: str, *, i: int, j: int, k: int, a: int, b: int, c: int) -> Problem:
    """Return the projection of a tensor of rank 3 on three factors, one mode after the other."""
    whole = "ijk,ai,bj,ck->abc"

    def numpy(np: Any, X: Any, W: Any, V: Any, U: Any, out: Any) -> Any:
        np.matmul(U, (V @ (X @ W.T)).reshape(i, b * c), out=out.reshape(a, b * c))
        return out

    return Problem(
        text="P[i,j,c] += X[i,j,k] * W[c,k]\nQ[i,b,c] += P[i,j,c] * V[b,j]\nC[a,b,c] += Q[i,b,c] * U[a,i]",
        inputs=tuple(Operand(n, dtype, s) for n, s in (("X", (i, j, k)), ("W", (c, k)), ("V", (b, j)), ("U", (a, i)))),
        output=Operand("C", dtype, (a, b, c)),
        flops=2 * c * (i * j * k + i * j * b + i * b * a),
        reference=lambda X, W, V, U: np.einsum(whole, X, U, V, W, optimize=True),
        spellings={
            "numpy": numpy,
            "torch": lambda torch, X, W, V, U, out: (U @ (V @ (X @ W.T)).reshape(i, b * c)).reshape(a, b, c),
            "jax": lambda jax, X, W, V, U, out: jax.numpy.einsum(whole, X, U, V, W, optimize="optimal"),
            "tblis": lambda tblis, X, W, V, U, out: tblis.einsum(whole, X, U, V, W, out=out),
        },
        terms=i + j + k + 4,
    )  # fmt: skip


def cases() -> Iterator[Case]:
    """Yield the family."""

    def case(group: str, name: str, make: Callable[..., Problem], sizes: dict[str, int], dtype: str = "f32") -> Case:
        return Case(f"tensor/{group}/{dtype}/{name}", "tensor", group, make, sizes)

    def plain(subscripts: str, dtype: str = "f32") -> Any:
        return partial(einsum, subscripts, dtype)

    for extent in ("small", "large"):
        for name, subscripts in MTTKRP:
            sizes = (RANK3 if name.startswith("rank3") else RANK4)[extent] | {"r": 32}
            yield case("mttkrp", f"{name}-{extent}", plain(subscripts), sizes)
        for name, subscripts in TTM:
            sizes = (RANK3 if name.startswith("rank3") else RANK4)[extent] | {"a": 24}
            yield case("ttm", f"{name}-{extent}", plain(subscripts), sizes)
    yield case("mttkrp", "rank3-mode1-large", plain(MTTKRP[1][1], "f64"), RANK3["large"] | {"r": 16}, "f64")
    yield case("ttm", "rank3-mode1-large", plain(TTM[1][1], "f64"), RANK3["large"] | {"a": 32}, "f64")
    yield case("tucker", "small", partial(tucker, "f32"), {"i": 32, "j": 40, "k": 48, "a": 8, "b": 10, "c": 12})
    yield case("tucker", "large", partial(tucker, "f32"), {"i": 160, "j": 180, "k": 200, "a": 32, "b": 24, "c": 40})
    for group, name, subscripts, extents in EINSUMS:
        yield case(group, name, plain(subscripts), extents)
    for extent, sizes in (("small", {"i": 40, "j": 50, "k": 60}), ("large", {"i": 250, "j": 240, "k": 260})):
        for axes, target in (("0", "jk"), ("1", "ik"), ("2", "ij"), ("01", "k"), ("02", "j"), ("12", "i")):
            yield case("sums", f"3d-axes{axes}-{extent}", plain(f"ijk->{target}"), sizes)
    yield case("sums", "2d-axis1-large", plain("ij->i", "f64"), {"i": 2000, "j": 4200}, "f64")
    yield case("sums", "2d-axis0-large", plain("ij->j", "f64"), {"i": 2000, "j": 4200}, "f64")
    for extent, sizes in PERMUTED.items():
        for order in permutations("ijkl"):
            name = "".join(str("ijkl".index(x)) for x in order)
            yield case("permutations", f"{name}-{extent}", plain(f"ijkl->{''.join(order)}"), sizes)
