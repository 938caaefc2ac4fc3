"""Map reductions over rows to threads: x along neighbouring elements of the result, y along the reduction.

block.x j.block:
    with P, shared:
        thread.y q: thread.x j: { acc = 0;  for every 16th term: acc += …;  P[j,q] = acc }
        thread.x j: S[j] = sum of P[j,q]
"""

from __future__ import annotations

from math import prod

from msgspec import Struct

from polyker.cost.measure import MeasuredStatement
from polyker.cost.plan import TilePlan
from polyker.ir.dtypes import i64
from polyker.ir.expr import IndexExpr
from polyker.ir.quasi_affine import floordiv, index, mod
from polyker.ir.typed import TypedProgram, TypedStatement
from polyker.machine.model import Gpu
from polyker.rewrite.core.accumulate import AccumulatorLayout, accumulate
from polyker.rewrite.core.fresh import Fresh
from polyker.schedule.fusion.items import Item
from polyker.schedule.gpu.across import MIN_TERMS_PER_THREAD, has_gathers
from polyker.schedule.gpu.map import grid
from polyker.schedule.nests.nest import Nest, ReductionTiles, shared
from polyker.schedule.tree.nodes import Band, Filter, MemberKind, Promotion, Scope, Sequence

# Most threads along y: each has a partial result of every element of the block (experience value).
MAX_COLUMN_THREADS = 16


class ColumnReduction(Struct, frozen=True):
    """The terms along `along` are distributed over `height` threads of each of `blocks` blocks; `column` is contiguous."""

    column: str
    along: str
    height: int
    blocks: int


def choose_columns(measured: MeasuredStatement, gpu: Gpu) -> ColumnReduction | None:
    """Return how the terms of elements that lie side by side are distributed; None where a thread had better sum its own
    elements'."""
    statement = measured.statement
    reads = [a for a in measured.accesses if not a.is_write]
    if not reads or has_gathers(measured) or statement.in_order:
        return None
    kept = statement.kept
    largest = max(reads, key=measured.footprint)
    unit = [i for i in kept if abs(largest.stride(i)) == 1]
    if not unit or any(not largest.stride(i) for i in kept):
        return None
    column, along = max(unit, key=measured.extent), max(statement.reduced, key=measured.extent)
    elements, terms = prod(measured.extent(i) for i in kept), prod(measured.extent(i) for i in statement.reduced)
    most = min(
        gpu.processors * gpu.resident // max(1, elements), terms // MIN_TERMS_PER_THREAD, measured.extent(along) // 2
    )
    height = MAX_COLUMN_THREADS
    while height > most:
        height //= 2
    if height < 2 or measured.extent(column) < gpu.warp // 2:
        return None
    blocks = max(1, min(most // height, measured.extent(along) // (height * MIN_TERMS_PER_THREAD)))
    return ColumnReduction(column, along, height, 1 << (blocks.bit_length() - 1))


class ColumnParts(Struct, frozen=True):
    """What a launch runs for an item: two sums, each with its start. The first one has a result for each element and value of its
    iterator `lane`, the other one combines them."""

    item: Item
    parts: tuple[tuple[TypedStatement, TypedStatement | None], tuple[TypedStatement, TypedStatement | None]]
    column: str
    lane: str
    height: int
    width: int


def columns_nest(program: TypedProgram, fresh: Fresh, launch: ColumnParts) -> Nest:
    """Return the statements of a launch and its nest."""
    bodies, trees = [], []
    (part, _), (fold, _) = launch.parts
    for statement, start in launch.parts:
        origin = dict.fromkeys(statement.iterators, 0)
        parts = accumulate(program, fresh, statement, start=start, layout=AccumulatorLayout(origin=origin))
        bodies.append(parts.statements())
        tiles = ReductionTiles(program, parts, statement.kept, statement.reduced, origin)
        trees.append(tiles.tree(TilePlan(None, 1, 1, (), 0.0), statement.kept))
    statements = (*bodies[0], *bodies[1])
    rest = [i for i in fold.kept if i != launch.column]
    columns = shared(statements, floordiv(index(launch.column), launch.width), f"{launch.column}.block")
    loops = [columns, *(shared(statements, index(i), i) for i in (*reversed(rest[-2:]), *rest[:-2]))]
    place = mod(IndexExpr(launch.column, i64), launch.width)
    children: list[Filter] = []
    for own, inside in zip(bodies, trees, strict=True):
        threads = [shared(own, place, f"{launch.column}.thread", MemberKind.THREAD, launch.width, "x")]
        if own is bodies[0]:
            row = shared(own, index(launch.lane), "lane.thread", MemberKind.THREAD, launch.height, "y")
            threads = [row, *threads]
        children.append(Filter(tuple(s.name for s in own), Band(tuple(threads), inside)))
    tensor = part.target
    sizes = {launch.column: launch.width, launch.lane: launch.height}
    names = [s.name for s in part.subscripts if isinstance(s, IndexExpr)]
    modulo = tuple(sizes.get(i, 1) for i in names)
    rank = sorted(range(len(names)), key=lambda d: (names[d] == launch.column, names[d] != launch.lane))
    held = Promotion(tensor, modulo, tuple((d, 1, modulo[d]) for d in rank), shared=True)
    return Nest(statements, Band(tuple(grid(loops, statements)), Scope((held,), Sequence(tuple(children)))))
