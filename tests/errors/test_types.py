"""One test for each code PK4xx: the class, the message with the types, the text under the caret, the hint."""

from __future__ import annotations

import pytest

import polyker.errors.types
from polyker.einsum_frontend import parse
from polyker.errors import CATALOGUE, DTypeError
from polyker.ir.dtypes import bool_, c64, f16, f32, f64, i8, i32, u8
from polyker.poly.binding.bind import bind

# code, text, types, acc, part of the message, what stands under the caret (None: no place), part of the hint
ROWS = [
    ("PK401", "O[i] = A[i] - B[i]", {"A": bool_[4], "B": bool_[4]}, None, "`-` does not take bool and bool", "A[i] - B[i]",
     "`!=`"),
    ("PK401", "O[i] = -A[i]", {"A": bool_[4]}, None, "`-` does not take bool", "-A[i]", "`not`"),
    ("PK401", "O[i] = A[i] < 1", {"A": c64[4]}, None, "does not take c64 and int", "A[i] < 1", "abs"),
    ("PK401", "O max= A[i]", {"A": c64[4]}, None, "`max=` does not take c64", "O max= A[i]", "real"),
    ("PK401", "O max= A[i]; O *= B", {"A": f32[4], "B": c64[()]}, None, "`max=` does not take c64", "O max= A[i]",
     "into a real tensor"),
    ("PK401", "O = argmax[i](A[i])", {"A": c64[4]}, None, "`argmax` does not take c64", "argmax[i](A[i])", "real"),
    ("PK401", "O[i] = floor(A[i])", {"A": c64[4]}, None, "`floor` does not take c64", "floor(A[i])", "real"),
    ("PK401", "O[i] = A[i] % 2", {"A": c64[4]}, None, "`mod` does not take c64 and int", "A[i] % 2", "real"),
    ("PK401", "O[i] = maximum(A[i], 0)", {"A": c64[4]}, None, "`maximum` does not take c64 and int", "maximum(A[i], 0)", ""),
    ("PK401", "O[i] = erf(A[i])", {"A": c64[4]}, None, "`erf` does not take c64", "erf(A[i])", "real"),
    ("PK402", "O[i] = A[i] + 300", {"A": i8[4]}, None, "300 is out of range for i8", "300", "i64(...)"),
    ("PK402", "O[i] = maximum(A[i], -1)", {"A": u8[4]}, None, "-1 is out of range for u8", "-1", ""),
    ("PK402", "O[i] = A[i; pad=-1] for i in 0:9", {"A": u8[4]}, None, "-1 is out of range for u8", ..., ""),
    ("PK403", "f(A: f32[4]) -> O:\n    O: i32[4]\n    O[i] = A[i]", {"A": f32[4]}, None,
     "a value of type f32 cannot be stored in `O` of type i32", "O[i] = A[i]", "`i32(...)`"),
    ("PK403", "f(A: c64[4]) -> O:\n    O: f64\n    O += A[i]", {"A": c64[4]}, None, "c64 cannot be stored in `O`", ..., ""),
    ("PK404", "O[i] = O[i-1] for i in 4:1", {}, None, "the type of `O` depends on itself alone", "O[i]", "declare"),
    ("PK405", "O[i] = A[I[i]]", {"A": f32[4], "I": f32[4]}, None, "`I` subscripts a tensor", "I[i]", ""),
    ("PK406", "O += A[i]", {"A": f16[4]}, f16, "acc=f16 is not a type to accumulate in", None, "f32"),
    ("PK406", "O += A[i]", {"A": bool_[4]}, bool_, "acc=bool", None, ""),
    ("PK407", "f(A: f32[4]) -> O:\n    O[i] = A[i]", {"A": f64[4]}, None, "`A` is declared f32 but the argument is f64", ...,
     ""),
    ("PK409", "O[i] = A[i]" + " / A[i]" * 150, {"A": f32[4]}, None, "`O` is 152 operators deep",
     "A[i]" + " / A[i]" * 150, "split"),
    ("PK410", f"O[i] = {'silu(' * 20}A[i]{')' * 20}", {"A": c64[4]}, None, "`silu` of c64 takes its argument twice", ...,
     "a statement of its own"),
    ("PK411", "O[i] = A[i] & 3", {"A": f32[4]}, None, "`&` is of integers and bool, not f32 and int", "A[i] & 3",
     "`i32(A[i]) & 3"),
    ("PK408", "O[i] = A[i] ** -2", {"A": i32[4]}, None, "an integer to the negative power -2", "A[i] ** -2", "-2.0"),
]  # fmt: skip


@pytest.mark.parametrize(("code", "text", "types", "acc", "message", "under", "hint"), ROWS)
def test_the_error_names_the_place_and_the_types(code, text, types, acc, message, under, hint):
    with pytest.raises(DTypeError) as caught:
        bind(parse(text), types, acc=acc)
    error = caught.value
    assert error.code == code
    assert isinstance(error, TypeError)
    assert message in error.message
    assert hint in (error.hint or "")
    if under is None:
        assert error.span is None
    elif under is not ...:
        assert error.span.source.text[error.span.start : error.span.end] == under


def test_every_code_of_this_catalogue_has_a_test():
    assert {c for c in CATALOGUE if c.startswith("PK4")} == {row[0] for row in ROWS}
    assert polyker.errors.types.NO_LOOP == "PK401"
