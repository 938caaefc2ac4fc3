"""The door to isl: one context a thread, cached texts, printed sets read back."""

from __future__ import annotations

import threading

import islpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyker.errors import CompileError, ShapeError
from polyker.errors.shapes import NO_RANGE
from polyker.poly import isl


def test_texts_are_read_once():
    text = "[n0] -> { S0[i0] : 0 <= i0 < n0 }"
    assert isl.read_set(text) is isl.read_set(text)
    assert isl.read_map("{ [i] -> [i] }").is_equal(isl.read_map("{ [i] -> [i] }"))


def test_the_cache_is_bounded():
    first = isl.read_set("{ [i] : i = -1 }")
    for n in range(2000):
        isl.read_set(f"{{ [i] : i = {n} }}")
    assert isl.read_set("{ [i] : i = -1 }") is not first


def test_each_thread_has_its_own_context():
    text = "{ [i] : 0 <= i < 7 }"
    mine, found = isl.read_set(text), []

    def other() -> None:
        with isl.isl_job("elsewhere"):
            found.append((isl.context(), isl.read_set(text).dim_max_val(0).to_python()))

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert found[0][1] == mine.dim_max_val(0).to_python() == 6
    assert found[0][0] is not isl.context()


def test_a_nul_is_refused():
    with pytest.raises(CompileError, match="NUL"):
        isl.read_set("{ [i] : i = 0 }\0 and more")


def test_our_own_errors_pass_through():
    with pytest.raises(ShapeError), isl.isl_job("anything"):
        from polyker.errors import failure

        raise failure(NO_RANGE, index="i", why="so")


def test_an_inner_job_keeps_the_outer_quota():
    with isl.isl_job("outer", quota=10**6):
        with isl.isl_job("inner", quota=1):
            isl.read_set("{ [i, j] : 0 <= i < j < 9 }").coalesce()
        assert isl.context().get_max_operations() == 10**6
    assert isl.context().get_max_operations() == 0


def test_a_failure_within_the_quota_is_not_called_one_of_the_quota():
    with pytest.raises(CompileError, match="stage `here` failed"), isl.isl_job("here", quota=10**6):
        isl.read_set("{ [i] : i * j < 3 }")
    with pytest.raises(CompileError, match="quota of 3"), isl.isl_job("here", quota=3):
        isl.read_set("{ [i, j] : 0 <= i < j < 19 }")


@given(st.sets(st.integers(-5, 9), max_size=6), st.booleans())
def test_constraints_of_a_set_read_back(values, parametric):
    some = " or ".join(f"i0 = {v}" for v in sorted(values)) or "1 = 0"
    head = "[n0] -> " if parametric else ""
    extra = " or (n0 > 3 and i0 mod 2 = n0 mod 2 and 0 <= i0 < n0)" if parametric else ""
    points = islpy.Set(f"{head}{{ [i0] : {some}{extra} }}").coalesce()
    text = isl.constraints_of(points)
    again = islpy.Set(f"{head}{{ [i0] : {text or '1 = 1'} }}")
    assert again.is_equal(points), text


def test_constraints_of_parameter_sets_read_back():
    for text in (
        "[n0] -> { : n0 > 3 or n0 = 1 }",
        "[n0] -> { : }",
        "[n0] -> { : 1 = 0 }",
        "[n0] -> { : n0 mod 2 = 0 }",
    ):
        found = isl.constraints_of(islpy.Set(text))
        assert islpy.Set(f"[n0] -> {{ : {found or '1 = 1'} }}").is_equal(islpy.Set(text))
