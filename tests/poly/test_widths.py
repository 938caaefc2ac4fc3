"""Index arithmetic in 64 bits: what subscripts, bounds and conditions compute stays below 2^62, or it is an error."""

from __future__ import annotations

import pytest

from polyker.einsum_frontend import parse
from polyker.errors import ShapeError
from polyker.ir.dtypes import f32
from polyker.poly.binding.bind import bind
from tests.poly.sizes import evaluate_checks

BIG = 2**31


@pytest.mark.parametrize(
    ("text", "types", "fits"),
    [
        ("O[i] = X[{c}*i % 7] + Y[i]", {"X": f32[7]}, BIG),
        ("O[i] += X[k] * Y[i] where {c}*i % 7 == k", {"X": f32[7]}, BIG),
        ("O[i] += X[k] * Y[i] for k in 0:{c}*i where k < 7", {"X": f32[7]}, BIG),
        ("O[i] = X[(3*i - {c}*i) % 7] + Y[i]", {"X": f32[7]}, BIG),
        ("O[i] = X[({c}*i)//{c}] + Y[i]", {"X": f32[2**40]}, BIG),
    ],
)  # fmt: skip
def test_a_product_beyond_64_bits_is_an_error_at_compile_or_at_the_call(text, types, fits):
    program = parse(text.format(c=BIG))
    bind(program, types | {"Y": f32[fits]})
    with pytest.raises(ShapeError, match=r"numbers of 2\^62 or more") as caught:
        bind(program, types | {"Y": f32[fits + 9]})
    assert caught.value.code == "PK324"
    typed = bind(program, types | {"Y": f32["N"]})
    evaluate_checks(typed, {"n0": fits})
    with pytest.raises(ShapeError, match=f"for N = {fits + 9}"):
        evaluate_checks(typed, {"n0": fits + 9})


def test_nested_coefficients_multiply():
    text = "O[i] = X[{c}*({c}*i) % 7] for i in 0:{n}"
    bind(parse(text.format(c=BIG, n=1)), {"X": f32[7]})
    with pytest.raises(ShapeError, match="2147483648"):
        bind(parse(text.format(c=BIG, n=3)), {"X": f32[7]})


def test_a_size_that_is_fixed_is_a_coefficient_too():
    text = "f(X: f32[N], s) -> O:\n    O[i] = X[s*i % 7] for i in 0:5"
    bind(parse(text, sizes={"s": 2**40}), {"X": f32[7]}, {"s": 2**40})
    with pytest.raises(ShapeError, match=r"2\^62"):
        bind(parse(text, sizes={"s": 2**61}), {"X": f32[7]}, {"s": 2**61})


def test_what_fits_for_every_array_in_memory_is_not_checked():
    for text in ("O[i] = X[100*i % 7] + Y[i]", "O[i] += X[k] * Y[i] where k < 1000*i + 5"):
        assert not any(c.code == "PK324" for c in bind(parse(text), {"X": f32["M"], "Y": f32["N"]}).checks)
