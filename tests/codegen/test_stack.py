"""STACK buffers: which lanes mean nothing, and need not be kept."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polyker as pk
from polyker.codegen.ir.kernel import (
    Allocate,
    Buffer,
    Const,
    For,
    If,
    KernelIR,
    Load,
    LoopKind,
    Op,
    Space,
    StmtBlock,
    Store,
    Var,
)
from polyker.codegen.llvm.stack import StackBuffers
from polyker.codegen.passes.simplify import InCopies
from polyker.ir.dtypes import bool_, f32, i64

ACC = Buffer("acc", f32, (Const(2), Const(16)), (Const(16), Const(1)), Space.STACK, True)


def vector(var: str, end: int | Var, body: StmtBlock, lo: int = 0) -> For:
    """Return a loop over the lanes of one vector of 16."""
    stop = end if isinstance(end, Var) else Const(end)
    return For(
        var, Const(lo), stop, body, kind=LoopKind.VECTOR, lanes=16, trip=end - lo if isinstance(end, int) else None
    )


def add(row: int, var: str) -> Store:
    """Return `acc[row, var] = acc[row, var] + 1`."""
    place = (Const(row), Var(var))
    return Store("acc", place, Op("add", (Load("acc", place, f32), Const(1.0, f32)), f32))


def may_reassociate(*body: For | Store | If) -> bool:
    """Return whether the lanes that are off in these statements on `acc` may be written."""
    kernel = KernelIR("kernel", (), ("n",), (For("t", Const(0), Const(3), (Allocate((ACC,), body),)),))
    return StackBuffers(kernel, InCopies()).layout(ACC).reassociating


def test_lanes_beyond_the_one_bound_of_all_loops_mean_nothing() -> None:
    assert may_reassociate(vector("a", 5, (add(0, "a"),)), vector("b", 5, (add(0, "b"),)))
    assert may_reassociate(vector("a", 5, (add(0, "a"),)), vector("b", 16, (add(1, "b"),)))  # another vector
    assert may_reassociate(vector("a", Var("n"), (add(0, "a"),)), vector("b", Var("n"), (add(0, "b"),)))


@pytest.mark.parametrize(
    "body",
    [
        (vector("a", 5, (add(0, "a"),)), vector("b", 16, (add(0, "b"),))),
        (vector("a", 5, (add(0, "a"),)), vector("b", 6, (add(0, "b"),), lo=1)),
        (vector("a", 5, (add(0, "a"),)), add(0, "t")),
        (vector("a", 5, (If(Op("lt", (Var("a"), Const(3)), bool_), (add(0, "a"),)),)),),
        (For("k", Const(0), Const(9), (vector("a", Var("k"), (add(0, "a"),)),)),),
        (vector("a", 5, (For("k", Const(0), Var("a"), (add(0, "a"),)),)),),
        (vector("a", 5, (Store("acc", (Const(0), Op("add", (Var("a"), Const(1)), i64)), Const(1.0, f32)),)),),
    ],
    ids=["longer", "later", "scalar", "condition", "bound of its own", "longer in some lanes", "between vectors"],
)
def test_lanes_that_another_access_uses_are_kept(body: StmtBlock) -> None:
    assert not may_reassociate(*body)


def test_what_a_branch_sets_holds_nothing_before_it() -> None:
    holds = Op("lt", (Var("n"), Const(3)), bool_)
    tile = vector("a", 16, (add(0, "a"),))

    def clear(*body: For | If, around: bool = True) -> str:
        scope: StmtBlock = (Allocate((ACC,), body),)
        whole = (For("t", Const(0), Const(3), scope),) if around else scope
        return StackBuffers(KernelIR("kernel", (), ("n",), whole), InCopies()).layout(ACC).clear

    assert clear(If(holds, (tile,))) == "undef"
    assert clear(If(holds, (tile,)), around=False) == ""  # there is no iteration before
    assert clear(tile) == ""  # it is set whenever the scope is entered
    branch = (If(holds, (Allocate((ACC,), (tile,)),)),)
    kernel = KernelIR("kernel", (), ("n",), (For("t", Const(0), Const(3), branch),))
    assert StackBuffers(kernel, InCopies()).layout(ACC).clear == ""  # the scope is within the branch


@given(n=st.integers(1, 40), m=st.integers(1, 40), k=st.integers(1, 9), symbolic=st.booleans(), data=st.data())
@settings(max_examples=7, deadline=None)
def test_reductions_whose_conditions_cut_vectors_are_numpys(
    n: int, m: int, k: int, symbolic: bool, data: st.DataObject
) -> None:
    rng = np.random.default_rng(n * m * k)
    a, b = rng.integers(-4, 5, (n, k)).astype(np.float32), rng.integers(-4, 5, (k, m)).astype(np.float32)
    first = data.draw(st.integers(0, m))
    text = f"C[i,j] += A[i,k] * B[k,j] where j < 3*k + {first}"
    kernel = pk.op(text).compile(a, b, specialize="never" if symbolic else "always")
    mask = np.arange(m)[None] < 3 * np.arange(k)[:, None] + first
    expected = a @ np.where(mask, b, 0)
    np.testing.assert_array_equal(kernel(a, b), expected)


def test_elements_behind_the_ends_of_rows_hold_zeros() -> None:
    """Vectors reach them: what they happened to hold, subnormal numbers, took Intel's processors 100 times as long."""
    product = pk.op("C[i,j,a] += A[i,j,k] * B[a,k]")
    cut = product.compile(A=pk.f32[40, 48, 56], B=pk.f32[28, 56], target="cpu:x86-64-v4", threads=1)
    whole = product.compile(A=pk.f32[40, 48, 56], B=pk.f32[32, 56], target="cpu:x86-64-v4", threads=1)
    exact = product.compile(A=pk.i32[40, 48, 56], B=pk.i32[28, 56], target="cpu:x86-64-v4", threads=1)
    assert "laid out" in str(cut.source("schedule"))  # a copy of B on the stack
    assert "clear0:" in str(cut.source("llvm"))
    assert not any("clear0:" in str(kernel.source("llvm")) for kernel in (whole, exact))


def test_buffers_of_a_parallel_loop_s_body_hold_zeros_where_it_begins() -> None:
    rng = np.random.default_rng(0)
    A, B = (rng.integers(-4, 5, shape).astype("f4") for shape in ((64, 200, 56), (64, 24, 56)))
    product = pk.op("C[b,i,a] += A[b,i,k] * B[b,a,k]")
    text = str(product.compile(A=pk.f32[A.shape], B=pk.f32[B.shape], threads=2, target="cpu:x86-64-v4").source("llvm"))
    assert [f.split("(")[0] for f in text.split("define ") if "clear0:" in f] == ["internal i64 @body0"]
    assert np.array_equal(product.compile(A, B, threads=2)(A, B), np.einsum("bik,bak->bia", A, B))


def test_elements_of_a_whole_dimension_are_found_without_a_remainder() -> None:
    text = "Y[i,j] = X[i,j]*2;  Z[i,j] = sum[b in 0:2](Y[i,j+b]) for i in 0:200, j in 0:191"
    kernel = pk.op(text).compile(X=pk.f32[200, 192], target="cpu:x86-64-v4", threads=1)
    loops = kernel.source("loops")
    assert re.search(r"f32\[\d+, 192\] on the stack", loops)
    assert "%" not in loops
