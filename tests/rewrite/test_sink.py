"""Operators sink past reductions only where no bit of the result changes."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import polyker as pk
from polyker.poly.scop import build_scop
from polyker.reference import interpret
from polyker.rewrite.normalise.hoist_from_reductions import sink_operators
from polyker.schedule.legality.prove import prove
from polyker.schedule.nests.text_order import default_schedule
from tests.schedule.support import Case, assert_same, case


def sunk(found: Case, *, reassociating: bool = False) -> str:
    """Return the expression that is still reduced, in short; the rewrite keeps the meaning."""
    program, notes = sink_operators(found.flat, reassociating=reassociating)
    scop, schedule = build_scop(program), default_schedule(program)
    prove(scop, schedule)
    if not reassociating:
        assert_same(found, scop, schedule)
    if not notes:
        assert program is found.flat
        return ""
    name = notes[0].subject
    statement = next(s for s in program.statements() if s.name == name)
    return f"{statement.op} {statement.acc}"


INTEGERS = {"X": "i32[3,4]", "a": "i32[3]"}
WIDER = "f(X: i32[3,4], a: i32[N]) -> O:\n    O: i32[5]\n    "
SINKS = {
    "a constant": ("O[i] += 3 * X[i,k]", {"X": "i32[3,4]"}, "add i32"),
    "a factor of each result": ("O[i] += a[i] * X[i,k] * (k + 1)", INTEGERS, "add i32"),
    "a sign": ("O[i] += -X[i,k] * a[i]", INTEGERS, "add i32"),
    "unsigned numbers": ("O[i] += -X[i,k]", {"X": "u8[3,4]"}, "add u8"),
    "the sign of floats": ("O[i] += -(X[i,k] * X[i,k])", {"X": "f32[3,4]"}, "add f32"),
    "a sign as a factor": ("O[i] += -1 * X[i,k] * X[i,k]", {"X": "f32[3,4]"}, "add f32"),
    "a half of narrow floats": ("O[i,j] += 0.5 * X[i,k] * Y[k,j]", {"X": "f16[3,4]", "Y": "f16[4,3]"}, "add f32"),
    "a quotient of bytes": ("O[i] += f32(X[i,k]) / -8", {"X": "u8[3,4]"}, "add f32"),
    "wider than its operands": ("O[i] += f64(X[i,k]) * 4", {"X": "f32[3,4]"}, "add f64"),
    "a sum and a product": ("O[i] = 1 - max[k](3 * X[i,k] - 7)", {"X": "f32[3,4]"}, "max f32"),
    "a maximum of opposites": ("O[i] = max[k](2 - X[i,k] / 3)", {"X": "f32[3,4]"}, "min f32"),
    "conversions": ("O[i] = min[k](f64(X[i,k]))", {"X": "f32[3,4]"}, "min f32"),
    "narrow conversions": ("O[i] = max[k](f32(X[i,k]))", {"X": "f64[3,4]"}, ""),
    "of small integers": ("O[i] = max[k](i32(X[i,k]))", {"X": "i8[3,4]"}, "max i8"),
    "to floats": ("O[i] = max[k](f32(X[i,k]) * 0.5)", {"X": "i32[3,4]"}, "max i32"),
    "what is rounded": ("O[i] = max[k](floor(X[i,k] / 2))", {"X": "f64[3,4]"}, "max f64"),
    "relu of results with terms": ("O[i] = max[k](relu(X[i,k]))", {"X": "f64[3,4]"}, "max f64"),
    "not": ("O[i] = any[k](not (X[i,k] > 2))", {"X": "f64[3,4]"}, "all bool"),
    "a condition of all": ("O[i] = all[k](X[i,k] > -9 or a[i] > 1)", {"X": "f64[3,4]", "a": "f64[3]"}, "all bool"),
    "over nothing": ("O[i] = max[k in 2:i](-X[i,k] - 1)", {"X": "f64[4,4]"}, "min f64"),
    "into others' elements": (WIDER + "O[i] += 3 * X[i,k] * a[k] for i in 0:3", {"X": "i32[3,4]", "a": "i32[4]"}, "add i32"),
}  # fmt: skip


@pytest.mark.parametrize("name", SINKS)
def test_what_changes_no_rounding_sinks(name: str) -> None:
    text, types, left = SINKS[name]
    assert sunk(case(text, **types)) == left


STAYS = {
    "a scale that may overflow": ("O[i] += 2 * X[i,k]", {"X": "f32[3,4]"}),
    "a scale that may underflow": ("O[i] += 0.5 * X[i,k] * X[i,k]", {"X": "f32[3,4]"}),
    "a scale of a type with as many exponents": ("O[i] += 0.5 * f32(X[i,k])", {"X": "bf16[3,4]"}),
    "a scale that is no power of two": ("O[i,j] += 0.75 * X[i,k] * Y[k,j]", {"X": "f16[3,4]", "Y": "f16[4,3]"}),
    "a factor that may be infinite": ("O[i] = max[k](X[i,k] * a[i])", {"X": "f64[3,4]", "a": "f64[3]"}),
    "a product rounded before": ("O[i] = max[k](3 * X[i,k] * X[i,k])", {"X": "f64[3,4]"}),
    "a sum rounded before": ("O[i] = max[k](3 + X[i,k] + k)", {"X": "f64[3,4]"}),
    "integers that wrap": ("O[i] = max[k](-X[i,k])", {"X": "i32[3,4]"}),
    "an infinite constant": ("O[i] = max[k](X[i,k] + inf)", {"X": "f64[3,4]"}),
    "no factor at all": ("O[i] = max[k](0 * X[i,k])", {"X": "f64[3,4]"}),
    "relu of results without terms": ("O[i] = max[k in 2:i](relu(X[i,k]))", {"X": "f64[4,4]"}),
    "conversions of integers without terms": ("O[i] = max[k in 2:i](i32(X[i,k]))", {"X": "i8[4,4]"}),
    "another range": ("O[i] = max[k](u8(X[i,k]))", {"X": "i8[3,4]"}),
    "factors of elements without terms": (WIDER + "O[i] += a[i] * X[i,k] for i in 0:3", {"X": "i32[3,4]", "a": "i32[3]"}),
    "what is added to": ("f(X: i32[3,4], O: i32[3]) -> O:\n    O[i] += 3 * X[i,k]", {"X": "i32[3,4]", "O": "i32[3]"}),
    "a product of all": ("O[i] *= -X[i,k]", {"X": "f64[3,4]"}),
}  # fmt: skip


@pytest.mark.parametrize("name", STAYS)
def test_what_may_change_a_bit_stays(name: str) -> None:
    text, types = STAYS[name]
    assert sunk(case(text, **types)) == ""


def test_any_shared_factor_sinks_where_sums_may_be_rounded_otherwise() -> None:
    found = case("O[i] += a[i] * X[i,k] * 0.3", X="f32[3,4]", a="f32[3]")
    assert sunk(found) == ""
    assert sunk(found, reassociating=True) == "add f32"


SPECIAL = np.array([0.0, -0.0, 1.5, -2.0, np.inf, -np.inf, np.nan, 6e-8, 65504.0, -65504.0], "f2")


@pytest.mark.parametrize(
    "text", ["O[i] += -X[i,k]", "O[i] += -0.5 * X[i,k]", "O[i] += X[i,k] / 16", "O[i] += -(X[i,k] * X[i,k])"]
)
def test_signs_of_zeros_infinities_and_the_ends_of_the_range_are_kept(text: str) -> None:
    operator = pk.op(text.replace("X[i,k]", "f32(X[i,k])"))
    for first in range(len(SPECIAL)):
        X = np.stack([SPECIAL[[first, k]] for k in range(len(SPECIAL))] + [np.zeros(2, "f2")])
        with np.errstate(all="ignore"):
            got, want = operator(X), interpret(operator.program, {"X": X}, {})[0]
        np.testing.assert_array_equal(got, want)
        known = ~np.isnan(want)
        np.testing.assert_array_equal(np.signbit(got)[known], np.signbit(want)[known], str(X))


def test_a_scaled_sum_of_narrow_floats_is_the_exact_one() -> None:
    """Four terms whose products and sums f32 holds exactly: the result is that of fractions, rounded once."""
    data = np.random.default_rng(3).integers(-63, 64, (2, 5, 4)).astype("f2") / np.float16(2**12)
    got = pk.op("C[i,j] += 0.125 * f32(A[i,k]) * f32(B[j,k])")(data[0], data[1])
    for i in range(5):
        for j in range(5):
            terms = (
                Fraction(1, 8) * Fraction(float(a)) * Fraction(float(b))
                for a, b in zip(data[0, i], data[1, j], strict=True)
            )
            assert Fraction(float(got[i, j])) == sum(terms)


def test_a_note_says_what_was_applied_to_the_result() -> None:
    kernel = pk.op("O[i] += 3 * X[i,k]").compile(pk.i32[8, 64])
    assert "applied to the result" in str(kernel.explain())
    X = np.arange(512, dtype="i4").reshape(8, 64) * 1000003
    np.testing.assert_array_equal(kernel(X), (3 * X).sum(1, dtype="i4"))


def test_an_index_that_is_no_element_s_alone_is_no_factor_of_the_result() -> None:
    X = np.arange(20, dtype="i4").reshape(10, 2)
    want = (np.arange(5)[:, None] * X.sum(0)).reshape(10)
    np.testing.assert_array_equal(pk.op("A[2*q+p] += q * X[k,p] for q in 0:5")(X), want)
