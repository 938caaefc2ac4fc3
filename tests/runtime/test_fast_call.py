"""Calls through the emitted entry: whatever the arguments, they end as calls through Python do."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polyker as pk
from tests.artifacts import table_of
from tests.runtime.calls import (
    BUILTIN,
    MATMUL,
    NEEDS_ENTRY,
    Sub,
    both,
    f32,
    misaligned,
    no_python,
    outcome,
    read_only,
    shown,
    through_python,
)
from tests.runtime.support import coded

pytestmark = NEEDS_ENTRY


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
    assert table_of(fast) is not None
    return fast, through_python(slow)


@pytest.mark.parametrize("name", CALLS)
def test_a_call_of_a_kernel_ends_as_it_does_through_python(name: str, matmul: tuple[Any, Any]) -> None:
    fast, slow = matmul
    assert outcome(fast, CALLS[name]) == outcome(slow, CALLS[name])


@pytest.mark.parametrize("name", CALLS)
def test_a_call_of_an_operator_ends_as_it_does_through_python(name: str, operators: tuple[Any, Any]) -> None:
    fast, slow = operators
    for _ in range(4):  # also once the entry knows this way of calling
        assert outcome(fast, CALLS[name]) == outcome(slow, CALLS[name])


def test_plain_calls_in_any_form_need_no_python(matmul: tuple[Any, Any]) -> None:
    kernel, _ = matmul
    a, b, out = f32(4, 4), f32(4, 4, salt=2), np.empty((4, 4), np.float32)
    with no_python():
        results = [kernel(a, b), kernel(A=a, B=b), kernel(a, B=b), kernel(B=b, A=a, out=None)]
        results += [kernel(a, b, out=out), kernel(B=b, out=out, A=a), kernel(a, out=out, B=b)]
    assert all(r is out for r in results[4:])
    for result in results:
        np.testing.assert_array_equal(result, a @ b)
    for result in results[:4]:
        assert result.flags.owndata and result.flags.c_contiguous
    with pytest.raises(AssertionError, match="went through Python"), no_python():
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
    quick, slow = pk.op(SCALED), through_python(pk.op(SCALED))
    for warm in (2, 2.0) if dtype in ("f8", "f4") else (2,):
        for _ in range(4):
            quick(warm, x)
    assert table_of(quick) is not None and table_of(operator) is None
    for number in numbers:
        assert outcome(quick, lambda n=number: ((n, x.copy()), {})) == outcome(
            slow, lambda n=number: ((n, x.copy()), {})
        )


@pytest.mark.parametrize("dtype", list("?bhilBHILefdFD"))
def test_numpy_s_scalars_need_no_python_and_count_as_arrays_of_their_type(
    dtype: str,
) -> None:
    number = np.dtype(dtype).type(3)
    x = np.arange(5).astype("f8")
    given = [number, np.asarray(number), np.float64(0.5)]  # an array and a number of one type are told apart
    kernels = [pk.op(SCALED).compile(a=g, x=x, threads=1) for g in given]
    operator = pk.op(SCALED)
    for _ in range(4):
        for kernel, value in zip(kernels, given, strict=True):
            kernel(value, x)
            operator(value, x)
    for kernel, value in zip(kernels, given, strict=True):
        with no_python():
            found, again = kernel(a=value, x=x), operator(value, x)
        np.testing.assert_array_equal(found, np.asarray(value) * x)
        assert found.dtype == np.result_type(np.asarray(value).dtype, x)
        np.testing.assert_array_equal(again, found)
    assert kernels[2](a=np.float64(-2.5), x=x)[4] == -10
    with pytest.raises(pk.PolykerError):
        kernels[2](a=np.complex64(1), x=x)


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


OUTS: dict[str, Callable[[], Any]] = {
    "three": lambda: (f32(4, 4)[0], f32(4, 4), f32()),
    "as a list": lambda: [f32(4), f32(4, 4), f32()],
    "one missing": lambda: (f32(4), None, f32()),
    "too few": lambda: (f32(4), f32(4, 4)),
    "too many": lambda: (f32(4), f32(4, 4), f32(), f32()),
    "another type": lambda: (f32(4), f32(4, 4).astype("f8"), f32()),
    "another shape": lambda: (f32(5), f32(4, 4), f32()),
    "read-only": lambda: (f32(4), read_only(f32(4, 4)), f32()),
    "misaligned": lambda: (f32(4), misaligned(f32(4, 4)), f32()),
    "strided": lambda: (f32(8)[::2], f32(4, 4).T, f32()),
    "no arrays": lambda: (1, "two", 3.0),
    "an array": lambda: f32(4, 4),
    "by name": lambda: {"t": f32(4, 4), "s": f32(4), "u": f32()},
}


@pytest.mark.parametrize("given", OUTS.values(), ids=OUTS)
def test_several_outs_are_taken_as_through_python(given: Callable[[], Any]) -> None:
    kernel, slow = both("s[i] += A[i,j]; t[i,j] = 2 * A[i,j]; u += A[i,j]", f32(4, 4), outs=(OUTS["three"](),))
    for _ in range(3):
        call = lambda: ((f32(4, 4),), {"out": given()})  # noqa: E731
        assert outcome(kernel, call) == outcome(slow, call)


def test_several_outs_are_met_without_python_and_are_the_arrays_returned() -> None:
    kernel = pk.op("s[i] += A[i,j]; t[i,j] = 2 * A[i,j]").compile(pk.f32[4, 4])
    a, outs = f32(4, 4), (np.empty(4, np.float32), np.empty((4, 4), np.float32))
    for _ in range(4):
        named = kernel(a, out=outs)
    for out in (outs, named):
        with no_python():
            found = kernel(a, out=out)
        assert type(found) is type(named)
        assert found.s is outs[0] and found.t is outs[1]
    np.testing.assert_array_equal(outs[1], 2 * a)


@pytest.mark.parametrize("places", [(0, 4), (0, 15), (16, 15), (40, 24), (40, 23), (24, 60)])
def test_outs_that_overlap_each_other_or_an_operand_are_noticed(places: tuple[int, int]) -> None:
    kernel, slow = both("s[i,j] = A[j,i]; t[i,j] = 2 * A[i,j]", f32(4, 4), outs=((f32(4, 4), f32(4, 4)),))
    found = []
    for call in (kernel, slow):
        memory = f32(100)
        a, outs = memory[24:40].reshape(4, 4), tuple(memory[p : p + 16].reshape(4, 4) for p in places)
        found.append((outcome(call, lambda a=a, outs=outs: ((a,), {"out": outs})), memory.tobytes()))
    assert found[0] == found[1]


def test_in_out_arguments_may_change_places_with_each_other_s_outs() -> None:
    text = "f(A: f64[N], B: f64[N]) -> A, B:\n    A[i] += 1\n    B[i] += A[i]"
    kernel, slow = both(text, np.zeros(4), np.zeros(4), outs=((np.zeros(4), np.zeros(4)),))
    for call in (kernel, slow):
        a, b = np.arange(4.0), np.arange(4.0) * 10
        call(a, b, out=(b, a))
        np.testing.assert_array_equal(b, np.arange(4.0) + 1)
        np.testing.assert_array_equal(a, np.arange(4.0) * 11 + 1)


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
    assert type(kernel.func) is BUILTIN
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
    for kernel, args, sizes, expected in kernels:
        with no_python():
            found = kernel(*args, **sizes)
        assert shown(found) == expected


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
    slow = through_python(pk.op("O[h] += X[h+r-1; pad=0] * K[r]  for h in 0:H"))
    for height in (7, 8, 0, -1, 7.0, True, np.int64(7), "7", None, 2**70):
        call = lambda h=height: ((x.copy(), k.copy()), {"H": h})  # noqa: E731
        assert outcome(conv, call) == outcome(slow, call)
    kernel = conv.compile(x, k, H=7)
    for _ in range(4):
        kernel(x, k)
        kernel(x, k, H=7)
    with pytest.raises(pk.PolykerError, match="`H`"):
        kernel(x, k, H=8)


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


@settings(max_examples=240, deadline=None)
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
