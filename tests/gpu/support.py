"""What the tests of the CUDA back end need, or why they are skipped."""

import shutil
import subprocess
from functools import cache

import numpy as np
import pytest

import polyker as pk
from polyker.codegen.ir.kernel import (
    Allocate,
    Barrier,
    Buffer,
    Const,
    For,
    If,
    KernelIR,
    Launch,
    Load,
    LoopKind,
    Op,
    Space,
    Store,
    Var,
)
from polyker.ir.dtypes import f32
from polyker.structs import replace
from tests.artifacts import compiled_to

COMPILERS = ("g++", "clang++", "c++")
HAS_COMPILER = any(map(shutil.which, COMPILERS))
needs_compiler = pytest.mark.skipif(not HAS_COMPILER, reason="no C++ compiler for the simulator (g++, clang++, c++)")
needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")


@cache
def _links(name):
    command = [
        next(filter(None, map(shutil.which, COMPILERS))),
        "-x",
        "c++",
        "-",
        f"-fsanitize={name}",
        "-o",
        "/dev/null",
    ]
    return subprocess.run(command, input="int main() {}", text=True, capture_output=True).returncode == 0


def needs_sanitizer(name):
    """Return the mark of a test under a sanitizer, `none` for none."""
    there = HAS_COMPILER and (name == "none" or _links(name))
    return pytest.mark.skipif(not there, reason=f"no C++ compiler with the library of the {name} sanitizer")


def removed(block, number, kind=Barrier):
    """Return a block without its barrier (or other statement) of that number, and the number of those before the next block."""
    found = []
    for stmt in block:
        match stmt:
            case _ if isinstance(stmt, kind):
                number -= 1
                if number != -1:
                    found.append(stmt)
            case If():
                body, number = removed(stmt.body, number, kind)
                found.append(replace(stmt, body=body))
            case For() | Allocate() | Launch():
                body, number = removed(stmt.body, number, kind)
                found.append(replace(stmt, body=body))
            case _:
                found.append(stmt)
    return tuple(found), number


N = 8


def reversing(*, barrier: bool = True, last: int = N - 1) -> KernelIR:
    """Return a kernel in which each thread stores an element in shared memory and reads another thread's."""
    x, y = (
        Buffer(n, f32, (Const(N),), (Const(1),), Space.ARGUMENT, writable=w) for n, w in (("X", False), ("Y", True))
    )
    s = Buffer("S", f32, (Const(N),), (Const(1),), Space.SHARED)
    one, other = Var("i"), Op("sub", (Const(last), Var("j")))

    def threads(var, body):
        return For(var, Const(0), Const(N), (body,), kind=LoopKind.THREAD, lanes=N, trip=N, axis="x")

    inside = [
        threads("i", Store("S", (one,), Load("X", (one,), f32))),
        threads("j", Store("Y", (Var("j"),), Load("S", (other,), f32))),
    ]
    if barrier:
        inside.insert(1, Barrier())
    body = Allocate((s,), tuple(inside))
    launch = Launch("reverse", (Const(1), Const(1), Const(1)), (N, 1, 1), (body,))
    return KernelIR("kernel", (x, y), (), (launch,))


def artifact_of(text, *types, target="cuda-sim"):
    """Return what an operator is compiled to, for types or arrays."""
    return compiled_to(pk.op(text).compile(*types, target=target))


def small(text, *shapes):
    """Return the kernel of an operator, and arrays for it."""
    arrays = [np.random.default_rng(n).integers(-4, 5, s).astype("f4") for n, s in enumerate(shapes)]
    artifact = artifact_of(text, *arrays)
    out = [np.zeros([s.value for s in b.shape], b.dtype.numpy) for b in artifact.kernel.buffers[len(arrays) :]]
    return artifact.kernel, [*arrays, *out]
