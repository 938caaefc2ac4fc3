"""`True` and `False`: values of bool, in expressions, as padding, and built."""

import numpy as np
import pytest

import polyker as pk
from polyker.einsum_frontend import parse

MASK = np.array([True, False, True])


@pytest.mark.parametrize(
    ("text", "want"),
    [("Y[i] = where(X[i] == True, False, True)", ~MASK), ("Y[i] = X[i] and True", MASK), ("Y[i] = X[i] or False", MASK),
     ("Y[i] = not (X[i] == False)", MASK), ("Y[i] = X[i] + False", MASK), ("Y[i] = X[i] * True + 0.5", MASK + 0.5),
     ("Y[i] = X[i+1; pad=True] for i in 0:3", np.array([False, True, True])),
     ("Y[i] = X[i-1; pad=False] for i in 0:3", np.array([False, True, False])), ("Y[i] = True for i in 0:X", None)],
)  # fmt: skip
def test_they_are_what_they_are_in_numpy(text, want):
    if want is None:
        found, want = pk.op("Y[i] = True for i in 0:N")(N=3), np.array([True] * 3)
    else:
        found = pk.op(text)(MASK)
    assert found.dtype == want.dtype
    np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize("text", ["Y[i] = where(X[i] > 0, True, False)", "Y[i] = X[i-1; pad=True] for i in 0:3"])
def test_they_are_printed_as_they_are_written(text):
    assert "True" in str(parse(text)) and parse(str(parse(text))) == parse(text)


def test_those_of_python_give_the_same():
    (i,), (x, y) = pk.indices("i"), pk.tensors("X Y")
    built = pk.op(y[i].set(pk.where(x[i] > 0, True, False)))
    assert built.program == parse("Y[i] = where(X[i] > 0, True, False)")


def test_they_are_no_names():
    with pytest.raises(pk.errors.ParseError, match="`True` is a constant"):
        parse("True[i] = X[i]")
