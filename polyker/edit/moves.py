"""What each step does to a state, whether or not that is legal; `polyker.edit.prove` asks that.

A step may have several outcomes, the plainest first: where something stands between two statements that are to share loops,
it may run before both, or after.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from polyker.edit.find import StatementPlace, place, statement_named
from polyker.edit.promotion import promoted
from polyker.edit.state import State
from polyker.edit.step import EditStep
from polyker.errors.base import CATALOGUE, LegalityError, PolykerError, ScheduleError, failure
from polyker.errors.schedules import NOT_ADJACENT, UNKNOWN_STATEMENT
from polyker.schedule.steps import basic as steps
from polyker.schedule.steps import times as step_times
from polyker.schedule.steps.fusion import distribute, fuse
from polyker.schedule.tree.nodes import ScheduleTree, Sequence, Tree
from polyker.schedule.tree.places import spliced, with_children
from polyker.structs import replace

Outcomes = Iterator[State]


def outcomes(state: State, step: EditStep) -> Outcomes:
    """Yield the states that a step may lead to; raises ScheduleError, in the user's names, where it has no place."""
    try:
        yield from _MOVES[step.name](state, step)
    except LegalityError:
        raise
    except ScheduleError as error:
        raise in_user_names(error, state) from None


def _tile(state: State, step: EditStep) -> Outcomes:
    found = place(state, step.statement, dict(step["sizes"]), "tile")
    sizes = tuple((found.labels[n], size) for n, size in step["sizes"])
    yield state.changed(steps.tile(state.schedule, found.statement, sizes))


def _split(state: State, step: EditStep) -> Outcomes:
    found = place(state, step.statement, dict(step["sizes"]), "split")
    schedule = state.schedule
    for name, size in step["sizes"]:
        schedule = steps.tile(schedule, found.statement, ((found.labels[name], size),))
    yield state.changed(schedule)


def _interchange(state: State, step: EditStep) -> Outcomes:
    found = place(state, step.statement, step["order"], "interchange")
    order = tuple(found.labels[n] for n in step["order"])
    yield state.changed(steps.interchange(state.schedule, found.statement, order))


def _each(
    state: State,
    step: EditStep,
    argument: str,
    change: Callable[[ScheduleTree, StatementPlace, str, int], ScheduleTree],
) -> Outcomes:
    found = place(state, step.statement, dict(step[argument]), step.name)
    schedule = state.schedule
    for name, value in step[argument]:
        schedule = change(schedule, found, found.labels[name], value)
    yield state.changed(schedule)


def _vectorise(state: State, step: EditStep) -> Outcomes:
    return _each(state, step, "sizes", lambda s, at, label, n: steps.vectorise(s, at.statement, label, n))


def _unroll(state: State, step: EditStep) -> Outcomes:
    return _each(state, step, "sizes", lambda s, at, label, n: steps.unroll(s, at.statement, label, n))


def _shift(state: State, step: EditStep) -> Outcomes:
    """A statement moves with what the compiler made for it: its start, its accumulator, its store."""

    def change(schedule: ScheduleTree, at: StatementPlace, label: str, offset: int) -> ScheduleTree:
        families = state.names.families
        who = [s for s in families if families[s] == families[at.statement]]
        return step_times.shift(schedule, at.statement, label, offset, who)

    return _each(state, step, "offsets", change)


def _reverse(state: State, step: EditStep) -> Outcomes:
    found = place(state, step.statement, (step["loop"],), "reverse")
    yield state.changed(step_times.reverse(state.schedule, found.statement, found.labels[step["loop"]]))


def _skew(state: State, step: EditStep) -> Outcomes:
    loop, along = step["loops"]
    found = place(state, step.statement, (loop, along), "skew")
    labels = found.labels
    yield state.changed(step_times.skew(state.schedule, found.statement, labels[loop], labels[along], step["factor"]))


def _distribute(state: State, step: EditStep) -> Outcomes:
    found = place(state, step.statement, (step["loop"],), "distribute")
    yield state.changed(distribute(state.schedule, found.statement, found.labels[step["loop"]]))


def _parallel(state: State, step: EditStep) -> Outcomes:
    found = place(state, step.statement, (step["loop"],), "parallel")
    yield state.changed(steps.parallel(state.schedule, found.statement, found.labels[step["loop"]], step["threads"]))


def _map(state: State, step: EditStep) -> Outcomes:
    found = place(state, step.statement, (step["loop"],), "map")
    yield state.changed(steps.mapped(state.schedule, found.statement, found.labels[step["loop"]], step["role"]))


def _fuse(state: State, step: EditStep) -> Outcomes:
    first, second = statement_named(state, step["first"]), statement_named(state, step["second"])
    refused: ScheduleError | None = None
    for schedule in _neighbours(state.schedule, first, second):
        try:
            yield state.changed(fuse(schedule, first, second, step["depth"]))
        except LegalityError:
            raise
        except ScheduleError as error:
            refused = refused or error
            continue
        refused = None
    if refused is not None:
        raise refused


def _neighbours(schedule: ScheduleTree, first: str, second: str) -> Iterator[ScheduleTree]:
    """Yield the schedule with what stands between two children of a sequence before both of them, or after."""
    found = False
    for after in (False, True):

        def visit(node: Tree, after: bool = after) -> Tree:
            nonlocal found
            node = with_children(node, visit)
            if not isinstance(node, Sequence):
                return node
            children = list(node.children)
            one = next((n for n, f in enumerate(children) if first in f.statements), None)
            other = next((n for n, f in enumerate(children) if second in f.statements), None)
            if one is None or other is None or one >= other:
                return node
            found = True
            between = children[one + 1 : other]
            pair = [children[one], children[other]]
            children[one : other + 1] = [*pair, *between] if after else [*between, *pair]
            return spliced(Sequence(tuple(children)))

        yield replace(schedule, tree=visit(schedule.tree))
        if not found:
            raise failure(NOT_ADJACENT, first=first, second=second)


def in_user_names(error: PolykerError, state: State) -> PolykerError:
    """Return an error of a step or of the proof with the user's names in place of the generated ones."""
    if error.code not in CATALOGUE or error.code >= UNKNOWN_STATEMENT:
        return error
    statements = state.names.statements

    def statement(text: str) -> str:
        return re.sub(r"^S\d+\b|(?<=, )S\d+\b", lambda m: statements.get(m[0], m[0]), text)

    def loops(text: str) -> str:
        return ", ".join(state.loop(part) for part in text.split(", "))

    change = {
        "statement": statement, "source": statement, "sink": statement, "instance": statement, "reason": statement,
        "first": statement, "second": statement, "loop": loops, "loops": loops, "outer": loops, "other": loops,
    }  # fmt: skip
    values: dict[str, Any] = {k: change[k](str(v)) if k in change else v for k, v in error.values.items()}
    if "known" in values and "statement" in values:
        known = str(values["known"])
        values["known"] = statement(known) if error.code == "PK520" else loops(known)
    if "reason" in values:
        values["reason"] = re.sub(r"`(i\d+[\w.]*)`", lambda m: f"`{state.loop(m[1])}`", str(values["reason"]))
    return failure(error.code, hint=_HINTS.get(error.code), **values)


_HINTS = {
    "PK520": "a statement is called by the tensor that it defines, as the printed schedule shows it",
    "PK526": 's.interchange("j", "i") makes j the outer loop of i and j',
}

_MOVES: dict[str, Callable[[State, EditStep], Outcomes]] = {
    "tile": _tile,
    "split": _split,
    "interchange": _interchange,
    "fuse": _fuse,
    "distribute": _distribute,
    "skew": _skew,
    "shift": _shift,
    "reverse": _reverse,
    "vectorise": _vectorise,
    "unroll": _unroll,
    "parallel": _parallel,
    "map": _map,
    "promote": promoted,
}
