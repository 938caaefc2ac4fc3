"""Indices that walk two dimensions together become one, and only those."""

from __future__ import annotations

import os
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polyker as pk
from polyker.einsum_frontend import parse
from polyker.ir.dtypes import f32
from polyker.poly.binding.bind import bind
from polyker.rewrite.indexing.collapse_dims import merge_dimensions
from polyker.rewrite.normalise.extract_reductions import extract_reductions
from polyker.rewrite.normalise.start_reductions import start_reductions

SHAPE = (3, 4, 5, 6)


def ranks(text: str, dense: bool = True, **shapes: tuple[int | str, ...]) -> list[int]:
    """Return the number of iterators of each statement after merging."""
    typed = bind(parse(text), {n: f32[s] for n, s in shapes.items()}, {})
    flat = start_reductions(extract_reductions(typed))
    return [len(s.iterators) for s in merge_dimensions(flat, lambda _: dense).statements()]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("O[i,j,k,l] = A[i,j,k,l]", [1]),
        ("O[k,l,i,j] = A[i,j,k,l]", [2]),
        ("O[l,k,j,i] = A[i,j,k,l]", [4]),
        ("O[i,j,k,l] = A[i,j,k,l] + i", [2]),
        ("O[i,j,l,k] = A[i,j,k,l]", [3]),
        ("s[i] += A[i,j,k,l]", [1, 2]),
        ("s[i,k] += A[i,j,k,l]", [2, 4]),
        ("O[i,j] = A[i,j,0,0]", [1]),
        ("O[i,j,k,l] = A[i,j,k,l] where i <= j", None),
        ("O[i,j,k,l] = A[i,j,k,l+1]  for l in 0:5", [2]),
        ("O[i,j,k,l] = A[i,j,k,l]  for l in 0:5", [2]),  # not to the end of A's rows
        ("P[i,j,k,l] = A[i,j,k,l]\nO[i,j,l,k] = P[i,j,k,l]", [3, 3]),
    ],
)
def test_pairs_are_merged_where_all_accesses_agree(text: str, found: list[int] | None) -> None:
    if found is None:
        text = text.replace(" = ", " += ")
        assert ranks(text, A=(4, 4, 5, 6))[-1] == 3
    else:
        assert ranks(text, A=SHAPE) == found


def test_a_statement_that_reads_its_target_keeps_the_order_of_its_instances() -> None:
    text = "f(S: i64[2,3]) -> S:\n    S[x,y] += S[a,b]  for x in 0:2, a in 0:2, y in 0:3, b in 0:3"
    start = np.array([[1, 2, 3], [-4, 5, 7]])
    wanted = start.copy()
    for x, a, y, b in np.ndindex(2, 2, 3, 3):
        wanted[x, y] += wanted[a, b]
    np.testing.assert_array_equal(pk.op(text)(start), wanted)


def test_strided_tensors_keep_their_dimensions() -> None:
    assert ranks("O[i,j] = A[i,j]", dense=False, A=(3, 4)) == [2]


@given(st.data())
@settings(max_examples=10, deadline=None)
def test_merged_programs_give_numpys_values(data: st.DataObject) -> None:
    shape = data.draw(st.tuples(*[st.integers(1, 5)] * 4))
    order = data.draw(st.permutations("ijkl"))
    kept = data.draw(st.integers(0, 4))
    a = np.arange(np.prod(shape), dtype=np.int64).reshape(shape)
    if data.draw(st.booleans()):
        a = np.asfortranarray(a)
    out = "".join(order[:kept])
    got = pk.op(f"O[{','.join(out)}] += A[i,j,k,l] * A[i,j,k,l]")(a)
    np.testing.assert_array_equal(got, np.einsum(f"ijkl,ijkl->{out}", a, a))


@pytest.mark.parametrize(
    ("text", "shape", "found"),
    [
        ("O[i,j,k,l] = A[i,j,k,l]", ("N", "M", "K", "L"), [1]),
        ("O[k,l,i,j] = A[i,j,k,l]", ("N", "M", "N", "M"), [2]),
        ("O[i,j,k,l] = A[i,j,k,l]", ("N", 4, "K", 5), [2]),
        ("O[i,j,k,l] = A[i,j,k,l]", (4, "N", 5, 6), [2]),
        ("s[i] += A[i,j,k,l]", ("N", "M", "K", "L"), [1, 2]),
        ("O[i,j,k,l] = A[i,j,k,l] + i", ("N", "M", "K", "L"), [2]),
        ("O[i,j,k,l] = A[i,j,k,l+1]  for l in 0:5", ("N", "M", "K", 6), [2]),
        ("O[i,j,k,l] += A[i,j,k,l] where i <= j", ("N", "N", "K", "L"), [3, 3]),
        ("O[i,j,k,l] += A[i,j,k,l] where k < 3", ("N", "M", "K", "L"), [3, 3]),
    ],
)
def test_pairs_of_symbolic_sizes_are_merged_where_they_run_over_whole_dimensions(
    text: str, shape: tuple[int | str, ...], found: list[int]
) -> None:
    assert ranks(text, A=shape) == found


SYMBOLIC = (
    "O[k,l,i,j] = 2 * A[i,j,k,l]",
    "O[i] += A[i,j,k,l]",
    "O[k,l] += A[i,j,k,l] * B[i,j]",
    "O[i,j,k,l] max= A[i,j,k,l] where k <= 3",
    "T[i,j,k,l] = A[i,j,k,l] + B[i,j]\nO[i,j] += T[i,j,k,l] * A[i,j,k,l]",
    "O[i,j,m] += A[i,j,k,l] * A[m,j,k,l]",
    "O[j,i] = sum[k,l](A[i,j,k,l]) + B[i,j]",
)


@pytest.mark.parametrize("text", SYMBOLIC)
@given(shape=st.tuples(*[st.sampled_from((0, 1, 2, 3, 5, 17))] * 4), turned=st.booleans())
@settings(max_examples=6, deadline=None)
def test_kernels_of_symbolic_sizes_give_what_the_interpreter_gives(
    text: str, shape: tuple[int, ...], turned: bool
) -> None:
    a = np.arange(np.prod(shape), dtype=np.int64).reshape(shape) % 11 - 3
    b = np.arange(shape[0] * shape[1], dtype=np.int64).reshape(shape[:2])
    if turned:
        a = np.asfortranarray(a)
    arrays = {"A": a, "B": b} if "B[" in text else {"A": a}
    operator = pk.op(text)
    got = operator.compile(**arrays, specialize="never")(**arrays)
    with mock.patch.dict(os.environ, POLYKER_INTERPRET="1"):
        np.testing.assert_array_equal(got, operator(**arrays))
