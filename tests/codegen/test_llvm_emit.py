"""The emitted text: contraction, flags, names, metadata, what is hoisted and what is not."""

import re

import numpy as np
import pytest

from polyker.codegen.ir.kernel import Const, For, Guard, If, KernelIR, Let, Load, LoopKind, Op, Store
from polyker.codegen.llvm.jit.detect import host, target
from polyker.ir.dtypes import bool_, f32, f64
from tests.codegen.support import C, V, check_same, index, run_native, vector_buffer
from tests.passes import emit

A, B = vector_buffer("A", f32, writable=False), vector_buffer("B", f32)
I = (V("i"),)  # noqa: E741
LOAD = Load("A", I, f32)


def text(*body, buffers=(A, B), fastmath=(), name="cpu:x86-64-v4", integers=("N",)):
    return emit(KernelIR("k", buffers, integers, tuple(body), fastmath), target(name))


def loop(*body, **options):
    return For("i", C(0), V("N"), tuple(body), **options)


def updated(*terms):
    return Store("B", I, Op("add", (Load("B", I, f32), *terms), f32))


def product(x, y):
    return Op("mul", (x, y), f32)


@pytest.mark.parametrize(
    ("terms", "count"),
    [
        ((product(LOAD, LOAD),), 1),
        ((product(LOAD, LOAD), product(LOAD, Const(3.0, f32))), 2),
        ((Op("neg", (product(LOAD, LOAD),), f32),), 1),
        ((Op("pow", (LOAD, Const(2, f32)), f32),), 1),
        ((LOAD,), 0),
        ((Op("mul", (LOAD, LOAD, LOAD), f32),), 1),
    ],
)
def test_products_added_to_an_accumulator_are_fused(terms, count):
    kernel = KernelIR("k", (A, B), ("N",), (loop(updated(*terms)),))
    assert len(re.findall("call float @llvm.fma", emit(kernel, host()))) == count
    check_same(kernel, {"A": np.arange(9, dtype=np.float32), "B": np.ones(9, np.float32)}, {"N": 9})


def test_an_accumulator_is_known_by_its_element_however_that_is_written():
    old, new = index("mul", 2, "i"), index("add", "i", "i")
    store = Store("B", (new,), Op("add", (Load("B", (old,), f32), product(LOAD, LOAD)), f32))
    assert "llvm.fma" in text(loop(store))
    # In a vector loop at one place all lanes are summed.
    last = Op("add", (Load("B", (index("sub", "N", 1),), f32), LOAD), f32)
    vector = loop(Store("B", (index("add", "N", -1),), last), kind=LoopKind.VECTOR, lanes=8)
    kernel, arrays = KernelIR("k", (A, B), ("N",), (vector,)), {"A": np.arange(5, dtype=np.float32)}
    arrays["B"] = np.ones(5, np.float32)
    check_same(kernel, arrays, {"N": 5})
    run_native(kernel, arrays, {"N": 5})
    np.testing.assert_array_equal(arrays["B"], [1, 1, 1, 1, 11])


def test_other_sums_of_products_are_rounded_twice():
    elsewhere = Store("B", I, Op("add", (LOAD, product(LOAD, LOAD)), f32))
    assert "llvm.fma" not in text(loop(elsewhere))
    assert "llvm.fma" not in text(loop(updated(product(LOAD, LOAD))), name="cpu:x86-64-v2")


def test_no_fast_math_flag_stands_unless_asked_for():
    flags = re.compile(r"\b(nnan|ninf|nsz|arcp|contract|afn|reassoc|fast)\b")
    assert not flags.search(text(loop(updated(product(LOAD, LOAD)), Store("B", I, product(LOAD, LOAD)))))
    asked = text(loop(Store("B", I, product(LOAD, LOAD))), fastmath=("nnan", "nsz"))
    assert "fmul nnan nsz float" in asked


def test_names_of_the_kernel_do_not_reach_the_text():
    hostile = '"}; define void @evil() {\n'
    buffer = vector_buffer(hostile, f32, hostile)
    body = For(
        hostile + "i", C(0), V(hostile), (Let("x\0", V(hostile + "i")), Store(hostile, (V("x\0"),), Const(1.0, f32)))
    )
    found = text(body, buffers=(buffer,), integers=(hostile,))
    plain = text(
        For("i", C(0), V("N"), (Let("x", V("i")), Store("B", (V("x"),), Const(1.0, f32)))),
        buffers=(B,),
        integers=("N",),
    )
    assert found == plain


def test_a_load_does_not_move_above_a_guard():
    guard = Guard(Op("lt", (V("i"), C(3)), bool_), 5)
    inner = For("j", C(0), C(2), (Store("B", (V("j"),), Load("A", (C(900),), f32)),), trip=2)
    kernel = KernelIR("k", (A, B), ("N",), (loop(Guard(Op("lt", (V("N"), C(0)), bool_), 5), guard, inner),))
    check_same(kernel, {"A": np.zeros(4, np.float32), "B": np.zeros(4, np.float32)}, {"N": 4})


def test_a_load_does_not_move_above_a_loop_that_may_not_run():
    kernel = KernelIR("k", (A, B), ("N",), (loop(Store("B", I, Load("A", (C(0),), f32))),))
    check_same(kernel, {"A": np.zeros(0, np.float32), "B": np.zeros(0, np.float32)}, {"N": 0})


def test_an_invariant_load_leaves_the_loop():
    lines = text(loop(Store("B", I, Load("A", (C(0),), f32)))).splitlines()
    where = next(k for k, x in enumerate(lines) if "load float" in x)
    assert where < next(k for k, x in enumerate(lines) if "phi" in x)


def test_the_same_read_is_emitted_once():
    twice = Op("add", (product(LOAD, LOAD), LOAD), f32)
    assert len(re.findall("load float", text(loop(Store("B", I, twice))))) == 1


def test_a_written_buffer_is_read_again_after_each_store():
    step = Store("B", I, Op("add", (Load("B", I, f32), Load("B", (C(0),), f32)), f32))
    kernel = KernelIR("k", (A, B), ("N",), (loop(step, step),))
    check_same(kernel, {"A": np.zeros(5, np.float32), "B": np.arange(5, dtype=np.float32) + 1}, {"N": 5})


@pytest.mark.parametrize("lanes", [1, 4, 16])
def test_floor_division_of_a_vector_index_is_right(lanes):
    b = vector_buffer("B", f64)
    value = Op("add", (index("floordiv", "v", 3), index("mod", index("sub", "v", 5), 4)))
    from polyker.codegen.ir.kernel import Convert

    hi = index("minimum", "N", index("add", "i", lanes))
    inner = For("v", V("i"), hi, (Store("B", (V("v"),), Convert(value, f64)),), kind=LoopKind.VECTOR, lanes=lanes)
    kernel = KernelIR("k", (b,), ("N",), (loop(inner, step=lanes),))
    for n in (0, 1, 17):
        check_same(kernel, {"B": np.zeros(n)}, {"N": n})


def test_a_read_of_what_only_an_outer_loop_writes_leaves_the_inner_one():
    inner = For("j", C(0), V("N"), (Store("B", (V("j"),), Load("W", I, f32)),))
    w = vector_buffer("W", f32)
    kernel = KernelIR("k", (A, B, w), ("N",), (loop(Store("W", I, LOAD), inner),))
    lines = emit(kernel, host()).splitlines()
    second = [k for k, x in enumerate(lines) if " phi " in x][1]
    assert not any("load float" in x for x in lines[second:])
    data = {"A": np.arange(5, dtype=np.float32), "B": np.zeros(5, np.float32), "W": np.zeros(5, np.float32)}
    check_same(kernel, data, {"N": 5})


def test_what_only_a_branch_needs_is_computed_there():
    rare = If(Op("eq", (V("i"), C(7)), bool_), (Store("B", (index("floordiv", index("mul", "i", "i"), 3),), LOAD),))
    lines = text(loop(rare)).splitlines()
    branch = next(
        k for k, x in enumerate(lines) if "br i1" in x and k > next(j for j, y in enumerate(lines) if "phi" in y)
    )
    assert any("sdiv" in x for x in lines[branch:])
    assert not any("sdiv" in x or " mul " in x for x in lines[:branch])
