"""Accesses along strides of 2 to 4: whole vectors, elements picked out and woven in, elements between never written."""

import numpy as np
import pytest

import polyker as pk
from polyker.codegen.ir.kernel import Buffer, Const, For, KernelIR, Load, LoopKind, Op, Space, Store
from polyker.codegen.llvm.jit.detect import target
from polyker.ir.dtypes import DTYPES, f32
from tests.artifacts import generated
from tests.codegen.support import C, V, check_same, index
from tests.codegen.test_llvm_memory import data
from tests.passes import emit

TARGETS = ["cpu", "cpu:x86-64-v3", "cpu:x86-64-v2"]
LANES = 8


def elements(name, dtype, *, writable=True):
    return Buffer(name, dtype, (V("M"),), (C(1),), Space.ARGUMENT, writable)


def at(stride, first):
    return (Op("add", (index("mul", "v", stride), C(first))),)


def kernel(dtype, stride, firsts, *, source="X", reads=None, trip=LANES):
    """Return a vector loop of stores at the places `firsts` of each group, of what stands one place further on."""
    reads = [(f + 1) % stride for f in firsts] if reads is None else reads
    stores = tuple(
        Store("Y", at(stride, f), Load(source, at(stride, r), dtype)) for f, r in zip(firsts, reads, strict=True)
    )
    hi = index("minimum", "N", LANES) if trip is None else C(trip)
    loop = For("v", C(0), hi, stores, kind=LoopKind.VECTOR, lanes=LANES, trip=trip)
    return KernelIR("k", (elements("X", dtype, writable=False), elements("Y", dtype)), ("M", "N"), (loop,))


def check(found, dtype, stride, count, name="cpu"):
    size = stride * count
    arrays = {"X": data(dtype, size), "Y": data(dtype, size, seed=1)}
    check_same(found, arrays, {"M": size, "N": count}, name)


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("stride", [2, 3, 4])
@pytest.mark.parametrize("dtype", ["f32", "f64", "u8", "f16", "bool", "c64"])
def test_all_elements_of_a_row_or_some_of_them_are_written(name, stride, dtype):
    for firsts in ([0], [1], [1, 0], [*range(stride)], [*range(stride)][::-1], [0, stride - 1]):
        check(kernel(DTYPES[dtype], stride, firsts), DTYPES[dtype], stride, LANES, name)


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("stride", [2, 3, 4])
def test_rows_end_within_vectors(name, stride):
    for trip in (None, 7, 5, 4, 3, 1):
        for firsts in ([0], [*range(stride)]):
            for count in range(LANES + 1) if trip is None else (trip,):
                check(kernel(f32, stride, firsts, trip=trip), f32, stride, count, name)


def test_a_whole_row_is_stored_by_plain_vectors_and_loaded_once():
    text = emit(kernel(f32, 2, [0, 1]), target("cpu:x86-64-v4"))
    assert text.count("store <8 x float>") == 2 == text.count("load <8 x float>")
    assert "masked" not in text


def test_elements_that_are_missing_are_masked_where_the_target_masks_cheaply():
    found = kernel(f32, 3, [0, 1])
    assert emit(found, target("cpu:x86-64-v4")).count("call void @llvm.masked.store") == 3
    assert "masked.store" not in emit(found, target("cpu:x86-64-v2"))


def test_what_reads_a_element_written_before_waits_for_it():
    # Y[2v] = X[2v]; Y[2v+1] = Y[2v], and the reverse of it: Y[2v] = Y[2v+1]; Y[2v+1] = X[2v].
    for source, firsts, reads in (("Y", [0, 1], [1, 0]), ("Y", [1, 0], [0, 1])):
        check(kernel(f32, 2, firsts, source=source, reads=reads), f32, 2, LANES)


def test_two_stores_to_one_element_keep_their_order():
    check(kernel(f32, 2, [0, 0, 1], reads=[0, 1, 1]), f32, 2, LANES)
    check(kernel(f32, 2, [0, 2, 1], reads=[0, 1, 1], trip=6), f32, 2, LANES)


def test_a_load_that_may_not_happen_says_nothing_about_its_neighbours():
    # X ends with the even element of the last lane: the odd one must not be touched.
    odd = Load("X", at(2, 1), f32, Op("lt", (V("v"), C(LANES - 1)), DTYPES["bool"]), Const(0.0, f32))
    total = Op("add", (Load("X", at(2, 0), f32), odd), f32)
    loop = For("v", C(0), C(LANES), (Store("Y", (V("v"),), total),), kind=LoopKind.VECTOR, lanes=LANES, trip=LANES)
    found = KernelIR("k", (elements("X", f32, writable=False), elements("Y", f32)), ("M",), (loop,))
    check_same(found, {"X": data(f32, 2 * LANES - 1), "Y": data(f32, 2 * LANES - 1, seed=1)}, {"M": 2 * LANES - 1})


def test_neighbours_that_begin_anywhere_share_what_they_read():
    for reads in ([0, 1, 2], [3, 0, 1], [0, 5]):
        size = 2 * LANES + max(reads)
        total = Op("add", tuple(Load("X", at(2, r), f32) for r in reads), f32)
        loop = For("v", C(0), C(LANES), (Store("Y", (V("v"),), total),), kind=LoopKind.VECTOR, lanes=LANES, trip=LANES)
        found = KernelIR("k", (elements("X", f32, writable=False), elements("Y", f32)), ("M",), (loop,))
        check_same(found, {"X": data(f32, size - 1), "Y": data(f32, size - 1, seed=1)}, {"M": size - 1})


@pytest.mark.parametrize("name", TARGETS[1:])
def test_rows_of_a_buffer_are_woven(name):
    text = "Y[n,2*i] = 2*A[n,i];  Y[n,2*i+1] = A[n,i]+1;  Z[n,j] = Y[n,j]*Y[n,255-j]"
    op, a = pk.op(text), data(f32, 200 * 128).reshape(200, 128)
    kernel = op.compile(a, target=name, threads=1)
    assert "with t1 in [" in generated(kernel, "schedule")  # Y
    assert "store float" not in kernel.source("llvm")
    assert "scatter" not in kernel.source("llvm")
    y = np.stack([2 * a, a + 1], -1).reshape(200, 256)
    np.testing.assert_array_equal(kernel(a), y * y[:, ::-1])
