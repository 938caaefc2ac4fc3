"""Recurrences: free loops where memory wants them, chains side by side, and every sum in the order of the text."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polyker as pk
from polyker.codegen.llvm.jit.detect import target
from tests.schedule.support import SMALL, assert_same, case

ROWS = "f(S: f32[B,T], X: f32[B,T]) -> S:\n    S[b,t] = S[b,t-{d}] * X[b,t] + X[b,t-1]  for t in {d}:T, b in 0:B"
MIDDLE = "f(S: f32[B,T,C], X: f32[B,T,C]) -> S:\n    S[b,t,c] = S[b,t-1,c] + X[b,t,c]  for t in 1:T, b in 0:B, c in 0:C"
DOUBLE = "f(S: f32[T,U,C], X: f32[T,U,C]) -> S:\n S[t,u,c] = S[t-1,u,c] + S[t,u-1,c] + X[t,u,c]  for t in 1:T, u in 1:U, c in 0:C"


@given(rows=st.integers(1, 20), steps=st.integers(1, 40), distance=st.integers(1, 6), symbolic=st.booleans())
@settings(max_examples=6, deadline=None)
def test_a_recurrence_along_rows_keeps_its_order(rows: int, steps: int, distance: int, symbolic: bool) -> None:
    steps = max(steps, distance)
    rng = np.random.default_rng(rows * 100 + steps)
    start, X = (rng.standard_normal((rows, steps)).astype("f4") for _ in range(2))
    wanted = start.copy()
    for t in range(distance, steps):
        wanted[:, t] = wanted[:, t - distance] * X[:, t] + X[:, t - 1]
    operator = pk.op(ROWS.format(d=distance))
    kind = pk.f32["B", "T"] if symbolic else pk.f32[rows, steps]
    assert np.array_equal(operator.compile(S=kind, X=kind)(start, X), wanted)


@pytest.mark.parametrize("shape", [(3, 7, 5), (2, 9, 33), (17, 4, 1)])
def test_a_recurrence_in_the_middle_keeps_its_order(shape: tuple[int, int, int]) -> None:
    rng = np.random.default_rng(1)
    start, X = (rng.standard_normal(shape).astype("f4") for _ in range(2))
    wanted = start.copy()
    for t in range(1, shape[1]):
        wanted[:, t] = wanted[:, t - 1] + X[:, t]
    assert np.array_equal(pk.op(MIDDLE)(start, X), wanted)


def test_two_recurrences_keep_their_order() -> None:
    rng = np.random.default_rng(2)
    start, X = (rng.standard_normal((4, 5, 19)).astype("f4") for _ in range(2))
    wanted = start.copy()
    for t in range(1, 4):
        for u in range(1, 5):
            wanted[t, u] = wanted[t - 1, u] + wanted[t, u - 1] + X[t, u]
    assert np.array_equal(pk.op(DOUBLE)(start, X), wanted)


def test_the_loops_of_a_recurrence_keep_the_order_of_the_text_against_that_of_memory() -> None:
    text = (
        "f(S: f32[U,T,C], X: f32[U,T,C]) -> S:\n S[u,t,c] = S[u+1,t-1,c] + X[u,t,c]  for t in 1:T, u in 0:U-1, c in 0:C"
    )
    rng = np.random.default_rng(3)
    start, X = (rng.standard_normal((5, 7, 9)).astype("f4") for _ in range(2))
    wanted = start.copy()
    for t in range(1, 7):
        wanted[:-1, t] = wanted[1:, t - 1] + X[:-1, t]
    kernel = pk.op(text).compile(start, X)
    assert np.array_equal(kernel(start, X), wanted)
    assert "plainer" not in kernel.source("schedule")


def loops(text: str, *shape: int) -> list[tuple[str, str]]:
    """Return the kinds and labels of the schedule's loops, outermost first."""
    kind = pk.f32[shape]
    lines = (line.split() for line in pk.op(text).compile(S=kind, X=kind).source("schedule").splitlines())
    return [(w[0].split("(")[0], w[1].partition(".")[2]) for w in lines if w[0].startswith(("for", "unroll", "vector"))]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    with pk.options(threads=1):
        yield


def test_the_recurrence_is_innermost_with_rows_side_by_side() -> None:
    assert loops(ROWS.format(d=5), 60, 1000) == [("for", "tile"), ("for", ""), ("unroll", "point")]


def test_a_free_contiguous_loop_is_the_vector() -> None:
    assert loops(MIDDLE, 20, 30, 32)[-1] == ("vector", "lanes")


@pytest.mark.parametrize("text", [ROWS.format(d=1), ROWS.format(d=4)])
def test_the_loop_loads_nothing_that_it_stored(text: str) -> None:
    kind = pk.f32[60, 1000]
    asm = pk.op(text).compile(S=kind, X=kind).source("llvm")
    body = asm[asm.rindex("phi i64") :]
    stored = next(line for line in body.splitlines() if "store " in line and "!alias.scope" in line)
    scope = stored[stored.index("!alias.scope") :].split(",")[0]
    assert not any(" load " in line and scope in line for line in body.splitlines())


@pytest.mark.parametrize(
    ("mode", "across", "order"),
    [
        ("0", "j", "depends on itself"),
        ("edge", "j", "depends on itself"),
        ("edge", "j+1", "the order of the text is kept"),  # needs what is to the right, too
    ],
)
def test_a_recurrence_that_is_padded_before_its_first_element_is_free_across_the_others(
    mode: str, across: str, order: str
) -> None:
    text = "f(X: f32[9,7]) -> Y: f32[9,7]:\n"
    text += f"    Y[i,j] = X[i,j] + Y[i-1,{across}; pad={mode}] * 2 - Y[i-2,j; pad=0]  for i in 0:9, j in 0:7"
    if mode == "edge":  # before the first element is the first element: read before it is written
        text = text.replace("Y: f32[9,7]:", "Y:").replace("f(X", "f(Y: f32[9,7], X")
    found = case(text, **dict.fromkeys("YX" if mode == "edge" else "X", "f32[9,7]"))
    scop, schedule = found.automatic(target(SMALL))
    assert any(order in note for note in map(str, schedule.notes))
    assert_same(found, scop, schedule)


@pytest.mark.parametrize(("rows", "steps"), [(2, 3), (3, 7), (17, 33)])
def test_a_tile_of_chains_whose_shape_changes_on_the_way_is_taken_in_order(
    rows: int, steps: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Each step leaves out another chain: the whole rows of a tile must not pass before the others."""
    rng = np.random.default_rng(5)
    X, V = rng.integers(-2, 3, (rows, steps)) / 4, (rng.integers(-2, 3, 3 * rows) / 4)[::-3]
    wanted = np.ones(rows)
    for i in range(rows):
        for j in (j for j in range(steps) if j != i):
            wanted[rows - 1 - i] += X[i, j] * wanted[rows - 1 - i] + V[i]
    element = f"T[{rows - 1}-i]"
    where = f"for i in 0:{rows}, j in 0:{steps} where j != i"
    chains = pk.op(
        f"f(X: f64[{rows},{steps}], V: f64[{rows}], T: f64[{rows}]) -> T:\n    {element} += X[i,j]*{element} + V[i] {where}"
    )
    with caplog.at_level(logging.INFO, "polyker"):
        np.testing.assert_allclose(chains(X=X, V=V, T=np.ones(rows)), wanted, rtol=1e-12)
    assert not caplog.records  # the proof refused no schedule
