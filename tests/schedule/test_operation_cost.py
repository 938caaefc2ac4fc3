"""What the arithmetic of a statement takes where additions have pipes of their own, and the tiles that follow from it."""

from __future__ import annotations

import re

import pytest

import polyker as pk
from polyker.codegen.llvm.jit.detect import target
from polyker.cost import operation_cost
from polyker.cost.measure import MeasuredStatement, measure
from polyker.cost.operation_cost import BROADCAST_OPERATIONS, arithmetic
from polyker.cost.tile_cost import TileCosts
from polyker.ir.layout import DENSE
from polyker.machine.model import Target
from polyker.structs import replace
from tests.artifacts import generated
from tests.schedule.support import case

PLAIN = target("cpu:x86-64-v4")
APART = replace(PLAIN, name="apart", add_pipes=2)


def measured(text: str, kind: str = "f32") -> MeasuredStatement:
    given = {n: f"{kind}[40,50]" for n in "AB" if f"{n}[" in text}
    program = case(text, **given).flat
    return measure(program, next(s for s in program.statements() if s.reduced), lambda _: DENSE)


@pytest.mark.parametrize(
    ("text", "operations", "multiplies"),
    [
        ("C[i,j] += A[i,k] * B[j,k]", 1, None),  # nothing is to be told apart
        ("C[i,j] max= A[i,k] + B[j,k]", 2, 1),
        ("C[i,j] max= A[i,k] * B[j,k]", 2, 1),
        ("C[i,j] += (A[i,k] - B[j,k])**2", 2, 1),
        ("C[i,j] += abs(A[i,k] - B[j,k])", 3, 1),
        ("C[i,j] += A[i,k] * B[j,k] * abs(A[i,k])", 3, 2),
        ("C[i,j] max= A[i,k] + B[j,k] + 1", 3, 1.5),
        ("C[i] += A[i,k]", 1, 1),
        ("C[i] += abs(A[i,k])", 2, 1),
    ],
)
def test_what_passes_the_pipes(text: str, operations: float, multiplies: float | None) -> None:
    found = arithmetic(measured(text), APART)
    assert (found.operations, found.multiplies) == (operations, multiplies)
    assert arithmetic(measured(text), PLAIN).multiplies is None


@pytest.mark.parametrize(
    ("text", "kind"), [("C[i,j] max= A[i,k] + B[j,k]", "i32"), ("C[i,j] max= exp(A[i,k]) + B[j,k]", "f32")]
)
def test_integers_and_functions_are_not_told_apart(text: str, kind: str) -> None:
    assert arithmetic(measured(text, kind), APART).multiplies is None


def test_cycles() -> None:
    rate, distances = PLAIN.fma_per_cycle, "C[i,j] += abs(A[i,k] - B[j,k])"
    assert arithmetic(measured(distances), PLAIN).cycles(10) == 30 / rate
    found = arithmetic(measured(distances), APART)
    assert found.cycles(10) == 15 / rate  # half of the operations in each kind of pipes
    assert found.cycles(10, 4) == (30 + 4 * BROADCAST_OPERATIONS) / 2 / rate
    assert arithmetic(measured("C[i,j] += A[i,k] * B[j,k] * abs(A[i,k])"), APART).cycles(10, 4) == 20 / rate


def taken(text: str) -> set[str]:
    found = measured(text)
    return {a.tensor for a in found.accesses if a.read in arithmetic(found, APART).in_memory}


def test_what_one_operation_takes_may_stay_in_memory() -> None:
    both = taken("C[i,j] max= A[i,k] + B[j,k]")
    assert len(both) == 2
    assert len(taken("C[i,j] max= A[i,k] + abs(A[i,k] - B[j,k])")) == 1
    # Some of these extrema are comparisons and choices.
    assert taken("C[i,j] max= minimum(A[i,k], B[j,k])") == set()
    assert taken("C[i,j] += minimum(A[i,k], B[j,k])") == both


@pytest.mark.parametrize(
    ("text", "apart"),
    [
        ("C[i,j] max= A[i,k] + B[k,j]", True),
        ("C[i,j] += abs(A[i,k] - B[k,j])", True),
        ("C[i,j] += (A[i,k] - B[k,j])**2", True),
        ("C[i,j] max= minimum(A[i,k], B[k,j])", False),
        ("C[i,j] += A[i,k] * B[k,j]", False),
    ],
)
def test_a_tile_has_one_vector_where_its_factors_come_from_memory_for_nothing(text: str, apart: bool) -> None:
    vectors = {}
    for machine in (APART, PLAIN):
        kernel = pk.op(text).compile(A=pk.f32[128, 128], B=pk.f32[128, 128], target=machine, threads=1)
        (found,) = re.findall(r"^S0: vectors of 16 along i1, (\d+) at a time", generated(kernel, "schedule"), re.M)
        vectors[machine.name] = int(found)
    assert (vectors["apart"] == 1) == apart
    assert vectors[PLAIN.name] > 1


def test_transposing_an_operand_takes_pipes_of_the_arithmetic(monkeypatch: pytest.MonkeyPatch) -> None:
    found = measured("C[i,j] += abs(abs(A[i,k] - B[j,k]) - 1)")
    (rows, columns), terms = found.statement.iterators[:2], found.statement.reduced

    def cycles() -> float:
        tiles = TileCosts(found, columns, terms, APART, may_pack=False)
        return tiles.cost(1, ((rows, 10),)) * tiles.width * 10

    with_shuffles = cycles()
    monkeypatch.setattr(operation_cost, "BROADCAST_OPERATIONS", 0.0)
    # Three pieces of rows are inserted and two registers shuffled for each vector; loads that wait for it delay a part of that.
    extra = 5 * BROADCAST_OPERATIONS / 2 / APART.fma_per_cycle
    vectors = 3 * 16 / 40  # for each whole one
    assert with_shuffles - cycles() == pytest.approx(vectors * extra * 1.15)


@pytest.mark.parametrize("machine", [APART, PLAIN])
def test_what_transposes_would_take_again_and_again_is_packed(machine: Target) -> None:
    """Transposing five tiles' columns took 1.6 times as long as one copy, which is weighed against all the operations."""
    kernel = pk.op("C[i,j] += abs(A[i,k] - B[j,k])").compile(
        A=pk.f32[64, 64], B=pk.f32[64, 64], target=machine, threads=1
    )
    assert "S0: B is packed by blocks" in generated(kernel, "schedule")
