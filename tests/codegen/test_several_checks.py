"""Elements looked up several at a time: the same elements, in the same order, and no element that a check forbids."""

from __future__ import annotations

import numpy as np
import pytest

import polyker as pk
from polyker.codegen.ir.kernel import (
    Buffer,
    Const,
    Convert,
    For,
    Guard,
    KernelIR,
    KExpr,
    Let,
    Load,
    LoopKind,
    Op,
    Space,
    Store,
    Var,
)
from polyker.codegen.ir.verify import verify
from polyker.codegen.ir.walk import statements
from polyker.codegen.passes.x86.several_checks import UNROLL_FACTOR, several_checks
from polyker.ir.dtypes import DType, bool_, f32, i32, i64
from tests.codegen.interpret import run
from tests.codegen.support import C, V, check_same

TABLE, COUNT = 23, 40
AT, G, H = V("i"), V("g"), V("h")


def buffer(name: str, dtype: DType, size: int, *, writable: bool = False) -> Buffer:
    return Buffer(name, dtype, (C(size),), (C(1),), Space.ARGUMENT, writable)


def inside(place: KExpr, code: int = 3, extent: int = TABLE) -> Guard:
    return Guard(Op("and", (Op("ge", (place, C(0)), bool_), Op("lt", (place, C(extent)), bool_)), bool_), code)


def number(name: str, at: KExpr) -> KExpr:
    return Convert(Load(name, (at,), i32), i64)


def kernel(*body: object, hi: KExpr = Const(COUNT), trip: int | None = COUNT) -> KernelIR:
    buffers = (buffer("T", f32, TABLE), buffer("J", i32, COUNT), buffer("K", i32, TABLE, writable=True),
               buffer("O", f32, COUNT, writable=True))  # fmt: skip
    return KernelIR("kernel", buffers, ("N",), (For("i", C(0), hi, tuple(body), trip=trip),))  # type: ignore[arg-type]


LOOKUP = (Let("g", number("J", AT)), inside(G), Store("O", (AT,), Load("T", (G,), f32)))
MORE = Op("add", (Op("mul", (Load("O", (G,), f32), Const(3.0, f32)), f32), Const(1.0, f32)), f32)
SCATTER = (Let("g", number("J", AT)), inside(G), Store("O", (G,), MORE))
TWICE = (
    Let("g", number("J", AT)),
    inside(G, 4),
    Let("h", number("K", G)),
    inside(H, 5),
    Store("O", (AT,), Load("T", (H,), f32)),
)
FORMS = {"a lookup": LOOKUP, "terms that are scattered": SCATTER, "an index of an index": TWICE}


def arrays(seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        "T": rng.integers(0, 99, TABLE).astype("f4"), "J": rng.integers(0, TABLE, COUNT).astype("i4"),
        "K": rng.integers(0, TABLE, TABLE).astype("i4"), "O": rng.integers(0, 2, COUNT).astype("f4"),
    }  # fmt: skip


def steps(found: KernelIR) -> list[int]:
    return [s.step for s in statements(found.body) if isinstance(s, For)]


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("n", [0, 1, 3, 4, 5, 7, 8, 9, 11, COUNT - 1, COUNT])
@pytest.mark.parametrize("fixed", [True, False])
def test_elements_are_the_same(name: str, n: int, fixed: bool) -> None:
    before = kernel(*FORMS[name], hi=C(n), trip=n) if fixed else kernel(*FORMS[name], hi=V("N"), trip=None)
    after = several_checks(before)
    verify(after)
    assert (UNROLL_FACTOR in steps(after)) == (not fixed or n >= 2 * UNROLL_FACTOR)
    results = []
    for k in (before, after):
        found = arrays(n)
        assert run(k, found, {"N": n}) == 0
        results.append(found["O"])
    assert np.array_equal(*results)
    assert check_same(before, arrays(n), {"N": n}) == 0


@pytest.mark.parametrize("place", [0, 1, 2, 3, 6, COUNT - 1])
@pytest.mark.parametrize("wrong", [-1, TABLE, 2**31 - 1, -(2**31)])
def test_the_first_check_that_fails_ends_the_kernel(place: int, wrong: int) -> None:
    before = kernel(*TWICE)
    data = arrays()
    data["J"][place], data["K"][data["J"][place - 1]] = wrong, wrong if place else 0
    codes = [run(k, {n: a.copy() for n, a in data.items()}, {"N": COUNT}) for k in (before, several_checks(before))]
    assert codes[0] == codes[1] in (4, 5)
    assert check_same(before, data, {"N": COUNT}) == codes[0]


def test_a_element_that_the_next_check_reads_is_written_before_it() -> None:
    """K[g] moves on at each step that comes to it, and the step after looks it up."""
    body = (Let("g", number("J", AT)), inside(G), Let("h", number("K", G)), inside(H), Store("O", (AT,), Load("T", (H,), f32)),
            Store("K", (G,), Convert(Op("mod", (Op("add", (H, C(7))), C(TABLE))), i32)))  # fmt: skip
    before = kernel(*body)
    assert several_checks(before) == before
    assert check_same(before, arrays(), {"N": COUNT}) == 0


def test_loops_with_more_in_them_are_left_alone() -> None:
    value: KExpr = Load("T", (G,), f32)
    for _ in range(17):
        value = Op("mul", (value, value), f32)
    inner = For("j", C(0), C(3), (Store("O", (AT,), Load("T", (G,), f32)),), trip=3)
    vector = For("i", C(0), C(8), LOOKUP, kind=LoopKind.VECTOR, lanes=8, trip=8)
    for k in (
        kernel(*LOOKUP[:2], Store("O", (AT,), value)),
        kernel(*LOOKUP[:2], inner),
        KernelIR("k", (), (), (vector,)),
    ):
        assert several_checks(k) == k


def test_names_of_other_values_are_not_taken() -> None:
    other = (Let("g.0", number("J", AT)), Store("O", (AT,), Convert(Var("g.0"), f32)))
    first = kernel(*LOOKUP)
    both = KernelIR("kernel", first.buffers, ("N",), (*first.body, For("i", C(0), C(2), other, trip=2)))
    verify(several_checks(both))
    assert check_same(both, arrays(), {"N": COUNT}) == 0


def test_a_place_in_tensors_of_one_size_is_checked_once() -> None:
    places = np.random.default_rng(0).integers(0, 40, 90)
    a, b = np.arange(40.0), np.arange(40.0)[::-1].copy()
    op = pk.op("O[i] = A[I[i]] * B[I[i]]")
    kernel = op.compile(A=pk.f64["N"], I=pk.i64["M"], B=pk.f64["N"])
    assert kernel.source("loops").count("require") == 1
    assert np.array_equal(kernel(a, places, b), a[places] * b[places])
    other = op.compile(A=pk.f64["N"], I=pk.i64["M"], B=pk.f64["L"])
    assert other.source("loops").count("require") == 2
