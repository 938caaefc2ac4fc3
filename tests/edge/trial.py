"""Trials: what a part does with one seed, what it counts and measures, and how it fails."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TypeVar

from msgspec import Struct, field

T = TypeVar("T")

PARTS = ("threads", "signals", "exits", "forks", "arguments", "liars")


class Wrong(Exception):
    """A check that did not hold."""


class Skipped(Exception):
    """A trial that could not look at what it is for, such as an interrupt that came after the work; it does not count."""


class Trial(Struct, dict=True):
    """One trial: all that is random in it comes from the part, the seed and the number."""

    part: str
    seed: int
    number: int
    notes: dict[str, list[float]] = field(default_factory=dict)
    _checks: itertools.count[int] = field(default_factory=itertools.count)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.random = random.Random(f"{self.part}/{self.seed}/{self.number}")

    def check(self, holds: object, problem: str | Callable[[], str]) -> None:
        """Count a check; raises Wrong where it does not hold."""
        next(self._checks)  # one step of the interpreter, so threads may count without a lock
        if not holds:
            raise Wrong(problem if isinstance(problem, str) else problem())

    def turn(self, kinds: Sequence[T]) -> T:
        """Return the kind whose turn it is: as many trials as there are kinds have each of them once."""
        return kinds[self.number % len(kinds)]

    def note(self, name: str, value: float) -> None:
        """Keep a measured value; the campaign prints the distribution of each name."""
        with self._lock:
            self.notes.setdefault(name, []).append(value)

    @property
    def checks(self) -> int:
        """How many checks were made so far."""
        return int(repr(self._checks)[len("count(") : -1])


class Part(Struct, frozen=True):
    """A part of the campaign: its trial, the seconds that one may take, and how many a child process runs.

    `turns`: trials after which each kind had its turn, where kinds take turns. `judge`: problems of all that the trials noted
    together, such as a share that is too small.
    """

    run: Callable[[Trial], None]
    limit: float = 60.0
    per_child: int = 20
    turns: int = 0
    judge: Callable[[Mapping[str, Sequence[float]]], list[str]] = lambda notes: []


def part(name: str) -> Part:
    """Return the part of a name; each is a module that defines PART."""
    found: Part = import_module(f"tests.edge.{name}").PART
    return found


def share_within(values: Sequence[float], limit: float) -> float:
    """Return the share of values that are at most `limit`, 1 where there are none."""
    return sum(v <= limit for v in values) / len(values) if values else 1.0


def distribution(values: Sequence[float]) -> str:
    """Return how values in seconds are distributed, as text."""
    ranked = sorted(values)
    shown = ", ".join(
        f"{name} {ranked[min(len(ranked) - 1, int(q * len(ranked)))]:.4f}"
        for name, q in (("median", 0.5), ("90%", 0.9), ("95%", 0.95), ("99%", 0.99), ("worst", 1.0))
    )
    return f"{len(ranked)} values, {shown} s"
