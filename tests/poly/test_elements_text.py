"""Elements in messages: some of them one by one, or the condition that they meet, in the user's names."""

from __future__ import annotations

import doctest

import pytest

import polyker as pk
from polyker.poly.binding import elements_text

N = pk.f64["N", "N"]


def test_the_examples_are_true() -> None:
    found = doctest.testmod(elements_text)
    assert found.failed == 0 and found.attempted == 4


@pytest.mark.parametrize(
    ("text", "shape", "said"),
    [
        ("L[i,j] = A[i,j] for j in 0:i+1", (3, 3), "L[0, 1], L[0, 2] and L[1, 2]"),
        ("L[i,j] = A[i,j] for j in 0:i+1", (9, 9), "L[0, 1], L[0, 2], L[0, 3] and 33 more"),
        ("O[2*i] = A[i]", (5,), "O[1], O[3], O[5] and 1 more"),
        ("O[2*i,j] = A[i,j]", (1000, 1000), "O[1, 0], O[1, 1], O[1, 2] and 998997 more"),
        ("O[n0,c0] = A[n0,c0] for n0 in 1:3", ("n1", "M"), "O[0, c0] with 0 <= c0 < M"),
        ("O[2*a,j] = A[a,j] for a in 0:4", ("M", "N"), "O[i, j] with (1 + i) mod 2 = 0 and 0 < i <= 5 and 0 <= j < N"),
    ],
)
def test_elements_that_nothing_writes(text: str, shape: tuple[int | str, ...], said: str) -> None:
    with pytest.raises(pk.ShapeError) as caught:
        pk.op(text).compile(pk.f64[shape])
    assert f"no statement writes the elements {said} of output" in str(caught.value)
