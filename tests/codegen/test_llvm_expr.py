"""What the emitter keeps of one copy of an access holds for the next one only as long as its names stand for the same."""

from __future__ import annotations

import numpy as np
import pytest

import polyker as pk
from polyker.codegen.ir.kernel import (
    Buffer,
    Const,
    For,
    If,
    KernelIR,
    Let,
    Load,
    LoopKind,
    Op,
    Space,
    StmtBlock,
    Store,
    Var,
)
from polyker.codegen.llvm.jit.detect import host
from polyker.ir.dtypes import bool_, f32, i64
from polyker.machine.model import Cache
from polyker.structs import replace
from tests.codegen.kernels import random_case
from tests.codegen.support import check_same

ONE = Const(1.0, f32)
TARGET = Buffer("Y", f32, (Const(64),), (Const(1),), Space.ARGUMENT, True)
INDEX = Buffer("I", i64, (Const(64),), (Const(1),), Space.ARGUMENT, False)


def vector(lo: int, *body: object) -> For:
    return For("v", Const(lo), Const(lo + 8), body, 1, LoopKind.VECTOR, 8, 8)  # type: ignore[arg-type]


def ordered(lo: int, *body: object) -> For:
    return For("v", Const(lo), Const(lo + 1), body)  # type: ignore[arg-type]


def check(body: StmtBlock, *buffers: Buffer) -> None:
    arrays = {"Y": np.zeros(64, np.float32), "I": np.arange(64)[::-1].copy()}
    names = {"Y", *(b.name for b in buffers)}
    kernel = KernelIR("kernel", (TARGET, *buffers), ("N",), body)
    check_same(kernel, {name: a for name, a in arrays.items() if name in names}, {"N": 60})


def test_a_variable_that_stands_for_other_lanes() -> None:
    """A condition between two loops asks for the variable, too."""
    inside = Op("lt", (Op("add", (Var("v"), Const(1))), Var("N")), bool_)
    check(tuple(vector(lo, If(inside, (Store("Y", (Var("v"),), ONE),))) for lo in (0, 16)))


@pytest.mark.parametrize("loop", [vector, ordered])
def test_a_value_bound_anew(loop: object) -> None:
    def copy(n: int) -> For:
        return loop(n, Let("x", Load("I", (Const(n),), i64)), Store("Y", (Var("x"),), ONE))  # type: ignore[operator]

    check((copy(0), copy(1)), INDEX)


def test_an_unrolled_loop_around_vectors_that_begin_at_its_variable() -> None:
    case = random_case(4474)
    check_same(case.kernel, case.arrays, case.integers, strides=case.strides)


@pytest.mark.parametrize("offset", [0, 4])
def test_a_gathered_factor_of_a_row_past_the_caches(offset: int) -> None:
    """Where the row begins at a line nothing comes before its whole vectors: what was loaded there is not what they need."""
    elements = 1 << 19
    raw = np.empty(4 * elements + 128, np.uint8)
    start = -raw.ctypes.data % 64 + offset
    out = raw[start : start + 4 * elements].view(np.float32)
    small = replace(host(), caches=(Cache(32 << 10), Cache(1 << 18), Cache(1 << 20)))
    types = {"T": pk.f32[100], "N": pk.i64[3], "X": pk.f32[elements]}
    kernel = pk.op("C[j] = T[N[0]] * X[j]").compile(**types, target=small, threads=1)
    assert "stream" in kernel.source("schedule")
    kernel(np.arange(100, dtype=np.float32), np.array([7, 8, 9]), np.ones(elements, np.float32), out=out)
    assert (out == 7).all()


def test_vectors_of_an_unrolled_loop_share_the_part_of_their_indices_that_varies() -> None:
    """One scalar goes to a vector register in each loop over groups of vectors: what is added to it are constants."""
    kernel = pk.op("y[i] = f32(i) * x[i]").compile(pk.f32[100000], target="cpu:x86-64-v4", threads=1)
    lines = kernel.source("asm").splitlines()
    assert 0 < sum("vpbroadcast" in line and "%e" in line for line in lines) <= 2
