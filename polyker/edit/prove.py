"""Prove an edited schedule legal, or refuse it in the user's names with the nearest that is."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from polyker.edit.moves import in_user_names, outcomes
from polyker.edit.nearest import nearest
from polyker.edit.state import State
from polyker.edit.step import EditStep
from polyker.errors.base import LegalityError, ScheduleError
from polyker.ir.typed import TypedProgram
from polyker.poly.dependences import Dependence, candidates
from polyker.poly.scop import Scop, build_scop
from polyker.schedule.gpu.barriers import with_barriers
from polyker.schedule.legality.prove import prove


class _LastProgram(threading.local):
    """The last program's description and dependences: isl's objects are of the thread that made them."""

    def __init__(self) -> None:
        self.program: TypedProgram | None = None
        self.scop: Scop | None = None
        self.found: tuple[Dependence, ...] = ()


_known = _LastProgram()


def described(program: TypedProgram) -> tuple[Scop, tuple[Dependence, ...]]:
    """Return the polyhedral description of a program and its dependences."""
    if _known.program is not program or _known.scop is None:
        _known.scop = build_scop(program)
        _known.found = tuple(candidates(_known.scop))
        _known.program = program
    return _known.scop, _known.found


def check(state: State) -> None:
    """Raise LegalityError, in the user's names, unless the state's schedule is legal."""
    scop, found = described(state.program)
    try:
        prove(scop, state.schedule, found)
    except LegalityError as error:
        raise in_user_names(error, state) from None


def met(state: State) -> State:
    """Return the state with barriers where the threads of a GPU's block have to meet, and nowhere else."""
    changed = with_barriers(described(state.program)[0], state.schedule)
    return state if changed == state.schedule else state.changed(changed)


def legal(states: Iterator[State]) -> State:
    """Return the first legal one of some states; raises what the first raises where there is none."""
    refused: ScheduleError | None = None
    while True:
        try:
            state = met(next(states))
            check(state)
        except StopIteration:
            assert refused is not None
            raise refused from None
        except LegalityError as error:
            refused = refused or error
        except ScheduleError as error:
            raise (refused or error) from None
        else:
            return state


def stepped(state: State, step: EditStep, *, advise: bool = True) -> State:
    """Return the state after a step that is proven legal.

    Raises ScheduleError where the step has no place, LegalityError where it would break a dependence; `advise`: the error
    names the nearest steps that are legal.
    """
    try:
        return legal(outcomes(state, step))
    except LegalityError as error:
        if not advise:
            raise
        instead = nearest(state, step, lambda start, other: legal(outcomes(start, other)))
        if instead is None:
            raise
        hint = f"legal instead: {instead}"
        changed = type(error)(error.message, code=error.code, hint=hint)
        changed.values = error.values
        raise changed from None
