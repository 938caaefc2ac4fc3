"""Find the statement and the loops that a step means, by the names that people see."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from msgspec import Struct

from polyker.edit.state import NamedLoop, State
from polyker.edit.step import EditStep
from polyker.errors.base import PolykerError, failure
from polyker.errors.schedules import SEVERAL, UNKNOWN_LOOP, UNKNOWN_STATEMENT
from polyker.structs import replace


class StatementPlace(Struct, frozen=True):
    """A statement, by its generated name, and the labels of the loops that were named, by the names."""

    statement: str
    labels: Mapping[str, str]


def statement_named(state: State, name: str) -> str:
    """Return the generated name of a statement; raises ScheduleError with the names that there are."""
    found = state.internal(name)
    if found is None:
        known = list(state.names.statements.values())
        raise failure(UNKNOWN_STATEMENT, statement=name, known=_list(known), hint=did_you_mean(str(name), known))
    return found


def place(
    state: State, wanted: str | None, loops: Iterable[str], step: str, among: Collection[str] | None = None
) -> StatementPlace:
    """Return the statement that has the loops: the one `wanted`, or the only one of the user's, or else the only one.

    Statements that share a loop share what becomes of it: any of them will do. `among`: those that come into question. Raises
    ScheduleError.
    """
    names = tuple(loops)
    if wanted is not None:
        return _of(state, statement_named(state, wanted), names)
    having = [
        s
        for s in (state.names.statements if among is None else among)
        if all(_loop(state, s, n) is not None for n in names)
    ]
    if not having:
        raise _unknown(state, names)
    own = [s for s in having if state.names.statements[s] == state.names.families[s]]
    having = own or having
    first = having[0]
    for other in having[1:]:
        for name in names:
            one, two = _loop(state, first, name), _loop(state, other, name)
            if one is None or two is None or one.member != two.member:
                shown = [state.names.statements[s] for s in having]
                raise failure(SEVERAL, loop=name, choices=_list(shown), first=shown[0], step=step)
    return _of(state, first, names)


def in_shown_names(state: State, step: EditStep) -> EditStep:
    """Return a step with loops that were moved since called as they are shown now: `j'`, not `j`."""
    arguments = dict(step.arguments)
    names = [n for kind in ("loop", "order", "loops", "sizes", "offsets", "at") for n in _names_in(arguments.get(kind))]
    try:
        found = place(state, step.statement, names, step.name)
    except PolykerError:
        return step
    shown = {}
    for name in names:
        loop = _loop(state, found.statement, name)
        if loop is not None and loop.name.replace("'", "") == name.replace("'", ""):
            shown[name] = loop.name

    def change(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(change, value))
        return shown.get(value, value) if isinstance(value, str) else value

    changed = tuple(
        (k, change(v) if k not in ("tensor", "memory", "role", "first", "second") else v) for k, v in step.arguments
    )
    return replace(step, arguments=changed)


def _of(state: State, statement: str, names: tuple[str, ...]) -> StatementPlace:
    labels = {}
    for name in names:
        found = _loop(state, statement, name)
        if found is None:
            known = [loop.name for loop in state.loops(statement)]
            has = f"it has {_list(known)}" if known else "it has no loop"
            shown = f"statement {state.names.statements[statement]}"
            raise failure(UNKNOWN_LOOP, place=shown, loop=name, known=has, hint=did_you_mean(name, known))
        labels[name] = found.member.label
    return StatementPlace(statement, labels)


def _loop(state: State, statement: str, name: str) -> NamedLoop | None:
    loops = state.loops(statement)
    return next((x for x in loops if x.name == name), None) or next((x for x in loops if name in x.others), None)


def _names_in(value: Any) -> tuple[str, ...]:
    """Return the loops that an argument of a step names."""
    if isinstance(value, str):
        return (value,)
    return tuple(n for part in value or () for n in _names_in(part)) if isinstance(value, (tuple, type(None))) else ()


def _unknown(state: State, names: tuple[str, ...]) -> PolykerError:
    known = {state.names.statements[s]: [x.name for x in state.loops(s)] for s in state.names.statements}
    every = list(dict.fromkeys(n for found in known.values() for n in found))
    missing = next((n for n in names if n not in every), None)
    has = "; ".join(f"{s} has {_list(found)}" for s, found in known.items() if found) or "there are no loops"
    if missing is None:
        return failure(UNKNOWN_LOOP, place="no one statement", loop=", ".join(names), known=has)
    return failure(UNKNOWN_LOOP, place="the schedule", loop=missing, known=has, hint=did_you_mean(missing, every))


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """Return a hint with the known name that is nearest, or None."""
    from difflib import get_close_matches

    every = list(known)
    near = get_close_matches(name, every, 1, 0.6) or [k for k in every if k.split(".")[0] == name][:1]
    return f"did you mean `{near[0]}`?" if near else None


def _list(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(names)) or "none"
