"""Build the loop nest of one statement, or of a reduction's statements, from its register tile."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import groupby

import islpy as isl
from msgspec import Struct, field

from polyker.cost.access_cost import MAX_SHUFFLED_STRIDE
from polyker.cost.measure import MeasuredStatement
from polyker.cost.plan import TilePlan
from polyker.ir.dtypes import i64
from polyker.ir.expr import Expr, IndexExpr
from polyker.ir.quasi_affine import add, coefficients, floordiv, index, is_quasi_affine, lit, mod
from polyker.ir.typed import TypedLoop, TypedNode, TypedProgram, TypedStatement
from polyker.poly.isl import read_set
from polyker.poly.scop import map_onto, values_taken
from polyker.rewrite.core.accumulate import Accumulated
from polyker.schedule.nests.tiles import TOGETHER, DomainPart, Separation, by_terms, common_terms, tile_parts
from polyker.schedule.tree.nodes import Band, Filter, Leaf, Member, MemberKind, Promotion, Scope, Sequence, Tree
from polyker.structs import replace


class Nest(Struct, frozen=True):
    """Statements with the tree that orders them."""

    statements: tuple[TypedStatement, ...]
    tree: Tree


def offset(iterator: str, origin: int) -> Expr:
    """Return `iterator - origin`."""
    return add(IndexExpr(iterator, i64), lit(-origin))


def shared(
    statements: tuple[TypedStatement, ...],
    time: Expr,
    label: str,
    kind: MemberKind = MemberKind.SERIAL,
    extent: int = 0,
    axis: str = "",
) -> Member:
    """Return a loop that gives every statement the same time."""
    return Member(tuple((s.name, time) for s in statements), label, kind, extent, axis)


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
    return Nest(
        nest.statements, Band((shared(nest.statements, IndexExpr(loop.iterator, i64), loop.iterator),), nest.tree)
    )


def nests_of(
    body: tuple[TypedNode, ...],
    run: Callable[[list[TypedStatement]], tuple[list[TypedStatement], list[Nest]]],
    tiled: Callable[[TypedLoop], Nest | None] = lambda _: None,
) -> tuple[tuple[TypedNode, ...], Nest]:
    """Return the statements that stand for a body, and their nests one after another.

    `run` gives both for statements that follow each other, `tiled` the nest of a loop as it stands, None where its body has one.
    """
    nodes: list[TypedNode] = []
    nests: list[Nest] = []
    for are_loops, together in groupby(body, lambda node: isinstance(node, TypedLoop)):
        if not are_loops:
            made, found = run([s for s in together if isinstance(s, TypedStatement)])
            nodes += made
            nests += found
            continue
        for loop in (n for n in together if isinstance(n, TypedLoop)):
            nest = tiled(loop)
            if nest is None:
                inner, within = nests_of(loop.body, run, tiled)
                loop, nest = replace(loop, body=inner), around_nest(loop, within)
            nodes.append(loop)
            nests.append(nest)
    return tuple(nodes), in_order(nests)


def serial_nest(statement: TypedStatement) -> Nest:
    """Return the statement's loops as the text orders them: the schedule that always exists."""
    members = [shared((statement,), IndexExpr(i, i64), i) for i in statement.iterators[statement.outer :]]
    return Nest((statement,), band(members, Leaf()))


def point_members(
    statements: tuple[TypedStatement, ...], plan: TilePlan, kept: tuple[str, ...], origin: dict[str, int]
) -> list[Member]:
    """Return the loops inside a tile: the unrolled ones, then the vectors of the vector iterator, then its lanes."""
    unrolled = [
        (i, shared(statements, mod(offset(i, origin[i]), s), f"{i}.point", MemberKind.UNROLL, s))
        for i, s in plan.others
        if s > 1 and i in kept
    ]
    lanes = []
    if plan.vector in kept and plan.vector is not None:
        members = vector_members(statements, offset(plan.vector, origin[plan.vector]), plan, plan.vector)
        unrolled += [(plan.vector, m) for m in members if m.kind is MemberKind.UNROLL]
        lanes = [m for m in members if m.kind is MemberKind.VECTOR]
    # The values of the operand that the outer loops move are loaded one after another, those of the other one stay in registers.
    # Where there may be fewer vectors each is tested once, and not for each row.
    outer = (plan.vector,) if plan.is_cut else plan.passing
    return [*(m for i, m in unrolled if i in outer), *(m for i, m in unrolled if i not in outer), *lanes]


def _store_members(
    statement: TypedStatement, plan: TilePlan, kept: tuple[str, ...], origin: dict[str, int]
) -> list[Member]:
    """Return the loops that store a tile: by vectors along what the result is contiguous along, transposed if it has to be."""
    if plan.written is None or plan.vector is None or plan.written not in dict(plan.others):
        members = point_members((statement,), plan, kept, origin)
        interleaved = _woven(statement, plan)
        # What lies between the lanes of a vector is stored with it: see `codegen.llvm.access.strided`.
        return sorted(members, key=lambda m: interleaved is not None and m.label == f"{interleaved}.point")
    here, size, width = (statement,), plan.size(plan.written), plan.size(plan.vector)
    rest = replace(plan, vector=None, others=tuple(o for o in plan.others if o[0] != plan.written))
    rows = shared(
        here, mod(offset(plan.vector, origin[plan.vector]), width), f"{plan.vector}.rows", MemberKind.TRANSPOSE, width
    )
    lanes = 1 << (size - 1).bit_length()
    along = shared(
        here, mod(offset(plan.written, origin[plan.written]), size), f"{plan.written}.lanes", MemberKind.VECTOR, lanes
    )
    return [*point_members(here, rest, kept, origin), rows, along]


def _woven(statement: TypedStatement, plan: TilePlan) -> str | None:
    """Return the unrolled iterator whose elements lie between those of a vector's lanes: O[2*q+p] with vectors along q."""
    row = coefficients(statement.subscripts[-1]) if statement.subscripts else None
    step = (row or {}).get(plan.vector or "", 0)
    found = [i for i, size in plan.others if 1 < size == step <= MAX_SHUFFLED_STRIDE and (row or {}).get(i) == 1]
    return found[0] if found else None


def vector_members(statements: tuple[TypedStatement, ...], place: Expr, plan: TilePlan, label: str) -> list[Member]:
    """Return the loops over the vectors of a tile, and over the lanes of a vector where it has several."""
    members = []
    if plan.chunks > 1:
        within = floordiv(mod(place, plan.lanes * plan.chunks), plan.lanes)
        members.append(shared(statements, within, f"{label}.vectors", MemberKind.UNROLL, plan.chunks))
    if plan.lanes > 1:
        members.append(shared(statements, mod(place, plan.lanes), f"{label}.lanes", MemberKind.VECTOR, plan.lanes))
    return members


def tile_member(statements: tuple[TypedStatement, ...], iterator: str, size: int, origin: int) -> Member:
    """Return the loop over the tiles of an iterator."""
    return shared(statements, floordiv(offset(iterator, origin), size), f"{iterator}.tile" if size > 1 else iterator)


def map_nest(program: TypedProgram, measured: MeasuredStatement, plan: TilePlan, order: tuple[str, ...]) -> Nest:
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


class ReductionLoops(Struct, frozen=True):
    """The loops of a reduction's nest: over the `tiles` of the result, and over the `terms`, outermost first.

    `block`: a reduced iterator and the size of its blocks. `panels`: (iterator, number of its tiles) that are kept together
    outside the other tile loops, to stay in cache. `around`: so many of the tile loops stand outside that over blocks.
    """

    tiles: tuple[str, ...]
    terms: tuple[str, ...]
    block: tuple[str, int] | None = None
    panels: tuple[tuple[str, int], ...] = ()
    around: int = 0


def reduction_nest(
    program: TypedProgram, measured: MeasuredStatement, plan: TilePlan, parts: Accumulated, order: ReductionLoops
) -> Nest:
    """Return the nest of a reduction: tiles of the result, and inside each the accumulator in registers over the whole reduction.

    for block: for i.tile: for j.tile:
        with acc: { acc = 0;  for k: for i.point: vector j: acc += …;  store }
    """
    statements = parts.statements()
    outer = measured.statement.outer
    kept = tuple(i for i in parts.update.kept if i not in measured.statement.iterators[:outer])
    origin = {i: measured.lo(i) for i in measured.statement.iterators}
    loops = [
        shared(statements, floordiv(offset(i, origin[i]), plan.size(i) * count), f"{i}.panel")
        for i, count in order.panels
    ]
    loops += [tile_member(statements, i, plan.size(i), origin[i]) for i in order.tiles]
    if order.block:
        loops.insert(order.around, _block_member(parts, order.block, parts.numbers[0]))
    inside = ReductionTiles(program, parts, kept, order.terms, origin).tree(plan, order.tiles)
    return Nest(statements, band(loops, inside))


class ReductionTiles(Struct, frozen=True):
    """The inside of the loops over the tiles of a result: the iterators `kept` of a tile, counted from their `origin`, and those
    `reduced`, outermost first.

    `cut`: reduced iterator -> size of its blocks, where loops outside the tile run over the blocks.
    """

    program: TypedProgram
    parts: Accumulated
    kept: tuple[str, ...]
    reduced: tuple[str, ...]
    origin: dict[str, int]
    cut: Mapping[str, int] = field(default_factory=dict)

    def tree(self, plan: TilePlan, tiled: tuple[str, ...]) -> Tree:
        """Return the inside of the loops over tiles of the iterators `tiled`, one child a shape of tile."""
        parts, origin = self.parts, self.origin
        statements = parts.statements()
        filled = bool(self.program.sizes) and _reads_plainly(parts.update)

        def inside(part: DomainPart) -> Tree:
            if part.is_own_shape or filled:
                # A tile of unknown shape is not transposed in registers: which of them would depend on the shape.
                return self._tile(plan if part.is_own_shape else replace(plan, written=None))
            if part.only is not None:
                return self._tile(replace(plan, is_cut=True))
            # A tile of unknown shape: one row of vectors at a time, so that only the vectors have to be tested.
            rows = [shared(statements, mod(offset(i, origin[i]), s), f"{i}.row") for i, s in plan.others if s > 1]
            return band(rows, self._tile(replace(plan, others=())))

        names = tuple(i for i in parts.start.iterators if i != parts.lanes and i not in parts.numbers)
        tiles = tuple((i, plan.size(i), origin[i]) for i in tiled if plan.size(i) > 1)
        separation = Separation(plan.vector, one_by_one=filled, grain=plan.grain)
        return variants(self.program, statements, names, tiles, inside, separation)

    def _tile(self, plan: TilePlan) -> Tree:
        """Return the inside of one tile: start, terms, folds, store, with the accumulators' buffers around them."""
        parts, kept, origin = self.parts, self.kept, self.origin
        folds = plan.vector in self.reduced
        width = plan.lanes * plan.chunks
        lane_loops = vector_members((parts.start,), IndexExpr(parts.lanes, i64), plan, "lane") if parts.lanes else []
        start = band([*point_members((parts.start,), plan, kept, origin), *lane_loops], Leaf())
        children = [Filter((parts.start.name,), start), Filter((parts.update.name,), self._terms(plan))]
        for s in parts.folds:
            has_lanes = parts.lanes and parts.lanes in s.iterators
            lanes = vector_members((s,), index(parts.lanes), plan, "lane") if parts.lanes and has_lanes else []
            children.append(Filter((s.name,), band([*point_members((s,), plan, kept, origin), *lanes], Leaf())))
        children += [Filter((s.name,), band(_store_members(s, plan, kept, origin), Leaf())) for s in parts.store]
        sizes = tuple(plan.size(i) if i in kept else 1 for i in parts.element)
        promotions = [Promotion(parts.accumulator, sizes + ((width,) if folds else ()))]
        if parts.folded:
            promotions.append(Promotion(parts.folded, sizes))
        return Scope(tuple(promotions), Sequence(tuple(children)))

    def _terms(self, plan: TilePlan) -> Tree:
        """Return the reduction loops; a vectorised reduced iterator runs by full vectors, then by the rest."""
        if plan.vector is not None and plan.vector in self.reduced:
            return self._vectors_of_terms(plan, plan.vector)
        cut = self.cut
        places = {i: mod(IndexExpr(i, i64), cut[i]) if i in cut else IndexExpr(i, i64) for i in self.reduced}
        return self._scalar_terms(plan, places) if plan.across is None else self._rows_of_terms(plan, places)

    def _scalar_terms(self, plan: TilePlan, places: Mapping[str, Expr]) -> Tree:
        """Return the reduction loops one by one.

        Where the results of a tile have other terms each, as below a diagonal, those that all have run before those that some
        have.
        """
        program, update = self.program, self.parts.update
        here, points = (update,), point_members((update,), plan, self.kept, self.origin)
        loops = [shared(here, places[i], i) for i in self.reduced]
        tiles = tuple((i, plan.size(i), self.origin[i]) for i in self.kept)
        found = None if update.in_order else common_terms(program, update, tiles)
        few = by_terms(program, update, found[1], tiles) if found else None
        if found is None or (found[0].is_empty() and few is None):
            return band([*loops, *points], Leaf())
        # Terms that some results have: by the few values that say which, or else vector by vector, so that each runs through
        # its own alone.
        (every, some), name = found, update.name
        outside = [m for m in points if m.label == f"{plan.vector}.vectors"]
        apart = [*outside, *loops, *(m for m in points if m not in outside)]
        bands = [(part, [*loops, *points]) for part in (every, *(few or ())) if not part.is_empty()]
        bands += [] if few else [(some, apart)]
        return Sequence(tuple(Filter((name,), band(m, Leaf()), ((name, str(part)),)) for part, m in bands))

    def _rows_of_terms(self, plan: TilePlan, places: Mapping[str, Expr]) -> Tree:
        """Return the reduction loops where pieces of an operand's rows along them are transposed in registers."""
        assert plan.across is not None
        (across, size), update = plan.across, self.parts.update
        here, points = (update,), point_members((update,), plan, self.kept, self.origin)
        loops = [shared(here, places[i], i) for i in self.reduced if i != across]
        loops.append(shared(here, floordiv(places[across], size), f"{across}.tile"))

        def columns(part: DomainPart) -> Tree:
            whole = part.is_own_shape
            kind = MemberKind.TRANSPOSE if whole else MemberKind.SERIAL
            rows = shared(here, mod(places[across], size), f"{across}.columns", kind, size if whole else 0)
            return band([rows], band(points, Leaf()))

        return band(loops, variants(self.program, here, update.iterators, ((across, size, 0),), columns))

    def _vectors_of_terms(self, plan: TilePlan, vector: str) -> Tree:
        """Return the reduction loops where vectors run along them."""
        update, width = self.parts.update, plan.lanes * plan.chunks
        here, points = (update,), point_members((update,), plan, self.kept, self.origin)
        loops = [shared(here, IndexExpr(i, i64), i) for i in self.reduced if i != vector]
        loops.append(tile_member(here, vector, width, 0))
        inner = band([*points, *vector_members(here, IndexExpr(vector, i64), plan, vector)], Leaf())
        return band(loops, variants(self.program, here, update.iterators, ((vector, width, 0),), lambda _: inner))


def _reads_plainly(statement: TypedStatement) -> bool:
    """Whether elements beyond the end of a tile may be computed from others that exist
    (polyker.codegen.passes.whole_partial_tiles)."""
    return all(r.pad is None and all(map(is_quasi_affine, r.subscripts)) for r in statement.reads())


def _block_member(parts: Accumulated, block: tuple[str, int], number: str) -> Member:
    iterator, size = block
    times = tuple(
        (s.name, floordiv(IndexExpr(iterator, i64), size) if s is parts.update else IndexExpr(number, i64))
        for s in parts.statements()
    )
    return Member(times, f"{iterator}.block")


def variants(
    program: TypedProgram,
    statements: tuple[TypedStatement, ...],
    names: tuple[str, ...],
    tiles: tuple[tuple[str, int, int], ...],
    inside: Callable[[DomainPart], Tree],
    separation: Separation = TOGETHER,
) -> Tree:
    """Return a sequence with one child a shape of tile, or the child alone where all tiles have one shape.

    The tiles are those of all the statements' domains together, projected on the iterators `names`.
    """
    if not tiles:
        return inside(DomainPart(read_set(statements[0].domain), True))
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
    parts = tile_parts(program, domain.coalesce(), names, tiles, separation)
    if len(parts) <= 1:
        return inside(parts[0] if parts else DomainPart(domain, True))
    children = []
    for part in parts:
        own = ((s.name, map_onto(program, s, names).intersect_range(part.domain).domain()) for s in statements)
        conditions = tuple((name, str(points.to_str())) for name, points in own)
        children.append(Filter(tuple(s.name for s in statements), inside(part), conditions))
    return Sequence(tuple(children))
