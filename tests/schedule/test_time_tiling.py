"""Stencils over many time steps: tiles of time and space give what the plain interpreter gives, whatever their sizes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polyker as pk
from polyker.codegen.llvm.jit.detect import target
from polyker.ir.typed import TypedLoop, TypedStatement
from polyker.machine.model import Cache
from polyker.schedule.legality.prove import prove
from polyker.schedule.time import cost as time_cost
from polyker.schedule.time.cost import TimeCosts, TimeTiles
from polyker.schedule.time.skew import Front, distances, fronts, places_of
from polyker.structs import replace
from tests.schedule.support import SMALL, Case, assert_same, case

TINY = replace(target(SMALL), caches=(Cache(256), Cache(1024), Cache(4096)))
# Its second cache holds a dozen rows.
ROWS = replace(target(SMALL), name="cpu:rows", caches=(Cache(1 << 11), Cache(1 << 14), Cache(1 << 15)))
AXES = "ijk"


def ranges(rank: int, lo: int, hi: int) -> str:
    return ", ".join(f"{AXES[d]} in {lo}:{'NMK'[d]}-{hi}" for d in range(rank))


def element(tensor: str, rank: int, offset: tuple[int, ...] = ()) -> str:
    places = [f"{AXES[d]}{o:+d}" if o else AXES[d] for d, o in enumerate(offset or (0,) * rank)]
    return f"{tensor}[{','.join(places)}]"


@st.composite
def stencils(draw: st.DrawFn) -> Case:
    """A time loop over one to three fields that read each other at distances up to two, in one of several forms."""
    rank = draw(st.sampled_from([1, 1, 2, 2, 2, 3]))
    reach = draw(st.sampled_from([1, 1, 2]))
    form = draw(st.sampled_from(["copied back", "to and fro", "in place", "fields", "padded", "border"]))
    count = draw(st.integers(1, 3)) if form in ("fields", "copied back") else 1
    fields = ["A", "C", "D"][:count]

    def term(names: list[str]) -> str:
        offsets = st.tuples(*[st.integers(-reach, reach)] * rank)
        found = [element(draw(st.sampled_from(names)), rank, draw(offsets)) for _ in range(draw(st.integers(1, 4)))]
        signs = [draw(st.sampled_from([" + ", " - "])) for _ in found]
        source = draw(st.sampled_from(["", " + t", " - q[t]"]))
        return "".join(s + f for s, f in zip(signs, found, strict=True)).removeprefix(" + ").strip() + source

    inside = ranges(rank, reach, reach)
    body: list[str] = []
    match form:
        case "copied back":
            body += [f"{element('new' + f, rank)} = {term(fields)}  for {inside}" for f in fields]
            body += [f"{element(f, rank)} = {element('new' + f, rank)}  for {inside}" for f in fields]
        case "to and fro":
            fields = ["A", "C"]
            body += [
                f"{element('C', rank)} = {term(['A'])}  for {inside}",
                f"{element('A', rank)} = {term(['C'])}  for {inside}",
            ]
        case "in place" | "fields":
            body += [f"{element(f, rank)} = {term(fields)}  for {inside}" for f in fields]
        case "padded":
            pads = [element("A", rank, tuple(draw(st.integers(-reach, reach)) for _ in range(rank))) for _ in range(2)]
            reads = " + ".join(p.replace("]", "; pad=1]") for p in pads)
            body += [
                f"{element('new', rank)} = {reads}  for {ranges(rank, 0, 0)}",
                f"{element('A', rank)} = {element('new', rank)}",
            ]
        case "border":
            first = element("A", rank).replace("[i", "[0")
            second = element("A", rank).replace("[i", f"[{draw(st.integers(1, 2))}")
            others = ranges(rank, 0, 0).split(", ", 1)[1:]
            body.append(f"{first} = {second} + 1" + (f"  for {others[0]}" if others else ""))
            body.append(f"{element('A', rank)} = {term(['A'])}  for {inside}")
    shape = ",".join("NMK"[:rank])
    kind = draw(st.sampled_from(["f32", "f64", "i64"]))
    head = ", ".join(f"{f}: {kind}[{shape}]" for f in fields)
    text = f"f({head}, q: {kind}[T]) -> {', '.join(fields)}:\n    for t in 0:T:\n" + "".join(
        f"        {b}\n" for b in body
    )
    sizes = [draw(st.sampled_from([4, 5, 7, 12] if d < rank - 1 else [4, 5, 8, 13, 32, 37])) for d in range(rank)]
    types = {p.split(": ")[0]: p.split(": ")[1].split("[")[0] + f"{sizes}".replace(" ", "") for p in head.split(", ")}
    steps = draw(st.sampled_from([0, 1, 2, 3, 6, 9]))
    if "q[" not in text:
        text = text.replace(f", q: {kind}[T])", ", T)")
        return case(text, **types, T=steps)
    return case(text, **types, q=f"{kind}[{max(1, steps)}]")


@given(stencils(), st.data())
@settings(max_examples=6, deadline=None)
def test_tiles_of_any_size_keep_the_values(found: Case, data: st.DataObject) -> None:
    def drawn(costs: TimeCosts) -> TimeTiles | None:
        sizes = []
        for front in costs.fronts:
            unit = costs.vector[1] if costs.vector and costs.vector[0] == front.dimension else 1
            sizes.append((front, unit * data.draw(st.sampled_from([0, 1, 2, 3, 5]))))
        cut = tuple((f, n) for f, n in sizes if n)
        return TimeTiles(data.draw(st.integers(1, 7)), cut) if cut else None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TimeCosts, "best", drawn)
        scop, schedule = found.automatic(TINY)
    prove(scop, schedule)
    assert_same(found, scop, schedule, native=data.draw(st.booleans()))


HEAT = """
heat(A: f64[N,M], steps) -> A:
    for t in 0:steps:
        B[i,j] = 0.25 * (A[i-1,j] + A[i+1,j] + A[i,j-1] + A[i,j+1])  for i in 1:N-1, j in 1:M-1
        A[i,j] = B[i,j]                                              for i in 1:N-1, j in 1:M-1
"""


def plain(start: np.ndarray, steps: int) -> np.ndarray:
    A = start.copy()
    for _ in range(steps):
        A[1:-1, 1:-1] = 0.25 * (A[:-2, 1:-1] + A[2:, 1:-1] + A[1:-1, :-2] + A[1:-1, 2:])
    return A


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 10, 25])
@pytest.mark.parametrize("shape", [(3, 3), (2, 9), (40, 3), (55, 70)])
def test_steps_that_are_copied_back_keep_their_bits(
    shape: tuple[int, int], steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time_cost, "GAIN", 0.0)
    start = np.random.default_rng(1).standard_normal(shape)
    found = pk.op(HEAT, steps=steps).compile(start, target=ROWS)
    assert np.array_equal(found(start), plain(start, steps))


@pytest.mark.parametrize("shape", [(40, 70), (99, 40)])
def test_a_kernel_for_any_number_of_steps_is_tiled_and_keeps_the_bits(
    shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time_cost, "GAIN", 0.0)
    start = np.random.default_rng(1).standard_normal(shape)
    kernel = pk.op(HEAT).compile(A=pk.f64[shape], target=ROWS)
    assert "run in one part of space" in kernel.source("schedule")
    for steps in (0, 1, 2, 3, 8, 33):
        assert np.array_equal(kernel(start, steps=steps), plain(start, steps)), steps


def test_time_is_tiled_where_a_step_touches_more_than_the_second_cache_and_not_where_less() -> None:
    large, small = (pk.op(HEAT, steps=50).compile(A=pk.f64[n, n], target=SMALL).source("schedule") for n in (1500, 60))
    assert "steps of t run in one part of space" in large
    assert "run in one part of space" not in small


def front_of(text: str, units: dict[int, int] | None = None, **types: str | int) -> tuple[Front, ...]:
    found = case(text, **types)
    loop = next(n for n in found.flat.body if isinstance(n, TypedLoop))
    places = places_of(tuple(n for n in loop.body if isinstance(n, TypedStatement)))
    assert places is not None
    apart = distances(places)
    assert apart is not None
    return fronts(places, apart, units)


COPIED = """
f(A: f64[N], s) -> A:
    for t in 0:s:
        B[i] = A[i-1] + A[i+1] for i in 1:N-1
        A[i] = B[i]            for i in 1:N-1
"""
SEIDEL = """
f(A: f64[N,N], s) -> A:
    for t in 0:s:
        A[i,j] = A[i-1,j+1] + A[i+1,j] + A[i,j-1] for i in 1:N-1, j in 1:N-1
"""
ANYWHERE = """
f(A: f64[N], s) -> A:
    for t in 0:s:
        B[i] = A[i] + A[N-1-i]
        A[i] = B[i]
"""


def test_a_copy_back_runs_one_element_behind_and_a_step_two() -> None:
    assert front_of(COPIED, A="f64[9]", s=4) == (Front(0, 2, (0, 1)),)


def test_skew_and_shifts_may_be_multiples_of_a_vector() -> None:
    assert front_of(COPIED, {0: 4}, A="f64[9]", s=4) == (Front(0, 8, (0, 4)),)


def test_a_stencil_in_place_has_no_front_along_what_its_steps_go_back() -> None:
    assert front_of(SEIDEL, A="f64[9,9]", s=4) == (Front(0, 1, (0,)),)


def test_space_whose_elements_depend_on_far_ones_has_no_front() -> None:
    assert front_of(ANYWHERE, A="f64[99]", s=4) == ()
