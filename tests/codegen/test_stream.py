"""STREAM loops: whole aligned vectors past the caches, every element stored once, and nothing beyond the row touched."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polyker.codegen.ir.kernel import (
    Allocate,
    Buffer,
    Const,
    Convert,
    For,
    Guard,
    If,
    KernelIR,
    KExpr,
    Let,
    Load,
    LoopKind,
    Op,
    Space,
    StmtBlock,
    Store,
    Var,
)
from polyker.codegen.ir.verify import verify
from polyker.codegen.llvm.jit.build import assembly
from polyker.codegen.llvm.jit.detect import target
from polyker.codegen.llvm.loops import stream_parts as llvm_stream
from polyker.ir.dtypes import DTYPES, DType, bool_, f32, f64, i64
from polyker.machine.model import Memory
from polyker.structs import replace
from tests.codegen.support import check_same, guarded_copy, index, run_native
from tests.passes import emit

NAMES = ("f32", "f64", "i8", "u16", "i32", "i64", "c64", "c128", "bool", "f16")


def buffer(name: str, dtype: DType, *shape: int, pitch: int = 0, writable: bool = False) -> Buffer:
    strides = (Const(pitch or shape[-1]), Const(1))[-len(shape) :]
    return Buffer(name, dtype, tuple(map(Const, shape)), strides, Space.ARGUMENT, writable)


def stream(body: StmtBlock, lo: KExpr, hi: KExpr, lanes: int = 64, trip: int | None = None) -> For:
    return For("j", lo, hi, body, kind=LoopKind.STREAM, lanes=lanes, trip=trip)


def rows(
    dtype: DType, count: int, width: int, pitch: int, lo: int, value: KExpr, lanes: int, *, fixed: bool
) -> KernelIR:
    """Return O[i,j] = value for lo <= j < width."""
    hi = Const(width) if fixed else Var("N")
    loop = stream((Store("o", (Var("i"), Var("j")), value),), Const(lo), hi, lanes, width - lo if fixed else None)
    outer = For("i", Const(0), Const(count), (loop,), trip=count)
    buffers = (buffer("x", dtype, width), buffer("o", dtype, count, width, pitch=pitch, writable=True))
    return KernelIR("kernel", buffers, ("N",), (outer,))


def values(dtype: DType, *shape: int) -> np.ndarray:
    codes = np.arange(int(np.prod(shape))).reshape(shape) * 7 % 101
    if dtype == bool_:
        return codes % 3 == 0
    return (codes + 1j * (codes % 13) if dtype.is_complex else codes).astype(dtype.numpy)


@given(
    name=st.sampled_from(NAMES),
    count=st.integers(1, 4),
    width=st.integers(1, 300),
    gap=st.integers(0, 20),
    lo=st.integers(0, 20),
    lanes=st.sampled_from((8, 16, 48, 64, 128)),
    fixed=st.booleans(),
    processor=st.sampled_from(("cpu", "cpu", "cpu:x86-64-v2", "cpu:x86-64-v3")),
)
@settings(max_examples=72, deadline=None)
def test_rows_of_any_place_and_length_are_stored(
    name: str, count: int, width: int, gap: int, lo: int, lanes: int, fixed: bool, processor: str
) -> None:
    dtype = DTYPES[name]
    lo = min(lo, width)
    kernel = rows(dtype, count, width, width + gap, lo, Load("x", (Var("j"),), dtype), lanes, fixed=fixed)
    arrays = {"x": values(dtype, width), "o": values(dtype, count, width)}
    check_same(kernel, arrays, {"N": width}, processor, {"o": (width + gap, 1)})


def test_a_row_that_ends_before_it_begins_is_empty() -> None:
    kernel = rows(f32, 2, 40, 40, 20, Load("x", (Var("j"),), f32), 64, fixed=False)
    for width in (20, 19, 3, 0):
        check_same(kernel, {"x": values(f32, 40), "o": values(f32, 2, 40)}, {"N": width})


@pytest.mark.parametrize("processor", ["cpu:x86-64-v2", "cpu:x86-64-v3", "cpu:x86-64-v4"])
def test_whole_vectors_pass_by_the_caches_and_are_fenced(processor: str) -> None:
    kernel = rows(f32, 3, 500, 500, 0, Load("x", (Var("j"),), f32), 64, fixed=True)
    asm = assembly(emit(kernel, target(processor)), target(processor))
    # Those of one iteration; the last ones one by one; the line that two rows share.
    assert asm.count("movnt") == 64 // target(processor).lanes(4) + 1 + 1
    assert "sfence" in asm
    assert "sfence" not in assembly(emit(_plain(kernel), target(processor)), target(processor))


def test_other_processors_store_past_the_caches_in_their_way() -> None:
    kernel = rows(f32, 3, 500, 500, 0, Load("x", (Var("j"),), f32), 16, fixed=True)
    arm = target("aarch64-linux-gnu")
    assert "stnp" in assembly(emit(kernel, arm), arm)


def _plain(kernel: KernelIR) -> KernelIR:
    outer = kernel.body[0]
    assert isinstance(outer, For)
    inner = outer.body[0]
    assert isinstance(inner, For)
    serial = For(inner.var, inner.lo, inner.hi, inner.body)
    return KernelIR(kernel.name, kernel.buffers, kernel.integers, (For("i", outer.lo, outer.hi, (serial,)),))


@pytest.mark.parametrize("offset", range(0, 72, 4))
def test_any_alignment_of_the_result_is_found(offset: int) -> None:
    kernel = rows(f32, 2, 150, 155, 0, Load("x", (Var("j"),), f32), 64, fixed=True)
    raw = np.zeros(4096 + 64, np.uint8)
    at = -raw.ctypes.data % 64 + offset
    out = np.lib.stride_tricks.as_strided(np.frombuffer(raw, "f4", 400, at), (2, 150), (620, 4))
    x = values(f32, 150)
    assert run_native(kernel, {"x": x, "o": out}, {"N": 150}) == 0
    assert np.array_equal(out, np.stack([x, x]))
    assert np.count_nonzero(raw) == np.count_nonzero(out.copy().view(np.uint8))


J = Var("j")
X = Load("x", (J,), f32)
FORMS = {
    "two loads": Op("add", (X, Load("x", (index("mod", "j", 7),), f32)), f32),
    "backward": Load("x", (index("sub", 149, "j"),), f32),
    "a row": Op("mul", (X, Load("x", (Var("i"),), f32)), f32),
    "predicated": Load("x", (J,), f32, Op("lt", (index("mod", "j", 3), Const(2)), bool_), Const(0.5, f32)),
    "in a wider type": Convert(Op("div", (Convert(X, f64), Const(3.0, f64)), f64), f32),
    "a constant": Const(2.5, f32),
    "the index": Convert(J, f32),
    "a function": Op("exp", (Op("mul", (X, Const(0.01, f32)), f32),), f32),
    "the result itself": Op("add", (X, Load("o", (Var("i"), J), f32)), f32),
}


@pytest.mark.parametrize("name", FORMS)
def test_any_value_is_stored(name: str) -> None:
    kernel = rows(f32, 3, 150, 150, 0, FORMS[name], 32, fixed=True)
    verify(kernel)
    arrays = {"x": values(f32, 150), "o": values(f32, 3, 150)}
    if name == "a function":
        expected = np.exp(arrays["x"] * np.float32(0.01))
        assert run_native(kernel, arrays, {"N": 150}) == 0
        assert np.allclose(arrays["o"], expected, rtol=1e-6)
    else:
        check_same(kernel, arrays, {"N": 150})


def gathers(body: StmtBlock) -> KernelIR:
    buffers = (buffer("x", f32, 150), buffer("k", i64, 150), buffer("o", f32, 150, writable=True))
    return KernelIR("kernel", buffers, (), (stream(body, Const(0), Const(150), 32, 150),))


@pytest.mark.parametrize("wrong", [None, 0, 3, 77, 149])
def test_gathered_indices_are_guarded(wrong: int | None) -> None:
    at = Var("at")
    inside = Op("and", (Op("ge", (at, Const(0)), bool_), Op("lt", (at, Const(150)), bool_)), bool_)
    kernel = gathers((Let("at", Load("k", (J,), i64)), Guard(inside, 5), Store("o", (J,), Load("x", (at,), f32))))
    k = values(i64, 150) % 150
    if wrong is not None:
        k[wrong] = 150 + wrong
    if wrong is None:
        assert check_same(kernel, {"x": values(f32, 150), "k": k, "o": values(f32, 150)}, {}) == 0
    else:
        owners = {n: guarded_copy(a) for n, a in (("x", values(f32, 150)), ("k", k), ("o", values(f32, 150)))}
        assert run_native(kernel, {n: copy for n, (_, copy) in owners.items()}, {}) == 5


SERIAL = {
    "two stores": (Store("o", (J,), X), Store("o", (J,), X)),
    "a gathered target": (Store("o", (Load("k", (J,), i64),), X),),
    "a target walked backwards": (Store("o", (index("sub", 149, "j"),), X),),
    "a target that strides": (Store("o", (index("mul", 2, index("floordiv", "j", 2)),), X),),
    "a condition": (If(Op("lt", (J, Const(9)), bool_), (Store("o", (J,), X),)),),
    "what the iteration before stored": (
        Store("o", (J,), Op("add", (X, Load("o", (index("maximum", index("sub", "j", 1), 0),), f32)), f32)),
    ),
}


@pytest.mark.parametrize("name", SERIAL)
def test_other_loops_run_one_by_one(name: str) -> None:
    kernel = gathers(SERIAL[name])
    check_same(kernel, {"x": values(f32, 150), "k": values(i64, 150) % 150, "o": values(f32, 150)}, {})
    assert "nontemporal" not in emit(kernel, target("cpu"))


def test_inside_a_vector_loop_rows_are_stored_element_by_element() -> None:
    kernel = rows(f32, 4, 40, 40, 0, Load("x", (Var("j"),), f32), 64, fixed=True)
    (outer,) = kernel.body
    assert isinstance(outer, For)
    kernel = replace(kernel, body=(replace(outer, kind=LoopKind.VECTOR, lanes=4),))
    check_same(kernel, {"x": values(f32, 40), "o": values(f32, 4, 40)}, {"N": 40})


@pytest.mark.parametrize("shift", range(0, 16, 3))
def test_rows_that_lie_on_the_stack_are_read_to_their_end_and_no_further(shift: int) -> None:
    row = Buffer("row", f32, (Const(40),), (Const(1),), Space.STACK)
    kept = For("k", Const(0), Const(40), (Store("row", (Var("k"),), Load("x", (Var("k"),), f32)),), trip=40)
    loop = stream((Store("o", (Const(0), Var("j")), Load("row", (Var("j"),), f32)),), Const(shift), Const(40))
    buffers = (buffer("x", f32, 40), buffer("o", f32, 1, 40, writable=True))
    kernel = KernelIR("kernel", buffers, ("N",), (Allocate((row,), (kept, loop)),))
    check_same(kernel, {"x": values(f32, 40), "o": values(f32, 1, 40)}, {"N": 40})
    if target("cpu").vector_bytes > 16:
        assert "!nontemporal" in emit(kernel, target("cpu"))


@given(
    name=st.sampled_from(("f32", "f64", "i8", "c64", "f16")),
    width=st.integers(1, 3000),
    lo=st.integers(0, 40),
    lanes=st.sampled_from((8, 64, 128)),
    pieces=st.integers(2, 40),
    turn=st.sampled_from((64, 512)),
)
@settings(max_examples=8, deadline=None)
def test_a_row_by_pieces_side_by_side_is_stored_whole_and_nothing_else(
    name: str, width: int, lo: int, lanes: int, pieces: int, turn: int
) -> None:
    dtype, lo = DTYPES[name], min(lo, width)
    kernel = rows(dtype, 2, width, width + 5, lo, Load("x", (Var("j"),), dtype), lanes, fixed=True)
    machine = replace(target("cpu"), memory=Memory(side_by_side=20.0, rows=pieces))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(llvm_stream, "MIN_SPLIT_ROW_BYTES", 1)
        patch.setattr(llvm_stream, "PIECE_TURN_BYTES", turn)
        arrays = {"x": values(dtype, width), "o": values(dtype, 2, width)}
        check_same(kernel, arrays, {"N": width}, machine, {"o": (width + 5, 1)})


@pytest.mark.parametrize(
    ("operands", "megabytes", "streams", "pieces"),
    [(1, 8, 8, 4), (3, 8, 8, 2), (1, 1, 8, 1), (1, 8, 1, 1), (8, 8, 8, 1)],
)
def test_long_rows_are_walked_by_as_many_pieces_as_come_sooner(
    operands: int, megabytes: int, streams: int, pieces: int
) -> None:
    names, width = [f"x{n}" for n in range(operands)], megabytes << 18
    total: KExpr = Load(names[0], (Var("j"),), f32)
    for other in names[1:]:
        total = Op("add", (total, Load(other, (Var("j"),), f32)), f32)
    loop = stream((Store("o", (Var("j"),), total),), Const(0), Const(width), 64, width)
    buffers = [buffer(n, f32, width) for n in names] + [buffer("o", f32, width, writable=True)]
    text = emit(
        KernelIR("kernel", tuple(buffers), (), (loop,)),
        replace(target("cpu:x86-64-v4"), memory=Memory(side_by_side=20.0, rows=streams)),
    )
    counts = [int(n) for n in re.findall(r"udiv i64 %\w+, (\d+)", text)]
    assert (counts[1:] == [2 * pieces]) if pieces > 1 else (len(counts) == 1)


def test_what_an_iteration_stores_comes_behind_all_that_it_loads() -> None:
    # A store a vector behind a load, by their last twelve address bits, holds that load up.
    total = Op("add", (Load("x", (Var("j"),), f32), Load("y", (Var("j"),), f32)), f32)
    loop = stream((Store("o", (Var("j"),), total),), Const(0), Const(4000), 64, 4000)
    buffers = (buffer("x", f32, 4000), buffer("y", f32, 4000), buffer("o", f32, 4000, writable=True))
    text = emit(KernelIR("kernel", buffers, (), (loop,)), target("cpu:x86-64-v4"))
    lines = text.splitlines()
    first = next(n for n, line in enumerate(lines) if "!nontemporal" in line)
    assert all("!nontemporal" in line or "getelementptr" in line for line in lines[first : first + 4])
    assert sum("!nontemporal" in line for line in lines) == 4
