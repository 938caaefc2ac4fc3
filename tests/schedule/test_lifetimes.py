"""Temporaries that share memory: which may, and that results stay right."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polyker as pk
from polyker.einsum_frontend import parse
from polyker.ir.dtypes import TensorType
from polyker.ir.typed import TypedProgram
from polyker.poly.binding.bind import bind
from polyker.runtime.memory import arena
from polyker.schedule.nests.text_order import default_schedule
from polyker.schedule.threads.lifetimes import Uses, never_together, uses_of
from tests.artifacts import compiled_of, compiled_to

f32 = pk.f32


def bound(text: str, **types: TensorType) -> TypedProgram:
    return bind(parse(text), types)


def pairs(typed: TypedProgram) -> list[tuple[Uses, Uses, bool]]:
    return list(never_together(typed, uses_of(typed, default_schedule(typed).tree)))


def scratch_bytes(text: str, **arrays: np.ndarray) -> tuple[int, int, int]:
    """Return the bytes of the arena, of all temporaries in memory, and their number, of a call that is checked."""
    operator = pk.op(text)
    kernel = operator.compile(**arrays)
    kernel(**arrays)
    artifact = compiled_to(kernel)
    (plan,) = compiled_of(kernel).plans.values()
    sizes = [int(np.prod([int(e.value) for e in t.shape])) * t.dtype.itemsize for t in artifact.scratch]
    return plan.scratch_size, sum(sizes), len(sizes)


CHAIN = """
A[i] = exp(X[i]);         B[i] = tanh(A[i] + A[{n} - 1 - i])
C[i] = exp(B[i] - X[i]);  D[i] = tanh(C[i] + C[{n} - 1 - i] + B[i])
E[i] = exp(D[i]);         O[i] = E[i] + E[{n} - 1 - i] + X[i]
"""


def chained(x: np.ndarray) -> np.ndarray:
    a = np.exp(x)
    b = np.tanh(a + a[::-1])
    c = np.exp(b - x)
    e = np.exp(np.tanh(c + c[::-1] + b))
    return e + e[::-1] + x


def test_temporaries_in_use_one_after_another_share_memory() -> None:
    rng = np.random.default_rng(0)
    x = rng.random(300_001, "f4")
    arena_bytes, all_bytes, count = scratch_bytes(CHAIN.format(n=x.size), X=x)
    assert count >= 3
    assert arena_bytes < all_bytes
    np.testing.assert_allclose(pk.op(CHAIN.format(n=x.size))(x), chained(x), rtol=1e-5)


def test_of_symbolic_sizes_they_share_it_by_the_sizes_of_the_call() -> None:
    text = CHAIN.format(n="N").replace("exp(X[i]);", "exp(X[i]) for i in 0:N;")
    kernel = pk.op(text).compile(X=pk.f32["N"])
    for n in (1, 1000, 70_000):
        x = np.linspace(0, 1, n, dtype="f4")
        np.testing.assert_allclose(kernel(x), chained(x), rtol=1e-5)
    stored = len(compiled_to(kernel).scratch)
    for n, plan in zip((1, 1000, 70_000), compiled_of(kernel).plans.values()):
        assert 0 < plan.scratch_size < stored * ((4 * n + 63) & -64)


def test_one_after_another_means_in_one_run_of_the_loops_around() -> None:
    typed = bound("A[t] = X[t]; O[t] = A[t] * A[t]; B[t] = X[t] * 2; P[t] = B[t] * B[t]", X=f32[8])
    names = {typed.tensor(u.tensor).label for *pair, _ in pairs(typed) for u in pair}
    assert {"A", "B"} <= names
    loop = """
    f(X: f32[8]) -> O, P:
        for t in 0:8:
            A[t] = X[t]
            O[t] = A[t] * A[t]
            B[t] = X[t] * 2
            P[t] = B[t] * B[t]
    """
    typed = bound(loop, X=f32[8])
    assert not any({typed.tensor(u.tensor).label for u in pair} == {"A", "B"} for *pair, _ in pairs(typed))


def test_a_temporary_takes_the_place_of_the_one_it_is_computed_from_element_by_element() -> None:
    def together(text: str) -> bool:
        typed = bound(text, X=f32[8])
        return not any({typed.tensor(u.tensor).label for u in pair} == {"A", "B"} for *pair, _ in pairs(typed))

    assert not together("A[i] = X[i]; B[i] = A[i] + 1; O[i] = B[i]")
    assert together("A[i] = X[i]; B[i] = A[7 - i] + 1; O[i] = B[i]")
    assert together("A[i] = X[i]; B[i] = A[i] + A[0]; O[i] = B[i]")
    assert together("A[i] = X[i]; B[i] = A[i] + 1; O[i] = B[i] + A[i]")
    assert together("A[i] = X[i]; B[i] = f64(A[i]); O[i] = B[i]")
    assert together("A[i] = X[i]; B[i] += A[i] * X[j]; O[i] = B[i]")


def test_what_lives_through_the_steps_of_a_loop_shares_nothing() -> None:
    text = """
    walk(X: f32[N], steps) -> Y:
        A[i] = X[i]  for i in 0:N
        B[i] = X[i]  for i in 0:N
        for t in 0:steps:
            A[i] = A[i] + B[N - 1 - i]  for i in 0:N
            B[i] = B[i] + A[N - 1 - i]  for i in 0:N
        Y[i] = A[i] + B[i]
    """
    x = np.arange(257, dtype="f4")
    a, b = x.copy(), x.copy()
    for _ in range(5):
        a = a + b[::-1]
        b = b + a[::-1]
    np.testing.assert_array_equal(pk.op(text)(x, steps=5), a + b)


@given(st.lists(st.integers(0, 500), max_size=7), st.data())
def test_an_arena_keeps_apart_what_is_alive_together(sizes: list[int], data: st.DataObject) -> None:
    pairs = [frozenset(p) for p in itertools.combinations(range(len(sizes)), 2)]
    kinds = {p: data.draw(st.sampled_from(["alive", "apart", "in place"])) for p in pairs}
    apart, in_place = ({p for p in pairs if kinds[p] == kind} for kind in ("apart", "in place"))
    offsets, total = arena(sizes, apart, in_place)
    assert all(o % 64 == 0 for o in offsets)
    ends = [o + s for o, s in zip(offsets, sizes)]
    assert max(ends, default=0) <= total <= sum((s + 63) & -64 for s in sizes)
    for pair in set(pairs) - apart:
        a, b = pair
        same = pair in in_place and offsets[a] == offsets[b]
        assert same or ends[a] <= offsets[b] or ends[b] <= offsets[a]


def test_what_replaces_another_element_by_element_begins_where_that_began() -> None:
    both = frozenset((1, 2))
    assert arena([300, 200, 200], set(), {both}) == ((0, 320, 320), 576)
    # Where it cannot begin there it has memory of its own, though a part of the other's would do.
    assert arena([300, 200, 200], {frozenset((0, 1))}, {both})[0] == (0, 0, 320)


@pytest.mark.parametrize(("sizes", "total"), [([], 0), ([64], 64), ([1, 1], 128)])
def test_an_arena_is_no_larger_than_it_must_be(sizes: list[int], total: int) -> None:
    assert arena(sizes, set())[1] == total


@st.composite
def chains(draw: st.DrawFn) -> str:
    """Draw a program of temporaries of one shape, each computed from some before it, at the same element or another."""
    names = ["X"]
    lines = []
    for n in range(draw(st.integers(3, 7))):
        terms = []
        for _ in range(draw(st.integers(1, 2))):
            source = draw(st.sampled_from(names[-3:]))
            terms.append(source + draw(st.sampled_from(["[i,j]", "[i,j]", "[i,j]", "[6 - i,j]", "[i,8 - j]", "[i,0]"])))
        update = draw(st.sampled_from(["=", "=", "="] if n % 3 else ["=", "+="]))
        ranges = "  for i in 0:7, j in 0:9"
        lines.append(f"T{n}[i,j] {update} {' - '.join(terms)}" + (f" + X[i,k]{ranges}" if update == "+=" else ranges))
        names.append(f"T{n}")
    unread = [n for n in names[1:] if sum(line.count(f"{n}[") for line in lines) == 1]
    lines.append("O[i,j] = X[i,j] * 2" + "".join(f" + {n}[i,j]" for n in unread) + "  for i in 0:7, j in 0:9")
    return "\n".join(lines)


@settings(max_examples=6, deadline=None)
@given(chains())
def test_programs_whose_temporaries_are_all_in_memory_give_the_interpreters_values(text: str) -> None:
    x = np.random.default_rng(0).integers(-9, 10, (7, 9)).astype("f8")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        operator = pk.op(text)
        kernel = operator.compile(x, schedule=operator.schedule(x, auto=False))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("POLYKER_INTERPRET", "1")
        wanted = operator(x)
    np.testing.assert_array_equal(kernel(x), wanted)
