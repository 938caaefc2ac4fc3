"""Random steps on schedules, kept where they are legal."""

from __future__ import annotations

import random

from polyker.errors import ScheduleError
from polyker.poly.scop import Scop
from polyker.schedule.tree.nodes import Band, MemberKind, ScheduleTree, Scope, Sequence, Tree, statements_of
from tests.schedule.tree_steps import TreeStep, apply


def random_step(rng: random.Random, scop: Scop, schedule: ScheduleTree) -> TreeStep | None:
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
        return TreeStep(
            "fuse", (rng.choice(pair[0].statements), rng.choice(pair[1].statements), rng.choice([1, 1, 2, 3]))
        )
    if not bands:
        return None
    band = rng.choice(bands)
    statement = rng.choice(band.members[0].times)[0]
    labels = [m.label for m in band.members]
    loop = rng.choice(labels)
    match name:
        case "tile":
            chosen = rng.sample(labels, rng.randint(1, min(3, len(labels))))
            return TreeStep("tile", (statement, tuple((c, rng.choice([1, 2, 3, 4, 8])) for c in chosen)))
        case "interchange":
            chosen = rng.sample(labels, min(len(labels), rng.randint(2, 3)))
            return TreeStep("interchange", (statement, tuple(chosen))) if len(chosen) > 1 else None
        case "unroll" | "vectorise" | "parallel":
            serial = [m.label for m in band.members if m.kind is MemberKind.SERIAL]
            return TreeStep(name, (statement, rng.choice(serial), rng.choice([2, 3, 4, 4, 8]))) if serial else None
        case "distribute":
            return TreeStep("distribute", (statement, labels[-1]))
        case _:
            tensors = [t.name for t in scop.program.tensors if t.role.name == "TEMPORARY"]
            if not tensors:
                return None
            return TreeStep("promote", (rng.choice(tensors), *((statement, loop) if rng.random() < 0.8 else ())))


def legal_steps(rng: random.Random, scop: Scop, schedule: ScheduleTree, count: int) -> ScheduleTree:
    """Return the schedule after up to `count` random steps that are proven legal."""
    return random_legal_steps(rng, scop, schedule, count)[0]


def random_legal_steps(
    rng: random.Random, scop: Scop, schedule: ScheduleTree, count: int
) -> tuple[ScheduleTree, tuple[TreeStep, ...]]:
    """Return the schedule after up to `count` random legal steps, and the steps."""
    done: list[TreeStep] = []
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
