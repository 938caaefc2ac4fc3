"""TRANSPOSE loops: what they read by columns comes from memory by rows, and is what a plain loop reads."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polyker.codegen.ir.kernel import (
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
from polyker.errors import InternalError
from polyker.ir.dtypes import DTYPES, DType, bool_, f32, i32, i64
from tests.codegen.support import check_same, index
from tests.passes import emit

NAMES = ("f32", "f64", "i8", "u16", "i32", "i64", "c64", "c128", "bool", "f16")


def buffer(name: str, dtype: DType, shape: tuple[int, int], *, writable: bool = False) -> Buffer:
    """Return a row-major argument."""
    return Buffer(name, dtype, tuple(map(Const, shape)), (Const(shape[1]), Const(1)), Space.ARGUMENT, writable)


def nest(body: StmtBlock, columns: int, rows: int, lanes: int) -> For:
    """Return `transpose j in 0:columns: vector i in 0:rows: body`."""
    inner = For("i", Const(0), Const(rows), body, kind=LoopKind.VECTOR, lanes=lanes, trip=rows)
    return For("j", Const(0), Const(columns), (inner,), kind=LoopKind.TRANSPOSE, lanes=columns, trip=columns)


def transposition(dtype: DType, columns: int, rows: int, lanes: int, value: KExpr | None = None) -> KernelIR:
    """Return O[j,i] = X[i,j], or another value."""
    value = value or Load("x", (Var("i"), Var("j")), dtype)
    body = (Store("o", (Var("j"), Var("i")), value),)
    buffers = (buffer("x", dtype, (rows, columns)), buffer("o", dtype, (columns, rows), writable=True))
    return KernelIR("kernel", buffers, (), (nest(body, columns, rows, lanes),))


def values(dtype: DType, shape: tuple[int, int], salt: int = 0) -> np.ndarray:
    """Return index-coded values that the type holds exactly."""
    codes = (np.arange(shape[0] * shape[1]).reshape(shape) * 7 + salt) % 101
    if dtype == bool_:
        return codes % 3 == 0
    return (codes + 1j * (codes % 13) if dtype.is_complex else codes).astype(dtype.numpy)


@given(
    name=st.sampled_from(NAMES),
    columns=st.integers(1, 20),
    lanes=st.sampled_from((1, 2, 4, 8, 14, 16, 32, 64)),
    cut=st.integers(0, 63),
    processor=st.sampled_from(("cpu", "cpu:x86-64", "cpu:x86-64-v3")),
)
@settings(max_examples=8, deadline=None)
def test_any_block_is_transposed_and_nothing_beyond_it_is_read(
    name: str, columns: int, lanes: int, cut: int, processor: str
) -> None:
    dtype, rows = DTYPES[name], lanes - cut % lanes
    kernel = transposition(dtype, columns, rows, lanes)
    arrays = {"x": values(dtype, (rows, columns)), "o": values(dtype, (columns, rows), 1)}
    check_same(kernel, arrays, {}, name=processor)


X = Load("x", (Var("i"), Var("j")), f32)
BACKWARD = Load("x", (Var("i"), index("sub", 7, "j")), f32)
FORMS = {
    "backward": BACKWARD,
    "both ways": Op("sub", (X, BACKWARD), f32),
    "columns modulo": Load("x", (Var("i"), index("mod", "j", 5)), f32),
    "every second column": Load("x", (Var("i"), index("floordiv", "j", 2)), f32),
    "rows modulo": Load("x", (index("mod", "i", 5), Var("j")), f32),
    "one row": Load("x", (Const(3), Var("j")), f32),
    "skewed": Load("x", (Var("i"), index("mod", index("add", "j", "i"), 8)), f32),
    "the stored buffer": Op("add", (X, Load("o", (Var("j"), Var("i")), f32)), f32),
    "the stored buffer, transposed": Load("o", (Var("i"), Var("j")), f32),
    "predicated": Load("x", (Var("i"), Var("j")), f32, Op("lt", (Var("j"), Var("i")), bool_), Const(0.5, f32)),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("rows", [8, 5])
def test_loads_of_any_other_form_keep_their_meaning(form: str, rows: int) -> None:
    kernel = transposition(f32, 8, rows, 8, FORMS[form])
    shape = (8, 8)
    kernel = KernelIR("kernel", (buffer("x", f32, shape), buffer("o", f32, shape, writable=True)), (), kernel.body)
    check_same(kernel, {"x": values(f32, shape), "o": values(f32, shape, 3)}, {})


@pytest.mark.parametrize("counts", [(1, 2, 3, 4), (2, 4), (4, 2), (3, 8, 5), (8, 8)])
@pytest.mark.parametrize("lanes", [8, None])
def test_vectors_of_one_loop_read_as_many_rows_as_each_has_lanes(counts: tuple[int, ...], lanes: int | None) -> None:
    """Rows of a triangle: what was transposed for two lanes was taken for three, too."""
    body: StmtBlock = ()
    for n, rows in enumerate(counts):
        store = Store("o", (index("add", 8 * n, "j"), Var("i")), X)
        body += (For("i", Const(0), Const(rows), (store,), kind=LoopKind.VECTOR, lanes=lanes or rows, trip=rows),)
    loop = For("j", Const(0), Const(8), body, kind=LoopKind.TRANSPOSE, lanes=8, trip=8)
    shape = 8 * len(counts), 8
    buffers = (buffer("x", f32, (max(counts), 8)), buffer("o", f32, shape, writable=True))
    check_same(
        KernelIR("kernel", buffers, (), (loop,)), {"x": values(f32, (max(counts), 8)), "o": values(f32, shape)}, {}
    )


def test_a_body_with_conditions_runs_as_a_plain_loop() -> None:
    store = Store("o", (Var("j"), Var("i")), X)
    kernel = transposition(f32, 8, 8, 8)
    body = (If(Op("le", (Var("i"), Var("j")), bool_), (store,)),)
    kernel = KernelIR("kernel", kernel.buffers, (), (nest(body, 8, 8, 8),))
    check_same(kernel, {"x": values(f32, (8, 8)), "o": values(f32, (8, 8), 1)}, {})


def test_loops_of_unknown_length_run_as_plain_loops() -> None:
    store = (Store("o", (Var("j"), Var("i")), X),)
    inner = For("i", Const(0), Var("n"), store, kind=LoopKind.VECTOR, lanes=8)
    loop = For("j", Const(0), Var("m"), (inner,), kind=LoopKind.TRANSPOSE, lanes=8)
    kernel = KernelIR("kernel", transposition(f32, 8, 8, 8).buffers, ("n", "m"), (loop,))
    for n, m in ((8, 8), (3, 8), (8, 5), (0, 1)):
        check_same(kernel, {"x": values(f32, (8, 8)), "o": values(f32, (8, 8), 1)}, {"n": n, "m": m})


def test_a_loop_of_other_steps_than_one_runs_as_a_plain_loop() -> None:
    kernel = transposition(f32, 8, 8, 8)
    (loop,) = kernel.body
    assert isinstance(loop, For)
    strided = For(loop.var, loop.lo, loop.hi, loop.body, 2, kind=LoopKind.TRANSPOSE, lanes=4, trip=4)
    kernel = KernelIR("kernel", kernel.buffers, (), (strided,))
    check_same(kernel, {"x": values(f32, (8, 8)), "o": values(f32, (8, 8), 1)}, {})


@pytest.mark.parametrize("processor", ["cpu:x86-64-v4", "cpu:x86-64-v3"])
@pytest.mark.parametrize(
    ("name", "instruction"), [("f32", "vunpcklps"), ("f64", "vunpcklpd"), ("i16", "vpunpcklwd"), ("i8", "vpunpcklbw")]
)
def test_a_block_is_made_of_interleavings_within_sixteen_bytes(processor: str, name: str, instruction: str) -> None:
    machine, dtype = target(processor), DTYPES[name]
    lanes = machine.lanes(dtype.itemsize)
    text = assembly(emit(transposition(dtype, 16, lanes, lanes), machine), machine)
    assert instruction in text
    assert "gather" not in text and "vpinsr" not in text


def lookup(columns: int, rows: int) -> KernelIR:
    """Return O[j,i] = T[K[i,j], 0] + X[i,j]."""
    place = Var("g")
    within = Op("and", (Op("ge", (place, Const(0)), bool_), Op("lt", (place, Const(50)), bool_)), bool_)
    body = (
        Let("g", Convert(Load("k", (Var("i"), Var("j")), i32), i64)),
        Guard(within, 3),
        Store(
            "o",
            (Var("j"), Var("i")),
            Op("add", (Load("t", (place, Const(0)), f32), Load("x", (Var("i"), Var("j")), f32)), f32),
        ),
    )
    buffers = (
        buffer("x", f32, (rows, columns)), buffer("k", i32, (rows, columns)), buffer("t", f32, (50, 1)),
        buffer("o", f32, (columns, rows), writable=True),
    )  # fmt: skip
    return KernelIR("kernel", buffers, (), (nest(body, columns, rows, rows),))


@pytest.mark.parametrize("columns", [1, 4, 7])
@pytest.mark.parametrize("wrong", [None, (0, 0), (3, 0), (15, -1)])
def test_elements_that_are_looked_up_keep_their_checks(columns: int, wrong: tuple[int, int] | None) -> None:
    kernel, machine = lookup(columns, 16), target("cpu:x86-64-v4")
    verify(kernel)
    assert "vpinsr" not in assembly(emit(kernel, machine), machine) or columns == 1
    rng = np.random.default_rng(columns)
    arrays = {
        "x": values(f32, (16, columns)), "k": rng.integers(0, 50, (16, columns)).astype("i4"),
        "t": values(f32, (50, 1), 3), "o": np.zeros((columns, 16), "f4"),
    }  # fmt: skip
    if wrong is not None:
        arrays["k"][wrong] = 50
    assert check_same(kernel, arrays, {}) == (0 if wrong is None else 3)


def test_a_transpose_loop_has_a_bound() -> None:
    loop = For("j", Const(0), Var("n"), (Store("o", (Var("j"), Const(0)), Const(1.0, f32)),), kind=LoopKind.TRANSPOSE)
    with pytest.raises(InternalError, match="lanes are needed"):
        verify(KernelIR("kernel", (buffer("o", f32, (8, 1), writable=True),), ("n",), (loop,)))
