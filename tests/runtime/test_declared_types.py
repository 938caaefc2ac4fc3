"""Operators whose text declares what they take are compiled without being told again."""

from __future__ import annotations

import json

import numpy as np
import pytest

import polyker as pk

ROWS = "f(A: f32[N,8], B: f32[8]) -> C:\n    C[i] += A[i,k] * B[k]"


def test_declared_sizes_stay_symbols() -> None:
    kernel = pk.op(ROWS).compile()
    for rows in (0, 1, 5):
        A, B = np.ones((rows, 8), "f4"), np.arange(8, dtype="f4")
        np.testing.assert_array_equal(kernel(A, B), A @ B)


def test_sizes_that_are_known_are_fixed() -> None:
    for kernel in (pk.op(ROWS).compile(N=3), pk.op(ROWS, N=3).compile(), pk.op(ROWS.replace("N", "3")).compile()):
        assert "A: f32[3, 8]" in repr(kernel)


def test_what_is_given_comes_before_what_is_declared() -> None:
    assert "(A: f32[4, 8], B: f32[8])" in repr(pk.op(ROWS).compile(A=pk.f32[4, 8]))
    assert repr(pk.op(ROWS).infer()) == "f32[N]"


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("C[i] += A[i,k] * B[k]", "A"),
        (ROWS.replace("B: f32[8]", "B"), "B"),
        (ROWS.replace("A: f32[N,8]", "A: [N,8]"), "A"),
        (ROWS.replace("A: f32[N,8]", "A: f32[2*N,8]"), "A"),
    ],
)
def test_what_is_left_open_has_to_be_given(text: str, missing: str) -> None:
    with pytest.raises(pk.PolykerError, match=f"`{missing}` is missing"):
        pk.op(text).compile()


def test_of_a_size_that_another_argument_gives_nothing_is_assumed() -> None:
    text = "f(A: f32[N,8], B: f32[N]) -> C:\n    C[k] += A[i,k] * B[i]"
    with pytest.raises(pk.PolykerError, match="`B` is missing"):
        pk.op(text).compile(A=pk.f32[4, 8])


def test_types_are_read_from_json_as_text_and_as_a_dict():
    mm = pk.op("C[i,j] += A[i,k] * B[k,j]")
    for t in (pk.f32[8, "N"], pk.bool_[()], pk.u64[2**40], mm.infer(pk.f32[8, "K"], pk.f32["K", 3])):
        assert t.to_json() == json.dumps({"dtype": str(t.dtype), "shape": list(t.shape)}, separators=(",", ":"))
        for said in (t.to_json(), json.loads(t.to_json())):
            assert pk.op("O[...] = X[...]").infer(said) == t
    found = mm.infer({"dtype": "f32", "shape": [8, "K"]}, B='{"dtype": "f64", "shape": ["K", 4]}')
    assert found == pk.f64[8, 4]
    assert mm.compile(*(json.loads(pk.f32[2, 2].to_json()) for _ in "AB")).types == (pk.f32[2, 2], pk.f32[2, 2])


@pytest.mark.parametrize(
    "said",
    [
        {}, {"dtype": "f32"}, {"dtype": "f33", "shape": []}, {"dtype": ["f32"], "shape": [8]}, {"dtype": "f32", "shape": 8},
        {"dtype": "f32", "shape": [8.0]}, {"dtype": "f32", "shape": [True]}, {"dtype": "f32", "shape": [-1]},
        {"dtype": "f32", "shape": ["a b"]}, {"dtype": "f32", "shape": [8], "strides": [1]}, {"dtype": "f32", "shape": [2**200]},
        {"dtype": "f32", "shape": [8], "weak": 1}, {"dtype": "f32", "shape": [[8]]}, "{", '{"dtype": "f32"}', "{" * 100_000,
    ],
)  # fmt: skip
def test_json_that_is_no_type_is_refused(said):
    with pytest.raises(pk.ArgumentError, match=r"`X` is .*, neither an array nor a type"):
        pk.op("O[i] = X[i]").infer(said)
