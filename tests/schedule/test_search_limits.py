"""Places of floats' extrema are found by one comparison a term, whatever the terms are; other statements stay."""

import ctypes

import llvmlite.binding as llvm
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polyker as pk
from polyker.codegen.llvm.jit.detect import target
from polyker.ir.expr import Call, walk
from polyker.rewrite.searches.match_searches import searches
from polyker.rewrite.searches.search_limits import search_limits
from tests.schedule.support import case

SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 5e-324, 1e-45, 3.4e38, -3.4e38]

HIT, NONE = "X[i,j] == {0} or X[i,j] != X[i,j]", 2**63 - 1


def operations(program):
    return [e.op for s in program.statements() for e in walk(s.expr) if isinstance(e, Call)]


@pytest.mark.parametrize(
    ("text", "types"),
    [
        ("a[i] = argmax[j](X[i,j])", {"X": "f32[6,10]"}),
        ("a[i] = argmin[j](abs(X[i,j]))", {"X": "f64[6,10]"}),
        ("a[i] = argmax[j](X[i,j])", {"X": "f16[6,10]"}),
        ("a[j] = argmax[i](X[i,j])", {"X": "f32[6,N]"}),
        ("a = argmax[j](X[j])", {"X": "f32[N]"}),
        ("a[i] = argmax[k in 0:3](X[i+k-1;pad=0]) for i in 0:10", {"X": "f32[10]"}),
        ("a[i] = argmax[j in 1:i+2](X[i,j]) for i in 0:6", {"X": "f32[6,10]"}),
        ("a[i,j] = argmin[k](A[i,k] + B[k,j])", {"A": "f32[4,5]", "B": "f32[5,6]"}),
    ],
)
def test_terms_of_floats_are_compared_once(text, types):
    flat = case(text, **types).flat
    made, found = search_limits(flat)
    assert operations(flat).count("eq") == operations(flat).count("ne") == 1
    assert {"eq", "ne", "or"}.isdisjoint(operations(made))
    assert sum(op in ("below", "above") for op in operations(made)) == 1
    (search,) = found
    assert [search.place] == [
        s for s in made.statements() if "where" in [e.op for e in walk(s.expr) if isinstance(e, Call)]
    ]
    assert search.place.expr.args[0] == search.hit


@pytest.mark.parametrize(
    ("text", "types", "count"),
    [
        ("a[i] = argmax[j](X[i,j])", {"X": "i32[6,10]"}, 1),
        (f"a[i] min= where(X[i,j] == max[k](X[i,k]), j, {NONE})", {"X": "f32[6,10]"}, 0),  # a NaN has no place
        (f"a[i] min= where({HIT.format('M[i]')}, j, {NONE})", {"X": "f32[6,10]", "M": "f32[6]"}, 0),
        (f"a[i] min= where({HIT.format('max[k in 0:5](X[i,k])')}, j, {NONE})", {"X": "f32[6,10]"}, 0),  # of other terms
    ],
)
def test_other_searches_stay(text, types, count):
    flat = case(text, **types).flat
    assert search_limits(flat) == (flat, tuple(searches(flat)))
    assert len(tuple(searches(flat))) == count


def test_places_of_one_extremum_share_its_limit():
    text = f"""
        f(X: f32[6,10]) -> a, b:
            M[i] max= X[i,j]
            a[i] min= where({HIT.format("M[i]")}, j, {NONE})
            b[i] max= where({HIT.format("M[i]")}, j, {-(2**63)})
    """
    made, found = search_limits(case(text, X="f32[6,10]").flat)
    assert len(found) == 2
    assert sum(op in ("below", "above") for op in operations(made)) == 1
    X = np.zeros((6, 10), np.float32)
    X[:, 3] = X[:, 7] = 1
    first, last = pk.op(text)(X)
    assert (first == 3).all()
    assert (last == 7).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_terms_next_to_the_extremum_are_none(dtype):
    X = np.array([0.0, 1.0, -1.0, 2.0, np.inf, -np.inf, 5e-324, 1e-300, np.finfo(dtype).tiny], dtype)
    below, above = np.nextafter(X, -X.dtype.type(np.inf)), np.nextafter(X, X.dtype.type(np.inf))
    np.testing.assert_array_equal(
        pk.op("a[i] = argmax[j](X[i,j])")(np.stack([below, X], 1)), np.where(X == -np.inf, 0, 1)
    )
    np.testing.assert_array_equal(
        pk.op("a[i] = argmin[j](X[i,j])")(np.stack([above, X], 1)), np.where(X == np.inf, 0, 1)
    )


_SET = """
declare void @llvm.x86.sse.ldmxcsr(ptr)
define void @set(i32 %value) {
  %place = alloca i32
  store i32 %value, ptr %place
  call void @llvm.x86.sse.ldmxcsr(ptr %place)
  ret void
}"""
# MXCSR of x86: all exceptions masked; with DAZ and FTZ, as programs set that want no numbers below the normal ones.
PLAIN, FLUSHED = 0x1F80, 0x9FC0


@pytest.mark.skipif(not target("cpu").triple.startswith("x86_64"), reason="sets a register of x86")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("op", ["argmax", "argmin"])
def test_a_thread_that_has_no_denormal_numbers_finds_places_too(op, dtype):
    far = 1 if op == "argmin" else -1
    X = np.zeros((4, 100), dtype)
    X[1] = far
    X[1, 7] = -0.0
    X[2:, :50] = far * np.finfo(dtype).tiny
    X[3, 50:] = np.finfo(dtype).smallest_subnormal
    kernel = pk.op(f"a[i] = {op}[j](X[i,j])").compile(X, threads=1)
    engine = llvm.create_mcjit_compiler(
        llvm.parse_assembly(_SET), llvm.Target.from_default_triple().create_target_machine()
    )
    engine.finalize_object()
    set_mxcsr = ctypes.CFUNCTYPE(None, ctypes.c_int32)(engine.get_function_address("set"))
    set_mxcsr(FLUSHED)
    try:
        found = kernel(X)
    finally:
        set_mxcsr(PLAIN)
    np.testing.assert_array_equal(found, [0, 7, 50, 50])


@settings(max_examples=6, deadline=None)
@given(data=st.data())
def test_places_are_those_of_numpy(data):
    dtype = data.draw(st.sampled_from(["f4", "f8"]))
    shape = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 40))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    X = rng.integers(-2, 3, shape).astype(dtype)
    for special in data.draw(st.lists(st.sampled_from(SPECIAL), max_size=20)):
        X[rng.integers(shape[0]), rng.integers(shape[1])] = special
    if data.draw(st.booleans()):
        X[rng.integers(shape[0])] = data.draw(st.sampled_from(SPECIAL))
    symbols = data.draw(st.booleans())
    for op in ("argmax", "argmin"):
        for text, axis in ((f"a[i] = {op}[j](X[i,j])", 1), (f"a[j] = {op}[i](X[i,j])", 0)):
            kernel = pk.op(text).compile(getattr(pk, f"f{8 * X.itemsize}")["N", "M"] if symbols else X, threads=1)
            np.testing.assert_array_equal(kernel(X), getattr(X, op)(axis))
        found = pk.op(f"a[i] = {op}[j](-X[i,j])").compile(X, threads=1)(X)
        np.testing.assert_array_equal(found, getattr(-X, op)(1))
