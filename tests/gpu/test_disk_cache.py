"""Kernels of a GPU from the disk: the same results, with nothing compiled."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

import polyker as pk
from polyker.api.compiling import kernels
from polyker.api.targets import target_named
from polyker.codegen.cuda import nvrtc
from polyker.errors import GatherError
from polyker.pipeline import gpu as gpu_pipeline
from polyker.record.codec import decode, encode
from polyker.record.host_code import HostBranch, HostCode, HostLoop, LaunchRecord
from polyker.record.records import KernelRecord
from tests.artifacts import compiled_of
from tests.gpu.stub import build
from tests.store.conftest import folder as folder

PROGRAMS = {
    "product": ("C[i,j] += A[i,k] * B[k,j]", {"A": (40, 24), "B": (24, 33)}),
    "softmax": ("P[i,j] = exp(X[i,j] - max[k](X[i,k])) / sum[l](exp(X[i,l] - max[k](X[i,k])))", {"X": (17, 50)}),
    "time": (
        "heat(X: f32[N]) -> A:\n    A[i] = X[i]\n    for t in 0:T:\n"
        "        B[i] = (A[i-1; pad=0] + A[i+1; pad=0]) / 2 for i in 0:N\n        A[i] = B[i]",
        {"X": (70,)},
    ),
    "steps": (
        "f(X: f32[N]) -> A:\n    A[i] = X[i]\n    for t in 0:T:\n        A[i] = A[i] * 2 + t for i in 0:N",
        {"X": (70,)},
    ),
    "gather": ("O[i,j] = X[I[i],j]", {"X": (9, 20), "I": (31,)}),
}


def arrays_of(name):
    rng = np.random.default_rng(5)
    return {
        n: rng.integers(0, 9, shape) if n == "I" else rng.standard_normal(shape).astype(np.float32)
        for n, shape in PROGRAMS[name][1].items()
    }


def run(name):
    """Return the kernel for symbolic sizes, and its results."""
    arrays = arrays_of(name)
    if name in ("time", "steps"):
        return ran(pk.op(PROGRAMS[name][0]).compile(target="cuda"), arrays, T=3)
    types = {n: pk.i64["m"] if n == "I" else pk.f32[tuple(f"{n}{d}" for d in range(a.ndim))] for n, a in arrays.items()}
    if name == "product":
        types = {"A": pk.f32["n", "k"], "B": pk.f32["k", "m"]}
    kernel = pk.op(PROGRAMS[name][0]).compile(target="cuda", **types)
    return ran(kernel, arrays)


def ran(kernel, arrays, **sizes):
    found = kernel(**arrays, **sizes)
    return kernel, found if isinstance(found, tuple) else (found,)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_kernel_from_the_disk_does_the_same(name, folder, device, monkeypatch):
    first = run(name)[1]
    launches = len(device.launches)
    kernels.clear()
    with monkeypatch.context() as patch:
        patch.setattr(gpu_pipeline, "compile_gpu", lambda *_: pytest.fail("compiled twice"))
        kernel, again = run(name)
    assert all(np.array_equal(a, b) and a.any() for a, b in zip(first, again, strict=True))
    assert len(device.launches) == 2 * launches > 0
    assert all(e.from_disk for e in compiled_of(kernel).executables.values())
    assert "__global__" in kernel.source("cuda")  # made once more


def test_a_guard_of_a_kernel_from_the_disk_tells_what_it_found(folder, device):
    kernel, _ = run("gather")
    kernels.clear()
    kernel, _ = run("gather")
    arrays = arrays_of("gather")
    arrays["I"][7] = 9
    with pytest.raises(GatherError, match="I"):
        kernel(**arrays)


def test_the_launches_are_those_of_loops_and_of_both_ways_of_a_branch():
    one, two, three = (LaunchRecord(f"kernel{n}", (1, 1, 1), (1, 1, 1), (), (), False, 0) for n in range(3))
    branch = HostBranch(("lt", "t", 2), (one,), (two,))
    assert [*HostCode(("n",), (), (HostLoop("t", 0, "n", 1, (branch,)), three)).launches()] == [one, two, three]


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_record_of_what_the_host_does_is_the_same_after_json(name, device):
    kernel, _ = run(name)
    record = compiled_of(kernel).executable().record
    assert decode(KernelRecord, encode(record)).host == record.host is not None
    assert isinstance(record.host, HostCode) and all(isinstance(s, LaunchRecord) for s in record.host.launches())
    assert any(isinstance(s, HostLoop) for s in record.host.body) is (name in ("time", "steps"))


def test_another_gpu_takes_another_kernel(folder, device, monkeypatch):
    run("product")
    entries = len(list(folder.rglob("*")))
    kernels.clear()
    monkeypatch.setattr(type(device), "arch", lambda self: "sm_80")
    target_named.cache_clear()
    run("product")
    assert len(list(folder.rglob("*"))) > entries


PROGRAM = """
import sys, numpy as np, polyker as pk
kernel = pk.op("C[i,j] += A[i,k] * B[k,j]").compile(pk.f32[40, 24], pk.f32[24, 33], target="cuda")
kernel(np.ones((40, 24), np.float32), np.ones((24, 33), np.float32))
compilers = ("lark", "islpy", "sympy", "polyker.pipeline", "polyker.schedule", "polyker.rewrite", "polyker.poly")
print(sorted({m for m in sys.modules for c in compilers if m == c or m.startswith(c + ".")}))
"""


def test_a_warm_process_loads_nothing_that_compiles(folder):
    if reason := build.why_not():
        pytest.skip(reason)
    if nvrtc.library() is None and shutil.which("nvcc") is None:
        pytest.skip("neither NVRTC nor nvcc is installed")
    environment = {**os.environ, "LD_LIBRARY_PATH": str(build.build_stub().parent)}

    def printed():
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    assert "islpy" in printed()
    assert printed() == "[]"
