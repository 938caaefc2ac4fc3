"""Vectors that lie across others are made of these, and are the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polyker as pk
from polyker.codegen.llvm.access.realign import realigned
from polyker.codegen.llvm.jit.detect import target
from tests.schedule.support import SMALL

HALVES = replace(target(SMALL), double_pumped=True)
STEADY = "align 4, !invariant.load !0, !alias.scope !6"


def loads(*places: int, root: str = "%p", how: str = STEADY) -> list[str]:
    """Return the lines that load vectors of four floats at so many elements behind a pointer."""
    lines = []
    for at in places:
        name = f"%x{at}".replace("-", "m")
        lines.append(f"  {name}.p = getelementptr float, ptr {root}, i64 {at}")
        lines.append(f"  {name} = load <4 x float>, ptr {name}.p, {how}")
    return lines


def shuffled(lines: list[str], registers: int = 32) -> list[str]:
    """Return the names of the vectors that are made of others."""
    made = realigned(lines, registers)
    return [line.split()[0] for line in made if "= shufflevector" in line]


def test_a_vector_across_two_others_is_the_end_of_one_and_the_start_of_the_next() -> None:
    made = realigned(loads(0, 4, 1), 32)
    assert made[:5] == loads(0, 4, 1)[:5]
    assert made[5:] == [
        "  %x1.low.at = getelementptr float, ptr %p, i64 0",
        f"  %x1.low = load <4 x float>, ptr %x1.low.at, {STEADY}",
        "  %x1.high.at = getelementptr float, ptr %p, i64 4",
        f"  %x1.high = load <4 x float>, ptr %x1.high.at, {STEADY}",
        "  %x1 = shufflevector <4 x float> %x1.low, <4 x float> %x1.high, <4 x i32> <i32 1, i32 2, i32 3, i32 4>",
    ]


def test_nothing_is_loaded_that_was_not() -> None:
    assert shuffled(loads(0, 1, 2, 3)) == []  # no second one
    assert shuffled(loads(0, 4, 5)) == []  # none behind it
    assert shuffled([*loads(0), "other:", *loads(4, 1)]) == []  # in another piece of code


def test_every_second_place_is_made_of_others_and_the_rest_are_loaded() -> None:
    places = [at + shift for shift in range(4) for at in (0, 4, 8)]
    assert shuffled(loads(*places)) == ["%x1", "%x5", "%x3", "%x7"]


def test_what_may_be_stored_to_meanwhile_is_loaded() -> None:
    assert shuffled(loads(0, 4, 1, how="align 4")) == []


def test_vectors_that_others_are_made_of_have_registers_beside_the_sums() -> None:
    sums = [f"  %s{n} = load <4 x float>, ptr %acc{n}, align 4" for n in range(8)]
    assert shuffled([*sums, *loads(0, 4, 1)], 13) == ["%x1"]
    assert shuffled([*sums, *loads(0, 4, 1)], 12) == []


def test_pointers_behind_pointers_are_told_by_where_they_lead() -> None:
    behind = ["  %q = getelementptr float, ptr %p, i64 -4", "  %y.p = getelementptr float, ptr %q, i64 8"]
    second = [*behind, f"  %y = load <4 x float>, ptr %y.p, {STEADY}"]
    assert shuffled([*loads(0, 1), *second]) == ["%x1"]
    assert shuffled([*loads(0, 1), *(line.replace("float, ptr", "double, ptr") for line in second)]) == []


@pytest.mark.parametrize(
    "text", ["y[i] += x[i+k] * w[k]", "y[i+k] += x[i] * w[k]", "y[i] = x[i] + x[i+1] * x[i+2] for i in 0:3999"]
)
def test_filters_and_stencils_shuffle_where_vectors_pass_in_halves(text: str) -> None:
    types = {"x": pk.f32[4001], "w": pk.f32[64]}
    given_types = {name: types[name] for name in types if f"{name}[" in text}
    for halves in (True, False):
        machine = replace(HALVES, double_pumped=halves, vector_registers=32)
        ir = str(pk.op(text).compile(**given_types, target=machine, threads=1).source("llvm"))
        assert (".low = load" in ir) == halves


@given(
    st.sampled_from(
        ["y[i] += x[i+k] * w[k]", "y[i+k] += x[i] * w[k]", "y[i] += x[2*i+k] * w[k]", "y[j,i] += x[j,i+k] * w[k]"]
    ),
    st.integers(1, 70),
    st.integers(0, 90),
    st.sampled_from(["f4", "f8", "i4"]),
    st.sampled_from([16, 32]),
)
@settings(max_examples=40, deadline=None)
def test_sums_over_windows_give_what_numpy_gives(text: str, taps: int, more: int, dtype: str, registers: int) -> None:
    shape = (3, taps + more) if "j" in text else (taps + more,)
    rng = np.random.default_rng(taps * 100 + more)
    x, w = (rng.integers(-5, 6, s).astype(dtype) for s in (shape, taps))
    kernel = pk.op(text).compile(x=x, w=w, target=replace(HALVES, vector_registers=registers), threads=1)
    rows = np.atleast_2d(x)
    if "i+k]" in text.split("+=")[0]:
        want = np.array([np.convolve(r, w) for r in rows])
    else:
        want = np.array([np.correlate(r, w, "valid") for r in rows])[:, :: 2 if "2*i" in text else 1]
    np.testing.assert_array_equal(np.atleast_2d(kernel(x=x, w=w)), want)
