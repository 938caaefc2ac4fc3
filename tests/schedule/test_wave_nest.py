"""Statements that depend on themselves along every loop: rows side by side keep every value."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polyker as pk
from polyker.schedule.legality.prove import prove
from polyker.schedule.tree.nodes import MemberKind, loops
from tests.schedule.support import Case, assert_same, case
from tests.schedule.test_time_tiling import TINY

SEIDEL = """
seidel(A: f64[N,M], steps) -> A:
    for t in 0:steps:
        A[i,j] = (A[i-1,j-1] + A[i-1,j+1] + A[i,j-1] + A[i,j] + A[i,j+1] + A[i+1,j-1]
                  + A[i+1,j+1]) / 7  for i in 1:N-1, j in 1:M-1
"""


@pytest.mark.parametrize("shape", [(3, 3), (4, 80), (9, 51), (15, 200), (40, 64)])
@pytest.mark.parametrize("steps", [1, 3])
def test_a_stencil_in_place_keeps_its_bits(shape: tuple[int, int], steps: int) -> None:
    start = np.random.default_rng(1).standard_normal(shape)
    wanted = start.copy()
    for _ in range(steps):
        for i in range(1, shape[0] - 1):
            for j in range(1, shape[1] - 1):
                up, here, down = wanted[i - 1], wanted[i], wanted[i + 1]
                total = up[j - 1] + up[j + 1] + here[j - 1] + here[j] + here[j + 1] + down[j - 1] + down[j + 1]
                wanted[i, j] = total / 7
    assert np.array_equal(pk.op(SEIDEL, steps=steps)(start), wanted)


@st.composite
def recurrences(draw: st.DrawFn) -> Case:
    """A statement in place whose elements depend on each other along rows and along columns."""
    far = draw(st.integers(1, 2))
    offsets = draw(st.lists(st.tuples(st.integers(-far, far), st.integers(-far, far)), max_size=3))
    offsets += [(0, -draw(st.integers(1, far))), (-draw(st.integers(1, far)), draw(st.integers(-far, far)))]
    outer = draw(st.booleans())
    head, first = ("b,", "b in 0:B, ") if outer else ("", "")
    terms = " + ".join(f"A[{head}i{a:+d},j{b:+d}]" for a, b in draw(st.permutations(offsets)))
    text = f"f(A: i64[{'B,' if outer else ''}N,M], T) -> A:\n    for t in 0:T:\n        A[{head}i,j] = {terms} - t  for {first}"
    text += f"i in {far}:N-{far}, j in {far}:M-{far}\n"
    shape = [*([2] if outer else []), draw(st.sampled_from([5, 8, 11, 17])), draw(st.sampled_from([37, 90]))]
    return case(text, A=f"i64{shape}".replace(" ", ""), T=draw(st.integers(1, 2)))


@given(recurrences(), st.booleans())
@settings(max_examples=6, deadline=None)
def test_rows_side_by_side_keep_the_values(found: Case, native: bool) -> None:
    scop, schedule = found.automatic(TINY)
    prove(scop, schedule)
    assert_same(found, scop, schedule, native=native)


def test_chains_run_side_by_side_a_few_elements_apart() -> None:
    scop, schedule = case(SEIDEL, A="f64[20,200]", steps=2).automatic(TINY)
    assert any("6 of i1 side by side, each 2 of i2 behind" in n for n in map(str, schedule.notes))
    assert any(m.kind is MemberKind.UNROLL and m.extent == 6 for m in loops(schedule.tree))
    prove(scop, schedule)


def test_rows_that_need_what_is_far_along_the_row_before_run_one_by_one() -> None:
    text = "f(A: f64[N,M]) -> A:\n    A[i,j] = A[i-1,M-1-j] + A[i,j-1]  for i in 1:N, j in 1:M"
    scop, schedule = case(text, A="f64[9,99]").automatic(TINY)
    prove(scop, schedule)
    assert not any("side by side" in n for n in map(str, schedule.notes))
