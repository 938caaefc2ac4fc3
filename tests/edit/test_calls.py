"""Steps are called in one form, and a call in another form is refused in words."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

import polyker as pk
from polyker.edit.calls import OTHER_NAMES
from polyker.edit.forms import FORMS

TYPES = pk.f32[8, 8], pk.f32[8, 8]
MM = pk.op("C[i,j] += A[i,k] * B[k,j]")
S = MM.schedule(*TYPES, auto=False)
Step = Callable[[Any], Any]


@pytest.mark.parametrize(
    "ways",
    [
        (lambda s: s.tile(i=2, j=4), lambda s: s.tile({"i": 2, "j": 4}), lambda s: s.tile({"i": 2}, j=4)),
        (lambda s: s.split(k=2), lambda s: s.split({"k": 2})),
        (lambda s: s.shift(i=1), lambda s: s.shift({"i": 1})),
        (lambda s: s.unroll(k=2), lambda s: s.unroll({"k": 2})),
        (lambda s: s.vectorise(j=4), lambda s: s.vectorize(j=4), lambda s: s.vectorise({"j": 4})),
        (lambda s: s.skew(j="i"), lambda s: s.skew({"j": "i"}), lambda s: s.skew(j="i", factor=1)),
        (lambda s: s.skew(j="i", k="i", factor=2), lambda s: s.skew({"j": "i"}, factor=2).loops_of.skew(k="i", factor=2)),
        (lambda s: s.parallel("i", threads=2), lambda s: s.parallel(i=2), lambda s: s.parallel({"i": 2})),
        (lambda s: s.interchange("j", "i"), lambda s: s.interchange(["j", "i"])),
        (lambda s: s.reverse("i", "j"), lambda s: s.reverse("i").loops_of.reverse("j")),
    ],
)  # fmt: skip
def test_the_forms_of_a_step_are_one_step(ways: tuple[Step, ...]) -> None:
    class Chained:
        """A statement's steps, whose results go on with the same statement's."""

        def __init__(self, schedule: pk.Schedule) -> None:
            self.schedule = schedule

        def __getattr__(self, name: str) -> Any:
            if name == "loops_of":
                return self
            return lambda *args, **named: Chained(getattr(self.schedule["C"], name)(*args, **named))

    first, *others = (way(Chained(S)).schedule for way in ways)
    assert first != S
    for other in others:
        assert other == first
    # A step prints as a call that makes it.
    again = S
    for step in first.steps:
        again = eval(str(step), {"s": again})
    assert again == first


def test_a_gpu_step_prints_as_the_call_that_makes_it() -> None:
    s = pk.op("B[i] = A[i]").schedule(pk.f32[64], target="cuda-sim", auto=False).tile(i=32)
    mapped = s.map({"i.tile": "block.x", "i.point": "thread.x"})
    again = s
    for step in mapped.steps[1:]:
        again = eval(str(step), {"s": again})
    assert again == mapped


def test_a_statement_fuses_with_another() -> None:
    s = pk.op("T[i] = A[i] * 2; O[i] = T[i] + 1").schedule(pk.f32[8], auto=False)
    assert s["T"].fuse("O") == s.fuse("T", "O", depth=1)


@pytest.mark.parametrize(("other", "meant"), [(o, step) for step, others in OTHER_NAMES.items() for o in others])
def test_other_systems_names_lead_to_the_step(other: str, meant: str) -> None:
    for owner in (S, S["C"]):
        with pytest.raises(pk.StepNameError, match=f"did you mean `{meant}`") as caught:
            getattr(owner, other)("i")
        assert f"s.{meant}(" in str(caught.value)


def test_an_unknown_step_is_named_and_no_attribute() -> None:
    with pytest.raises(pk.ScheduleError, match="did you mean `tile`"):
        S.tyle(i=2)
    with pytest.raises(pk.ScheduleError, match="the steps are tile, split"):
        S.frobnicate()
    with pytest.raises(pk.ScheduleError, match="did you mean `fuse` and `promote`"):
        S["C"].compute_at("C", "i")
    assert not hasattr(S, "shape") and not hasattr(S["C"], "__array__")
    said = json.loads(S.to_json())
    said["steps"] = [{"step": "reorder", "order": ["j", "i"]}]
    with pytest.raises(pk.ScheduleError, match="did you mean `interchange`"):
        pk.Schedule.from_json(said, MM)


@pytest.mark.parametrize(
    ("name", "call"),
    [
        *((step, lambda f: f()) for step in FORMS),
        *((step, lambda f: f(object())) for step in FORMS),
        *((step, lambda f: f("i", "j", 3, 4, 5, 6, 7, 8)) for step in FORMS),
        *((step, lambda f: f(i=[2])) for step in FORMS),
        *((step, lambda f: f({1: 2})) for step in FORMS),
        ("tile", lambda f: f("i")),
        ("tile", lambda f: f({"i": 2}, i=4)),
        ("interchange", lambda f: f(i=2)),
        ("parallel", lambda f: f("i", thread=2)),
        ("skew", lambda f: f("j", "i")),
        ("map", lambda f: f("i")),
        ("promote", lambda f: f("A", where="i")),
        ("fuse", lambda f: f("C")),
    ],
)
def test_a_call_in_another_form_shows_how_the_step_is_written(name: str, call: Callable[[Any], object]) -> None:
    with pytest.raises(pk.ScheduleError) as caught:
        call(getattr(S, name))
    assert caught.value.code == "PK543"
    assert f"the step is written s.{name}(" in str(caught.value)
