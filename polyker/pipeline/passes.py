"""Passes as data: a function over one level of the compiler, with its place in the order and the reason for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Generic, TypeAlias, TypeVar

from msgspec import Struct, field

from polyker.codegen.ir.kernel import KernelIR
from polyker.ir.decision import Decision
from polyker.ir.layout import DENSE, Layout
from polyker.ir.typed import TypedProgram
from polyker.machine.model import Target
from polyker.schedule.tree.nodes import ScheduleTree

Unit = TypeVar("Unit")


class PassLevel(Enum):
    """What a pass works on."""

    PROGRAM = "program"
    SCHEDULE = "schedule"
    KERNEL = "kernel"


class Ordered(Struct, frozen=True):
    """A program, and the schedule that orders its instances."""

    program: TypedProgram
    schedule: ScheduleTree


class At(Struct, frozen=True):
    """What a pass may ask besides its unit.

    `given`: the layouts of the arguments as they are called with, `layouts`: by their names those that they have once their
    dimensions are in the order of memory. `scratch_bytes`: bytes that temporaries may take which the text does not name, of all
    `threads` together; None for no limit. `reassociating`: sums of floats may be rounded otherwise than the text says. `large`:
    whether a sum of products may be taken in steps through temporaries that no cache holds; `held`: what the last pass that made
    such temporaries made, which is only worth it where statements run together, so that buffers hold a part of each.
    """

    target: Target
    given: tuple[Layout, ...] = ()
    layouts: Mapping[str, Layout] = field(default_factory=dict)
    scratch_bytes: int | None = None
    reassociating: bool = False
    threads: int = 1
    large: bool = True
    held: set[str] = field(default_factory=set)

    def layout(self, tensor: str) -> Layout:
        """Return the layout of a tensor; a temporary is dense."""
        return self.layouts.get(tensor, DENSE)


Made: TypeAlias = "Unit | tuple[Unit, Iterable[Decision]]"


class Pass(Struct, Generic[Unit], frozen=True):
    """One pass: `run` returns its unit changed, or the very same one, and the decisions where it makes any.

    `after`: passes that come before it where a list has them, and `why`. `machine`: whether it asks the target; others give the
    same for every target. `keeps_loops`: whether each index of the text keeps a loop of its own, which a person edits.
    """

    name: str
    run: Callable[[Unit, At], Made[Unit]]
    level: PassLevel
    after: tuple[str, ...] = ()
    why: str = ""
    machine: bool = False
    keeps_loops: bool = True


ProgramPass: TypeAlias = Pass[TypedProgram]
SchedulePass: TypeAlias = Pass[Ordered]
KernelPass: TypeAlias = Pass[KernelIR]
