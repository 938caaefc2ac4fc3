"""Loops that run from one constant to another are written without isl: what they run, and where isl has to be asked."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from polyker.ir.dtypes import i64
from polyker.ir.expr import Expr, IndexExpr
from polyker.ir.quasi_affine import add, floordiv, lit, mod, subtract
from polyker.ir.typed import TypedStatement
from polyker.poly.isl import read_set, set_text
from polyker.schedule.tree.fixed_loops import FixedLoops, fixed_loops
from polyker.schedule.tree.nodes import Member
from tests.poly.test_affine import value_of

ROW, COLUMN = IndexExpr("i0", i64), IndexExpr("i1", i64)


def statement(domain: str) -> TypedStatement:
    return TypedStatement("S0", ("i0", "i1"), 0, domain, "t0", (), "set", lit(0), i64)


def members(*times: Expr) -> tuple[Member, ...]:
    return tuple(Member((("S0", time),), f"loop{n}") for n, time in enumerate(times))


def found(box: str, around: tuple[Expr, ...], *inside: Expr) -> FixedLoops | None:
    text = f"{{ S0[i0, i1] : {box} }}"
    return fixed_loops(statement(text), read_set(text), around, members(*inside))


def run(nest: FixedLoops) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Return (times, iterators) of each instance, in order, for all times around at which the nest runs."""
    around = tuple(f"t{n}" for n in range(nest.depth))
    points = read_set(set_text((), around, list(nest.domain)))
    outside: list[tuple[int, ...]] = []
    points.foreach_point(
        lambda p: outside.append(
            tuple(p.get_coordinate_val(3, n).get_num_si() for n in range(nest.depth)) if nest.depth else ()
        )
    )
    done = []
    for first in sorted(outside):
        for rest in itertools.product(*(range(low, high + 1) for _, low, high in nest.loops)):
            times = (*first, *rest)
            done.append((times, tuple(c + sum(f * times[place] for place, f in parts) for c, parts in nest.iterators)))
    return done


@st.composite
def digits(draw: st.DrawFn, index: IndexExpr) -> list[Expr]:
    """Return the digits of an index, perhaps of one moved, in a random radix."""
    origin = draw(st.integers(-3, 3))
    place, unit, times = add(index, lit(origin)), 1, []
    for base in draw(st.lists(st.integers(2, 4), max_size=2)):
        ways = mod(floordiv(place, unit), base), floordiv(mod(place, unit * base), unit)
        times.append(draw(st.sampled_from(ways)))
        unit *= base
    times.append(floordiv(place, unit))
    shift = draw(st.integers(-2, 2))
    return [add(t, lit(shift)) for t in times]


@given(st.data())
@settings(max_examples=90)
def test_the_loops_run_each_instance_once_at_its_times(data: st.DataObject) -> None:
    times = data.draw(digits(ROW)) + data.draw(digits(COLUMN))
    times = data.draw(st.permutations(times))
    cut = data.draw(st.integers(0, len(times)))
    (a, b), (c, d) = (sorted(data.draw(st.tuples(*[st.integers(-9, 20)] * 2))) for _ in "ij")
    nest = found(f"{a} <= i0 <= {b} and {c} <= i1 <= {d}", tuple(times[:cut]), *times[cut:])
    if nest is None:
        return
    box = [(i, j) for i in range(a, b + 1) for j in range(c, d + 1)]
    expected = [(tuple(value_of(t, {"i0": i, "i1": j}) for t in times), (i, j)) for i, j in box]
    assert run(nest) == sorted(expected)


def test_whole_tiles_and_what_lies_in_one_tile_are_found() -> None:
    tile, inside = floordiv(ROW, 14), (mod(ROW, 14), floordiv(mod(COLUMN, 32), 16), mod(COLUMN, 16))
    whole = found("0 <= i0 <= 251 and 0 <= i1 <= 255", (tile, floordiv(COLUMN, 32)), *inside)
    assert whole is not None
    assert [loop[1:] for loop in whole.loops] == [(0, 13), (0, 1), (0, 15)]
    rest = found("252 <= i0 <= 256 and 0 <= i1 <= 255", (tile, floordiv(COLUMN, 32)), *inside)
    assert rest is not None
    assert [loop[1:] for loop in rest.loops] == [(0, 4), (0, 1), (0, 15)]
    assert rest.domain == ("0 <= 1*(t1 - 0) <= 7", "t0 = 18")


def test_isl_is_asked_where_tiles_are_cut_and_where_loops_depend_on_each_other() -> None:
    tile = floordiv(ROW, 14), COLUMN
    assert found("0 <= i0 <= 252 and 0 <= i1 <= 9", tile, mod(ROW, 14)) is None
    assert found("0 <= i0 <= 251 and 0 <= i1 <= 9 and i0 + i1 >= 3", tile, mod(ROW, 14)) is None
    assert found("0 <= i0 <= 251 and 0 <= i1 <= 9", (floordiv(ROW, 14), add(ROW, COLUMN)), mod(ROW, 14)) is None
    assert found("0 <= i0 <= 251 and 0 <= i1 <= 9", (COLUMN,), floordiv(ROW, 14)) is None
    assert found("0 <= i0 <= 251 and 0 <= i1 <= 9", (COLUMN,), subtract(lit(0), ROW)) is None
    sizes = "[n0] -> { S0[i0, i1] : 0 <= i0 < n0 and 0 <= i1 <= 9 }"
    assert fixed_loops(statement(sizes), read_set(sizes), (ROW,), members(COLUMN)) is None
