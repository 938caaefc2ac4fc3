"""What was chosen and what was refused, in the user's names: the schedule's notes, and its tree in short."""

from __future__ import annotations

import re
from collections.abc import Mapping

from polyker.ir.decision import REFUSED
from polyker.schedule.tree.nodes import Kind, Schedule, loops

_ABOUT = re.compile(r"(S\d+):")
_GENERATED = re.compile(r"(?<![A-Za-z_'.\d])[Sit]\d+\b")


def translated(text: str, names: Mapping[str, str]) -> str:
    """Return a note with each generated name (S0, t1, i2) replaced by the user's."""
    return _GENERATED.sub(lambda found: names.get(found[0], found[0]), text)


def decisions_of(schedule: Schedule, names: Mapping[str, str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return (decisions, refusals) of a schedule's notes."""
    chosen: list[str] = []
    refused: list[str] = []
    for note in dict.fromkeys(schedule.notes):
        text = note.removeprefix(REFUSED)
        about = _ABOUT.match(text)
        if about and about[1] not in names:
            continue  # of a statement that became a part of another one
        (chosen if text == note else refused).append(translated(text, names))
    for member in loops(schedule.tree):
        if member.kind is Kind.PARALLEL:
            base, dot, rest = member.label.partition(".")
            name = names.get(base, base) + dot + rest
            if not any(f"{name} run" in note for note in chosen):
                chosen.append(f"{name} runs on {member.extent} threads")
    return tuple(chosen), tuple(refused)
