"""The campaign of the edge between a user and the library: some seconds of each part, and that it sees what is wrong.

`python -m tests.edge --minutes 30 --jobs 2` runs longer.
"""

from __future__ import annotations

import os
import signal
import time
from random import Random
from typing import Any

import numpy as np
import pytest

from tests.edge import trial as trials
from tests.edge.campaign import Campaign
from tests.edge.interrupts import Signals, Stop, interrupted, judge
from tests.edge.memory import INPUT_LAYOUTS, OUTPUT_LAYOUTS, outside, overlaps_itself, placed, strides_of, view
from tests.edge.operators import FAMILIES, constant
from tests.edge.trial import PARTS, Part, Trial, Wrong, part

SECONDS = float(os.environ.get("POLYKER_EDGE_SECONDS", "0"))
KINDS = [
    ("wrong", "wrong"), ("raises", "unexpected exception"), ("crashes", "crash by SIGSEGV"), ("hangs", "hang"),
    ("exits", "exit status 5"),
]  # fmt: skip
LINUX = pytest.mark.skipif(not hasattr(os, "waitid"), reason="processes are looked at as on Linux")


@LINUX
@pytest.mark.parametrize("name", PARTS)
def test_some_trials_of_each_part_find_nothing(name: str) -> None:
    """Each kind has its turn; kinds that are drawn have some seconds."""
    said: list[str] = []
    campaign, turns = Campaign(0, (name,), say=said.append), part(name).turns
    if SECONDS or not turns:
        campaign.run(SECONDS or 2)
    else:
        campaign.run_trials(name, 0, turns)
    assert not campaign.failed, "\n".join((*said, campaign.table()))
    assert campaign.tallies[name].checks


@LINUX
@pytest.mark.parametrize(("name", "kind"), KINDS)
def test_each_kind_of_failure_is_seen_and_the_campaign_goes_on(name: str, kind: str, monkeypatch: Any) -> None:
    monkeypatch.setenv("POLYKER_EDGE_FAULT", name)
    said: list[str] = []
    campaign = Campaign(7, ("faults",), say=said.append)
    campaign.run_trials("faults", 0, 5)
    campaign.run_trials("faults", 3, 5)
    tally = campaign.tallies["faults"]
    assert [f.kind for f in tally.failures] == [kind]
    assert tally.failures[0].again == "python -m tests.edge --only faults --seed 7 --trials 0:3"
    assert campaign.failed and kind in campaign.table() and "FAILED faults, seed 7, trial 2" in said[0]
    assert (tally.trials, tally.notes["seconds"]) in ((5, [0.0, 1.0, 2.0, 3.0, 4.0]), (4, [0.0, 1.0, 3.0, 4.0]))


@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.name)
def test_families_know_their_results(family: Any) -> None:
    import polyker as pk

    random = Random(family.name)
    c, args = constant(random), family.arguments(random, 6)
    wanted = family.results(args, c)
    got = pk.op(family.program(c)).compile(*family.types(6), **dict(family.sizes))(*args, **dict(family.sizes))
    assert family.agrees(got, wanted)
    assert not family.agrees(tuple(w + 1 for w in wanted), wanted)


@pytest.mark.parametrize("way", ["process", "timer", "thread"])
def test_an_interrupt_of_plain_python_is_seen_at_once(way: str) -> None:
    def work() -> None:
        end = time.monotonic() + 10
        while time.monotonic() < end:
            pass

    outcome = interrupted(work, Signals(way, signal.SIGALRM, 0.02, Stop))
    assert type(outcome.caught) is Stop and outcome.caught in outcome.raised and not outcome.finished
    assert -0.005 < outcome.ended - outcome.sent[0] < 1
    assert judge({"latency of interrupts": [0.01] * 90 + [0.5] * 10}) and not judge({})


def test_a_lost_interrupt_is_seen() -> None:
    def work() -> None:
        end = time.monotonic() + 0.1
        while time.monotonic() < end:
            try:
                time.sleep(0.01)
            except Stop:
                pass

    outcome = interrupted(work, Signals("timer", signal.SIGALRM, 0.02, Stop))
    assert outcome.finished and outcome.raised and outcome.caught is None


@LINUX
def test_layouts_fill_their_memory_and_have_the_overlaps_that_they_say() -> None:
    random = Random(3)
    for _ in range(300):
        layout = random.choice(INPUT_LAYOUTS)
        shape = tuple(random.choice((0, 1, 2, 5)) for _ in range(random.randrange(4)))
        strides = strides_of(random, layout, shape, 8)
        arena, place = placed(shape, np.dtype("f8"), strides, shift=random.choice((0, 3)), at_end=random.random() < 0.5)
        array = view(arena, place, shape, np.dtype("f8"))
        if layout in OUTPUT_LAYOUTS:
            assert not overlaps_itself(array)
            assert outside(arena, [array]).sum() == arena.bytes.size - array.nbytes
        array[...] = 1
        assert (array == 1).all()


def test_the_checks_of_a_trial_are_counted() -> None:
    trial = Trial("threads", 1, 2)
    trial.check(True, "")
    with pytest.raises(Wrong, match="so"):
        trial.check(False, lambda: "so")
    assert trial.checks == 2
    assert trial.random.random() == Trial("threads", 1, 2).random.random()
    assert isinstance(trials.part("threads"), Part)
