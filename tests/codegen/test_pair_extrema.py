"""Terms of extrema are taken two at a time; results are those of one at a time, NaN and infinities too."""

from __future__ import annotations

import re

import numpy as np
import pytest

import polyker as pk
from polyker.codegen.llvm.jit.detect import host, target
from polyker.codegen.passes.x86.pair_extrema import paired_extrema
from tests.artifacts import compiled_to


@pytest.mark.parametrize(
    ("text", "dtype", "terms", "pairs", "single"),
    [
        ("C[i,j] max= A[i,k] + B[k,j]", "f32", 40, 24, 0),  # a tile of 24 vectors
        ("C[i,j] min= A[i,k] * B[k,j]", "f64", 41, 24, 24),  # the last term is alone
        ("C[i,j] max= A[i,k] + B[k,j]", "f32", 3, 0, 24),  # too few
        ("C[i,j] max= A[i,k] + B[k,j]", "i32", 40, 0, 0),  # no NaN to look for
        ("C[i,j] += A[i,k] * B[k,j]", "f32", 40, 0, 0),
    ],
)
def test_one_test_for_nan_serves_two_terms(text: str, dtype: str, terms: int, pairs: int, single: int) -> None:
    kind = getattr(pk, dtype)
    kernel = pk.op(text).compile(A=kind[60, terms], B=kind[terms, 64], target="cpu:x86-64-v4", threads=1)
    tests = re.findall(r"vcmpunordp[sd]\s+%zmm(\d+), %zmm(\d+)", str(kernel.source("asm")))
    assert (sum(x != y for x, y in tests), sum(x == y for x, y in tests)) == (pairs, single)


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("C[i,j] max= minimum(A[i,k], B[k,j])", ((60, 40), (40, 64))),  # its operands are tested
        ("C[i] max= A[i,k] + B[i,k]", ((60, 4096), (60, 4096))),  # read in the order of memory
    ],
)
def test_other_extrema_take_one_term_at_a_time(text: str, shapes: tuple[tuple[int, int], ...]) -> None:
    kernel = pk.op(text).compile(*(pk.f32[s] for s in shapes), target="cpu:x86-64-v4", threads=1)
    found = compiled_to(kernel).kernel
    assert paired_extrema(found, target("cpu:x86-64-v4")) == found


@pytest.mark.parametrize("op", ["max", "min"])
@pytest.mark.parametrize("terms", [4, 5, 17, 64])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_pairs_of_terms_have_the_extrema_of_single_ones(op: str, terms: int, dtype: str) -> None:
    rng = np.random.default_rng(terms)
    A = rng.standard_normal((37, terms)).astype(dtype)
    B = rng.standard_normal((terms, 83)).astype(dtype)
    for n, special in enumerate((np.nan, np.inf, -np.inf, -np.nan)):
        A[3 * n, rng.integers(terms)] = special
        B[rng.integers(terms), 5 * n + 1] = special
    with np.errstate(invalid="ignore"):
        want = getattr(np, f"{op}imum").reduce(A[:, :, None] + B[None], axis=1)
    got = pk.op(f"C[i,j] {op}= A[i,k] + B[k,j]")(A, B)
    np.testing.assert_array_equal(got, want)


def test_a_row_of_nan_stays() -> None:
    if host().vector_bytes < 64:
        pytest.skip("terms are paired in vectors of 64 bytes")
    A = np.full((24, 30), np.nan, "f4")
    assert np.isnan(pk.op("C[i,j] max= A[i,k] + B[k,j]")(A, np.zeros((30, 64), "f4"))).all()
