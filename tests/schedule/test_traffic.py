"""Another loop outermost, where the order of the panels would fetch an operand from memory again and again."""

from __future__ import annotations

import pytest

from polyker.codegen.llvm.jit.detect import target
from polyker.cost.measure import measure
from polyker.cost.plan import TilePlan
from polyker.cost.traffic import least_traffic
from polyker.ir.layout import DENSE
from polyker.schedule.nests.loop_order import tile_order
from tests.schedule.support import case

TARGET = target("cpu:x86-64-v4")


@pytest.mark.parametrize(
    ("columns", "rows", "order"),
    [
        (129, 136, ("i0", "i1", "i2")),  # A is beyond every cache: the loop that leaves it in place is not outermost
        (4, 16, ("i1", "i0", "i2")),  # the second cache holds all
    ],
)
def test_what_no_cache_holds_is_fetched_once(columns: int, rows: int, order: tuple[str, ...]) -> None:
    program = case("C[c,b,a] += A[d,c,a] * B[b,d]", A=f"f64[137,{columns},{rows}]", B="f64[129,137]").flat
    statement = list(program.statements())[-1]
    measured = measure(program, statement, lambda _: DENSE)
    # Panels of as many bytes, with as long steps: the order is a matter of chance.
    plan = TilePlan("i2", 8, 2, (("i1", 13),), 1 / 16)
    kept = ("i0", "i1", "i2")
    before = tile_order(measured, plan, kept)
    assert before == ("i1", "i0", "i2")
    assert least_traffic(measured, plan, before, TARGET) == order


def test_a_loop_moves_no_further_than_it_has_to() -> None:
    # Outermost i1 would fetch A as often, but by pieces of its rows that lie far apart.
    program = case("C[c,b,a] += A[a,d,b] * B[c,d]", A="f32[320,320,320]", B="f32[16,320]").flat
    measured = measure(program, list(program.statements())[-1], lambda _: DENSE)
    plan = TilePlan("i1", 16, 1, (("i0", 8), ("i2", 2)), 1 / 32)
    assert least_traffic(measured, plan, ("i2", "i0", "i1"), TARGET) == ("i2", "i1", "i0")


def test_a_result_that_is_most_of_what_is_moved_keeps_its_order() -> None:
    program = case("C[i,j] += A[i,k] * B[k,j]", A="f64[1024,32]", B="f64[32,1024]").flat
    statement = list(program.statements())[-1]
    measured = measure(program, statement, lambda _: DENSE)
    plan = TilePlan("i1", 8, 4, (("i0", 6),), 1 / 16)
    assert least_traffic(measured, plan, ("i0", "i1"), TARGET) == ("i0", "i1")
