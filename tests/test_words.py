"""The words of the field: what first lines of docstrings and public names say, and what they do not."""

import ast
import re
import tokenize
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


# The same in comments and strings, of words that mean nothing else there.
PROSE = {
    r"ahead|asks? the caches|requests? for (?:a line|lines)": "prefetch",
    r"woven": "interleaved",
    r"parted|tak(?:e|es|en|ing) apart": "split",
    r"(?:are|is|were|was) turned": "transposed",
    r"thrash\w*|crowd(?:s|ed|ing)?": "set conflicts",
    r"(?:past|pass|passes|passing) the caches": "streaming (non-temporal) store",
    r"(?:loops?|along|over) (?:all )?the terms(?! of)": "reduction loop, along or over the reduction",
}
SENSES = {re.compile(rf"\b(?:{old})\b", re.I): new for old, new in PROSE.items()}


def prose(path: Path):
    """Yield lines of comments and strings, without names of values in LLVM IR and expressions in f-strings."""
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type in (tokenize.COMMENT, tokenize.STRING):
                for n, line in enumerate(token.string.split("\n")):
                    yield token.start[0] + n, re.sub(r"[%@][\w.]+|\{[^{}]*\}[\w.]*", "", line)


@pytest.mark.parametrize("path", SOURCES, ids=module)
def test_comments_and_messages_use_the_words_of_the_field(path):
    found = [
        f"{path.relative_to(ROOT)}:{line}: {old.search(text)[0]!r} in {text.strip()!r}: say {new}"
        for line, text in prose(path)
        for old, new in SENSES.items()
        if old.search(text)
    ]
    assert not found, "\n".join(found)


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


def test_no_class_name_stands_twice():
    classes: dict[str, set[str]] = {}
    aliases: dict[str, set[str]] = {}
    for path in SOURCES:
        tree, place = ast.parse(path.read_text()), str(path.relative_to(ROOT))
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                classes.setdefault(node.name, set()).add(place)
        for node in tree.body:
            if isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation) == "TypeAlias":
                aliases.setdefault(node.target.id, set()).add(place)
    # An alias of a type may not have the name of a class either.
    places = {name: sorted(found | aliases.get(name, set())) for name, found in classes.items()}
    assert not {name: found for name, found in places.items() if len(found) > 1}
