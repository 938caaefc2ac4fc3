"""Transposes through shared memory: neighbouring threads read neighbours, and write neighbours."""

import numpy as np
import pytest

import polyker as pk
from polyker.codegen.cuda.build import cubin
from polyker.codegen.llvm.jit.detect import target
from tests.artifacts import compiled_to
from tests.codegen.interpret import run
from tests.gpu.sim_check import run_checked
from tests.gpu.support import needs_compiler, needs_nvcc
from tests.gpu.test_sanitizers import SANITIZERS


def coded(*shape):
    return np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape)


CASES = {
    "plain": ("B[j,i] = X[i,j]", lambda x: x.T, [(37, 70)]),
    "one tile": ("B[j,i] = X[i,j]", lambda x: x.T, [(16, 17)]),
    "operands": ("B[j,i] = X[i,j] * C[j,i] + D[i,j]", lambda x, c, d: x.T * c + d.T, [(37, 70), (70, 37), (37, 70)]),
    "batch": ("B[k,j,i] = X[i,j,k]", lambda x: x.transpose(2, 1, 0), [(20, 3, 40)]),
    "four": ("B[a,d,b,c] = X[c,a,b,d]", lambda x: x.transpose(1, 3, 2, 0), [(20, 3, 4, 40)]),
    "five": ("B[a,b,c,d,e] = X[e,a,c,b,d]", lambda x: x.transpose(1, 3, 2, 4, 0), [(20, 3, 2, 4, 40)]),
    "backwards": ("B[j,i] = X[69-i,j]", lambda x: x[::-1].T, [(70, 33)]),
    "part": ("B[j,i] = X[i,j+3] for j in 0:30", lambda x: x[:, 3:33].T, [(40, 33)]),
}


@needs_compiler
@pytest.mark.parametrize("case", CASES)
def test_what_is_read_along_another_index_is_turned_in_shared_memory(case):
    text, want, shapes = CASES[case]
    arrays = [coded(*s) for s in shapes]
    kernel = pk.op(text).compile(*arrays, target="cuda-sim")
    assert "transposed in shared memory" in kernel.source("schedule")
    np.testing.assert_array_equal(kernel(*arrays), want(*arrays))


@needs_compiler
def test_strided_and_symbolic_operands_are_turned():
    x = coded(80, 70)[::2, ::-1]
    np.testing.assert_array_equal(pk.op("B[j,i] = X[i,j]").compile(x, target="cuda-sim")(x), x.T)
    kernel = pk.op("B[j,i] = X[i,j]").compile(pk.f32["N", "M"], target="cuda-sim")
    assert "transposed in shared memory" in kernel.source("schedule")
    for shape in ((1, 1), (3, 0), (0, 3), (5, 70), (33, 64)):
        np.testing.assert_array_equal(kernel(coded(*shape)), coded(*shape).T)


@pytest.mark.parametrize(
    "text, shape", [("B[i,j] = X[i,j] * 2", (64, 64)), ("B[j,i] = X[i,j]", (64, 3)), ("B[j,i] = X[i,2*i]", (32, 64))]
)
def test_what_needs_no_turning_is_left(text, shape):
    text = text.replace("B[j,i] = X[i,2*i]", "B[i] = X[i,2*i]")
    kernel = pk.op(text).compile(pk.f32[shape], target="cuda:sm_80")
    assert "turned" not in kernel.source("schedule")


def test_rows_of_the_tile_begin_in_different_banks():
    kernel = pk.op("B[j,i] = X[i,j]").compile(pk.f32[64, 64], target="cuda:sm_80")
    assert "__shared__ f32" in kernel.source("cuda") and "[1056]" in kernel.source("cuda")


@needs_compiler
def test_the_interpreter_finds_no_race():
    x = coded(33, 40)
    kernel = compiled_to(pk.op("B[j,i] = X[i,j]").compile(x, target="cuda-sim")).kernel
    out = np.zeros((40, 33), "f4")
    assert run(kernel, {kernel.buffers[0].name: x, kernel.buffers[1].name: out}, {}) == 0
    np.testing.assert_array_equal(out, x.T)


@needs_compiler
@pytest.mark.parametrize("sanitizer", SANITIZERS)
def test_turning_is_clean_and_a_missing_barrier_is_not(sanitizer):
    x = coded(37, 41)
    kernel = pk.op("B[j,i] = X[i,j]").compile(x, target="cuda-sim")
    text, memory = kernel.source("cuda"), [x, np.full((41, 37), np.nan, "f4")]
    found = run_checked(text, memory, sanitizer=sanitizer)
    assert (found.report, found.status) == ("", 0)
    np.testing.assert_array_equal(found.arrays[1], x.T)
    if sanitizer == "thread":
        assert "data race" in run_checked(text.replace("__syncthreads();", ""), memory, sanitizer=sanitizer).report


@needs_nvcc
def test_nvcc_compiles_the_tile():
    kernel = pk.op("B[j,i] = X[i,j]").compile(pk.f64[1000, 700], target="cuda:sm_90a")
    _, used = cubin(kernel.source("cuda"), target("cuda:sm_90a"))
    assert all(r.spilled == 0 for r in used.values()), used
