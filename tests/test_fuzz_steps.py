"""Random steps of users' schedules: a short campaign, and that it sees what is wrong."""

import os

import pytest

import polyker as pk
from polyker.edit import prove
from tests.fuzz.generate import generate
from tests.fuzz.steps import Campaign, run
from tests.gpu.support import needs_compiler

PROGRAMS = int(os.environ.get("POLYKER_STEP_PROGRAMS", "16"))


def test_random_steps_are_right_where_they_are_accepted_and_wrong_where_they_are_refused():
    campaign = Campaign(seed=7)
    campaign.run(PROGRAMS, 1, 1e9)
    assert campaign.programs == PROGRAMS
    assert not campaign.problems, campaign.report()
    assert len(campaign.legal) <= max(2, 0.05 * campaign.judged), campaign.report()
    assert campaign.counts["accepted"].total() > 3 * PROGRAMS
    assert campaign.confirmed > 2 * PROGRAMS


@needs_compiler
def test_random_schedules_of_a_gpu_are_right_where_they_are_accepted():
    campaign = Campaign(seed=7, target="cuda-sim")
    campaign.run(PROGRAMS // 3, 1, 1e9)
    assert campaign.programs == PROGRAMS // 3
    assert not campaign.problems, campaign.report()
    assert campaign.counts["accepted"]["map"] > 0 < campaign.counts["refused"]["map"]


def test_a_proof_that_lets_everything_pass_is_found_out(monkeypatch):
    monkeypatch.setattr(prove, "check", lambda state: None)
    found = [run(3, n) for n in range(12) if not generate(3, n).invalid]
    assert any(f is not None and "by enumeration" in f.problem for f in found)


def test_a_proof_that_refuses_too_much_is_found_out(monkeypatch):
    def refuse(state):
        raise pk.LegalityError("no")

    monkeypatch.setattr(prove, "check", refuse)
    assert any(found is not None and found.legal for found in (run(3, n) for n in range(4)))


@pytest.mark.parametrize("number", [0])
def test_a_program_has_the_same_steps_each_time(number):
    one, other = run(3, number), run(3, number)
    assert one == other
