"""Carried elements: a loop that reads what it stored a few iterations ago has it in registers, and means the same."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polyker.codegen.ir.kernel import (
    Buffer,
    Const,
    For,
    If,
    KernelIR,
    KExpr,
    Let,
    Load,
    LoopKind,
    Op,
    Space,
    StmtBlock,
    Store,
    Var,
)
from polyker.codegen.ir.verify import verify
from polyker.codegen.ir.walk import allocated, statements
from polyker.codegen.passes.scalar_replacement import carry
from polyker.ir.dtypes import bool_, f32
from tests.codegen.interpret import run
from tests.codegen.support import check_same, index

ROWS, COLUMNS = 6, 40
S = Buffer("S", f32, (Const(ROWS), Const(COLUMNS)), (Const(COLUMNS), Const(1)), Space.ARGUMENT)
X = Buffer("X", f32, (Const(COLUMNS),), (Const(1),), Space.ARGUMENT, False)


def element(row: KExpr | int, offset: int, factor: int = 1) -> tuple[KExpr, ...]:
    """Return `row, factor * t + offset`."""
    at = index("add", index("mul", factor, "t"), offset)
    return (Const(row) if isinstance(row, int) else row, at)


def old(row: KExpr | int, offset: int, factor: int = 1) -> Load:
    return Load("S", element(row, offset, factor), f32)


def plus_x(*terms: KExpr) -> Op:
    return Op("add", (*terms, Load("X", (Var("t"),), f32)), f32)


def loop(*body: object, lo: int = 8, hi: KExpr = Const(30), step: int = 1) -> KernelIR:
    return KernelIR("kernel", (S, X), ("N", "M"), (For("t", Const(lo), hi, tuple(body), step),))  # type: ignore[arg-type]


def carried(kernel: KernelIR) -> int:
    return len(list(allocated(carry(kernel).body)))


def check(kernel: KernelIR, n: int = 25) -> KernelIR:
    """Check that carrying changes neither values nor stores, in the interpreter and as machine code."""
    changed = carry(kernel)
    verify(changed)
    rng = np.random.default_rng(0)
    arrays = {"S": rng.integers(-3, 4, (ROWS, COLUMNS)).astype("f4"), "X": rng.integers(-3, 4, COLUMNS).astype("f4")}
    integers = {"N": n, "M": 2}
    before, after = ({k: v.copy() for k, v in arrays.items()} for _ in range(2))
    counts: list[dict[str, np.ndarray]] = [{}, {}]
    assert run(kernel, before, integers, stores=counts[0]) == run(changed, after, integers, stores=counts[1])
    assert np.array_equal(before["S"], after["S"])
    assert np.array_equal(counts[0]["S"], counts[1]["S"])
    check_same(changed, arrays, integers)
    return changed


def lanes(body: StmtBlock, hi: KExpr = Const(4), lo: int = 0, trip: int | None = 4) -> For:
    return For("i", Const(lo), hi, body, kind=LoopKind.VECTOR, lanes=4, trip=trip)


FORMS = {
    "one back": loop(Store("S", element(0, 0), plus_x(old(0, -1)))),
    "one back, unknown end": loop(Store("S", element(0, 0), plus_x(old(0, -1))), hi=Var("N")),
    "four back": loop(Store("S", element(0, 0), plus_x(old(0, -4))), hi=Var("N")),
    "one and three back": loop(Store("S", element(0, 0), plus_x(old(0, -1), old(0, -3))), hi=Var("N")),
    "two rows": loop(Store("S", element(0, 0), plus_x(old(0, -1))), Store("S", element(1, 0), plus_x(old(1, -1)))),
    "rows that read each other": loop(
        Store("S", element(0, 0), plus_x(old(0, -1), old(1, -1))),
        Store("S", element(1, 0), plus_x(old(0, -1), old(1, -2))),
    ),
    "read before it is stored": loop(
        Store("S", element(2, 0), plus_x(old(0, -1))), Store("S", element(0, 0), plus_x(old(0, -2)))
    ),
    "a value that is bound": loop(Let("x", old(0, -1)), Store("S", element(0, 0), plus_x(Var("x", f32)))),
    "steps of two": loop(Store("S", element(0, 0), plus_x(old(0, -2))), step=2),
    "two elements an iteration": loop(
        Store("S", element(0, 0), plus_x(old(0, -2))), Store("S", element(0, 1), plus_x(old(0, -1))), step=2
    ),
    "a row that is a size": loop(Store("S", element(Var("M"), 0), plus_x(old(Var("M"), -1)))),
    "backwards in memory": loop(Store("S", element(0, 39, -1), plus_x(old(0, 40, -1)))),
    "vectors": loop(lanes((Store("S", element(Var("i"), 0), plus_x(old(Var("i"), -1))),))),
    "vectors of unknown length": loop(
        lanes((Store("S", element(Var("i"), 0), plus_x(old(Var("i"), -1))),), hi=Var("M"), trip=None), hi=Var("N")
    ),
}


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("n", [0, 8, 9, 10, 12, 40])
def test_what_was_stored_a_few_iterations_ago_is_carried(name: str, n: int) -> None:
    assert carried(FORMS[name])
    changed = check(FORMS[name], n)
    assert len({s.buffer for s in statements(changed.body) if isinstance(s, Store)}) > 1


LEFT = {
    "nothing is read again": loop(Store("S", element(0, 0), plus_x(old(1, -1)))),
    "too far back": loop(Store("S", element(0, 0), plus_x(old(0, -5)))),
    "later iterations' elements": loop(Store("S", element(0, 0), plus_x(old(0, 1)))),
    "one element in all iterations": loop(
        Store("S", (Const(0), Const(3)), plus_x(Load("S", (Const(0), Const(3)), f32)))
    ),
    "overwritten by another store": loop(
        Store("S", element(0, 0), plus_x(old(0, -1))), Store("S", element(0, -1), plus_x(old(1, -3)))
    ),
    "perhaps overwritten": loop(
        Store("S", element(0, 0), plus_x(old(0, -1))), Store("S", element(Var("M"), 0), Const(2.0, f32))
    ),
    "overwritten on a condition": loop(
        Store("S", element(0, 0), plus_x(old(0, -1))),
        If(Op("lt", (Var("t"), Const(12)), bool_), (Store("S", element(0, -1), Const(1.0, f32)),)),
    ),
    "a row bound in the loop": loop(
        Let("r", index("mod", "t", 2)), Store("S", element(Var("r"), 0), plus_x(old(Var("r"), -1)))
    ),
    "lanes that overlap": loop(lanes((Store("S", (Const(0), index("add", "t", "i")), Load("X", (Var("i"),), f32)),))),
    "one iteration": loop(Store("S", element(0, 0), plus_x(old(0, -1))), hi=Const(9)),
}


@pytest.mark.parametrize("name", LEFT)
def test_what_cannot_be_carried_is_loaded(name: str) -> None:
    assert not carried(LEFT[name])
    check(LEFT[name])


access = st.tuples(st.integers(0, 1), st.integers(-5, 2))


@given(
    bodies=st.lists(st.tuples(access, st.lists(access, min_size=1, max_size=3), st.booleans()), min_size=1, max_size=3),
    factor=st.sampled_from((1, 1, 2, -1)),
    step=st.sampled_from((1, 1, 2, 3)),
    vector=st.sampled_from((None, "rows", "columns")),
    n=st.integers(5, 16),
    fixed=st.booleans(),
)
@settings(max_examples=120, deadline=None)
def test_any_loop_means_the_same(bodies, factor, step, vector, n, fixed) -> None:  # type: ignore[no-untyped-def]
    base = 25 if factor < 0 else 0

    def place(where: tuple[int, int]) -> tuple[KExpr, ...]:
        row, offset = where
        if vector == "rows":
            return element(index("add", index("mul", 1, "i"), row), base + offset, factor)
        if vector == "columns":
            return (Const(row), index("add", index("mul", 4 * factor, "t"), "i", (0 if factor > 0 else 70) + offset))
        return element(row, base + offset, factor)

    body: list[object] = []
    for target, reads, bound in bodies:
        value: KExpr = plus_x(*(Load("S", place(r), f32) for r in reads))
        if bound:
            body += [Let(f"x{len(body)}", value)]
            value = Var(f"x{len(body) - 1}", f32)
        body.append(Store("S", place(target), value))
    wide = Buffer("S", f32, (Const(ROWS), Const(140)), (Const(140), Const(1)), Space.ARGUMENT)
    inner: StmtBlock = tuple(body)  # type: ignore[arg-type]
    if vector:
        inner = (lanes(inner),)
    kernel = KernelIR("kernel", (wide, X), ("N",), (
        For("t", Const(5), Const(n) if fixed else Var("N"), inner, step),
    ))  # fmt: skip
    changed = carry(kernel)
    verify(changed)
    arrays = {
        "S": (np.arange(ROWS * 140).reshape(ROWS, 140) % 7).astype("f4"),
        "X": np.arange(COLUMNS).astype("f4") % 5,
    }
    before, after = ({k: v.copy() for k, v in arrays.items()} for _ in range(2))
    run(kernel, before, {"N": n})
    run(changed, after, {"N": n})
    assert np.array_equal(before["S"], after["S"])
    check_same(changed, arrays, {"N": n})
