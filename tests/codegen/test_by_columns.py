"""Serial loops around vectors across rows: tiles of them write what the loop writes, and nothing beside it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polyker.codegen.ir.kernel import (
    Allocate,
    Buffer,
    Const,
    For,
    KernelIR,
    KExpr,
    Let,
    Load,
    LoopKind,
    Op,
    Space,
    Stmt,
    StmtBlock,
    Store,
    Var,
)
from polyker.codegen.ir.verify import verify
from polyker.codegen.llvm.jit.build import build
from polyker.codegen.llvm.jit.detect import target
from polyker.codegen.passes.by_columns import lanes_across
from polyker.ir.dtypes import DTYPES, DType
from polyker.machine.model import Cache, Target
from polyker.structs import replace
from tests.codegen.support import call, index
from tests.passes import emit

NAMES = ("f32", "f64", "i8", "u16", "i32", "i64", "bf16", "f16")
LINE = 64


def tiny(name: str) -> Target:
    return replace(target(name), caches=(Cache(256), Cache(512), Cache(1024)))


def running(
    name: str, lanes: int, rows: int, lo: int, steps: KExpr, width: int, *, back: bool = False, panels: int = 1
) -> KernelIR:
    """Return O[r,t] = x, where x is X[r,t] plus what it was a step before, for `steps` t from `lo` on; `back`: in rows of `width`
    elements from their ends, else from their starts. Rows are taken by `panels` of `rows`."""
    dtype = DTYPES[name]
    at: KExpr = index("sub", width - 1, "t") if back else Var("t")
    row = index("add", index("mul", "p", rows), "v")
    now = Op("add", (Load("sum", (Var("v"),), dtype), Load("x", (row, at), dtype)), dtype)
    body: StmtBlock = (
        Let("now", now),
        Store("o", (row, at), Var("now", dtype)),
        Store("sum", (Var("v"),), Var("now", dtype)),
    )

    def vector(inside: StmtBlock) -> For:
        return For("v", Const(0), Const(rows), inside, kind=LoopKind.VECTOR, lanes=lanes, trip=rows)

    trip = steps.value if isinstance(steps, Const) else None
    assert trip is None or isinstance(trip, int)
    end = index("add", lo, steps)
    loop = For("t", Const(lo), end, (vector(body),), trip=trip)
    start = vector((Store("sum", (Var("v"),), Const(0, dtype)),))
    inner = Allocate((Buffer("sum", dtype, (Const(lanes),), (Const(1),), Space.STACK),), (start, loop))
    nest = For("p", Const(0), Const(panels), (inner,), trip=panels)
    buffers = tuple(
        Buffer(n, dtype, (Const(rows * panels), Const(width)), (Const(width), Const(1)), Space.ARGUMENT, n == "o")
        for n in ("x", "o")
    )
    return KernelIR("kernel", buffers, ("n",), (nest,))


def serial(kernel: KernelIR) -> For:
    """Return the loop over the steps."""
    found: list[Stmt] = list(kernel.body)
    while not (isinstance(found[0], For) and found[0].var == "t"):
        first = found[0]
        assert isinstance(first, For | Allocate)
        found = [s for s in first.body if not (isinstance(s, For) and s.kind is LoopKind.VECTOR)]
    return found[0]


def across(kernel: KernelIR) -> int:
    return lanes_across(serial(kernel), {b.name: b for b in kernel.buffers})


def summed(x: np.ndarray, lo: int, steps: int, dtype: DType, *, back: bool) -> np.ndarray:
    """Return the running sums of rows, one after another in the type of the elements."""
    found = x[:, ::-1].copy() if back else x.copy()
    total = np.zeros(len(x), dtype.numpy)
    for t in range(lo, lo + steps):
        total = (total + found[:, t]).astype(dtype.numpy)
        found[:, t] = total
    return found[:, ::-1] if back else found


@given(
    name=st.sampled_from(NAMES),
    lanes=st.sampled_from((2, 4, 8, 16, 32)),
    cut=st.integers(0, 31),
    lo=st.integers(0, 17),
    steps=st.integers(0, 90),
    beyond=st.integers(0, 40),
    lines=st.booleans(),
    back=st.booleans(),
    offset=st.integers(0, 70),
    known=st.booleans(),
    panels=st.integers(1, 2),
    processor=st.sampled_from(("cpu", "cpu:x86-64", "cpu:x86-64-v3")),
)
@settings(max_examples=15, deadline=None)
def test_tiles_write_what_the_loop_writes(
    name: str,
    lanes: int,
    cut: int,
    lo: int,
    steps: int,
    beyond: int,
    lines: bool,
    back: bool,
    offset: int,
    known: bool,
    panels: int,
    processor: str,
) -> None:
    dtype = DTYPES[name]
    width = lo + steps + beyond
    if lines:
        width = -(-width * dtype.itemsize // LINE) * LINE // dtype.itemsize
    limit = Const(steps) if known else Var("n")
    kernel = running(name, lanes, lanes - cut % lanes, lo, limit, max(1, width), back=back, panels=panels)
    check(kernel, tiny(processor), lo, steps, back=back, offset=offset)


@pytest.mark.parametrize("offset", [0, 4, 16, 60])
@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize("known", [False, True])
def test_rows_that_pass_the_caches_begin_anywhere(offset: int, back: bool, known: bool) -> None:
    kernel = running("f32", 16, 13, 3, Const(601) if known else Var("n"), 640, back=back, panels=2)
    assert "!nontemporal" in emit(kernel, tiny("cpu:x86-64-v4"))
    check(kernel, tiny("cpu"), 3, 601, back=back, offset=offset)


def check(kernel: KernelIR, machine: Target, lo: int, steps: int, *, back: bool, offset: int) -> None:
    """Run a kernel of `running` on a result that begins so many bytes behind a line."""
    verify(kernel)
    code = build(emit(kernel, machine), machine)
    shape = tuple(int(extent.value.real) for extent in kernel.buffers[0].shape if isinstance(extent, Const))
    dtype = kernel.buffers[0].dtype
    x = (np.arange(shape[0] * shape[1]) * 7 % 11).astype(dtype.numpy).reshape(shape)
    memory = np.full(x.nbytes + 256, 0x55, np.uint8)
    at = -memory.ctypes.data % 64 + offset // dtype.itemsize * dtype.itemsize
    expected = memory.copy()
    wanted = expected[at : at + x.nbytes].view(dtype.numpy).reshape(x.shape)
    side, done = slice(None, None, -1) if back else slice(None), slice(lo, lo + steps)
    wanted[:, side][:, done] = summed(x, lo, steps, dtype, back=back)[:, side][:, done]
    out = memory[at : at + x.nbytes].view(dtype.numpy)
    assert call(code, [x.ravel(), out], [steps]) == 0
    assert np.array_equal(memory, expected)


def test_rows_of_tiles_pass_the_caches_where_lines_part_them() -> None:
    machine = tiny("cpu:x86-64-v4")
    assert across(running("f32", 16, 16, 1, Const(600), 640)) == 16
    assert "!nontemporal" in emit(running("f32", 16, 16, 1, Const(600), 640), machine)
    assert "!nontemporal" in emit(running("f32", 16, 16, 1, Var("n"), 640), machine)
    # Rows that begin anywhere, few tiles, parts of lines, and what the caches hold.
    assert "!nontemporal" not in emit(running("f32", 16, 16, 1, Const(600), 641), machine)
    assert "!nontemporal" not in emit(running("f32", 16, 16, 1, Const(500), 640), machine)
    assert "!nontemporal" not in emit(running("f32", 8, 8, 1, Const(600), 640), machine)
    large = replace(machine, caches=(Cache(1 << 15), Cache(1 << 20), Cache(1 << 25)))
    assert "!nontemporal" not in emit(running("f32", 16, 16, 1, Const(600), 640), large)
    # No gather, no scatter and nothing lane by lane: 16 rows in 4 pieces a tile are read by 64 loads.
    text = emit(running("f32", 16, 16, 0, Const(64), 641), machine)
    assert "scatter" not in text
    assert "gather" not in text
    assert "extractelement" not in text


@pytest.mark.parametrize("why", ["read", "twice", "complex", "few", "lanes", "along", "several", "guarded"])
def test_other_loops_stay_as_they_are(why: str) -> None:
    kernel = running("c64" if why == "complex" else "f32", 16, 16, 0, Const(15 if why == "few" else 64), 80)
    loop = serial(kernel)
    (vector,) = loop.body
    assert isinstance(vector, For)
    dtype, (let, store, kept) = DTYPES["f32"], vector.body
    assert isinstance(store, Store)
    body = vector.body
    if why == "read":
        body = (let, store, Store("sum", (Var("v"),), Load("o", store.indices, dtype)))
    elif why == "twice":
        body = (let, store, store, kept)
    elif why == "along":
        body = (let, replace(store, indices=(Var("t"), Var("v"))), kept)
    vectors: StmtBlock = (replace(vector, body=body),)
    if why == "lanes":
        vectors = (*vectors, replace(vector, lanes=8, trip=8, hi=Const(8), body=(kept,)))
    elif why == "several":
        vectors = (*vectors, For("u", Const(0), Const(2), ()))
    elif why == "guarded":
        vectors = (replace(vector, hi=Var("t"), trip=None),)
    arrays = {b.name: b for b in kernel.buffers}
    assert across(running("f32", 16, 16, 0, Const(64), 80)) == 16
    assert lanes_across(replace(loop, body=vectors), arrays) == 0
