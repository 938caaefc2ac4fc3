"""What is compiled where the automatic schedule fails: each plainer one once, and all of them right."""

from __future__ import annotations

import numpy as np
import pytest

import polyker as pk
from polyker.codegen.llvm.jit.detect import target
from polyker.codegen.lowering.lower import Lowered, lower
from polyker.errors import failure
from polyker.ir.layout import DENSE
from polyker.pipeline import threads as lowering
from polyker.poly.scop import Scop, build_scop
from polyker.schedule.legality.prove import BROKEN, prove
from polyker.schedule.tree.nodes import MemberKind, ScheduleTree, loops
from tests.artifacts import generated
from tests.passes import auto_schedule
from tests.schedule.programs import PROGRAMS
from tests.schedule.support import SMALL, assert_same


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_plain_schedule_has_serial_loops_alone(name: str) -> None:
    found = PROGRAMS[name]
    program, schedule = auto_schedule(found.flat, target(SMALL), lambda _: DENSE, plain=True)
    scop = build_scop(program)
    prove(scop, schedule)
    assert {m.kind for m in loops(schedule.tree)} <= {MemberKind.SERIAL}
    assert_same(found, scop, schedule)


@pytest.mark.parametrize("text", ["O[i] = X[i] + 1", "s += X[i]", "T[i] = X[i] * 2;  O[j] += T[j] * X[i]"])
def test_a_schedule_that_fails_is_not_tried_again(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []

    def refuse(scop: Scop, schedule: ScheduleTree) -> None:
        tried.append(str(schedule.tree))
        if len(tried) == 1:
            raise failure(BROKEN, kind="flow", tensor="T", source="S0", sink="S1", element="T[0]")
        prove(scop, schedule)

    monkeypatch.setattr(lowering, "prove", refuse)
    X = np.arange(9, dtype="f4")
    kernel = pk.op(text).compile(X)
    assert len(tried) == len(set(tried)) > 1
    assert "plainer" in generated(kernel, "schedule")
    wanted = {"O[i] =": X + 1, "s += X": X.sum(), "T[i] =": X * 2 * X.sum()}[text[:6]]
    assert np.array_equal(kernel(X), wanted)


def lowered_on_threads(text: str, n: int, monkeypatch: pytest.MonkeyPatch, *, refused: bool = False) -> list[bool]:
    """Compile for two threads, and return for each schedule that was lowered whether some of its loops run on threads."""
    found: list[bool] = []

    def lowered(scop: Scop, schedule: ScheduleTree, *rest: object) -> Lowered:
        found.append(any(m.kind is MemberKind.PARALLEL for m in loops(schedule.tree)))
        if refused and found[-1]:
            raise failure(BROKEN, kind="flow", tensor="T", source="S0", sink="S1", element="T[0]")
        return lower(scop, schedule, *rest)

    monkeypatch.setattr(lowering, "lower", lowered)
    pk.clear_cache()
    made = pk.op(text).compile(A=pk.f32[n, n], B=pk.f32[n, n], threads=2)
    a = np.arange(n * n, dtype="f4").reshape(n, n) % 5
    assert np.array_equal(made(a, a), a @ a)
    return found


PRODUCT = "C[i,j] += A[i,k] * B[k,j]"


def test_a_kernel_for_threads_is_lowered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert lowered_on_threads(PRODUCT, 200, monkeypatch) == [True]


def test_a_kernel_that_is_too_short_for_threads_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not lowered_on_threads(PRODUCT, 8, monkeypatch)[-1]


def test_what_fails_on_threads_runs_on_one_by_the_same_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    assert lowered_on_threads(PRODUCT, 200, monkeypatch, refused=True) == [True, False]
