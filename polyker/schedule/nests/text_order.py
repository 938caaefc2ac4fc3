"""Build the schedule in the order of the text, which is always legal."""

from __future__ import annotations

from polyker.ir.typed import TypedLoop, TypedNode, TypedProgram
from polyker.schedule.nests.nest import Nest, around_nest, in_order, serial_nest
from polyker.schedule.tree.nodes import ScheduleTree


def default_schedule(program: TypedProgram) -> ScheduleTree:
    """Return the schedule that always exists: the order of the text, every loop serial."""

    def visit(body: tuple[TypedNode, ...]) -> Nest:
        return in_order([around_nest(n, visit(n.body)) if isinstance(n, TypedLoop) else serial_nest(n) for n in body])

    return ScheduleTree(visit(program.body).tree)
