"""Lines of code of each package, without comments, docstrings and blank lines, beside its budget: `python -m tests.tools.lines`.

Exits with 1 where a package is over its budget. Who needs more raises it in the same commit, with a reason.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
# The compiler's core, whose aim is 32,000 lines in all, then what stands around it.
CORE = {
    "ir": 2080,  # 220 of them JSON of programs
    "poly": 3490,
    "machine": 370,
    "cost": 1650,
    "rewrite": 7190,
    "schedule": 8220,
    "codegen": 14500,
}
AROUND = {
    "api": 2390,
    "bridge": 4100,  # JAX: handlers, transformations, batches, sharding rules; torch: operators, rules of ATen, a backend
    "cli": 1565,  # files of arrays in four formats, pipes, schedules, times, JSON; the demo is 500 of them
    "edit": 1700,  # calls of steps in one form, names of other systems, names of moved loops
    "einsum_frontend": 3310,  # 420 of them JSON of programs
    "errors": 1350,
    "exchange": 170,
    "explain": 1280,
    "export": 1990,
    "grad": 1750,  # gradients and forward mode; checkpoints of loops, loops in loops, extrema that cancel
    "pipeline": 1370,  # 70 of them stages in the user's names
    "process": 270,
    "record": 460,
    "reference": 1510,
    "runtime": 4040,
    "store": 290,
    "viz": 150,
}
_SILENT = (
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER, tokenize.ENCODING,
)  # fmt: skip
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def lines_of_code(text: str) -> int:
    """Return how many lines of a source have code.

    >>> lines_of_code('def f():\\n    "Do it."\\n\\n    # because\\n    return 1\\n')
    2
    """
    documented: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            first = node.body[0]
            documented |= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    found: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _SILENT:
            found |= set(range(token.start[0], token.end[0] + 1))
    return len(found - documented)


def _sources() -> Iterator[tuple[str, Path]]:
    """Yield the package and the path of each module; codegen and einsum_frontend lie beside polyker."""
    for path in (ROOT / "polyker").rglob("*.py"):
        parts = path.relative_to(ROOT / "polyker").parts
        if len(parts) > 1 and parts[0] not in ("codegen", "einsum_frontend"):
            yield parts[0], path
    for name in ("codegen", "einsum_frontend"):
        yield from ((name, path) for path in (ROOT / name).rglob("*.py"))


def counted() -> Counter[str]:
    """Return the lines of code of each package."""
    found: Counter[str] = Counter()
    for package, path in _sources():
        found[package] += lines_of_code(path.read_text(encoding="utf-8"))
    return found


def over() -> list[str]:
    """Return what is said of packages that are over their budget, or have none."""
    budget = CORE | AROUND
    return [
        f"{package} has {count} lines of code, {budget.get(package, 0)} are its budget"
        for package, count in sorted(counted().items())
        if count > budget.get(package, 0)
    ]


def main() -> int:
    """Print the lines of each package and its budget; return 1 where any is over it."""
    found = counted()
    for name, budgets in (("core", CORE), ("around it", AROUND)):
        for package, budget in budgets.items():
            print(f"{package:<18}{found[package]:>7} of {budget}")
        print(f"{name:<18}{sum(found[p] for p in budgets):>7} of {sum(budgets.values())}\n")
    print("\n".join(over()))
    return int(bool(over()))


if __name__ == "__main__":
    sys.exit(main())
