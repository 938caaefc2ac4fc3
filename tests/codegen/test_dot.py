"""Sums of products of narrow integers that lie side by side: machine code against NumPy, each width, extremes included."""

from __future__ import annotations

import numpy as np
import pytest

from polyker.codegen.ir.kernel import For, KernelIR, Load, LoopKind, Op, Store
from polyker.codegen.ir.verify import verify
from polyker.codegen.llvm.jit.build import build
from polyker.codegen.llvm.jit.detect import target
from polyker.errors import InternalError
from polyker.ir.dtypes import DType, f32, i8, i16, i32, u8, u32
from polyker.structs import replace
from tests.codegen.interpret import run as interpret
from tests.codegen.support import C, V, check_same, index, vector_buffer
from tests.passes import emit

TARGETS = ["cpu", "cpu:x86-64-v3", "cpu:x86-64-v2"]


def elements(part: np.dtype, seed: int, count: int = 61) -> np.ndarray:
    """Elements of random parts, a third of them the least or the greatest."""
    rng = np.random.default_rng(seed)
    info = np.iinfo(part)
    values = rng.integers(info.min, info.max, (count, 4 // np.dtype(part).itemsize), dtype=part, endpoint=True)
    values[rng.random(values.shape) < 0.2] = info.min
    values[rng.random(values.shape) < 0.2] = info.max
    return values


def elementwise(value, inputs: dict[str, DType], result: DType, lanes: int) -> KernelIR:
    """`R[i] = value(i)` in vectors of `lanes`, the last one masked; one lane: a scalar loop."""
    buffers = [vector_buffer(n, d, "M", writable=False) for n, d in inputs.items()]
    buffers.append(vector_buffer("R", result))
    at = V("j") if lanes > 1 else V("i")
    body = (Store("R", (at,), value(at)),)
    if lanes > 1:
        hi = index("minimum", "N", index("add", "i", lanes))
        body = (For("j", V("i"), hi, body, kind=LoopKind.VECTOR, lanes=lanes),)
    return KernelIR("k", tuple(buffers), ("N", "M"), (For("i", C(0), V("N"), body, step=lanes),))


@pytest.mark.parametrize("lanes", [1, 2, 4, 6, 8, 16, 20, 32])
@pytest.mark.parametrize(("op", "left", "right"), [("dot2", np.int16, np.int16), ("dot4", np.uint8, np.int8)])
@pytest.mark.parametrize("dtype", [i32, u32], ids=str)
def test_sums_of_products_are_numpys_modulo_2_to_the_32(op, left, right, lanes, dtype):
    x, y = elements(left, 1), elements(right, 2)
    wanted = (x.astype(np.int64) * y.astype(np.int64)).sum(1).astype(dtype.numpy)
    a, b = x.view(dtype.numpy)[:, 0], y.view(dtype.numpy)[:, 0]
    kernel = elementwise(
        lambda at: Op(op, (Load("A", (at,), dtype), Load("B", (at,), dtype)), dtype),
        {"A": dtype, "B": dtype},
        dtype,
        lanes,
    )
    arrays = {"A": a, "B": b, "R": np.zeros(len(a), dtype.numpy)}
    interpret(kernel, plain := {n: v.copy() for n, v in arrays.items()}, {"N": len(a), "M": len(a)})
    np.testing.assert_array_equal(plain["R"], wanted)
    for name in TARGETS:
        check_same(kernel, arrays, {"N": len(a), "M": len(a)}, name)


@pytest.mark.parametrize("lanes", [1, 4, 8, 16])
@pytest.mark.parametrize("op", ["dot2", "dot4"])
def test_a_sum_of_products_is_added_to_what_was_there(op, lanes):
    x, y = elements(np.int32, 3)[:, 0], elements(np.int32, 4)[:, 0]

    def value(at):
        return Op("add", (Load("A", (at,), i32), Op(op, (Load("A", (at,), i32), Load("B", (at,), i32)), i32)), i32)

    kernel = elementwise(value, {"A": i32, "B": i32}, i32, lanes)
    for name in TARGETS:
        check_same(kernel, {"A": x, "B": y, "R": np.zeros(len(x), np.int32)}, {"N": len(x), "M": len(x)}, name)


@pytest.mark.parametrize("lanes", [1, 4, 8, 16])
@pytest.mark.parametrize("part", [i8, u8, i16], ids=str)
@pytest.mark.parametrize("apart", [False, True])
def test_joined_parts_lie_side_by_side(part, lanes, apart):
    values = elements(part.numpy, 5, 40)
    count = values.shape[1]
    places = [
        (lambda at, p=p: index("add", index("mul", 40, p), at) if apart else index("add", index("mul", count, at), p))
        for p in range(count)
    ]
    kernel = elementwise(
        lambda at: Op("join", tuple(Load("A", (place(at),), part) for place in places), i32), {"A": part}, i32, lanes
    )
    source = np.ascontiguousarray(values.T).ravel() if apart else values.ravel()
    arrays, sizes = {"A": source, "R": np.zeros(40, np.int32)}, {"N": 40, "M": values.size}
    interpret(kernel, plain := {n: v.copy() for n, v in arrays.items()}, sizes)
    np.testing.assert_array_equal(plain["R"], values.view(np.int32)[:, 0])
    for name in TARGETS:
        check_same(kernel, arrays, sizes, name)


@pytest.mark.parametrize(("op", "name"), [("dot2", "vpmaddwd"), ("dot4", "vpdpbusd")])
def test_one_instruction_multiplies_and_adds_where_the_target_has_it(op, name):
    def value(at):
        return Op("add", (Load("A", (at,), i32), Op(op, (Load("A", (at,), i32), Load("B", (at,), i32)), i32)), i32)

    made_for = target("cpu") if name == "vpdpbusd" else target("cpu:x86-64-v3")
    if name == "vpdpbusd" and made_for.dot < 4:
        pytest.skip("this processor has no such instruction")
    code = build(emit(elementwise(value, {"A": i32, "B": i32}, i32, 8), made_for), made_for)
    assert name in code.assembly()


def test_a_target_without_such_instructions_takes_the_parts_out():
    made_for = replace(target("cpu"), dot=1)
    kernel = elementwise(
        lambda at: Op("dot2", (Load("A", (at,), i32), Load("B", (at,), i32)), i32), {"A": i32, "B": i32}, i32, 8
    )
    assert "llvm.x86" not in emit(kernel, made_for)


@pytest.mark.parametrize(
    "wrong",
    [
        Op("join", (Load("A", (V("i"),), i16),), i32),
        Op("join", (Load("A", (V("i"),), i16),) * 2, f32),
        Op("dot2", (Load("A", (V("i"),), i16),) * 2, i32),
        Op("dot4", (Op("join", (Load("A", (V("i"),), i16),) * 2, i32),), i32),
    ],
)
def test_other_types_and_numbers_of_parts_are_refused(wrong):
    kernel = elementwise(lambda at: wrong, {"A": i16}, wrong.dtype, 1)
    with pytest.raises(InternalError):
        verify(kernel)
