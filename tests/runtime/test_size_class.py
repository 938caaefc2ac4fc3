"""Symbolic kernels are scheduled for classes of sizes, and right for all of them."""

from __future__ import annotations

import numpy as np

import polyker as pk
from polyker.runtime.size_class import LARGEST, rounded


def test_short_sizes_stand_for_themselves_and_longer_ones_for_what_a_tile_of_theirs_holds() -> None:
    assert [rounded(n) for n in (0, 1, 15, 16)] == [1, 1, 15, 16]
    assert [rounded(n) for n in (17, 24, 25, 41, 60, 65, 100, 129, 1000)] == [24, 24, 32, 48, 64, 80, 112, 160, 1024]
    assert [rounded(n) for n in (1024, 1025, 2000, 2500, 10_000, 40_000)] == [1024, 1024, 1024, 4096, 16384, 65536]
    assert all(n <= rounded(n) <= 1.42 * n for n in range(17, 1025))
    assert rounded(1 << 61) == LARGEST
    steps = [rounded(n) for n in range(1, 3000)]
    assert steps == sorted(steps)


def kernel(**options: str) -> pk.Kernel:
    return pk.op("C[i,j] += A[i,k] * B[k,j]").compile(pk.f32["I", "K"], pk.f32["K", "J"], **options)


def call(made: pk.Kernel, i: int, k: int, j: int) -> None:
    rng = np.random.default_rng(i)
    a, b = rng.integers(-4, 5, (i, k)).astype("f4"), rng.integers(-4, 5, (k, j)).astype("f4")
    np.testing.assert_array_equal(made(a, b), a @ b)


def test_sizes_of_one_class_share_a_kernel_and_those_of_another_get_their_own() -> None:
    made = kernel()
    artifacts = made._compiled._artifacts
    assert len(artifacts) == 1
    for shape in ((100, 98, 110), (97, 112, 101)):
        call(made, *shape)
        assert len(artifacts) == 2
    call(made, 5, 6, 7)
    assert len(artifacts) == 3


def test_more_classes_than_are_kept_share_the_kernel_for_no_sizes_in_particular() -> None:
    made = kernel()
    for n in (*range(1, 17), 20, 30, 40):
        call(made, n, 3, 2)
    assert len(made._compiled._artifacts) == 17


def test_one_kernel_serves_all_sizes_where_it_is_asked_for() -> None:
    made = kernel(specialize="never")
    for shape in ((100, 90, 110), (5, 6, 7), (0, 3, 2)):
        call(made, *shape)
    assert len(made._compiled._artifacts) == 1


def test_sums_are_as_exact_for_sizes_that_stand_for_longer_ones() -> None:
    # A class says that there are 1048576 terms or fewer; of a million plain sums lose three digits more than sums by blocks.
    made = pk.op("s[] += A[i]").compile(pk.f64["N"])
    value = 1 + np.finfo(np.float64).eps * 8196
    found = made(np.full(1_000_000, value)) / 1_000_000
    assert abs(found - value) < 2e-15
    strided = made(np.broadcast_to(np.array(value), 1_000_000)) / 1_000_000
    assert abs(strided - value) < 2e-15
