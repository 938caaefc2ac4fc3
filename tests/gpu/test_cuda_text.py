"""The printed CUDA text: what it says, that it can be read, and that nvcc compiles it."""

import subprocess
import sys

import numpy as np
import pytest

import polyker as pk
from polyker.errors import ArgumentError, BackendUnavailable
from polyker.runtime.cuda import driver as cuda_driver
from tests.covering import few
from tests.gpu.support import needs_nvcc

MATMUL = "C[i,j] += A[i,k] * B[k,j]"

FAMILIES = {
    "product": (MATMUL, (pk.f32[70, 50], pk.f32[50, 90])),
    "symbolic product": (MATMUL, (pk.f32["M", "K"], pk.f32["K", "N"])),
    "convolution": ("O[n,f,h,w] += X[n,c,h+r,w+s] * K[f,c,r,s]", (pk.f32[2, 3, 20, 20], pk.f32[4, 3, 3, 3])),
    "softmax": (
        "P[i,j] = exp(X[i,j] - max[k](X[i,k])) / sum[l](exp(X[i,l] - max[k](X[i,k])))",
        (pk.f32[100, 200],),
    ),
    "gather": ("E[b,d] += T[idx[b,l], d]", (pk.f32[100, 64], pk.i32[8, 5])),
    "recurrence": ("S[b,0] = X[b,0];  S[b,t] = S[b,t-1] + X[b,t] for t in 1:60", (pk.f32[50, 60],)),
    "half precision": ("Y[i] = exp(X[i]) * W[i]", (pk.f16[1000], pk.f16[1000])),
    "complex": ("Y[i] = X[i] * W[i] / 3", (pk.c64[1000], pk.c64[1000])),
    "integers": ("Y[i] = X[i] // W[i] + X[i] ** 3", (pk.i16[1000], pk.i16[1000])),
}


def kernels_of(kernel):
    """Return the text after the header."""
    return kernel.source("cuda").split("// t0:", 1)[1]


def test_without_a_gpu_the_text_is_printed_and_a_call_says_why_it_cannot_run(monkeypatch):
    kernel = pk.op(MATMUL).compile(pk.f32[64, 64], pk.f32[64, 64], target="cuda:sm_90a")
    text = kernels_of(kernel)
    assert "__global__ void __launch_bounds__(256, 2) kernel0(" in text
    assert "blockIdx.x" in text and "threadIdx.x" in text
    monkeypatch.setattr(cuda_driver, "why_not", lambda: "libcuda: not found")
    kernel = pk.op(MATMUL).compile(pk.f32[60, 64], pk.f32[64, 64], target="cuda:sm_90a")
    with pytest.raises(BackendUnavailable, match="no CUDA device"):
        kernel(np.zeros((60, 64), "f4"), np.zeros((64, 64), "f4"))


def test_neighbouring_threads_take_neighbouring_elements_of_the_result():
    kernel = pk.op("T[j,i] = X[j] + X[i]").compile(pk.f32[64], target="cuda:sm_80")
    assert "block.x i.block = i//32" in str(kernel.schedule) and "thread.x(32) i.thread" in str(kernel.schedule)


def test_names_of_the_users_cannot_end_a_comment():
    kernel = pk.op("C[i] = A[i] * 2").compile(pk.f32[4], target="cuda:sm_80")
    assert "// t0: A, f32, argument" in kernel.source("cuda")


def test_stages_of_other_targets_are_refused_by_name():
    kernel = pk.op(MATMUL).compile(pk.f32[4, 4], pk.f32[4, 4], target="cuda:sm_80")
    with pytest.raises(ArgumentError, match="a kernel for cuda:sm_80 has no stage `llvm`"):
        kernel.source("llvm")
    with pytest.raises(ArgumentError, match="cuda"):
        pk.op(MATMUL).compile(pk.f32[4, 4], pk.f32[4, 4]).source("cuda")


def test_the_text_needs_neither_nvcc_nor_a_c_compiler():
    program = (
        "import os; os.environ['PATH'] = '/nowhere'; import polyker as pk; from polyker.codegen.cuda import nvrtc;"
        "nvrtc.library = lambda: None;"
        "k = pk.op('C[i] = A[i] * 2').compile(pk.f32[4], target='cuda:sm_90a'); assert '__global__' in k.source('cuda')\n"
        "try: k.source('ptx')\n"
        "except pk.errors.BackendUnavailable as e: print(e.code)\n"
        "try: pk.op('C[i] = A[i] * 2').compile(pk.f32[4], target='cuda-sim')\n"
        "except pk.errors.BackendUnavailable as e: print(e.code)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["PK607", "PK604"], done.stderr


@needs_nvcc
@pytest.mark.parametrize(
    "text, types",
    [
        ("s += A[i,i]", [pk.f32[33, 33]]),
        ("s[i] += A[i,j]", [pk.f32[3, 20]]),
        ("Y[j] = X[0,j] * 2", [pk.f32["N", "M"]]),
        ("C[i,j] max= A[i,k] + B[k,j]", [pk.f32[70, 50], pk.f32[50, 90]]),
        ("Y[i] = X[i] // W[i] + X[i] % W[i] + X[i] ** W[i] + abs(X[i]) + sign(X[i])", [pk.u8[1000], pk.u8[1000]]),
        ("Y[i] = X[i] // W[i] + X[i] % W[i] + X[i] ** W[i] + abs(X[i]) + sign(X[i])", [pk.i32[1000], pk.i32[1000]]),
    ],
)
def test_nvcc_has_nothing_to_remark(text, types, tmp_path):
    (tmp_path / "kernels.cu").write_text(pk.op(text).compile(*types, target="cuda:sm_80").source("cuda"))
    command = ["nvcc", "-c", "-arch=sm_80", "-Xcompiler", "-Wall", "kernels.cu"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@needs_nvcc
@pytest.mark.parametrize(("family", "arch"), few([*FAMILIES], ["cuda:sm_80", "cuda:sm_90a"], 1))
def test_nvcc_compiles_one_kernel_of_each_family_without_spills(family, arch):
    text, types = FAMILIES[family]
    kernel = pk.op(text).compile(*types, target=arch)
    used = kernel.resources()
    assert kernel.cubin().startswith(b"\x7fELF") and len(used) == kernel.source("cuda").count("__global__ void")
    assert all(r.spilled == 0 and 0 < r.registers <= 255 for r in used.values()), used


def test_the_compiler_takes_few_iterations_together_of_loops_that_read_the_devices_memory():
    def pragmas(text, *types):
        schedule = pk.op(text).schedule(*types, target="cuda:sm_90a", auto=False)
        return kernels_of(pk.op(text).compile(*types, schedule=schedule)).count("#pragma unroll 4\n")

    assert pragmas(MATMUL, pk.f32[64, 64], pk.f32[64, 64]) == 1
    assert pragmas(MATMUL, pk.f32["M", "K"], pk.f32["K", "N"]) == 1
    assert pragmas(MATMUL, pk.f32[64, 4], pk.f32[4, 64]) == 0


@needs_nvcc
def test_short_rows_of_a_thread_lie_in_registers():
    text = "S[b,0] = X[b,0];  S[b,t] = S[b,t-1] + X[b,t] for t in 1:N;  O[b] += S[b,t] * X[b,t]"
    for n in (5, 17, 40):
        (used,) = pk.op(text, N=n).compile(pk.f32[500, n], target="cuda:sm_80").resources().values()
        assert (used.stack, used.spilled) == (0, 0)


@needs_nvcc
def test_long_functions_are_not_repeated_until_registers_spill():
    kernel = pk.op("E[k,s] += (L[k] - C[s]) % X[i]").compile(
        pk.f64[3000], pk.f64[300], pk.f64[100], target="cuda:sm_80"
    )
    assert "#pragma unroll" not in kernels_of(kernel)
    assert all((r.stack, r.spilled) == (0, 0) for r in kernel.resources().values())


@needs_nvcc
def test_blocks_of_few_threads_have_whole_warps_registers():
    kernel = pk.op("s[i] = X[i] * 2").compile(pk.f32[3], target="cuda:sm_80")
    assert "__launch_bounds__(4, 16)" in kernels_of(kernel)
