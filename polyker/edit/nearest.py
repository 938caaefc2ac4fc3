"""Search the nearest legal steps for one that is not: few candidates, each proven."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import permutations

from polyker.edit.find import place
from polyker.edit.state import State
from polyker.edit.step import EditStep, call_text, step_of
from polyker.errors.base import PolykerError
from polyker.poly.isl import isl_job
from polyker.schedule.tree.nodes import MemberKind

SEARCH_SECONDS = 2.0  # of looking for an alternative
_FACTORS = (1, 2, -1)
_SHIFTS = (1, 2, 3, 4)


def nearest(state: State, step: EditStep, tried: Callable[[State, EditStep], State]) -> str | None:
    """Return the first legal one of some steps near to an illegal one, as calls; None where none is found."""
    until, before = time.monotonic() + SEARCH_SECONDS, str(state.schedule)
    try:
        for steps in _candidates(state, step):
            if time.monotonic() > until:
                return None
            now = state
            try:
                with isl_job("schedule"):  # what uses up isl's operations is no alternative, and no failure
                    for s in steps:
                        now = tried(now, s)
            except PolykerError:
                continue
            if str(now.schedule) == before:
                continue
            return "s" + "".join(
                ("" if s.statement is None else f'["{s.statement}"]') + f".{call_text(s)}" for s in steps
            )
    except PolykerError:
        pass
    return None


def _candidates(state: State, step: EditStep) -> Iterator[tuple[EditStep, ...]]:
    match step.name:
        case "interchange":
            yield from _leaning(step, step["order"])
            for loop in step["order"]:
                yield step_of("reverse", step.statement, {"loop": loop}), step
            for order in permutations(step["order"]):
                if order != step["order"]:
                    yield (step_of("interchange", step.statement, {"order": order}),)
        case "tile":
            loops = tuple(n for n, _ in step["sizes"])
            yield from _leaning(step, loops)
            for loop in loops if len(loops) > 1 else ():
                yield (step_of("tile", step.statement, {"sizes": {n: s for n, s in step["sizes"] if n != loop}}),)
        case "fuse":
            yield from _fusing(state, step)
        case "vectorise" | "parallel" | "map":
            yield from _elsewhere(state, step)
        case "shift":
            yield from _other_offsets(step)
        case "promote" if step["at"] is not None:
            yield from _other_loops(state, step)
        case _:
            return


def _leaning(step: EditStep, loops: tuple[str, ...]) -> Iterator[tuple[EditStep, ...]]:
    """Yield the step after one loop leans on another."""
    for factor in _FACTORS:
        for one in loops:
            for other in loops:
                if one != other:
                    yield step_of("skew", step.statement, {"loops": (one, other), "factor": factor}), step


def _fusing(state: State, step: EditStep) -> Iterator[tuple[EditStep, ...]]:
    """Yield the fusion after the second statement is shifted, and less deep ones."""
    second = state.internal(step["second"])
    loops = [] if second is None else [x.name for x in state.loops(second)][: step["depth"]]
    for offset in _SHIFTS:
        for loop in loops:
            yield step_of("shift", step["second"], {"offsets": {loop: offset}}), step
        if len(loops) > 1:
            yield step_of("shift", step["second"], {"offsets": dict.fromkeys(loops, offset)}), step
    yield _chained(state, step)
    for depth in range(step["depth"] - 1, 0, -1):
        yield (step_of("fuse", None, {"first": step["first"], "second": step["second"], "depth": depth}),)


def _chained(state: State, step: EditStep) -> tuple[EditStep, ...]:
    """Return the fusion after that of all statements in between."""
    names = list(state.names.statements.values())
    between = names[names.index(step["first"]) + 1 : names.index(step["second"])]
    seconds = (*between, step["second"])
    return tuple(step_of("fuse", None, {"first": step["first"], "second": s, "depth": step["depth"]}) for s in seconds)


def _other_loops(state: State, step: EditStep) -> Iterator[tuple[EditStep, ...]]:
    """Yield the promotion at other loops, the next ones out first."""
    found = place(state, step.statement, (step["at"],), "promote")
    loops = [x.name for x in state.loops(found.statement)]
    at = loops.index(step["at"]) if step["at"] in loops else 0
    for loop in (*reversed(loops[:at]), *loops[at + 1 :]):
        yield (step_of("promote", step.statement, {**dict(step.arguments), "at": loop}),)


def _elsewhere(state: State, step: EditStep) -> Iterator[tuple[EditStep, ...]]:
    """Yield the step on other loops of the statement: vectors the innermost first, threads the outermost."""
    vectors = step.name == "vectorise"
    argument = "role" if step.name == "map" else "threads"
    said = dict(step["sizes"]) if vectors else {step["loop"]: step[argument]}
    found = place(state, step.statement, said, step.name)
    count = next(iter(said.values()))
    for loop in state.loops(found.statement)[:: -1 if vectors else 1]:
        if loop.name not in said and loop.member.kind is MemberKind.SERIAL:
            given = {"sizes": {loop.name: count}} if vectors else {"loop": loop.name, argument: count}
            for statement in dict.fromkeys((step.statement, state.names.statements[found.statement])):
                yield (step_of(step.name, statement, given),)


def _other_offsets(step: EditStep) -> Iterator[tuple[EditStep, ...]]:
    for offset in _SHIFTS:
        for sign in (1, -1):
            changed = {n: sign * offset for n, _ in step["offsets"]}
            if changed != dict(step["offsets"]):
                yield (step_of("shift", step.statement, {"offsets": changed}),)
