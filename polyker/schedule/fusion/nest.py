"""Build the tree of fused statements: common loops, buffers for their temporaries, and a nest each.

for n: with e in [1, 1024], s in [1]:
    for c.tile: vector c: e = exp(…)
    s = …
    for c.tile: vector c: O = e / s
"""

from __future__ import annotations

from math import prod
from typing import Protocol

from msgspec import Struct

from polyker.ir.dtypes import i64
from polyker.ir.expr import Call, Expr, IndexExpr, Literal, walk
from polyker.ir.quasi_affine import add, coefficients, floordiv, indices_of, is_quasi_affine, lit, mod, substitute
from polyker.ir.typed import TypedProgram, TypedStatement
from polyker.machine.model import Target
from polyker.poly.touches import Touch, alone
from polyker.schedule.fusion.cost import Fusion, local_tensors, rolling_tensors
from polyker.schedule.fusion.items import Item
from polyker.schedule.fusion.move import moved
from polyker.schedule.fusion.row_prefetch import with_heads
from polyker.schedule.fusion.zip import paired, zipped
from polyker.schedule.nests.nest import Nest, band
from polyker.schedule.tree.nodes import Band, Filter, Member, Promotion, Scope, Sequence, Tree, loops, rebuilt
from polyker.schedule.tree.places import spliced
from polyker.structs import replace


class Scheduler(Protocol):
    """What this module needs of the automatic schedule: the nest of one statement."""

    target: Target

    @property
    def program(self) -> TypedProgram:
        """The program with the temporaries made so far."""

    def map(self, statement: TypedStatement) -> Nest:
        """Return the nest of a statement whose instances each define an element."""

    def reduction(
        self, statement: TypedStatement, start: TypedStatement | None, *, epilogue: TypedStatement | None = None
    ) -> Nest:
        """Return the nest of a reduction and of what is computed from each of its results."""


class FusedNest(Struct, frozen=True):
    """`bodies`: the statements that stand for each item; `before`: copies of operands that run before the common loops."""

    bodies: tuple[tuple[TypedStatement, ...], ...]
    before: tuple[Nest, ...]
    nest: Nest


def fused(scheduler: Scheduler, fusion: Fusion) -> FusedNest | None:
    """Return the statements that stand for each item of a group, and the tree that runs them together.

    None where an item's nest makes copies inside the common loops that do not depend on these, or has tiles that a block is
    no multiple of.
    """
    program = scheduler.program
    loops, steps, rows = fusion.loops(), fusion.steps(), fusion.rows
    bodies: list[tuple[TypedStatement, ...]] = []
    children: list[Filter] = []
    before: list[Nest] = []
    # Of each loop: the statement, the value of its iterator that comes first, the iterator.
    times: list[list[tuple[str, int, str]]] = [[] for _ in loops]
    shifts = fusion.shifts()
    origins = tuple(
        min(i.measured.lo(loop[n]) + shift[n] for n, i in enumerate(fusion.group.items))
        for loop, shift in zip(loops, shifts, strict=True)
    )
    for n, item in enumerate(fusion.group.items):
        mine = tuple(loop[n] for loop in loops)
        nest = _inside(scheduler, program, item, mine[:rows])
        outer = item.statement.outer
        bodies.append(tuple(replace(s, outer=outer) for s in nest.statements))
        nest, copies = _parted(nest, mine, item)
        before += copies
        places: dict[str, dict[str, Expr]] = {}
        for s in nest.statements:
            own = item.of_start(mine) if item.start is not None and s.name == item.start.name else mine
            if not set(own) <= set(s.iterators):
                return None
            for d, iterator in enumerate(own):
                times[d].append((s.name, origins[d] - shifts[d][n], iterator))
            if fusion.block:
                if not _cuts_evenly(nest.tree, s.name, own[-1], fusion.block):
                    return None  # a tile would lie across two blocks: its registers could not be told apart
                places[s.name] = {own[-1]: _within(own[-1], origins[-1] - shifts[-1][n], fusion.block)}
        tree = _counted(nest.tree, places) if fusion.block else nest.tree
        children.append(Filter(tuple(s.name for s in nest.statements), tree))
    bodies = with_heads(program, fusion, bodies, scheduler.target)
    children = _paired(program, fusion, children, scheduler.target)
    members = [_member(step, origin, found) for step, origin, found in zip(steps, origins, times, strict=True)]
    inside = spliced(Sequence(tuple(children)))
    # Elements that a reduction leaves out may be initialised before the common loops: buffers inside these do not reach them.
    early = {s.target for nest in before for s in nest.statements}
    local = local_tensors(program, fusion.group, len(loops)) - early
    inside = _held(local, program, fusion, scheduler.target, inside, [], len(loops)) or inside
    tree, within = inside, list[Member]()
    for depth in range(len(members), 0, -1):
        within.insert(0, members[depth - 1])
        rolling = rolling_tensors(program, fusion.group, depth) - early
        kept = _held(rolling, program, fusion, scheduler.target, tree, within, depth)
        if kept is not None:
            tree, within = kept, []
    tree = band(within, tree)
    statements = tuple(s for f in children for s in f.statements)
    together = Nest(tuple(s for b in bodies for s in b if s.name in statements), tree)
    return FusedNest(tuple(bodies), tuple(before), together)


def _paired(program: TypedProgram, fusion: Fusion, children: list[Filter], target: Target) -> list[Filter]:
    """Return the children with those in one that share the loops over what they read."""
    found: dict[int, Filter] = {}
    items = fusion.group.items
    for n, (child, mate) in enumerate(zip(children, paired(program, items, fusion.plans, target), strict=True)):
        pair = zipped(found[mate], child, whole=not items[n].reduces) if mate is not None else None
        found[n if pair is None or mate is None else mate] = pair or child
    return list(found.values())


def _parted(nest: Nest, loops: tuple[str, ...], item: Item) -> tuple[Nest, list[Nest]]:
    """Return a nest without the copies that it begins with and that none of the loops moves, and these.

    Without common loops all of it stays: what it begins with may be of the reduction itself.
    """
    if not loops or not isinstance(nest.tree, Sequence):
        return nest, []
    names = {s.name: s for s in nest.statements}
    copies: list[Nest] = []
    rest = list(nest.tree.children)
    moved_by = {s: set(names[s].iterators) & set(loops) for s in names}
    if item.start is not None:
        moved_by[item.start.name] = set(loops)
    while len(rest) > 1 and not any(moved_by[s] for s in rest[0].statements):
        first = rest.pop(0)
        copies.append(Nest(tuple(names[s] for s in first.statements), first.child))
    kept = {s for f in rest for s in f.statements}
    tree = spliced(Sequence(tuple(rest)))
    return Nest(tuple(s for s in nest.statements if s.name in kept), tree), copies


def _inside(scheduler: Scheduler, program: TypedProgram, item: Item, rows: tuple[str, ...]) -> Nest:
    """Return an item's nest inside the common loops over single iterations."""
    statement = moved(program, item.statement, rows, len(rows))
    if not item.reduces:
        return scheduler.map(statement)
    start = item.start
    if start is not None:
        start = moved(program, start, item.of_start(rows), len(rows))
    last = item.epilogue
    if last is not None:
        last = moved(program, last, rows, len(rows))
    return scheduler.reduction(statement, start, epilogue=last)


def _member(step: int, origin: int, found: list[tuple[str, int, str]]) -> Member:
    """Return one common loop; all blocks are counted from one origin."""
    first = 0 if step > 1 else -origin
    times = tuple((s, floordiv(add(IndexExpr(i, i64), lit(-first - lo)), step)) for s, lo, i in found)
    return Member(times, f"{found[0][2]}.rows" if step > 1 else found[0][2])


def _within(iterator: str, origin: int, block: int) -> Expr:
    """Return an iterator's value counted as if its block were the first one."""
    return add(mod(add(IndexExpr(iterator, i64), lit(-origin)), block), lit(origin))


def _cuts_evenly(tree: Tree, statement: str, iterator: str, block: int) -> bool:
    """Whether the tiles of a statement along an iterator divide a block of it, or hold all of it."""
    for member in loops(tree):
        for e in walk(dict(member.times).get(statement, lit(0))):
            match e:
                case Call(op="floordiv" | "mod", args=(a, Literal(value=n))) if iterator in indices_of(a):
                    if n.real < block and block % int(n.real):
                        return False
                case _:
                    pass
    return True


def _counted(tree: Tree, places: dict[str, dict[str, Expr]]) -> Tree:
    """Return the tree with the times of statements counted within a block.

    Blocks are whole tiles, so the order inside one is the same; but the loops' bounds, and the elements of buffers, do not
    depend on the block.
    """
    if isinstance(tree, Band):
        times = (tuple((s, substitute(e, places[s])) for s, e in m.times) for m in tree.members)
        tree = replace(tree, members=tuple(replace(m, times=t) for m, t in zip(tree.members, times, strict=True)))
    return rebuilt(tree, lambda child: _counted(child, places))


def _held(
    tensors: frozenset[str],
    program: TypedProgram,
    fusion: Fusion,
    target: Target,
    tree: Tree,
    members: list[Member],
    depth: int,
) -> Tree | None:
    """Return loops over a tree with buffers around them, inside the first `depth` common loops or, of what the last of these
    carries on, around it: for those of the temporaries of which a small enough part is alive at a time. None without any."""
    second, last = target.cache(2).size, target.cache(3).size
    found = []
    for tensor in sorted(tensors):
        modulo = _modulo(program, fusion, tensor, depth)
        if modulo is None:
            continue
        size, shape = program.tensor(tensor).dtype.itemsize, program.tensor(tensor).shape
        whole = prod(int(e.value.real) for e in shape if isinstance(e, Literal)) * size
        # What would leave all caches had better stay in the last one.
        if prod(modulo) * size <= (last // 2 if whole > last else second):
            found.append(Promotion(tensor, modulo))
    return Scope(tuple(found), band(members, tree)) if found else None


def _modulo(program: TypedProgram, fusion: Fusion, tensor: str, depth: int) -> tuple[int, ...] | None:
    """Return the extents of a temporary's buffer: along each of the first `depth` common loops as many elements as are alive in
    an iteration."""
    modulo = []
    touching = [(n, t) for n, item in enumerate(fusion.group.items) for t in item.touches if t.tensor == tensor]
    if not all(t.exact and all(is_quasi_affine(s) for s in t.subscripts) for _, t in touching):
        return None
    common = list(zip(fusion.loops(), fusion.shifts(), fusion.steps(), strict=True))[:depth]
    for d, extent in enumerate(program.tensor(tensor).shape):
        size = int(extent.value.real) if isinstance(extent, Literal) else None
        for loop, shift, step in common:
            spans = [_span(fusion, n, t.subscripts[d], loop[n], shift[n]) for n, t in touching]
            if all(s is not None for s in spans):
                alive = step + max(s[1] for s in spans if s) - min(s[0] for s in spans if s)
                size = alive if size is None else min(alive, size)
                break
        else:
            if size is not None:
                size = max([size, *(_reach(fusion, n, t, d) for n, t in touching)])
        if not size:  # not known, or none: a sum over nothing has no elements
            return None
        modulo.append(size)
    return tuple(modulo)


def _span(fusion: Fusion, n: int, subscript: Expr, iterator: str, shift: int) -> tuple[int, int] | None:
    """Return the least and greatest element that an item reaches in a loop's first iteration, None if other loops move it,
    too."""
    parts = coefficients(subscript)
    if parts is None or parts.get(iterator) != 1:
        return None
    low = high = parts.get("", 0) - shift
    common = {loop[n] for loop in fusion.loops()}
    for i, factor in parts.items():
        if i in ("", iterator) or not factor:
            continue
        lo, extent = fusion.group.items[n].measured.bounds.get(i, (None, None))
        if lo is None or extent is None or i in common:
            return None
        ends = factor * lo, factor * (lo + extent - 1)
        low, high = low + min(ends), high + max(ends)
    return low, high


def _reach(fusion: Fusion, n: int, touch: Touch, dimension: int) -> int:
    """Return how far the tiles of an item, or blocks of them, reach in a dimension, partial ones taken as whole: the generated
    code need not know that an element's place is below the extent."""
    found = alone(touch.subscripts[dimension])
    if found is None or found[0] not in fusion.group.items[n].measured.bounds:
        return 0
    blocks = (step for loop, step in zip(fusion.loops(), fusion.steps(), strict=True) if loop[n] == found[0])
    size, extent = fusion.plans[n].size(found[0]), fusion.group.items[n].measured.bounds[found[0]][1]
    size = max(size, *blocks, 1)
    lo = fusion.group.items[n].measured.lo(found[0])
    return 0 if extent is None else -(-extent // size) * size + lo + found[1]
