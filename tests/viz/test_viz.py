"""Instances in the order in which they run, what they wait for, and their pictures."""

from __future__ import annotations

from itertools import product

import pytest

import polyker as pk
from polyker import viz
from polyker.errors import ScheduleError

SWEEP = "f(A: f64[N,N]) -> A:\n A[i,j] = A[i-1,j] + A[i-1,j+1]  for i in 1:N, j in 0:N-1"


def test_instances_come_in_the_order_of_the_schedule() -> None:
    s = pk.op("B[i,j] = A[j,i]").schedule(pk.f32[5, 6], auto=False)
    assert s.__class__ is pk.Schedule
    assert viz.instances(s, "B").loops == ("i", "j")
    wanted = list(product(range(6), range(5)))
    assert list(map(tuple, viz.instances(s, "B").points)) == wanted
    tiled = s.tile(i=4, j=2)
    wanted.sort(key=lambda p: (p[0] // 4, p[1] // 2, p[0] % 4, p[1] % 2))
    assert list(map(tuple, viz.instances(tiled, "B").points)) == wanted


def test_full_and_partial_tiles_take_their_turns() -> None:
    s = pk.op("C[i,j] += A[i,k] * B[k,j]").schedule(pk.f32[7, 3], pk.f32[3, 21])
    points = list(map(tuple, viz.instances(s, "C").points))
    assert len(set(points)) == len(points) == 7 * 3 * 21


def test_an_instance_waits_for_the_last_that_it_depends_on() -> None:
    s = pk.op(SWEEP).schedule(pk.f64[4, 4], auto=False)
    waits = {tuple(map(tuple, w)) for w in viz.instances(s, "A").waits}
    assert ((1, 1), (2, 1)) in waits
    assert ((1, 1), (2, 0)) in waits
    assert all(sink[0] == source[0] + 1 for source, sink in waits)
    skewed = s.skew(j="i").interchange("j", "i")
    order = list(map(tuple, viz.instances(skewed, "A").points))
    assert all(order.index(source) < order.index(sink) for source, sink in waits)


def test_terms_of_a_reduction_wait_for_none() -> None:
    s = pk.op("s[i] += A[i,k]").schedule(pk.f32[3, 4], auto=False)
    assert viz.instances(s, "s").waits.shape == (0, 2, 2)


@pytest.mark.parametrize(
    ("text", "shape"), [("s += A[i]", (5,)), ("B[i] = A[i]", (0,)), ("B[i,j,k] = A[k,j,i]", (2, 3, 4))]
)
def test_any_number_of_indices_is_drawn(text: str, shape: tuple[int, ...]) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    s = pk.op(text).schedule(pk.f32[shape], auto=False)
    name = text.split("[")[0].split()[0]
    for statement in (name, f"{name}.start") if "+=" in text else (name,):
        axes = viz.draw(s, statement)
        assert axes.get_title() == statement
        axes.figure.clear()


def test_pictures_have_arrows_for_dependences_and_axes_as_asked() -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    s = pk.op(SWEEP).schedule(pk.f64[5, 5], auto=False)
    axes = viz.draw(s, "A", x="i", y="j")
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("i", "j")
    assert len(axes.texts) == len(viz.instances(s, "A").waits)
    assert not viz.draw(s, "A", waits=False).texts
    with pytest.raises(ScheduleError) as caught:
        viz.draw(s, "A", x="k")
    assert caught.value.code == "PK521"


def test_what_cannot_be_listed_is_refused() -> None:
    s = pk.op("B[i,j] = A[i,j]").schedule(pk.f32["N", 4], auto=False)
    with pytest.raises(ScheduleError, match="symbols") as caught:
        viz.instances(s, "B")
    assert caught.value.code == "PK547"
    s = pk.op("B[i,j] = A[i,j]").schedule(pk.f32[1000, 1000], auto=False)
    with pytest.raises(ScheduleError, match="1000000 instances"):
        viz.instances(s, "B")
    with pytest.raises(ScheduleError) as caught:
        viz.instances(s, "C")
    assert caught.value.code == "PK540"
