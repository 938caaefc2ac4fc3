"""Scratch memory that is kept from call to call."""

from __future__ import annotations

import resource
from concurrent.futures import ThreadPoolExecutor

import numpy as np

import polyker as pk

TEXT = "O[f,h,w] += X[c,2*h+r-1,2*w+s-1; pad=0] * K[f,c,r,s]  for h in 0:{n}, w in 0:{n}"


def convolved(n: int) -> tuple[pk.Kernel, np.ndarray, np.ndarray, np.ndarray]:
    """Return a kernel whose temporaries are larger for larger n, its operands and its value."""
    rng = np.random.default_rng(n)
    x, k = (
        rng.integers(-3, 4, (8, 2 * n, 2 * n)).astype(np.float32),
        rng.integers(-3, 4, (32, 8, 3, 3)).astype(np.float32),
    )
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))[:, ::2, ::2][:, :n, :n]
    return pk.op(TEXT.format(n=n)).compile(x, k), x, k, np.einsum("chwrs,fcrs->fhw", windows, k)


def test_kernels_of_several_sizes_and_threads_lend_it_to_each_other() -> None:
    cases = [convolved(n) for n in (9, 33, 40, 17)]

    def calls(start: int) -> None:
        for n in range(60):
            kernel, x, k, value = cases[(start + n * (1 + start % 3)) % len(cases)]
            np.testing.assert_array_equal(kernel(x, k), value)

    calls(0)  # one thread first, so that the quick way of calling is there
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(calls, range(12)))


def test_a_call_like_the_last_one_maps_no_memory() -> None:
    kernel, x, k, _ = convolved(100)
    out = kernel(x, k)
    for _ in range(4):
        kernel(x, k, out=out)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        kernel(x, k, out=out)
    # The temporaries have hundreds of pages.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before < 200
