"""Vector accesses: strides, masks and remainders, gathers, stack tiles, values kept by the last lane."""

import itertools
from random import Random

import numpy as np
import pytest

import polyker as pk
from polyker.codegen.ir.facts import Facts
from polyker.codegen.ir.kernel import (
    Allocate,
    Buffer,
    Const,
    Convert,
    For,
    If,
    KernelIR,
    Load,
    LoopKind,
    Op,
    Space,
    Store,
)
from polyker.codegen.ir.polynomial import atom, polynomial
from polyker.codegen.llvm.jit.detect import target
from polyker.ir.dtypes import DTYPES, bool_, c64, f32, f64, i64
from tests.codegen.support import C, V, check_same, index, vector_buffer
from tests.passes import emit

TARGETS = ["cpu", "cpu:x86-64-v3", "cpu:x86-64-v2"]


def loop(*body, lanes=8, hi=None, trip=None):
    hi = index("minimum", "N", lanes) if hi is None else hi
    return For("v", C(0), hi, tuple(body), kind=LoopKind.VECTOR, lanes=lanes, trip=trip)


def data(dtype, *shape, seed=0):
    values = np.random.default_rng(seed).integers(1, 90, shape)
    return (values % 2 == 0) if dtype.kind == "b" else values.astype(dtype.numpy)


@pytest.mark.parametrize("stride", [1, 2, 3, 4, 5, 20, -1, -2, -7, 0])
@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize("name", ["f32", "u8", "f64", "c64"])
def test_strided_vectors_touch_only_their_elements(name, lanes, stride):
    dtype = DTYPES[name]
    x = Buffer("X", dtype, (V("N"),), (C(stride),), Space.ARGUMENT, writable=False)
    y = Buffer("Y", dtype, (V("N"),), (C(stride or 1),), Space.ARGUMENT)
    copy = Store("Y", (V("v"),), Load("X", (V("v"),), dtype))
    for n in (lanes, lanes - 1, 1, 0):
        full = n == lanes
        body = loop(copy, lanes=lanes, hi=C(lanes) if full else None, trip=lanes if full else None)
        kernel = KernelIR("k", (x, y), ("N",), (body,))
        values = data(dtype, n) if stride else np.repeat(data(dtype, 1), n)
        steps = {"X": (stride,), "Y": (stride or 1,)}
        check_same(kernel, {"X": values, "Y": data(dtype, n, seed=1)}, {"N": n}, strides=steps)


@pytest.mark.parametrize("count", [8, 7, 3, 1])
@pytest.mark.parametrize("stride", [5, 20, -6])
@pytest.mark.parametrize("name", ["f32", "u8", "c128"])
def test_lanes_that_are_known_to_lie_apart_are_loaded_one_by_one(name, stride, count):
    dtype = DTYPES[name]
    x = Buffer("X", dtype, (C(count),), (C(stride),), Space.ARGUMENT, writable=False)
    y = Buffer("Y", dtype, (C(count),), (C(1),), Space.ARGUMENT)
    copy = Store("Y", (V("v"),), Load("X", (V("v"),), dtype))
    kernel = KernelIR("k", (x, y), (), (loop(copy, hi=C(count), trip=count),))
    assert "masked.gather" not in emit(kernel, target("cpu:x86-64-v4"))
    check_same(kernel, {"X": data(dtype, count), "Y": data(dtype, count, seed=1)}, {}, strides={"X": (stride,)})


@pytest.mark.parametrize("name", [d for d in DTYPES if d != "bf16"])
@pytest.mark.parametrize("target", TARGETS)
def test_every_type_is_masked_at_every_remainder(name, target):
    dtype = DTYPES[name]
    x, y = vector_buffer("X", dtype, writable=False), vector_buffer("Y", dtype)
    kernel = KernelIR("k", (x, y), ("N",), (loop(Store("Y", (V("v"),), Load("X", (V("v"),), dtype))),))
    for n in range(9):
        check_same(kernel, {"X": data(dtype, n), "Y": data(dtype, n, seed=1)}, {"N": n}, target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [f32, i64, c64], ids=str)
def test_gathers_and_scatters_respect_their_masks(target, dtype):
    t = vector_buffer("T", dtype, 7, writable=False)
    k = vector_buffer("K", i64, writable=False)
    y = vector_buffer("Y", dtype, 20)
    at = Load("K", (V("v"),), i64)
    wanted = Op("lt", (at, C(5)), bool_)
    body = loop(If(wanted, (Store("Y", (index("mul", at, 2),), Load("T", (at,), dtype)),)))
    kernel = KernelIR("k", (t, k, y), ("N",), (body,))
    for n in range(9):
        keys = np.array([0, 6, 4, 900, 2, 10**12, 3, 1], np.int64)[:n]
        check_same(kernel, {"T": data(dtype, 7), "K": keys, "Y": data(dtype, 20)}, {"N": n}, target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("op", ["add", "mul", "minimum", "maximum"])
@pytest.mark.parametrize("name", ["f32", "f64", "i32", "u8", "i64", "c64", "f16"])
@pytest.mark.parametrize("lanes", [2, 7, 16])
def test_a_reduction_combines_the_active_lanes_only(target, op, name, lanes):
    dtype = DTYPES[name]
    x, y = vector_buffer("X", dtype, writable=False), vector_buffer("Y", dtype, 1)
    value = Op(op, (Load("Y", (C(0),), dtype), Load("X", (V("v"),), dtype)), dtype)
    hi = index("minimum", "N", lanes)
    kernel = KernelIR("k", (x, y), ("N",), (loop(Store("Y", (C(0),), value), lanes=lanes, hi=hi),))
    for n in {0, 1, lanes - 1, lanes}:
        values = (data(dtype, n) % 3).astype(dtype.numpy) if not dtype.is_complex else np.ones(n, dtype.numpy)
        check_same(kernel, {"X": values, "Y": np.full(1, 2, dtype.numpy)}, {"N": n}, target)


@pytest.mark.parametrize("op", ["and", "or"])
def test_bools_reduce(op):
    x, y = vector_buffer("X", bool_, writable=False), vector_buffer("Y", bool_, 1)
    value = Op(op, (Load("Y", (C(0),), bool_), Load("X", (V("v"),), bool_)), bool_)
    kernel = KernelIR("k", (x, y), ("N",), (loop(Store("Y", (C(0),), value)),))
    for n, start, bit in itertools.product(range(9), (True, False), (True, False)):
        check_same(kernel, {"X": np.full(n, bit), "Y": np.array([start])}, {"N": n})


def test_the_last_active_lane_is_kept():
    x, y = vector_buffer("X", f32, writable=False), vector_buffer("Y", f32, 1)
    odd = Op("eq", (index("mod", "v", 2), C(1)), bool_)
    keep = Store("Y", (C(0),), Load("X", (V("v"),), f32))
    for body in (loop(keep), loop(If(odd, (keep,)))):
        kernel = KernelIR("k", (x, y), ("N",), (body,))
        for n in range(9):
            check_same(kernel, {"X": data(f32, n), "Y": np.full(1, -1, np.float32)}, {"N": n})


def test_uniform_accesses_do_not_happen_where_no_lane_is_active():
    empty = vector_buffer("X", f32, 0, writable=False)
    out = vector_buffer("Y", f32, 0)
    body = loop(Store("Y", (C(10**9),), Load("X", (C(10**9),), f32)))
    check_same(KernelIR("k", (empty, out), ("N",), (body,)), {"X": data(f32, 0), "Y": data(f32, 0)}, {"N": 0})


def test_a_serial_loop_in_a_vector_loop_may_have_bounds_for_each_lane():
    x, y = vector_buffer("X", f64, writable=False), vector_buffer("Y", f64)
    add = Store("Y", (V("v"),), Op("add", (Load("Y", (V("v"),), f64), Load("X", (V("j"),), f64)), f64))
    body = loop(
        Store("Y", (V("v"),), Const(0.0, f64)), For("j", index("floordiv", "v", 2), index("add", "v", 1), (add,))
    )
    for n in range(9):
        check_same(KernelIR("k", (x, y), ("N",), (body,)), {"X": data(f64, n), "Y": data(f64, n)}, {"N": n})


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_stack_tile_keeps_what_a_masked_store_leaves(dynamic):
    tile = Buffer("S", f32, (C(2), C(11)), (C(11), C(1)), Space.STACK)
    y = vector_buffer("Y", f32, 11)
    row = V("r") if dynamic else C(1)

    def across(n, value, name):
        hi = index("minimum", 8, index("sub", n, "o")) if isinstance(n, int) else n
        inner = For(name, V("o"), index("add", "o", hi), (value,), kind=LoopKind.VECTOR, lanes=8)
        return For("o", C(0), C(11), (inner,), 8)

    fill = across(11, Store("S", (row, V("a")), Const(1.0, f32)), "a")
    mark = Store("S", (row, V("b")), Convert(V("b"), f32))
    part = For("b", C(0), index("minimum", "N", 8), (mark,), kind=LoopKind.VECTOR, lanes=8)
    out = across(11, Store("Y", (V("c"),), Load("S", (row, V("c")), f32)), "c")
    body = For("r", C(1), C(2), (Allocate((tile,), (fill, part, out)),))
    for n in range(9):
        check_same(KernelIR("k", (y,), ("N",), (body,)), {"Y": data(f32, 11)}, {"N": n})


def test_what_the_facts_prove_is_true():
    rng = Random(5)
    names = ["a", "b", "n"]

    def some():
        return index("add", index("mul", rng.choice([-2, -1, 1, 2, 4]), rng.choice(names)), rng.randint(-4, 4))

    def bound():
        quotient = index("floordiv", some(), rng.choice([2, 4]))
        smaller = index("minimum", some(), some())
        return rng.choice([some(), V("n"), quotient, smaller, index("add", quotient, some())])

    proved = 0
    for _ in range(1500):
        facts = Facts(polynomial)
        loops = [For("a", some(), bound(), ())] if rng.random() < 0.7 else []
        conditions = [Op(rng.choice(["lt", "le", "gt", "ge"]), (some(), bound()), bool_)]
        for x in loops:
            facts.in_loop(x, atom(V("a")))
        for x in conditions:
            facts.holds(x)
        upper, lower = bound(), some()
        if not facts.positive(upper, polynomial(lower)):
            continue
        proved += 1
        for values in itertools.product(range(-5, 6), repeat=3):
            env = dict(zip(names, values, strict=True))
            inside = all(evaluate(x.lo, env) <= env["a"] < evaluate(x.hi, env) for x in loops)
            if inside and all(evaluate(c, env) for c in conditions):
                assert evaluate(upper, env) > evaluate(lower, env), (loops, conditions, upper, lower, env)
    assert proved > 10


def evaluate(expr, env):
    from tests.codegen.interpret_operations import apply

    match expr:
        case Const(value=value):
            return value
        case Op(op=op, args=args, dtype=dtype):
            return apply(op, [np.asarray(evaluate(a, env)) for a in args], dtype)
        case _:
            return env[expr.name]


@pytest.mark.parametrize("dtype", [pk.bf16, pk.f16, pk.i8, pk.i16], ids=str)
def test_a_mask_that_llvm_finds_to_hold_for_one_lane_writes_that_lane_alone(dtype):
    # The last tile of a row has one element, and a condition that holds there: elements beside it are the next row's first ones.
    given = (((np.arange(34) * 7) % 11 - 5).reshape(17, 2)).astype(dtype.numpy)
    kernel = pk.op("E[z,d] += N[d,w] for z in 0:7 where z + 2*d != 3").compile(N=dtype[17, 2], threads=1)
    memory = np.full(7 * 17 + 64, 77).astype(dtype.numpy)
    out = memory[: 7 * 17].reshape(7, 17)
    kernel(given, out=out)
    at = np.arange(7)[:, None] + 2 * np.arange(17) != 3
    np.testing.assert_array_equal(out.astype(float), np.where(at, given.astype(float).sum(1), 0))
    assert (memory[7 * 17 :].astype(float) == 77).all()


def test_a_sum_that_some_lanes_have_masks_its_multiply_adds() -> None:
    kernel = pk.op("D[n,c,h+r,w+s] += G[n,f,h,w] * K[f,c,r,s]").compile(
        G=pk.f32[2, 32, 28, 28], K=pk.f32[32, 32, 3, 3], target="cpu:x86-64-v4", threads=1
    )
    lines = str(kernel.source("asm")).splitlines()
    assert sum("vfmadd" in line and "{%k" in line for line in lines) > 20


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("dtype", [f32, f64], ids=str)
@pytest.mark.parametrize("op", ["maximum", "minimum"])
@pytest.mark.parametrize("lanes", [2, 3, 8, 16])
def test_an_extremum_over_lanes_is_nan_where_one_of_them_is(lanes: int, op: str, dtype, name: str) -> None:
    for whole in (True, False):
        body = loop(
            Store("M", (C(0),), Op(op, (Load("M", (C(0),), dtype), Load("A", (V("v"),), dtype)), dtype)),
            lanes=lanes,
            **({"hi": C(lanes), "trip": lanes} if whole else {}),
        )
        kernel = KernelIR(
            "k", (vector_buffer("A", dtype, writable=False), vector_buffer("M", dtype, 1)), ("N",), (body,)
        )
        size = lanes if whole else lanes - 1
        for at in range(size + 1):
            arrays = {"A": np.arange(5, 5 + size).astype(dtype.numpy), "M": np.array([7], dtype.numpy)}
            (arrays["A"] if at < size else arrays["M"])[at % size] = np.nan
            assert check_same(kernel, arrays, {"N": size}, name) == 0
