"""What each pass makes of a small operator, as text; `--update-golden` writes it anew."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.conftest import GOLDEN
from tests.pipeline.pass_examples import EXAMPLES, GPU_KERNEL, KERNEL, PASSES, PROGRAM, shown, texts

MOST_LINES = 80


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_pass_makes_what_it_made(name: str, golden: Callable[[str, str], None]) -> None:
    found = texts(name)
    assert found is not None, f"{name} changes nothing here"
    before, after = found
    assert before != after
    text = f"{EXAMPLES[name].described()}\n\n{shown(before, after, PASSES[name].name)}"
    assert len(text.splitlines()) <= MOST_LINES
    golden(f"passes/{name}.txt", text)


def test_every_pass_has_an_example_and_a_golden_file() -> None:
    assert len(PASSES) == len({p.name for p in PROGRAM}) + len({p.name for p in KERNEL}) + len(GPU_KERNEL)
    assert set(EXAMPLES) == set(PASSES)
    assert {path.stem for path in (GOLDEN / "passes").iterdir()} == set(PASSES)
