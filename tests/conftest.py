"""Options and fixtures of all tests."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.quick import is_quick, may_be_quick, refuse_machine_code

# Schedules are for what polyker's own files say of this processor, not for what a user measured.
os.environ.setdefault("POLYKER_MACHINE", "")
# What a test compiles is compiled: tests of the disk cache name a folder of their own.
os.environ["POLYKER_CACHE"] = "off"
# Several workers run tests in parallel: a kernel runs on one thread, but where a test is of threads.
os.environ.setdefault("POLYKER_NUM_THREADS", "1")
GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden files anew instead of comparing")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import no others where quick tests alone are asked for (`-m quick`)."""
    return True if config.option.markexpr == "quick" and not may_be_quick(collection_path) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if is_quick(item):
            item.add_marker(pytest.mark.quick)


@pytest.fixture(autouse=True)
def _quick_tests_make_no_machine_code(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("quick") is not None:
        refuse_machine_code(request.getfixturevalue("monkeypatch"))


def pytest_collection_finish() -> None:
    """Keep what the collection of some ten thousand tests made out of every later search for garbage."""
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)  # what a compile makes is freed without a search: most of it is in no cycle


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare a text with a file below tests/golden, or write it there with --update-golden."""

    def check(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            return
        assert path.exists(), f"{path} is missing: run pytest with --update-golden, and read what it wrote"
        assert text == path.read_text(), f"{path.name} differs: if that is meant, run pytest with --update-golden"

    return check
