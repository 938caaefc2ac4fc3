"""Reductions over triangles and bands of symbolic sizes: whole tiles, terms that all results of a tile have."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polyker as pk
from polyker.api.kernel import Kernel
from polyker.poly.binding.bind import bind
from polyker.poly.isl import dim, read_set
from polyker.rewrite.indexing.whole_tiles import whole_tiles
from polyker.rewrite.normalise.extract_reductions import extract_reductions
from polyker.rewrite.normalise.start_reductions import start_reductions
from polyker.schedule.nests.tiles import Separation, tile_parts
from tests.artifacts import generated
from tests.covering import each
from tests.schedule.support import SMALL, case
from tests.schedule.test_triangles import TRIANGLES, WHOLE

STEPS = {
    "in a time loop": "f(A: f32[N,N], B: f32[N,N]) -> A:\n    for t in 0:3:\n"
    "        A[i,j] += B[i,k] * B[j,k] * t where j <= i",
    "a step's own results": "f(A: f32[N,N], B: f32[N,N]) -> A:\n    for t in 0:N//4:\n"
    "        A[i,j] += B[i,k] * B[j,k] where j <= i and i < 4*t+3",
}
TEXTS = {name: text for name, text in TRIANGLES.items() if "-> C" not in text} | STEPS
CLASSES = ["lower", "strictly upper", "terms up to the row", "a band", "in a time loop"]


def shapes(text: str, n: int | str, m: int | str) -> dict[str, tuple[int | str, ...]]:
    if "X" in text:
        return {"X": (2, n, m)}
    return {"A": (n, n), "B": (n, n)} if "B" in text else {"A": (n, m)}


@cache
def compiled(text: str, specialize: str, target: str = SMALL) -> Kernel:
    types = {name: pk.f32[shape] for name, shape in shapes(text, "N", "M").items()}
    return pk.op(text).compile(**types, target=target, specialize=specialize)


def assert_same_for(text: str, n: int, m: int, specialize: str) -> None:
    found = case(text, **{name: f"f32{list(s)}".replace(" ", "") for name, s in shapes(text, n, m).items()})
    results = compiled(text, specialize)(**found.arrays())
    (wanted,) = found.expected
    np.testing.assert_array_equal(results, wanted, f"{text} for {n} rows and {m} terms")


@pytest.mark.parametrize("name", TEXTS)
@given(n=st.integers(2, 36), m=st.integers(1, 9))
@settings(max_examples=3, deadline=None)
def test_a_kernel_for_all_sizes_gives_what_the_plain_interpreter_gives(name: str, n: int, m: int) -> None:
    assert_same_for(TEXTS[name], n, m, "never")


@pytest.mark.parametrize(("name", "n"), each(CLASSES, [33, 37, 40]))
def test_a_kernel_for_a_class_of_sizes_gives_what_the_plain_interpreter_gives(name: str, n: int) -> None:
    assert_same_for(TEXTS[name], n, 5, "auto")


def test_tiles_that_a_border_crosses_are_computed_whole() -> None:
    kernel = compiled(TEXTS["lower"], "never")
    assert WHOLE in generated(kernel, "schedule")


def test_whole_tiles_have_constant_shapes_but_where_an_end_of_the_results_cuts_them() -> None:
    program = pk.op("C[i,j] += A[i,k] * B[k,j] where j <= i").program
    typed = bind(program, {"A": pk.f32["N", "K"], "B": pk.f32["K", "N"]}, {})
    flat = start_reductions(extract_reductions(typed))
    update = tuple(flat.statements())[-1]
    i, j = update.iterators[:2]
    tiles = (i, 4, 0), (j, 32, 0)
    whole = whole_tiles(flat, update, tiles, (j, 8))
    assert whole is not None
    elements = read_set(whole.statement.domain).project_out(dim.set, 2, 1).reset_tuple_id()
    parts = tile_parts(flat, elements, (i, j), tiles, Separation(j, one_by_one=True, grain=(j, 8)))
    assert [p.is_own_shape for p in parts][-2:] == [False, False]
    assert all(p.is_own_shape for p in parts[:-2])
    union = parts[0].domain
    for part in parts[1:]:
        assert union.is_disjoint(part.domain)
        union = union.union(part.domain)
    assert union.is_equal(elements.intersect_params(read_set(flat.context)))


def test_terms_that_all_results_of_a_tile_have_come_first() -> None:
    schedule = generated(compiled(TEXTS["terms up to the row"], "never"), "schedule")
    assert schedule.count("for i2  {S0: i2}") + schedule.count("for i2  {S0: (i2 mod") > 1
