"""The words of the field: what first lines of docstrings and public names say, and what they do not."""

import ast
import re
from pathlib import Path

import pytest

from tests.test_packaging import ROOT, SOURCES, module

# Words of no textbook, and what the field says for them.
GLOSSARY = {
    r"ahead|asks the caches": "prefetches",
    r"cells?": "elements",
    r"spread": "broadcast",
    r"turned": "transposed",
    r"woven": "interleaved",
    r"parted": "split",
    r"crowd\w*|thrash\w*": "set conflicts",
    r"halves of a core": "double-pumped operations",
    r"steady": "loop-invariant",
    r"loose": "reassociating",
    r"in step": "uniform across lanes",
    r"past the caches|passes the caches": "streaming (non-temporal) store",
}
WORDS = {re.compile(rf"\b(?:{old})\b", re.I): new for old, new in GLOSSARY.items()}
NAMES = {re.compile(rf"(?:^|_)(?:{old.replace(' ', '_')})(?:_|$)", re.I): new for old, new in GLOSSARY.items()}
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def first_lines(path: Path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, DOCUMENTED) and (text := ast.get_docstring(node)):
            yield getattr(node, "lineno", 1), text.split("\n\n")[0].split("\n")[0]


def public_names(path: Path):
    """Yield what a module defines for others: functions, classes, their methods and fields, and constants."""
    tree = ast.parse(path.read_text())
    for node in [*tree.body, *(n for c in tree.body if isinstance(c, ast.ClassDef) for n in c.body)]:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield node.lineno, name
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                yield node.lineno, name


@pytest.mark.parametrize("path", SOURCES, ids=module)
def test_docstrings_and_names_use_the_words_of_the_field(path):
    found = [
        f"{path.relative_to(ROOT)}:{line}: {old.search(text)[0]!r} in {text!r}: say {new}"
        for line, text in first_lines(path)
        for old, new in WORDS.items()
        if old.search(text)
    ]
    found += [
        f"{path.relative_to(ROOT)}:{line}: {name}: say {new}"
        for line, name in public_names(path)
        for old, new in NAMES.items()
        if not name.startswith("_") and old.search(name)
    ]
    assert not found, "\n".join(found)
