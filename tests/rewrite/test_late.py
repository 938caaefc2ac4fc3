"""Late updates: time loops by blocks of steps, with what a block does not touch updated after it."""

from __future__ import annotations

import pytest

from polyker.codegen.llvm.jit.detect import target
from polyker.poly.scop import build_scop
from polyker.rewrite.time.delayed_updates import late_updates
from polyker.schedule.legality.prove import prove
from polyker.schedule.nests.text_order import default_schedule
from tests.schedule.support import SMALL, assert_same, case

pytestmark = pytest.mark.usefixtures("short_blocks")

HEAD = "f(A: f64[21,21]) -> A:\n    for k in 0:21:\n"
LATE = {
    "square": "        A[i,k] = A[i,k] % 3  for i in k+1:21\n"
    "        A[i,j] = A[i,j] - A[i,k] * A[k,j]  for i in k+1:21, j in k+1:21",
    "triangle": "        A[i,k] = A[i,k] % 3  for i in k+1:21\n"
    "        A[i,j] = A[i,j] - A[i,k] * A[j,k]  for i in k+1:21, j in k+1:i+1",
    "least": "        A[i,j] = minimum(A[i,j], A[i,k] + A[k,j])  for i in k+1:21, j in k+1:21",
    "some of the rows": "        A[i,j] = A[i,k] * A[k,j] % 2 + A[i,j]  for i in k+1:16, j in k+1:21",
}
NOT_LATE = {
    "every element is read by the next step": "        A[i,j] = A[i,j] - A[i-1,j]  for i in k+1:21, j in k+1:21",
    "a term hangs on what the element holds": "        A[i,k] = A[i,k] % 3  for i in k+1:21\n"
    "        A[i,j] = A[i,j] - A[i,k] * A[i,j]  for i in k+1:21, j in k+1:21",
    "paths: what is read changes in the block": "        A[i,j] = minimum(A[i,j], A[i,k] + A[k,j])",
    "another statement reads all but a border": "        A[i,j] = A[i,j] - k  for i in 0:20, j in 0:21\n"
    "        A[20,k] = sum[i in 0:20, j in 0:20](A[i,j])",
    "another statement reads all": "        A[i,j] = A[i,j] - A[i,k] * A[k,j] % 2  for i in k+1:21, j in k+1:21\n"
    "        A[k,k] = A[k,k] + sum[i in k+1:21, j in k+1:21](A[i,j])",
}


@pytest.mark.parametrize("name", LATE)
def test_a_loop_by_blocks_gives_what_the_text_says(name: str) -> None:
    found = case(HEAD + LATE[name], A="f64[21,21]")
    changed = late_updates(found.flat)
    assert [s for s in changed.statements() if s.in_order]
    scop, plain = build_scop(changed), default_schedule(changed)
    prove(scop, plain)
    assert_same(found, scop, plain)


@pytest.mark.parametrize("name", LATE)
def test_its_automatic_schedule_is_legal_and_right(name: str) -> None:
    found = case(HEAD + LATE[name], A="f64[21,21]")
    scop, schedule = found.automatic(target(SMALL))
    assert any("done after it, together" in note for note in map(str, schedule.notes))
    prove(scop, schedule)
    for native in (False, True):
        assert_same(found, scop, schedule, native=native)


@pytest.mark.parametrize("name", NOT_LATE)
def test_what_a_block_touches_is_not_late(name: str) -> None:
    found = case(HEAD + NOT_LATE[name], A="f64[21,21]")
    assert late_updates(found.flat) is found.flat


def test_a_loop_of_late_updates_alone_has_no_steps() -> None:
    text = (
        "f(A: f64[17,17], L: f64[17,17]) -> A:\n    for k in 0:17:\n"
        "        A[i,j] = A[i,j] - A[k,i] * L[i,k] % 3  for i in 0:k, j in k:17"
    )
    found = case(text, A="f64[17,17]", L="f64[17,17]")
    scop, schedule = found.automatic(target(SMALL))
    prove(scop, schedule)
    assert_same(found, scop, schedule, native=True)


def test_each_element_takes_its_terms_in_order() -> None:
    """No partial sums of their own, and no vector along the steps: the rounding is the text's."""
    found = case(HEAD + LATE["square"], A="f64[21,21]")
    (update,) = (s for s in late_updates(found.flat).statements() if s.in_order)
    scop, _ = found.automatic(target(SMALL))
    starts = [s for s in scop.program.statements() if s.target.startswith("t") and s.outer == 1 and s.op == "set"]
    reads = {r.tensor for s in starts for r in s.reads()}
    assert update.target in reads  # accumulators go on from what the element holds
    assert not any(s.op == "add" and s.target == update.target for s in scop.program.statements())
