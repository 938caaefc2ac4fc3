"""Reductions down columns: threads side by side read elements side by side, and a block combines what its rows of threads
have."""

import numpy as np
import pytest

import polyker as pk
from polyker.codegen.cuda.build import cubin
from polyker.codegen.llvm.jit.detect import target
from tests.artifacts import compiled_to
from tests.gpu.sim_check import run_checked
from tests.gpu.support import needs_compiler, needs_nvcc
from tests.gpu.test_sanitizers import SANITIZERS


def coded(*shape):
    return ((np.arange(int(np.prod(shape))) * 7 + 3) % 11 - 5.0).reshape(shape)


CASES = {
    "sums": ("s[j] += A[i,j]", lambda a: a.sum(0), (700, 37)),
    "extrema": ("s[j] max= A[i,j]", lambda a: a.max(0), (70, 64)),
    "few columns": ("s[j] += A[i,j]", lambda a: a.sum(0), (5000, 16)),
    "two indices": ("s[j,c] += A[n,j,c] * A[n,j,c]", lambda a: (a * a).sum(0), (200, 3, 40)),
    "triangle": ("s[j] += A[i,j] where i >= j", lambda a: np.tril(a).sum(0), (300, 64)),
}


@needs_compiler
@pytest.mark.parametrize("case", CASES)
def test_threads_below_each_other_share_the_terms_of_a_column(case):
    text, want, shape = CASES[case]
    a = coded(*shape)
    kernel = pk.op(text).compile(a, target="cuda-sim")
    assert "threads along" in kernel.source("schedule") and "__shared__" in kernel.source("cuda")
    np.testing.assert_array_equal(kernel(a), want(a))


@needs_compiler
@pytest.mark.parametrize(
    "text",
    [
        "f(X, A) -> F:\n    F[j] = 2 * X[j]\n    F[j] += A[i,j]",
        "f(X, A) -> F, G:\n    F[j] = 2 * X[j]\n    G[j] = X[j] + 1\n    F[j] += A[i,j]",
        "f(X, A) -> F:\n    F[j] = X[j]\n    G[j] = A[0,j] * F[j]\n    F[j] += A[i,j]\n    F[j] += X[j] + 0 * G[j]",
    ],
)
@pytest.mark.parametrize("rows", [1000, 20000])
def test_sums_are_added_to_what_another_launch_stored(text, rows):
    x, a = coded(37), coded(rows, 37)
    kernel = pk.op(text).compile(x, a, target="cuda-sim")
    assert "threads along" in kernel.source("schedule") and "by one thread" not in kernel.source("schedule")
    found = kernel(x, a)
    np.testing.assert_array_equal(found[0] if "G:" in text else found, 2 * x + a.sum(0))


@needs_compiler
@pytest.mark.parametrize("columns", [16, "N"])
def test_one_symbolic_kernel_sums_columns_of_all_lengths(columns):
    kernel = pk.op("s[j] += A[i,j]").compile(pk.f64["M", columns], target="cuda-sim")
    assert "threads along" in kernel.source("schedule") and "__shared__" in kernel.source("cuda")
    assert (kernel.source("cuda").count("PK_LAUNCH(kernel") == 2) == (columns == 16)
    for rows, width in ((0, 16), (1, 16), (7, 16), (3000, 16), (2, 513), (700, 37), (5, 0)):
        if columns in (width, "N"):
            np.testing.assert_array_equal(kernel(coded(rows, width)), coded(rows, width).sum(0))


def test_blocks_share_the_columns_of_a_symbolic_sum():
    kernel = pk.op("s[c] += X[n,c,h,w]").compile(pk.f32["N", "C", "H", "W"], target="cuda:sm_90a")
    assert "partial results in memory" in kernel.source("schedule")


@needs_compiler
def test_an_in_out_sum_goes_on_from_what_is_there():
    a, s = coded(400, 32), coded(32)
    kernel = pk.op("f(s: f64[32], A: f64[400,32]) -> s:\n    s[j] += A[i,j]").compile(s, a, target="cuda-sim")
    np.testing.assert_array_equal(kernel(s.copy(), a), s + a.sum(0))


@needs_compiler
@pytest.mark.parametrize("specialize", ["always", "never"])
def test_what_sets_the_elements_before_runs_before_both_parts_of_the_sum(specialize):
    text = "S[j] = C[j];  S[j] += A[i,j];  M[j] = C[j] + C[j];  K[j,l] = C[j] * C[l]"
    a, c = coded(3000, 40), coded(40)
    kernel = pk.op(text).compile(c, a, target="cuda-sim", specialize=specialize)
    assert "threads along" in kernel.source("schedule")
    for found, want in zip(kernel(c, a), (c + a.sum(0), c + c, np.outer(c, c)), strict=True):
        np.testing.assert_array_equal(found, want)


@needs_compiler
@pytest.mark.parametrize("sanitizer", SANITIZERS)
def test_columns_are_clean_under_the_sanitizers(sanitizer):
    a = coded(300, 40).astype("f4")
    kernel = pk.op("s[j] += A[i,j]").compile(a, target="cuda-sim")
    rest = compiled_to(kernel).kernel.buffers[1:]
    memory = [a] + [np.full([s.value for s in b.shape], np.nan, b.dtype.numpy) for b in rest]
    found = run_checked(kernel.source("cuda"), memory, sanitizer=sanitizer)
    assert (found.report, found.status) == ("", 0)
    np.testing.assert_array_equal(found.arrays[1], a.sum(0))


@needs_nvcc
@pytest.mark.parametrize("arch", ["cuda:sm_80", "cuda:sm_90a"])
def test_nvcc_compiles_columns_without_spills(arch):
    kernel = pk.op("s[j] += A[i,j]").compile(pk.f32[50000, 64], target=arch)
    _, used = cubin(kernel.source("cuda"), target(arch))
    assert len(used) == 2 and all(r.spilled == 0 for r in used.values()), used
