"""Kernels of symbolic sizes compute what kernels of fixed sizes do, for sizes of their class and for the least of it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polyker as pk
from tests.artifacts import compiled_of, generated

HEAT = """heat(A: f64[N,M], steps) -> A:
    for t in 0:steps:
        B[i,j] = 0.25*(A[i-1,j;pad=wrap]+A[i+1,j;pad=wrap]+A[i,j-1;pad=edge]+A[i,j+1;pad=edge]) for i in 0:N, j in 0:M
        A[i,j] = B[i,j] for i in 0:N, j in 0:M"""
SEIDEL = """seidel(A: f64[N,M], steps) -> A:
    for t in 0:steps:
        A[i,j] = (A[i-1,j]+A[i,j-1]+A[i,j]+A[i,j+1]+A[i+1,j])/5 for i in 1:N-1, j in 1:M-1"""
EDITS = """edits(X: i64[N], Y: i64[M]) -> D:
    D[i,0] = i for i in 0:N+1
    D[0,j] = j for j in 1:M+1
    D[i,j] = minimum(minimum(D[i-1,j]+1, D[i,j-1]+1), D[i-1,j-1] + where(X[i-1]==Y[j-1], 0, 1)) for i in 1:N+1, j in 1:M+1"""
FILTER = """iir(X: f64[N,M], a: f64[4]) -> Y:
    Y[n,t] = X[n,t] - sum[k in 1:4](a[k]*Y[n,t-k; pad=0]) for n in 0:N, t in 0:M"""
BLUR = """blur(X: f64[N,M], K: f64[3,3]) -> Z:
    Y[i,j] = 2*X[i,j]
    Z[i,j] = sum[a in 0:3, b in 0:3](K[a,b]*Y[i+a-1,j+b-1; pad=reflect]) for i in 0:N, j in 0:M"""
SIZES = st.one_of(st.integers(33, 36), st.integers(33, 90), st.sampled_from([1, 2, 17, 32, 64, 65, 128]))
# A text, the shapes of its arrays by two sizes, and what is given by keyword.
FAMILIES = {
    "periodic stencil": (HEAT, lambda n, m: [(n, m)], {"steps": 3}),
    "Gauss-Seidel": (SEIDEL, lambda n, m: [(n + 2, m + 2)], {"steps": 2}),
    "edit distance": (EDITS, lambda n, m: [(n,), (m,)], {}),
    "recurrence with taps": (FILTER, lambda n, m: [(n, m), (4,)], {}),
    "padded window over a value": (BLUR, lambda n, m: [(n + 1, m + 1), (3, 3)], {}),
    "strided convolution": ("O[f,h] += X[c,2*h+r] * K[f,c,r]", lambda n, m: [(n, m + 3), (9, n, 3)], {}),
    "transposed convolution": ("O[f,2*h+r] += X[c,h] * K[c,f,r]", lambda n, m: [(n, m), (n, 9, 3)], {}),
    "overlap and add": ("O[16*s+k] += F[s,k] * W[k]", lambda n, m: [(n, m + 16), (m + 16,)], {}),
    "chain": ("O[i,l] += A[i,j] * B[j,k] * C[k,l]", lambda n, m: [(n, m), (m, n), (n, m)], {}),
    "scaled rows woven": ("O[i,0] = X[i,0] - Y[i]; O[i,1] = X[i,1] + Y[i]", lambda n, m: [(n, 2), (n,)], {}),
    "every second": ("O[i] = X[2*i] - X[2*i+1] for i in 0:N", lambda n, m: [(2 * n,)], "N"),
    "every third": ("O[i] += X[3*i+r] * K[r] for i in 0:N", lambda n, m: [(3 * n + 1,), (4,)], "N"),
}


def symbols(shapes: list[tuple[int, ...]], fixed: list[tuple[int, ...]]) -> list[tuple[int | str, ...]]:
    """Return the shapes with a name for each extent that differs with the sizes."""
    return [
        tuple(f"n{a}_{d}" if x != y else x for d, (x, y) in enumerate(zip(s, t, strict=True)))
        for a, (s, t) in enumerate(zip(shapes, fixed, strict=True))
    ]


@pytest.mark.parametrize("name", FAMILIES)
@settings(deadline=None, max_examples=2)
@given(st.data())
def test_symbolic_kernels_compute_what_fixed_ones_do(name: str, data: st.DataObject) -> None:
    text, shapes_of, keyword = FAMILIES[name]
    op, sizes = pk.op(text), data.draw(st.tuples(SIZES, SIZES))
    shapes = shapes_of(*sizes)
    rng = np.random.default_rng(sum(sizes))
    kind = pk.i64 if name == "edit distance" else pk.f64
    arrays = [rng.integers(0, 4, s) if kind is pk.i64 else rng.normal(size=s) / 4 for s in shapes]
    given_sizes = {keyword: sizes[0]} if isinstance(keyword, str) else keyword
    want = op.compile(*arrays, **given_sizes)(*arrays)
    if op.program.parameters != op.program.inputs and text.startswith(("heat", "seidel", "edits", "iir", "blur")):
        symbolic = op.compile()
    else:
        symbolic = op.compile(*(kind[t] for t in symbols(shapes, shapes_of(sizes[0] + 3, sizes[1] + 5))))
    np.testing.assert_allclose(symbolic(*arrays, **given_sizes), want, rtol=1e-10, atol=1e-12)


def test_code_for_a_class_of_sizes_is_made_by_its_first_call() -> None:
    pk.clear_cache()
    kernel = pk.op("C[i,j] += A[i,k] * B[k,j]").compile(A=pk.f32["M", "K"], B=pk.f32["K", "N"])
    assert not compiled_of(kernel).executables
    kernel(np.ones((40, 50), np.float32), np.ones((50, 60), np.float32))
    assert len(compiled_of(kernel).executables) == 1
    assert "for" in generated(kernel, "loops")


def test_what_is_empty_at_the_sizes_of_a_class_counts_as_one_value() -> None:
    op = pk.op("Y[i,j] += X[i,k] * B[k,j] for i in 60:N, j in 0:M")
    types = {"X": pk.f64["N", "K"], "B": pk.f64["K", "M"]}
    compiled = compiled_of(op.compile(**types, target="cpu:x86-64-v4", threads=1))
    of = {"N": 40, "K": 50, "M": 60}
    schedule = generated(compiled.artifact(sizes={name: of[label] for name, label in compiled.typed.sizes}), "schedule")
    assert "tiles i1, i0; terms i2" in schedule  # rows that cost nothing would come in any order
    kernel = op.compile(**types)
    for n in (40, 61, 90):
        x, b = np.random.default_rng(n).normal(size=(n, 50)), np.random.default_rng(1).normal(size=(50, 60))
        want = np.where(np.arange(n)[:, None] < 60, 0, x @ b) if n > 60 else np.empty((0, 60))
        np.testing.assert_allclose(kernel(x, b), want, rtol=1e-10, atol=1e-12)
