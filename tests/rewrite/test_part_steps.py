"""Steps in parts: what few elements of a step change is kept apart, so that the others do not wait for each other."""

from __future__ import annotations

import numpy as np
import pytest

import polyker as pk
from polyker.codegen.llvm.jit.detect import target
from polyker.cost.own_distances import free_iterators
from polyker.poly.scop import build_scop
from polyker.rewrite.time.split_steps import part_steps
from polyker.schedule.legality.prove import prove
from polyker.schedule.nests.text_order import default_schedule
from tests.schedule.support import SMALL, assert_same, case

STEPS = "f(D: f64[N,N]) -> D:\n    for k in 0:N:\n        "
PARTED = {
    "shortest paths": STEPS + "D[i,j] = minimum(D[i,j], D[i,k] + D[k,j])",
    "elimination of all rows": STEPS + "D[i,j] = D[i,j] - D[i,k] * D[k,j] / 64",
    "a row": STEPS + "D[i,j] = D[i,j] + D[k,j] / 2",
    "a column further on": "f(D: f64[N,N]) -> D:\n    for k in 0:N-1:\n        D[i,j] = D[i,j] + D[i,k+1] / 2",
    "a triangle": STEPS + "D[i,j] = minimum(D[i,j], D[i,k] + D[k,j])  for i in 0:N, j in 0:i+1",
}
WHOLE = {
    "each element waits for a neighbour": STEPS + "D[i,j] = D[i,j] + D[i-1,j]  for i in 1:N, j in 0:N",
    "no instance waits": STEPS + "D[i,j] = D[i,j] - D[i,k] * D[k,j]  for i in k+1:N, j in k+1:N",
    "an element is read before it is written on both sides": STEPS + "D[i,j] = D[j,i] + D[i,j]",
}


@pytest.mark.parametrize("name", PARTED)
def test_instances_of_a_part_do_not_wait_for_each_other(name: str) -> None:
    program = case(PARTED[name], D="f64[11,11]").flat
    parted = part_steps(program)
    assert len(list(parted.statements())) > len(list(program.statements()))
    assert all(free_iterators(parted, s) == s.iterators[1:] for s in parted.statements())


@pytest.mark.parametrize("name", PARTED)
def test_parts_give_what_the_text_says(name: str) -> None:
    found = case(PARTED[name], D="f64[11,11]")
    scop, plain = build_scop(part_steps(found.flat)), default_schedule(part_steps(found.flat))
    prove(scop, plain)
    assert_same(found, scop, plain)


@pytest.mark.parametrize("name", PARTED)
def test_their_automatic_schedule_is_legal_and_right(name: str) -> None:
    found = case(PARTED[name], D="f64[11,11]")
    scop, schedule = found.automatic(target(SMALL))
    prove(scop, schedule)
    assert_same(found, scop, schedule, native=True)


@pytest.mark.parametrize("name", WHOLE)
def test_other_steps_stay_whole(name: str) -> None:
    program = case(WHOLE[name], D="f64[11,11]").flat
    assert part_steps(program) is program


@pytest.mark.parametrize("symbolic", [False, True])
def test_paths_with_cycles_that_gain_keep_the_order_of_the_text(symbolic: bool) -> None:
    # Where D[k,k] < 0 row and column k change within their own step: the order shows in the result.
    d = np.random.default_rng(0).random((21, 21)) - 0.3
    want = d.copy()
    for k in range(21):
        for i in range(21):
            for j in range(21):
                want[i, j] = min(want[i, j], want[i, k] + want[k, j])
    kernel = pk.op(PARTED["shortest paths"]).compile(pk.f64["N", "N"] if symbolic else d, threads=1)
    np.testing.assert_array_equal(kernel(d), want)
    assert "domain is split" in kernel.source("schedule")
