"""The register tile of one statement: the search stops early without another choice, and short rows are taken whole."""

from __future__ import annotations

import re

import numpy as np
import pytest

import polyker as pk
from polyker.codegen.llvm.jit.detect import target
from polyker.cost.choose import choose, ranked
from polyker.cost.measure import measure
from polyker.cost.operation_cost import scalar_cost
from polyker.ir.layout import DENSE
from polyker.machine.model import Cache, Memory
from polyker.structs import replace
from tests.artifacts import generated
from tests.machines import ONE_ROW, SIDE_BY_SIDE
from tests.schedule.support import case

V3, V4 = "cpu:x86-64-v3", "cpu:x86-64-v4"
CACHES = Cache(32 << 10), Cache(1 << 20), Cache(32 << 20, ways=16)
SERVER_CACHES = Cache(48 << 10), *CACHES[1:]


@pytest.mark.parametrize("name", [V3, V4])
@pytest.mark.parametrize(
    ("text", "types"),
    [
        ("C[i,j] += A[i,k] * B[k,j]", {"A": "f32[65,70]", "B": "f32[70,33]"}),
        ("C[i,j] += A[i,k] * B[k,j]", {"A": "f64[4000,6]", "B": "f64[6,5]"}),
        ("C[a,b,c] += A[c,d,a] * B[d,b]", {"A": "f64[17,24,19]", "B": "f64[24,31]"}),
        ("C[a,b,i,j] += A[i,k,a,l] * B[l,b,k,j]", {"A": "f64[9,8,25,7]", "B": "f64[7,17,8,12]"}),
        ("O[n,f,w] += X[n,c,w+s] * K[f,c,s]", {"X": "f32[2,16,40]", "K": "f32[24,16,3]"}),
        ("S[i] += X[i,k]", {"X": "f32[40,1000]"}),
        ("C[i,j] max= A[i,k] + B[k,j]", {"A": "i32[30,20]", "B": "i32[20,50]"}),
    ],
)
def test_a_search_that_stops_early_finds_the_cheapest_tile(text: str, types: dict[str, str], name: str) -> None:
    program = case(text, **types).flat
    statement = next(s for s in program.statements() if s.reduced)
    measured = measure(program, statement, lambda _: DENSE)
    free = tuple(i for i in statement.iterators if i not in statement.reduced)
    given = measured, free, statement.reduced, target(name)
    found = choose(*given)
    assert found.vector is not None
    assert found == ranked(*given)[0]


def chosen(text: str, *types: object) -> str:
    schedule = str(generated(pk.op(text).compile(*types, target=V4, threads=1), "schedule"))
    (line,) = re.findall(r"^S0: (vectors.*)$", schedule, re.MULTILINE)
    return str(line)


@pytest.mark.parametrize(("columns", "vectors"), [(100, 13), (128, 16), (200, 25), (1000, 8)])
def test_a_tile_takes_a_whole_row_of_results_that_the_registers_hold(columns: int, vectors: int) -> None:
    assert f"{vectors} at a time" in chosen("C[i] += A[k,i] * x[k]", pk.f64[10000, columns], pk.f64[10000])


def test_a_row_whose_length_is_only_expected_is_no_tile() -> None:
    # At every other length a mask would cut each of its vectors.
    program = case("C[i] += A[k,i] * x[k]", A="f64[m,n]", x="f64[m]").flat
    (rows, _), (columns, _) = program.sizes
    measured = measure(
        replace(program, likely=((rows, 512), (columns, 100))),
        next(s for s in program.statements() if s.reduced),
        lambda _: DENSE,
    )
    assert [measured.expected(i) for i in ("i0", "i1")] == [100, 512]
    assert choose(measured, ("i0",), ("i1",), target(V4)).chunks <= 8


@pytest.mark.parametrize(("extent", "is_power"), [(256, False), (40, True)])
def test_tiles_that_are_many_may_leave_any_rest_of_an_expected_extent(extent: int, is_power: bool) -> None:
    program = case("C[i,j] += A[i,k] * B[k,j]", A="f32[l,m]", B="f32[m,n]").flat
    measured = measure(
        replace(program, likely=tuple((name, extent) for name, _ in program.sizes)),
        next(s for s in program.statements() if s.reduced),
        lambda _: DENSE,
    )
    found = ranked(measured, ("i0", "i1"), ("i2",), target("cpu:x86-64-v3"))
    sizes = [size for plan in found for _, size in plan.others]
    assert all(size & (size - 1) == 0 for size in sizes) == is_power, sizes


def test_a_panel_that_is_read_where_it_lies_is_no_wider_than_the_first_cache() -> None:
    # Parts of rows come slower from the second cache than three rows of eight vectors are multiplied.
    program = case("C[i,j] += A[i,k] * B[k,j]", A="f64[l,m]", B="f64[m,n]").flat
    measured = measure(
        replace(program, likely=tuple((name, 128) for name, _ in program.sizes)),
        next(s for s in program.statements() if s.reduced),
        lambda _: DENSE,
    )
    caches = Cache(48 << 10, 64, 12), Cache(1 << 20, 64, 16), Cache(32 << 20, 64, 16)
    found = choose(measured, ("i0", "i1"), ("i2",), replace(target(V4), caches=caches))
    assert found.vector == "i1"
    assert found.chunks * found.lanes * 8 * 128 <= caches[0].size


def test_rows_from_far_are_added_up_along_themselves() -> None:
    # Transposed while they are read they come by pieces of many rows, which a core waits for.
    for rows, columns in ((10000, 100), (4000, 40), (20000, 24), (40000, 16)):
        assert re.match(
            r"vectors of 8 along i1,", chosen("C[i] += A[i,k] * x[k]", pk.f64[rows, columns], pk.f64[columns])
        )


def test_short_rows_are_transposed() -> None:
    assert re.match(r"vectors of 16 along i0,", chosen("C[i] += A[i,k] * x[k]", pk.f32[2000, 6], pk.f32[6]))


@pytest.mark.parametrize(("terms", "tile"), [(24, "16 along i0, 1 at a time;"), (16, "16 along i1, 1 at a time x")])
def test_pieces_of_few_rows_are_transposed_at_a_time_beyond_the_second_cache(terms: int, tile: str) -> None:
    # Each row of a piece is a stream of its own: few of them arrive as fast as one row after another does.
    assert f"vectors of {tile}" in chosen("C[i] += A[i,k] * x[k]", pk.f32[20000, terms], pk.f32[terms])


@pytest.mark.parametrize(("matrices", "tile"), [(250, "17 at a time;"), (40, r"\d at a time x")])
def test_vectors_that_lie_rows_apart_do_not_come_from_memory(matrices: int, tile: str) -> None:
    # There one row is read from end to end; in the last cache several results share the loads of a step.
    assert re.match(f"vectors of 16 along i1, {tile}", chosen("S[i,k] += X[i,j,k]", pk.f32[matrices, 240, 260]))


@pytest.mark.parametrize(("rows", "vector"), [(100000, "8 along i1"), (20000, "16 along i0")])
def test_pieces_of_long_rows_are_transposed_from_the_last_cache_alone(rows: int, vector: str) -> None:
    assert f"vectors of {vector}," in chosen("C[i,j] += A[i,k] * B[k,j]", pk.f32[rows, 64], pk.f32[64, 8])


def test_results_in_memory_are_written_across_it_only_where_that_is_cheap() -> None:
    # Parts of a line for each row of 10 MB, one after another, wait for memory longer than the strided reads save.
    types = pk.f64[33, 16, 33], pk.f64[16, 33, 33]
    assert "vectors of 8 along i3," in chosen("C[a,b,c,d] += A[d,k,c] * B[k,a,b]", *types)


def test_a_line_that_will_be_gone_is_not_fetched_for_one_of_its_elements() -> None:
    # A tile of vectors along i1 or i2 has one value of i0, along which A is contiguous.
    types = pk.f64[56, 72, 64, 64], pk.f64[16, 72]
    assert "vectors of 8 along i0," in chosen("C[d,c,b,a] += A[a,e,b,d] * B[c,e]", *types)


def test_gathered_rows_are_read_several_at_once() -> None:
    # Where they lie is not known, and nothing runs ahead of one that is read from end to end.
    types = pk.f32[1 << 20, 64], pk.i64[8000, 40]
    assert "4 at a time x" in chosen("O[b,c] += T[I[b,k],c]", *types)


def test_results_written_across_are_whole_cache_lines() -> None:
    # Eight results side by side along i3 are a line, of which nothing is fetched; six are parts of two.
    types = pk.f64[64, 64, 64, 72], pk.f64[72, 16]
    assert " x 8 i3;" in chosen("C[d,c,b,a] += A[d,a,b,e] * B[e,c]", *types)


@pytest.mark.parametrize(
    ("text", "columns", "lanes"),
    [
        ("O[i] += X[i,k]", 2000, 8),
        ("O[k] += X[i,k] * y[i]", 2000, 8),
        ("O[i] += X[i,k] * x[k]", 2000, 16),  # x is read again for each row
        ("O[i] += exp(X[i,k])", 2000, 16),
        ("O[i] += X[i,k]", 1000, 16),  # the last cache keeps a part for the next pass
    ],
)
def test_sums_from_memory_read_half_vectors_where_whole_ones_pass_in_halves(
    text: str, columns: int, lanes: int
) -> None:
    types = {"X": pk.f32[2000, columns]} | {name: pk.f32[2000] for name in "xy" if f"{name}[" in text}
    source = {}
    for double_pumped in (True, False):
        machine = replace(
            target(V4),
            native_bytes=32 * double_pumped,
            caches=(Cache(32 << 10), Cache(1 << 20), Cache(8 << 20)),
        )
        source[double_pumped] = str(generated(pk.op(text).compile(**types, target=machine, threads=1), "schedule"))
    assert f"vectors of {lanes} " in source[True]
    assert "vectors of 16 " in source[False]


@pytest.mark.parametrize(("rows", "together"), [(3000, 4), (8, 4), (7, 1)])
def test_several_results_are_summed_at_once_where_each_term_is_one_element(rows: int, together: int) -> None:
    kernel = pk.op("C[i] += A[i,j,j]").compile(A=pk.f32[rows, 70, 70], target=V4, threads=1)
    assert (" x 4 i0" in generated(kernel, "schedule")) == (together == 4)
    A = np.arange(rows * 4900, dtype="f4").reshape(rows, 70, 70) % 11
    np.testing.assert_array_equal(pk.op("C[i] += A[i,j,j]")(A), A.diagonal(0, 1, 2).sum(1))


@pytest.mark.parametrize(
    ("rows", "one_stream", "vectors"),
    [
        (20000, True, 1),
        (20000, False, 2),
        (100, True, 2),  # these stay in the first cache
    ],
)
def test_few_rows_are_transposed_together_where_one_after_another_comes_sooner(
    rows: int, one_stream: bool, vectors: int
) -> None:
    machine = replace(target("cpu:x86-64-v4"), memory=ONE_ROW if one_stream else Memory())
    kernel = pk.op("C[i,j] += A[i,k] * B[k,j]").compile(A=pk.f32[rows, 64], B=pk.f32[64, 8], target=machine, threads=1)
    assert f"vectors of 16 along i0, {vectors} at a time x 8 i1" in generated(kernel, "schedule")


@pytest.mark.parametrize(
    ("text", "pieces", "rows", "tile"),
    [
        ("C[i] += A[i,k] * B[k]", 8, 4096, "x 8 i0"),
        ("C[i] += A[i,k] * B[k]", 1, 4096, ""),
        ("C[i] += A[i,k] * B[k]", 8, 100, ""),  # in the last cache one row comes as soon as eight
        ("C[i] max= A[i,k] + B[k]", 8, 4096, "x 10 i0"),
    ],
)
def test_as_many_rows_from_memory_are_summed_at_once_as_come_sooner_so(
    text: str, pieces: int, rows: int, tile: str
) -> None:
    machine = replace(
        target(V4),
        memory=SIDE_BY_SIDE if pieces > 1 else Memory(),
        caches=SERVER_CACHES,
    )
    kernel = pk.op(text).compile(A=pk.f64[rows, 2048], B=pk.f64[2048], target=machine, threads=1)
    (line,) = re.findall(r"^S0: (vectors of 8 along .*)$", generated(kernel, "schedule"), re.MULTILINE)
    assert (f" {tile};" in line) if tile else (" x " not in line)


@pytest.mark.parametrize(("rows", "terms", "several"), [(4096, 2048, True), (4096, 1024, False), (500, 2048, True)])
def test_several_rows_are_summed_at_once_where_their_factor_does_not_stay_beside_one(
    rows: int, terms: int, several: bool
) -> None:
    """A vector of 16 KB stays in a first cache of 32 KB, but not while rows of 16 KB pass."""
    machine = replace(target(V4), memory=ONE_ROW, caches=CACHES)
    kernel = pk.op("C[i] += A[i,k] * B[k]").compile(A=pk.f64[rows, terms], B=pk.f64[terms], target=machine, threads=1)
    (line,) = re.findall(r"^S0: (vectors of 8 along .*)$", generated(kernel, "schedule"), re.MULTILINE)
    assert (" x " in line) == several


@pytest.mark.parametrize(("terms", "rows"), [(4096, 6), (4104, 13)])
def test_rows_that_fall_into_one_set_of_the_first_cache_are_taken_by_fewer(terms: int, rows: int) -> None:
    """A set of eight ways has lines for six rows and the vector beside them, if rows lie a multiple of 4 KB apart."""
    machine = replace(target(V4), memory=ONE_ROW, caches=CACHES)
    kernel = pk.op("C[i] += A[i,k] * B[k]").compile(A=pk.f64[4096, terms], B=pk.f64[terms], target=machine, threads=1)
    assert f" x {rows} i0;" in generated(kernel, "schedule")


@pytest.mark.parametrize("text", ["y[i] += x[i+k] * w[k]", "y[i] += x[i-k+299] * w[k] for i in 0:10000"])
def test_a_window_that_moves_with_the_terms_is_summed_by_results(text: str) -> None:
    """It is read again and again, and not by a few terms at a time as rows of memory are; with vectors along the terms each
    row of a tile would load windows of its own."""
    for double_pumped in (True, False):
        machine = replace(
            target(V4),
            native_bytes=32 * double_pumped,
            caches=CACHES,
        )
        kernel = pk.op(text).compile(x=pk.f32[10299], w=pk.f32[300], target=machine, threads=1)
        schedule = generated(kernel, "schedule")
        assert "vectors of 16 along i0, 8 at a time; tiles i0; terms i1" in schedule
        assert ".block" not in schedule


@pytest.mark.parametrize("text", ["y[i] += x[i+k] * w[k]", "y[i+k] += x[i] * w[k]"])
def test_windows_that_are_made_of_each_other_s_vectors_cost_less(text: str) -> None:
    machine = replace(target(V4), native_bytes=32, caches=CACHES)
    kernel = pk.op(text).compile(x=pk.f32[4999], w=pk.f32[2000], target=machine, threads=1)
    (tile,) = re.findall(r"S0: vectors of 16 along (\w+), 8 at a time; tiles (\w+);", generated(kernel, "schedule"))
    assert tile[0] == tile[1]  # along results


def test_a_lone_sum_of_elements_that_are_looked_up_is_taken_by_vectors() -> None:
    """Each addition would wait for the one before; of several sums side by side none waits."""
    assert "vectors of 16 along i0" in chosen("s += X[i] * T[I[i]]", pk.f32[4000], pk.f32[2000], pk.i32[4000])
    rows = pk.op("s[r] += X[r,i] * T[I[r,i]]").compile(
        pk.f32[40, 100], pk.f32[2000], pk.i32[40, 100], target=V4, threads=1
    )
    assert "S0: scalar x 4" in generated(rows, "schedule")


def test_a_difference_is_one_operation() -> None:
    def operations(text: str) -> float:
        program = case(text, X="f32[40]", Y="f32[40]").flat
        return scalar_cost(measure(program, next(iter(program.statements())), lambda _: DENSE))

    assert operations("O[i] = X[i] - Y[i]") == operations("O[i] = X[i] + Y[i]")
    assert operations("O[i] = -X[i] * Y[i]") == operations("O[i] = X[i] * Y[i]") + 1


def test_half_vectors_wait_for_what_they_spread_from_far_as_whole_ones_do() -> None:
    machine = replace(target(V4), name="halves", native_bytes=32)
    for rows, vector in ((100, "vectors of 8 along i1"), (20000, "vectors of 16 along i0")):
        types = pk.f32[rows, 64], pk.f32[64, 8]
        kernel = pk.op("C[i,j] += A[i,k] * B[k,j]").compile(*types, target=machine, threads=1)
        assert vector in generated(kernel, "schedule"), rows
