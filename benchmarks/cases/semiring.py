"""Products over other semirings than (+, x), and pairwise distances, all computed as they are written.

Squared distances by |a|^2 + |b|^2 - 2ab are another algorithm, which loses every digit of near points: no contestant uses it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from msgspec import Struct

from benchmarks.case import Case, Operand, Problem, Spelling

SHAPES = ((128, 128, 128), (512, 512, 512), (1000, 1100, 24), (17, 2000, 300))  # i, j, k


def _rows(combine: Callable[..., Any], reduce: Callable[..., Any]) -> Spelling:
    """Return numpy's spelling: row by row, because a cube of intermediates would not fit in a cache."""

    def run(np: Any, A: Any, B: Any, out: Any) -> Any:
        for i in range(A.shape[0]):
            reduce(np, combine(np, A[i], B), out[i])
        return out

    return run


def _cube(combine: Callable[..., Any], reduce: Callable[..., Any], *, matrix: bool) -> Callable[..., Any]:
    """Return the spelling by broadcasting (jax fuses it), with the reduced axis last or, of a matrix product, first."""

    def run(m: Any, A: Any, B: Any) -> Any:
        left = A[:, :, None] if matrix else A[:, None, :]
        return reduce(m, combine(m, left, B[None]), 1 if matrix else 2)

    return run


class Kind(Struct, frozen=True):
    """A kind of product. `combine(m, a, b)`, `reduce(m, x, axis)` in numpy's or jax's functions; `matrix`: B is [k,j].

    `numpy(np, x, out)` reduces an array over its reduced axis; `torch`: the whole spelling; `numba`: a nest of benchmarks.loops.
    """

    text: str
    matrix: bool
    combine: Callable[..., Any]
    reduce: Callable[..., Any]
    numpy: Callable[..., Any]
    torch: Spelling
    numba: str
    flops: int = 2
    rule: str = "scaled"
    dtype: str = "f32"
    output: str = "f32"


def _add(m: Any, a: Any, b: Any) -> Any:
    return a + b if a.ndim > 1 else a[:, None] + b


KINDS = {
    "max-plus": Kind(
        "C[i,j] max= A[i,k] + B[k,j]", True, _add,
        lambda m, x, axis: m.max(x, axis=axis), lambda np, x, out: np.max(x, axis=0, out=out),
        lambda torch, A, B, out: torch.amax(A[:, :, None] + B, dim=1, out=out), "max_plus",
    ),
    "min-plus": Kind(
        "C[i,j] min= A[i,k] + B[k,j]", True, _add,
        lambda m, x, axis: m.min(x, axis=axis), lambda np, x, out: np.min(x, axis=0, out=out),
        lambda torch, A, B, out: torch.amin(A[:, :, None] + B, dim=1, out=out), "min_plus",
    ),
    "max-min": Kind(
        "C[i,j] max= minimum(A[i,k], B[k,j])", True,
        lambda m, a, b: m.minimum(a if a.ndim > 1 else a[:, None], b),
        lambda m, x, axis: m.max(x, axis=axis), lambda np, x, out: np.max(x, axis=0, out=out),
        lambda torch, A, B, out: torch.amax(torch.minimum(A[:, :, None], B), dim=1, out=out), "max_min",
    ),
    "l1": Kind(
        "C[i,j] += abs(A[i,k] - B[j,k])", False, lambda m, a, b: abs(a - b),
        lambda m, x, axis: m.sum(x, axis=axis), lambda np, x, out: np.sum(x, axis=1, out=out),
        lambda torch, A, B, out: torch.cdist(A, B, p=1.0), "l1", flops=3,
    ),
    "squared": Kind(
        "C[i,j] += (A[i,k] - B[j,k]) ** 2", False, lambda m, a, b: (a - b) ** 2,
        lambda m, x, axis: m.sum(x, axis=axis), lambda np, x, out: np.sum(x, axis=1, out=out),
        lambda torch, A, B, out: torch.sum((A[:, None] - B) ** 2, dim=2, out=out), "squared", flops=3,
    ),
    "chebyshev": Kind(
        "C[i,j] max= abs(A[i,k] - B[j,k])", False, lambda m, a, b: abs(a - b),
        lambda m, x, axis: m.max(x, axis=axis), lambda np, x, out: np.max(x, axis=1, out=out),
        lambda torch, A, B, out: torch.cdist(A, B, p=float("inf")), "chebyshev", flops=3,
    ),
    "logsumexp": Kind(
        "C[i,j] = logsumexp[k](A[i,k] + B[k,j])", True, _add,
        lambda m, x, axis: _logsumexp(m, x, axis), lambda np, x, out: _logsumexp_into(np, x, out),
        lambda torch, A, B, out: torch.logsumexp(A[:, :, None] + B, dim=1, out=out), "logsumexp",
        flops=4,  # add, maximum, exp, add
    ),
    "any-and": Kind(
        "C[i,j] any= A[i,k] and B[k,j]", True, lambda m, a, b: (a if a.ndim > 1 else a[:, None]) & b,
        lambda m, x, axis: m.any(x, axis=axis), lambda np, x, out: np.any(x, axis=0, out=out),
        lambda torch, A, B, out: torch.gt(A.float() @ B.float(), 0, out=out), "any_and",
        rule="exact", dtype="bool", output="bool",
    ),
    "argmax-plus": Kind(
        "C[i,j] = argmax[k](A[i,k] + B[k,j])", True, _add,
        lambda m, x, axis: m.argmax(x, axis=axis), lambda np, x, out: np.argmax(x, axis=0, out=out),
        lambda torch, A, B, out: torch.argmax(A[:, :, None] + B, dim=1), "argmax_plus",
        rule="index", output="i64",
    ),
}  # fmt: skip


def _logsumexp(m: Any, x: Any, axis: int) -> Any:
    largest = m.max(x, axis=axis, keepdims=True)
    return m.log(m.sum(m.exp(x - largest), axis=axis)) + m.squeeze(largest, axis)


def _logsumexp_into(np: Any, x: Any, out: Any) -> Any:
    largest = x.max(axis=0)
    np.subtract(x, largest, out=x)
    np.exp(x, out=x)
    np.log(np.sum(x, axis=0, out=out), out=out)
    return np.add(out, largest, out=out)


def _float_product(np: Any, A: Any, B: Any, out: Any) -> Any:
    """Return the boolean product by counting in float32, exact up to 2^24 terms: a BLAS is faster than logic."""
    return np.greater(A.astype(np.float32) @ B.astype(np.float32), 0, out=out)


def product(kind: str, *, i: int, j: int, k: int) -> Problem:
    """Return the problem of one kind."""
    it = KINDS[kind]
    cube = _cube(it.combine, it.reduce, matrix=it.matrix)
    rows = _rows(it.combine, it.numpy)
    values = "bool" if it.dtype == "bool" else "normal"

    def reference(A: Any, B: Any) -> Any:
        return rows(np, A, B, np.empty((i, j), {"bool": bool, "i64": np.int64}.get(it.output, np.float64)))

    def jax(jax: Any, A: Any, B: Any, out: Any) -> Any:
        if kind == "any-and":
            return A.astype("float32") @ B.astype("float32") > 0
        return cube(jax.numpy, A, B)

    return Problem(
        text=it.text,
        inputs=(
            Operand("A", it.dtype, (i, k), values),
            Operand("B", it.dtype, (k, j) if it.matrix else (j, k), values),
        ),
        output=Operand("C", it.output, (i, j)),
        flops=it.flops * i * j * k,
        reference=reference,
        spellings={
            "numpy": _float_product if kind == "any-and" else rows,
            "torch": it.torch,
            "jax": jax,
            "numba": lambda loops, A, B, out: getattr(loops, it.numba)(A, B, out),
        },
        rule=it.rule,
        terms=k,
    )


def cases() -> Iterator[Case]:
    """Yield the family."""
    for kind in KINDS:
        for i, j, k in SHAPES:
            name = f"semiring/{kind}/{i}x{j}x{k}"
            yield Case(name, "semiring", kind, partial(product, kind), {"i": i, "j": j, "k": k})
