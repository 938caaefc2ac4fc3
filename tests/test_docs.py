"""The examples of the documentation run as they stand there, and its links and paths lead somewhere."""

import contextlib
import doctest
import re
import warnings
from pathlib import Path

import pytest

from polyker.einsum_frontend import parse
from polyker.errors import PolykerError

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(p for p in DOCS.rglob("*.md") if not {"_build", "_generated"} & set(p.parts))
SHOWN = [p for p in PAGES if "```python\n>>>" in p.read_text(encoding="utf-8")]
NEEDS = {"guide/jax.md": "jax", "guide/torch.md": "torch"}  # extras that the examples of a page need
FLAGS = doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL


def name(page):
    return str(page.relative_to(DOCS))


def examples(page):
    """Return a page's blocks that begin with a prompt as one test, all else as blank lines, so that line numbers are right."""
    lines, kept, inside = page.read_text(encoding="utf-8").splitlines(), [], False
    for number, line in enumerate(lines):
        if line.startswith("```"):
            inside = line == "```python" and lines[number + 1].startswith(">>>")
        kept.append(line if inside and not line.startswith("```") else "")
    return doctest.DocTestParser().get_doctest("\n".join(kept), {}, name(page), str(page), 0)


@pytest.mark.parametrize("page", SHOWN, ids=name)
def test_the_examples_of_a_page_are_true(page):
    if name(page) in NEEDS:
        pytest.importorskip(NEEDS[name(page)], reason=f"{NEEDS[name(page)]} is an extra, and not installed")
    said = []
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    found = runner.run(examples(page), out=said.append)
    assert not found.failed, "".join(said)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_the_paths_that_a_page_names_are_there(page):
    text = page.read_text(encoding="utf-8")
    folders = "polyker|codegen|einsum_frontend|benchmarks|tests|docs"
    for path in re.findall(rf"`((?:{folders})/[\w./]*|[\w./]+/\w+\.py)`", text):
        assert (ROOT / path).exists(), path
    for module in re.findall(r"`(polyker\.[a-z_.]+)(?:\.[A-Z]\w*)?`", text):
        assert _is_known(module), module
    for link in re.findall(r"\]\(([^)#:\s]+\.md)(?:#[\w-]+)?\)", text):
        assert (page.parent / link).exists(), link


def passages(text):
    """Yield the paragraphs and the fenced blocks of a page."""
    for part in re.split(r"^(```.*?^```)$", text, flags=re.MULTILINE | re.DOTALL):
        yield from [part] if part.startswith("```") else re.split(r"\n\n|\n(?=- )", part)


def operators(passage):
    """Yield the texts in a passage that are operators on a line, without their comments."""
    for line in passage.splitlines():
        spans = re.findall(r"`([^`]+)`|\"([^\"]+)\"", line)
        for text in [line.partition("#")[0].strip(), *(a or b for a, b in spans)]:
            if "[" in text and "=" in text and not text.endswith(";"):
                with contextlib.suppress(PolykerError), warnings.catch_warnings(action="ignore"):
                    yield text, parse(text)


PUBLIC = [
    p
    for folder in ("polyker/api", "polyker/cli", "polyker/edit", "einsum_frontend")
    for p in (ROOT / folder).glob("*.py")
]


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES, *PUBLIC], ids=lambda page: page.name)
def test_an_example_that_needs_a_size_says_how_it_is_given(page):
    for passage in passages(page.read_text(encoding="utf-8")):
        for text, program in operators(passage):
            for size in program.keywords:
                declared = re.search(rf"\w+\([^()]*\b{size}\b[^()]*\)\s*->", passage)
                assert declared or f"{size}=" in passage, text


def _is_known(module):
    """Whether a dotted name is a module, or something that a module defines."""
    parts = module.split(".")
    for count in (len(parts), len(parts) - 1):
        place = ROOT.joinpath(*parts[:count])
        files = [f for f in (place.with_suffix(".py"), place / "__init__.py") if f.exists()]
        if files and (count == len(parts) or re.search(rf"\b{parts[-1]}\b", files[0].read_text(encoding="utf-8"))):
            return True
    return False
