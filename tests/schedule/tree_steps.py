"""Steps of a schedule tree as data: applied by name, told by their text, made again."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable

from msgspec import Struct

from polyker.errors import LegalityError
from polyker.errors.base import failure
from polyker.errors.schedules import UNKNOWN_STEP
from polyker.poly.scop import Scop
from polyker.schedule.legality.prove import prove
from polyker.schedule.steps.basic import interchange, mapped, parallel, tile, unroll, vectorise
from polyker.schedule.steps.fusion import distribute, fuse
from polyker.schedule.steps.promotion import promote
from polyker.schedule.tree.nodes import ScheduleTree


class TreeStep(Struct, frozen=True):
    """One step: its name, and its arguments after the schedule.

    >>> print(TreeStep("tile", ("S0", (("i0", 8), ("i1", 16)))))
    tile('S0', (('i0', 8), ('i1', 16)))
    """

    name: str
    arguments: tuple[object, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(repr, self.arguments))})"


STEPS: dict[str, Callable[..., ScheduleTree]] = {
    "map": mapped,
    "tile": tile,
    "interchange": interchange,
    "fuse": fuse,
    "distribute": distribute,
    "unroll": unroll,
    "vectorise": vectorise,
    "parallel": parallel,
    "promote": promote,
}


def step(scop: Scop, schedule: ScheduleTree, wanted: TreeStep) -> ScheduleTree:
    """Return the schedule after a step, whether or not it is legal; raises ScheduleError."""
    function = STEPS.get(wanted.name)
    arguments = (scop, schedule) if function is promote else (schedule,)
    known = ", ".join(STEPS)
    if function is None:
        raise failure(UNKNOWN_STEP, name=wanted.name, arguments=wanted.arguments, known=known)
    try:
        inspect.signature(function).bind(*arguments, *wanted.arguments)
    except TypeError:
        raise failure(UNKNOWN_STEP, name=wanted.name, arguments=wanted.arguments, known=known) from None
    return function(*arguments, *wanted.arguments)


def apply(scop: Scop, schedule: ScheduleTree, wanted: TreeStep) -> ScheduleTree:
    """Return the schedule after a step that is proven legal.

    Raises ScheduleError where the step has no place to be applied, LegalityError where it would break a dependence.
    """
    changed = step(scop, schedule, wanted)
    prove(scop, changed)
    return changed


def replay(scop: Scop, schedule: ScheduleTree, steps: Iterable[TreeStep]) -> ScheduleTree:
    """Return the schedule after steps in order, each proven legal; raises as `apply` does."""
    for wanted in steps:
        schedule = apply(scop, schedule, wanted)
    return schedule


def is_legal(scop: Scop, schedule: ScheduleTree) -> bool:
    """Whether `prove` finds nothing wrong."""
    try:
        prove(scop, schedule)
    except LegalityError:
        return False
    return True
