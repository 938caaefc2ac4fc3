"""One kernel of each family is clean under AddressSanitizer and ThreadSanitizer, and planted bugs are not."""

import numpy as np
import pytest

import polyker as pk
from polyker.codegen.cuda.text import cuda_source
from tests.artifacts import compiled_to
from tests.gpu.sim_check import run_checked
from tests.gpu.support import N, needs_compiler, needs_sanitizer, reversing

SANITIZERS = [pytest.param(name, marks=needs_sanitizer(name)) for name in ("address", "thread")]
pytestmark = needs_compiler

FAMILIES = {
    "product": ("C[i,j] += A[i,k] * B[k,j]", [(21, 17), (17, 35)]),
    "convolution": ("O[n,f,h,w] += X[n,c,h+r,w+s] * K[f,c,r,s]", [(2, 3, 7, 7), (4, 3, 3, 3)]),
    "row sums": ("s[i] += A[i,k]", [(9, 77)]),
    "softmax": ("P[i,j] = exp(X[i,j] - max[k](X[i,k])) / sum[l](exp(X[i,l] - max[k](X[i,k])))", [(5, 40)]),
    "transpose": ("T[j,i] = X[i,j]", [(19, 33)]),
    "recurrence": ("S[b,0] = X[b,0];  S[b,t] = S[b,t-1] + X[b,t] for t in 1:9", [(40, 9)]),
}


@pytest.mark.parametrize("sanitizer", SANITIZERS)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_kernel_of_each_family_is_clean(family, sanitizer):
    text, shapes = FAMILIES[family]
    inputs = [np.random.default_rng(n).normal(size=shape).astype("f4") for n, shape in enumerate(shapes)]
    kernel = pk.op(text).compile(*inputs, target="cuda-sim")
    artifact = compiled_to(kernel)
    rest = artifact.kernel.buffers[len(inputs) :]
    arrays = inputs + [np.full([s.value for s in b.shape], np.nan, b.dtype.numpy) for b in rest]
    found = run_checked(kernel.source("cuda"), arrays, sanitizer=sanitizer)
    assert (found.report, found.status) == ("", 0)
    np.testing.assert_array_equal(found.arrays[len(inputs)], kernel(*inputs))


def checked(kernel, sanitizer, seed=1):
    text = cuda_source(kernel, frozenset(), {})
    return run_checked(text, [np.arange(N, dtype="f4"), np.full(N, np.nan, "f4")], sanitizer=sanitizer, seed=seed)


@pytest.mark.parametrize("sanitizer", SANITIZERS)
def test_threads_that_exchange_values_behind_a_barrier_are_clean(sanitizer):
    for seed in (0, 1):
        found = checked(reversing(), sanitizer, seed)
        assert found.report == ""
        np.testing.assert_array_equal(found.arrays[1], np.arange(N)[::-1])


@pytest.mark.parametrize("sanitizer", SANITIZERS[1:])
def test_a_missing_barrier_is_a_data_race_in_any_order_of_the_threads(sanitizer):
    for seed in (0, 1):
        assert "data race" in checked(reversing(barrier=False), sanitizer, seed).report


@pytest.mark.parametrize("sanitizer", SANITIZERS[:1])
def test_an_index_outside_shared_or_global_memory_is_found(sanitizer):
    assert checked(reversing(last=N), sanitizer).report  # of shared memory
    text = cuda_source(reversing(), frozenset(), {}).replace("X[i]", "X[i + 1]").replace("= X[", "= (X)[")
    assert "X)[i + 1]" in text
    arrays = [np.arange(N, dtype="f4"), np.zeros(N, "f4")]
    assert "heap-buffer-overflow" in run_checked(text, arrays, sanitizer=sanitizer).report


def test_barriers_that_threads_miss_end_the_program_with_their_lines():
    text = cuda_source(reversing(), frozenset(), {})
    arrays = [np.arange(N, dtype="f4"), np.zeros(N, "f4")]
    some = text.replace("__syncthreads();", "if (threadIdx.x < 4) __syncthreads();")
    assert "a barrier that some threads never reach" in run_checked(some, arrays, sanitizer="none").report
    other = text.replace("__syncthreads();", "if (threadIdx.x < 4) __syncthreads(); else\n __syncthreads();")
    assert "threads of a block meet in different barriers" in run_checked(other, arrays, sanitizer="none").report
