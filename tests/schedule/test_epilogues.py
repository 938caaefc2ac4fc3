"""What reads each result of a reduction is computed where the result is stored."""

from __future__ import annotations

import pytest

from polyker.codegen.llvm.jit.detect import target
from polyker.machine.model import Cache, Target
from polyker.schedule.legality.prove import prove
from polyker.schedule.tree.nodes import ScheduleTree, statements_of
from polyker.structs import replace
from tests.schedule.support import SMALL, assert_same, case

WIDE = target("cpu:x86-64-v4")
TINY = replace(target(SMALL), caches=(Cache(1024), Cache(2048), Cache(4096)))


def stored(text: str, machine: Target, **types: str | int) -> set[str]:
    """Return the labels of the tensors that the statements write; the result is that of the plain interpreter."""
    found = case(text, **types)
    scop, schedule = found.automatic(machine)
    prove(scop, schedule)
    assert_same(found, scop, schedule, native=machine is not WIDE)
    assert isinstance(schedule, ScheduleTree)
    names = set(statements_of(schedule.tree))
    return {scop.program.tensor(s.target).label for s in scop.program.statements() if s.name in names}


PRODUCT = {"X": "f32[37,8]", "W": "f32[8,53]"}


@pytest.mark.parametrize("machine", [target(SMALL), TINY, WIDE])
@pytest.mark.parametrize(
    ("text", "types"),
    [
        ("T[n,o] += X[n,i] * W[i,o];  O[n,o] = maximum(T[n,o] + b[o], 0)", {"b": "f32[53]"}),
        ("T[n,o] += X[n,i] * W[i,o];  O[n,o] = T[n,o] * 2 + Y[n,o]", {"Y": "f32[37,53]"}),
        ("T[n,o] += X[n,i] * W[i,o];  O[n,o] = T[n,o] - n", {}),
        ("U[n,o] += X[n,i] * W[i,o];  T[n,o] += X[n,i] * W[i,o];  O[n,o] = T[n,o] * 3 - U[n,o]", {}),
    ],
)
def test_a_result_that_one_statement_reads_is_not_stored(text: str, types: dict[str, str], machine: Target) -> None:
    assert "T" not in stored(text, machine, **PRODUCT, **types)


def test_a_sum_by_blocks_ends_in_its_last_block() -> None:
    text = "T[n,o] += X[n,i] * W[i,o];  O[n,o] = maximum(T[n,o] + b[o], 0)"
    assert "T" in stored(text, TINY, X="f32[13,330]", W="f32[330,24]", b="f32[24]")  # the sums of the blocks before


@pytest.mark.parametrize(
    ("text", "types"),
    [
        ("T[n,o] += X[n,i] * W[i,o];  O[n,o] = T[n,o] + T[0,o]", {}),  # reads another result, too
        ("T[n,o] += X[n,i] * W[i,o];  O[n,o] = T[n,o];  P[n] = T[n,0]", {}),  # two readers
        ("T[n,o] += X[n,i] * W[i,o];  O[n] = T[n,3]", {}),  # reads some results
        ("T[n,o] += X[n,i] * W[i,o];  O[n,o] = T[36-n,o] + 1", {}),  # reads them in another order
        ("f(X,W,A: f32[N,M]) -> A, O:\n T[n,o] += X[n,i] * W[i,o]\n A[n,o] = 7\n O[n,o] = T[n,o] + A[n,o]", {"A": "f32[37,53]"}),
    ],
)  # fmt: skip
def test_what_needs_more_than_one_result_or_a_later_value_comes_after(text: str, types: dict[str, str]) -> None:
    assert "T" in stored(text, target(SMALL), **PRODUCT, **types) or "A" in types


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_few_rows_and_none(rows: int) -> None:
    types = {"X": f"f32[{rows},8]", "W": "f32[8,53]", "b": "f32[53]"}
    stored("T[n,o] += X[n,i] * W[i,o];  O[n,o] = maximum(T[n,o] + b[o], 0)", target(SMALL), **types)


def test_results_of_a_triangle_keep_to_it() -> None:
    text = "T[i,j] += X[i,k] * W[k,j] where j <= i;  O[i,j] = T[i,j] + 1"
    stored(text, target(SMALL), X="f32[37,24]", W="f32[24,37]")
