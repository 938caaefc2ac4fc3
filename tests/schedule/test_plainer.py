"""What is compiled where the automatic schedule fails: each plainer one once, and all of them right."""

from __future__ import annotations

import numpy as np
import pytest

import polyker as pk
from polyker import pipeline
from polyker.errors import failure
from polyker.ir.layout import DENSE
from polyker.poly.scop import Scop, build_scop
from polyker.schedule.auto import auto_schedule
from polyker.schedule.legality import BROKEN, prove
from polyker.schedule.tree import Kind, Schedule, loops
from polyker.target.detect import target
from tests.schedule.programs import PROGRAMS
from tests.schedule.support import SMALL, assert_same


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_plain_schedule_has_serial_loops_alone(name: str) -> None:
    found = PROGRAMS[name]
    program, schedule = auto_schedule(found.flat, target(SMALL), lambda _: DENSE, plain=True)
    scop = build_scop(program)
    prove(scop, schedule)
    assert {m.kind for m in loops(schedule.tree)} <= {Kind.SERIAL}
    assert_same(found, scop, schedule)


@pytest.mark.parametrize("text", ["O[i] = X[i] + 1", "s += X[i]", "T[i] = X[i] * 2;  O[j] += T[j] * X[i]"])
def test_a_schedule_that_fails_is_not_tried_again(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []

    def refuse(scop: Scop, schedule: Schedule) -> None:
        tried.append(str(schedule.tree))
        if len(tried) == 1:
            raise failure(BROKEN, kind="flow", tensor="T", source="S0", sink="S1", cell="T[0]")
        prove(scop, schedule)

    monkeypatch.setattr(pipeline, "prove", refuse)
    X = np.arange(9, dtype="f4")
    kernel = pk.op(text).compile(X)
    assert len(tried) == len(set(tried)) > 1
    assert "plainer" in kernel.source("schedule")
    wanted = {"O[i] =": X + 1, "s += X": X.sum(), "T[i] =": X * 2 * X.sum()}[text[:6]]
    assert np.array_equal(kernel(X), wanted)
