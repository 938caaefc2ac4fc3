"""Tiles that a size cuts are computed whole: nothing is tested inside, nothing beyond an operand is touched, values stay."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import polyker as pk
from polyker.codegen.ir.kernel import (
    Allocate,
    Buffer,
    Const,
    For,
    KernelIR,
    Load,
    LoopKind,
    Op,
    Space,
    StmtBlock,
    Store,
    Var,
)
from polyker.codegen.ir.walk import statements, with_blocks
from polyker.codegen.llvm.jit.detect import target
from polyker.codegen.passes import whole_partial_tiles as filling
from polyker.codegen.passes.simplify import trip_count
from polyker.ir.dtypes import f64
from polyker.pipeline import kernel as kernels
from polyker.pipeline.driver import Run
from polyker.pipeline.passes import At
from polyker.structs import replace
from tests.artifacts import compiled_to
from tests.codegen.interpret import run as interpret
from tests.fuzz.data import guarded

SIZES = (1, 2, 5, 8, 17, 33, 70)
Array = np.ndarray[Any, Any]


def at_the_end(values: Array, *, at_end: bool) -> Array:
    """Return a copy that ends (or begins) where a page begins that may not be touched."""
    memory = guarded(values.nbytes, at_end=at_end)
    place = np.frombuffer(memory, values.dtype, values.size)
    place[:] = values.ravel()
    return place.reshape(values.shape)


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4"])
@pytest.mark.parametrize(("text", "spelled"), [("A[i,k] * B[k,j]", "ik,kj->ij"), ("A[k,i] * B[j,k]", "ki,jk->ij")])
def test_products_of_any_size_have_numpys_values_and_touch_nothing_else(text: str, spelled: str, dtype: str) -> None:
    name = {"f4": "f32", "f8": "f64", "i4": "i32"}[dtype]
    letters = spelled.upper().split("->")[0].split(",")
    types = {t: getattr(pk, name)[tuple(x)] for t, x in zip("AB", letters, strict=True)}
    kernel = pk.op(f"C[i,j] += {text}").compile(**types, specialize="never")
    rng = np.random.default_rng(0)
    for n, (i, j, k) in enumerate(product(SIZES, repeat=3)):
        extent = {"i": i, "j": j, "k": k}
        shapes = [tuple(extent[x] for x in part) for part in spelled.split("->")[0].split(",")]
        a, b = (at_the_end(rng.integers(-4, 5, s).astype(dtype), at_end=bool(n % 2)) for s in shapes)
        np.testing.assert_array_equal(kernel(a, b), np.einsum(spelled, a, b))


@pytest.mark.parametrize(
    "text",
    [
        "C[i,j] max= A[i,k] + B[k,j]",
        "C[i,j] += A[i,k] * B[k,j] where k <= i",
        "C[i,j] += A[i,k] * B[k,j] where k > j",
        "C[i,j] += A[i,k] * B[k,j] where i + k >= j",
    ],
)
def test_reductions_whose_results_have_terms_of_their_own_have_the_interpreters_values(text: str) -> None:
    operator = pk.op(text)
    kernel = operator.compile(pk.f32["I", "K"], pk.f32["K", "J"], specialize="never")
    rng = np.random.default_rng(1)
    for i, j, k in ((1, 1, 1), (9, 21, 13), (17, 33, 18), (13, 70, 75)):
        a, b = (rng.integers(-4, 5, s).astype("f4") for s in ((i, k), (k, j)))
        points = np.ogrid[:i, :j, :k]
        at = dict(zip("ijk", points, strict=True))
        terms = a[:, None, :] + b.T[None] if "max=" in text else a[:, None, :] * b.T[None]
        holds = eval(text.split("where ")[1], {}, at) if "where" in text else True
        want = terms.max(axis=2) if "max=" in text else np.where(holds, terms, 0).sum(axis=2)
        np.testing.assert_array_equal(kernel(a, b), want)


def cut_sums(kernel: KernelIR) -> set[str]:
    """Return the accumulators that are computed under unrolled loops of unknown length."""
    loops = [s for s in statements(kernel.body) if isinstance(s, For) and s.kind is LoopKind.UNROLL]
    inside = (s for loop in loops if trip_count(loop) is None for s in statements(loop.body))
    return {s.buffer for s in inside if isinstance(s, Store)} - {b.name for b in kernel.buffers}


def product_of_any_sizes(machine: str = "cpu") -> KernelIR:
    """Return the kernel of a product before its cut tiles are whole."""
    types = pk.f64["I", "K"], pk.f64["K", "J"]
    made = pk.op("D[i,j] += A[i,k] * B[k,j]").compile(*types, specialize="never", target=machine)
    return Run(At(target(machine))).passes([kernels.UNSWITCH], compiled_to(made).loops)


def counting_sums(kernel: KernelIR) -> KernelIR:
    """Return a kernel that counts the vectors of accumulators that it computes, in the buffer `count`."""
    own, place = {b.name for b in kernel.buffers}, (Const(0),)
    count = Store("count", place, Op("add", (Load("count", place, f64), Const(1.0, f64))))

    def change(block: StmtBlock) -> StmtBlock:
        found = []
        for s in block:
            found.append(with_blocks(s, change))
            if isinstance(s, For) and s.kind is LoopKind.VECTOR:
                found += [count] if any(isinstance(x, Store) and x.buffer not in own for x in s.body) else []
        return tuple(found)

    counter = Buffer("count", f64, (Const(1),), (Const(1),), Space.ARGUMENT, writable=True)
    return replace(kernel, buffers=(*kernel.buffers, counter), body=change(kernel.body))


def test_no_vector_of_a_cut_tile_is_tested_for() -> None:
    before = product_of_any_sizes()
    assert cut_sums(before)
    assert not cut_sums(filling.fill(before))


@pytest.mark.parametrize(
    ("registers", "shapes"),
    [(32, [1, 1, 2, 3, 4, 4]), (8, [1, 1, 1, 1, 1, 1])],
    ids=["small", "more than half of the registers"],
)
def test_a_small_cut_tile_has_no_more_vectors_than_hold_a_result(registers: int, shapes: list[int]) -> None:
    kernel = filling.fill(product_of_any_sizes("cpu:x86-64-v4"), registers)
    lanes = next(s.lanes for s in statements(kernel.body) if isinstance(s, For) and s.kind is LoopKind.VECTOR)
    counted = counting_sums(kernel)
    counts = []
    for columns in (lanes, 1, lanes + 1, 3 * lanes, 3 * lanes + 1, 4 * lanes):
        sizes = {"n0": 5, "n1": 3, "n2": columns}
        arrays = {
            b.name: np.ones([sizes.get(n.name, 0) if isinstance(n, Var) else n.value for n in b.shape])
            for b in counted.buffers
        }
        arrays["count"][:] = 0
        interpret(counted, arrays, sizes)
        np.testing.assert_array_equal(arrays["t2"], 3)
        counts.append(arrays["count"][0])
    assert [n / counts[0] for n in counts] == shapes


@pytest.mark.parametrize(("across", "shapes"), [(False, 4), (True, 1)])
def test_a_tile_that_is_stored_lane_by_lane_has_one_shape(across: bool, shapes: int) -> None:
    """Code for each number of vectors would be so much that the accumulators leave the registers."""
    index, lane, end = Var("c"), Var("v"), Op("floordiv", (Op("add", (Var("n"), Const(7))), Const(8)))
    size = Const(32)
    acc = Buffer("acc", f64, (size,), (Const(1),), Space.STACK)
    out = Buffer("out", f64, (size, size), (size, Const(1)), Space.ARGUMENT)
    place = Op("add", (Op("mul", (Const(8), index)), lane))
    left = Op("minimum", (Const(8), Op("sub", (Var("n"), Op("mul", (Const(8), index))))))

    def nest(store: Store) -> For:
        lanes = For("v", Const(0), left, (store,), kind=LoopKind.VECTOR, lanes=8)
        return For("c", Const(0), Op("minimum", (Const(4), end)), (lanes,), kind=LoopKind.UNROLL, lanes=4)

    element = (place, Const(0)) if across else (Const(0), place)
    body = (nest(Store("acc", (place,), Const(0.0, f64))), nest(Store("out", element, Load("acc", (place,), f64))))
    kernel = KernelIR("kernel", (out,), ("n",), (Allocate((acc,), body),))
    filled = filling.fill(kernel, 32)
    stores = [s for s in statements(filled.body) if isinstance(s, Store) and s.buffer == "out"]
    assert len(stores) == shapes
