"""Programs of a few statements cut into parts, as only large ones are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from polyker.rewrite.parts import groups


@contextmanager
def cut() -> Iterator[None]:
    """Within the block each statement, or each few that need each other, is a kernel of its own."""
    before = groups.MOST_IN_ONE_KERNEL, groups.MOST_IN_A_GROUP
    groups.MOST_IN_ONE_KERNEL, groups.MOST_IN_A_GROUP = 1, 1
    try:
        yield
    finally:
        groups.MOST_IN_ONE_KERNEL, groups.MOST_IN_A_GROUP = before
