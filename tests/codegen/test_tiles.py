"""Transposed tiles of results that exceed the caches: rows that begin anywhere join, and nothing beside them is touched."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polyker as pk
from polyker.codegen.ir.kernel import Buffer, Const, For, If, KernelIR, KExpr, Load, LoopKind, Op, Space, Stmt, Store
from polyker.codegen.ir.verify import verify
from polyker.codegen.llvm.jit.build import build
from polyker.codegen.llvm.jit.detect import target
from polyker.ir.dtypes import DTYPES, bool_
from polyker.machine.model import Cache, Target
from polyker.structs import replace
from tests.codegen.support import call, index
from tests.passes import emit

PAST = "permvar"  # what rotates a row


def tiny(name: str) -> Target:
    return replace(target(name), caches=(Cache(256), Cache(512), Cache(1024)))


def tiled(
    name: str,
    panels: int,
    tiles: int,
    blocks: int,
    rows: int,
    width: int,
    *,
    last: int = 0,
    up: bool = True,
    line: int = 64,
) -> KernelIR:
    """Return O[j*width + i] = X[i*many + j] for many = blocks*rows j, tile by tile: `tiles` tiles along i in each panel.

    A tile has `rows` rows of `line` bytes, the last one `last` elements where that is not 0; `up`: whether later rows lie further
    on in the result.
    """
    dtype = DTYPES[name]
    lanes, many = line // dtype.itemsize, blocks * rows
    tile = index("add", index("mul", "p", tiles), "t")
    j = index("add", index("mul", "b", rows), "r")
    i = index("add", index("mul", tile, lanes), "v")
    row: KExpr = j if up else index("sub", many - 1, j)
    value = Load("x", (index("add", index("mul", i, many), j),), dtype)
    store = Store("o", (index("add", index("mul", row, width), i),), value)

    def body(elements: int) -> Stmt:
        vector = For("v", Const(0), Const(elements), (store,), kind=LoopKind.VECTOR, lanes=lanes, trip=elements)
        return For("r", Const(0), Const(rows), (vector,), kind=LoopKind.TRANSPOSE, lanes=rows, trip=rows)

    inside: Stmt = body(lanes)
    if last:
        ends = Op("eq", (tile, Const(panels * tiles - 1)), bool_)
        inside = If(ends, (body(last),), (inside,))
    nest = For("t", Const(0), Const(tiles), (inside,))
    nest = For("p", Const(0), Const(panels), (For("b", Const(0), Const(blocks), (nest,)),))
    elements = panels * tiles * lanes
    sizes = {"x": elements * many, "o": (many - 1) * width + elements}
    buffers = tuple(
        Buffer(n, dtype, (Const(size),), (Const(1),), Space.ARGUMENT, n == "o", once=n == "o")
        for n, size in sizes.items()
    )
    return KernelIR("kernel", buffers, (), (nest,))


@given(
    name=st.sampled_from(("f32", "f64", "i16", "u32", "bf16")),
    panels=st.integers(1, 2),
    tiles=st.integers(12, 14),
    blocks=st.integers(1, 3),
    rows=st.sampled_from((2, 3, 8, 16)),
    beyond=st.integers(0, 40),
    offset=st.integers(0, 70),
    last=st.sampled_from((0, 1, 5)),
    up=st.booleans(),
)
@settings(max_examples=8, deadline=None)
def test_rows_that_begin_anywhere(
    name: str, panels: int, tiles: int, blocks: int, rows: int, beyond: int, offset: int, last: int, up: bool
) -> None:
    dtype = DTYPES[name].numpy
    lanes = 64 // dtype.itemsize
    elements, many = panels * tiles * lanes, blocks * rows
    width, machine = elements + beyond, tiny("cpu")
    kernel = tiled(name, panels, tiles, blocks, rows, width, last=last, up=up)
    verify(kernel)
    code = build(emit(kernel, machine), machine)
    x = (np.arange(elements * many) % 251).astype(dtype)
    size = ((many - 1) * width + elements) * dtype.itemsize
    memory = np.full(size + 256, 0x55, np.uint8)
    at = -memory.ctypes.data % 64 + offset // dtype.itemsize * dtype.itemsize
    expected = memory.copy()
    whole = elements - (lanes - last if last else 0)
    for r, row in enumerate(x.reshape(elements, many).T[:, :whole]):
        begin = at + (r if up else many - 1 - r) * width * dtype.itemsize
        expected[begin : begin + row.nbytes] = np.ascontiguousarray(row).view(np.uint8)
    out = memory[at : at + size].view(dtype)
    for _ in range(2):  # nothing is left from call to call
        assert call(code, [x, out], []) == 0
        assert np.array_equal(memory, expected)


def emitted(kernel: KernelIR, name: str = "cpu:x86-64-v4") -> str:
    return emit(kernel, tiny(name))


def test_whole_lines_pass_by_the_caches() -> None:
    kernel = tiled("f32", 2, 12, 2, 16, 400)
    assert PAST in emitted(kernel)
    assert "!nontemporal" in emitted(kernel)
    # Rows of whole lines ask whether they begin at one.
    assert emitted(kernel).count("!nontemporal") > emitted(tiled("f32", 2, 12, 2, 16, 401)).count("!nontemporal") >= 16
    assert PAST not in emitted(kernel, "cpu:x86-64-v3")
    assert PAST not in emit(
        kernel, replace(target("cpu:x86-64-v4"), caches=(Cache(1 << 15), Cache(1 << 20), Cache(1 << 25)))
    )


@pytest.mark.parametrize("why", ["few", "short", "read", "several", "across"])
def test_rows_that_have_to_be_stored_at_once_are(why: str) -> None:
    kernel = tiled("f32", 2, 11 if why == "few" else 12, 2, 16, 400)
    x, o = kernel.buffers
    if why == "short":
        kernel = tiled("f32", 2, 12, 2, 16, 400, line=32)
    if why == "several":
        kernel = replace(kernel, buffers=(x, replace(o, once=False)))
    if why in ("read", "across"):
        (outer,) = kernel.body
        assert isinstance(outer, For)
        (blocks,) = outer.body
        assert isinstance(blocks, For)
        (tiles,) = blocks.body
        assert isinstance(tiles, For)
        again = Store("x", (Const(0),), Load("o", (Const(0),), DTYPES["f32"]))
        inner: Stmt = replace(tiles, body=(*tiles.body, again)) if why == "read" else replace(blocks, body=tiles.body)
        inner = replace(blocks, body=(inner,)) if why == "read" else replace(tiles, body=(inner,))
        buffers = (replace(x, writable=True), o) if why == "read" else kernel.buffers
        kernel = replace(kernel, buffers=buffers, body=(replace(outer, body=(inner,)),))
    verify(kernel)
    assert PAST not in emitted(kernel)


def test_sizes_of_the_call_decide() -> None:
    kernel = pk.op("B[j,i] = A[i,j]").compile(A=pk.f32["M", "N"], target="cpu:x86-64-v4", threads=1)
    assert PAST in kernel.source("llvm")
    A = np.arange(35.0, dtype="f4").reshape(5, 7)
    if target("cpu").lanes(4) == 16:
        np.testing.assert_array_equal(pk.op("B[j,i] = A[i,j]").compile(A=pk.f32["M", "N"])(A=A), A.T)


@pytest.mark.parametrize("text", ["B[j,i] = A[i,j] + C[j,i]", "B[3003-j,i] = A[i,j]", "B[j,k,i] = A[i,k,j]"])
@pytest.mark.parametrize("threads", [1, 2])
def test_large_results_of_any_alignment(text: str, threads: int) -> None:
    A = (np.arange(3100 * 3004) % 9973).astype("f4").reshape(3100, 3004)
    C = (np.arange(3004 * 3100) % 5000).astype("f4").reshape(3004, 3100)
    want = A.T + C if "C" in text else A.T[::-1] if "3003" in text else A.reshape(3100, 4, 751).transpose(2, 1, 0)
    given_ = {"A": A.reshape(3100, 4, 751) if "k" in text else A, **({"C": C} if "C" in text else {})}
    kernel = pk.op(text).compile(**given_, threads=threads)
    for offset in (0, 4, 16, 60):
        memory = np.full(want.nbytes + 256, 0x55, np.uint8)
        at = -memory.ctypes.data % 64 + offset
        out = memory[at : at + want.nbytes].view("f4").reshape(want.shape)
        kernel(**given_, out=out)
        assert np.array_equal(out, want)
        assert (memory[:at] == 0x55).all()
        assert (memory[at + want.nbytes :] == 0x55).all()
