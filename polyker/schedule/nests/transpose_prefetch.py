"""Prefetch the lines that a later tile reads and writes, of tiles that are transposed in registers.

    for n: for k.tile: for l.tile: O[n, l.tile, k.tile] = X[n, k.tile, l.tile] transposed     (56 x 80 elements for each n)
    ->
    for n: for k.tile: for l.tile: prefetch X[n+1, k.tile, l.tile]; prefetch O[n+1, l.tile, k.tile]; O[…] = X[…] transposed

A tile takes one line of each of many rows, and the next tile the lines beside them: no hardware prefetcher follows that, and the
misses in flight of loads and stores are too few for memory's bandwidth. Lines are prefetched into the second cache, which has
more misses in flight, and those to be written as if they were read: no other core has them, and a prefetch for writing
(PREFETCHW) goes to the first cache on x86. A result written by streaming stores is not prefetched (`codegen.llvm.store`).
"""

from __future__ import annotations

from math import prod

from polyker.cost.measure import MeasuredStatement, MemoryAccess
from polyker.cost.plan import TilePlan, unit_iterator
from polyker.ir.dtypes import i64
from polyker.ir.expr import Expr, IndexExpr, Read
from polyker.ir.quasi_affine import add, is_quasi_affine, lit, mod, scale, substitute, subtract
from polyker.ir.typed import PrefetchRead, TypedProgram
from polyker.machine.model import Target
from polyker.schedule.nests.nest import offset
from polyker.schedule.nests.transpose import across_sizes, panel_of

# Least bytes, read and written, between a prefetch and its use: what memory delivers during one miss (experience value); and the
# part of the second cache that they may fill, as its divisor.
MIN_PREFETCH_BYTES, SECOND_CACHE_DIVISOR = 8192, 4
# Least ratio of a loop's trip count to the prefetch distance, so that the useless prefetches of its last iterations matter
# little (chosen).
MIN_TRIPS_PER_DISTANCE = 16.0


def transposed_prefetches(
    program: TypedProgram,
    measured: MeasuredStatement,
    plan: TilePlan,
    across: tuple[str, ...],
    order: tuple[str, ...],
    target: Target,
) -> tuple[PrefetchRead, ...]:
    """Return the elements that each instance of a statement prefetches which runs in the loops of `transpose.transposing_tree`:
    the last ones of rows of what lies beyond the second cache. The elements need not exist."""
    vector = plan.vector
    assert vector is not None
    sizes = {**across_sizes(measured, vector, plan.lanes, across), vector: plan.lanes}
    far = [a for a in measured.accesses if _is_far(measured, a, target)]
    later = _later(measured, plan, far, sizes, order, target) if far else None
    if later is None:
        return ()
    moved = {later[0]: add(IndexExpr(later[0], i64), lit(later[1]))}
    last = add(_first(measured, vector, sizes), lit(sizes[vector] - 1))
    found: list[PrefetchRead] = []
    for a in far:
        subscripts = measured.statement.subscripts if a.read is None else a.read.subscripts
        there = tuple(substitute(s, moved) for s in subscripts)
        if abs(a.stride(vector)) == 1:
            elements = [tuple(substitute(s, {vector: last}) for s in there)]
        elif unit_iterator(measured, a, vector) in across:
            elements = [tuple(substitute(s, row) for s in there) for row in _rows(measured, vector, sizes)]
        else:
            continue
        dtype = program.tensor(a.tensor).dtype
        found += [PrefetchRead(Read(a.tensor, element, dtype=dtype), cache=2) for element in elements]
    return tuple(found)


def _is_far(measured: MeasuredStatement, access: MemoryAccess, target: Target) -> bool:
    """Whether an operand is read or written along its memory and lies beyond the second cache."""
    subscripts = measured.statement.subscripts if access.read is None else access.read.subscripts
    if not all(map(is_quasi_affine, subscripts)) or (access.read is not None and access.read.pad is not None):
        return False
    return measured.footprint(access) * access.itemsize > target.cache(2).size


def _later(
    measured: MeasuredStatement,
    plan: TilePlan,
    far: list[MemoryAccess],
    sizes: dict[str, int],
    order: tuple[str, ...],
    target: Target,
) -> tuple[str, int] | None:
    """Return the iterator, and how much later it is, of the tile that is prefetched: a later iteration of the innermost
    loop that is long enough."""
    vector = plan.vector
    assert vector is not None
    across = [i for i in order if i in sizes and i != vector]
    panel = panel_of(target, plan.lanes)
    extent = measured.extent(vector)
    loops = [(vector, plan.lanes, -(-min(extent, panel) // plan.lanes))]
    loops += [(i, sizes[i], -(-measured.extent(i) // sizes[i])) for i in reversed(across)]
    loops += [(vector, panel, -(-extent // panel))]
    loops += [(i, 1, measured.extent(i)) for i in reversed(order) if i not in sizes]
    between = prod(sizes.values()) * sum(a.itemsize for a in far)
    best, most = None, 0.0
    for iterator, step, trips in loops:
        count = max(1, -(-MIN_PREFETCH_BYTES // between))
        if count * between * SECOND_CACHE_DIVISOR > target.cache(2).size or most >= MIN_TRIPS_PER_DISTANCE:
            break
        if trips / count > max(1.0, most):
            best, most = (iterator, count * step), trips / count
        between *= trips
    return best


def _first(measured: MeasuredStatement, iterator: str, sizes: dict[str, int]) -> Expr:
    """Return an iterator's first value in the tile."""
    return subtract(IndexExpr(iterator, i64), mod(offset(iterator, measured.lo(iterator)), sizes[iterator]))


def _rows(measured: MeasuredStatement, vector: str, sizes: dict[str, int]) -> list[dict[str, Expr]]:
    """Return, for the columns of a tile that are stored one after another, the places of the rows' last elements: each column
    stands for a row, or for several where there are more rows.

    Where rows do not begin at lines a tile's first line is the last one of the tile before, and there already.
    """
    columns = [i for i in sizes if i != vector]
    count = prod(sizes[i] for i in columns)
    number: Expr = lit(0)
    for i in columns:
        number = add(scale(sizes[i], number), mod(offset(i, measured.lo(i)), sizes[i]))
    place = number if count <= sizes[vector] else mod(number, sizes[vector])
    ends = {i: add(_first(measured, i, sizes), lit(sizes[i] - 1)) for i in columns}
    row = _first(measured, vector, sizes)
    return [{**ends, vector: add(row, place, lit(k))} for k in range(0, sizes[vector], count)]
