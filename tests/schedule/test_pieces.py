"""Operands that a tile reads in short pieces are waited for."""

from __future__ import annotations

from polyker.codegen.llvm.jit.detect import target
from polyker.cost.choose import choose
from polyker.cost.measure import measure
from polyker.cost.pieces import waiting
from polyker.cost.plan import TilePlan
from polyker.ir.layout import DENSE
from tests.schedule.support import case

TARGET = target("cpu:x86-64-v4")


def waits(text: str, plan: TilePlan | None = None, **types: str) -> float:
    """Return the cycles a point that the last statement of a program waits, by its own tile or a given one."""
    program = case(text, **types).flat
    statement = list(program.statements())[-1]
    measured = measure(program, statement, lambda _: DENSE)
    free = tuple(i for i in statement.iterators if i not in statement.reduced)
    found = waiting(measured, plan or choose(measured, free, statement.reduced, TARGET), TARGET)
    points = 1
    for i in statement.iterators:
        points *= measured.extent(i)
    return found / points


def test_an_operand_that_the_first_cache_holds_is_there() -> None:
    assert waits("C[i,j] += A[i,k] * B[k,j]", A="f32[64,32]", B="f32[32,64]") == 0


def test_a_element_of_each_line_costs_the_line() -> None:
    # A tile of 8 rows reads 8 x 192 lines for as many elements, and the tile beside it reads the same lines.
    rows = TilePlan("i2", 16, 2, (("i0", 8),), 0.0)
    text = "O[k,l,r] += X[j,k,l] * T[j,r]"
    apart = waits(text, rows, X="f32[192,14,18]", T="f32[192,32]")
    beside = waits(text, TilePlan("i2", 16, 2, (("i1", 16),), 0.0), X="f32[192,14,18]", T="f32[192,32]")
    assert apart > 0.001
    assert beside == 0


def test_short_rows_from_memory_are_waited_for_and_long_ones_are_not() -> None:
    short = waits("T[i,r] += X[i,l] * D[l,r]", X="f32[120000,70]", D="f32[70,32]")
    long = waits("T[i,r] += X[i,l] * D[l,r]", X="f32[3000,2800]", D="f32[2800,32]")
    assert short > 0.005
    assert long < 0.0005
