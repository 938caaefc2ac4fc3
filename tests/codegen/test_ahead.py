"""Prefetches of gathered elements: only of large buffers, never changing a value, never reading an index that is not there."""

from __future__ import annotations

import numpy as np
import pytest

from polyker.codegen.ir.kernel import (
    Buffer,
    Const,
    Convert,
    For,
    Guard,
    If,
    KernelIR,
    KExpr,
    Let,
    Load,
    LoopKind,
    Op,
    Prefetch,
    Space,
    StmtBlock,
    Store,
    Var,
)
from polyker.codegen.ir.verify import verify
from polyker.codegen.ir.walk import statements, subexpressions
from polyker.codegen.llvm.jit.detect import target
from polyker.codegen.passes import prefetch_gathers as ahead
from polyker.codegen.passes.prefetch_gathers import LINES_IN_FLIGHT, prefetch_gathers
from polyker.ir.dtypes import bool_, f32, i32, i64
from polyker.machine import model
from polyker.machine.model import PAGE, Cache, Memory
from polyker.structs import replace
from tests.codegen.support import check_same, index
from tests.machines import INTO_FIRST, INTO_SECOND

ELEMENTS, WIDTH, COUNT = 60, 8, 56
SMALL = replace(target("cpu"), caches=(Cache(256), Cache(1024)))


def buffer(name: str, dtype: object, *shape: int, writable: bool = False) -> Buffer:
    strides = tuple(Const(int(np.prod(shape[d + 1 :]))) for d in range(len(shape)))
    return Buffer(name, dtype, tuple(map(Const, shape)), strides, Space.ARGUMENT, writable)  # type: ignore[arg-type]


T, K = buffer("T", f32, ELEMENTS, WIDTH), buffer("K", i32, COUNT)
O = buffer("O", f32, COUNT, WIDTH, writable=True)  # noqa: E741
AT, J, G = Var("i"), Var("j"), Var("g")
LANE = index("add", index("mul", WIDTH, "i"), "j")
HERE = index("mod", index("add", "h", LANE), COUNT)


def inside(extent: int = ELEMENTS) -> Guard:
    return Guard(Op("and", (Op("ge", (G, Const(0)), bool_), Op("lt", (G, Const(extent)), bool_)), bool_), 3)


def let(at: KExpr = AT) -> Let:
    return Let("g", Convert(Load("K", (at,), i32), i64))


def row(column: KExpr = J) -> Store:
    return Store("O", (AT, column), Load("T", (G, column), f32))


def vector(*body: object, hi: KExpr = Const(WIDTH), trip: int | None = WIDTH) -> For:
    return For("j", Const(0), hi, tuple(body), kind=LoopKind.VECTOR, lanes=WIDTH, trip=trip)  # type: ignore[arg-type]


def serial(*body: object, hi: KExpr = Const(COUNT), var: str = "i") -> For:
    return For(var, Const(0), hi, tuple(body))  # type: ignore[arg-type]


def kernel(*body: object) -> KernelIR:
    found: StmtBlock = tuple(body)  # type: ignore[assignment]
    return KernelIR("kernel", (T, K, O), ("N",), found)


FORMS = {
    "elements": kernel(serial(let(), inside(), row(Const(3)))),
    "rows": kernel(serial(let(), inside(), vector(row()))),
    "rows, the index bound inside": kernel(serial(vector(let(), inside(), row()))),
    "rows by parts": kernel(serial(let(), inside(), serial(row(), hi=Const(WIDTH), var="j"))),
    "an unknown number": kernel(serial(let(), inside(), vector(row()), hi=Var("N"))),
    "an index in each lane": kernel(serial(
        vector(let(LANE), inside(), Store("O", (LANE, Const(0)), Load("T", (G, Const(3)), f32))), hi=Const(COUNT // WIDTH)
    )),
    "two at a time": kernel(serial(
        Let("g", Convert(Load("K", (index("mul", 2, "i"),), i32), i64)), inside(), row(Const(0)), hi=Const(COUNT // 2)
    )),
}  # fmt: skip


def run(found: KernelIR, n: int = COUNT) -> int:
    verify(found)
    rng = np.random.default_rng(0)
    arrays = {
        "T": rng.integers(0, 9, (ELEMENTS, WIDTH)).astype("f4"),
        "K": rng.integers(0, ELEMENTS, COUNT).astype("i4"),
        "O": np.zeros((COUNT, WIDTH), "f4"),
    }
    return check_same(found, arrays, {"N": n})


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("n", [0, 1, COUNT])
def test_what_is_gathered_later_is_asked_for(name: str, n: int) -> None:
    changed = prefetch_gathers(FORMS[name], SMALL)
    ahead = [s for s in statements(changed.body) if isinstance(s, Prefetch)]
    assert ahead
    assert all(s.buffer == "T" for s in ahead)
    assert run(changed, n) == 0


def test_the_lanes_of_a_later_vector_are_asked_for_one_by_one() -> None:
    changed = prefetch_gathers(FORMS["an index in each lane"], SMALL)
    (loop,) = changed.body
    lanes, gather = loop.body  # type: ignore[union-attr]
    assert (lanes.kind, lanes.trip, gather.kind) == (LoopKind.UNROLL, WIDTH, LoopKind.VECTOR)
    later_index, asked = lanes.body
    later = index("minimum", index("add", "i", LINES_IN_FLIGHT // WIDTH), index("sub", Const(COUNT // WIDTH), 1))
    assert later_index.value.arg.indices == (index("add", index("mul", WIDTH, later), lanes.var),)
    assert (asked.buffer, asked.indices) == ("T", (Var("g.ahead"), Const(3)))


def value_of(expr: KExpr, values: dict[str, int]) -> int:
    """The value of an index."""
    if isinstance(expr, Var):
        return values[expr.name]
    if isinstance(expr, Const):
        return int(expr.value.real)
    assert isinstance(expr, Op)
    a, b = (value_of(x, values) for x in expr.args)
    return {"add": a + b, "sub": a - b, "mul": a * b, "minimum": min(a, b), "floordiv": a // max(1, b)}[expr.op]


@pytest.mark.parametrize("trip", [WIDTH, None])
def test_after_a_row_of_indices_those_of_the_next_one_are_asked_for(
    trip: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the row's length is known; of the last row, and of others, the last element is asked for again."""
    monkeypatch.setattr(ahead, "LINES_IN_FLIGHT", 2)
    end, count = Const(WIDTH) if trip else Var("N"), COUNT // WIDTH
    gathered = replace(vector(row(Var("c"))), var="c")
    inner = For("j", Const(0), end, (let(LANE), inside(), gathered), trip=trip)
    changed = prefetch_gathers(kernel(serial(inner, hi=Const(count))), SMALL)
    assert run(changed, WIDTH) == 0
    (later,) = (s.value.arg for s in statements(changed.body) if isinstance(s, Let) and s.name == "g.ahead")
    for i in range(count):
        for j in range(WIDTH):
            place, last = value_of(later.indices[0], {"i": i, "j": j, "N": WIDTH}), WIDTH * (i + 1) - 1
            if not trip:
                assert place == min(WIDTH * i + j + 2, last)
            elif i + 1 < count:
                assert place == WIDTH * i + j + 2
            else:
                assert WIDTH * i <= place <= last


def test_lanes_whose_bounds_the_loop_around_moves_do_not_go_on_with_its_next_iteration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """K[8*i + j + lane], the lanes going down as i goes up: those of one i beside the next i would be beyond K."""
    monkeypatch.setattr(ahead, "LINES_IN_FLIGHT", 2)
    first, count = index("sub", Const(COUNT - 2 * WIDTH), index("mul", WIDTH, "i")), COUNT // WIDTH - 1
    place = index("add", index("add", index("mul", WIDTH, "i"), "k"), "j")
    body = (let(place), inside(), Store("O", (place, Const(0)), Load("T", (G, Const(3)), f32)))
    lanes = For("j", first, index("add", first, WIDTH), body, kind=LoopKind.VECTOR, lanes=WIDTH, trip=WIDTH)
    inner = For("k", Const(0), Const(WIDTH), (lanes,), trip=WIDTH)
    changed = prefetch_gathers(kernel(serial(inner, hi=Const(count))), SMALL)
    (later,) = (s.value.arg for s in statements(changed.body) if isinstance(s, Let) and s.name == "g.ahead")
    for i in range(count):
        for k in range(WIDTH):
            lane = COUNT - 2 * WIDTH - WIDTH * i + WIDTH - 1
            assert value_of(later.indices[0], {"i": i, "k": k, "j.lane": lane}) < COUNT
    assert run(changed) == 0


def test_a_vector_whose_lanes_all_gather_with_one_index_asks_once() -> None:
    """The index is bound outside: the lanes have none of their own."""
    changed = prefetch_gathers(FORMS["rows"], SMALL)
    assert not any(isinstance(s, For) and s.kind is LoopKind.UNROLL for s in statements(changed.body))


@pytest.mark.parametrize(
    ("name", "asked"), [("elements", True), ("an index in each lane", True), ("rows by parts", False)]
)
def test_elements_of_the_last_cache_are_asked_for_from_more_pages_than_a_core_keeps_addresses_of(
    name: str, asked: bool
) -> None:
    machine = replace(SMALL, caches=(Cache(256), Cache(1024), Cache(1 << 30)))
    found, pages = FORMS[name], Memory().pages * PAGE // (4 * WIDTH)
    for count, far in ((pages, False), (pages + 1, True)):
        changed = prefetch_gathers(
            replace(found, buffers=(buffer("T", f32, count, WIDTH), *found.buffers[1:])), machine
        )
        assert any(isinstance(s, Prefetch) for s in statements(changed.body)) == (asked and far)


def test_one_element_is_far_ahead_and_a_row_nearer() -> None:
    def distance(found: KernelIR) -> int:
        names = [s.value for s in statements(found.body) if isinstance(s, Let) and s.name == "g.ahead"]
        steps = [e for e in subexpressions(names[0]) if isinstance(e, Op) and e.op == "add"]
        return int(steps[0].args[1].value.real)  # type: ignore[union-attr]

    elements, parts = (prefetch_gathers(FORMS[name], SMALL) for name in ("elements", "rows by parts"))
    assert distance(elements) == WIDTH * distance(parts)


@pytest.mark.parametrize(("parts", "near", "caches"), [(3, True, {1}), (3, False, {2}), (2, True, {2})])
def test_rows_of_several_lines_come_into_the_first_cache_where_that_is_sooner(
    parts: int, near: bool, caches: set[int]
) -> None:
    wide, width = buffer("T", f32, ELEMENTS, 24), 8  # three vectors are a line and a half
    vectors = [vector(row(index("add", width * n, "j"))) for n in range(parts)]
    found = replace(
        kernel(serial(let(), inside(), *vectors)), buffers=(wide, K, buffer("O", f32, COUNT, 24, writable=True))
    )
    changed = prefetch_gathers(
        found, replace(SMALL, prefetch=model.PrefetchPolicy(gathered_rows=INTO_FIRST if near else INTO_SECOND))
    )
    assert {s.cache for s in statements(changed.body) if isinstance(s, Prefetch)} == caches


def test_lanes_that_gather_elements_of_their_own_are_no_rows() -> None:
    elements = buffer("T", i64, ELEMENTS, 2)
    form = serial(
        vector(let(LANE), inside(), Store("O", (LANE, Const(0)), Load("T", (G, Const(1)), i64))),
        hi=Const(COUNT // WIDTH),
    )
    found = replace(kernel(form), buffers=(elements, K, buffer("O", i64, COUNT, 2, writable=True)))
    caches = (Cache(256, 32), Cache(512, 32))
    changed = prefetch_gathers(
        found, replace(SMALL, caches=caches, prefetch=model.PrefetchPolicy(gathered_rows=INTO_FIRST))
    )
    assert {s.cache for s in statements(changed.body) if isinstance(s, Prefetch)} == {2}


def test_a_wrong_index_is_found_in_its_own_iteration() -> None:
    changed = prefetch_gathers(FORMS["elements"], SMALL)
    arrays = {"T": np.zeros((ELEMENTS, WIDTH), "f4"), "K": np.zeros(COUNT, "i4"), "O": np.ones((COUNT, WIDTH), "f4")}
    arrays["K"][40] = -5
    assert check_same(changed, arrays, {"N": COUNT}) == 3


LEFT = {
    "a condition": kernel(serial(If(Op("lt", (AT, Const(9)), bool_), (let(), inside(), row(Const(0)))))),
    "an inner loop that may be empty": kernel(serial(
        serial(let(), inside(), row(), hi=Op("minimum", (AT, Const(WIDTH))), var="j")
    )),
    "no gather": kernel(serial(vector(Store("O", (AT, J), Load("T", (AT, J), f32))))),
    "an index of an index": kernel(serial(
        Let("h", Op("mod", (Convert(Load("K", (AT,), i32), i64), Const(COUNT)))), let(Var("h")), inside(), row(Const(0))
    )),
    "an index of an index in each lane": kernel(serial(vector(
        Let("h", Op("mod", (Convert(Load("K", (LANE,), i32), i64), Const(COUNT)))), let(HERE), inside(),
        Store("O", (LANE, Const(0)), Load("T", (G, Const(3)), f32)),
    ), hi=Const(COUNT // WIDTH))),
}  # fmt: skip


@pytest.mark.parametrize("name", LEFT)
def test_what_cannot_be_told_is_left_alone(name: str) -> None:
    assert prefetch_gathers(LEFT[name], SMALL) == LEFT[name]
    assert run(LEFT[name]) == 0


def test_what_the_caches_hold_is_left_alone() -> None:
    assert prefetch_gathers(FORMS["rows"], target("cpu")) is FORMS["rows"]


def columns(count: int, width: int) -> KernelIR:
    """Return O[i,j] = X[i, index[j]] for so many of the columns of X."""
    gather = For("j", Const(0), Const(count), (let(J), inside(width), Store("O", (AT, J), Load("X", (AT, G), f32))))
    buffers = buffer("X", f32, COUNT, width), buffer("K", i32, count), buffer("O", f32, COUNT, count, writable=True)
    return KernelIR("kernel", buffers, (), (serial(gather),))


@pytest.mark.parametrize(
    ("count", "width", "row"),
    [
        (24, 24, True),
        (12, 24, True),
        (11, 24, False),  # less than half of a row
        (200, 200, False),  # the second cache holds no two rows
    ],
)
def test_a_row_that_is_gathered_from_is_asked_for_while_the_one_before_is(count: int, width: int, row: bool) -> None:
    changed = prefetch_gathers(columns(count, width), SMALL)
    (ahead,) = (s for s in statements(changed.body) if isinstance(s, Prefetch))
    assert (ahead.indices == (index("add", "i", 1), index("sub", "j", 0))) == row
    rng = np.random.default_rng(1)
    arrays = {
        "X": rng.integers(0, 9, (COUNT, width)).astype("f4"),
        "K": rng.integers(0, width, count).astype("i4"),
        "O": np.zeros((COUNT, count), "f4"),
    }
    verify(changed)
    assert check_same(changed, arrays, {}) == 0


@pytest.mark.parametrize("bound", ["before", "inside"])
def test_the_first_lines_of_a_long_row_are_asked_for(bound: str) -> None:
    width = 400  # of 64 bytes a line: 25 lines
    found = (let(), inside()), (Store("O", (AT, J), Load("X", (G, J), f32)),)
    before, body = (found[0], found[1]) if bound == "before" else ((), (*found[0], *found[1]))
    stream = For("j", Const(0), Const(width), body, kind=LoopKind.STREAM, lanes=32, trip=width)
    buffers = buffer("X", f32, ELEMENTS, width), K, buffer("O", f32, COUNT, width, writable=True)
    changed = prefetch_gathers(KernelIR("kernel", buffers, (), (serial(*before, stream),)), SMALL)
    verify(changed)
    asked = [s.indices for s in statements(changed.body) if isinstance(s, Prefetch)]
    assert asked == [(Var("g.ahead"), index("add", 0, 16 * k)) for k in range(16)]
    rng = np.random.default_rng(2)
    arrays = {
        "X": rng.integers(0, 9, (ELEMENTS, width)).astype("f4"),
        "K": rng.integers(0, ELEMENTS, COUNT).astype("i4"),
        "O": np.zeros((COUNT, width), "f4"),
    }
    assert check_same(changed, arrays, {}) == 0


def test_a_row_is_asked_for_to_its_end() -> None:
    changed = prefetch_gathers(FORMS["rows"], SMALL)
    columns = [s.indices[1] for s in statements(changed.body) if isinstance(s, Prefetch)]
    assert columns == [J, index("sub", WIDTH, 1)]
