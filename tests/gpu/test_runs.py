"""Products whose results are too few for the GPU: their sums are cut into runs, each tiled by blocks of its own."""

import re

import numpy as np
import pytest

import polyker as pk
from polyker.codegen.ir.kernel import Launch
from polyker.codegen.ir.walk import statements
from polyker.codegen.llvm.jit.detect import target
from polyker.schedule.gpu import auto as gpu_auto
from polyker.schedule.gpu import contract as gpu_contract
from polyker.structs import replace
from tests.covering import few
from tests.gpu.support import artifact_of, needs_compiler

PRODUCT = "C[i,j] += A[i,k] * B[k,j]"


@pytest.fixture
def many(monkeypatch):
    """Return a simulator of a GPU of many multiprocessors for which one more launch costs nothing."""
    pk.clear_cache()
    monkeypatch.setattr(gpu_contract, "GPU_LAUNCH", 0)
    yield replace(target("cuda-sim"), gpu=replace(target("cuda:sm_90a").gpu, simulated=True))
    pk.clear_cache()


def whole(shape, seed, dtype="f4"):
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(dtype)


def in_runs(kernel):
    text = kernel.source("schedule")
    return re.search(r"\d+ partial results in memory, each of \d+ values", text) and "operands shared" in text


def grids(artifact):
    found = (s for s in statements(artifact.kernel.body) if isinstance(s, Launch))
    return [tuple(int(g.value.real) for g in launch.grid) for launch in found]


@needs_compiler
@pytest.mark.parametrize(
    ("sizes", "dtype"),
    few([(64, 64, 4096), (41, 70, 1500), (17, 16, 3001), (130, 33, 1024)], ["f4", "f2", "f8"], 2),
)
def test_products_in_runs_are_right(many, sizes, dtype):
    m, n, k = sizes
    a, b = whole((m, k), 0, dtype) % 2, whole((k, n), 1, dtype) % 3
    kernel = pk.op(PRODUCT).compile(a, b, acc=pk.f64 if dtype == "f8" else pk.f32, target=many)
    assert in_runs(kernel)
    np.testing.assert_array_equal(kernel(a, b), (a.astype("f8") @ b.astype("f8")).astype(dtype))


@needs_compiler
@pytest.mark.parametrize(
    ("text", "shapes", "wanted"),
    [
        ("C[b,i,j] += A[b,k,i] * B[b,j,k]", ((2, 900, 33), (2, 20, 900)), lambda a, b: np.einsum("bki,bjk->bij", a, b)),
        ("C[i,j] += A[i,p,q] * B[q,j,p]", ((20, 37, 30), (30, 50, 37)), lambda a, b: np.einsum("ipq,qjp->ij", a, b)),
        ("C[i,j] max= A[i,k] + B[k,j]", ((40, 1100), (1100, 40)), lambda a, b: (a[:, :, None] + b).max(1)),
        ("f(A,B) -> O:\n    C[i,j] += A[i,k] * B[k,j]\n    O[i,j] = maximum(C[i,j] + 1, 0)", ((40, 1100), (1100, 40)),
         lambda a, b: np.maximum(a @ b + 1, 0)),
        ("C[f,h] += X[c,h+r] * K[f,c,r]", ((70, 60), (32, 70, 9)),
         lambda x, k: np.einsum("chr,fcr->fh", np.lib.stride_tricks.sliding_window_view(x, 9, 1), k)),
    ],
    ids=["batch", "two indices", "max-plus", "epilogue", "convolution"],
)  # fmt: skip
def test_contractions_in_runs_are_right(many, text, shapes, wanted):
    a, b = (whole(s, n) for n, s in enumerate(shapes))
    kernel = pk.op(text).compile(a, b, target=many)
    assert in_runs(kernel)
    np.testing.assert_array_equal(kernel(a, b), wanted(a, b))


def test_a_skinny_product_fills_the_gpu_and_reads_its_operands_once():
    artifact = artifact_of(PRODUCT, pk.f32[64, 65536], pk.f32[65536, 64], target="cuda:sm_90a")
    first, *_ = grids(artifact)
    # One tile has all elements, so each operand is read by one run of blocks, once; a block to an element read it 64 times.
    assert first == (1, 1, 256)
    artifact = artifact_of(PRODUCT, pk.f32[512, 65536], pk.f32[65536, 512], target="cuda:sm_90a")
    assert grids(artifact)[0] == (4, 4, 8)


@pytest.mark.parametrize("m, n, k", [(4096, 4096, 4096), (256, 256, 256), (1000, 777, 513), (16, 16, 100)])
def test_products_that_fill_the_gpu_or_are_short_stay_whole(m, n, k):
    assert len(grids(artifact_of(PRODUCT, pk.f32[m, k], pk.f32[k, n], target="cuda:sm_90a"))) == 1


def test_sums_of_unknown_length_stay_whole():
    kernel = pk.op(PRODUCT).compile(pk.f32[64, "K"], pk.f32["K", 64], target="cuda:sm_90a")
    assert not in_runs(kernel)


@needs_compiler
def test_where_the_product_of_a_run_has_no_tiles_the_sum_stays_whole(many, monkeypatch):
    wanted = []
    plain = gpu_auto.choose_contraction

    def none_for_runs(measured, kept, gpu, *, started):
        wanted.append(started)
        return None if len(wanted) == 1 else plain(measured, kept, gpu, started=started)

    monkeypatch.setattr(gpu_auto, "choose_contraction", none_for_runs)
    a, b = np.random.default_rng(0).normal(size=(64, 4096)), np.random.default_rng(1).normal(size=(4096, 64))
    kernel = pk.op(PRODUCT).compile(a, b, target=many)
    assert len(wanted) >= 2 and "partial results in memory, each of" not in kernel.source("schedule")
    np.testing.assert_allclose(kernel(a, b), a @ b, rtol=1e-10, atol=1e-10)
