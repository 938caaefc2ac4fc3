"""Say what operators of ATen are in the notation, a rule each."""

from __future__ import annotations

from polyker.process.jobs import load

_FILES = ("elementwise", "shapes", "reductions", "norms", "products", "attention", "pooling", "gathers")


def load_all() -> None:
    """Load the files of rules, which put them into the table."""
    for name in _FILES:
        load(f"polyker.bridge.torch.rules.{name}")
