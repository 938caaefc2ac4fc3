"""The tree of statements that run together: their common loops, buffers for what only they use, each one's own nest inside.

for n: with e in [1, 1024], s in [1]:
    for c.tile: vector c: e = exp(…)
    s = …
    for c.tile: vector c: O = e / s
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Protocol

from polyker.ir.dtypes import i64
from polyker.ir.expr import Index, Literal
from polyker.ir.quasi_affine import add, floordiv, is_quasi_affine, lit
from polyker.ir.typed import TypedProgram, TypedStatement
from polyker.schedule.fuse_cost import Fusion, local_tensors
from polyker.schedule.fuse_items import Item, alone
from polyker.schedule.fuse_move import moved
from polyker.schedule.nest import Nest
from polyker.schedule.tree import Band, Filter, Member, Promotion, Scope, Sequence, Tree
from polyker.target.model import Target


class Scheduler(Protocol):
    """What this module needs of the automatic schedule: the nest of one statement."""

    target: Target

    @property
    def program(self) -> TypedProgram:
        """The program with the temporaries made so far."""

    def map(self, statement: TypedStatement) -> Nest:
        """Return the nest of a statement whose instances each define a cell."""

    def reduction(self, statement: TypedStatement, start: TypedStatement | None) -> Nest:
        """Return the nest of a reduction."""


def fused(scheduler: Scheduler, fusion: Fusion) -> tuple[list[tuple[TypedStatement, ...]], Tree]:
    """Return the statements that stand for each item of a group, and the tree that runs them together."""
    program = scheduler.program
    loops, steps, rows = fusion.loops(), fusion.steps(), fusion.rows
    bodies: list[tuple[TypedStatement, ...]] = []
    children: list[Filter] = []
    times: list[list[tuple[str, int, str]]] = [
        [] for _ in loops
    ]  # of each loop: statement, its iterator's origin, iterator
    for n, item in enumerate(fusion.group.items):
        mine = tuple(loop[n] for loop in loops)
        nest = _inside(scheduler, program, item, mine[:rows])
        outer = item.statement.outer
        bodies.append(tuple(replace(s, outer=outer) for s in nest.statements))
        children.append(Filter(tuple(s.name for s in nest.statements), nest.tree))
        for s in nest.statements:
            own = _of_start(item, mine) if item.start is not None and s.name == item.start.name else mine
            for d, iterator in enumerate(own):
                times[d].append((s.name, item.measured.lo(mine[d]), iterator))
    members = [
        _member(program, fusion, step, [(s, lo, i) for s, lo, i in found])
        for step, found in zip(steps, times, strict=True)
    ]
    inside: Tree = Sequence(tuple(children))
    promotions = _promotions(program, fusion, scheduler.target)
    if promotions:
        inside = Scope(promotions, inside)
    return bodies, Band(tuple(members), inside)


def held(tree: Tree) -> frozenset[str]:
    """Return the temporaries that common loops hold in buffers."""
    match tree:
        case Band(child=child):
            return held(child)
        case Scope(promotions=promotions):
            return frozenset(p.tensor for p in promotions)
        case Sequence(children=children):
            return frozenset().union(*(held(f.child) for f in children))
        case _:
            return frozenset()


def _inside(scheduler: Scheduler, program: TypedProgram, item: Item, rows: tuple[str, ...]) -> Nest:
    """Return an item's nest inside the common loops over single iterations."""
    statement = moved(program, item.statement, rows, len(rows))
    if not item.reduces:
        return scheduler.map(statement)
    start = item.start
    if start is not None:
        start = moved(program, start, _of_start(item, rows), len(rows))
    return scheduler.reduction(statement, start)


def _of_start(item: Item, iterators: tuple[str, ...]) -> tuple[str, ...]:
    """Return the iterators of a reduction's start that have the place of the reduction's own in the target."""
    assert item.start is not None
    places = {s.name: n for n, s in enumerate(item.statement.subscripts) if isinstance(s, Index)}
    names = [s.name for s in item.start.subscripts if isinstance(s, Index)]
    return tuple(names[places[i]] for i in iterators)


def _member(program: TypedProgram, fusion: Fusion, step: int, found: list[tuple[str, int, str]]) -> Member:
    """Return one common loop; all blocks are counted from one origin."""
    origin = min(lo for _, lo, _ in found) if step > 1 else 0
    times = tuple((s, floordiv(add(Index(i, i64), lit(-origin)), step)) for s, _, i in found)
    return Member(times, f"{found[0][2]}.rows" if step > 1 else found[0][2])


def _promotions(program: TypedProgram, fusion: Fusion, target: Target) -> tuple[Promotion, ...]:
    """Return buffers for the temporaries of which an iteration's part is small enough."""
    second = target.caches[min(1, len(target.caches) - 1)].size
    result = []
    for tensor in sorted(local_tensors(program, fusion.group)):
        modulo = _modulo(program, fusion, tensor)
        if modulo is not None and prod(modulo) * program.tensor(tensor).dtype.itemsize <= second:
            result.append(Promotion(tensor, modulo))
    return tuple(result)


def _modulo(program: TypedProgram, fusion: Fusion, tensor: str) -> tuple[int, ...] | None:
    """Return the extents of a temporary's buffer: a common loop's own dimension has only as many cells as it runs together."""
    modulo = []
    touching = [(n, t) for n, item in enumerate(fusion.group.items) for t in item.touches if t.tensor == tensor]
    if not all(t.exact and all(is_quasi_affine(s) for s in t.subscripts) for _, t in touching):
        return None
    for d, extent in enumerate(program.tensor(tensor).shape):
        size = int(extent.value.real) if isinstance(extent, Literal) else None
        for loop, step in zip(fusion.loops(), fusion.steps(), strict=True):
            found = [alone(t.subscripts[d]) for _, t in touching]
            if all(f is not None and f[0] == loop[n] for f, (n, _) in zip(found, touching, strict=True)):
                size = step if size is None else min(step, size)
        if size is None:
            return None
        modulo.append(size)
    return tuple(modulo)
