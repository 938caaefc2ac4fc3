"""Rows that share lines: what is kept of one is stored with the next where that goes on there, and alone where it does not."""

from __future__ import annotations

import ctypes

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
    Load,
    LoopKind,
    Op,
    Prefetch,
    Space,
    StmtBlock,
    Store,
    Var,
)
from polyker.codegen.llvm.jit.build import LoadedCode
from polyker.codegen.llvm.jit.detect import target
from polyker.ir.dtypes import DTYPES, f32
from tests.codegen.support import call, check_same, compiled, index
from tests.passes import emit

WIDTHS = (1, 3, 15, 16, 17, 31, 33, 64, 100, 125, 130)


def row_kernel(name: str, count: int, width: int, row: KExpr, *after: For | Prefetch) -> KernelIR:
    """Return for i: O[row(i)*width + j] = X[i] + j, in a dense result, with other statements after the row."""
    dtype = DTYPES[name]
    place = Op("add", (Op("mul", (row, Const(width))), Var("j")))
    value = Op("add", (Load("x", (Var("i"),), dtype), Load("y", (Var("j"),), dtype)), dtype)
    stream = For("j", Const(0), Const(width), (Store("o", (place,), value),), kind=LoopKind.STREAM, lanes=48)
    buffers = tuple(
        Buffer(n, dtype, (Const(size),), (Const(1),), Space.ARGUMENT, n == "o")
        for n, size in (("x", count), ("y", width), ("o", count * width))
    )
    return KernelIR("kernel", buffers, (), (For("i", Const(0), Const(count), (stream, *after)),))


def arrays(name: str, count: int, width: int) -> dict[str, np.ndarray]:
    kind = DTYPES[name].numpy
    elements = np.zeros(count * width, kind)
    return {"x": (100 * np.arange(count) % 97).astype(kind), "y": np.arange(width).astype(kind), "o": elements}


@given(
    name=st.sampled_from(("f32", "f64", "i16", "i8")),
    count=st.integers(2, 12),
    width=st.sampled_from(WIDTHS),
    step=st.sampled_from((1, -1, 5, 0)),
    offset=st.integers(0, 70),
    processor=st.sampled_from(("cpu", "cpu:x86-64-v2", "cpu:x86-64-v3")),
)
@settings(max_examples=45, deadline=None)
def test_rows_in_any_order_and_at_any_address(
    name: str, count: int, width: int, step: int, offset: int, processor: str
) -> None:
    last = count - 1
    row = {1: Var("i"), -1: index("sub", last, "i"), 5: index("mod", index("mul", "i", 5), count), 0: Const(0)}[step]
    kernel, given_ = row_kernel(name, count, width, row), arrays(name, count, width)
    size = given_["o"].itemsize
    memory = np.full(count * width * size + 256, 0x55, np.uint8)
    at = -memory.ctypes.data % 64 + offset // size * size
    out = memory[at : at + count * width * size].view(given_["o"].dtype)
    out[...] = 0
    expected = np.zeros((count, width), out.dtype)
    for i in range(count):
        expected[{1: i, -1: last - i, 5: i * 5 % count, 0: 0}[step]] = given_["x"][i] + given_["y"]
    assert call(compiled(kernel, processor), [given_["x"], given_["y"], out], []) == 0
    assert np.array_equal(out.reshape(count, width), expected)
    assert (memory[:at] == 0x55).all()
    assert (memory[at + out.nbytes :] == 0x55).all()


def test_no_byte_beside_the_rows_is_touched() -> None:
    for width in WIDTHS:
        check_same(row_kernel("f32", 5, width, Var("i")), arrays("f32", 5, width), {})


@pytest.mark.parametrize("offset", [0, 4, 16, 60])
@pytest.mark.parametrize("step", [8, 16, 20, 24, 32, 40])
def test_later_rows_win_where_rows_of_whole_vectors_overlap(offset: int, step: int) -> None:
    count, width = 9, 32
    place = Op("add", (Op("mul", (Var("i"), Const(step))), Var("j")))
    stream = For(
        "j",
        Const(0),
        Const(width),
        (Store("o", (place,), Load("x", (Var("i"),), f32)),),
        kind=LoopKind.STREAM,
        lanes=32,
    )
    size = count * step + width
    buffers = tuple(
        Buffer(n, f32, (Const(s),), (Const(1),), Space.ARGUMENT, n == "o") for n, s in (("x", count), ("o", size))
    )
    kernel = KernelIR("kernel", buffers, (), (For("i", Const(0), Const(count), (stream,)),))
    memory = np.zeros(4 * size + 256, np.uint8)
    at = -memory.ctypes.data % 64 + offset
    out, x = memory[at : at + 4 * size].view("f4"), np.arange(1, count + 1, dtype="f4")
    expected = np.zeros(size, "f4")
    for i in range(count):
        expected[i * step : i * step + width] = x[i]
    assert call(compiled(kernel), [x, out], []) == 0
    assert np.array_equal(out, expected)


@pytest.mark.parametrize("width", [33, 100])
def test_rows_before_the_first_element(width: int) -> None:
    """As in a result that is walked backwards: its address is that of the last row in memory."""
    count = 6
    place = Op("add", (index("mul", -width, "i"), Var("j")))
    element = Store("o", (place,), Load("x", (Var("i"),), f32))
    stream = For("j", Const(0), Const(width), (element,), kind=LoopKind.STREAM, lanes=32)
    buffers = tuple(
        Buffer(n, f32, (Const(s),), (Const(1),), Space.ARGUMENT, n == "o")
        for n, s in (("x", count), ("o", count * width))
    )
    for shift in (0, count - 1):
        kernel = KernelIR("kernel", buffers, (), (For("i", Const(shift), Const(count + shift), (stream,)),))
        memory = np.zeros((count, width), "f4")
        x = np.arange(1, count + shift + 1, dtype="f4")
        first = memory[count - 1 :].ctypes.data + 4 * width * shift
        assert _call(compiled(kernel), x.ctypes.data, first) == 0
        assert np.array_equal(memory, np.repeat(x[shift : shift + count][::-1, None], width, axis=1))


def _call(code: LoadedCode, *addresses: int) -> int:
    pointers = (ctypes.c_void_p * len(addresses))(*addresses)
    return int(ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)(code.address)(pointers, None))


def test_rows_are_kept_where_a_buffer_of_a_row_stands_around_them() -> None:
    kernel = row_kernel("f32", 6, 100, Var("i"))
    (outer,) = kernel.body
    assert isinstance(outer, For)
    buffer = Buffer("t", f32, (Const(4),), (Const(1),), Space.STACK)
    inside = KernelIR(
        kernel.name, kernel.buffers, (), (For("i", outer.lo, outer.hi, (Allocate((buffer,), outer.body),)),)
    )
    check_same(inside, arrays("f32", 6, 100), {})
    assert "store i64 -9223372036854775808" in emit(inside, target("cpu"))


def _again(body: StmtBlock) -> For:
    return For("k", Const(0), Const(3), body)


BESIDE = {
    "a store": _again((Store("o", (Var("k"),), Const(1.0, f32)),)),
    "a load": _again((Store("o", (Const(0),), Load("o", (Op("add", (Var("k"), Const(99))),), f32)),)),
    "a request": Prefetch("o", (Var("i"),), write=True),
}


@pytest.mark.parametrize("what", [None, *BESIDE])
def test_nothing_is_kept_where_something_else_uses_the_result(what: str | None) -> None:
    kernel = row_kernel("f32", 6, 100, Var("i"), *([BESIDE[what]] if what else []))
    check_same(kernel, arrays("f32", 6, 100), {})
    assert ("store i64 -9223372036854775808" in emit(kernel, target("cpu"))) == (what is None)
