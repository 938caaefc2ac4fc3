"""Recurrences share the loop over their steps with what starts them and with what reads them: few of the steps are kept."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polyker.codegen.llvm.jit.detect import target
from polyker.cost.measure import measure
from polyker.cost.own_distances import free_iterators
from polyker.machine.model import Cache
from polyker.rewrite.normalise.first_step import with_first_steps
from polyker.schedule.fusion.groups import Group
from polyker.schedule.fusion.items import Item
from polyker.schedule.legality.prove import prove
from polyker.structs import replace
from tests.schedule.support import SMALL, assert_same, case
from tests.schedule.test_fuse_programs import promotions

NEAR = replace(target(SMALL), caches=(Cache(1 << 12), Cache(1 << 14), Cache(1 << 16)))
TINY = replace(target(SMALL), caches=(Cache(1024), Cache(2048), Cache(4096)))
FILTER = "H[0,n] = X[0,n];  H[t,n] = X[t,n] * A[n] - H[t-1,n]  for t in 1:T;  "
SECOND = (
    "H[0,n] = X[0,n];  H[1,n] = X[1,n] - H[0,n];  "
    "H[t,n] = maximum(H[t-1,n], A[n]) - minimum(H[t-2,n], X[t,n])  for t in 2:T;  "
)
READERS = (
    "Y[t,n] = H[t,n] * A[n]",
    "Y[0,n] = H[0,n];  Y[t,n] = H[t,n] - H[t-1,n]  for t in 1:T",
    "Y[t,n] = H[t+2,n; pad=1]  for t in 0:T, n in 0:N",
    "Y[n] += H[t,n]",
    "Y[t] += H[t,n]",
    "Y[t,n] = H[T-1-t,n]",
    "G[0,n] = H[0,n];  G[t,n] = maximum(G[t-1,n], H[t,n])  for t in 1:T;  Y[t,n] = G[t,n] + H[t,n]",
    "Y[t,n] = max[m](H[t,m]) - H[t,n]",
)


@pytest.mark.parametrize(("start", "rows"), [(FILTER, 2), (SECOND, 3)])
def test_as_many_steps_are_kept_as_are_read(start: str, rows: int) -> None:
    found = case(start + READERS[0], X="f32[60,512]", A="f32[512]", T=60)
    scop, schedule = found.automatic(NEAR)
    prove(scop, schedule)
    assert_same(found, scop, schedule, native=True)
    assert any("run together" in n for n in map(str, schedule.notes))
    ((steps, width),) = (p.modulo for p in promotions(schedule) if scop.program.tensor(p.tensor).label == "H")
    assert rows <= steps <= rows + 1  # two steps may run together
    assert width == 512


@given(
    st.sampled_from([FILTER, SECOND]), st.sampled_from(READERS), st.sampled_from([2, 3, 5, 40]),
    st.sampled_from([1, 3, 16, 50]), st.sampled_from(["f32", "i32"]),
)  # fmt: skip
@settings(max_examples=6, deadline=None)
def test_recurrences_keep_their_values(start: str, reader: str, steps: int, width: int, dtype: str) -> None:
    text = (start + reader).replace("0:N", f"0:{width}").replace("T-1-t", f"{steps - 1}-t")
    found = case(text, X=f"{dtype}[{steps},{width}]", A=f"{dtype}[{width}]", T=steps)
    scop, schedule = found.automatic(TINY)
    prove(scop, schedule)
    assert_same(found, scop, schedule, native=True)


def test_a_step_that_needs_its_neighbours_of_the_step_before_keeps_its_values() -> None:
    text = "H[0,n] = X[0,n];  H[t,0] = X[t,0]  for t in 1:T;  H[t,n] = H[t-1,n-1] + X[t,n]  for t in 1:T, n in 1:512;  "
    text += "Y[t,n] = 2 * H[t,n]"
    found = case(text, X="f32[60,512]", T=60)
    for machine in (NEAR, TINY):
        scop, schedule = found.automatic(machine)
        prove(scop, schedule)
        assert_same(found, scop, schedule, native=True)


def test_starts_of_what_is_returned_or_does_not_go_on_are_left_alone() -> None:
    for text in (FILTER.rstrip("; "), "H[0,n] = X[0,n];  H[t,n] = X[t,n]  for t in 1:T;  Y[t,n] = H[t,n] * A[n]"):
        program = case(text, X="f32[9,8]", A="f32[8]", T=9).flat
        assert with_first_steps(program) == (program, ())


def test_loops_that_carry_are_shared_by_items_whose_loops_run_in_order_alone() -> None:
    program = case(FILTER + READERS[0], X="f32[9,8]", A="f32[8]", T=9).flat
    statement = next(s for s in program.statements() if s.reads_own)
    free, measured = lambda: free_iterators(program, statement), lambda: measure(program, statement, lambda _: None)
    serial, apart = (Item(statement, None, False, free, measured, in_order=o) for o in (True, False))
    steps, channels = statement.iterators
    assert (serial.loops, apart.loops) == ((steps, channels), (channels,))
    assert Group.of(serial).crossing == (frozenset({statement.target}), frozenset())
    assert Group.of(apart).dims == ((channels,),)
