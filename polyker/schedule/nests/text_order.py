"""Build the schedule in the order of the text, which is always legal."""

from __future__ import annotations

from polyker.ir.typed import TypedProgram
from polyker.schedule.nests.nest import nests_of, serial_nest
from polyker.schedule.tree.nodes import ScheduleTree


def default_schedule(program: TypedProgram) -> ScheduleTree:
    """Return the schedule that always exists: the order of the text, every loop serial."""

    _, nest = nests_of(program.body, lambda statements: (statements, [serial_nest(s) for s in statements]))
    return ScheduleTree(nest.tree)
