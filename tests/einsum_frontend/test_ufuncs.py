"""NumPy's functions on the builder's expressions: each makes what the notation's text says, or is refused with what to write."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

import polyker as pk
from polyker.einsum_frontend import parse
from polyker.einsum_frontend.builder import build
from polyker.errors import ParseError
from polyker.ir.functions import TABLE
from polyker.ir.program import Program

i, j = pk.indices("i j")
X, Y, O = pk.tensors("X Y O")  # noqa: E741
x, y = X[i], Y[i]

SAME: dict[str, Callable[[], object]] = {
    "X[i] + Y[i]": lambda: np.add(x, y),
    "2 + X[i]": lambda: np.add(2, x),
    "X[i] - Y[i]": lambda: np.subtract(x, y),
    "X[i] * Y[i]": lambda: np.multiply(x, y),
    "X[i] / Y[i]": lambda: np.true_divide(x, y),
    "X[i] // Y[i]": lambda: np.floor_divide(x, y),
    "X[i] % Y[i]": lambda: np.mod(x, y),
    "X[i] ** Y[i]": lambda: np.power(x, y),
    "X[i] ** 2": lambda: np.square(x),
    "-X[i]": lambda: np.negative(x),
    "abs(X[i])": lambda: np.absolute(x),
    "asin(X[i])": lambda: np.arcsin(x),
    "conj(X[i])": lambda: np.conjugate(x),
    "round(X[i])": lambda: np.rint(x),
    "popcount(X[i])": lambda: np.bitwise_count(x),
    "X[i] & Y[i]": lambda: np.bitwise_and(x, y),
    "X[i] | Y[i]": lambda: np.bitwise_or(x, y),
    "X[i] ^ Y[i]": lambda: np.bitwise_xor(x, y),
    "~X[i]": lambda: np.invert(x),
    "X[i] << 3": lambda: np.left_shift(x, 3),
    "X[i] >> 3": lambda: np.right_shift(x, 3),
    "X[i] and Y[i]": lambda: np.logical_and(x, y),
    "X[i] or Y[i]": lambda: np.logical_or(x, y),
    "not X[i]": lambda: np.logical_not(x),
    "X[i] < Y[i]": lambda: np.less(x, y),
    "X[i] != Y[i]": lambda: np.not_equal(x, y),
    "where(X[i] > 0, X[i], 0)": lambda: np.where(x > 0, x, 0),
    "clip(X[i], 0, 1)": lambda: np.clip(x, 0, 1),
    "real(X[i])": lambda: np.real(x),
    # Operators of NumPy's scalars, and of Python's functions.
    "2.0 * X[i]": lambda: np.float32(2) * x,
    "2 - X[i]": lambda: np.int64(2) - x,
    "X[i] > 2.0": lambda: np.float64(2) < x,
    "2 ** X[i]": lambda: np.int8(2) ** x,
    "floor(X[i])": lambda: math.floor(x),
    "ceil(X[i])": lambda: math.ceil(x),
    "trunc(X[i])": lambda: math.trunc(x),
    "X[i] // 3 + X[i] % 3": lambda: divmod(x, 3)[0] + divmod(x, 3)[1],
    "7 // X[i] + 7 % X[i]": lambda: divmod(7, x)[0] + divmod(7, x)[1],
    # Element types as NumPy and Python name them.
    "f32(X[i])": lambda: x.astype(np.float32),
    "f64(X[i])": lambda: x.astype(float),
    "u8(X[i])": lambda: pk.cast(np.dtype("u1"), x),
    "c64(X[i])": lambda: x.astype("complex64"),
}


def program(value: object) -> Program:
    return build(O[i].set(value))


@pytest.mark.parametrize("text", SAME)
def test_a_function_of_numpy_makes_what_the_text_says(text: str) -> None:
    assert program(SAME[text]()) == parse(f"O[i] = {text}")


@pytest.mark.parametrize("name", [f for f in TABLE if isinstance(getattr(np, f, None), np.ufunc)])
def test_each_function_of_both_is_the_same(name: str) -> None:
    function: np.ufunc = getattr(np, name)
    args = (x, y, X[i + 1])[: function.nin]
    assert program(function(*args)) == program(getattr(pk, name)(*args))


@pytest.mark.parametrize(
    "name", [n for n in dir(np) if isinstance(getattr(np, n), np.ufunc) and getattr(np, n).nin in (1, 2)]
)
def test_every_ufunc_makes_an_expression_or_says_what_to_write(name: str) -> None:
    function: np.ufunc = getattr(np, name)
    args = (x, y)[: function.nin]
    try:
        made = function(*args)
    except ParseError as error:
        assert error.code == "PK153" and error.hint
    else:
        program(made)


def test_functions_that_differ_in_nan_or_integers_are_not_taken_for_ours() -> None:
    for function in (np.fmin, np.fmax):
        with pytest.raises(ParseError, match=r"np\.fm"):
            function(x, y)
    with pytest.raises(ParseError, match=r"np\.fabs"):
        np.fabs(x)


@pytest.mark.parametrize(
    ("make", "hint"),
    [
        (lambda: np.sum(x), "pk.sum(k, value)"),
        (lambda: np.add.reduce(x), "pk.sum(k, value)"),
        (lambda: np.multiply.reduce(x), "pk.prod(k, value)"),
        (lambda: np.maximum.reduce(x), "pk.max(k, value)"),
        (lambda: np.argmax(x), "pk.argmax(k, value)"),
        (lambda: np.einsum("ij,jk->ik", X, Y), ".add(A[i, k] * B[k, j])"),
        (lambda: X @ Y, ".add(A[i, k] * B[k, j])"),
        (lambda: np.heaviside(x, y), "where(x > 0, 1, where(x < 0, 0, y))"),
        (lambda: np.add(x, y, out=np.ones(3)), "functions take expressions alone"),
        (lambda: 0 < x < 1, "(a < b) & (b < c)"),
        (lambda: max(x, y), "maximum(a, b)"),
    ],
)
def test_what_makes_no_expression_says_what_to_write(make: Callable[[], object], hint: str) -> None:
    with pytest.raises(ParseError) as found:
        make()
    assert hint in (found.value.hint or "")


def test_an_array_is_no_part_of_an_expression() -> None:
    for make in (lambda: np.ones(3) * x, lambda: x * np.ones(3), lambda: x + [1, 2]):
        with pytest.raises(ParseError, match="is not an expression"):
            make()


def test_a_method_of_numpys_arrays_says_which_function_is_meant() -> None:
    for name, ours in (
        ("exp", "pk.exp(x)"),
        ("arctan", "pk.atan(x)"),
        ("sum", "pk.sum(k, x)"),
        ("mean", "pk.mean(k, x)"),
    ):
        with pytest.raises(AttributeError, match="write " + ours.replace("(", "[(]").replace(")", "[)]")):
            getattr(x, name)
    assert not hasattr(x, "shape")
