"""Statements whose outer iterators carry all that they depend on: the inner ones are vectorised as those of a time loop."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polyker as pk
from polyker.codegen.llvm.jit.detect import target
from polyker.ir.typed import TypedLoop
from polyker.machine.model import Target
from polyker.rewrite.time.make_time_loops import as_steps
from polyker.schedule.legality.prove import prove
from polyker.schedule.tree.nodes import MemberKind, loops
from tests.schedule.support import SMALL, Case, assert_same, case
from tests.schedule.test_time_tiling import TINY

WAVE = (
    "f(U: f32[T,N,M]) -> U:\n    U[t,i,j] = 2 * U[t-1,i,j] - U[t-2,i,j] + 0.5 * (U[t-1,i-1,j] + U[t-1,i,j+1])"
    "  for t in 2:T, i in 1:N, j in 0:M-1"
)

BATCH = "f(U: f32[B,T,N]) -> U:\n    U[b,t,i] = U[b,t-1,i-1] + U[b,t-1,i] for "


@pytest.mark.parametrize(
    ("text", "types", "found"),
    [
        (WAVE, {"U": "f32[5,20,70]"}, 1),
        (BATCH + "t in 1:T, i in 1:N", {"U": "f32[3,5,70]"}, 1),
        (BATCH + "b in 0:B, t in 1:T, i in 1:N", {"U": "f32[3,5,70]"}, 2),
        ("f(U: f64[T,N]) -> U:\n    U[t,i] = U[t-1,i-1] + U[t-1,i] for t in 1:T, i in 1:t", {"U": "f64[40,40]"}, 1),
        ("f(U: f64[T,N]) -> U:\n    U[t,i] = U[t-1,i-1; pad=wrap] for t in 1:T, i in 0:N", {"U": "f64[9,40]"}, 1),
        ("f(U: f64[T,N]) -> U:\n    U[t,i] = U[t-1,i-1; pad=wrap] for t in 0:T, i in 0:N", {"U": "f64[9,40]"}, 0),
        ("f(U: f64[T,N]) -> U:\n    U[t,i] = U[t-1,i-1] + U[t,i-1] for t in 1:T, i in 1:N", {"U": "f64[9,40]"}, 0),
        ("f(U: f64[T,N]) -> U:\n    U[t,i] = U[t-1,i] + 1 for t in 1:T", {"U": "f64[9,40]"}, 0),  # i is free anyway
        ("f(U: f64[B,T]) -> U:\n    U[b,t] = U[b,t-1] + 1 for t in 1:T", {"U": "f64[9,40]"}, 0),  # a scan
    ],
)  # fmt: skip
def test_the_loops_that_carry_all_are_written_out(text: str, types: dict[str, str], found: int) -> None:
    (node,) = as_steps(case(text, **types).typed).body
    count = 0
    while isinstance(node, TypedLoop):
        count += 1
        (node,) = node.body
    assert count == found


def test_the_elements_of_a_step_are_computed_in_vectors() -> None:
    scop, schedule = case(WAVE, U="f32[5,20,70]").automatic(TINY)
    assert any(m.kind is MemberKind.VECTOR for m in loops(schedule.tree))
    prove(scop, schedule)


@st.composite
def histories(draw: st.DrawFn) -> Case:
    """A tensor with all its steps, each element made of elements of steps before it, in the order of time or with it inside."""
    far = draw(st.integers(0, 2))
    pad = draw(st.sampled_from(["", "; pad=3", "; pad=edge", "; pad=wrap", "; pad=reflect"]))
    near = 0 if pad else far
    offset = st.tuples(st.integers(-2, -1), st.integers(-far, far), st.integers(-far, far))
    terms = " + ".join(f"A[t{a:+d},i{b:+d},j{c:+d}{pad}]" for a, b, c in draw(st.lists(offset, min_size=1, max_size=4)))
    order = draw(st.permutations(["t in 2:T", f"i in {near}:N-{near}", f"j in {near}:M-{near}"]))
    text = f"f(A: i32[T,N,M]) -> A:\n    A[t,i,j] = {terms} - t  for {', '.join(order)}\n"
    shape = draw(st.integers(2, 6)), draw(st.integers(4, 9)), draw(st.sampled_from([4, 17, 40]))
    return case(text, A=f"i32{list(shape)}".replace(" ", ""))


@given(histories(), st.booleans(), st.sampled_from([TINY, target(SMALL)]))
@settings(max_examples=10, deadline=None)
def test_steps_keep_the_values(found: Case, native: bool, machine: Target) -> None:
    scop, schedule = found.automatic(machine)
    prove(scop, schedule)
    assert_same(found, scop, schedule, native=native)


def test_kernels_of_any_sizes_and_on_threads_give_the_same() -> None:
    start = np.random.default_rng(0).standard_normal((7, 33, 65)).astype("f4")
    wanted = start.copy()
    for t in range(2, 7):
        near = wanted[t - 1, :-1, :-1] + wanted[t - 1, 1:, 1:]
        wanted[t, 1:, :-1] = 2 * wanted[t - 1, 1:, :-1] - wanted[t - 2, 1:, :-1] + np.float32(0.5) * near
    for kernel in (pk.op(WAVE).compile(U=pk.f32["T", "N", "M"]), pk.op(WAVE).compile(start, threads=2)):
        np.testing.assert_allclose(kernel(start), wanted, rtol=1e-5)


@pytest.mark.parametrize(
    ("update", "value"),
    [
        ("D[i,j] min= D[i,k] + D[k,j]", "D[i,j] = minimum(D[i,j], D[i,k] + D[k,j])"),
        ("D[i,j] max= D[i,k] - D[k,j]", "D[i,j] = maximum(D[i,j], D[i,k] - D[k,j])"),
        ("D[i,j] += D[i,k] * D[k,j] / 64", "D[i,j] = D[i,j] + D[i,k] * D[k,j] / 64"),
        ("D[i,j] *= D[k,j] / 2 for i in k+1:N", "D[i,j] = D[i,j] * (D[k,j] / 2) for i in k+1:N"),
    ],
)
def test_an_update_by_one_term_in_a_step_is_what_it_sets_its_element_to(update: str, value: str) -> None:
    steps = "f(D: f64[N,N]) -> D:\n    for k in 0:N:\n        "
    found = [case(steps + text, D="f64[21,21]") for text in (update, value)]
    schedules = [str(f.automatic(target(SMALL))[1].tree) for f in found]
    assert schedules[0] == schedules[1]
    assert_same(found[0], *found[0].automatic(target(SMALL)), native=True)
