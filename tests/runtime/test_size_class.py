"""Symbolic kernels are scheduled for classes of sizes, and right for all of them."""

from __future__ import annotations

import numpy as np
import pytest

import polyker as pk
from polyker.codegen.llvm.jit.detect import target
from polyker.machine.model import Cache
from polyker.runtime.size_class import MAX_CLASS_SIZE, least, rounded
from polyker.structs import replace
from tests.artifacts import artifacts_of, compiled_of


@pytest.fixture(autouse=True)
def no_kernels_of_other_tests() -> None:
    pk.clear_cache()


def test_short_sizes_stand_for_themselves_and_longer_ones_for_what_a_tile_of_theirs_holds() -> None:
    assert [rounded(n) for n in (0, 1, 15, 31, 32)] == [0, 1, 15, 31, 32]
    assert [rounded(n) for n in (33, 41, 60, 65, 100, 129, 1000)] == [40, 48, 64, 80, 112, 160, 1024]
    assert [rounded(n) for n in (1024, 1025, 2000, 2500, 10_000, 40_000)] == [1024, 1024, 1024, 4096, 16384, 65536]
    assert all(n <= rounded(n) <= 1.42 * n for n in range(17, 1025))
    assert rounded(1 << 61) == MAX_CLASS_SIZE
    steps = [rounded(n) for n in range(1, 3000)]
    assert steps == sorted(steps)


def kernel(**options: str) -> pk.Kernel:
    return pk.op("C[i,j] += A[i,k] * B[k,j]").compile(pk.f32["I", "K"], pk.f32["K", "J"], **options)


def call(made: pk.Kernel, i: int, k: int, j: int) -> None:
    rng = np.random.default_rng(i)
    a, b = rng.integers(-4, 5, (i, k)).astype("f4"), rng.integers(-4, 5, (k, j)).astype("f4")
    np.testing.assert_array_equal(made(a, b), a @ b)


def test_the_least_size_of_a_class_is_the_first_of_it() -> None:
    firsts: dict[int, int] = {}
    for n in [*range(3000), *range(8000, 8400), *range(30_000, 33_000)]:
        firsts.setdefault(rounded(n), n)
    for value in {rounded(n) for n in (*range(2049), 2049)}:
        assert least(value) == firsts[value], value
    assert all(least(rounded(n)) <= n for n in (2048, 2049, 8192, 8193, 32_768, 32_769, 1 << 21, 1 << 40))


def test_sizes_of_one_class_share_a_kernel_and_those_of_another_get_their_own() -> None:
    made = kernel()
    artifacts = compiled_of(made).executables
    assert not artifacts
    for shape in ((100, 98, 110), (97, 112, 101)):
        call(made, *shape)
        assert len(artifacts) == 1
    call(made, 5, 6, 7)
    assert len(artifacts) == 2


def test_short_sizes_are_constants_of_their_class() -> None:
    made = pk.op("C[i,j] += A[i,k] * B[k,j]").compile(pk.i64["I", "K"], pk.i64["K", "J"])
    for i, k, j in ((4, 40, 6), (40, 1, 32), (0, 3, 33), (3, 0, 40), (1, 1, 1), (4, 40, 6), (0, 0, 0)):
        a, b = np.arange(i * k).reshape(i, k), np.arange(k * j).reshape(k, j)
        np.testing.assert_array_equal(made(a, b), a @ b)
    sizes = [{label for _, label in a.typed.sizes} for a in artifacts_of(made)]
    assert sizes == [{"K"}, {"I"}, {"J"}, {"J"}, set(), set()]


def test_a_size_that_no_shape_gives_may_be_a_constant_of_a_class() -> None:
    made = pk.op("y[i] += A[i+r] for i in 0:M, r in 0:N").compile(pk.f32["K"])
    for n, m in ((3, 40), (40, 3), (40, 50), (0, 0), (5, 7)):
        np.testing.assert_array_equal(made(np.ones(100, "f4"), N=n, M=m), np.full(m, n))


def test_sums_that_no_call_of_a_class_makes_longer_are_not_cut() -> None:
    made = pk.op("C[i,j] += A[i,k] * B[k,j]").compile(pk.f64["I", "K"], pk.f64["K", "J"], target="cpu:x86-64-v3")
    for k in (300, 1025):
        a, b = np.ones((100, k)), np.ones((k, 12))
        np.testing.assert_array_equal(made(a, b), a @ b)
    cut = [".block" in a.stages["schedule"] for a in artifacts_of(made)]
    assert cut == [False, True]


def test_more_classes_than_are_kept_share_the_kernel_for_no_sizes_in_particular() -> None:
    made = kernel()
    for n in (*range(1, 17), 20, 30, 40):
        call(made, n, 3, 2)
    assert len(compiled_of(made).executables) == 17


def test_one_kernel_serves_all_sizes_where_it_is_asked_for() -> None:
    made = kernel(specialize="never")
    for shape in ((100, 90, 110), (5, 6, 7), (0, 3, 2)):
        call(made, *shape)
    assert len(compiled_of(made).executables) == 1


def test_sums_are_as_exact_for_sizes_that_stand_for_longer_ones() -> None:
    # A class says that there are 1048576 terms or fewer; of a million plain sums lose three digits more than sums by blocks.
    made = pk.op("s[] += A[i]").compile(pk.f64["N"])
    value = 1 + np.finfo(np.float64).eps * 8196
    found = made(np.full(1_000_000, value)) / 1_000_000
    assert abs(found - value) < 2e-15
    strided = made(np.broadcast_to(np.array(value), 1_000_000)) / 1_000_000
    assert abs(strided - value) < 2e-15


def test_sums_are_as_exact_where_a_short_one_is_expected_of_long_sizes() -> None:
    # Sizes of one class, whose difference is nothing where both are as the class says.
    made = pk.op("s[] += A[i] for i in 0:N-M+500").compile(pk.f64["K"], target="cpu:x86-64-v3")
    value = 1 + np.finfo(np.float64).eps * 8196
    found = made(np.full(900_500, value), N=1_500_000, M=600_000) / 900_500
    assert abs(found - value) < 2e-15


def test_values_computed_where_symbolic_sums_are_stored_are_right() -> None:
    made = pk.op("O[b,n] = relu(sum[m](I[b,m] * W[n,m]) + c[n])").compile(
        pk.f32["B", "M"], pk.f32["N", "M"], pk.f32["N"]
    )
    rng = np.random.default_rng(0)
    for b, m, n in ((3, 17, 17), (40, 100, 30), (17, 300, 65)):
        i, w, c = (rng.integers(-4, 5, s).astype("f4") for s in ((b, m), (n, m), (n,)))
        np.testing.assert_array_equal(made(i, w, c), np.maximum(i @ w.T + c, 0))


def test_what_is_packed_for_sizes_is_packed_for_their_class() -> None:
    caches = Cache(48 << 10, ways=12), Cache(1280 << 10, ways=20), Cache(48 << 20)
    text, processor = "C[i,j] += A[i,k] * B[k,j]", replace(target("cpu:x86-64-v4"), caches=caches)
    fixed = pk.op(text).compile(pk.f64[256, 256], pk.f64[256, 256], target=processor, threads=1)
    assert "B is packed by blocks" in str(fixed.source("schedule"))
    made = compiled_of(pk.op(text).compile(pk.f64["I", "K"], pk.f64["K", "J"], target=processor, threads=1))
    of_class = made.artifact(sizes={name: 256 for name, _ in made.typed.sizes})
    assert "is packed by blocks" in of_class.stages["schedule"]
