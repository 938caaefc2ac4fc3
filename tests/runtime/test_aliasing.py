"""`out` that overlaps operands in any way gives the result of a fresh `out`; what has no meaning is refused."""

from __future__ import annotations

import numpy as np
import pytest

import polyker as pk
from polyker.errors import ArgumentError
from tests.runtime.support import coded

OPERATORS = {
    "square": ("C[i,j] += A[i,k] * B[k,j]", lambda a, b: a @ b),
    "pointwise": ("C[i,j] = A[i,j] * 3 + B[j,i]", lambda a, b: a * 3 + b.T),
    "rows": ("C[i,j] = A[i,j] + sum[k](B[i,k])", lambda a, b: a + b.sum(1, keepdims=True)),
    "shifted": ("C[i,j] = A[i,j] + B[i,N-1-j] for i in 0:N, j in 0:N", lambda a, b: a + b[:, ::-1]),
}
N = 9
VIEWS = {
    "exact": lambda m: m[:N, :N],
    "transposed": lambda m: m[:N, :N].T,
    "reversed": lambda m: m[:N, :N][::-1, ::-1],
    "one row on": lambda m: m[1 : N + 1, :N],
    "one element on": lambda m: m.reshape(-1)[1 : 1 + N * N].reshape(N, N),
    "interleaved": lambda m: m[: 2 * N : 2, : 2 * N : 2],
    "columns": lambda m: m[:N, N : 2 * N],
    "apart": lambda m: m[N : 2 * N, :N],
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize("name", OPERATORS)
def test_out_overlapping_operands_gives_what_a_fresh_out_gives(name: str, which: int, view: str) -> None:
    text, spelled = OPERATORS[name]
    memory = coded((2 * N, 2 * N))
    first, second = VIEWS["exact"](memory), VIEWS["exact"](memory) if which == 2 else coded((N, N), salt=5)
    a, b = (second, first) if which == 1 else (first, second)
    expected = spelled(a.copy(), b.copy())
    out = VIEWS[view](memory)
    operator = pk.op(text)
    sizes = {"N": N} if "N" in text else {}
    for _ in range(2):  # the second call takes the quick way
        memory[...] = coded((2 * N, 2 * N))
        assert operator(a, b, out=out, **sizes) is out
        np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("view", VIEWS)
def test_a_quick_call_still_sees_that_out_overlaps_an_operand(view: str) -> None:
    matmul = pk.op("C[i,j] += A[i,k] * B[k,j]")
    memory = coded((2 * N, 2 * N))
    a, out = memory[:N, :N], VIEWS[view](memory)
    apart = VIEWS[view](np.empty_like(memory))
    matmul(a, a, out=apart)  # same shapes and strides, no overlap
    np.testing.assert_array_equal(apart, a @ a)
    expected = a @ a
    matmul(a, a, out=out)
    np.testing.assert_array_equal(out, expected)


def test_an_in_out_argument_changes_only_when_it_is_out() -> None:
    grow = pk.op("grow(A: f64[N]) -> A:\n    A[i] += A[i]")
    a = np.arange(20.0)
    np.testing.assert_array_equal(grow(a), 2 * np.arange(20.0))
    np.testing.assert_array_equal(a, np.arange(20.0))
    assert grow(a, out=a) is a
    np.testing.assert_array_equal(a, 2 * np.arange(20.0))
    other = np.full(20, np.nan)
    grow(a, out=other)
    np.testing.assert_array_equal(other, 4 * np.arange(20.0))


@pytest.mark.parametrize("shift", [-3, -1, 1, 4])
def test_an_in_out_argument_that_overlaps_out_in_part_is_copied_first(shift: int) -> None:
    scan = pk.op("scan(A: f64[N]) -> A:\n    A[i] = A[i] + A[i-1] for i in 1:N")
    memory = coded((30,), np.float64)
    a, out = memory[5:25], memory[5 + shift : 25 + shift]
    expected = np.cumsum(a)
    for _ in range(2):
        memory[...] = coded((30,), np.float64)
        scan(a, out=out)
        np.testing.assert_array_equal(out, expected)


def test_an_output_that_overlaps_itself_is_refused() -> None:
    copy = pk.op("C[i,j] = A[i,j]")
    a = coded((4, 3))
    block = np.zeros(40, np.float32)
    for strides in [(0, 4), (4, 4), (4, 8), (8, 4), (-4, 4)]:
        view = np.lib.stride_tricks.as_strided(block[20:], (4, 3), strides)
        with pytest.raises(ArgumentError, match="overlaps itself"):
            copy(a, out=view)
    # Neither dimension's stride covers the other's extent, and still no two elements meet.
    apart = np.lib.stride_tricks.as_strided(block, (4, 3), (12, 16))
    copy(a[:, :3], out=apart)
    np.testing.assert_array_equal(apart, a)


def test_two_outputs_that_overlap_are_refused() -> None:
    both = pk.op("s[i] = A[i]; t[i] = 2 * A[i]")
    block = np.zeros(10)
    with pytest.raises(ArgumentError, match="`s` and `out` for `t` overlap"):
        both(np.arange(5.0), out=(block[:5], block[4:9]))
    s, t = both(np.arange(5.0), out=(block[:5], block[5:]))
    np.testing.assert_array_equal(block, [0, 1, 2, 3, 4, 0, 2, 4, 6, 8])
    assert s.base is block and t.base is block


def test_several_outputs_over_an_operand_are_right() -> None:
    both = pk.op("s[i] = A[i] + A[N-1-i] for i in 0:N; t[i] = 2 * A[N-1-i] for i in 0:N")
    block = np.arange(20.0)
    a = block[:10]
    both(a, out={"s": a, "t": block[10:]}, N=10)
    np.testing.assert_array_equal(block[:10], np.full(10, 9.0))
    np.testing.assert_array_equal(block[10:], 2 * np.arange(9.0, -1, -1))


def test_operands_may_share_memory_among_themselves() -> None:
    a = coded((8, 8))
    np.testing.assert_array_equal(pk.op("C[i,j] += A[i,k] * B[j,k]")(a, a.T[::-1]), a @ a.T[::-1].T)
