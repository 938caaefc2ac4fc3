"""What was chosen and what was refused, in the user's names: the passes' decisions, and the schedule's tree in short."""

from __future__ import annotations

import re
from collections.abc import Mapping

from polyker.ir.decision import Decision
from polyker.schedule.tree.nodes import MemberKind, ScheduleTree, loops
from polyker.structs import replace

_GENERATED = re.compile(r"(?<![A-Za-z_'.\d])[Sit]\d+\b")
_STATEMENT = re.compile(r"S\d+")


def translated(text: str, names: Mapping[str, str]) -> str:
    """Return a text with each generated name (S0, t1, i2) replaced by the user's."""
    return _GENERATED.sub(lambda found: names.get(found[0], found[0]), text)


def decisions_of(schedule: ScheduleTree, names: Mapping[str, str]) -> tuple[tuple[Decision, ...], tuple[Decision, ...]]:
    """Return (decisions, refusals) of a schedule, in the user's names."""
    chosen: list[Decision] = []
    refused: list[Decision] = []
    for made in dict.fromkeys(schedule.notes):
        if _STATEMENT.fullmatch(made.subject) and made.subject not in names:
            continue  # of a statement that became a part of another one
        told = replace(
            made,
            subject=translated(made.subject, names),
            chosen=translated(made.chosen, names),
            refused=translated(made.refused, names),
        )
        (chosen if told.chosen else refused).append(told)
    for member in loops(schedule.tree):
        if member.kind is MemberKind.PARALLEL:
            base, dot, rest = member.label.partition(".")
            name = names.get(base, base) + dot + rest
            if not any(f"{name} run" in d.chosen for d in chosen):
                chosen.append(Decision("", f"{name} runs on {member.extent} threads"))
    return tuple(chosen), tuple(refused)
