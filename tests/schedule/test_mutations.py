"""Random wrong schedules are refused, right ones accepted; what is accepted computes what the program says.

`POLYKER_MUTATIONS` sets how many legal and illegal schedules are tried (150, a thousand by `python -m tests.schedule.mutations`).
"""

from __future__ import annotations

import os

import numpy as np
import pytest

from polyker.schedule.tree.nodes import Scope
from tests.schedule.mutations import Tally, campaign, nodes, symbolic_campaign
from tests.schedule.support import assert_same


@pytest.fixture(scope="module")
def tally() -> Tally:
    return campaign(int(os.environ.get("POLYKER_MUTATIONS", "150")), seed=20, keep=40)


def test_no_illegal_schedule_is_accepted(tally: Tally) -> None:
    assert tally.illegal >= 100
    assert tally.structural >= 20
    assert tally.false_accepts == 0, tally.bad[0]


def test_a_broken_dependence_is_named_with_its_tensor_and_two_instances(tally: Tally) -> None:
    assert tally.unexplained == 0, tally.bad[0]


def test_nearly_all_legal_schedules_are_accepted(tally: Tally) -> None:
    assert tally.legal >= 100
    assert tally.false_refusals * 20 <= tally.legal, tally.bad[0]


def test_every_sort_of_fault_comes_up(tally: Tally) -> None:
    assert set(tally.by_reason) >= {
        "order", "lanes", "threads", "flow", "place", "instances", "extent", "nested", "structure",
    }  # fmt: skip


def test_accepted_schedules_compute_what_the_program_says(tally: Tally) -> None:
    ran = 0
    for case, scop, schedule in tally.accepted:
        promoted = {p.tensor for scope in nodes(schedule.tree, Scope) for p in scope.promotions}  # type: ignore[union-attr]
        # A temporary of a rewrite has no shape of its own before it is promoted.
        kept = [t for t in scop.program.tensors if t.name not in promoted]
        if all(np.prod([int(e.value.real) for e in t.shape], dtype=float) < 1e5 for t in kept):
            assert_same(case, scop, schedule)
            ran += 1
    assert ran >= 20


def test_no_schedule_that_is_illegal_at_some_size_is_accepted_for_all_sizes() -> None:
    tally = symbolic_campaign(12, seed=21)
    assert tally.illegal >= 12
    assert tally.false_accepts == 0, tally.bad[0]
