"""Temporaries full of rubbish: memory that a call gets afresh mostly holds zeros, which hide that an element was never set."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from polyker.runtime import calls

# All bits: not a number in every floating-point type, -1 or the greatest value of an integer.
RUBBISH = 0xFF


@contextmanager
def poisoned() -> Iterator[None]:
    """Fill what first calls of kernels get for their temporaries."""
    lend = calls.aligned_block

    def filled(size: int) -> tuple[Any, int]:
        block, first = lend(size)
        block.fill(RUBBISH)
        return block, first

    with mock.patch.object(calls, "aligned_block", filled):
        yield
