"""Fewer cases than all combinations of several parameters: each value of each, and each pair of values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def each(*columns: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Return as many rows as the longest column has values, in which each value of each column stands.

    >>> each("abc", [1, 2])
    [('a', 1), ('b', 2), ('c', 1)]
    """
    return [tuple(c[n % len(c)] for c in columns) for n in range(max(map(len, columns)))]


def few(first: Sequence[Any], second: Sequence[Any], count: int) -> list[tuple[Any, Any]]:
    """Return each value of the first beside `count` values of the second, which take turns.

    >>> few("abc", [1, 2, 3], 2)
    [('a', 1), ('a', 2), ('b', 3), ('b', 1), ('c', 2), ('c', 3)]
    """
    assert count <= len(second)
    return [(a, second[(n * count + k) % len(second)]) for n, a in enumerate(first) for k in range(count)]


def pairs(first: Sequence[Any], second: Sequence[Any], third: Sequence[Any]) -> list[tuple[Any, Any, Any]]:
    """Return rows in which each value of a column stands beside each of every other; the third has the fewest values.

    >>> pairs("ab", "xy", [1, 2])
    [('a', 'x', 1), ('a', 'y', 2), ('b', 'x', 2), ('b', 'y', 1)]
    """
    assert len(third) <= min(len(first), len(second))
    return [(a, b, third[(n + m) % len(third)]) for n, a in enumerate(first) for m, b in enumerate(second)]
