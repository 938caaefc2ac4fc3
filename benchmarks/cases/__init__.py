"""The list of cases: one module a family. It is fixed: a case is never taken out because polyker does badly on it."""

from __future__ import annotations

from fnmatch import fnmatch
from functools import cache

from benchmarks.case import Case
from benchmarks.cases import conv, integer, matmul, memory, programs, semiring, stencils, tccg, tensor

FAMILIES = {
    "matmul": matmul.cases,
    "tccg": tccg.cases,
    "tensor": tensor.cases,
    "semiring": semiring.cases,
    "conv": conv.cases,
    "integer": integer.cases,
    "memory": memory.cases,
    "programs": programs.cases,
    "stencils": stencils.cases,
}


@cache
def all_cases() -> tuple[Case, ...]:
    """Return every case, families in order."""
    return tuple(case for cases in FAMILIES.values() for case in cases())


def select(families: tuple[str, ...] = (), pattern: str = "*") -> list[Case]:
    """Return the cases of some families (all if none is named) whose name matches a shell pattern."""
    return [c for c in all_cases() if (not families or c.family in families) and fnmatch(c.name, pattern)]
