"""Swizzled buffers of shared memory: each element has a place of its own, columns lie in all banks, and results are right."""

import re
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import polyker as pk
from polyker.codegen.cuda.build import cubin, ptx
from polyker.codegen.cuda.expressions import CudaExpressions
from polyker.codegen.ir.kernel import Buffer, Const, Copy, Op, Space, Var
from polyker.codegen.ir.verify import verify
from polyker.codegen.ir.walk import statements
from polyker.codegen.llvm.jit.detect import target
from polyker.errors import InternalError, LegalityError
from polyker.ir.dtypes import DTYPES, f32
from polyker.options import Options
from polyker.pipeline.compile import compile_typed
from polyker.poly.scop import build_scop
from polyker.schedule.gpu.barriers import with_barriers
from polyker.schedule.legality.prove import prove
from polyker.schedule.tree.nodes import ScheduleTree, Scope
from polyker.schedule.tree.places import with_children
from polyker.schedule.tree.swizzle import (
    BANK_ROW_BYTES,
    CHUNK_BYTES,
    Swizzle,
    largest_swizzle,
    swizzle_of,
    why_not_swizzled,
)
from polyker.structs import replace
from tests.artifacts import compiled_to
from tests.codegen.interpret import run
from tests.covering import few
from tests.gpu.sim_check import run_checked
from tests.gpu.support import artifact_of, needs_compiler, needs_nvcc, reversing
from tests.gpu.test_sanitizers import SANITIZERS

MATMUL = "C[i,j] += A[i,k] * B[k,j]"
TURN = "B[j,i] = A[i,j]"
TYPES = {"f2": pk.f16, "f4": pk.f32, "f8": pk.f64, "c8": pk.c64}


def whole(shape, seed, dtype="f4"):
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(dtype)


# Places

ITEMS = st.sampled_from([1, 2, 4, 8, 16])
ROWS = st.integers(0, 9).map(lambda n: 1 << n)
COUNTS = st.sampled_from([2, 4, 8, 16])


@given(row=ROWS, itemsize=ITEMS, count=COUNTS, rows=st.integers(1, 40))
def test_each_element_has_a_place_of_its_own_in_its_row_beside_its_neighbours_of_16_bytes(row, itemsize, count, rows):
    if why_not_swizzled(row, itemsize, count):
        assert row * itemsize < CHUNK_BYTES * count
        return
    way = swizzle_of(row, itemsize, count)
    places = [way.place(n) for n in range(row * rows)]
    assert sorted(places) == list(range(row * rows))
    assert all(place // row == n // row for n, place in enumerate(places))
    chunk = CHUNK_BYTES // itemsize
    assert all(place - places[n - n % chunk] == n % chunk for n, place in enumerate(places))
    assert all(places[n - n % chunk] % chunk == 0 for n in range(len(places)))


def ways(places, size):
    """Return how often the busiest bank is asked for another word at a time, where threads read `size` bytes at places in bytes.

    As many threads as read 128 bytes are served at a time: a half of a warp for 8 bytes each, a quarter for 16.
    """
    together = BANK_ROW_BYTES // max(size, 4)
    busiest = 1
    for first in range(0, 32, together):
        words = {(at + n) // 4 for at in places[first : first + together] for n in range(0, max(size, 4), 4)}
        busiest = max(busiest, *Counter(word % 32 for word in words).values())
    return busiest


@pytest.mark.parametrize("row", [32, 64, 128, 256, 1024])  # bytes
@pytest.mark.parametrize("itemsize", [2, 4, 8, 16])
@pytest.mark.parametrize("size", [2, 4, 8, 16])
def test_a_warp_that_reads_a_column_meets_all_banks(row, itemsize, size):
    if size < itemsize:
        return
    elements = row // itemsize
    way = swizzle_of(elements, itemsize, largest_swizzle(elements, itemsize))
    assert way.count == min(8, row // CHUNK_BYTES)
    for column in range(0, elements, size // itemsize):
        offsets = [n * elements + column for n in range(32)]
        plain, found = (
            ways([itemsize * at for at in places], size) for places in (offsets, [way.place(n) for n in offsets])
        )
        # A chunk begins at each fourth bank: elements of 4 bytes in 32 rows meet 8 of them, as good as chunks allow.
        assert found == BANK_ROW_BYTES // max(size, 4) // 8
        assert plain == BANK_ROW_BYTES // max(size, 4) // max(1, BANK_ROW_BYTES // row)


# Text

INDEX = st.lists(st.tuples(st.sampled_from("xyz"), st.sampled_from([1, 2, 4, 8, 16, 32, 48])), max_size=3)


def index(terms, number):
    parts = [Op("mul", (Const(by), Var(name))) for name, by in terms]
    return Op("add", (*parts, Const(number)))


@given(
    row=st.sampled_from([8, 16, 32, 64, 128]), count=COUNTS, itemsize=st.sampled_from([1, 2, 4, 8, 16]), rows=INDEX,
    columns=INDEX, shifts=st.tuples(st.integers(0, 40), st.integers(0, 63)), most=st.sampled_from([0, 1, 3, 7]),
)  # fmt: skip
def test_the_text_says_the_place_however_it_is_folded(row, count, itemsize, rows, columns, shifts, most):
    if why_not_swizzled(row, itemsize, count):
        return
    dtype = next(d for d in DTYPES.values() if d.itemsize == itemsize)
    buffer = Buffer("t", dtype, (Const(9), Const(row)), (Const(row), Const(1)), Space.SHARED, swizzle=count)
    ranges = dict.fromkeys("xyz", (0, most))
    indices = index(rows, shifts[0]), index(columns, shifts[1])
    text = CudaExpressions({"t": buffer}, ranges, set("xyz")).place("t", indices)
    code = compile(text[2:-1].replace("/", "//"), "text", "eval")
    for at in range((most + 1) ** 3):
        values = {name: at // (most + 1) ** n % (most + 1) for n, name in enumerate("xyz")}
        r, c = (
            sum(by * values[name] for name, by in terms) + k for terms, k in zip((rows, columns), shifts, strict=True)
        )
        if c < row:
            assert eval(code, values) == swizzle_of(row, itemsize, count).place(row * r + c)


def place(*indices, row=64, swizzle=8, **ranges):
    buffer = Buffer("t", f32, (Const(64), Const(row)), (Const(row), Const(1)), Space.SHARED, swizzle=swizzle)
    return CudaExpressions({"t": buffer}, {n: (0, most) for n, most in ranges.items()}, set(ranges)).place("t", indices)


def test_the_text_is_what_a_person_writes_and_constants_fold():
    r, c, q = Var("r"), Var("c"), Var("q")
    assert place(r, c, r=31, c=63) == "t[64 * r + (c ^ 4 * (r % 8))]"
    assert place(index([("q", 8)], 1), c, q=7, c=63) == "t[512 * q + (c ^ 4) + 64]"
    assert place(index([("q", 8)], 0), c, q=7, c=63) == "t[c + 512 * q]"
    assert place(index([("q", 8)], 3), Const(37), q=7) == "t[512 * q + 233]"
    assert place(r, index([("c", 4), ("q", 32)], 2), r=7, c=7, q=1) == "t[32 * q + 64 * r + 4 * (c ^ r) + 2]"
    assert place(r, c, row=16, swizzle=4, r=31, c=15) == "t[16 * r + (c ^ 4 * ((r / 2) % 4))]"
    assert place(q, c, c=63) == "t[64 * q + (i64(c) ^ 4 * pk_mod(i64(q), i64(8)))]"


# Kernels


def contraction(x, y, **rows):
    """Return a product whose operands lie in shared memory: of each block rows of A and columns of B."""
    s = pk.op(MATMUL).schedule(x, y, target="cuda-sim", auto=False).tile(i=16, j=32)
    s = s.map({"i.tile": "block.y", "j.tile": "block.x", "i.point": "thread.y", "j.point": "thread.x"})
    s = s["C"].promote("A", at="j.tile", memory="shared", **rows)
    return s["C"].promote("B", at="j.tile", memory="shared", **{**rows, "layout": None})


def transposed(x, high=32, wide=32, **rows):
    s = pk.op(TURN).schedule(x, target="cuda-sim", auto=False).tile(i=high, j=wide)
    s = s.map({"i.tile": "block.x", "j.tile": "block.y", "i.point": "thread.x", "j.point": "thread.y"})
    return s.promote("A", at="i.tile", memory="shared", **rows)


@needs_compiler
@pytest.mark.parametrize("rows", [{"swizzle": True}, {"swizzle": 2}, {"pad": 1}], ids=str)
@pytest.mark.parametrize("dtype", TYPES)
def test_products_of_swizzled_operands_are_right(dtype, rows):
    x, y = whole((21, 64), 0, dtype), whole((64, 45), 1, dtype)
    kernel = pk.op(MATMUL).compile(x, y, schedule=contraction(x, y, **rows))
    assert ("^" in kernel.source("cuda").split("kernel0")[1]) is ("swizzle" in rows)
    np.testing.assert_array_equal(kernel(x, y), x @ y)


@needs_compiler
@pytest.mark.parametrize("dtype, high, wide", [
    ("f4", 32, 32), ("f8", 32, 32), ("c8", 16, 64), ("f2", 16, 64), ("f4", 8, 8), ("f4", 16, 16), ("f4", 4, 128), ("f8", 4, 256)
])  # fmt: skip
def test_what_is_turned_through_swizzled_rows_of_any_size_is_right(dtype, high, wide):
    x = np.arange(70 * 300).reshape(70, 300) % 2048
    x = (x + 1j * (x[::-1] - 7) if dtype == "c8" else x).astype(dtype)
    s = transposed(x, high, wide, swizzle=True)
    count = largest_swizzle(wide, x.itemsize)
    assert f"A.packed: {TYPES[dtype].name}[{high}, {wide}] in shared, swizzled by {count}" in str(s)
    kernel = pk.op(TURN).compile(x, schedule=s)
    assert f"[{high * wide}]" in kernel.source("cuda")  # no memory is lost
    np.testing.assert_array_equal(kernel(x), x.T)


@needs_compiler
def test_the_layout_says_what_the_rows_of_a_swizzled_buffer_are():
    x, y = whole((21, 64), 0), whole((64, 45), 1)
    s = contraction(x, y, swizzle=True, layout=(1, 0))
    assert "A.packed: f32[16, 64] in shared, laid out by dimensions 1 % 64, 0 % 16, swizzled by 4" in str(s)
    np.testing.assert_array_equal(pk.op(MATMUL).compile(x, y, schedule=s)(x, y), x @ y)


@needs_compiler
@pytest.mark.parametrize("sanitizer", SANITIZERS)
def test_swizzled_operands_are_clean_and_a_place_beyond_them_is_not(sanitizer):
    x, y = whole((21, 64), 0), whole((64, 45), 1)
    text = pk.op(MATMUL).compile(x, y, schedule=contraction(x, y, swizzle=True)).source("cuda")
    memory = [x, y, np.full((21, 45), np.nan, "f4")]
    found = run_checked(text, memory, sanitizer=sanitizer)
    assert (found.report, found.status) == ("", 0)
    np.testing.assert_array_equal(found.arrays[2], x @ y)
    wrong = text.replace("__syncthreads();", "") if sanitizer == "thread" else re.sub(r"\^ 4 \* \(", "^ 1000 * (", text)
    assert wrong != text
    assert run_checked(wrong, memory, sanitizer=sanitizer).report


# Wide copies, which arrive later


def ahead(arrays, name, count=8):
    """Return the automatic kernel of a product with its padded buffers swizzled, and the others, too."""
    artifact = artifact_of(MATMUL, *arrays, target=name)
    program, schedule = artifact.scheduled

    def swizzled(node):
        if isinstance(node, Scope):
            held = (replace(p, pad=0, swizzle=count) if p.shared else p for p in node.promotions)
            node = replace(node, promotions=tuple(held))
        return with_children(node, swizzled)

    schedule = with_barriers(build_scop(program), ScheduleTree(swizzled(schedule.tree)))
    assert str(schedule).count(f"swizzled by {count}") == 2
    found = target(name)
    return compile_typed(artifact.typed, artifact.layouts, found, Options(), (program, schedule))


@needs_compiler
@pytest.mark.parametrize(
    ("dtype", "sanitizer"), [pytest.param(d, *s.values, marks=s.marks) for d, s in few([*TYPES], SANITIZERS, 1)]
)
def test_copies_of_16_bytes_that_arrive_later_go_to_swizzled_places(dtype, sanitizer):
    a, b = whole((64, 96), 0, dtype), whole((96, 64), 1, dtype)
    artifact = ahead((a, b), "cuda-sim", 4)
    wide = {c.lanes * a.itemsize for c in statements(artifact.kernel.body) if isinstance(c, Copy) and c.later}
    assert 16 in wide
    text = artifact.stages["cuda"]
    assert re.search(r"pk_copy_later<\d+>\(&t\d_p\d\[[^,]*\^", text)
    found = run_checked(text, [a, b, np.zeros((64, 64), dtype)], sanitizer=sanitizer)
    assert (found.report, found.status) == ("", 0)
    np.testing.assert_array_equal(found.arrays[2], a @ b)


@needs_compiler
def test_the_interpreter_holds_elements_where_they_lie(monkeypatch):
    x = whole((16, 32), 0)
    kernel = compiled_to(pk.op(TURN).compile(x, schedule=transposed(x, 16, 16, swizzle=True))).kernel
    memory = dict(zip((b.name for b in kernel.buffers), (x, np.zeros((32, 16), "f4")), strict=True))
    assert run(kernel, memory, {}) == 0
    np.testing.assert_array_equal(memory[kernel.buffers[1].name], x.T)
    monkeypatch.setattr(Swizzle, "place", lambda way, offset: offset // 2)
    with pytest.raises(InternalError, match="race in kernel0"):
        run(kernel, memory, {})


@needs_nvcc
@pytest.mark.parametrize("name", ["cuda:sm_80", "cuda:sm_90a"])
def test_nvcc_compiles_swizzled_buffers(name):
    types = (pk.f32[1024, 1024],) * 2
    text, padded = ahead(types, name).stages["cuda"], artifact_of(MATMUL, *types, target=name).stages["cuda"]
    _, used = cubin(text, target(name))
    assert all(r.spilled == 0 for r in used.values()), used
    # Reads that stand one by one in the text are of 16 bytes, too.
    loads, wanted = (re.findall(r"ld\.shared\S*", ptx(t, target(name))) for t in (text, padded))
    assert loads == wanted
    assert set(loads) == {"ld.shared.v4.f32"}


# What is refused


def given_buffers(change):
    """Return the schedule of a transpose with its buffer changed, and what it is of."""
    x = pk.f32[64, 64]
    program, schedule = compiled_to(pk.op(TURN).compile(x, schedule=transposed(x, swizzle=4))).scheduled

    def visit(node):
        if isinstance(node, Scope):
            node = replace(node, promotions=tuple(replace(p, **change) for p in node.promotions))
        return with_children(node, visit)

    return build_scop(program), ScheduleTree(visit(schedule.tree))


@needs_compiler
@pytest.mark.parametrize(
    "change, reason",
    [
        ({"swizzle": 3}, "by 3: 3 is no power of two"),
        ({"swizzle": 1}, "by 1: 1 is no power of two from 2 on"),
        ({"swizzle": 16}, "its rows have 8 chunks of 16 bytes, fewer than 16"),
        ({"pad": 4}, "its rows are padded"),
        ({"shared": False}, "it is not in shared memory"),
        ({"modulo": (1, 1, 32, 33)}, "its rows have 33 elements, which is no power of two"),
    ],
)
def test_a_schedule_with_rows_that_cannot_be_swizzled_is_refused(change, reason):
    prove(*given_buffers({}))
    with pytest.raises(LegalityError, match=reason) as caught:
        prove(*given_buffers(change))
    assert caught.value.code == "PK507"


@pytest.mark.parametrize("change", [{"swizzle": 3}, {"swizzle": 4}, {"space": Space.STACK}, {"strides": (Const(2),)}])
def test_the_verifier_knows_which_buffers_can_be_swizzled(change):
    kernel = reversing()
    (launch,) = kernel.body
    (held,) = launch.body

    def holding(buffer):
        return replace(kernel, body=(replace(launch, body=(replace(held, buffers=(buffer,)),)),))

    buffer = replace(held.buffers[0], swizzle=2)
    verify(holding(buffer))
    with pytest.raises(InternalError, match="swizzled"):
        verify(holding(replace(buffer, **change)))
