"""Build the tree of a time-tiled loop.

    for t.tile: for i.tile: for t: for i: { row of S0;  row of S1, a shift behind }

The tiles' loops run over blocks of time and of the fronts (see polyker.schedule.time.skew); inside a tile all statements run
row by row, each row by vectors. No dependence goes backwards along any of the tiles' loops, so that two of them may run as
waves on several threads.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from polyker.cost.measure import MeasuredStatement
from polyker.cost.plan import TilePlan
from polyker.ir.dtypes import i64
from polyker.ir.expr import Expr, IndexExpr
from polyker.ir.quasi_affine import floordiv, mod, print_affine, scale, subtract
from polyker.ir.typed import TypedStatement
from polyker.poly.isl import read_set
from polyker.schedule.nests.loop_order import memory_order
from polyker.schedule.nests.nest import Nest, band, offset, shared, vector_members
from polyker.schedule.time.cost import TimeTiles
from polyker.schedule.time.skew import Front, SkewedStatement
from polyker.schedule.tree.nodes import Filter, Leaf, Member, Sequence, Tree
from polyker.structs import replace


class TimeNest(Struct, frozen=True):
    """What the tree is made from: one entry a statement, and the tiles. `free`: the iterators that carry no dependence;
    `units`: the dimension along which vectors begin at multiples of so many elements, where rows begin on lines."""

    places: tuple[SkewedStatement, ...]
    measured: tuple[MeasuredStatement, ...]
    plans: tuple[TilePlan, ...]
    free: tuple[tuple[str, ...], ...]
    tiles: TimeTiles
    labels: Mapping[int, str]
    units: Mapping[int, int]

    def nest(self) -> Nest:
        """Return the statements with their tree."""
        statements = tuple(p.statement for p in self.places)
        clock = self.places[0].clock
        since = offset(clock, self.places[0].first)
        loops = [shared(statements, floordiv(since, self.tiles.steps), f"{clock}.tile")]
        loops += [self._member(f, since, n, "tile") for f, n in self.tiles.sizes]
        loops.append(shared(statements, since, clock))
        loops += [
            self._member(f, since, n, "point") for f, n in self.tiles.sizes if f.dimension not in self._vectors_along
        ]
        children = tuple(Filter((s.name,), self._row(n, since)) for n, s in enumerate(statements))
        return Nest(statements, band(loops, children[0].child if len(children) == 1 else Sequence(children)))

    @property
    def _vectors_along(self) -> frozenset[int]:
        """The dimension along which rows lie: its places inside a tile are each statement's own affair."""
        pairs = zip(self.places, self.plans, strict=True)
        return frozenset(n for p, q in pairs for n, (i, _) in enumerate(p.space) if i is not None and i == q.vector)

    def _member(self, front: Front, step: Expr, size: int, role: str) -> Member:
        times = []
        for n, place in enumerate(self.places):
            time = front.time(place, n, step)
            times.append((place.statement.name, floordiv(time, size) if role == "tile" else mod(time, size)))
        return Member(tuple(times), f"{self.labels[front.dimension]}.{role}")

    def _row(self, number: int, step: Expr) -> Tree:
        """Return the loops of one statement inside the common ones."""
        place, plan, free = self.places[number], self.plans[number], self.free[number]
        statement, measured = place.statement, self.measured[number]
        inner = statement.iterators[1:]
        dims = {i: n for n, (i, _) in enumerate(place.space) if i is not None}
        vector = plan.vector
        order = memory_order(measured, inner, vector) if len(free) == len(inner) else inner
        left = [i for i in order if self.tiles.size(dims[i]) is None or dims[i] in self._vectors_along]
        rest = [i for i in left if i != vector]
        loops = [shared((statement,), offset(i, place.bounds[i][0]), i) for i in rest]
        if vector is None:
            return band(loops, Leaf())
        return band(loops, self._vectors(number, vector, dims[vector], step))

    def _vectors(self, number: int, vector: str, dimension: int, step: Expr) -> Tree:
        """Return the loops over a row's vectors: whole groups of them where the row allows, single ones where it ends."""
        place, plan = self.places[number], self.plans[number]
        lo, hi = place.bounds[vector]
        width = plan.lanes * plan.chunks
        size = self.tiles.size(dimension)
        if size is None:
            at: Expr = place.coordinate(dimension) if dimension in self.units else offset(vector, lo)
            first = subtract(scale(width, floordiv(at, width)), subtract(at, IndexExpr(vector, i64)))
            full = f"{lo} <= {print_affine(first)} <= {hi - width + 1}"
        else:
            front = next(f for f, _ in self.tiles.sizes if f.dimension == dimension)
            time = front.time(place, number, step)
            slant = subtract(time, IndexExpr(vector, i64))
            first = subtract(scale(size, floordiv(time, size)), slant)
            full = f"{lo} <= {print_affine(first)} <= {hi - size + 1}"
            at = mod(time, size)
        here = (place.statement,)
        groups = shared(here, floordiv(at, width), f"{vector}.group")
        single = shared(here, floordiv(at, plan.lanes), f"{vector}.vector")
        inside = band([groups, *vector_members(here, at, plan, vector)], Leaf())
        outside = band([single, *vector_members(here, at, replace(plan, chunks=1), vector)], Leaf())
        return _split(place.statement, full, inside, outside)


def _split(statement: TypedStatement, condition: str, inside: Tree, outside: Tree) -> Tree:
    """Return a sequence of the instances for which a condition holds, and of the others."""
    domain = read_set(statement.domain)
    tuple_ = f"{statement.name}[{', '.join(statement.iterators)}]"
    held = domain.intersect(read_set(f"{{ {tuple_} : {condition} }}"))
    rest = domain.subtract(held)
    if rest.is_empty():
        return inside
    if held.is_empty():
        return outside
    return Sequence(
        (
            Filter((statement.name,), inside, ((statement.name, str(held)),)),
            Filter((statement.name,), outside, ((statement.name, str(rest)),)),
        )
    )
