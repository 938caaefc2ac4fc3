"""Calls through the emitted entry: whatever the arguments, they end as calls through Python do."""

from __future__ import annotations

import gc
import sys
import threading
import time
import weakref
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polyker as pk
from polyker import compiling
from polyker.codegen.call_table import ROWS, Row
from polyker.kernel import _Calls
from polyker.runtime.dispatch import Dispatch
from polyker.runtime.native import Native, native
from tests.runtime.support import Guarded, coded

MATMUL = "C[i,j] += A[i,k] * B[k,j]"
BUILTIN = type(len)

pytestmark = pytest.mark.skipif(not isinstance(native(), Native), reason="this interpreter has no emitted entry")


def f32(*shape: int, salt: int = 1) -> np.ndarray:
    return coded(shape, np.float32, salt)


def both(text: str, *args: Any, outs: tuple[Any, ...] = (), sizes: dict[str, int] | None = None) -> tuple[Any, Any]:
    """Return a kernel whose calls like these go through the entry, and the way through Python of another such kernel."""
    operator, sizes = pk.op(text), sizes or {}
    fast, slow = operator.compile(*args), operator.compile(*args).__call__
    for out in (None, *outs):
        for _ in range(4):
            fast(*args, out=out, **sizes)
    assert type(fast.__call__) is BUILTIN
    assert type(slow) is not BUILTIN
    return fast, slow


def forbid_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on a call that takes the way through Python fails the test."""

    def refuse(*args: Any, **named: Any) -> Any:
        raise AssertionError("this call went through Python")

    monkeypatch.setattr(_Calls, "_matched", refuse)
    monkeypatch.setattr(Dispatch, "attempt", refuse)


def outcome(call: Callable[..., Any], make: Callable[[], tuple[tuple[Any, ...], dict[str, Any]]]) -> Any:
    """Return what a call comes to, in a form to compare: result and written arguments, or the error."""
    args, named = make()
    try:
        result = call(*args, **named)
    except Exception as error:
        return type(error), str(error), shown(args), shown(named)
    mine = next((i for i, v in enumerate((*args, *named.values())) if v is result), None)
    return shown(result), mine, shown(args), shown(named)


def shown(value: Any) -> Any:
    if isinstance(value, np.ndarray) and value.dtype != object:
        return type(value), value.dtype.str, value.shape, value.strides, value.flags.writeable, value.tobytes()
    if isinstance(value, dict):
        return {name: shown(v) for name, v in value.items()}
    if isinstance(value, (tuple, list)):
        return type(value).__name__, [shown(v) for v in value]
    if isinstance(value, np.generic):
        return type(value), value.tobytes()
    return type(value), repr(value) if isinstance(value, (int, float, complex, str, type(None))) else ""


class Sub(np.ndarray):
    pass


def misaligned(array: np.ndarray) -> np.ndarray:
    memory = np.zeros(array.nbytes + 1, np.uint8)[1:]
    view = memory[: array.nbytes].view(array.dtype).reshape(array.shape)
    view[...] = array
    return view


def read_only(array: np.ndarray) -> np.ndarray:
    array = array.copy()
    array.flags.writeable = False
    return array


def overlapping(shift: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    memory = f32(64)
    return (memory[:16].reshape(4, 4), f32(4, 4, salt=2)), {"out": memory[shift : shift + 16].reshape(4, 4)}


CALLS: dict[str, Callable[[], tuple[tuple[Any, ...], dict[str, Any]]]] = {
    "plain": lambda: ((f32(4, 4), f32(4, 4)), {}),
    "out": lambda: ((f32(4, 4), f32(4, 4)), {"out": f32(4, 4)}),
    "out is None": lambda: ((f32(4, 4), f32(4, 4)), {"out": None}),
    "by name": lambda: ((), {"B": f32(4, 4, salt=2), "A": f32(4, 4)}),
    "by name with out": lambda: ((f32(4, 4),), {"out": f32(4, 4), "B": f32(4, 4)}),
    "a name made at run time": lambda: ((f32(4, 4),), {"".join(["", "B"]): f32(4, 4), "o" + "ut"[0:]: f32(4, 4)}),
    "out as tuple": lambda: ((f32(4, 4), f32(4, 4)), {"out": (f32(4, 4),)}),
    "out as dict": lambda: ((f32(4, 4), f32(4, 4)), {"out": {"C": f32(4, 4)}}),
    "out by position": lambda: ((f32(4, 4), f32(4, 4), f32(4, 4)), {}),
    "too few": lambda: ((f32(4, 4),), {}),
    "none": lambda: ((), {}),
    "too many": lambda: ((f32(4, 4),) * 5, {}),
    "given twice": lambda: ((f32(4, 4), f32(4, 4)), {"B": f32(4, 4)}),
    "unknown name": lambda: ((f32(4, 4), f32(4, 4)), {"D": f32(4, 4)}),
    "unknown name for B": lambda: ((f32(4, 4),), {"D": f32(4, 4)}),
    "out alone": lambda: ((), {"out": f32(4, 4)}),
    "other shape": lambda: ((f32(4, 5), f32(5, 4)), {}),
    "other inner extent": lambda: ((f32(4, 4), f32(5, 4)), {}),
    "other rank": lambda: ((f32(4, 4, 1), f32(4, 4)), {}),
    "0-d": lambda: ((f32(), f32(4, 4)), {}),
    "empty": lambda: ((f32(0, 4), f32(4, 4)), {}),
    "other type": lambda: ((f32(4, 4), f32(4, 4).astype("f8")), {}),
    "integers": lambda: ((f32(4, 4), f32(4, 4).astype("i4")), {}),
    "swapped bytes": lambda: ((f32(4, 4), f32(4, 4).astype(">f4")), {}),
    "objects": lambda: ((f32(4, 4), f32(4, 4).astype(object)), {}),
    "transposed": lambda: ((f32(4, 4).T, f32(4, 4)), {}),
    "reversed": lambda: ((f32(4, 4)[::-1], f32(4, 4)[:, ::-1]), {}),
    "stepped": lambda: ((f32(8, 8)[::2, 1::2], f32(4, 4)), {}),
    "broadcast": lambda: ((np.broadcast_to(f32(4), (4, 4)), f32(4, 4)), {}),
    "misaligned": lambda: ((misaligned(f32(4, 4)), f32(4, 4)), {}),
    "misaligned out": lambda: ((f32(4, 4), f32(4, 4)), {"out": misaligned(f32(4, 4))}),
    "read-only operand": lambda: ((read_only(f32(4, 4)), f32(4, 4)), {}),
    "read-only out": lambda: ((f32(4, 4), f32(4, 4)), {"out": read_only(f32(4, 4))}),
    "out of other type": lambda: ((f32(4, 4), f32(4, 4)), {"out": np.zeros((4, 4))}),
    "out of other shape": lambda: ((f32(4, 4), f32(4, 4)), {"out": f32(4, 5)}),
    "out broadcast": lambda: ((f32(4, 4), f32(4, 4)), {"out": np.lib.stride_tricks.as_strided(f32(4), (4, 4), (0, 4))}),
    "out transposed": lambda: ((f32(4, 4), f32(4, 4)), {"out": f32(4, 4).T}),
    "out swapped": lambda: ((f32(4, 4), f32(4, 4)), {"out": f32(4, 4).astype(">f4")}),
    "out of a subclass": lambda: ((f32(4, 4), f32(4, 4)), {"out": f32(4, 4).view(Sub)}),
    "out a list": lambda: ((f32(4, 4), f32(4, 4)), {"out": [[1.0]]}),
    "out a number": lambda: ((f32(4, 4), f32(4, 4)), {"out": 3}),
    "out a string": lambda: ((f32(4, 4), f32(4, 4)), {"out": "C"}),
    "subclass": lambda: ((f32(4, 4).view(Sub), f32(4, 4)), {}),
    "matrix": lambda: ((f32(4, 4).view(np.matrix), f32(4, 4)), {}),
    "masked": lambda: ((np.ma.masked_array(f32(4, 4)), f32(4, 4)), {}),
    "list": lambda: ((f32(4, 4).tolist(), f32(4, 4)), {}),
    "number": lambda: ((2.0, f32(4, 4)), {}),
    "numpy number": lambda: ((np.float32(2), f32(4, 4)), {}),
    "nothing": lambda: ((None, f32(4, 4)), {}),
    "text": lambda: (("A", f32(4, 4)), {}),
    "a type": lambda: ((np.ndarray, np.dtype("f4")), {}),
    "a record array": lambda: ((np.rec.array(np.zeros((4, 4), [("x", "f4")])), f32(4, 4)), {}),
    "overlapping one on": lambda: overlapping(1),
    "overlapping exactly": lambda: overlapping(0),
    "side by side": lambda: overlapping(16),
}


@pytest.fixture(scope="module")
def matmul() -> tuple[Any, Any]:
    return both(MATMUL, f32(4, 4), f32(4, 4), outs=(f32(4, 4),))


@pytest.fixture(scope="module")
def operators() -> tuple[Any, Any]:
    fast, slow = pk.op(MATMUL), pk.op(MATMUL)
    for out in (None, f32(4, 4)):
        for _ in range(4):
            fast(f32(4, 4), f32(4, 4), out=out)
    assert fast._quick is not None
    slow._adopt = lambda *args: None
    return fast, slow


@pytest.mark.parametrize("name", CALLS)
def test_a_call_of_a_kernel_ends_as_it_does_through_python(name: str, matmul: tuple[Any, Any]) -> None:
    fast, slow = matmul
    assert outcome(fast, CALLS[name]) == outcome(slow, CALLS[name])


@pytest.mark.parametrize("name", CALLS)
def test_a_call_of_an_operator_ends_as_it_does_through_python(name: str, operators: tuple[Any, Any]) -> None:
    fast, slow = operators
    for _ in range(4):  # also once the entry knows this way of calling
        assert outcome(fast, CALLS[name]) == outcome(slow, CALLS[name])


def test_plain_calls_in_any_form_need_no_python(matmul: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, _ = matmul
    a, b, out = f32(4, 4), f32(4, 4, salt=2), np.empty((4, 4), np.float32)
    forbid_python(monkeypatch)
    results = [kernel(a, b), kernel(A=a, B=b), kernel(a, B=b), kernel(B=b, A=a, out=None)]
    results += [kernel(a, b, out=out), kernel(B=b, out=out, A=a), kernel(a, out=out, B=b)]
    assert all(r is out for r in results[4:])
    for result in results:
        np.testing.assert_array_equal(result, a @ b)
    for result in results[:4]:
        assert result.flags.owndata and result.flags.c_contiguous
    with pytest.raises(AssertionError, match="went through Python"):
        kernel(a, b.T)


SCALED = "y[i] = a * x[i]"


@pytest.mark.parametrize("dtype", ["f8", "f4", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1"])
def test_python_numbers_become_what_numpy_makes_of_them(dtype: str) -> None:
    x = np.arange(5).astype(dtype)
    operator = pk.op(SCALED)
    numbers: list[Any] = [
        0,
        1,
        -1,
        3,
        127,
        128,
        255,
        256,
        -128,
        -129,
        2**15,
        2**31,
        2**53 + 1,
        2**63 - 1,
        2**63,
        2**64,
        -(2**63),
    ]
    numbers += [16777217, 2**24 + 3, -(2**62) - 1, True, False, 10**30, np.int64(3), np.float32(0.1)]
    if dtype in ("f8", "f4"):
        numbers += [
            0.1,
            -0.0,
            1e-45,
            3.4e38,
            3.41e38,
            1e39,
            -1e39,
            1e308,
            float("inf"),
            float("-inf"),
            float("nan"),
            1j,
        ]
    quick, slow = pk.op(SCALED), pk.op(SCALED)
    slow._adopt = lambda *args: None
    for warm in (2, 2.0) if dtype in ("f8", "f4") else (2,):
        for _ in range(4):
            quick(warm, x)
    assert quick._quick is not None and operator._quick is None
    for number in numbers:
        assert outcome(quick, lambda n=number: ((n, x.copy()), {})) == outcome(
            slow, lambda n=number: ((n, x.copy()), {})
        )


@pytest.mark.parametrize("dtype", ["i64", "i32", "i16", "i8", "u64", "u32", "u16", "u8", "f64", "f32"])
def test_python_numbers_for_declared_scalars_have_to_fit(dtype: str) -> None:
    text = f"f(a: {dtype}, x: {dtype}[N]) -> y:\n    y[i] = a * x[i]"
    x = np.arange(5).astype(pk.op(text).infer(getattr(pk, dtype)[()], getattr(pk, dtype)[5]).dtype.numpy)
    fast, slow = both(text, 2, x)
    for number in (
        0,
        1,
        -1,
        127,
        128,
        -128,
        -129,
        255,
        256,
        2**15,
        2**16,
        2**31,
        2**32,
        2**53 + 1,
        2**63 - 1,
        2**63,
        2**64,
    ):
        call = lambda n=number: ((n, x.copy()), {})  # noqa: E731
        assert outcome(fast, call) == outcome(slow, call)


@pytest.mark.parametrize("shift", [-100, -21, -20, -1, 0, 1, 19, 20, 399, 400])
def test_an_out_that_overlaps_an_operand_is_noticed(shift: int) -> None:
    def make(memory: np.ndarray) -> tuple[Any, Any]:
        return memory[200:600].reshape(20, 20), memory[200 + shift : 600 + shift].reshape(20, 20)

    kernel, slow = both("C[i,j] = A[i,j] + sum[k](A[k,j])", f32(20, 20), outs=(f32(20, 20),))
    first, second = f32(1000), f32(1000)
    for call, memory in ((kernel, first), (slow, second)):
        a, out = make(memory)
        assert call(a, out=out) is out
    np.testing.assert_array_equal(first, second)


def test_a_kernel_met_with_a_strided_out_alone_makes_row_major_results() -> None:
    kernel = pk.op("C[i,j] = 2 * A[j,i]").compile(pk.f32[4, 6])
    a, out = f32(4, 6), np.empty((4, 6), np.float32).T
    for _ in range(4):
        kernel(a, out=out)
    assert type(kernel.__call__) is BUILTIN
    result = kernel(a)
    assert result.flags.c_contiguous
    np.testing.assert_array_equal(result, 2 * a.T)


def test_results_of_every_kind_come_as_through_python(monkeypatch: pytest.MonkeyPatch) -> None:
    x = f32(9)
    cases = [
        ("s += x[i]", (x,), {}),
        ("s max= x[i]", (np.arange(5),), {}),
        ("s = any[i](x[i])", (np.array([True, False]),), {}),
        ("total += x[i]; most max= x[i]; twice[i] = 2 * x[i]", (x,), {}),
        ("O[h] += X[h+r-1; pad=0] * K[r]  for h in 0:H", (x, f32(3)), {"H": 5}),
        ("y[i] = x[idx[i]]", (x, np.array([3, 0, 8])), {}),
        ("C[i] = sum[j](A[i,j]); D[i,j] = A[i,j] / C[i]", (f32(30, 20),), {}),
        ("C[i,j] = A[i,j] + B[j]", (f32(0, 3), f32(3)), {}),
        ("scan(A: f64[N]) -> A:\n    A[i] = A[i] + A[i-1] for i in 1:N", (np.arange(9.0),), {}),
        ("grow(A: f64[N], times) -> A:\n    for t in 0:times:\n        A[i] += A[i]", (np.arange(9.0), 3), {}),
    ]
    kernels = []
    for text, args, sizes in cases:
        fixed = pk.op(text).compile(*args, **sizes)
        expected = shown(fixed(*args, **sizes))
        for _ in range(3):
            fixed(*args, **sizes)
        kernels.append((fixed, args, sizes, expected))
    forbid_python(monkeypatch)
    for kernel, args, sizes, expected in kernels:
        assert shown(kernel(*args, **sizes)) == expected


def test_an_in_out_argument_is_copied_unless_it_is_out() -> None:
    a = np.arange(9.0)
    kernel, slow = both("grow(A: f64[N]) -> A:\n    A[i] += A[i]", a, outs=(np.zeros(9),))
    assert outcome(kernel, lambda: ((a.copy(),), {})) == outcome(slow, lambda: ((a.copy(),), {}))
    out = np.full(9, np.nan)
    assert kernel(a, out=out) is out
    np.testing.assert_array_equal(out, 2 * a)
    assert kernel(out, out=out) is out
    np.testing.assert_array_equal(out, 4 * a)
    memory = np.arange(30.0)
    kernel(memory[3:12], out=memory[5:14])
    np.testing.assert_array_equal(memory[5:14], 2 * np.arange(3.0, 12.0))


def test_a_size_has_to_be_the_one_met_before() -> None:
    conv = pk.op("O[h] += X[h+r-1; pad=0] * K[r]  for h in 0:H")
    x, k = f32(20), f32(3)
    for _ in range(4):
        conv(x, k, H=7)
    slow = pk.op("O[h] += X[h+r-1; pad=0] * K[r]  for h in 0:H")
    slow._adopt = lambda *args: None
    for height in (7, 8, 0, -1, 7.0, True, np.int64(7), "7", None, 2**70):
        call = lambda h=height: ((x.copy(), k.copy()), {"H": h})  # noqa: E731
        assert outcome(conv, call) == outcome(slow, call)
    kernel = conv.compile(x, k, H=7)
    for _ in range(4):
        kernel(x, k)
        kernel(x, k, H=7)
    with pytest.raises(pk.PolykerError, match="`H`"):
        kernel(x, k, H=8)


def test_a_guard_s_error_is_raised_and_nothing_leaks() -> None:
    x = f32(9)
    kernel, slow = both("y[i] = x[idx[i]]", x, np.array([0, 1, 2]))
    for bad in ([0, 9, 2], [-1, 0, 0], [2**40, 0, 0]):
        assert outcome(kernel, lambda b=bad: ((x, np.array(b)), {})) == outcome(
            slow, lambda b=bad: ((x, np.array(b)), {})
        )
    bad = np.array([0, 9, 2])
    counts = sys.getrefcount(x), sys.getrefcount(bad), sys.getrefcount(x.dtype)
    blocks = []
    for _ in range(3):
        for _ in range(300):
            with pytest.raises(pk.PolykerError):
                kernel(x, bad)
        gc.collect()
        blocks.append(sys.getallocatedblocks())
    assert (sys.getrefcount(x), sys.getrefcount(bad)) == counts[:2]
    assert abs(sys.getrefcount(x.dtype) - counts[2]) < 100
    assert blocks[2] - blocks[1] < 100


def test_references_are_given_back_on_every_way(matmul: tuple[Any, Any]) -> None:
    kernel, _ = matmul
    a, b, out = f32(4, 4), f32(4, 4), f32(4, 4)
    watched: list[Any] = [a, b, out, a.dtype, kernel, kernel.__call__, None, "out", kernel._compiled]
    watched += kernel._compiled._plans.values()

    def calls() -> None:
        for _ in range(1000):
            kernel(a, b)
            kernel(a, b, out=out)
            kernel(A=a, B=b, out=None)

    calls()
    gc.collect()
    before, blocks = [sys.getrefcount(v) for v in watched], sys.getallocatedblocks()
    calls()
    gc.collect()
    after = [sys.getrefcount(v) for v in watched]
    assert all(abs(x - y) <= 3 for x, y in zip(before, after))
    assert sys.getallocatedblocks() - blocks < 100
    result = kernel(a, b)
    assert sys.getrefcount(result) == 2
    del watched
    assert sys.getrefcount(kernel(a, b, out=out)) == 3


def test_a_dropped_kernel_is_freed_at_once_and_its_callable_lives_on_its_own() -> None:
    a, b = f32(4, 4), f32(4, 4, salt=3)
    kernel, _ = both(MATMUL + " * 17", a, b)
    plan = weakref.ref(next(iter(kernel._compiled._plans.values())))
    call, whole, made = kernel.__call__, weakref.ref(kernel), weakref.ref(kernel._compiled)
    compiling.kernels.clear()
    gc.disable()
    try:
        del kernel
        assert whole() is None
        del _
        np.testing.assert_array_equal(call(a, b), 17 * (a @ b))
        np.testing.assert_array_equal(call(a.T, b), 17 * (a.T @ b))
        assert made() is not None
        del call
        assert made() is None and plan() is None
    finally:
        gc.enable()


def test_an_operator_keeps_no_kernel_that_the_cache_let_go() -> None:
    operator, a = pk.op(MATMUL + " * 19"), f32(4, 4)
    for _ in range(5):
        operator(a, a)
    table = operator._quick[1]
    assert [reference() is not None for reference, _, _ in table._rows] == [True]
    compiling.kernels.clear()
    gc.collect()
    assert [reference() is not None for reference, _, _ in table._rows] == [False]
    np.testing.assert_array_equal(operator(a, a), 19 * (a @ a))
    for _ in range(70):
        operator(a, a)
    assert [reference() is not None for reference, _, _ in table._rows] == [True]


def test_the_entry_marks_kernels_as_used_for_the_cache() -> None:
    kernel, _ = both(MATMUL, f32(4, 4), f32(4, 4))
    kernel._compiled.used = False
    kernel(f32(4, 4), f32(4, 4))
    assert kernel._compiled.used


def test_options_and_environment_are_looked_at_in_each_call_of_an_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    total, x = pk.op("s += x[i]"), np.array([2.0**24, 1, 1, 1, 1], np.float32)
    for _ in range(5):
        single = total(x)
    assert total._quick is not None
    with pk.options(acc="f64"):
        for _ in range(5):
            assert total(x) == np.float32(2**24 + 4)
    assert total(x) == single
    monkeypatch.setenv("POLYKER_TARGET", "cpu:no-such-thing")
    with pytest.raises(pk.PolykerError, match="no-such-thing"):
        total(x)
    monkeypatch.delenv("POLYKER_TARGET")
    assert total(x) == single
    called = []
    monkeypatch.setattr("polyker.api.interpret", lambda *args: called.append(1) or [np.float32(5)])
    monkeypatch.setenv("POLYKER_INTERPRET", "1")
    assert total(x) == 5 and called


def test_more_ways_of_calling_than_the_table_has_rows_still_work() -> None:
    operator = pk.op("y[i] = 3 * x[i]")
    shapes = range(1, 2 * ROWS)
    for _ in range(70):
        for n in shapes:
            x = f32(n)
            assert (operator(x) == 3 * x).all()
    assert len(operator._quick[1]._rows) == ROWS


def test_more_parameters_or_outputs_than_the_entry_knows_go_through_python() -> None:
    many = pk.op("y[i] = " + " + ".join(f"x{n}[i]" for n in range(20)))
    args = [f32(5, salt=n) for n in range(20)]
    for _ in range(5):
        np.testing.assert_array_equal(many(*args), sum(args))
    assert many._quick is None
    outputs = pk.op("; ".join(f"y{n}[i] = {n} * x[i]" for n in range(12)))
    for _ in range(5):
        assert all((y == n * args[0]).all() for n, y in enumerate(outputs(args[0])))
    assert outputs._quick is None


@pytest.mark.parametrize("at_end", [True, False])
def test_nothing_outside_the_arrays_is_touched(at_end: bool) -> None:
    kernel, _ = both(MATMUL, f32(5, 7), f32(7, 3), outs=(f32(5, 3),))
    guarded = [Guarded(v, at_end) for v in (f32(5, 7), f32(7, 3), np.zeros((5, 3), np.float32))]
    a, b, out = (g.array for g in guarded)
    try:
        kernel(a, b, out=out)
        np.testing.assert_array_equal(out, kernel(a, b))
    finally:
        del a, b, out
        for g in guarded:
            g.release()


def test_long_kernels_let_other_threads_run_and_short_ones_do_not() -> None:
    def unlocks(kernel: Any) -> list[int]:
        return [int(words[Row.UNLOCK]) for _, words, _ in kernel.__call__.__self__[1]._rows]

    short, _ = both(MATMUL, f32(4, 4), f32(4, 4))
    x = np.ones(600)
    long, _ = both("s += x[i] * y[j] * z[k]", x, x, x[:300])
    assert unlocks(short) == [0] and unlocks(long) == [1]
    ticks: list[float] = []
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.0002)

    thread = threading.Thread(target=watch)
    thread.start()
    most = 0
    for _ in range(50):  # a busy machine may not run the other thread in each call
        start = time.perf_counter()
        long(x, x, x[:300])
        end = time.perf_counter()
        most = max(most, sum(start < t < end for t in ticks))
    done.set()
    thread.join()
    assert most >= 3


def test_threads_share_a_kernel_while_rows_come_and_go() -> None:
    kernel = pk.op("y[i] = sum[k](x[i,k] * x[i,k])").compile(pk.f32[300, 300])
    x = f32(300, 300)
    expected = kernel(x)
    wrong: list[Any] = []
    done = threading.Event()

    def caller() -> None:
        while not done.is_set():
            if not (kernel(x) == expected).all():
                wrong.append(1)

    threads = [threading.Thread(target=caller) for _ in range(3)]
    for thread in threads:
        thread.start()
    memory = np.zeros((300, 400), np.float32)
    end = time.monotonic() + 1
    while time.monotonic() < end:
        for n in range(300, 300 + 2 * ROWS):
            view = np.lib.stride_tricks.as_strided(memory, (300, 300), (4 * n, 4))
            for _ in range(3):
                kernel(view)
        kernel._compiled._plans.clear()
    done.set()
    for thread in threads:
        thread.join(30)
    assert not wrong


GARBAGE = st.one_of(
    st.none(), st.integers(), st.floats(), st.text(max_size=3), st.booleans(), st.complex_numbers(),
    st.sampled_from([object(), len, np.float32(1), np.dtype("f4"), np.ndarray, (), [], {}, b"x", Ellipsis, range(3)]),
)  # fmt: skip


@st.composite
def arrays(draw: st.DrawFn) -> np.ndarray:
    dtype = draw(st.sampled_from(["f4", "f4", "f4", "f8", ">f4", "i4", "f2", "?"]))
    shape = draw(st.sampled_from([(4, 4), (4, 4), (4, 4), (4,), (4, 5), (0, 4), (), (1, 4)]))
    array = np.array(coded(shape, np.int8), dtype)
    match draw(st.integers(0, 9)):
        case 0:
            array = array.T
        case 1:
            array = array[::-1] if array.ndim else array
        case 2:
            array = misaligned(array)
        case 3:
            array = read_only(array)
        case 4:
            array = array.view(Sub)
    return array


@settings(max_examples=400, deadline=None)
@given(
    args=st.lists(st.one_of(arrays(), arrays(), arrays(), GARBAGE), max_size=4),
    named=st.dictionaries(
        st.sampled_from(["A", "B", "out", "C", "i", "k", ""]), st.one_of(arrays(), GARBAGE), max_size=3
    ),
)
def test_calls_of_any_objects_end_as_they_do_through_python(args: list[Any], named: dict[str, Any]) -> None:
    fast, slow = prepared()

    def make() -> tuple[tuple[Any, ...], dict[str, Any]]:
        return tuple(map(copied, args)), {name: copied(v) for name, v in named.items()}

    assert outcome(fast, make) == outcome(slow, make)


@cache
def prepared() -> tuple[Any, Any]:
    return both(MATMUL, f32(4, 4), f32(4, 4), outs=(f32(4, 4),))


def copied(value: Any) -> Any:
    """Return an array of the same kind, layout and flags in memory of its own; other objects as they are."""
    if type(value) is not np.ndarray or value.dtype == object:
        return value
    memory = np.zeros(value.nbytes + 8, np.uint8)
    offset = value.__array_interface__["data"][0] % 8
    lowest = sum((n - 1) * s for n, s in zip(value.shape, value.strides) if s < 0 and n)
    base = (8 - memory.__array_interface__["data"][0]) % 8
    if value.size == 0 or offset - base < 0 or base + offset + value.nbytes > memory.size:
        return value.copy(order="K") if value.flags.writeable else read_only(value)
    made = np.ndarray(value.shape, value.dtype, memory.data, base + offset - lowest, value.strides)
    made[...] = value
    made.flags.writeable = value.flags.writeable
    return made
