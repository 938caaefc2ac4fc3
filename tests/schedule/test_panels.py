"""How operands of a reduction reach the registers: by panels, by rows, asked for or not, one value after another."""

from __future__ import annotations

import re

import pytest

import polyker as pk
from polyker.codegen.llvm.jit.detect import target
from polyker.machine.model import PrefetchPolicy, Target
from polyker.structs import replace
from tests.artifacts import generated
from tests.codegen.test_matrix_kernel import inner_loops


def chosen(kernel_target: Target, text: str = "C[i,j] += A[i,k] * B[k,j]", **types: tuple[int, ...]) -> str:
    """Return the schedule's loops and notes, and the kernel's loops, for a processor with small caches."""
    kernel = pk.op(text).compile(**{n: pk.f32[s] for n, s in types.items()}, target=kernel_target)
    return f"{generated(kernel, 'schedule')}\n{generated(kernel, 'loops')}"


@pytest.mark.parametrize("second", [True, False])
def test_rows_that_fall_into_one_set_are_asked_for_in_the_second_cache_or_not_at_all(second: bool) -> None:
    processor = replace(
        target("cpu:x86-64-v3"), name="cpu:x86-64-v3", prefetch=PrefetchPolicy(second_fills_first=not second)
    )
    found = chosen(processor, A=(1024, 1024), B=(1024, 16))
    assert ("prefetch t0" in found) == second
    assert "prefetch t0" in chosen(processor, A=(1024, 1000), B=(1000, 512))


@pytest.mark.parametrize(
    ("rows", "found"),
    [(4, "blocks i2 by 8"), (16, "blocks i2 by 8"), (32, "blocks i2 by 8"), (256, "B is packed by blocks")],
)
def test_a_matrix_in_memory_is_read_by_rows_for_few_rows_and_packed_for_many(rows: int, found: str) -> None:
    assert found in chosen(target("cpu:x86-64-v3"), A=(rows, 1024), B=(1024, 1024))


@pytest.mark.parametrize("rows", [2, 4, 8])
@pytest.mark.parametrize(("size", "at_once"), [(1024, 48), (4096, 24)])
def test_vectors_of_whole_lines_read_more_rows_at_a_time_but_as_many_as_are_followed(
    rows: int, size: int, at_once: int
) -> None:
    found = chosen(target("cpu:x86-64-v4"), A=(rows, size), B=(size, size))
    assert f"blocks i2 by {-(-size // -(-size // at_once))}" in found


@pytest.mark.parametrize(("columns", "found"), [(8192, True), (8200, False)])
def test_terms_whose_lines_do_not_stay_for_the_next_tile_of_rows_are_cut(columns: int, found: bool) -> None:
    assert ("i2 by 64" in chosen(target("cpu:x86-64-v4"), A=(24, 1024), B=(1024, columns))) == found


@pytest.mark.parametrize(("size", "packed"), [(257, True), (200, True), (100, False)])
def test_a_panel_from_beyond_the_first_cache_is_packed_where_a_copy_is_cheap(size: int, packed: bool) -> None:
    found = chosen(target("cpu:x86-64-v4"), A=(size, size), B=(size, size))
    assert ("B is packed by blocks" in found) == packed


def test_what_lies_within_pages_or_the_second_cache_or_has_large_results_is_not_read_by_rows() -> None:
    for k, j in ((64, 1024), (1024, 96), (1024, 512), (1024, 40000)):
        assert "by 8" not in chosen(target("cpu:x86-64-v3"), A=(4, k), B=(k, j))


def test_what_a_step_has_most_values_of_passes_through_one_register() -> None:
    kernel = pk.op("C[i,j] += A[i,k] * B[k,j]").compile(pk.f32[512, 512], pk.f32[512, 512], target="cpu:x86-64-v3")
    loops = generated(kernel, "loops").splitlines()
    sums = next(n for n, line in enumerate(loops) if " * " in line and " + " in line and "= (t" in line)
    sizes = [int(n) for line in loops[sums - 5 : sums] for n in re.findall(r"# unroll\((\d+)\)", line)]
    assert len(sizes) == 2
    assert sizes == sorted(sizes, reverse=True)
    bodies = inner_loops(str(kernel.source("asm")))
    assert bodies
    assert not any("%rsp" in body for body in bodies)


@pytest.mark.parametrize(("terms", "columns", "packed"), [(32, 1024, True), (32, 1040, False), (8, 1024, False)])
def test_a_panel_whose_terms_fall_into_one_set_is_packed(terms: int, columns: int, packed: bool) -> None:
    found = chosen(target("cpu:x86-64-v3"), A=(512, terms), B=(terms, columns))
    assert ("B is packed by blocks" in found) == packed


def test_pixels_whose_channels_lie_in_pages_of_their_own_are_packed() -> None:
    found = chosen(
        target("cpu:x86-64-v3"), "O[f,h,w] += X[c,h+r,w+s] * K[f,c,r,s]", X=(128, 57, 57), K=(128, 128, 1, 1)
    )
    assert "X is packed by blocks" in found
    assert "c.block" not in found


def test_rows_are_packed_beside_terms_with_one_value() -> None:
    found = chosen(
        target("cpu:x86-64-v3"), "O[f,h,w] += X[c,h+r,w+s] * K[f,c,r,s]", X=(2048, 7, 7), K=(512, 2048, 1, 1)
    )
    assert "X is packed by blocks" in found


@pytest.mark.parametrize(("terms", "row"), [(1024, 1040), (1000, 1008), (1008, 1008)])
def test_rows_of_a_copy_are_whole_lines_and_do_not_fall_into_one_set(terms: int, row: int) -> None:
    found = chosen(target("cpu:x86-64-v3"), A=(1024, terms), B=(terms, 8))
    assert "B is packed along i2" in found
    assert f"f32[8, {row}]" in found


def test_rows_and_columns_along_the_terms_take_no_register_too_many() -> None:
    kernel = pk.op("C[i,j] += A[i,k] * B[k,j]").compile(pk.f32[1024, 1024], pk.f32[1024, 8], target="cpu:x86-64-v3")
    assert " x 3 i0 x 4 i1" in generated(kernel, "schedule")
    assert not any("%rsp" in body for body in inner_loops(str(kernel.source("asm"))))


@pytest.mark.parametrize(("stride", "copied"), [(1, True), (2, True), (3, False)])
def test_what_windows_share_is_copied_with_its_padding(stride: int, copied: bool) -> None:
    """Windows of 3 x 3 read an element nine times, nearly two times where the stride is 2, and once."""
    size = -(-14 // stride)
    found = chosen(
        target("cpu:x86-64-v4"),
        f"O[c,h,w] += X[c,{stride}*h+r-1,{stride}*w+s-1; pad=0] * K[c,r,s]  for h in 0:{size}, w in 0:{size}",
        X=(512, 14, 14), K=(512, 3, 3),
    )  # fmt: skip
    assert ("scratch" in found) == copied


def test_windows_whose_elements_a_copy_repeats_are_read_where_they_are_but_from_pages_of_their_own() -> None:
    processor = target("cpu:x86-64-v4")
    pixels, steps = "O[g,f,h,w] += X[g,c,h+r,w+s] * K[g,f,c,r,s]", "O[f,t] += X[c,t+4*r] * K[f,c,r]"
    assert "X is packed" not in chosen(processor, pixels, X=(4, 32, 30, 30), K=(4, 32, 32, 3, 3))
    assert "X is packed by blocks" in chosen(processor, steps, X=(64, 7492), K=(128, 64, 2))
