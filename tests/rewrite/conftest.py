"""What tests of rewritten time loops share."""

from __future__ import annotations

import pytest

from polyker.rewrite.time import step_blocks


@pytest.fixture
def short_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let loops of a few steps run by blocks of four."""
    monkeypatch.setattr(step_blocks, "BLOCK_STEPS", (4,))
    monkeypatch.setattr(step_blocks, "MIN_STEP_BLOCKS", 2)
