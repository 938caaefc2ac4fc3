"""What is edited: a program with all that its schedule needed, the tree that orders it, and the names that people see."""

from __future__ import annotations

from msgspec import Struct

from polyker.edit.names import ShownNames, named
from polyker.ir.typed import TypedProgram
from polyker.schedule.tree.nodes import Member, ScheduleTree, loops, paths
from polyker.structs import replace


class NamedLoop(Struct, frozen=True):
    """A loop as one statement knows it: the name shown, other names for it, and the member of the tree."""

    name: str
    others: tuple[str, ...]
    member: Member


class State(Struct, frozen=True):
    """`typed`: the program as written; `raw`: with accumulators and copies, which `schedule` orders; `program`: the same,
    with names of the user's as labels."""

    typed: TypedProgram
    raw: TypedProgram
    program: TypedProgram
    schedule: ScheduleTree
    names: ShownNames

    def changed(self, schedule: ScheduleTree) -> State:
        """Return the state with another tree."""
        return replace(self, schedule=schedule)

    def internal(self, shown: str) -> str | None:
        """Return the generated name of a statement, or None."""
        return next((s for s, name in self.names.statements.items() if name == shown), None)

    def loop(self, label: str) -> str:
        """Return the shown name of a loop by its label in the tree."""
        found = next((m for m in loops(self.schedule.tree) if m.label == label), None)
        return self.names.loop(label) if found is None else self.names.shown(found)

    def loops(self, statement: str) -> tuple[NamedLoop, ...]:
        """Return the loops of a statement by its generated name, the outermost first, each once."""
        found: dict[str, NamedLoop] = {}
        for path in paths(self.schedule.tree, statement):
            for member in path:
                name, *others = self.names.loop_of(member, statement)
                found.setdefault(name, NamedLoop(name, tuple(others), member))
        return tuple(found.values())


def state(typed: TypedProgram, program: TypedProgram, schedule: ScheduleTree) -> State:
    """Return the state of a program and its schedule."""
    dressed, names = named(typed, program)
    return State(typed, program, dressed, schedule, names)
