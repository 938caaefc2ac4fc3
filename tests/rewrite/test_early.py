"""Early sums: time loops by blocks of steps, with what steps before a block wrote summed before it."""

from __future__ import annotations

import numpy as np
import pytest

import polyker as pk
from polyker.codegen.llvm.jit.detect import target
from polyker.poly.scop import build_scop
from polyker.rewrite.time.hoisted_sums import early_sums
from polyker.rewrite.time.make_time_loops import as_steps
from polyker.schedule.legality.prove import prove
from polyker.schedule.nests.text_order import default_schedule
from tests.schedule.support import SMALL, Case, assert_same, case

pytestmark = pytest.mark.usefixtures("short_blocks")

HEAD = "f(A: f64[21,21], L: f64[21,21]) -> A:\n    for t in 0:21:\n"
EARLY = {
    "a triangle's right-hand sides": "X[i,j] = (A[i,j] - sum[k in 0:i](L[i,k] * X[k,j])) % 7",
    "from the last row up": "X[20-i,j] = (A[20-i,j] + sum[k in 21-i:21](L[20-i,k] * X[k,j])) % 7 for i in 0:21",
    "a factor by columns": HEAD + "        A[i,t] = (A[i,t] - sum[k in 0:t](A[i,k] * A[t,k])) % 5  for i in t:21\n"
    "        A[i,t] = A[i,t] % 3 + L[i,t]  for i in t+1:21",
    "two factors": HEAD + "        A[t,i] = (A[t,i] - sum[k in 0:t](A[t,k] * A[k,i])) % 5  for i in t:21\n"
    "        A[i,t] = (A[i,t] - sum[k in 0:t](A[i,k] * A[k,t])) % 3 + L[i,t]  for i in t+1:21",
    "longest paths": "X[i,j] = maximum(A[i,j], max[k in 0:i](L[i,k] + X[k,j]))",
    "a sum of all steps but the last few": "X[i,j] = (A[i,j] + sum[k in 0:i-2](L[i,k] * X[k,j])) % 7",
    "rows to come, but for the columns that the block changes": HEAD
    + "        A[t,i] = (A[t,i] - sum[k in t+1:21](L[t,k] * A[k,i]) - A[20-t,i]) % 5\n        A[i,t] = A[i,t] % 3 + L[t,i]",
}
NOT_EARLY = {
    "what the step itself wrote before": HEAD + "        A[t,i] = A[t,i] % 3 + L[t,i]\n"
    "        A[i,t] = (A[i,t] - sum[k in 0:t](A[i,k] * A[t,k])) % 5  for i in t+1:21",
    "a temporary that is read before it starts again": "f(A: f64[21,21], L: f64[21,21]) -> X:\n"
    "    X: f64[21,21]\n    T: f64[21,21]\n    X[i,j] = 0\n    T[i,j] = A[i,j]\n    for t in 0:21:\n"
    "        X[t,j] = T[t,j] % 7\n        T[t,j] = 0\n        T[t,j] += L[t,k] * X[k,j]  for k in 0:t\n"
    "        X[t,j] = X[t,j] + T[t,j] % 3",
    "the step before": "X[0,j] = A[0,j]; X[t,j] = sum[i](X[t-1,i] * L[i,j]) % 7 for t in 1:21",
    "one vector": "X[i] = (A[i,0] - sum[k in 0:i](L[i,k] * X[k])) % 7",
    "what each step changes": HEAD + "        A[i,j] = A[i,j] + sum[k in 0:21](L[i,k] * A[k,t]) % 3",
}


def found(text: str) -> Case:
    return case(text, A="f64[21,21]", L="f64[21,21]")


@pytest.mark.parametrize("name", EARLY)
def test_a_loop_by_blocks_gives_what_the_text_says(name: str) -> None:
    bound = found(EARLY[name])
    stepped = as_steps(bound.flat)
    changed = early_sums(stepped)
    assert changed is not stepped
    scop, plain = build_scop(changed), default_schedule(changed)
    prove(scop, plain)
    assert_same(bound, scop, plain)


@pytest.mark.parametrize("name", EARLY)
def test_its_automatic_schedule_is_legal_and_right(name: str) -> None:
    bound = found(EARLY[name])
    scop, schedule = bound.automatic(target(SMALL))
    assert any("taken before it, together" in note for note in map(str, schedule.notes))
    prove(scop, schedule)
    for native in (False, True):
        assert_same(bound, scop, schedule, native=native)


@pytest.mark.parametrize("name", NOT_EARLY)
def test_sums_of_what_a_block_s_steps_write_are_not_early(name: str) -> None:
    stepped = as_steps(found(NOT_EARLY[name]).flat)
    assert early_sums(stepped) is stepped


def test_both_sums_of_a_step_are_early() -> None:
    changed = early_sums(as_steps(found(EARLY["two factors"]).flat))
    assert sum(bool(s.reduced) and s.outer == 1 for s in changed.statements()) == 2


@pytest.mark.parametrize("rows", [97, 130])
def test_a_triangle_is_solved_by_blocks(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    rng = np.random.default_rng(rows)
    L = np.tril(rng.standard_normal((rows, rows)) / rows) + np.eye(rows)
    B = rng.standard_normal((rows, 33))
    kernel = pk.op("X[i,j] = (B[i,j] - sum[k in 0:i](L[i,k] * X[k,j])) / L[i,i]").compile(B=B, L=L, threads=1)
    assert "taken before it, together" in kernel.source("schedule")
    np.testing.assert_allclose(L @ kernel(B=B, L=L), B, atol=1e-12)
