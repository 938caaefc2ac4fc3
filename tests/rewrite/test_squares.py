"""A computed value times itself is a square, of real floats alone, and nothing else is."""

from __future__ import annotations

import numpy as np
import pytest

import polyker as pk
from polyker.einsum_frontend import parse
from polyker.ir.dtypes import DType, c64, f32, i32
from polyker.ir.typed_printing import print_typed
from polyker.poly.binding.bind import bind
from polyker.rewrite.normalise.algebra import square_products


def squared(text: str, dtype: DType = f32) -> str:
    return print_typed(square_products(bind(parse(text), {n: dtype[8, 8] for n in "AB" if f"{n}[" in text}, {})))


def test_equal_factors_are_a_square() -> None:
    assert "(A[i, k] - B[k, j])**2" in squared("C[i,j] += (A[i,k] - B[k,j]) * (A[i,k] - B[k,j])")
    assert "exp(A[i, j] + 1.0)**2" in squared("C[i,j] = 3 - exp(A[i,j] + 1) * exp(A[i,j] + 1)")


@pytest.mark.parametrize(
    ("text", "dtype"),
    [
        ("C[i,j] += (A[i,k] - B[k,j]) * (B[k,j] - A[i,k])", f32),
        ("C[i,j] += A[i,k] * A[i,k] * B[k,j]", f32),
        ("C[i,j] = 2 * (A[i,j] + 1) * (A[i,j] + 1)", f32),  # rounded after the first factor
        ("C[i,j] += (A[i,k] - B[k,j]) * (A[i,k] - B[k,j])", c64),
        ("C[i,j] += (A[i,k] - B[k,j]) * (A[i,k] - B[k,j])", i32),
    ],
)
def test_other_products_stay(text: str, dtype: DType) -> None:
    assert "**" not in squared(text, dtype)


@pytest.mark.parametrize("dtype", ["f4", "f8", "f2"])
def test_results_are_those_of_the_product(dtype: str) -> None:
    rng = np.random.default_rng(3)
    A, B = rng.standard_normal((9, 70)).astype(dtype), rng.standard_normal((70, 33)).astype(dtype)
    A[0, 0], A[1, 1], B[2, 3] = np.inf, np.nan, -0.0
    product = pk.op("C[i,j] = sum[k]((A[i,k] - B[k,j]) * (A[i,k] - B[k,j]))")(A=A, B=B)
    exact = np.square(A[:, :, None].astype("f8") - B[None].astype("f8")).sum(1)
    np.testing.assert_allclose(product, exact, rtol=1e-2 if dtype == "f2" else 1e-5)
    if dtype != "f2":  # which is computed as floats
        np.testing.assert_array_equal(pk.op("C[i,j] = (A[i,j] - 1) * (A[i,j] - 1)")(A), (A - A.dtype.type(1)) ** 2)


def test_factors_of_other_zeros_are_no_square() -> None:
    A = np.array([-0.0, 1.0], "f4")
    with np.errstate(divide="ignore"):
        expected = 1 / ((A + np.float32(0.0)) * (A + np.float32(-0.0)))
    np.testing.assert_array_equal(pk.op("C[i] = 1 / ((A[i] + 0.0) * (A[i] + (-0.0)))")(A), expected)


@pytest.mark.parametrize("square", ["(A[i,k] - B[k,j])**2", "(A[i,k] - B[k,j]) * (A[i,k] - B[k,j])"])
def test_negative_squares_are_added_with_one_rounding(square: str) -> None:
    types = {"A": pk.f32[64, 64], "B": pk.f32[64, 64]}
    text = str(pk.op(f"C[i,j] += -({square})").compile(**types, target="cpu:x86-64-v4", threads=1).source("llvm"))
    assert "@llvm.fma" in text
    assert "fmul" not in text
