"""Reductions across rows of memory read a few rows from end to end, and add them up in the result."""

from __future__ import annotations

import re

import pytest

import polyker as pk
from polyker.codegen.llvm.jit.detect import target
from polyker.machine.model import Cache, Memory, Target
from polyker.schedule.legality.prove import prove
from polyker.schedule.tree.nodes import Band, loops
from polyker.structs import replace
from tests.artifacts import generated
from tests.machines import ONE_ROW
from tests.schedule.support import SMALL, assert_same, case

# Rows of 2048 bytes and more, and a second cache that holds a result of half its size but not the operand.
MACHINE: Target = replace(target(SMALL), caches=(Cache(1 << 10), Cache(1 << 14), Cache(1 << 16)))


def is_cut(text: str, **given: str) -> bool:
    """Assert that the machine code gives what it should, and where rows are taken together the interpreted kernel, too."""
    found = case(text, **given)
    scop, schedule = found.automatic(MACHINE)
    cut = any(m.label.endswith(".block") for m in loops(schedule.tree))
    assert_same(found, scop, schedule, native=True)
    if cut:
        assert_same(found, scop, schedule)
    return cut


@pytest.mark.parametrize(
    ("rows", "name", "op"),
    [
        (32, "f32", "+="),
        (37, "f32", "max="),
        (37, "i32", "+="),
        (32, "i32", "min="),
        (37, "f64", "+="),
        (32, "f64", "min="),
    ],
)
def test_terms_a_row_apart_are_taken_by_a_few_rows(rows: int, name: str, op: str) -> None:
    assert is_cut(f"S[k] {op} X[i,k]", X=f"{name}[{rows},600]")


def test_short_rows_that_take_several_tiles_are_cut() -> None:
    assert is_cut("S[k] += X[i,k]", X="f32[90,100]")


def test_several_reduced_loops_are_cut_at_the_outermost() -> None:
    assert is_cut("S[k] += X[i,j,k]", X="f32[33,2,520]")


def test_one_row_times_a_matrix_is_cut() -> None:
    assert is_cut("C[i,j] += A[i,k] * B[k,j]", A="f32[1,40]", B="f32[40,600]")


def test_a_result_that_is_defined_before_is_added_to() -> None:
    assert is_cut("S[k] = Y[k]\nS[k] += X[i,k]", Y="f32[600]", X="f32[40,600]")


@pytest.mark.parametrize(
    ("first", "last", "one", "together"),
    [
        (1 << 13, 1 << 18, True, 4),
        (1 << 10, 1 << 18, True, 8),
        (1 << 13, 1 << 16, True, 1),
        (1 << 12, 1 << 16, True, 8),
        (1 << 13, 1 << 16, False, 8),
    ],
    ids=["from the last cache", "large results", "from memory", "large results from memory", "several streams"],
)
def test_fewer_rows_are_read_together_where_the_results_stay_in_the_first_cache(
    first: int, last: int, one: bool, together: int
) -> None:
    machine = replace(MACHINE, memory=ONE_ROW if one else Memory(), caches=(Cache(first), Cache(1 << 14), Cache(last)))
    source = generated(pk.op("S[k] += X[i,k]").compile(X=pk.f32[40, 600], target=machine), "schedule")
    assert re.findall(r"\.block  \{.*S0: ([^,]*)", source) == ["i1" if together == 1 else f"floor(i1/{together})"]


@pytest.mark.parametrize(
    ("text", "X", "outer"),
    [
        ("S[i,k] += X[i,j,k]", "f32[3,40,600]", 1),  # results of 7 KB, a row of them at a time
        ("S[i,l,k] += X[i,l,j,k]", "f32[3,2,40,600]", 2),
        ("S[i,k] += X[j,i,k]", "f32[40,3,600]", 0),  # rows of all results lie between the terms
        ("S[i,l,k] += X[i,j,l,k]", "f32[3,40,2,600]", 1),
        ("S[i,k] += X[i,j,k]", "f32[12,40,600]", 1),  # all results together are more than the second cache holds
    ],
)
def test_blocks_of_terms_are_read_in_the_order_of_memory(text: str, X: str, outer: int) -> None:
    found = case(text, X=X)
    scop, schedule = found.automatic(MACHINE)
    prove(scop, schedule)
    assert_same(found, scop, schedule, native=True)
    assert [m.label.endswith(".block") for m in loops(schedule.tree)].index(True) == outer


def test_a_loop_that_statements_share_is_not_made_again_around_blocks() -> None:
    found = case("M[i,k] max= X[i,j,k]\nS[i,k] += (X[i,j,k] - M[i,k]) * W[j]", X="f32[4,40,1200]", W="f32[40]")
    scop, schedule = found.automatic(replace(MACHINE, caches=(*MACHINE.caches[:2], Cache(1 << 17))))
    assert_same(found, scop, schedule, native=True)
    assert any("run together: loops i0" in n for n in map(str, schedule.notes))
    assert [m.label for m in loops(schedule.tree)][:3] == ["i0", "i1.rows", "i2.block"]


RUNS = {
    "runs": ("S[j] += X[i,j,k]", {"X": "f32[33,5,220]"}),
    "runs of a maximum": ("S[j] max= X[i,j,k]", {"X": "i32[40,5,220]"}),
    "runs weighted": ("S[j] += X[i,j,k] * W[i,k]", {"X": "f64[35,6,131]", "W": "f64[35,131]"}),
    "two results": ("S[j,l] += X[i,j,l,k]", {"X": "f32[32,3,4,97]"}),
    "the first of two": ("S[j] += X[h,i,j,k]", {"X": "f32[33,2,5,150]"}),
}


@pytest.mark.parametrize("name", RUNS)
def test_runs_of_terms_are_summed_in_the_order_of_memory(name: str) -> None:
    text, given = RUNS[name]
    assert is_cut(text, **given)


def test_sums_of_the_same_runs_read_them_once() -> None:
    found = case("S[j] += X[i,j,k]\nQ[j] += X[i,j,k] * X[i,j,k]", X="f32[33,5,220]")
    scop, schedule = found.automatic(replace(MACHINE, vector_registers=32))
    prove(scop, schedule)
    assert_same(found, scop, schedule, native=True)
    assert isinstance(schedule.tree, Band)
    assert schedule.tree.members[0].label.endswith(".block")
    assert any("run together: their own loops" in n for n in map(str, schedule.notes))


WHOLE = {
    "few rows": ("S[k] += X[i,k]", {"X": "f32[20,600]"}),
    "rows that a tile holds": ("S[k] += X[i,k]", {"X": "f32[160,52]"}),
    "a large result": ("S[k] += X[i,k]", {"X": "f32[32,2100]"}),
    "along the rows": ("S[i] += X[i,k]", {"X": "f32[40,600]"}),
    "runs within a page": ("S[j] += X[i,j,k]", {"X": "f32[33,5,200]"}),
    "short runs near by": ("S[j] += X[i,j,k]", {"X": "f32[33,80,2]"}),
    "runs a few times": ("S[j] += X[i,j,k]", {"X": "f32[31,5,220]"}),
    "in a narrow type": ("S[k] += X[i,k]", {"X": "f16[40,1200]"}),
}


@pytest.mark.parametrize("name", WHOLE)
def test_other_reductions_are_not_cut(name: str) -> None:
    text, given = WHOLE[name]
    assert not is_cut(text, **given)


def test_a_sum_whose_terms_hang_on_quotients_is_not_cut() -> None:
    # isl needed hours for the loops of several threads over its blocks.
    types = {"F": pk.f32["R", "I", "Y"]}
    cut = pk.op("E[y] += F[r,i,y]").compile(**types, specialize="never")
    whole = pk.op("E[y] += F[r,i,y] where r // 2 == i // 3").compile(**types, specialize="never")
    assert "4096" in generated(cut, "schedule")
    assert "4096" not in generated(whole, "schedule")
