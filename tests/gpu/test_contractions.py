"""Contractions by tiles in shared memory: right for every layout, type and semiring, at sizes that no tile divides."""

import numpy as np
import pytest

import polyker as pk
from polyker.codegen.cuda.build import cubin
from polyker.codegen.llvm.jit.detect import target
from tests.artifacts import compiled_to
from tests.codegen.interpret import run
from tests.covering import pairs
from tests.gpu.sim_check import run_checked
from tests.gpu.support import needs_compiler, needs_nvcc

LAYOUTS = "f(A, B, At, Bt) -> NN, NT, TN, TT:\n" + "\n".join(
    f"    {a}{b}[i,j] += {'A[i,k]' if a == 'N' else 'At[k,i]'} * {'B[k,j]' if b == 'N' else 'Bt[j,k]'}"
    for a in "NT"
    for b in "NT"
)
CONVOLUTION = "O[n,f,h,w] += X[n,c,h+r,w+s] * K[f,c,r,s]"


def whole(shape, seed, dtype="f4"):
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(dtype)


def is_tiled(kernel):
    return "operands shared" in kernel.source("schedule")


@needs_compiler
@pytest.mark.parametrize("m, n, k", [(16, 16, 8), (61, 19, 35), (130, 45, 16)])
def test_products_of_every_layout_are_right(m, n, k):
    a, b = whole((m, k), 0), whole((k, n), 1)
    kernel = pk.op(LAYOUTS).compile(a, b, a.T.copy(), b.T.copy(), target="cuda-sim")
    assert str(kernel.schedule).count("in shared") == 8
    for found in kernel(a, b, a.T.copy(), b.T.copy()):
        np.testing.assert_array_equal(found, a @ b)


@needs_compiler
@pytest.mark.parametrize("dtype", ["f8", "i4", "c8", "f2"])
def test_products_of_every_type_are_right(dtype):
    a, b = whole((35, 20), 0, dtype), whole((20, 41), 1, dtype)
    kernel = pk.op("C[i,j] += A[i,k] * B[k,j]").compile(a, b, target="cuda-sim")
    assert is_tiled(kernel)
    np.testing.assert_array_equal(kernel(a, b), (a.astype("c16") @ b.astype("c16")).real)


@needs_compiler
def test_products_of_other_semirings_are_right():
    a, b = whole((35, 20), 0), whole((20, 41), 1)
    kernel = pk.op("C[i,j] max= A[i,k] + B[k,j]").compile(a, b, target="cuda-sim")
    assert is_tiled(kernel)
    np.testing.assert_array_equal(kernel(a, b), (a[:, :, None] + b[None]).max(1))


@needs_compiler
def test_products_of_unknown_sizes_are_right():
    kernel = pk.op("C[i,j] += A[i,k] * B[k,j]").compile(pk.f32["M", "K"], pk.f32["K", "N"], target="cuda-sim")
    assert is_tiled(kernel)
    for m, n, k in ((1, 1, 1), (40, 70, 33), (129, 5, 16)):
        a, b = whole((m, k), 0), whole((k, n), 1)
        np.testing.assert_array_equal(kernel(a, b), a @ b)


@needs_compiler
@pytest.mark.parametrize(
    "where, least, dtype",
    [("", None, "f4"), ("", None, "f8"), ("", None, "c16"), (" where k >= j and k <= i", None, "f4"),
     (" where k <= i", 130, "f8"), (" where k <= i", 130, "c16")],
)  # fmt: skip
def test_products_of_few_steps_wait_for_their_copies(where, least, dtype):
    text = "C[i,j] += A[i,k] * B[k,j]" + where
    sizes = ("N", "N") if least is None else (least, least)
    dtype_of = {"f4": pk.f32, "f8": pk.f64, "c16": pk.c128}[dtype]
    kernel = pk.op(text).compile(dtype_of[sizes], dtype_of[sizes], target="cuda-sim", specialize="never")
    assert is_tiled(kernel) and "by one thread" not in kernel.source("schedule")
    for n in (1, 8, 9, 17, 40) if least is None else (least,):
        a, b = whole((n, n), 0, dtype), whole((n, n), 1, dtype)
        i, j = np.indices((n, n))
        left = np.where(j <= i, a, 0) if where else a
        right = np.where(i >= j, b, 0) if "k >= j" in where else b
        np.testing.assert_array_equal(kernel(a, b), left @ right)


def test_few_results_of_many_terms_are_not_left_to_few_blocks():
    few = pk.op("C[i,j] += A[i,k] * B[k,j]").compile(pk.f32[32, 40000], pk.f32[40000, 32], target="cuda:sm_90a")
    assert is_tiled(few) and "250 partial results" in few.source("schedule")
    many = pk.op("C[i,j] += A[i,k] * B[k,j]").compile(pk.f32[900, 40000], pk.f32[40000, 900], target="cuda:sm_90a")
    assert is_tiled(many)


@needs_compiler
def test_batches_and_several_indices_are_right():
    a, b = whole((3, 2, 18, 7), 0), whole((3, 7, 2, 21), 1)
    kernel = pk.op("C[b,i,j] += A[b,q,i,k] * B[b,k,q,j]").compile(a, b, target="cuda-sim")
    assert is_tiled(kernel)
    np.testing.assert_array_equal(kernel(a, b), np.einsum("bqik,bkqj->bij", a, b))


@needs_compiler
def test_what_is_computed_from_each_result_is_stored_in_its_place():
    text = "f(X, W, b) -> O:\n    T[n,o] += X[n,i] * W[o,i]\n    O[n,o] = maximum(T[n,o] + b[o], 0) * T[n,o]"
    x, w, b = whole((21, 50), 0), whole((30, 50), 1), whole((30,), 2)
    kernel = pk.op(text).compile(x, w, b, target="cuda-sim")
    assert kernel.source("cuda").count("PK_LAUNCH(kernel") == 1
    assert ": T, f32" not in kernel.source("cuda")
    t = x @ w.T
    np.testing.assert_array_equal(kernel(x, w, b), np.maximum(t + b, 0) * t)
    part = "f(X, W) -> O:\n    T[n,o] += X[n,i] * W[o,i]\n    O[n,o] = T[n,o] * 2 for n in 0:20, o in 0:30"
    kernel = pk.op(part).compile(x, w, target="cuda-sim")
    assert kernel.source("cuda").count("PK_LAUNCH(kernel") == 2  # T has results that O does not read
    np.testing.assert_array_equal(kernel(x, w), 2 * t[:20])


def convolved(x, k):
    windows = np.lib.stride_tricks.sliding_window_view(x, k.shape[2:], (2, 3))
    return np.einsum("nchwrs,fcrs->nfhw", windows, k)


@needs_compiler
def test_convolutions_of_unknown_sizes_are_right():
    kernel = pk.op(CONVOLUTION).compile(pk.f32["N", "C", "H", "W"], pk.f32["F", "C", 3, 3], target="cuda-sim")
    assert is_tiled(kernel)
    for x, k in ((whole((1, 2, 6, 20), 0), whole((17, 2, 3, 3), 1)), (whole((2, 3, 3, 3), 0), whole((1, 3, 3, 3), 1))):
        np.testing.assert_array_equal(kernel(x, k), convolved(x, k))


@needs_compiler
def test_convolutions_are_right():
    x, k = whole((2, 3, 11, 23), 0), whole((17, 3, 3, 3), 1)
    kernel = pk.op(CONVOLUTION).compile(x, k, target="cuda-sim")
    assert is_tiled(kernel)
    np.testing.assert_array_equal(kernel(x, k), convolved(x, k))
    padded = "O[n,f,h,w] += X[n,c,h+r-1,w+s-1; pad=0] * K[f,c,r,s] for h in 0:11, w in 0:23"
    kernel = pk.op(padded).compile(x, k, target="cuda-sim")
    assert is_tiled(kernel)
    np.testing.assert_array_equal(kernel(x, k), convolved(np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), k))
    strided = pk.op("O[n,f,h,w] += X[n,c,2*h+r,w+s] * K[f,c,r,s]").compile(x, k, target="cuda-sim")
    np.testing.assert_array_equal(strided(x, k), convolved(x, k)[:, :, ::2])


FAMILIES = {
    "product": ("C[i,j] += A[k,i] * B[j,k]", [(17, 33), (18, 17)]),
    "convolution": (CONVOLUTION, [(1, 2, 5, 18), (16, 2, 3, 3)]),
    "max-plus": ("C[i,j] max= A[i,k] + B[k,j]", [(18, 17), (17, 33)]),
}


@pytest.mark.parametrize(
    "text, shapes",
    [
        ("C[i,j] += A[k,i] * B[j,k]", [(9, 16), (17, 9)]),
        ("O[f,w] += X[c,w+s] * K[f,c,s]", [(4, 18), (16, 4, 3)]),
    ],
)
def test_the_interpreter_finds_no_race_and_no_undefined_element(text, shapes):
    arrays = [whole(s, n) for n, s in enumerate(shapes)]
    kernel = pk.op(text).compile(*arrays, target="cuda:sm_80")
    assert is_tiled(kernel)
    artifact = compiled_to(kernel)
    given = dict(zip(artifact.arguments, arrays, strict=False))
    for b in artifact.kernel.buffers:
        given.setdefault(b.name, np.zeros([s.value for s in b.shape], b.dtype.numpy))
    assert run(artifact.kernel, given, {}) == 0


@needs_compiler
@pytest.mark.parametrize("sanitizer", ["address", "thread"])
@pytest.mark.parametrize("family", FAMILIES)
def test_kernels_are_clean_under_the_sanitizers(family, sanitizer):
    text, shapes = FAMILIES[family]
    arrays = [whole(s, n) for n, s in enumerate(shapes)]
    kernel = pk.op(text).compile(*arrays, target="cuda-sim")
    rest = compiled_to(kernel).kernel.buffers[len(arrays) :]
    arrays += [np.full([s.value for s in b.shape], np.nan, b.dtype.numpy) for b in rest]
    found = run_checked(kernel.source("cuda"), arrays, sanitizer=sanitizer)
    assert (found.report, found.status) == ("", 0)
    np.testing.assert_array_equal(found.arrays[2], kernel(*arrays[:2]))


@needs_nvcc
@pytest.mark.parametrize("name", ["cuda:sm_80", "cuda:sm_90a"])
def test_large_products_spill_no_registers(name):
    for dtype in (pk.f32, pk.f64):
        kernel = pk.op("C[i,j] += A[i,k] * B[k,j]").compile(dtype[1000, 900], dtype[900, 1100], target=name)
        (used,) = cubin(kernel.source("cuda"), target(name))[1].values()
        assert used.spilled == 0
        assert used.registers <= 128 and 0 < used.shared <= 48 << 10


@needs_nvcc
@pytest.mark.parametrize(("name", "b", "batch"), pairs(["cuda:sm_80", "cuda:sm_90a"], ["k,j", "j,k"], ["", "b,"]))
def test_products_of_unknown_sizes_spill_no_registers(name, b, batch):
    text = f"C[{batch}i,j] += A[{batch}i,k] * B[{batch}{b}]"
    first = ("S",) if batch else ()
    kernel = pk.op(text).compile(pk.f32[*first, "M", "K"], pk.f32[*first, *b.upper().split(",")], target=name)
    assert is_tiled(kernel) and all(r.spilled == 0 for r in kernel.resources().values())


@needs_nvcc
def test_sums_in_wider_types_spill_no_registers():
    text, types = "D[i,j] += abs(A[i,k] - B[j,k])", (pk.bf16["M", 900], pk.bf16["N", 900])
    kernel = pk.op(text).compile(*types, acc=pk.f64, target="cuda:sm_90a")
    assert is_tiled(kernel) and all(r.spilled == 0 for r in kernel.resources().values())


@needs_nvcc
def test_operands_are_read_from_shared_memory_by_16_bytes():
    kernel = pk.op("C[i,j] += A[i,k] * B[k,j]").compile(pk.f32[1024, 1024], pk.f32[1024, 1024], target="cuda:sm_90a")
    text = kernel.source("ptx")
    assert text.count("ld.shared.v4.f32") > 0 and "ld.shared.f32" not in text
    assert text.count("fma.rn.f32") >= 8 * text.count("ld.shared.v4.f32")


@needs_compiler
def test_an_operand_of_one_element_is_copied_by_one_thread():
    rng = np.random.default_rng(0)
    a, b, c = rng.integers(-4, 5, (32, 70)) * 1.0, np.full(1, 3.0), rng.integers(-4, 5, 85) * 1.0
    kernel = pk.op("D[l,i] += A[i,j] * B[q] * (c[l+j] > 0)").compile(a, b, c, target="cuda-sim")
    assert "__shared__" in kernel.source("cuda")
    windows = np.lib.stride_tricks.sliding_window_view(c > 0, 70)
    np.testing.assert_array_equal(kernel(a, b, c), 3 * windows @ a.T)
