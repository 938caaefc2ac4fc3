"""The order of loops: by the memory of what a statement reads and writes."""

from __future__ import annotations

import pytest

from polyker.cost.measure import MeasuredStatement, measure
from polyker.ir.layout import DENSE
from polyker.schedule.nests.loop_order import memory_order
from tests.schedule.support import case


def measured(text: str, **types: str) -> MeasuredStatement:
    """Return the last statement of a program, measured."""
    program = case(text, **types).flat
    return measure(program, list(program.statements())[-1], lambda _: DENSE)


@pytest.mark.parametrize(
    ("text", "shape", "order"),
    [
        # Rows of the operand lie one after another along i0, those of the result along i2: i0 has the smaller steps. Along i1,
        # with smaller ones yet, both leap.
        ("O[c,b,a,d] = X[a,b,c,d]", "100,10,300,24", ("i2", "i1", "i0", "i3")),
        ("O[c,a,b,d] = X[a,b,c,d]", "40,40,40,40", ("i0", "i1", "i2", "i3")),
        ("O[a,b,c,d] = X[a,b,c,d] + 1", "8,8,8,80", ("i0", "i1", "i2", "i3")),
    ],
)
def test_just_around_the_vector_some_operand_goes_on_where_its_row_ended(
    text: str, shape: str, order: tuple[str, ...]
) -> None:
    found = measured(text, X=f"f32[{shape}]")
    assert memory_order(found, tuple(found.bounds), "i3") == order


@pytest.mark.parametrize(
    ("text", "types", "order"),
    [
        ("O[i,j] = T[i,c[j]]", {"T": "f32[1000,900]", "c": "i64[500]"}, ("i0", "i1")),  # a row of the operand at a time
        ("O[j,i] = T[c[j],i]", {"T": "f32[900,1000]", "c": "i64[500]"}, ("i0", "i1")),  # the row that was looked up
    ],
)
def test_a_gather_goes_no_further_than_its_row(text: str, types: dict[str, str], order: tuple[str, ...]) -> None:
    found = measured(text, **types)
    assert memory_order(found, tuple(found.bounds), None) == order
