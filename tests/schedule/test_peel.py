"""The last results along a vector, as a reduction of their own where they fill few lanes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polyker as pk
from polyker.codegen.llvm.jit.detect import target
from polyker.structs import replace
from tests.artifacts import generated

V4 = "cpu:x86-64-v4"
PEELED = "of i1 are computed separately"


@pytest.mark.parametrize(
    ("n", "dtype", "found"),
    [
        (64, "f32", False),
        (65, "f32", True),
        (68, "f32", True),
        (69, "f32", True),
        (120, "f32", False),  # half a vector, which rows take as long for
        (121, "f32", False),  # more than half
        (15, "f32", False),  # no whole vector
        (65, "f64", True),
        (33, "f64", True),  # so small that a loop more is no matter
        (41, "f64", True),
        (1025, "f64", False),  # one in 128 vectors
    ],
)
def test_a_few_last_columns_are_computed_apart(n: int, dtype: str, found: bool) -> None:
    types = getattr(pk, dtype)[n, n], getattr(pk, dtype)[n, n]
    schedule = str(generated(pk.op("C[i,j] += A[i,k] * B[k,j]").compile(*types, target=V4), "schedule"))
    assert (PEELED in schedule) == found


def test_results_of_sums_along_the_terms_are_tried_by_whole_vectors() -> None:
    # 49 places: by vectors along the channels each is as cheap as the next; 48 and 1 are cheaper still.
    types = pk.f32[1, 512, 7, 7], pk.f32[2048, 512, 1, 1]
    schedule = str(generated(pk.op("O[n,f,h,w] += X[n,c,h+r,w+s] * K[f,c,r,s]").compile(*types, target=V4), "schedule"))
    assert "the last 1 of i2 are computed separately" in schedule


def test_results_in_memory_are_not_fetched_twice_for_it() -> None:
    text = "C[a,b,i,j] += A[a,i,k] * B[k,b,j]"
    for rows, found in ((4, True), (400, False)):
        types = pk.f64[rows, 25, 24], pk.f64[24, 25, 17]
        schedule = str(generated(pk.op(text).compile(*types, target=V4), "schedule"))
        assert ("are computed separately" in schedule) == found, rows


def test_operands_in_memory_are_not_fetched_twice_for_it() -> None:
    double_pumped = replace(target(V4), name="halves", native_bytes=32)
    for planes, text in ((1, "C[i,j] += A[i,k] * B[k,j]"), (200, "C[i,k] += A[i,j,k]")):
        types = (pk.f32[300, 300], pk.f32[300, 260]) if planes == 1 else (pk.f32[planes, 300, 260],)
        schedule = str(generated(pk.op(text).compile(*types, target=double_pumped), "schedule"))
        assert ("are computed separately" in schedule) == (planes == 1), planes


@pytest.mark.parametrize(("text", "columns"), [("C[i,j] += A[i,k] * B[k,j]", 24), ("C[i,j] max= A[i,k] + B[k,j]", 20)])
def test_half_a_vector_takes_half_the_time_where_whole_ones_pass_in_two_halves(text: str, columns: int) -> None:
    for double_pumped in (True, False):
        machine = replace(
            target(V4),
            name=f"double_pumped {double_pumped}",
            native_bytes=32 * double_pumped,
            add_pipes=2 * double_pumped,
        )
        schedule = str(generated(pk.op(text).compile(pk.f32[60, 50], pk.f32[50, columns], target=machine), "schedule"))
        assert (PEELED in schedule) == double_pumped


def test_less_than_a_quarter_of_a_register_takes_as_long_where_additions_cannot_move() -> None:
    machine = replace(target(V4), name="halves", native_bytes=32, add_pipes=2)
    types = pk.f32[33, 33], pk.f32[33, 33]
    schedule = str(generated(pk.op("C[i,j] max= A[i,k] + B[k,j]").compile(*types, target=machine), "schedule"))
    assert "S2: vectors of 16 along i2" in schedule  # along the terms


def test_lines_of_lone_elements_are_not_fetched_twice_for_it() -> None:
    double_pumped = replace(target(V4), name="halves", native_bytes=32)
    text = "C[a,b,j] += A[a,i,b,i] * B[i,j]"
    for rows, found in ((4, True), (64, False)):
        schedule = str(
            generated(pk.op(text).compile(pk.f32[rows, 40, 48, 40], pk.f32[40, 56], target=double_pumped), "schedule")
        )
        assert ("are computed separately" in schedule) == found, rows


def test_an_epilogue_stays_with_its_results() -> None:
    types = pk.f32[65, 65], pk.f32[65, 65]
    kernel = pk.op("C[i,j] += A[i,k] * B[k,j];  O[i,j] = maximum(C[i,j], 0)").compile(*types, target=V4)
    assert PEELED not in generated(kernel, "schedule")


OPERATORS = {
    "C[i,j] += A[i,k] * B[k,j]": lambda a, b: a @ b,
    "C[i,j] += A[i,k] * B[j,k]": lambda a, b: a @ b.T,
    "C[j,i] += A[k,i] * B[k,j]": lambda a, b: (a.T @ b).T,
    "C[i,j] max= A[i,k] + B[k,j]": lambda a, b: (a[:, :, None] + b[None]).max(1),
}


@given(
    text=st.sampled_from(list(OPERATORS)),
    vectors=st.integers(1, 5),
    last=st.integers(0, 4),
    n=st.integers(1, 40),
    k=st.integers(1, 40),
    dtype=st.sampled_from((np.float32, np.float64, np.int32)),
    flip=st.booleans(),
    adds=st.booleans(),
)
@settings(max_examples=6, deadline=None)
def test_results_are_numpys(
    text: str, vectors: int, last: int, n: int, k: int, dtype: type, flip: bool, adds: bool
) -> None:
    m = 16 * vectors + last
    rng = np.random.default_rng(m * n * k)
    left = (k, n) if "A[k,i]" in text else (n, k)
    right = (m, k) if "B[j,k]" in text else (k, m)
    a, b = (rng.integers(-4, 5, shape).astype(dtype) for shape in (left, right))
    b = b[::-1] if flip else b
    expected = OPERATORS[text](a, b)
    if not adds:
        np.testing.assert_array_equal(pk.op(text)(a, b), expected)
        return
    start = rng.integers(-4, 5, expected.shape).astype(dtype)
    element = text[: text.index("]") + 1]
    got = pk.op(f"{element} = {element.replace('C', 'S')};  {text}")(start, a, b)
    np.testing.assert_array_equal(got, np.maximum(start, expected) if "max=" in text else start + expected)


@pytest.mark.parametrize("m", [65, 66])
def test_elements_without_terms_are_started_too(m: int) -> None:
    a, b = np.ones((9, 7), np.float32), np.ones((7, m), np.float32)
    found = pk.op("C[i,j] += A[i,k] * B[k,j] for j in 1:m, i in 2:9")(a, b, m=m)
    expected = np.zeros((9, m), np.float32)
    expected[2:, 1:] = 7
    np.testing.assert_array_equal(found, expected)


def test_elements_of_two_iterators_are_started_by_the_part_that_adds_to_them() -> None:
    op, X, K = pk.op("O[n,f,2*h+r,2*w+t] += X[n,c,h,w] * K[c,f,r,t]"), np.ones((1, 1, 9, 17)), np.ones((1, 1, 2, 2))
    assert "are computed separately" in str(generated(op.compile(X=X, K=K, target=V4), "schedule"))
    out = np.full((1, 1, 18, 34), -7.0)
    op.compile(X=X, K=K)(X, K, out=out)
    np.testing.assert_array_equal(out, 1)
