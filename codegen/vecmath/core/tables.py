"""Coefficients of the vector mathematics by name: `polyker/data/vecmath.txt`, which tests/codegen/vecmath_fit.py writes."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def _words() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in (files("polyker.data") / "vecmath.txt").read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            name, *values = line.split()
            found.setdefault(name, []).extend(values)
    return found


@cache
def table(name: str) -> tuple[float, ...]:
    """Return the values of a table."""
    return tuple(map(float.fromhex, _words()[name]))


@cache
def rows(name: str, count: int = 32) -> tuple[tuple[float, ...], ...]:
    """Return the rows of a table for 32 intervals."""
    values = table(name)
    return tuple(values[k : k + count] for k in range(0, len(values), count))


def integers(name: str) -> tuple[int, ...]:
    """Return the values of a table of integers."""
    return tuple(int(word, 16) for word in _words()[name])
