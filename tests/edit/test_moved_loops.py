"""Loops that were shifted, skewed or reversed have names of their own, and legality errors say what leads on."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import numpy as np
import pytest

import polyker as pk
from polyker.edit.names import ShownNames
from polyker.ir.expr import IndexExpr
from polyker.ir.quasi_affine import scale
from polyker.schedule.tree.nodes import Member

SWEEP = pk.op("f(A: f64[N,N]) -> A:\n A[i,j] = A[i-1,j] + A[i-1,j+1]  for i in 1:N, j in 0:N-1")
HEAT = pk.op("""heat(A: f64[N], steps) -> A:
    for t in 0:steps:
        B[i] = A[i-1] + A[i] + A[i+1] for i in 1:N-1
        A[i] = B[i] for i in 1:N-1""")
Step = Callable[[pk.Schedule], pk.Schedule]


def sweep() -> pk.Schedule:
    return SWEEP.schedule(pk.f64[20, 20], auto=False)


def heat() -> pk.Schedule:
    s = HEAT.schedule(pk.f64[40], steps=20, auto=False)
    return s["A"].shift(i=1).fuse("B", "A").skew(2, i="t").tile({"t": 4, "i'": 8})


@pytest.mark.parametrize(
    ("step", "names"),
    [
        (lambda s: s.skew(j="i"), ("i", "j'")),
        (lambda s: s.shift(i=3), ("i'", "j")),
        (lambda s: s.reverse("j"), ("i", "j'")),
        (lambda s: s.shift(i=3).shift(i=-3), ("i", "j")),
        (lambda s: s.skew(j="i").tile({"i": 4, "j'": 4}), ("i.tile", "j'.tile", "i.point", "j'.point")),
        (lambda s: s.split(j=4).skew({"j.tile": "i"}), ("i", "j.tile'", "j.point")),
        (lambda s: s.skew(j="i").split(j=4).skew({"j.tile": "i"}), ("i", "j'.tile'", "j'.point")),
        (lambda s: s.skew({"j": "i"}).split({"j'": 8}).split({"j'.point": 4}),
         ("i", "j'.tile", "j'.point.tile", "j'.point.point")),
    ],
)  # fmt: skip
def test_steps_take_the_names_that_are_printed(step: Step, names: tuple[str, ...]) -> None:
    s = step(sweep())
    assert s["A"].loops == names
    printed = re.findall(r"^ *for (\S+)", str(s), re.MULTILINE)
    assert tuple(printed) == names
    assert not re.search(r"for (\S+) = (?!.*(//|%)).*\b\1(?!')", str(s))  # no `j = j + i`
    for name in names:
        assert s.unroll({name: 2}) != s
        assert s["A"].tile({name: 2}) != s


def test_old_names_and_texts_go_on_working() -> None:
    s = sweep().skew(j="i")
    said = json.loads(s.to_json())
    said["steps"].append({"step": "interchange", "order": ["j", "i"]})
    old = pk.Schedule.from_json(said, SWEEP)
    new = s.interchange("j'", "i")
    assert str(old) == str(new)
    assert pk.Schedule.from_json(new.to_json(), SWEEP) == new
    array = np.arange(400.0).reshape(20, 20) % 7
    np.testing.assert_array_equal(SWEEP.compile(schedule=new)(array), SWEEP(array))


def test_a_new_name_is_no_other_index() -> None:
    member = Member((("S0", scale(-1, IndexExpr("i0"))),), "i0")
    assert ShownNames({"S0": "B"}, {"S0": "B"}, {"i0": "i", "i1": "j"}).shown(member) == "i'"
    assert ShownNames({"S0": "B"}, {"S0": "B"}, {"i0": "i", "i1": "i'"}).shown(member) == "i''"


@pytest.mark.parametrize(
    ("start", "step", "hint"),
    [
        (heat, lambda s: s.parallel("i'.tile", threads=3),
         """s.skew({"t.tile": "i'.tile"}, factor=1).parallel("i'.tile", threads=3)"""),
        (heat, lambda s: s.parallel("t.tile", threads=3),
         """s.skew({"i'.tile": "t.tile"}, factor=1).interchange("i'.tile'", "t.tile").parallel("t.tile", threads=3)"""),
        (heat, lambda s: s.parallel("i'.tile", threads=1), """s.skew({"t.tile": "i'.tile"}, factor=1).parallel("i'.tile")"""),
        (sweep, lambda s: s.interchange("j", "i"), """s.skew(j="i", factor=1).interchange("j'", "i")"""),
        (sweep, lambda s: s.tile(i=8, j=8), """s.skew(j="i", factor=1).tile({"i": 8, "j'": 8})"""),
        (lambda: pk.op("T[i,j] = A[i,j] * 2; O[i,j] = T[j,i] + 1").schedule(pk.f32[8, 8], auto=False),
         lambda s: s.fuse("T", "O", depth=2), 's["O"].interchange("j", "i").fuse("T", "O", depth=2)'),
        (lambda: HEAT.schedule(pk.f64[40], steps=20, auto=False),
         lambda s: s.fuse("B", "A"), 's["A"].shift(i=1).fuse("B", "A", depth=1)'),
    ],
)  # fmt: skip
def test_a_legality_error_says_what_leads_on(start: Callable[[], pk.Schedule], step: Step, hint: str) -> None:
    s = start()
    with pytest.raises(pk.LegalityError) as caught:
        step(s)
    assert caught.value.hint == f"legal instead: {hint}"
    assert str(eval(hint, {"s": s})) != str(s)


def test_a_wavefront_of_tiles_gives_the_same_values() -> None:
    s = heat().skew({"i'.tile": "t.tile"}).interchange("i'.tile'", "t.tile").parallel("t.tile", threads=2)
    array = np.arange(40.0) % 5
    np.testing.assert_array_equal(HEAT.compile(schedule=s)(array, steps=20), HEAT(array, steps=20))


@pytest.mark.parametrize("step", [lambda s: s.parallel("i", threads=2), lambda s: s.vectorise(i=4)])
def test_no_hint_names_a_step_that_does_nothing(step: Step) -> None:
    text = "f(A: f64[N,1]) -> A:\n A[i,j] = A[i-1,j]  for i in 1:N"
    s = pk.op(text).schedule(pk.f64[20, 1], auto=False)
    with pytest.raises(pk.LegalityError) as caught:
        step(s)
    assert "legal instead" not in str(caught.value)
