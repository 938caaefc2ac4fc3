"""Machine code of CUDA kernels: nvcc and NVRTC, what ptxas says, and what is kept on disk."""

import os
import shutil
import subprocess
import sys

import pytest

import polyker as pk
from polyker.codegen.cuda import build as cuda_build
from polyker.codegen.cuda import nvrtc
from polyker.codegen.cuda.build import Resource, Resources, cubin, ptx
from polyker.codegen.llvm.jit.detect import target
from polyker.errors import ArgumentError, BackendUnavailable, InternalError
from tests.gpu.support import needs_compiler, needs_nvcc

needs_nvrtc = pytest.mark.skipif(nvrtc.library() is None, reason="NVRTC is not installed (package nvidia-cuda-nvrtc)")
HOPPER = target("cuda:sm_90a")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("POLYKER_CACHE", "rw")
    monkeypatch.setenv("POLYKER_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def product():
    return pk.op("C[i,j] += A[i,k] * B[k,j]").compile(pk.f32[64, 64], pk.f32[64, 64], target="cuda:sm_90a")


@pytest.fixture
def no_nvrtc(monkeypatch):
    monkeypatch.setattr(nvrtc, "library", lambda: None)


@needs_nvcc
def test_nvcc_gives_ptx_machine_code_and_what_the_kernels_take(product, no_nvrtc):
    assert ".target sm_90a" in product.source("ptx") and product.cubin().startswith(b"\x7fELF")
    used = product.resources()
    assert list(used) == ["kernel0"] and 0 < used["kernel0"].registers <= 255 and used["kernel0"].spilled == 0
    assert str(used).splitlines()[0].split() == "kernel registers shared bytes stack bytes spilled bytes".split()


@needs_nvrtc
def test_nvrtc_gives_the_same_and_nvcc_is_not_called(product, monkeypatch):
    monkeypatch.setattr(cuda_build.subprocess, "run", lambda *a, **k: pytest.fail("a process"))
    assert ".target sm_90a" in product.source("ptx") and product.cubin().startswith(b"\x7fELF")
    assert 0 < product.resources()["kernel0"].registers <= 255
    with pytest.raises(InternalError, match=r"NVRTC does not compile.*error"):
        cubin("nonsense", HOPPER)


@needs_nvcc
@needs_nvrtc
def test_nvcc_compiles_for_what_nvrtc_does_not_know(monkeypatch, tmp_path):
    text = 'extern "C" __global__ void kernel0(float *x) { x[threadIdx.x] = 1.0f; }'
    monkeypatch.setattr(nvrtc, "architectures", lambda: frozenset(("sm_80",)))
    monkeypatch.setattr(nvrtc, "compile_nvrtc", lambda *_: pytest.fail("NVRTC"))
    assert cubin(text, HOPPER)[0].startswith(b"\x7fELF") and ".target sm_90a" in ptx(text, HOPPER)


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
def test_nvcc_without_the_compiler_that_it_calls_is_not_tried(product, monkeypatch, no_nvrtc):
    which = shutil.which
    monkeypatch.setattr(cuda_build.shutil, "which", lambda name: which(name) if name == "nvcc" else None)
    with pytest.raises(BackendUnavailable, match=r"NVRTC is not found, and nvcc is there, but no C\+\+ compiler"):
        product.cubin()


@needs_nvcc
def test_what_nvcc_refuses_is_told_with_its_messages(no_nvrtc):
    with pytest.raises(InternalError, match=r"nvcc does not compile.*error"):
        ptx("nonsense", HOPPER)


def test_without_both_compilers_the_reason_is_said(product, monkeypatch, no_nvrtc):
    monkeypatch.setattr(cuda_build.shutil, "which", lambda name: None)
    for ask in (product.resources, product.cubin, lambda: product.source("ptx")):
        with pytest.raises(BackendUnavailable, match="nvidia-cuda-nvrtc") as caught:
            ask()
        assert caught.value.code == "PK607"


def test_kernels_of_a_cpu_have_no_such_resources():
    with pytest.raises(ArgumentError, match="cpu has no registers") as caught:
        pk.op("Y[i] = X[i] * 2").compile(pk.f32[4]).resources()
    assert caught.value.code == "PK624"


def test_what_ptxas_says_is_read_for_each_kernel():
    text = """ptxas info    : Compiling entry function 'kernel0' for 'sm_80'
ptxas info    : Function properties for kernel0
    8 bytes stack frame, 16 bytes spill stores, 24 bytes spill loads
ptxas info    : Used 122 registers, used 1 barriers, 16384 bytes smem, 400 bytes cmem[0]
ptxas info    : Compiling entry function 'kernel1' for 'sm_80'
ptxas info    : Used 10 registers"""
    wanted = {"kernel0": Resource(122, 16384, 40, 8), "kernel1": Resource(10, 0, 0, 0)}
    assert cuda_build.resources(text) == Resources(wanted)


@needs_nvcc
def test_machine_code_is_kept_and_depends_on_text_architecture_and_compiler(folder, monkeypatch):
    monkeypatch.setattr(nvrtc, "library", lambda: None)
    text = 'extern "C" __global__ void kernel0(float *x) { x[threadIdx.x] = 1.0f; }'
    first = cubin(text, HOPPER)
    files = set(folder.iterdir())
    monkeypatch.setattr(cuda_build, "run_nvcc", lambda *_: pytest.fail("compiled twice"))
    assert cubin(text, HOPPER) == first and first[1]["kernel0"].registers
    monkeypatch.undo()
    monkeypatch.setattr(nvrtc, "library", lambda: None)
    monkeypatch.setenv("POLYKER_CACHE", "rw")
    monkeypatch.setenv("POLYKER_CACHE_DIR", str(folder))
    cubin(text.replace("1.0f", "2.0f"), HOPPER)
    cubin(text, target("cuda:sm_80"))
    monkeypatch.setattr(cuda_build, "version_of", lambda path: "another version")
    cubin(text, HOPPER)
    assert len(set(folder.iterdir()) - files) == 3


@needs_compiler
def test_without_a_folder_for_it_the_simulator_runs_all_the_same():
    program = (
        "import numpy as np, polyker as pk\n"
        "print(pk.op('Y[i] = X[i] * 2').compile(pk.f64[3], target='cuda-sim')(np.ones(3)).sum())"
    )
    environment = {**os.environ, "POLYKER_CACHE_DIR": "/dev/null/nowhere"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120)
    assert done.stdout == "6.0\n", done.stderr
