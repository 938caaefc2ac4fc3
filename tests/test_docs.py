"""The examples of the documentation run as they stand there, and its links and paths lead somewhere."""

import doctest
import re
from pathlib import Path

import pytest

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


def _is_known(module):
    """Whether a dotted name is a module, or something that a module defines."""
    parts = module.split(".")
    for count in (len(parts), len(parts) - 1):
        place = ROOT.joinpath(*parts[:count])
        files = [f for f in (place.with_suffix(".py"), place / "__init__.py") if f.exists()]
        if files and (count == len(parts) or re.search(rf"\b{parts[-1]}\b", files[0].read_text(encoding="utf-8"))):
            return True
    return False
