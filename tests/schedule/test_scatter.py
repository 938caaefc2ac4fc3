"""Sums into windows: what only some results of a tile have is parted by the few values that say which these are."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import polyker as pk
from polyker.codegen.llvm.jit.detect import target
from polyker.cost.measure import measure
from polyker.ir.layout import DENSE
from polyker.poly.isl import read_set
from polyker.rewrite.core.accumulate import starts_fresh
from polyker.schedule.nests.tiles import by_terms, common_terms
from tests.artifacts import generated
from tests.covering import each
from tests.schedule.support import SMALL, assert_same, case


def scattered(op: str, stride: int, G: np.ndarray, K: np.ndarray) -> np.ndarray:
    """Return D[c, stride*w+s] op= G[f,w] * K[f,c,s]."""
    columns = stride * (G.shape[1] - 1) + K.shape[2]
    found = np.full((K.shape[1], columns), 0.0 if op == "+=" else -np.inf, "f4")
    for f, w, s in np.ndindex(*G.shape, K.shape[2]):
        term = G[f, w] * K[f, :, s]
        at = found[:, stride * w + s]
        at[...] = at + term if op == "+=" else np.maximum(at, term)
    return found


@given(
    shape=st.tuples(st.integers(1, 5), st.integers(1, 20), st.integers(1, 30), st.integers(1, 5)),
    stride=st.integers(1, 3),
    op=st.sampled_from(("+=", "max=")),
    processor=st.sampled_from((SMALL, "cpu:x86-64-v3", "cpu")),
)
@settings(max_examples=6, deadline=None)
def test_windows_of_any_size_and_stride(shape: tuple[int, int, int, int], stride: int, op: str, processor: str) -> None:
    f, c, w, s = shape
    assume(stride <= s or w == 1)
    rng = np.random.default_rng(sum(shape))
    G, K = rng.integers(-4, 5, (f, w)).astype("f4"), rng.integers(-4, 5, (f, c, s)).astype("f4")
    kernel = pk.op(f"D[c,{stride}*w+s] {op} G[f,w] * K[f,c,s]").compile(
        G=pk.f32[G.shape], K=pk.f32[K.shape], target=processor, threads=1
    )
    assert "plainer" not in generated(kernel, "schedule")
    np.testing.assert_array_equal(kernel(G, K), scattered(op, stride, G, K))


def test_border_tiles_have_terms_with_fixed_results() -> None:
    kernel = pk.op("D[n,c,h+r,w+s] += G[n,f,h,w] * K[f,c,r,s]").compile(
        G=pk.f32[4, 32, 28, 28], K=pk.f32[32, 32, 3, 3], target="cpu:x86-64-v4", threads=1
    )
    unrolled = [line for line in generated(kernel, "loops").splitlines() if "# unroll" in line]
    assert unrolled
    assert not any("minimum" in line or "maximum" in line for line in unrolled)
    assert all(re.search(r"in range\(\d+, \d+\)", line) for line in unrolled)


@pytest.mark.parametrize(("terms", "processor"), each([2, 3, 5, 7, 8, 2], ["cpu:x86-64-v3", "cpu:x86-64-v4"]))
def test_no_tile_has_two_borders_and_its_vectors_begin_at_its_first_lane(terms: int, processor: str) -> None:
    kernel = pk.op("D[n,c,h+r,w+s] += G[n,f,h,w] * K[f,c,r,s]").compile(
        G=pk.f32[2, 32, 28, 28], K=pk.f32[32, 32, terms, terms], target=processor, threads=1
    )
    chosen = generated(kernel, "schedule").splitlines()[-1]
    tile = chosen[: chosen.index("; ")]  # the iterators of h + r and w + s
    rows, columns = re.findall(r"S0\[i0, i1, (i\d+), (i\d+),", generated(kernel, "schedule"))[0]
    assert (f" {rows}" in tile) + (f" {columns}" in tile) < 2
    lanes = [line for line in generated(kernel, "loops").splitlines() if "# vector" in line]
    assert lanes
    assert all("in range(0, " in line for line in lanes)


@given(
    shape=st.tuples(st.integers(1, 3), st.integers(1, 18), st.integers(1, 40), st.integers(1, 9), st.integers(1, 9)),
    strides=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    up=st.tuples(st.booleans(), st.booleans()),
    processor=st.sampled_from((SMALL, "cpu:x86-64-v3", "cpu")),
)
@settings(max_examples=6, deadline=None)
def test_no_factor_reaches_a_element_that_its_window_does_not(
    shape: tuple[int, int, int, int, int], strides: tuple[int, int], up: tuple[bool, bool], processor: str
) -> None:
    c, h, w, r, s = shape
    p, q = strides
    assume((p <= r or h == 1) and (q <= s or w == 1))
    rng = np.random.default_rng(sum(shape))
    G, K = rng.integers(-4, 5, (h, w)).astype("f4"), rng.integers(-4, 5, (c, r, s)).astype("f4")
    K[0, -1, -1], K[-1, 0, 0] = np.inf, np.nan  # 0 * inf, of an element outside, would be NaN
    rows, columns = ("+r" if up[0] else f"-r+{r - 1}"), ("+s" if up[1] else f"-s+{s - 1}")
    kernel = pk.op(f"D[c,{p}*h{rows},{q}*w{columns}] += G[h,w] * K[c,r,s]").compile(
        G=pk.f32[G.shape], K=pk.f32[K.shape], target=processor, threads=1
    )
    turned = K[:, :: 1 if up[0] else -1, :: 1 if up[1] else -1]
    found = np.zeros((c, p * (h - 1) + r, q * (w - 1) + s), "f4")
    with np.errstate(invalid="ignore"):
        for y, x in np.ndindex(h, w):
            found[:, p * y : p * y + r, q * x : q * x + s] += G[y, x] * turned
        np.testing.assert_array_equal(kernel(G, K), found)


@pytest.mark.parametrize(
    ("text", "types", "borders"),
    [
        ("D[y,c] += G[y-s,c] * K[s] for y in 0:10 where s <= y and y - s < 8", {"G": "f32[8,5]", "K": "f32[3]"}, 1),
        ("D[y,x] += G[y-r,x-s] * K[r,s] for y in 0:10, x in 0:9 where r <= y < r + 8 and s <= x < s + 7",
         {"G": "f32[8,7]", "K": "f32[3,3]"}, 2),
        ("D[y,x] += G[y+r,x+s] * K[r,s]", {"G": "f32[8,7]", "K": "f32[3,3]"}, 0),
        ("D[y,x] += G[y+r,x+s] * K[r,s]", {"G": "f32[H,W]", "K": "f32[3,3]"}, 0),  # ends that are sizes are none
        ("D[i] += A[i,k] where k <= i", {"A": "f32[30,30]"}, 0),  # more than a few terms
    ],
)  # fmt: skip
def test_a_border_lacks_some_of_a_few_terms(text: str, types: dict[str, str], borders: int) -> None:
    flat = case(text, **types).flat
    assert len(measure(flat, tuple(flat.statements())[-1], lambda _: DENSE).bordered) == borders


def parted(text: str, size: int, **types: str) -> list[int] | None:
    """Return the number of instances of each part of the terms that some results of a tile of the last index have."""
    flat = case(text, **types).flat
    update = tuple(flat.statements())[-1]
    kept = [i for i in update.iterators if i not in update.reduced]
    tiles = ((kept[-1], size, 0),)
    found = common_terms(flat, update, tiles)
    assert found is not None
    parts = by_terms(flat, update, found[1], tiles)
    if parts is None:
        return None
    whole = read_set(update.domain).subtract(found[0])
    for part in parts:
        assert part.is_subset(whole)
        whole = whole.subtract(part)
    assert whole.is_empty()
    return sorted(int(p.count_val().to_python()) for p in parts)


@pytest.mark.parametrize(
    ("text", "types", "counts"),
    [
        # Tiles of 4 of ten results: in (0..3) three have s = 1 and two s = 2, in (8, 9) none s = 0 and one s = 1.
        ("D[y] += G[y-s] * K[s] for y in 0:10 where s <= y and y - s < 8", {"G": "f32[8]", "K": "f32[3]"}, [1, 2, 3]),
        ("D[i] += A[i,k] where k <= i", {"A": "f32[9,9]"}, [1, 1, 2, 2, 3, 3]),  # a short diagonal
        ("D[i] += A[i,k] where k <= i", {"A": "f32[19,19]"}, None),  # one of many values
    ],
)
def test_few_values_part_the_terms_and_many_do_not(text: str, types: dict[str, str], counts: list[int] | None) -> None:
    assert parted(text, 4, **types) == counts


@pytest.mark.parametrize(
    ("text", "types", "fresh"),
    [
        ("D[2*q+p] += X[q,k] * W[k,p]", {"X": "f32[7,5]", "W": "f32[5,2]"}, True),
        ("D[2*q+p] += X[q,k] * W[k,p]", {"X": "f32[7,5]", "W": "f32[5,3]"}, False),  # elements with two values of q
    ],
)
def test_a_result_whose_elements_are_met_once_is_not_filled_beforehand(
    text: str, types: dict[str, str], fresh: bool
) -> None:
    found = case(text, **types)
    start, update = tuple(found.flat.statements())[-2:]
    assert starts_fresh(found.flat, start, update) == fresh
    scop, schedule = found.automatic(target(SMALL))
    assert_same(found, scop, schedule, native=True)


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("size", [(2, 5, 9, 14, 3, 4), (1, 17, 28, 28, 4, 4)])
def test_transposed_convolutions(stride: int, size: tuple[int, ...]) -> None:
    n, c, h, w, r, s = size
    rng = np.random.default_rng(0)
    X, K = (rng.integers(-4, 5, shape).astype("f4") for shape in ((n, c, h, w), (c, 6, r, s)))
    want = np.zeros((n, 6, stride * (h - 1) + r, stride * (w - 1) + s), "f4")
    for i in range(h):
        for j in range(w):
            want[:, :, stride * i : stride * i + r, stride * j : stride * j + s] += np.einsum(
                "nc,cfrs->nfrs", X[:, :, i, j], K
            )
    text = f"O[n,f,{stride}*h+r,{stride}*w+s] += X[n,c,h,w] * K[c,f,r,s]"
    np.testing.assert_array_equal(pk.op(text)(X, K), want)


def test_results_of_windows_are_used_by_others() -> None:
    rng = np.random.default_rng(0)
    U, J, X, W = (rng.integers(-3, 4, s).astype("f8") for s in ((16, 3), (1,), (7, 5), (5, 2)))
    sums = (U.sum(0) + 16 * J)[None]
    with pytest.warns(match="lacks the reduced index"):
        op = pk.op("G[0-m,y] += (U[r,y] + J[m]); O[0-l,j] += (U[w,j] + J[l]); F[w,h] min= abs(G[w,h])")
    for one, other in zip(op(U, J), (sums, abs(sums)), strict=True):
        np.testing.assert_array_equal(one, other)
    interleaved = (X @ W).reshape(-1)
    got = pk.op("D[2*q+p] += X[q,k] * W[k,p]; E[i] = 2 * D[i]; F += D[i]")(X, W)
    for one, other in zip(got, (2 * interleaved, interleaved.sum()), strict=True):
        np.testing.assert_array_equal(one, other)
