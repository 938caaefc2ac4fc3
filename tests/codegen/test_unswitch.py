"""Conditions that stay the same are outside of the loops over their terms; integers' extrema of some terms are masked."""

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
    KExpr,
    Load,
    LoopKind,
    Op,
    Space,
    StmtBlock,
    Store,
    Var,
)
from polyker.codegen.llvm.jit.detect import target
from polyker.codegen.passes.unswitch import unswitch
from polyker.codegen.passes.x86.masked_terms import masked_terms
from polyker.ir.dtypes import DType, bool_, f32, i32
from polyker.structs import replace
from tests.codegen.interpret import run as interpret
from tests.codegen.support import check_same

MOST = 2**31 - 1
HOLDS = Op("eq", (Load("C", (Var("b"),), i32), Const(1, i32)), bool_)


def loop(var: str, count: KExpr | int, *body: For | Store | If) -> For:
    """Return a serial loop from 0."""
    count = Const(count) if isinstance(count, int) else count
    return For(var, Const(0), count, body, 1, LoopKind.SERIAL, 0, count.value if isinstance(count, Const) else None)


def kernel(*body: For | Store | If, dtype: DType = i32) -> KernelIR:
    """Return a kernel of `M[0]`, the least of `X[b, l]` where `C[b]` is 1."""
    buffers = (
        Buffer("M", dtype, (Const(1),), (Const(1),), Space.ARGUMENT),
        Buffer("C", i32, (Const(5),), (Const(1),), Space.ARGUMENT, writable=True),
        Buffer("X", dtype, (Const(5), Const(7)), (Const(7), Const(1)), Space.ARGUMENT, writable=False),
    )
    return KernelIR("kernel", buffers, (), body)


def term(condition: KExpr = HOLDS, none: float = MOST, op: str = "minimum", dtype: DType = i32) -> Store:
    """Return `M[0] = minimum(M[0], where(C[b] == 1, X[b, l], none))`."""
    value = Op("where", (condition, Load("X", (Var("b"), Var("l")), dtype), Const(none, dtype)), dtype)
    return Store("M", (Const(0),), Op(op, (Load("M", (Const(0),), dtype), value), dtype))


def least(made: KernelIR, X: np.ndarray, C: np.ndarray) -> int:
    """Return what a kernel finds, as the interpreter and as machine code."""
    buffers = {"M": np.array([MOST], X.dtype), "C": C, "X": X}
    assert check_same(made, buffers, {}) == 0
    interpret(made, buffers, {})
    return int(buffers["M"][0])


def conditions(body: StmtBlock) -> list[tuple[str, ...]]:
    """Return the loops around each branch, the outermost first."""
    found: list[tuple[str, ...]] = []

    def walk(block: StmtBlock, around: tuple[str, ...]) -> None:
        for s in block:
            if isinstance(s, If):
                found.append(around)
                walk(s.body, around)
            elif isinstance(s, For):
                walk(s.body, (*around, s.var))

    walk(body, ())
    return found


def test_a_condition_is_outside_of_the_loops_that_do_not_change_it() -> None:
    before = kernel(loop("b", 5, loop("k", 3, loop("l", 7, term()))))
    after = unswitch(before)
    assert conditions(after.body) == [("b",)]
    rng = np.random.default_rng(0)
    for holds in (0, 1):
        X, C = rng.integers(-9, 9, (5, 7)).astype("i4"), np.array([0, 1, holds, 0, 0], "i4")
        assert least(before, X, C) == least(after, X, C) == X[C == 1].min()


def test_floats_extrema_are_taken_where_conditions_hold_too() -> None:
    made = unswitch(kernel(loop("b", 5, loop("l", 7, term(none=float("inf"), dtype=f32))), dtype=f32))
    assert conditions(made.body) == [("b",)]


@pytest.mark.parametrize(
    "body",
    [
        loop("b", 5, loop("l", Op("add", (Var("b"), Const(-2))), term())),  # no term may be there, nor C[b]
        loop("b", 5, loop("l", 7, If(Op("lt", (Var("l"), Var("b")), bool_), (term(),)))),
        loop("b", 5, loop("l", 7, term(none=MOST - 1))),  # no identity
        loop("b", 5, loop("l", 7, term(op="add", none=0))),
        loop(
            "b", 5, loop("l", 7, term(Op("eq", (Load("M", (Const(0),), i32), Const(1, i32)), bool_)))
        ),  # it is written
        loop("b", 5, loop("l", 7, term(), Store("C", (Var("l"),), Const(1, i32)))),
        loop("b", 5, loop("l", 7, term(), term(Op("eq", (Load("C", (Var("b"),), i32), Const(2, i32)), bool_)))),
    ],
)
def test_other_loops_stay(body: For) -> None:
    before = kernel(body)
    assert conditions(unswitch(before).body) == conditions(before.body)


def test_rows_of_a_tile_have_no_branches() -> None:
    lanes = For("l", Const(0), Const(4), (term(),), 1, LoopKind.VECTOR, 4, 4)
    rows = For("b", Const(0), Const(5), (lanes,), 1, LoopKind.UNROLL, 0, 5)
    before = kernel(loop("k", 3, rows))
    assert unswitch(before) == before
    assert conditions(unswitch(kernel(loop("b", 5, loop("k", 3, lanes)))).body) == [("b",)]


def test_integers_extrema_keep_the_element_where_the_condition_fails() -> None:
    before = kernel(loop("b", 5, loop("l", 7, term())))
    after = masked_terms(before, target("cpu:x86-64-v4"))
    assert after != before
    assert masked_terms(before, target("cpu:x86-64-v3")) == before
    rng = np.random.default_rng(0)
    X, C = rng.integers(-9, 9, (5, 7)).astype("i4"), np.array([0, 1, 1, 0, 0], "i4")
    assert least(before, X, C) == least(after, X, C) == X[C == 1].min()
    floats = kernel(loop("b", 5, loop("l", 7, term(none=float("inf"), dtype=f32))), dtype=f32)
    assert masked_terms(floats, target("cpu:x86-64-v4")) == floats
    other = replace(before, body=(loop("b", 5, loop("l", 7, term(none=MOST - 1))),))
    assert masked_terms(other, target("cpu:x86-64-v4")) == other


def test_lanes_that_share_a_element_are_combined_as_before() -> None:
    lanes = For("l", Const(0), Const(4), (term(),), 1, LoopKind.VECTOR, 4, 4)
    made = kernel(loop("b", 5, lanes))
    assert masked_terms(made, target("cpu:x86-64-v4")) == made
    B = np.array([5, -3, 8, -3, 7, 0, 2, 9] * 3)
    op = pk.op("D = argmin[x](B[x])")
    schedule = op.schedule(B, auto=False)["D.min2"].vectorise(x=8)
    assert op.compile(B, schedule=schedule)(B) == 1


def test_places_are_kept_by_one_instruction_under_a_mask() -> None:
    types = {"A": pk.f32[96, 96], "B": pk.f32[96, 96]}
    text = "C[i,j] = argmax[k](A[i,k] + B[k,j])"
    asm = str(pk.op(text).compile(**types, target="cpu:x86-64-v4", threads=1).source("asm"))
    assert "vpminsd" in asm
    assert all("{%k" in line for line in asm.splitlines() if "vpminsd" in line)
