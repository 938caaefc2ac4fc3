"""Rows that are summed as they come from far are asked for ahead; others are not."""

from __future__ import annotations

import re

import numpy as np
import pytest

import polyker as pk
from polyker.codegen.ir.printing import print_kernel
from polyker.codegen.llvm.jit.detect import target
from polyker.machine.model import Cache, PrefetchPolicy
from polyker.structs import replace
from tests.artifacts import compiled_of, generated
from tests.machines import ALONE, INTO_FIRST, INTO_SECOND, ONE_ROW, cached
from tests.schedule.support import SMALL, case, lowered

MOMENTS = "m[n] = mean[c](X[n,c]);  M[n] = mean[c](X[n,c] ** 2) - m[n] ** 2;  O[n] = m[n]"


def asked(text: str, last: int = 16 << 20, **types: str) -> list[str]:
    """Return the tensors that the loops ask for, once for each prefetch; `last`: bytes of the last cache."""
    machine = target(SMALL)
    caches = (*machine.caches[:-1], replace(machine.caches[-1], size=last))
    scop, schedule = case(text, **types).automatic(replace(machine, caches=caches))
    return re.findall(r"prefetch (\w+)\[", print_kernel(lowered(scop, schedule).kernel))


@pytest.mark.parametrize(
    ("text", "types", "count"),
    [
        ("O[i] += X[i,k]", {"X": "f32[4096,1024]"}, 1),
        (MOMENTS, {"X": "f32[4096,1024]"}, 1),
        ("O += x[i] * y[i]", {"x": f"f32[{1 << 24}]", "y": f"f32[{1 << 24}]"}, 2),
        ("O[i] += X[i,k] * w[k]", {"X": "f32[4096,1024]", "w": "f32[1024]"}, 1),  # w stays in the first cache
        ("O[i] += X[i,k]", {"X": "f32[64,1024]"}, 0),  # in the second cache
        ("O[i] += X[i,k]", {"X": "f32[4,524288]"}, 0),  # long rows in the last cache
        ("O[i] += X[i,k] for k in 0:512", {"X": "f32[4096,1024]"}, 0),  # what lies behind a row is not read
        ("O[j] += X[i,j]", {"X": "f32[4096,1024]"}, 0),
        ("O[i] += X[idx[i],k]", {"X": "f32[4096,1024]", "idx": "i64[4096]"}, 0),
    ],
)
def test_operands_that_come_from_far_are_asked_for(text: str, types: dict[str, str], count: int) -> None:
    assert len(set(asked(text, **types))) == count


@pytest.mark.parametrize(("columns", "distance"), [(256, 1024), (512, 896), (1024, 640), (1536, None), (8192, None)])
def test_what_is_asked_for_leaves_room_for_what_is_read_again(columns: int, distance: int | None) -> None:
    # A third of the first cache at most, and half of what w leaves of three quarters of it: of the tile's 13 rows together.
    machine = replace(target(SMALL), caches=(Cache(24 << 10), Cache(1 << 17), Cache(1 << 25)))
    scop, schedule = case("O[i] += X[i,k] * w[k]", X=f"f64[2048,{columns}]", w=f"f64[{columns}]").automatic(machine)
    found = re.findall(r"prefetch \w+\[.* (\d+)\)\]", print_kernel(lowered(scop, schedule).kernel))
    assert set(map(int, found)) == ({distance // 13} if distance else set())


def test_behind_the_rows_of_a_tile_come_those_of_the_next_one() -> None:
    found = case("O[i] += X[i,k] * w[k]", X="f32[4096,1024]", w="f32[1024]")
    scop, schedule = found.automatic(target(SMALL))
    assert "vectors of 4 along i1, 2 at a time x 6 i0" in str(schedule.notes)
    # Of 8192 bytes 341 elements of each row: in a row's last ones, from where the step begins, of the rows 6 further on.
    past = "(((8 * v4) + 341) // 1024)"
    asked = f"prefetch t0[((6 * v0) + v5 + (6 * {past})), ((8 * v4) + (4 * v6) + v7 + (-1024 * {past}) + 341)]"
    assert asked in print_kernel(lowered(scop, schedule).kernel)


def test_which_rows_are_asked_for_is_one_number_for_all_vectors_of_a_step() -> None:
    # The rows begin at 3, their steps at multiples of 8.
    found = case("O[i] += X[i,k-3] * w[k] for k in 3:1027", X="f32[4096,1024]", w="f32[1027]")
    scop, schedule = found.automatic(target(SMALL))
    asked = re.findall(r"prefetch t0.*", print_kernel(lowered(scop, schedule).kernel))
    assert asked
    assert {divisor for text in asked for divisor in re.findall(r"// (\d+)", text)} == {"1024"}


TALL = "C[i,j] += A[i,k] * B[k,j]"


@pytest.mark.parametrize(
    ("text", "shapes", "found"),
    [
        (TALL, ((20000, 64), (64, 16)), ["t0"]),
        (TALL, ((1000, 64), (64, 16)), []),  # in the second cache
        ("C[i,j] += A[k,i] * B[k,j]", ((64, 20000), (64, 16)), []),  # rows of terms: vectors of A
        (TALL, ((16, 64), (64, 20000)), ["t1"]),  # the vectors' operand comes from far, the rows stay
    ],
)
def test_a_tile_asks_for_the_rows_of_the_next_one(
    text: str, shapes: tuple[tuple[int, int], ...], found: list[str]
) -> None:
    types = {name: f"f64{list(shape)}" for name, shape in zip("AB", shapes, strict=True)}
    scop, schedule = case(text, **types).automatic(target("cpu:x86-64-v4"))
    loops = print_kernel(lowered(scop, schedule).kernel)
    assert sorted(set(re.findall(r"prefetch (\w+)\[", loops))) == found


@pytest.mark.parametrize(("terms", "follows", "found"), [(200, True, True), (256, True, False), (256, False, True)])
def test_long_rows_are_not_asked_for_where_prefetchers_follow_them(terms: int, follows: bool, found: bool) -> None:
    machine = replace(target("cpu:x86-64-v4"), prefetch=PrefetchPolicy(tiles=ALONE if follows else INTO_FIRST))
    scop, schedule = case(TALL, A=f"f64[20000,{terms}]", B=f"f64[{terms},16]").automatic(machine)
    assert ("prefetch t0[" in print_kernel(lowered(scop, schedule).kernel)) == found


@pytest.mark.parametrize(
    ("rows", "terms", "columns", "found"),
    [
        (24, 50, 168000, True),
        (24, 50, 1000, False),  # in the second cache
        (2, 50, 168000, False),  # few rows: the loads of many terms are on their way at once
        (24, 400, 1008, False),  # neighbouring terms share pages
    ],
)
def test_a_tile_asks_for_the_next_vectors_where_each_terms_lie_in_a_page_of_their_own(
    rows: int, terms: int, columns: int, found: bool
) -> None:
    kernel = pk.op("C[a,j] += A[i,j] * B[a,i]").compile(
        A=pk.f32[terms, columns], B=pk.f32[rows, terms], target="cpu:x86-64-v4", threads=1
    )
    assert bool(re.search(r"prefetch t0\[v\d+, .* into cache 2", generated(kernel, "loops"))) == found


def test_statements_in_one_loop_ask_once() -> None:
    assert len(asked(MOMENTS, X="f32[4096,1024]")) == 1


BLUR = "H[i,j] = X[i,j] + X[i,j+1] for j in 0:{m};  O[i,j] = H[i,j] + H[i+1,j] for i in 0:{n}"


@pytest.mark.parametrize(
    ("n", "m", "count"),
    [
        (2047, 2047, 2),
        (2047, 2000, 2),
        (2047, 1000, 1),
        (127, 1023, 0),
    ],  # whole, nearly, by halves, in the second cache; the results each time
)
def test_what_a_row_reads_first_and_writes_is_asked_for_while_others_compute(n: int, m: int, count: int) -> None:
    types = {"X": f"f32[{n + 1},{2048 if n > 1000 else 1024}]"}
    assert len(set(asked(BLUR.format(n=n, m=m), last=64 << 20, **types))) == count


def test_what_is_written_past_the_caches_is_not_asked_for() -> None:
    read_and_written = set(asked(BLUR.format(n=2047, m=2047), last=64 << 20, X="f32[2048,2048]"))
    read = set(asked(BLUR.format(n=2047, m=2047), X="f32[2048,2048]"))
    assert len(read) == 1 and read < read_and_written


@pytest.mark.parametrize(
    ("text", "asked"), [(MOMENTS, False), (BLUR.format(n=2047, m=2047), False), ("O[i] += X[i,k]", True)]
)
def test_where_prefetchers_keep_up_rows_that_run_with_others_are_not_asked_for(text: str, asked: bool) -> None:
    found = case(text, X="f32[2048,2048]")
    scop, schedule = found.automatic(replace(target(SMALL), prefetch=PrefetchPolicy(next_rows=ALONE)))
    assert ("prefetch" in print_kernel(lowered(scop, schedule).kernel)) == asked


def test_sums_ask_for_nothing_where_prefetchers_keep_up() -> None:
    found = case("O[i] += X[i,k]", X="f32[2048,2048]")
    for asks, sums in ((1, INTO_FIRST), (0, ALONE)):
        scop, schedule = found.automatic(replace(target(SMALL), prefetch=PrefetchPolicy(sums=sums)))
        assert ("prefetch" in print_kernel(lowered(scop, schedule).kernel)) == asks


@pytest.mark.parametrize(
    ("rows", "terms", "found"), [(4096, 4096, True), (300, 4096, False), (4096, 1000, False)]
)  # in memory by several rows; in the last cache; one row after another
def test_several_rows_of_memory_are_asked_for_in_the_second_cache(rows: int, terms: int, found: bool) -> None:
    caches = (Cache(32 << 10), Cache(1 << 20), Cache(32 << 20, ways=16))
    facts = {"prefetch": PrefetchPolicy(sums=INTO_SECOND), "memory": ONE_ROW, "native_bytes": 32}
    machine = replace(target("cpu:x86-64-v4"), caches=caches, **facts)
    kernel = pk.op("C[i] += A[i,k] * B[k]").compile(A=pk.f64[rows, terms], B=pk.f64[terms], target=machine, threads=1)
    loops = generated(kernel, "loops")
    assert ("into cache 2" in loops) == found == ("prefetch" in loops)


def test_one_statement_by_itself_asks_for_nothing() -> None:
    assert asked("H[i,j] = X[i,j] + X[i,j+1] for j in 0:2047", X="f32[2048,2048]") == []


def test_what_is_asked_for_beyond_the_end_is_not_read() -> None:
    X = np.arange(600 * 1024, dtype="f4").reshape(600, 1024) % 7
    np.testing.assert_array_equal(pk.op("O[i] += X[i,k]")(X), X.sum(1))


@pytest.mark.parametrize(
    ("first", "last", "found"), [(8, 16, True), (8, 17, False), (1, 16, False)]
)  # in memory; not by whole lines; in the last cache
def test_whole_lines_of_a_result_in_memory_are_asked_for(first: int, last: int, found: bool) -> None:
    types = {"A": pk.f64[last, 24, first, 24], "B": pk.f64[64, 16, 24]}
    kernel = pk.op("C[a,b,c,i,j] += A[j,k,a,c] * B[i,b,k]").compile(**types, target="cpu:x86-64-v4")
    assert bool(re.search(r"prefetch \w+\[.*to write", generated(kernel, "loops"))) == found


def test_of_a_result_that_an_epilogue_stores_the_elements_written_are_asked_for() -> None:
    kernel = pk.op("O[b,n] = relu(sum[m](I[b,m] * W[n,m]) + bias[n])").compile(
        I=pk.f32[4160, 17], W=pk.f32[1024, 17], bias=pk.f32[1024], target="cpu:x86-64-v4"
    )
    loops = generated(kernel, "loops")
    assert set(re.findall(r"prefetch (\w+)\[.*to write", loops)) == set(re.findall(r"(\w+)\[.*\] = relu", loops))


def test_whole_lines_of_a_result_in_memory_are_asked_for_at_any_sizes() -> None:
    kernel = pk.op("C[a,b,c,i,j] += A[j,k,a,c] * B[i,b,k]").compile(
        A=pk.f64["J", "K", 8, 24], B=pk.f64[64, 16, "K"], threads=1, target="cpu:x86-64-v4"
    )
    compiled = compiled_of(kernel)
    of = {"J": 16, "K": 24}
    artifact = compiled.artifact(sizes={name: of[label] for name, label in compiled.typed.sizes})
    assert re.search(r"prefetch \w+\[.*to write", generated(artifact, "loops"))


@pytest.mark.parametrize(
    ("rows", "terms", "columns", "count"),
    [(40, 24, 17, 0), (40, 2000, 16, 1), (1000, 200, 1000, 1)],
)  # without blocks; read again by each block of terms; in blocks, by parts of lines
def test_results_of_unknown_sizes_are_asked_for_in_blocks(rows: int, terms: int, columns: int, count: int) -> None:
    kernel = pk.op("C[i,j] += A[i,k] * B[k,j]").compile(
        pk.f64["I", "K"], pk.f64["K", "J"], threads=1, target="cpu:x86-64-v3"
    )
    compiled = compiled_of(kernel)
    of = {"I": rows, "K": terms, "J": columns}
    found = compiled.artifact(sizes={name: of[label] for name, label in compiled.typed.sizes})
    assert len(set(re.findall(r"prefetch (\w+)\[.*to write", generated(found, "loops")))) == count


@pytest.mark.parametrize(
    ("text", "n", "found"),
    [
        ("C[i,j] += A[i,k] * B[k,j]", 1024, ["t1"]),
        ("C[i,j] += A[k,i] * B[k,j]", 1024, ["t0"]),  # a block has whole rows of B
        ("C[i,j] += A[i,k] * B[j,k]", 1024, []),  # across: rows in the order of memory
        ("C[i,j] += A[i,k] * B[k,j]", 256, []),  # in the second cache
    ],
)
def test_the_copy_of_a_block_asks_for_the_parts_of_rows_to_come(text: str, n: int, found: list[str]) -> None:
    scop, schedule = case(text, A=f"f64[{n},{n}]", B=f"f64[{n},{n}]").automatic(target(SMALL))
    loops = print_kernel(lowered(scop, schedule).kernel)
    copies = re.findall(r"prefetch (\w+)\[(.*)\]\n *t\d+_p\d\[.*\] = \1\[(.*)\]", loops)
    assert [name for name, _, _ in copies] == found
    assert all(later != here for _, later, here in copies)


NORM = "m[n] = mean[c](X[n,c]);  v[n] = mean[c]((X[n,c] - m[n]) ** 2);  O[n,c] = (X[n,c] - m[n]) * rsqrt(v[n] + 1e-5)"
SCALED = "O[n,c] = X[n,c] * rsqrt(mean[k](X[n,k] ** 2) + 1e-6)"


@pytest.mark.parametrize(
    ("text", "rows", "columns", "asks", "found"),
    [
        (NORM, 4000, 1024, False, True),
        (NORM, 4000, 1024, True, False),  # whole rows are asked for
        (NORM, 100, 1024, False, False),  # in the second cache
        (NORM, 16000, 256, False, False),  # short rows
        (NORM, 1000, 4096, False, False),  # two of them fill the first cache
        (SCALED, 4000, 1024, False, False),  # the sum itself waits for memory
    ],
)
def test_the_first_lines_of_rows_are_asked_for_while_others_are_computed(
    text: str, rows: int, columns: int, asks: bool, found: bool
) -> None:
    # A result that the last cache has no room for is written past it.
    prefetch = PrefetchPolicy(next_rows=INTO_FIRST if asks else ALONE)
    machine = replace(target("cpu:x86-64-v4"), prefetch=prefetch, caches=cached(32 << 10, 1 << 20, 64 << 20))
    kernel = pk.op(text).compile(X=pk.f32[rows, columns], target=machine, threads=1)
    loops = generated(kernel, "loops")
    heads = re.findall(r"prefetch \w+\[\(?v0[^,]*, (\d+)\]", loops)
    assert sorted({int(h) for h in heads}) == ([*range(0, 256, 16)] if found else [])


def test_rows_whose_first_lines_were_asked_for_have_the_same_results() -> None:
    X = np.random.default_rng(0).standard_normal((3000, 1024)).astype("f4")
    machine = replace(target("cpu"), prefetch=PrefetchPolicy(next_rows=ALONE))
    got = pk.op(NORM).compile(X=pk.f32[3000, 1024], target=machine, threads=1)(X)
    want = (X - X.mean(1, keepdims=True)) / np.sqrt(X.var(1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


def test_a_result_that_common_loops_hold_in_a_buffer_is_not_asked_for_in_memory() -> None:
    text = """
        S[h,q,k] = sum[d](Q[h,q,d] * K[h,k,d]) / 8
        P[h,q,k] = exp(S[h,q,k] - max[j](S[h,q,j]))
        O[h,q,e] = sum[k](P[h,q,k] * V[h,k,e]) / sum[k](P[h,q,k])
    """
    heads = pk.f32[8, 384, 64]
    kernel = pk.op(text).compile(Q=heads, K=heads, V=heads, target="cpu:x86-64-v3", threads=1)
    loops = generated(kernel, "loops")
    assert set(re.findall(r"prefetch (\w+)\[", loops)) <= set(re.findall(r"# (\w+): ", loops))
