"""SCAN loops: running maxima and their like by whole vectors give what the loop gives element by element."""

import numpy as np
import pytest

from polyker.codegen.ir.kernel import Buffer, Const, Convert, For, KernelIR, Load, LoopKind, Op, Space, Store
from polyker.codegen.llvm.jit.detect import target
from polyker.ir.dtypes import DTYPES, f32, f64, i32, i64
from tests.codegen.support import C, V, check_same, index, vector_buffer
from tests.codegen.test_llvm_memory import data
from tests.passes import emit

TARGETS = ["cpu", "cpu:x86-64-v3", "cpu:x86-64-v2"]


def scan(op, dtype, term=None, *, trip=None, kind=LoopKind.SCAN, before=1):
    """Return `for v in 1:N: Y[v] = op(Y[v - before], term)` as a kernel."""
    term = Load("X", (V("v"),), dtype) if term is None else term
    value = Op(op, (Load("Y", (index("sub", "v", before),), dtype), term), dtype)
    loop = For("v", C(before), V("N"), (Store("Y", (V("v"),), value),), 1, kind, 8, trip)
    return KernelIR("k", (vector_buffer("X", dtype, writable=False), vector_buffer("Y", dtype)), ("N",), (loop,))


def is_by_vectors(kernel, name="cpu:x86-64-v4"):
    return "shufflevector" in emit(kernel, target(name))


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("op", ["maximum", "minimum"])
@pytest.mark.parametrize("dtype", ["f32", "f64", "i8", "u16", "i32", "u64"])
def test_running_extrema_of_any_length(name, op, dtype):
    kernel = scan(op, DTYPES[dtype])
    assert is_by_vectors(kernel)
    for n in (0, 1, 2, 16, 17, 65, 150):
        values = np.random.default_rng(n).permutation(n).astype(DTYPES[dtype].numpy)
        check_same(kernel, {"X": values, "Y": data(DTYPES[dtype], n)}, {"N": n}, name)


@pytest.mark.parametrize("op", ["add", "mul"])
@pytest.mark.parametrize("dtype", ["i32", "u8", "i64"])
def test_running_sums_and_products_of_integers(op, dtype):
    for n in (1, 9, 40, 150):
        check_same(scan(op, DTYPES[dtype]), {"X": data(DTYPES[dtype], n), "Y": data(DTYPES[dtype], n)}, {"N": n})


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("dtype", [f32, f64], ids=str)
def test_a_nan_is_carried_on_from_where_it_stands(name, dtype):
    for place in (0, 1, 7, 8, 15, 16, 33, 64):
        values = data(dtype, 70)
        values[place] = np.nan
        check_same(scan("maximum", dtype), {"X": values, "Y": values.copy()}, {"N": 70}, name)


def test_lengths_that_are_known():
    for n in (2, 17, 34):
        check_same(scan("maximum", f32, trip=n - 1), {"X": data(f32, n), "Y": data(f32, n)}, {"N": n})


def test_the_term_may_read_the_element_itself_and_nothing_else_of_the_buffer():
    own = Load("Y", (V("v"),), i32)
    assert is_by_vectors(scan("add", i32, own))
    check_same(scan("add", i32, own), {"X": data(i32, 50), "Y": data(i32, 50, seed=1)}, {"N": 50})
    first = scan("add", i32, Load("Y", (C(0),), i32))
    assert not is_by_vectors(first)
    check_same(first, {"X": data(i32, 50), "Y": data(i32, 50, seed=1)}, {"N": 50})


def test_what_is_no_step_from_the_element_before_runs_as_the_loop_says():
    double = Op("mul", (Load("X", (V("v"),), f32), C(2.0, f32)), f32)
    assert is_by_vectors(scan("maximum", f32, double))
    for kernel in (scan("maximum", f32, double), scan("maximum", f32, before=2), scan("sub", f32)):
        check_same(kernel, {"X": data(f32, 50), "Y": data(f32, 50, seed=1)}, {"N": 50})
    assert not is_by_vectors(scan("maximum", f32, before=2))
    assert not is_by_vectors(scan("sub", f32))


def test_terms_of_another_width_are_converted():
    wide = Convert(Load("X", (V("v"),), f64), f32)
    value = Op("maximum", (Load("Y", (index("sub", "v", 1),), f32), wide), f32)
    loop = For("v", C(1), V("N"), (Store("Y", (V("v"),), value),), 1, LoopKind.SCAN, 8)
    kernel = KernelIR("k", (vector_buffer("X", f64, writable=False), vector_buffer("Y", f32)), ("N",), (loop,))
    check_same(kernel, {"X": data(f64, 45), "Y": data(f32, 45)}, {"N": 45})


def test_in_a_vector_loop_each_lane_scans_a_row_of_its_own():
    rows, width = 8, 20
    place = index("add", index("mul", "i", width), "j")
    before = index("sub", place, 1)
    value = Op("maximum", (Load("Y", (before,), i64), Load("X", (place,), i64)), i64)
    inner = For("j", Const(1), Const(width), (Store("Y", (place,), value),), kind=LoopKind.SCAN, lanes=8)
    outer = For("i", Const(0), Const(rows), (inner,), kind=LoopKind.VECTOR, lanes=8, trip=8)
    buffers = tuple(Buffer(n, i64, (Const(rows * width),), (Const(1),), Space.ARGUMENT, n == "Y") for n in ("X", "Y"))
    values = data(i64, rows * width)
    check_same(KernelIR("kernel", buffers, (), (outer,)), {"X": values, "Y": values.copy()}, {})
