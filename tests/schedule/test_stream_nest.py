"""Results that exceed the caches are written past them; others, and what cannot be, by ordinary stores."""

from __future__ import annotations

import re

import numpy as np
import pytest

import polyker as pk
from polyker.codegen.llvm.jit.detect import target
from polyker.machine.model import Cache, PrefetchPolicy, Target
from polyker.schedule.tree.nodes import MemberKind, loops
from polyker.structs import replace
from tests.artifacts import generated
from tests.machines import ALONE, SIDE_BY_SIDE, cached
from tests.schedule.support import SMALL, assert_same, case

ROW = 700  # floats: more than the shortest row that is worth it
LONG = 2048  # the same where hardly anything is read


def machine(last: int) -> Target:
    """Return a machine of small caches."""
    return replace(target(SMALL), caches=(Cache(1 << 9), Cache(1 << 10), Cache(last)))


def kinds(text: str, last: int = 1 << 13, **given: str | int) -> set[MemberKind]:
    found = case(text, **given)
    scop, schedule = found.automatic(machine(last))
    assert_same(found, scop, schedule)
    assert_same(found, scop, schedule, native=True)
    return {m.kind for m in loops(schedule.tree)}


STREAMED = {
    "a map": ("O[i,j] = X[i,j] + 1", {"X": f"f32[5,{ROW}]"}),
    "a broadcast": ("O[i,j] = X[i] + Y[j]", {"X": "f32[5]", "Y": f"f32[{LONG}]"}),
    "a part is read": ("O[i,j] = X[i,j] + Y[j]", {"X": f"f16[5,{ROW}]", "Y": f"f32[{ROW}]"}),
    "the shortest rows": ("O[i,j] = X[i,j] + 1", {"X": "f32[8,320]"}),
    "one dimension": ("O[i] = 2 * X[i]", {"X": f"f32[{5 * ROW}]"}),
    "an odd range": ("O[i,j] = X[i,j+2] for j in 0:M", {"X": f"f32[5,{ROW}]", "M": ROW - 3}),
    "padding": ("O[i,j] = X[i,j-3; pad=2] for j in 0:M", {"X": f"f32[5,{ROW}]", "M": ROW + 5}),
    "short rows of whole lines": ("O[i,j] = X[i,j] + 1", {"X": "f32[40,64]"}),
    "short rows that go on in the next": ("O[i,j] = X[i,j] + 1", {"X": "f32[8,319]"}),
    "rows that go on, and nothing is read for": ("O[i,j] = X[i] + Y[j]", {"X": "f32[9]", "Y": f"f32[{LONG - 1}]"}),
    "short rows in another order": ("O[j,i,l] = X[i,j,l]", {"X": "f32[37,5,64]"}),
    "gathered rows": ("O[n,c] = T[idx[n],c]", {"T": f"f32[4,{ROW}]", "idx": "i64[6]"}),
    "two types": ("O[i,j] = f32(X[i,j]) * 2", {"X": f"f64[5,{ROW}]"}),
}


@pytest.mark.parametrize("name", STREAMED)
def test_a_large_result_is_written_past_the_caches(name: str) -> None:
    text, given = STREAMED[name]
    assert MemberKind.STREAM in kinds(text, **given)


ORDINARY = {
    "it fits": ("O[i,j] = X[i,j] + 1", {"X": f"f32[5,{ROW}]"}, 1 << 20),
    "the result is small": ("O[j] = X[j] + Y[j,0]", {"X": f"f32[{ROW}]", "Y": f"f32[{ROW},9]"}, 1 << 14),
    "short rows": (
        "f(X, O) -> O:\n    O[i,j] = X[i,j] + 1 for j in 0:319", {"X": "f32[8,319]", "O": "f32[8,330]"}, 1 << 13
    ),
    "shorter rows of whole lines": ("O[i,j] = X[i,j] + 1", {"X": "f32[90,48]"}, 1 << 13),
    "short rows between lines": (
        "f(X, O) -> O:\n    O[i,j] = X[i,j] + 1 for j in 0:64", {"X": "f32[40,64]", "O": "f32[40,68]"}, 1 << 13
    ),
    "short gathered rows": ("O[n,c] = T[idx[n],c]", {"T": "f32[40,64]", "idx": "i64[60]"}, 1 << 13),
    "rows that nothing is read for": (
        "f(X, Y, O) -> O:\n    O[i,j] = X[i] + Y[j] for j in 0:M",
        {"X": "f32[9]", "Y": f"f32[{LONG - 1}]", "O": f"f32[9,{LONG + 9}]", "M": LONG - 1}, 1 << 13,
    ),
    "a sum": ("O[j] += X[i,j]", {"X": f"f32[5,{ROW}]"}, 1 << 10),
    "a triangle": ("O[i,j] += X[i,j] where j <= i", {"X": "f32[60,60]"}, 1 << 10),
    "rows that end one after another": (
        "f(A: f32[5,M], X: f32[5,M]) -> A:\n    A[i,j] = X[i,j] for i in 0:5, j in 0:M where j < 600 + 20*i",
        {"A": f"f32[5,{ROW}]", "X": f"f32[5,{ROW}]"}, 1 << 13,
    ),
    "it reads itself": (
        "f(A: f32[5,M]) -> A:\n    A[i,j] = A[i,j] * 2 for i in 0:5, j in 0:M", {"A": f"f32[5,{ROW}]"}, 1 << 13
    ),
    "a transpose": ("O[j,i] = X[i,j]", {"X": f"f32[{ROW},6]"}, 1 << 13),
}  # fmt: skip


@pytest.mark.parametrize("name", ORDINARY)
def test_what_stays_in_the_caches_is_stored_there(name: str) -> None:
    text, given, last = ORDINARY[name]
    assert MemberKind.STREAM not in kinds(text, last, **given)


@pytest.mark.parametrize(
    ("X", "order"),
    [
        ("f32[37,24,64]", ["i1.tile", "i0", "i1.row", "i2"]),  # O[j,i,l] of X[i,j,l]: by 8 rows of X
        ("f32[5,24,64]", ["i1.tile", "i0", "i1.row", "i2"]),
    ],
)
def test_rows_in_another_order_are_read_in_the_order_of_memory_by_a_few(X: str, order: list[str]) -> None:
    _, schedule = case("O[j,i,l] = X[i,j,l]", X=X).automatic(machine(1 << 13))
    assert [m.label for m in loops(schedule.tree)] == order


@pytest.mark.parametrize("offset", [0, 16, 4])
@pytest.mark.parametrize(
    ("text", "shape"), [("O[j,i,l] = X[i,j,l]", (700, 50, 80)), ("O[i,j] = 2 * X[i,j]", (50000, 80))]
)
def test_short_rows_are_right_wherever_they_begin(text: str, shape: tuple[int, ...], offset: int) -> None:
    X = np.arange(np.prod(shape), dtype="f4").reshape(shape)
    want = X.swapaxes(0, 1) if len(shape) == 3 else 2 * X
    raw = np.full(4 * X.size + 256, 0x7F, np.uint8)
    start = -raw.ctypes.data % 64 + 64 + offset
    out = raw[start : start + 4 * X.size].view("f4").reshape(want.shape)
    small = replace(target("cpu"), caches=(Cache(32 << 10), Cache(1 << 18), Cache(1 << 20)))
    kernel = pk.op(text).compile(X=pk.f32[shape], target=small, threads=1)
    assert "streaming stores" in generated(kernel, "schedule")
    kernel(X, out=out)
    np.testing.assert_array_equal(out, want)
    assert (raw[:start] == 0x7F).all()
    assert (raw[start + 4 * X.size :] == 0x7F).all()


SMALL_CACHES = (Cache(32 << 10), Cache(1 << 18), Cache(1 << 20))


@pytest.mark.parametrize(("rows", "columns", "past"), [(640, 960, True), (632, 960, True), (640, 40, False)])
def test_transposed_tiles_of_whole_lines_are_written_past_the_caches(rows: int, columns: int, past: bool) -> None:
    # O[j,i]: rows of 2560 bytes are whole lines, of 2528 are put together to lines; a small result fits.
    machine = replace(target("cpu:x86-64-v4"), caches=SMALL_CACHES)
    kernel = pk.op("O[j,i] = X[i,j]").compile(X=pk.f32[rows, columns], target=machine, threads=1)
    assert ("!nontemporal" in str(kernel.source("llvm"))) == past


def test_transposed_tiles_that_pass_the_caches_are_taken_in_the_order_that_they_are_read_in() -> None:
    machine = replace(target("cpu:x86-64-v4"), caches=SMALL_CACHES)
    kernel = pk.op("O[l,k,j,i] = X[i,j,k,l]").compile(X=pk.f32[16, 12, 20, 80], target=machine, threads=1)
    found = re.findall(r"^ *(?:for|transpose\(16\)|vector\(16\)) ([\w.]+)", generated(kernel, "schedule"), re.MULTILINE)
    assert found == ["i2", "i1", "i0.tile", "i3.tile", "i0.columns", "i3.lanes"]


@pytest.mark.parametrize("offset", [0, 16, 4])
@pytest.mark.parametrize(("name", "shape"), [("f4", (640, 960)), ("f8", (200, 648)), ("f4", (16, 33, 21, 48))])
def test_transposed_tiles_are_right_wherever_the_result_begins(name: str, shape: tuple[int, ...], offset: int) -> None:
    order = "ijkl"[: len(shape)]
    X = np.arange(np.prod(shape), dtype=name).reshape(shape)
    text = f"O[{','.join(reversed(order))}] = X[{','.join(order)}]"
    raw = np.full(X.nbytes + 256, 0x7F, np.uint8)
    start = -raw.ctypes.data % 64 + 64 + (offset if offset % X.itemsize == 0 else 8)
    out = raw[start : start + X.nbytes].view(name).reshape(X.T.shape)
    kernel = pk.op(text).compile(
        X=getattr(pk, X.dtype.name.replace("float", "f"))[shape], target=replace(target("cpu"), caches=SMALL_CACHES)
    )
    kernel(X, out=out)
    np.testing.assert_array_equal(out, X.T)
    assert (raw[:start] == 0x7F).all()
    assert (raw[start + X.nbytes :] == 0x7F).all()


@pytest.mark.parametrize("offset", [0, 16])
@pytest.mark.parametrize("shape", [(640, 960), (632, 960), (640, 40), (641, 961), (16, 24), (3, 5)])
def test_sizes_of_the_call_decide_whether_transposed_tiles_pass_the_caches(shape: tuple[int, int], offset: int) -> None:
    X = np.arange(np.prod(shape), dtype="f4").reshape(shape)
    raw = np.full(X.nbytes + 256, 0x7F, np.uint8)
    start = -raw.ctypes.data % 64 + 64 + offset
    out = raw[start : start + X.nbytes].view("f4").reshape(X.T.shape)
    machine = replace(target("cpu"), caches=SMALL_CACHES)
    kernel = pk.op("O[j,i] = X[i,j]").compile(X=pk.f32["m", "n"], target=machine, threads=1)
    if machine.vector_bytes == 64:
        assert "!nontemporal" in str(kernel.source("llvm"))
    kernel(X, out=out)
    np.testing.assert_array_equal(out, X.T)
    assert (raw[:start] == 0x7F).all()
    assert (raw[start + X.nbytes :] == 0x7F).all()


def test_rows_that_cannot_be_whole_lines_are_joined_or_stay_whatever_the_sizes() -> None:
    machine = replace(target("cpu:x86-64-v4"), caches=SMALL_CACHES)
    kernel = pk.op("O[j,i] = X[i,j]").compile(X=pk.f32[639, "n"], target=machine, threads=1)
    assert "permvar" in str(kernel.source("llvm"))
    kernel = pk.op("O[j,i] = X[i,j]").compile(X=pk.f32[135, "n"], target=machine, threads=1)  # too short to be joined
    assert "!nontemporal" not in str(kernel.source("llvm"))


NORM = """
m[n] = mean[c](X[n,c])
v[n] = mean[c]((X[n,c] - m[n])**2)
O[n,c] = (X[n,c] - m[n]) * rsqrt(v[n] + 1e-5)
"""
SOFTMAX = "O[n,c] = exp(X[n,c] - max[k](X[n,k])) / sum[l](exp(X[n,l] - max[k](X[n,k])))"  # a row on the stack


def reference(text: str, X: np.ndarray) -> np.ndarray:
    X = X.astype("f8")
    if text == NORM:
        return (X - X.mean(1, keepdims=True)) / np.sqrt(X.var(1, keepdims=True) + 1e-5)
    grown = np.exp(X - X.max(1, keepdims=True))
    return grown / grown.sum(1, keepdims=True)


@pytest.mark.parametrize("offset", [0, 4, 24, 60])
@pytest.mark.parametrize("columns", [1024, 1021, 1027])
@pytest.mark.parametrize("text", [NORM, SOFTMAX])
def test_rows_that_statements_share_a_loop_over_are_written_past_the_caches(
    text: str, columns: int, offset: int
) -> None:
    X = np.random.default_rng(columns).standard_normal((300, columns)).astype("f4")
    raw = np.full(X.nbytes + 256, 0x7F, np.uint8)
    start = -raw.ctypes.data % 64 + 64 + offset
    out = raw[start : start + X.nbytes].view("f4").reshape(X.shape)
    kernel = pk.op(text).compile(X=pk.f32[X.shape], target=replace(target("cpu"), caches=SMALL_CACHES), threads=1)
    assert "stream(" in generated(kernel, "schedule")
    assert "!nontemporal" in str(kernel.source("llvm"))
    kernel(X, out=out)
    np.testing.assert_allclose(out, reference(text, X), rtol=2e-4, atol=1e-5)
    assert (raw[:start] == 0x7F).all()
    assert (raw[start + X.nbytes :] == 0x7F).all()


def test_no_line_is_asked_for_that_is_written_past_the_caches() -> None:
    prefetch, caches = PrefetchPolicy(next_rows=ALONE), cached(32 << 10, 1 << 20, 64 << 20)
    machine = replace(target("cpu:x86-64-v4"), prefetch=prefetch, caches=caches)
    for rows, streamed in ((20000, True), (3000, False)):
        kernel = pk.op(NORM).compile(X=pk.f32[rows, 1024], target=machine, threads=1)
        asked = "to write" in generated(kernel, "loops")
        assert ("stream(" in generated(kernel, "schedule"), asked) == (streamed, not streamed)


def test_what_another_statement_reads_stays_in_the_caches() -> None:
    machine = replace(target("cpu:x86-64-v4"), caches=SMALL_CACHES)
    kernel = pk.op("f(X) -> P, s:\n  P[n,c] = exp(X[n,c])\n  s[n] = sum[c](P[n,c])").compile(
        X=pk.f32[4000, 1024], target=machine, threads=1
    )
    assert "run together" in generated(kernel, "schedule")
    assert "stream(" not in generated(kernel, "schedule")


@pytest.mark.parametrize("columns", [64, 80, 71])
@pytest.mark.parametrize("offset", [0, 16, 4])
def test_rows_that_are_looked_up_pass_the_caches_where_many_pieces_come_side_by_side(columns: int, offset: int) -> None:
    program = case("O[n,c] = T[idx[n],c]", T="f32[40,64]", idx="i64[60]")
    _, schedule = program.automatic(replace(machine(1 << 13), memory=SIDE_BY_SIDE))
    assert MemberKind.STREAM in {m.kind for m in loops(schedule.tree)}
    rng = np.random.default_rng(columns)
    T, idx = rng.standard_normal((300, columns)).astype("f4"), rng.integers(0, 300, 4000)
    raw = np.full(4 * idx.size * columns + 192, 0x7F, np.uint8)
    start = -raw.ctypes.data % 64 + offset
    out = raw[start : start + 4 * idx.size * columns].view("f4").reshape(-1, columns)
    kernel = pk.op("O[n,c] = T[idx[n],c]").compile(
        T=pk.f32[T.shape],
        idx=pk.i64[idx.shape],
        target=replace(target("cpu"), caches=SMALL_CACHES, memory=SIDE_BY_SIDE),
        threads=1,
    )
    kernel(T, idx, out=out)
    np.testing.assert_array_equal(out, T[idx])
    assert (raw[:start] == 0x7F).all() and (raw[start + out.nbytes :] == 0x7F).all()
    idx[77] = 300
    with pytest.raises(pk.PolykerError):
        kernel(T, idx, out=out)
