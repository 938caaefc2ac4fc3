"""What was chosen and what was refused, in the user's names: the schedule's notes, and its tree in short."""

from __future__ import annotations

import re
from collections.abc import Mapping

from polyker.schedule.tree import REFUSED, Schedule

_GENERATED = re.compile(r"(?<![A-Za-z_'.\d])[Sit]\d+\b")


def translated(text: str, names: Mapping[str, str]) -> str:
    """Return a note with each generated name (S0, t1, i2) replaced by the user's."""
    return _GENERATED.sub(lambda found: names.get(found[0], found[0]), text)


def decisions_of(schedule: Schedule, names: Mapping[str, str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return (decisions, refusals) of a schedule's notes."""
    chosen: list[str] = []
    refused: list[str] = []
    for note in dict.fromkeys(schedule.notes):
        (refused if note.startswith(REFUSED) else chosen).append(translated(note.removeprefix(REFUSED), names))
    return tuple(chosen), tuple(refused)
