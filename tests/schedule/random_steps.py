"""Random steps on schedules, kept where they are legal."""

from __future__ import annotations

import random

from polyker.errors import ScheduleError
from polyker.poly.scop import Scop
from polyker.schedule.steps.basic import Step, apply
from polyker.schedule.tree.nodes import Band, Kind, Schedule, Scope, Sequence, Tree, statements_of


def random_step(rng: random.Random, scop: Scop, schedule: Schedule) -> Step | None:
    """Return a step that may well have a place in the schedule."""
    bands, sequences = list(_bands(schedule.tree)), list(_sequences(schedule.tree))
    names = [
        "tile",
        "tile",
        "interchange",
        "interchange",
        "unroll",
        "vectorise",
        "vectorise",
        "parallel",
        "distribute",
        *["promote"] * 3,
    ]
    name = rng.choice([*names, *["fuse"] * 4 * bool(sequences)])
    if name == "fuse":
        children = rng.choice(sequences).children
        at = rng.randrange(max(1, len(children) - 1))
        pair = children[at : at + 2]
        if len(pair) < 2 or not pair[0].statements or not pair[1].statements:
            return None
        return Step("fuse", (rng.choice(pair[0].statements), rng.choice(pair[1].statements), rng.choice([1, 1, 2, 3])))
    if not bands:
        return None
    band = rng.choice(bands)
    statement = rng.choice(band.members[0].times)[0]
    labels = [m.label for m in band.members]
    loop = rng.choice(labels)
    match name:
        case "tile":
            chosen = rng.sample(labels, rng.randint(1, min(3, len(labels))))
            return Step("tile", (statement, tuple((c, rng.choice([1, 2, 3, 4, 8])) for c in chosen)))
        case "interchange":
            chosen = rng.sample(labels, min(len(labels), rng.randint(2, 3)))
            return Step("interchange", (statement, tuple(chosen))) if len(chosen) > 1 else None
        case "unroll" | "vectorise" | "parallel":
            serial = [m.label for m in band.members if m.kind is Kind.SERIAL]
            return Step(name, (statement, rng.choice(serial), rng.choice([2, 3, 4, 4, 8]))) if serial else None
        case "distribute":
            return Step("distribute", (statement, labels[-1]))
        case _:
            tensors = [t.name for t in scop.program.tensors if t.role.name == "TEMPORARY"]
            if not tensors:
                return None
            return Step("promote", (rng.choice(tensors), *((statement, loop) if rng.random() < 0.8 else ())))


def legal_steps(rng: random.Random, scop: Scop, schedule: Schedule, count: int) -> Schedule:
    """Return the schedule after up to `count` random steps that are proven legal."""
    return random_legal_steps(rng, scop, schedule, count)[0]


def random_legal_steps(
    rng: random.Random, scop: Scop, schedule: Schedule, count: int
) -> tuple[Schedule, tuple[Step, ...]]:
    """Return the schedule after up to `count` random legal steps, and the steps."""
    done: list[Step] = []
    for _ in range(6 * count):
        if len(done) == count:
            break
        wanted = random_step(rng, scop, schedule)
        if wanted is None:
            continue
        try:
            changed = apply(scop, schedule, wanted)
        except ScheduleError:
            continue
        if str(changed) != str(schedule):
            schedule = changed
            done.append(wanted)
    return schedule, tuple(done)


def _bands(tree: Tree) -> list[Band]:
    match tree:
        case Band(child=child):
            return [tree, *_bands(child)] if statements_of(tree) else _bands(child)
        case Sequence(children=children):
            return [b for f in children for b in _bands(f.child)]
        case Scope(child=child):
            return _bands(child)
        case _:
            return []


def _sequences(tree: Tree) -> list[Sequence]:
    match tree:
        case Sequence(children=children):
            return [tree, *(s for f in children for s in _sequences(f.child))]
        case Band(child=child) | Scope(child=child):
            return _sequences(child)
        case _:
            return []
