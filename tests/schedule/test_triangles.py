"""Reductions over triangles and bands: whole tiles, terms that all results of a tile have apart from the others."""

from __future__ import annotations

import pytest

import polyker as pk
from polyker.codegen.llvm.jit.detect import target
from polyker.poly.isl import dim, read_set
from polyker.rewrite.indexing.whole_tiles import whole_tiles
from polyker.schedule.nests.tiles import Separation, common_terms, tile_parts
from tests.schedule.support import SMALL, assert_same, case
from tests.schedule.test_tiles import points

WHOLE = "computed whole"
TRIANGLES = {
    "lower": "C[i,j] += A[i,k] * B[k,j] where j <= i",
    "strictly upper": "C[i,j] += A[k,i] * B[k,j] where j > i",
    "of one operand": "C[i,j] += A[i,k] * A[j,k] where j <= i",
    "greatest": "C[i,j] max= A[i,k] + B[k,j] where j <= i",
    "with what was there": "f(C: f32[21,21], A: f32[21,5]) -> C:\n    C[i,j] += A[i,k] * A[j,k] where j <= i",
    "terms up to the row": "C[i,j] += A[i,k] * B[k,j] where k <= i",
    "terms from the column": "C[i,j] += A[i,k] * B[k,j] where k >= j",
    "terms between": "C[i,j] += A[i,k] * B[k,j] where j <= k and k <= i",
    "terms from the next row on": "C[i,j] += A[k,i] * B[k,j] where k > i",
    "a band": "C[i,j] += A[i,k] * B[k,j] where i - 9 <= j and j <= i + 11",
    "a batch": "C[b,i,j] += X[b,i,k] * X[b,j,k] where i <= j",
}


def bound(text: str, n: int, m: int):  # type: ignore[no-untyped-def]
    types = {"X": f"f32[2,{n},{m}]"} if "X" in text else {"A": f"f32[{n},{m}]"}
    if "where k" in text or "B[" in text:
        types = {"A": f"f32[{n},{n}]", "B": f"f32[{n},{n}]"}
    if "-> C" in text:
        types = {"C": "f32[21,21]", "A": "f32[21,5]"}
    return case(text, **types)


@pytest.mark.parametrize("name", TRIANGLES)
@pytest.mark.parametrize(("n", "m", "native"), [(21, 5, True), (8, 3, False)])
def test_triangles_give_what_the_plain_interpreter_gives(name: str, n: int, m: int, native: bool) -> None:
    found = bound(TRIANGLES[name], n, m)
    scop, schedule = found.automatic(target(SMALL))
    assert_same(found, scop, schedule, native=native)


@pytest.mark.parametrize("name", ["lower", "strictly upper", "of one operand", "greatest"])
def test_tiles_that_a_border_crosses_are_computed_whole_and_only_results_are_stored(name: str) -> None:
    found = bound(TRIANGLES[name], 45, 5)
    scop, schedule = found.automatic(target(SMALL))
    assert any(WHOLE in note for note in map(str, schedule.notes))
    written = [s for s in scop.program.statements() if s.target in scop.program.outputs]
    elements = [read_set(s.domain).count_val().to_python() for s in written]
    shape = [int(e.value.real) for e in scop.program.tensor(scop.program.outputs[0]).shape]
    assert sum(elements) == shape[0] * shape[1]  # each element once: the results, and the identity elsewhere


def test_what_lies_far_apart_keeps_its_tests_instead_of_computing_what_nobody_asks_for() -> None:
    # Each row has a vector of its own: of 12 rows by 12 vectors 12 hold results.
    found = case("C[i,j] += A[i,k] * B[k,j] for i in 0:24, j in 0:192 where j // 8 == i", A="f32[24,3]", B="f32[3,192]")
    update = tuple(found.flat.statements())[-1]
    i, j = update.iterators[:2]
    assert whole_tiles(found.flat, update, ((i, 12, 0), (j, 8, 0)), (j, 8)) is None
    assert whole_tiles(found.flat, update, ((i, 4, 0), (j, 8, 0)), (j, 8)) is not None
    scop, schedule = found.automatic(target(SMALL))
    assert_same(found, scop, schedule)


def widened(where: str, n: int, rows: int, columns: int, lanes: int):  # type: ignore[no-untyped-def]
    """Return the elements that a product of n x n with tiles of rows x columns computes, and their parts by shape."""
    found = case(f"C[i,j] += A[i,k] * B[k,j] where {where}", A=f"f32[{n},3]", B=f"f32[3,{n}]")
    update = tuple(found.flat.statements())[-1]
    i, j = update.iterators[:2]
    tiles = (i, rows, 0), (j, columns, 0)
    whole = whole_tiles(found.flat, update, tiles, (j, lanes))
    assert whole is not None
    elements = read_set(whole.statement.domain).project_out(dim.set, 2, 1).reset_tuple_id()
    return elements, tile_parts(found.flat, elements, (i, j), tiles, Separation(grain=(j, lanes)))


def test_vectors_of_a_tile_without_a_result_are_left_out() -> None:
    elements, parts = widened("j <= i", 64, 4, 32, 8)
    assert elements.is_equal(read_set("{ [i, j] : 0 <= i < 64 and 0 <= j < 64 and 8*floor(j/8) <= 4*floor(i/4) + 3 }"))
    assert [p.is_own_shape for p in parts] == [True] * 4  # of one to four vectors
    shapes = [sorted({x // 8 % 4 for _, x in points(p.domain)}) for p in parts]
    assert sorted(shapes) == [[0], [0, 1], [0, 1, 2], [0, 1, 2, 3]]


@pytest.mark.parametrize(("rows", "shapes"), [(64, 4), (256, 2), (1024, 1)])
def test_tiles_have_fewer_shapes_where_that_computes_few_more_elements(rows: int, shapes: int) -> None:
    elements, parts = widened("j <= i", rows, 4, 32, 8)
    assert len(parts) == shapes
    least = sum(8 * ((4 * (i // 4) + 3) // 8 + 1) for i in range(rows))
    assert elements.count_val().to_python() <= least * (1 + 1 / 18)


def test_a_row_of_many_vectors_is_cut_to_few_shapes() -> None:
    elements, parts = widened("j <= i + 5 and i <= j + 5", 128, 4, 32, 4)
    assert 1 < len(parts) <= 5
    assert all(p.is_own_shape for p in parts)
    assert sum(len(points(p.domain)) for p in parts) == len(points(elements))


def test_elements_whose_operands_are_not_there_are_not_computed() -> None:
    found = case("C[i,j] += A[i-j,k] for i in 0:32, j in 0:32 where j <= i", A="f32[32,8]")
    update = tuple(found.flat.statements())[-1]
    assert whole_tiles(found.flat, update, ((update.iterators[0], 4, 0), (update.iterators[1], 8, 0))) is None
    box = case("C[i,j] += A[i,k] * B[k,j]", A="f32[32,8]", B="f32[8,32]")
    assert whole_tiles(box.flat, tuple(box.flat.statements())[-1], (("i0", 4, 0), ("i1", 8, 0))) is None


STEPS = "f(C: f32[32,32], A: f32[9,32,4], D: f32[9,32,32]) -> C:\n    for t in 0:9:\n        C[i,j] += {} where j <= i"


@pytest.mark.parametrize(
    ("term", "found"),
    [
        ("A[t,i,k] * A[t,j,k] + D[t,i,0]", True),
        ("A[t,i,k] * A[t,j,k] * D[t,i,j]", False),  # nothing else reads the elements of D beyond the border
        ("A[t,i,k] * D[t+0,j,0] * D[t,i,0]", True),
    ],
)
def test_in_a_time_loop_tiles_are_whole_where_they_read_what_results_read(term: str, found: bool) -> None:
    bound = case(STEPS.format(term), C="f32[32,32]", A="f32[9,32,4]", D="f32[9,32,32]")
    update = tuple(bound.flat.statements())[-1]
    tiles = tuple((i, size, 0) for i, size in zip(update.iterators[1:3], (4, 8), strict=True))
    whole = whole_tiles(bound.flat, update, tiles, (update.iterators[2], 4))
    assert (whole is not None) == found
    scop, schedule = bound.automatic(target(SMALL))
    assert_same(bound, scop, schedule, native=True)


def test_in_a_time_loop_tiles_are_not_whole_where_they_would_read_what_results_write() -> None:
    bound = case(STEPS.format("C[j,i] * A[t,i,k] * D[t,i,0]"), C="f32[32,32]", A="f32[9,32,4]", D="f32[9,32,32]")
    update = tuple(bound.flat.statements())[-1]
    tiles = tuple((i, size, 0) for i, size in zip(update.iterators[1:3], (4, 8), strict=True))
    assert whole_tiles(bound.flat, update, tiles, (update.iterators[2], 4)) is None


def test_a_step_of_a_time_loop_has_no_elements_beyond_its_own_rows() -> None:
    """The results of a step end with it: rows of the tile behind them are no elements, and not computed."""
    text = "f(C: f32[40,40], A: f32[40,3]) -> C:\n    for t in 0:9:\n        C[i,j] += A[i,k] * A[j,k] where j <= i and i < 4*t+3"
    bound = case(text, C="f32[40,40]", A="f32[40,3]")
    update = tuple(bound.flat.statements())[-1]
    i, j = update.iterators[1:3]
    whole = whole_tiles(bound.flat, update, ((i, 4, 0), (j, 8, 0)), (j, 4))
    assert whole is None or all(x < 4 * t + 3 for t, x, *_ in points(read_set(whole.statement.domain)))
    scop, schedule = bound.automatic(target(SMALL))
    assert_same(bound, scop, schedule, native=True)


def test_terms_that_all_results_of_a_tile_have_are_told_from_the_others() -> None:
    flat = case("C[i,j] += A[i,k] * B[k,j] where k <= i", A="f32[8,8]", B="f32[8,8]").flat
    update = tuple(flat.statements())[-1]
    i, j = update.iterators[:2]
    found = common_terms(flat, update, ((i, 4, 0), (j, 8, 0)))
    assert found is not None
    every = read_set(f"{{ {update.name}[i, j, k] : 0 <= i, j, k < 8 and k <= 4*floor(i/4) }}")
    assert found[0].is_equal(every)
    assert found[1].is_equal(read_set(update.domain).subtract(every))
    box = case("C[i,j] += A[i,k] * B[k,j]", A="f32[8,8]", B="f32[8,8]").flat
    assert common_terms(box, tuple(box.statements())[-1], ((i, 4, 0), (j, 8, 0))) is None


@pytest.mark.parametrize("text", ["C[i,j] += A[i,k] * A[j,k] where j <= i", "C[i,j] += A[k,i] * A[k,j] where j >= i"])
def test_a_tile_of_few_vectors_is_read_from_registers(text: str) -> None:
    # The lanes of a vector lie in one row of the accumulators, however many of them are results.
    kernel = pk.op(text).compile(pk.f32[240, 240], target="cpu:x86-64-v4")
    assert "gather" not in kernel.source("llvm")


def test_tiles_that_lie_on_a_line_keep_their_vectors() -> None:
    # Of tiles of 8 x 16 one vector has a result where the first row is the first column: isl would call that one index.
    elements, _ = widened("j <= i", 64, 8, 16, 8)
    assert elements.is_equal(
        read_set("{ [i, j] : 0 <= i < 64 and 0 <= j < 64 and 16*floor(j/16) <= 8*floor(i/8) + 7 }")
    )
