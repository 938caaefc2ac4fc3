"""Gathers and scatters of elements of one or two bytes: functions, each once in a module, not a piece of code a lane."""

import numpy as np
import pytest

import polyker as pk
from polyker.codegen.ir.kernel import Buffer, For, KernelIR, Load, LoopKind, Op, Space, Store
from polyker.codegen.llvm.jit.detect import target
from polyker.ir.dtypes import DTYPES, i64
from tests.codegen.support import C, V, check_same, index
from tests.passes import emit


def strided(name: str, dtype: object, step: str, *, writable: bool = True) -> Buffer:
    return Buffer(name, dtype, (V("N"),), (V(step),), Space.ARGUMENT, writable)


def copy(dtype: object, lanes: int) -> KernelIR:
    body = Store("Y", (V("v"),), Load("X", (V("v"),), dtype))
    loop = For("v", C(0), index("minimum", "N", lanes), (body,), kind=LoopKind.VECTOR, lanes=lanes)
    return KernelIR("k", (strided("X", dtype, "S", writable=False), strided("Y", dtype, "T")), ("N", "S", "T"), (loop,))


def data(dtype: object, n: int, seed: int = 0) -> np.ndarray:
    values = np.random.default_rng(seed).integers(0, 100, n)
    return values % 2 == 0 if dtype.kind == "b" else values.astype(dtype.numpy)


@pytest.mark.parametrize("arch", ["cpu", "cpu:x86-64-v3", "cpu:x86-64-v2"])
@pytest.mark.parametrize("name", ["u8", "i16", "f16", "bool"])
@pytest.mark.parametrize("lanes", [8, 16, 32, 64])
def test_lanes_any_stride_apart_are_copied_and_nothing_else(name: str, lanes: int, arch: str) -> None:
    dtype = DTYPES[name]
    kernel = copy(dtype, lanes)
    for n in (lanes, lanes - 1, 2, 1, 0):
        for s, t in ((1, 2), (3, 1), (-2, 5), (7, -1)):
            values = {"X": data(dtype, n), "Y": data(dtype, n, 1)}
            check_same(kernel, values, {"N": n, "S": s, "T": t}, arch, strides={"X": (s,), "Y": (t,)})


def test_lanes_that_write_one_element_leave_the_last_one() -> None:
    x = Buffer("X", DTYPES["u8"], (C(64),), (C(1),), Space.ARGUMENT, writable=False)
    y = Buffer("Y", DTYPES["u8"], (C(16),), (C(1),), Space.ARGUMENT)
    body = Store("Y", (Op("floordiv", (V("v"), C(4)), i64),), Load("X", (V("v"),), DTYPES["u8"]))
    kernel = KernelIR("k", (x, y), (), (For("v", C(0), C(64), (body,), kind=LoopKind.VECTOR, lanes=64),))
    assert "@scatter.v64i8" in emit(kernel, target("cpu"))
    check_same(kernel, {"X": np.arange(64, dtype="u1"), "Y": np.zeros(16, "u1")}, {})


@pytest.mark.parametrize(("name", "lanes"), [("u8", 64), ("f16", 32), ("u8", 8)])
def test_a_module_has_each_function_once_however_often_it_is_used(name: str, lanes: int) -> None:
    dtype = DTYPES[name]
    once = copy(dtype, lanes)
    twice = KernelIR("k", once.buffers, once.integers, once.body * 3)
    texts = [emit(kernel, target("cpu:x86-64-v4")) for kernel in (once, twice)]
    for text in texts:
        assert "masked.gather" not in text
        assert "masked.scatter" not in text
        assert text.count("define internal void @scatter.") == text.count("@gather.") - text.count("call <") == 1
    assert texts[1].count("call void @scatter.") == 3


@pytest.mark.parametrize("lanes", [7, 9, 63, 65, 128])
def test_any_number_of_lanes_is_copied(lanes: int) -> None:
    for n in (lanes, lanes - 1, 1):
        values = {"X": data(DTYPES["u8"], n), "Y": data(DTYPES["u8"], n, 1)}
        check_same(copy(DTYPES["u8"], lanes), values, {"N": n, "S": 3, "T": 2}, strides={"X": (3,), "Y": (2,)})


@pytest.mark.parametrize("name", ["i32", "f64"])
def test_wider_elements_are_scattered_by_the_processor(name: str) -> None:
    assert "masked.scatter" in emit(copy(DTYPES[name], 8), target("cpu:x86-64-v4"))


def test_a_tile_of_many_strided_bytes_is_compiled() -> None:
    # 16 vectors of 64 lanes, whole and cut: their accesses lane by lane took LLVM minutes.
    values, bound = np.random.default_rng(0).random((2, 13, 28)).astype("f2"), np.float16(0.5)
    kernel = pk.op("O[12-z,y] any= (V[t,z,2*z+2] < R) for y in 1:n").compile(
        V=values, R=bound, specialize="never", threads=1
    )
    out = np.zeros((13, 16), bool)
    kernel(values, bound, n=8, out=out[:, ::2])
    z = np.arange(13)
    expected = (values[:, z, 2 * z + 2] < bound).any(0)[::-1]
    assert (out[:, 2::2] == expected[:, None]).all()
    assert not out[:, :2].any()
    assert not out[:, 1::2].any()
