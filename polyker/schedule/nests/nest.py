"""The loop nest of one statement (or of the statements that a reduction was rewritten to), made from a Plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import islpy as isl

from polyker.cost.access_cost import STRIDED
from polyker.cost.measure import Measured
from polyker.cost.plan import Plan
from polyker.ir.dtypes import i64
from polyker.ir.expr import Expr, Index
from polyker.ir.quasi_affine import add, coefficients, floordiv, is_quasi_affine, lit, mod
from polyker.ir.typed import TypedLoop, TypedProgram, TypedStatement
from polyker.poly.isl import read_map, read_set
from polyker.poly.scop import parameters, values_taken
from polyker.rewrite.core.accumulate import Accumulated
from polyker.schedule.nests.tiles import Part, by_terms, common_terms, tile_parts
from polyker.schedule.tree.nodes import Band, Filter, Kind, Leaf, Member, Promotion, Scope, Sequence, Tree


@dataclass(frozen=True)
class Nest:
    """Statements with the tree that orders them."""

    statements: tuple[TypedStatement, ...]
    tree: Tree


def offset(iterator: str, origin: int) -> Expr:
    """Return `iterator - origin`."""
    return add(Index(iterator, i64), lit(-origin))


def shared(
    statements: tuple[TypedStatement, ...], time: Expr, label: str, kind: Kind = Kind.SERIAL, extent: int = 0
) -> Member:
    """Return a loop that gives every statement the same time."""
    return Member(tuple((s.name, time) for s in statements), label, kind, extent)


def band(members: list[Member], child: Tree) -> Tree:
    """Return the loops over a child, or the child where there is no loop."""
    return Band(tuple(members), child) if members else child


def in_order(nests: list[Nest]) -> Nest:
    """Return nests one after another."""
    if len(nests) == 1:
        return nests[0]
    children = tuple(Filter(tuple(s.name for s in n.statements), n.tree) for n in nests)
    return Nest(tuple(s for n in nests for s in n.statements), Sequence(children))


def around_nest(loop: TypedLoop, nest: Nest) -> Nest:
    """Return a nest inside a loop of the text."""
    return Nest(nest.statements, Band((shared(nest.statements, Index(loop.iterator, i64), loop.iterator),), nest.tree))


def serial_nest(statement: TypedStatement) -> Nest:
    """Return the statement's loops as the text orders them: the schedule that always exists."""
    members = [shared((statement,), Index(i, i64), i) for i in statement.iterators[statement.outer :]]
    return Nest((statement,), band(members, Leaf()))


def point_members(
    statements: tuple[TypedStatement, ...], plan: Plan, kept: tuple[str, ...], origin: dict[str, int]
) -> list[Member]:
    """Return the loops inside a tile: the unrolled ones, then the vectors of the vector iterator, then its lanes."""
    unrolled = [
        (i, shared(statements, mod(offset(i, origin[i]), s), f"{i}.point", Kind.UNROLL, s))
        for i, s in plan.others
        if s > 1 and i in kept
    ]
    lanes = []
    if plan.vector in kept and plan.vector is not None and plan.lanes > 1:
        *vectors, lane = vector_members(statements, offset(plan.vector, origin[plan.vector]), plan, plan.vector)
        unrolled += [(plan.vector, v) for v in vectors]
        lanes.append(lane)
    # The values of the operand that the outer loops move are loaded one after another, those of the other one stay in registers.
    # Where there may be fewer vectors each is asked for once, and not for each row.
    outer = (plan.vector,) if plan.is_cut else plan.passing
    return [*(m for i, m in unrolled if i in outer), *(m for i, m in unrolled if i not in outer), *lanes]


def _store_members(
    statement: TypedStatement, plan: Plan, kept: tuple[str, ...], origin: dict[str, int]
) -> list[Member]:
    """Return the loops that store a tile: by vectors along what the result is contiguous along, transposed if it has to be."""
    if plan.written is None or plan.vector is None or plan.written not in dict(plan.others):
        members = point_members((statement,), plan, kept, origin)
        woven = _woven(statement, plan)
        # What lies between the lanes of a vector is stored with it: see `codegen.llvm.access.strided`.
        return sorted(members, key=lambda m: woven is not None and m.label == f"{woven}.point")
    here, size, width = (statement,), plan.size(plan.written), plan.size(plan.vector)
    rest = replace(plan, vector=None, others=tuple(o for o in plan.others if o[0] != plan.written))
    rows = shared(
        here, mod(offset(plan.vector, origin[plan.vector]), width), f"{plan.vector}.rows", Kind.TRANSPOSE, width
    )
    lanes = 1 << (size - 1).bit_length()
    along = shared(
        here, mod(offset(plan.written, origin[plan.written]), size), f"{plan.written}.lanes", Kind.VECTOR, lanes
    )
    return [*point_members(here, rest, kept, origin), rows, along]


def _woven(statement: TypedStatement, plan: Plan) -> str | None:
    """Return the unrolled iterator whose cells lie between those of a vector's lanes: O[2*q+p] with vectors along q."""
    row = coefficients(statement.subscripts[-1]) if statement.subscripts else None
    step = (row or {}).get(plan.vector or "", 0)
    found = [i for i, size in plan.others if 1 < size == step <= STRIDED and (row or {}).get(i) == 1]
    return found[0] if found else None


def vector_members(statements: tuple[TypedStatement, ...], place: Expr, plan: Plan, label: str) -> list[Member]:
    """Return the loops over the vectors of a tile, and over the lanes of a vector."""
    width = plan.lanes * plan.chunks
    members = []
    if plan.chunks > 1:
        within = floordiv(mod(place, width), plan.lanes)
        members.append(shared(statements, within, f"{label}.vectors", Kind.UNROLL, plan.chunks))
    members.append(shared(statements, mod(place, plan.lanes), f"{label}.lanes", Kind.VECTOR, plan.lanes))
    return members


def tile_member(statements: tuple[TypedStatement, ...], iterator: str, size: int, origin: int) -> Member:
    """Return the loop over the tiles of an iterator."""
    return shared(statements, floordiv(offset(iterator, origin), size), f"{iterator}.tile" if size > 1 else iterator)


def map_nest(program: TypedProgram, measured: Measured, plan: Plan, order: tuple[str, ...]) -> Nest:
    """Return the nest of a statement without a reduction loop: tiles in `order`, vectors inside."""
    statement = measured.statement
    here = (statement,)
    inner = statement.iterators[statement.outer :]
    origin = {i: measured.lo(i) for i in inner}
    loops = [tile_member(here, i, plan.size(i), origin[i]) for i in order]
    points = point_members(here, plan, inner, origin)
    tiles = tuple((i, plan.size(i), origin[i]) for i in order if plan.size(i) > 1)
    body = variants(program, here, statement.iterators, tiles, lambda _: band(points, Leaf()))
    return Nest(here, band(loops, body))


def reduction_nest(
    program: TypedProgram,
    measured: Measured,
    plan: Plan,
    parts: Accumulated,
    kept_order: tuple[str, ...],
    reduced_order: tuple[str, ...],
    block: tuple[str, int] | None,
    panels: tuple[tuple[str, int], ...] = (),
    around: int = 0,
) -> Nest:
    """Return the nest of a reduction: tiles of the result, and inside each the accumulator in registers over all the terms.

        for block: for i.tile: for j.tile:
            with acc: { acc = 0;  for k: for i.point: vector j: acc += …;  store }

    `panels`: (iterator, number of its tiles) that are kept together outside the other tile loops, to stay in cache. `around`: so
    many of the tile loops stand outside that over blocks.
    """
    statements = parts.statements()
    outer = measured.statement.outer
    kept = tuple(i for i in parts.kept if i not in measured.statement.iterators[:outer])
    origin = {i: measured.lo(i) for i in measured.statement.iterators}
    loops = [
        shared(statements, floordiv(offset(i, origin[i]), plan.size(i) * count), f"{i}.panel") for i, count in panels
    ]
    loops += [tile_member(statements, i, plan.size(i), origin[i]) for i in kept_order]
    if block:
        loops.insert(around, _block_member(parts, block, parts.numbers[0]))
    return Nest(statements, band(loops, result_tiles(program, plan, parts, kept_order, kept, reduced_order, origin)))


def result_tiles(
    program: TypedProgram,
    plan: Plan,
    parts: Accumulated,
    tiled: tuple[str, ...],
    kept: tuple[str, ...],
    reduced_order: tuple[str, ...],
    origin: dict[str, int],
    cut: Mapping[str, int] | None = None,
) -> Tree:
    """Return the inside of the loops over the tiles of a result, one child a shape of tile; `cut`: see `tile_body`."""
    statements = parts.statements()
    filled = bool(program.sizes) and _reads_plainly(parts.update)

    def inside(part: Part) -> Tree:
        if part.is_own_shape or filled:
            # A tile of unknown shape is not transposed in registers: which of them would depend on the shape.
            shape = plan if part.is_own_shape else replace(plan, written=None)
            return tile_body(program, shape, parts, kept, reduced_order, origin, cut)
        if part.only is not None:
            shape = replace(plan, is_cut=True)
            return tile_body(program, shape, parts, kept, reduced_order, origin, cut)
        # A tile of unknown shape: one row of vectors at a time, so that only the vectors have to be tested.
        rows = [shared(statements, mod(offset(i, origin[i]), s), f"{i}.row") for i, s in plan.others if s > 1]
        return band(rows, tile_body(program, replace(plan, others=()), parts, kept, reduced_order, origin, cut))

    names = tuple(i for i in parts.start.iterators if i != parts.lanes and i not in parts.numbers)
    tiles = tuple((i, plan.size(i), origin[i]) for i in tiled if plan.size(i) > 1)
    return variants(program, statements, names, tiles, inside, plan.vector, one_by_one=filled, grain=plan.grain)


def _reads_plainly(statement: TypedStatement) -> bool:
    """Whether cells beyond the end of a tile may be computed from others that exist
    (polyker.codegen.passes.whole_partial_tiles)."""
    return all(r.pad is None and all(map(is_quasi_affine, r.subscripts)) for r in statement.reads())


def _block_member(parts: Accumulated, block: tuple[str, int], number: str) -> Member:
    iterator, size = block
    times = tuple(
        (s.name, floordiv(Index(iterator, i64), size) if s is parts.update else Index(number, i64))
        for s in parts.statements()
    )
    return Member(times, f"{iterator}.block")


def tile_body(
    program: TypedProgram,
    plan: Plan,
    parts: Accumulated,
    kept: tuple[str, ...],
    reduced_order: tuple[str, ...],
    origin: dict[str, int],
    cut: Mapping[str, int] | None = None,
) -> Tree:
    """Return the inside of one tile: start, terms, folds, store, with the accumulators' buffers around them.

    `cut`: reduced iterator -> size of its blocks, where loops outside the tile run over the blocks.
    """
    folds = plan.vector in reduced_order
    width = plan.lanes * plan.chunks
    lane_loops = vector_members((parts.start,), Index(parts.lanes, i64), plan, "lane") if parts.lanes else []
    start = band([*point_members((parts.start,), plan, kept, origin), *lane_loops], Leaf())
    children = [
        Filter((parts.start.name,), start),
        Filter((parts.update.name,), _terms(program, plan, parts, kept, reduced_order, origin, cut or {})),
    ]
    for s in parts.folds:
        lanes = (
            vector_members((s,), Index(parts.lanes, i64), plan, "lane")
            if parts.lanes in s.iterators and parts.lanes
            else []
        )
        children.append(Filter((s.name,), band([*point_members((s,), plan, kept, origin), *lanes], Leaf())))
    children += [Filter((s.name,), band(_store_members(s, plan, kept, origin), Leaf())) for s in parts.store]
    sizes = tuple(plan.size(i) if i in kept else 1 for i in parts.cell)
    promotions = [Promotion(parts.accumulator, sizes + ((width,) if folds else ()))]
    if parts.folded:
        promotions.append(Promotion(parts.folded, sizes))
    return Scope(tuple(promotions), Sequence(tuple(children)))


def _terms(
    program: TypedProgram,
    plan: Plan,
    parts: Accumulated,
    kept: tuple[str, ...],
    reduced_order: tuple[str, ...],
    origin: dict[str, int],
    cut: Mapping[str, int],
) -> Tree:
    """Return the loops over the terms; a vectorised reduced iterator runs by full vectors, then by the rest.

    Where the results of a tile have other terms each, as below a diagonal, those that all have run before those that some have.
    """
    here = (parts.update,)
    points = point_members(here, plan, kept, origin)
    if plan.vector not in reduced_order or plan.vector is None:
        places = {i: mod(Index(i, i64), cut[i]) if i in cut else Index(i, i64) for i in reduced_order}
        if plan.across is None:
            loops = [shared(here, places[i], i) for i in reduced_order]
            tiles = tuple((i, plan.size(i), origin[i]) for i in kept)
            found = None if parts.update.in_order else common_terms(program, parts.update, tiles)
            few = by_terms(program, parts.update, found[1], tiles) if found else None
            if found is None or (found[0].is_empty() and few is None):
                return band([*loops, *points], Leaf())
            # Terms that some results have: by the few values that say which, or else vector by vector, so that each runs through
            # its own alone.
            (every, some), name = found, parts.update.name
            outside = [m for m in points if m.label == f"{plan.vector}.vectors"]
            apart = [*outside, *loops, *(m for m in points if m not in outside)]
            bands = [(part, [*loops, *points]) for part in (every, *(few or ())) if not part.is_empty()]
            bands += [] if few else [(some, apart)]
            return Sequence(tuple(Filter((name,), band(m, Leaf()), ((name, str(part)),)) for part, m in bands))
        across, size = plan.across
        loops = [shared(here, places[i], i) for i in reduced_order if i != across]
        loops.append(shared(here, floordiv(places[across], size), f"{across}.tile"))

        def columns(part: Part) -> Tree:
            whole = part.is_own_shape
            kind = Kind.TRANSPOSE if whole else Kind.SERIAL
            rows = shared(here, mod(places[across], size), f"{across}.columns", kind, size if whole else 0)
            return band([rows], band(points, Leaf()))

        return band(loops, variants(program, here, parts.update.iterators, ((across, size, 0),), columns))
    width = plan.lanes * plan.chunks
    loops = [shared(here, Index(i, i64), i) for i in reduced_order if i != plan.vector]
    loops.append(tile_member(here, plan.vector, width, 0))
    inner = band([*points, *vector_members(here, Index(plan.vector, i64), plan, plan.vector)], Leaf())
    tiles = ((plan.vector, width, 0),)
    return band(loops, variants(program, here, parts.update.iterators, tiles, lambda _: inner))


def variants(
    program: TypedProgram,
    statements: tuple[TypedStatement, ...],
    names: tuple[str, ...],
    tiles: tuple[tuple[str, int, int], ...],
    inside: Callable[[Part], Tree],
    apart: str | None = None,
    *,
    one_by_one: bool = False,
    grain: tuple[str, int] | None = None,
) -> Tree:
    """Return a sequence with one child a shape of tile, or the child alone where all tiles have one shape.

    The tiles are those of all the statements' domains together, projected on the iterators `names`; `apart`, `one_by_one`,
    `grain`: see `tile_parts`.
    """
    if not tiles:
        return inside(Part(read_set(statements[0].domain), True))
    domain: isl.Set | None = None
    for s in statements:
        if set(names) <= set(s.iterators):
            part = values_taken(program, s, names)
            # A union with what it holds already would be cut to pieces of no use.
            if domain is None or domain.is_subset(part):
                domain = part
            elif not part.is_subset(domain):
                domain = domain.union(part)
    assert domain is not None
    parts = tile_parts(program, domain.coalesce(), names, tiles, apart, one_by_one=one_by_one, grain=grain)
    if len(parts) <= 1:
        return inside(parts[0] if parts else Part(domain, True))
    children = []
    for part in parts:
        conditions = tuple((s.name, str(_lift(program, s, names, part.domain).to_str())) for s in statements)
        children.append(Filter(tuple(s.name for s in statements), inside(part), conditions))
    return Sequence(tuple(children))


def _lift(program: TypedProgram, statement: TypedStatement, names: tuple[str, ...], part: isl.Set) -> isl.Set:
    """Return the instances of a statement whose iterators `names` lie in `part`."""
    source = f"{statement.name}[{', '.join(statement.iterators)}]"
    onto = read_map(f"{parameters(program)}{{ {source} -> [{', '.join(names)}] }}")
    return onto.intersect_range(part).domain()
