"""Inputs without NaN are seen to be so, and extrema then take no test; results are those of tests, whatever the inputs hold."""

from __future__ import annotations

import re
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polyker as pk
from polyker.codegen.ir.kernel import (
    Allocate,
    Buffer,
    Const,
    For,
    If,
    KernelIR,
    Load,
    LoopKind,
    Op,
    Space,
    Stmt,
    StmtBlock,
    Store,
    Var,
)
from polyker.codegen.ir.number_facts import ANYTHING, FINITE, May, facts, may
from polyker.codegen.ir.walk import names_in, statements, values_of
from polyker.codegen.llvm.jit.detect import target
from polyker.codegen.passes.x86.checked_inputs import checked
from polyker.cost.measure import measure
from polyker.cost.operation_cost import takes_pairs
from polyker.ir.layout import DENSE
from tests.artifacts import compiled_to
from tests.codegen.support import check_same
from tests.covering import pairs
from tests.schedule.support import case

TERMS = {
    "A[i,k] + B[k,j]": lambda a, b: a + b,
    "A[i,k] - B[k,j]": lambda a, b: a - b,
    "abs(A[i,k] - B[k,j])": lambda a, b: np.abs(a - b),
    "minimum(A[i,k], B[k,j])": np.minimum,
    "maximum(-A[i,k], B[k,j])": lambda a, b: np.maximum(-a, b),
    "A[i,k] * B[k,j]": lambda a, b: a * b,
    "where(A[i,k] < B[k,j], A[i,k], B[k,j] + 1)": lambda a, b: np.where(a < b, a, b + 1),
}
SPECIAL = (np.nan, -np.nan, np.inf, -np.inf)


def kernel(text: str, target_name: str = "cpu:x86-64-v4", **types: Any) -> Any:
    return compiled_to(pk.op(text).compile(**types, target=target_name, threads=1)).kernel


def branches(text: str, target_name: str = "cpu:x86-64-v4", **types: Any) -> list[tuple[int, int]]:
    """Return of each tile, and of its other form, how many extrema have a test and how many have none."""
    made = checked(kernel(text, target_name, **types), target(target_name))
    chosen = [s for s in statements(made.body) if isinstance(s, If) and "clean.0" in names_in(s.condition)]
    return [
        (_count(b, "maximum", "minimum"), _count(b, "larger", "smaller")) for s in chosen for b in (s.body, s.orelse)
    ]


def _count(block: StmtBlock, *ops: str) -> int:
    values = [e for s in statements(block) if isinstance(s, Store) for e in values_of(s.value)]
    return sum(isinstance(e, Op) and e.dtype.kind in "fb" and e.op in ops for e in values)


@pytest.mark.parametrize("level", ["v2", "v3", "v4"])
@pytest.mark.parametrize("text", ["C[i,j] max= A[i,k] + B[k,j]", "C[i,j] min= minimum(abs(A[i,k]), B[k,j])"])
def test_inputs_that_are_read_often_are_looked_through(text: str, level: str) -> None:
    found = branches(text, f"cpu:x86-64-{level}", A=pk.f32[200, 100], B=pk.f32[100, 300])
    assert found
    for free, tested in zip(found[::2], found[1::2], strict=True):
        assert free[0] == tested[1] == 0
        assert free[1] == tested[0] > 0


@pytest.mark.parametrize(
    ("text", "types"),
    [
        ("C[i,j] max= A[i,k] + B[k,j]", {"A": pk.f32[2, 100], "B": pk.f32[100, 300]}),  # each is read twice
        ("C[i] max= A[i,k]", {"A": pk.f32[200, 1000]}),
        ("C[i,j] max= A[i,k] / B[k,j]", {"A": pk.f32[200, 100], "B": pk.f32[100, 300]}),  # 0 / 0
        ("C[i,j] max= A[i,k] + B[k,j]", {"A": pk.i32[200, 100], "B": pk.i32[100, 300]}),
        ("C[i,j] += A[i,k] * B[k,j]", {"A": pk.f32[200, 100], "B": pk.f32[100, 300]}),
        ("S[i,k] = exp(A[i,k])\nC[i,j] max= S[i,k] + B[k,j]", {"A": pk.f32[200, 100], "B": pk.f32[100, 300]}),
    ],
)
def test_others_are_not(text: str, types: dict[str, Any]) -> None:
    assert branches(text, **types) == []


def test_symbolic_sizes_and_other_processors_stay() -> None:
    op = pk.op("C[i,j] max= A[i,k] + B[k,j]")
    made = compiled_to(op.compile(A=pk.f32["m", "k"], B=pk.f32["k", "n"], target="cpu:x86-64-v4", threads=1)).kernel
    assert checked(made, target("cpu:x86-64-v4")) is made
    found = kernel("C[i,j] max= A[i,k] + B[k,j]", A=pk.f32[200, 100], B=pk.f32[100, 300])
    assert checked(found, target("aarch64-linux-gnu")) is found


@pytest.mark.parametrize(("term", "dtype", "op"), pairs([*TERMS], ["f4", "f8"], ["max", "min"]))
def test_results_are_the_same_whatever_the_inputs_hold(term: str, dtype: str, op: str) -> None:
    rng = np.random.default_rng(len(term))
    A, B = rng.standard_normal((61, 40)).astype(dtype), rng.standard_normal((40, 83)).astype(dtype)
    run = pk.op(f"C[i,j] {op}= {term}")
    largest = np.finfo(dtype).max
    with np.errstate(all="ignore"):
        for a, b in product((0.0, largest, -largest, *SPECIAL), repeat=2):
            A[3, 7], A[50, 39], B[7, 5], B[0, 82] = a, a, b, b
            want = getattr(np, f"{op}imum").reduce(TERMS[term](A[:, :, None], B[None]), axis=1)
            np.testing.assert_array_equal(run(A, B), want, err_msg=f"{a} {b}")


@settings(deadline=None, max_examples=15)
@given(rows=st.integers(1, 90), columns=st.integers(1, 150), terms=st.integers(1, 60), seed=st.integers(0, 99))
def test_one_nan_anywhere_is_found(rows: int, columns: int, terms: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    A, B = rng.standard_normal((rows, terms)).astype("f4"), rng.standard_normal((terms, columns)).astype("f4")
    special = (A, B)[seed % 2]
    special[tuple(rng.integers(s) for s in special.shape)] = rng.choice(SPECIAL)
    with np.errstate(invalid="ignore"):
        want = np.max(A[:, :, None] + B[None], axis=1)
        np.testing.assert_array_equal(pk.op("C[i,j] max= A[i,k] + B[k,j]")(A, B), want)


@pytest.mark.parametrize("view", ["rows backwards", "every second column", "one row for all", "transposed", "batched"])
def test_views_are_looked_through(view: str) -> None:
    rng = np.random.default_rng(5)
    A, B = rng.standard_normal((64, 48)), rng.standard_normal((48, 96))
    text = "C[i,j] max= A[i,k] + B[k,j]"
    if view == "rows backwards":
        A = A[::-1]
    elif view == "every second column":
        B = rng.standard_normal((48, 192))[:, ::2]
    elif view == "one row for all":
        A = np.broadcast_to(A[:1], (64, 48))
    elif view == "transposed":
        A = np.ascontiguousarray(A.T).T
    else:
        text = "C[b,i,j] max= A[b,i,k] + B[k,j]"
        A = rng.standard_normal((3, 64, 48))
    for special in (0.5, np.nan, np.inf, -np.inf):
        B[11, 13] = special
        np.testing.assert_array_equal(pk.op(text)(A, B), np.max(A[..., None] + B, axis=-2))


@pytest.mark.parametrize("dtypes", [("f2", "f2"), ("f2", "f8"), ("f4", "f8"), ("i4", "f4"), ("f8", "u1")])
def test_mixed_types_are_looked_through(dtypes: tuple[str, str]) -> None:
    rng = np.random.default_rng(7)
    A, B = (rng.integers(0, 50, s).astype(d) for s, d in zip(((64, 48), (48, 96)), dtypes, strict=True))
    run = pk.op("C[i,j] max= A[i,k] + B[k,j]")
    for special in (1.0, *SPECIAL):
        for array in (A, B):
            if array.dtype.kind == "f":
                array[3, 5] = special
        with np.errstate(invalid="ignore"):
            np.testing.assert_array_equal(run(A, B), np.max(A[:, :, None] + B, axis=1))


def test_several_threads_look_first() -> None:
    rng = np.random.default_rng(6)
    A, B = rng.standard_normal((300, 200)).astype("f4"), rng.standard_normal((200, 320)).astype("f4")
    run = pk.op("C[i,j] max= A[i,k] + B[k,j]").compile(A=pk.f32[300, 200], B=pk.f32[200, 320], threads=2)
    for special in (0.5, np.nan):
        A[299, 199] = special
        np.testing.assert_array_equal(run(A, B), np.max(A[:, :, None] + B, axis=1))


def test_what_buffers_may_hold_follows_from_their_stores() -> None:
    made = kernel("C[i,j] max= minimum(abs(A[i,k]) - 1, B[k,j])", A=pk.f32[90, 50], B=pk.f32[50, 64])
    arguments = {b.name for b in made.buffers if b.space is Space.ARGUMENT}
    inputs = {b.name: FINITE for b in made.buffers if b.name in arguments and not b.writable}
    mine = [found for name, found in facts(made, inputs).items() if name not in arguments]
    assert mine and not any(found.nan for found in mine)
    assert any(found.nan for name, found in facts(made, {}).items() if name not in arguments)


@pytest.mark.parametrize(
    ("op", "args", "want"),
    [
        ("add", (FINITE, FINITE), May(False, True, True)),
        ("add", (May(False, True, False), May(False, True, False)), May(False, True, True)),
        ("add", (May(False, True, False), May(False, False, True)), ANYTHING),
        ("sub", (May(False, True, False), May(False, True, False)), ANYTHING),
        ("neg", (May(False, True, False),), May(False, False, True)),
        ("abs", (May(False, False, True),), May(False, True, False)),
        ("mul", (FINITE, FINITE), May(False, True, True)),
        ("mul", (FINITE, May(False, True, False)), ANYTHING),
        ("maximum", (FINITE, May(True, False, False)), May(True, False, False)),
        ("div", (FINITE, FINITE), ANYTHING),
    ],
)
def test_operations(op: str, args: tuple[May, ...], want: May) -> None:
    names = "xyz"[: len(args)]
    loads = tuple(Load(n, (), pk.f32) for n in names)
    assert may(Op(op, loads, pk.f32), dict(zip(names, args, strict=True))) == want


def test_free_extrema_are_one_instruction() -> None:
    made = pk.op("C[i,j] max= A[i,k] + B[k,j]").compile(
        A=pk.f32[60, 400], B=pk.f32[400, 64], target="cpu:x86-64-v4", threads=1
    )
    loops = re.split(r"^\.L\w+:", str(made.source("asm")), flags=re.M)
    assert any(loop.count("vmaxps") >= 20 and "vcmpunord" not in loop and "vaddps" in loop for loop in loops)


def test_extrema_over_the_lanes_of_a_vector_stay_extrema() -> None:
    read = Buffer("x", pk.f32, (Const(4), Const(64)), (Const(64), Const(1)), Space.ARGUMENT, writable=False)
    written = Buffer("o", pk.f32, (Const(4),), (Const(1),), Space.ARGUMENT)
    m = Buffer("m", pk.f32, (Const(4),), (Const(1),), Space.STACK)
    place = Op("add", (Op("mul", (Op("mod", (Var("t"), Const(4))), Const(16))), Var("v")))
    term = Op("abs", (Load("x", (Var("r"), place), pk.f32),), pk.f32)
    taken = Store("m", (Var("r"),), Op("maximum", (Load("m", (Var("r"),), pk.f32), term), pk.f32))

    def rows(name: str, body: Stmt) -> For:
        return For(name, Const(0), Const(4), (body,), 1, LoopKind.UNROLL, 4, 4)

    tile = rows("r", For("v", Const(0), Const(16), (taken,), 1, LoopKind.VECTOR, 16, 16))
    start = rows("a", Store("m", (Var("a"),), Const(-np.inf, pk.f32)))
    end = rows("b", Store("o", (Var("b"),), Load("m", (Var("b"),), pk.f32)))
    body = (Allocate((m,), (start, For("t", Const(0), Const(400), (tile,), trip=400), end)),)
    made = KernelIR("kernel", (read, written), (), body)
    assert checked(made, target("cpu:x86-64-v4")) != made
    x = np.random.default_rng(8).standard_normal((4, 64)).astype("f4")
    for special in (5.0, np.nan, -np.inf):
        x[2, 37] = special
        check_same(made, {"x": x, "o": np.zeros(4, "f4")}, {})


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize(
    ("shape", "looked_through"),
    [
        ((100, 100, 100), True),
        ((100, 12, 100), True),
        ((24, 100, 2000), True),
        ((4, 100, 16), False),
        ((3, 100, 2000), False),
        ((2, 64, 500), False),
    ],
)
def test_tiles_are_chosen_for_the_tests_that_they_have(
    shape: tuple[int, int, int], looked_through: bool, dtype: str
) -> None:
    m, k, n = shape
    types = {"A": f"{dtype}[{m},{k}]", "B": f"{dtype}[{k},{n}]"}
    for text in ("C[i,j] max= A[i,k] + B[k,j]", "C[i,j] min= abs(A[i,k] - B[k,j])"):
        program = case(text, **types).flat
        measured = measure(program, next(s for s in program.statements() if s.reduced), lambda _: DENSE)
        assert takes_pairs(measured, target("cpu:x86-64-v4")) != looked_through
        element = getattr(pk, dtype)
        assert bool(branches(text, A=element[m, k], B=element[k, n])) == looked_through


def test_no_tile_is_chosen_for_fewer_tests_where_sizes_are_unknown() -> None:
    program = case("C[i,j] max= A[i,k] + B[k,j]", A="f32[M,K]", B="f32[K,N]").flat
    measured = measure(program, next(s for s in program.statements() if s.reduced), lambda _: DENSE)
    assert takes_pairs(measured, target("cpu:x86-64-v4"))


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize(
    ("term", "shape"),
    [
        ("X[i,j]", (500, 500)),
        ("abs(X[i,j])", (500, 500)),
        ("X[i,j]", (64, 10000)),
        ("abs(X[i,j])", (64, 10000)),
        ("abs(abs(abs(X[i,j] - 1) - 2) - 3)", (64, 10000)),
    ],
)
def test_an_element_that_is_seldom_used_is_not_looked_at(term: str, shape: tuple[int, int], dtype: str) -> None:
    found = kernel(f"a[i] = argmax[j]({term})", "cpu:x86-64-v4", X=getattr(pk, dtype)[shape])
    assert checked(found, target("cpu:x86-64-v4")) == found


@pytest.mark.parametrize("op", ["max", "min"])
@pytest.mark.parametrize("special", [*SPECIAL, 1.0])
def test_places_are_numpys_whatever_the_inputs_hold(op: str, special: float) -> None:
    rng = np.random.default_rng(0)
    A, B = (rng.integers(-9, 9, (60, 60)).astype("f4") for _ in range(2))
    A[3, 5] = A[7, 9] = A[7, 30] = B[4, 50] = special
    found = pk.op(f"C[i,j] = arg{op}[k](A[i,k] + B[k,j])").compile(A=A, B=B, threads=1)(A, B)
    np.testing.assert_array_equal(found, getattr(np, f"arg{op}")(A[:, :, None] + B[None], 1))
