"""What workers of other libraries run: called by name, as pickle wants it."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

import polyker as pk
from polyker.store import disk


def use_cache(folder: str) -> None:
    """Use a disk cache, in a worker that has just begun."""
    os.environ |= {"POLYKER_CACHE": "rw", "POLYKER_CACHE_DIR": folder, "POLYKER_NUM_THREADS": "1"}


def called(operator: Any, number: int, folder: str) -> tuple[float, int, int]:
    """Return a result of an operator or a kernel, the worker, and how many kernels it has compiled."""
    use_cache(folder)
    found = operator(np.full(5, float(number)))
    return float(found[0]), os.getpid(), disk.counts.made.get("kernel", 0)


def made(number: int, folder: str) -> tuple[float, int, int]:
    """Return what `called` returns of an operator that the worker makes itself."""
    use_cache(folder)
    return called(pk.op(f"y[i] = x[i] * 2 + {number % 10}"), number, folder)


def compiled_by(found: list[tuple[float, int, int]], before: int = 0) -> int:
    """Return how many kernels all workers have compiled; `before`: what a forked one counts of its parent's."""
    most: dict[int, int] = {}
    for _, worker, count in found:
        most[worker] = max(count, most.get(worker, 0))
    return sum(count - before for count in most.values())
