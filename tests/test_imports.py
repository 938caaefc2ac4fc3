"""What imports what: nothing in a circle, and nothing for types alone that is loaded anyhow."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.test_packaging import ROOT, SOURCES, module, python

MODULES = {module(path): path for path in SOURCES}
# Of these names `polyker` has some that are loaded with it: for readers and type checkers they stand beside the others.
FOR_TYPES = [p for p in SOURCES if "\nif TYPE_CHECKING:" in p.read_text() and p != ROOT / "polyker" / "__init__.py"]

LOADED = re.compile(r'load\("(polyker[\w.]*)"\)\.(\w+)')


def imported(tree: ast.AST) -> Iterator[str]:
    """Yield the product's modules that code imports anywhere: in functions, for types alone, by a name in a string."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names if alias.name in MODULES)
            case ast.ImportFrom(module=str(source), names=names):
                found = {f"{source}.{alias.name}" for alias in names}
                yield from found & {*MODULES}
                if source in MODULES and found - {*MODULES}:
                    yield source
            case ast.Constant(value=str(name)) if "." in name and name in MODULES:
                yield name


def circle(graph: dict[str, set[str]]) -> list[str]:
    """Return modules each of which imports the next, the first of them at both ends; nothing where there are none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(reversed(error.args[1]))
    return []


def test_no_modules_import_each_other_in_a_circle() -> None:
    graph = {name: {*imported(ast.parse(path.read_bytes()))} - {name} for name, path in MODULES.items()}
    assert len(graph) > 400
    assert sum(map(len, graph.values())) > 2000
    assert circle(graph) == []


@pytest.mark.parametrize(
    "code",
    [
        "from polyker.ir import typed",
        "from polyker.ir.typed import TypedProgram",
        "import polyker.ir.typed as t",
        "if TYPE_CHECKING:\n    from polyker.ir.typed import TypedProgram",
        "def f():\n    from polyker.ir.typed import TypedProgram",
        "load('polyker.ir.typed')",
    ],
)
def test_an_import_is_seen_wherever_it_stands(code: str) -> None:
    assert {*imported(ast.parse(code))} == {"polyker.ir.typed"}
    back = {"polyker.ir.expr": {*imported(ast.parse(code))}, "polyker.ir.typed": {"polyker.ir.expr"}}
    assert set(circle(back)) == {"polyker.ir.expr", "polyker.ir.typed"}


@pytest.mark.parametrize("path", FOR_TYPES, ids=module)
def test_imports_for_types_alone_say_why_and_are_of_what_loads_later(path: Path) -> None:
    lines = path.read_text().splitlines()
    block = next(n for n in ast.parse("\n".join(lines)).body if isinstance(n, ast.If))
    assert lines[block.lineno - 1].startswith("if TYPE_CHECKING:  # ")
    names = [n.module for n in block.body if isinstance(n, ast.ImportFrom)]
    code = f"import sys, {module(path)}; print(*sorted(set({names!r}) & set(sys.modules)))"
    run = python("-c", code, cwd=ROOT)
    assert run.returncode == 0, run.stderr
    assert run.stdout.split() == []
    assert len(names) == len(block.body)


@pytest.mark.parametrize(
    ("source", "name"), sorted({found for p in SOURCES for found in LOADED.findall(p.read_text())})
)
def test_what_is_taken_of_a_module_that_is_loaded_late_is_there(source: str, name: str) -> None:
    """Neither mypy nor a script that renames looks into these texts."""
    for framework in ("jax", "torch"):
        if source.startswith(f"polyker.bridge.{framework}"):
            pytest.importorskip(framework, reason=f"{framework} is an extra, and not installed")
    assert hasattr(importlib.import_module(source), name)
