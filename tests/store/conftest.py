"""A disk cache of a test's own."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of an empty cache that is on."""
    monkeypatch.setenv("POLYKER_CACHE", "rw")
    monkeypatch.setenv("POLYKER_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"
