"""The instances of one statement under a schedule: where they lie, when they run, what they wait for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import islpy as isl
import numpy as np
from msgspec import Struct

from polyker.edit.find import statement_named
from polyker.edit.state import State
from polyker.errors.base import failure
from polyker.errors.schedules import NOT_DRAWN
from polyker.errors.tracebacks import api_boundary
from polyker.poly.checks import evaluate_shape
from polyker.poly.count import count
from polyker.poly.dependences import dependences
from polyker.poly.isl import isl_job, read_set
from polyker.poly.scop import Scop, build_scop
from polyker.schedule.tree.nodes import Band, Leaf, Scope, Sequence, Tree

Array = np.ndarray[Any, Any]
# Instances of a picture.
MOST = 4000


class Drawable(Protocol):
    """A schedule that is edited: `polyker.Schedule`."""

    @property
    def _state(self) -> State: ...


class Instances(Struct, frozen=True):
    """Instances of a statement in the order in which they run.

    `loops`: the statement's indices. `points`: int64[instances, indices]. `waits`: int64[pairs, 2, indices]: an instance, and the
    last one before it in the text's order whose value it reads or overwrites; terms of one reduction wait for none.
    """

    statement: str
    loops: tuple[str, ...]
    points: Array
    waits: Array


@api_boundary
def instances(schedule: Drawable, statement: str) -> Instances:
    """Return the instances of a statement, named as the printed schedule names it.

    Raises ScheduleError where there is no such statement, and for symbolic sizes or more than 4000 instances.

    >>> import polyker as pk
    >>> s = pk.op("B[i,j] = A[j,i]").schedule(pk.f32[2, 2], auto=False)
    >>> pk.viz.instances(s.interchange("j", "i"), "B").points.tolist()
    [[0, 0], [1, 0], [0, 1], [1, 1]]
    """
    state = schedule._state
    name = statement_named(state, statement)
    program = state.program
    found = next(s for s in program.statements() if s.name == name)
    if program.sizes:
        raise failure(NOT_DRAWN, statement=statement, reason="its sizes are symbols", most=MOST)
    with isl_job("viz"):
        scop = build_scop(program)
        domain = scop.domains[name]
        number = count(domain).number
        if number is None or number > MOST:
            raise failure(NOT_DRAWN, statement=statement, reason=f"it has {number or 'too many'} instances", most=MOST)
        points = _points(domain)
        times = [_time(state.schedule.tree, name, dict(zip(found.iterators, p, strict=True)), p) for p in points]
        order = sorted(range(len(points)), key=times.__getitem__)
        waits = _waits(scop, name)
    loops = tuple(state.names.loop(i) for i in found.iterators)
    width = len(loops)
    return Instances(
        statement,
        loops,
        np.array([points[n] for n in order], np.int64).reshape(len(points), width),
        np.array(waits, np.int64).reshape(len(waits), 2, width),
    )


def _points(points: isl.Set) -> list[tuple[int, ...]]:
    found: list[isl.Point] = []
    points.foreach_point(found.append)  # a function of C: isl does not survive one of Python's that a signal interrupts
    width = points.dim(isl.dim_type.set)
    return sorted(tuple(p.get_coordinate_val(isl.dim_type.set, d).get_num_si() for d in range(width)) for p in found)


def _waits(scop: Scop, statement: str) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Return (source, sink) of the dependences of a statement on itself, of each sink the last source before it."""
    found: dict[tuple[tuple[int, ...], tuple[int, ...]], None] = {}
    for d in dependences(scop):
        if d.source == d.sink == statement and d.kind != "reduction":
            nearest = d.relation.reverse().lexmax().reverse()
            for pair in _points(nearest.wrap().flatten()):
                found[pair[: len(pair) // 2], pair[len(pair) // 2 :]] = None
    return list(found)


def _time(tree: Tree, statement: str, values: Mapping[str, int], point: tuple[int, ...]) -> tuple[int, ...]:
    """Return when an instance runs: the values of the loops around it and its places in sequences, the outermost first."""
    match tree:
        case Band(members=members, child=child):
            own = tuple(evaluate_shape(m.time(statement), values) for m in members)
            return own + _time(child, statement, values, point)
        case Sequence(children=children):
            for n, f in enumerate(children):
                if statement not in f.statements:
                    continue
                condition = dict(f.conditions).get(statement)
                if condition is None or _holds(condition, point):
                    return (n, *_time(f.child, statement, values, point))
            return ()
        case Scope(child=child):
            return _time(child, statement, values, point)
        case Leaf():
            return ()


def _holds(condition: str, point: tuple[int, ...]) -> bool:
    found = read_set(condition)
    for d, value in enumerate(point):
        found = found.fix_val(isl.dim_type.set, d, isl.Val(value))
    return not found.is_empty()
