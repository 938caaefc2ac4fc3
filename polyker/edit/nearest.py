"""Search the nearest legal steps for one that is not: few candidates, each proven."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import permutations

from polyker.edit.find import in_shown_names, place
from polyker.edit.state import NamedLoop, State
from polyker.edit.step import EditStep, call_text, step_of
from polyker.errors.base import PolykerError
from polyker.ir.quasi_affine import print_affine
from polyker.poly.isl import isl_job, read_map, read_set
from polyker.poly.scop import parameters
from polyker.schedule.tree.nodes import MemberKind
from polyker.schedule.tree.to_isl import tuple_of

SEARCH_SECONDS = 2.0  # of looking for an alternative
Steps = tuple[EditStep, ...]
_FACTORS = (1, 2, -1)
_SHIFTS = (1, 2, 3, 4)
_PERMUTED = 3  # loops whose orders are tried


def nearest(state: State, step: EditStep, tried: Callable[[State, EditStep], State]) -> str | None:
    """Return the first legal one of some steps near to an illegal one, as calls; None where none is found."""
    until = time.monotonic() + SEARCH_SECONDS
    try:
        for steps in _candidates(state, step):
            if time.monotonic() > until:
                return None
            try:
                with isl_job("schedule"):  # what uses up isl's operations is no alternative, and no failure
                    taken = list(_taken(state, steps, tried))
            except PolykerError:
                continue
            if len(taken) == len(steps):
                return "s" + "".join(
                    ("" if s.statement is None else f'["{s.statement}"]') + f".{_advice(s)}" for s in taken
                )
    except PolykerError:
        pass
    return None


def _taken(state: State, steps: Steps, tried: Callable[[State, EditStep], State]) -> Iterator[EditStep]:
    """Yield the steps that lead on one after another, with the names that loops have then; stop at one that changes nothing."""
    for step in steps:
        named = in_shown_names(state, step)
        after = tried(state, named)
        if str(after.schedule) == str(state.schedule):
            return
        yield named
        state = after


def _advice(step: EditStep) -> str:
    """Return a step as a call; on one thread nothing is won, so that number is not said."""
    if step.name == "parallel" and step["threads"] == 1:
        return f"parallel({json.dumps(step['loop'], ensure_ascii=False)})"
    return call_text(step)


def _candidates(state: State, step: EditStep) -> Iterator[Steps]:
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


def _leaning(step: EditStep, loops: tuple[str, ...]) -> Iterator[Steps]:
    """Yield the step after one loop leans on another."""
    for factor in _FACTORS:
        for one in loops:
            for other in loops:
                if one != other:
                    yield step_of("skew", step.statement, {"loops": (one, other), "factor": factor}), step


def _fusing(state: State, step: EditStep) -> Iterator[Steps]:
    """Yield the fusion after an interchange or a shift of the second statement, and less deep ones."""
    one, other = state.internal(step["first"]), state.internal(step["second"])
    shared = [x.member for x in state.loops(one or "")]
    loops = [x.name for x in state.loops(other or "") if x.member not in shared]
    for order in permutations(loops[:_PERMUTED]):
        if list(order) != loops[:_PERMUTED]:
            yield step_of("interchange", step["second"], {"order": order}), step
    fused = loops[: step["depth"]]
    for offset in _SHIFTS:
        for loop in fused:
            yield step_of("shift", step["second"], {"offsets": {loop: offset}}), step
        if len(fused) > 1:
            yield step_of("shift", step["second"], {"offsets": dict.fromkeys(fused, offset)}), step
    yield _chained(state, step)
    for depth in range(step["depth"] - 1, 0, -1):
        yield (step_of("fuse", None, {"first": step["first"], "second": step["second"], "depth": depth}),)


def _chained(state: State, step: EditStep) -> tuple[EditStep, ...]:
    """Return the fusion after that of all statements in between."""
    names = list(state.names.statements.values())
    between = names[names.index(step["first"]) + 1 : names.index(step["second"])]
    seconds = (*between, step["second"])
    return tuple(step_of("fuse", None, {"first": step["first"], "second": s, "depth": step["depth"]}) for s in seconds)


def _other_loops(state: State, step: EditStep) -> Iterator[Steps]:
    """Yield the promotion at other loops, the next ones out first."""
    found = place(state, step.statement, (step["at"],), "promote")
    loops = [x.name for x in state.loops(found.statement)]
    at = loops.index(step["at"]) if step["at"] in loops else 0
    for loop in (*reversed(loops[:at]), *loops[at + 1 :]):
        yield (step_of("promote", step.statement, {**dict(step.arguments), "at": loop}),)


def _elsewhere(state: State, step: EditStep) -> Iterator[Steps]:
    """Yield the step on other loops of the statement, vectors the innermost first, threads the outermost; on a loop over tiles
    by wavefronts, before it is moved to the points of a tile."""
    vectors = step.name == "vectorise"
    argument = "role" if step.name == "map" else "threads"
    said = dict(step["sizes"]) if vectors else {step["loop"]: step[argument]}
    found = place(state, step.statement, said, step.name)
    asked, count = next(iter(said.items()))
    loops = state.loops(found.statement)
    at = next((n for n, x in enumerate(loops) if asked in (x.name, *x.others)), 0)
    alike = [x for x in loops if _part(x) == _part(loops[at])]
    others = [x for x in loops if x not in alike]

    def moved(wanted: Sequence[NamedLoop]) -> Iterator[Steps]:
        for loop in wanted[:: -1 if vectors else 1]:
            if loop.name not in said and loop.member.kind is MemberKind.SERIAL and _runs(state, found.statement, loop):
                given = {"sizes": {loop.name: count}} if vectors else {"loop": loop.name, argument: count}
                for statement in dict.fromkeys((step.statement, state.names.statements[found.statement])):
                    yield (step_of(step.name, statement, given),)

    yield from moved(alike)
    if not vectors:
        yield from _wavefronts(step, loops[at].name, [x.name for x in alike if _runs(state, found.statement, x)])
    yield from moved(others)


def _part(loop: NamedLoop) -> str:
    """Return what of a cut loop this one is: its tiles, its points; nothing where it was not cut."""
    return loop.name.replace("'", "").partition(".")[2]


def _runs(state: State, statement: str, loop: NamedLoop) -> bool:
    """Whether a loop has more than one iteration, for some sizes."""
    domain = next(s.domain for s in state.program.statements() if s.name == statement)
    time = print_affine(loop.member.time(statement))
    at = read_map(f"{parameters(state.program)}{{ {tuple_of(state.program, statement)} -> [{time}] }}")
    return not read_set(domain).apply(at).is_singleton()


def _wavefronts(step: EditStep, loop: str, loops: Sequence[str]) -> Iterator[Steps]:
    """Yield the step after another loop leans on its own: that one's iterations are fronts, each of which runs at once."""
    at = loops.index(loop) if loop in loops else len(loops)
    for n, other in enumerate(loops):
        if n != at < len(loops):
            skew = step_of("skew", step.statement, {"loops": (other, loop), "factor": 1})
            inside = (step_of("interchange", step.statement, {"order": (other, loop)}),)
            yield (skew, *(inside if n > at else ()), step)


def _other_offsets(step: EditStep) -> Iterator[Steps]:
    for offset in _SHIFTS:
        for sign in (1, -1):
            changed = {n: sign * offset for n, _ in step["offsets"]}
            if changed != dict(step["offsets"]):
                yield (step_of("shift", step.statement, {"offsets": changed}),)
