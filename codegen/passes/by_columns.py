"""Tile serial loops around vectors with one row a lane, and transpose the tiles in registers.

    for t in 1:T: vector b: x = carried[b] + X[b,t]; S[b,t] = x; carried[b] = x
    ->
    for t.tile in 1:T step 16: transpose t: vector b: …
    for the rest: vector b: …

A recurrence along a row leaves the rows independent: a vector with one row a lane has the latency of one operation a step, as a
single row has, and sixteen results for it. Each of its accesses would be a gather or a scatter; a TRANSPOSE loop reads and writes
contiguous pieces of the rows instead (see codegen.llvm.access.transpose).
"""

from __future__ import annotations

from collections.abc import Mapping

from polyker.codegen.ir.kernel import Buffer, Const, For, KExpr, Let, LoopKind, Op, Stmt, Store, Var
from polyker.codegen.ir.polynomial import offset_of
from polyker.codegen.ir.walk import loaded, uses
from polyker.codegen.passes.simplify import trip_count
from polyker.structs import replace


def lanes_across(loop: For, buffers: Mapping[str, Buffer]) -> int:
    """Return the lanes of the vectors that a loop stores with one row a lane, 0 if it does anything else or has fewer steps.

    `buffers`: the arrays in memory. What the loop stores there it does not read.
    """
    if loop.kind is not LoopKind.SERIAL or loop.step != 1 or not loop.body:
        return 0
    if not all(_is_vector(s, loop) for s in loop.body):
        return 0
    stores = outside(loop, buffers)
    names = {s.buffer for _, s in stores}
    if not stores or len(names) < len(stores) or names & loaded(loop.body):
        return 0
    counts = {v.lanes for v in loop.body if isinstance(v, For)}
    lanes, trip = max(counts), trip_count(loop)
    if len(counts) > 1 or lanes & (lanes - 1) or (trip is not None and trip < lanes):
        return 0
    return lanes if all(_is_across(loop, v, s, buffers[s.buffer]) for v, s in stores) else 0


def outside(loop: For, buffers: Mapping[str, Buffer]) -> list[tuple[For, Store]]:
    """Return the stores to arrays in memory, each with its vector loop, of a loop around vectors."""
    inner = [(v, s) for v in loop.body if isinstance(v, For) for s in v.body if isinstance(s, Store)]
    return [(v, s) for v, s in inner if s.buffer in buffers]


def _is_vector(stmt: Stmt, loop: For) -> bool:
    """Whether a statement is a loop over a known number of lanes, more than one, that only computes and stores."""
    if not isinstance(stmt, For) or stmt.kind is not LoopKind.VECTOR or stmt.trip is None or stmt.lanes < 2:
        return False
    return not uses(loop.var, stmt.lo, stmt.hi) and all(isinstance(s, Let | Store) for s in stmt.body)


def _is_across(loop: For, vector: For, store: Store, buffer: Buffer) -> bool:
    """Whether a store's elements are neighbours from step to step, and those of the lanes lie in rows of their own."""
    place = offset_of(buffer, store.indices)
    along, lane = (Var(loop.var),), Var(vector.var)
    if buffer.dtype.is_complex or place.get(along, 0) not in (1, -1):
        return False
    if any(m != along and any(uses(loop.var, a) for a in m) for m in place):
        return False
    rows = [m for m in place if any(uses(vector.var, a) for a in m)]
    return bool(rows) and all(lane in m for m in rows) and (rows != [(lane,)] or abs(place[lane,]) > 1)


def tiles(loop: For, first: KExpr, end: KExpr, size: int, trip: int | None) -> For:
    """Return the loop over whole tiles from one step to before another, `trip` of them if that is known."""
    tile = Var(f"{loop.var}.tile")
    columns = tile_of(loop, tile, size)
    return replace(loop, var=tile.name, lo=first, hi=end, body=(columns,), step=size, trip=trip)


def tile_of(loop: For, first: KExpr, size: int) -> For:
    """Return a tile of `size` steps."""
    end = Op("add", (first, Const(size)))
    return replace(loop, lo=first, hi=end, kind=LoopKind.TRANSPOSE, lanes=size, trip=size)
