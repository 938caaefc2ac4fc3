"""All programs of the suite."""

from __future__ import annotations

from fnmatch import fnmatchcase

from benchmarks.polybench import others, products, solvers, stencils, triangles
from benchmarks.polybench.case import Case


def all_cases() -> tuple[Case, ...]:
    """Return every program, by name."""
    groups = (others, products, solvers, stencils, triangles)
    return tuple(sorted((case for group in groups for case in group.cases()), key=lambda case: case.name))


def select(pattern: str) -> tuple[Case, ...]:
    """Return the programs whose names match a pattern of the shell's kind."""
    return tuple(case for case in all_cases() if fnmatchcase(case.name, pattern))
