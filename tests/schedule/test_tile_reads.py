"""The lines that a register tile reads again where an operand lies: whether the first cache keeps them until then."""

from __future__ import annotations

import pytest

from polyker.codegen.llvm.jit.detect import target
from polyker.cost.measure import MeasuredStatement, measure
from polyker.cost.tile_reads import Panel, is_whole_lines, panel_of
from polyker.ir.layout import DENSE
from tests.schedule.support import case

V4 = target("cpu:x86-64-v4")


def product(columns: int) -> tuple[MeasuredStatement, Panel | None]:
    """Return `C[d,a,e] += A[a,f,e] * B[d,f]` (i0, i1, i2; i3), and its panels of A for vectors along e."""
    program = case("C[d,a,e] += A[a,f,e] * B[d,f]", A=f"f64[8,16,{columns}]", B="f64[72,16]").flat
    measured = measure(program, next(s for s in program.statements() if s.reduced), lambda _: DENSE)
    read = next(a for a in measured.accesses if a.read is not None and a.stride("i2"))
    return measured, panel_of(measured, read, "i2", 8, V4)


@pytest.mark.parametrize(("columns", "waits"), [(1024, True), (1032, False)])
def test_rows_a_power_of_two_apart_crowd_each_other_out(columns: int, waits: bool) -> None:
    # 16 terms by 4 rows of a vector each: 4 KB, of which few sets have to hold all where rows lie 8 KB apart.
    measured, panel = product(columns)
    assert panel is not None and panel.unit is None
    assert (panel.cycles(4, (("i1", 4),), measured, V4) > 0) is waits


def test_rows_of_another_operand_crowd_nothing() -> None:
    measured, panel = product(1024)
    assert panel is not None
    assert panel.cycles(1, (("i0", 4),), measured, V4) == 0


def test_a_single_value_brings_the_line_that_its_neighbours_share() -> None:
    measured, _ = product(1032)
    read = next(a for a in measured.accesses if a.read is not None and a.stride("i2"))
    panel = panel_of(measured, read, "i0", 8, V4)
    assert panel is not None and panel.unit == "i2"
    assert panel.lines(8, (("i2", 8),)) == 64
    assert panel.lines(4, (("i1", 4),)) == 4 * 64


@pytest.mark.parametrize(("columns", "size", "whole"), [(1024, 8, True), (1024, 6, False), (1030, 8, False)])
def test_results_side_by_side_are_whole_lines(columns: int, size: int, whole: bool) -> None:
    measured, _ = product(columns)
    assert is_whole_lines(measured, "i2", size, V4) is whole
