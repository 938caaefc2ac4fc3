"""Choose the prefetches of sums, of register tiles, and of statements that share a loop over rows.

    for c: s += X[c]      ->      for c: prefetch X[c + 2048]; s += X[c]

Prefetchers of processors stop at the end of each page, and start again some lines into the next one. Software
prefetches at a distance that covers the latency, and at which lines are not evicted before their use, never stop at a page's end.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from polyker.cost.measure import MeasuredStatement, MemoryAccess
from polyker.cost.memory import follows_tiles, sums_prefetch_into
from polyker.cost.plan import TilePlan
from polyker.ir.dtypes import i64
from polyker.ir.expr import Expr, IndexExpr, Read
from polyker.ir.quasi_affine import add, floordiv, is_quasi_affine, lit, scale, substitute, subtract
from polyker.ir.typed import PrefetchRead, Role, TypedProgram
from polyker.machine.model import PAGE, Target
from polyker.structs import replace

# Prefetch distance in bytes, of all operands together: more than a core reads during one miss, and no more than a third of the
# first cache (experience value; twice as far takes a tenth longer where that has 32 KB, and gains nothing elsewhere).
PREFETCH_BYTES = 8192
# The same of each of several rows whose lines come into the second cache (experience value).
ROW_PREFETCH_BYTES = 1024
# Least prefetch distance where the first cache has little room beside what is read again all the time (experience value).
MIN_PREFETCH_BYTES = 4096
# Rows of more bytes gain little by prefetches: what a core waits for at their ends is little, and in the last cache prefetchers
# alone are as good (experience value).
MAX_SHORT_ROW_BYTES = 16384
# Prefetch distance of results, in bytes: they are written, and so in the caches, for longer than they are on their way
# (experience value).
RESULT_PREFETCH_BYTES = 4096
# Least rows that vectors are used for where the next tile's are prefetched: with fewer a core has the lines of many terms on
# their way (chosen).
MIN_TILE_ROWS = 4
# Least bytes of a row that prefetchers follow soon (`follows_tiles`; on an Ice Lake server prefetches took a tenth more).
MIN_FOLLOWED_ROW_BYTES = 2048
# Greatest ratio of an operand's length to what is read of it for one that counts as read whole (chosen).
MAX_REACH_RATIO = 1.25


def line_prefetches(
    program: TypedProgram, measured: MeasuredStatement, plan: TilePlan, target: Target
) -> tuple[PrefetchRead, ...]:
    """Return the elements that a reduction along memory prefetches: of operands that it reads once, and that come from far.

    The elements need not exist: those behind a row's last ones are the next row's, or in a tile of several rows the next tile's.
    """
    vector, cache = plan.vector, sums_prefetch_into(target)
    if vector is None or vector not in measured.statement.reduced or program.sizes or not cache:
        return ()
    streams = [a for a in measured.accesses if _streams(program, measured, a, vector, target)]
    if cache == 1:
        return _stream_prefetches(measured, streams, vector, target, plan)
    found = []
    for a in streams:
        rows = prod(n for i, n in plan.others if a.stride(i))
        if rows >= MIN_TILE_ROWS and target.from_memory(measured.footprint(a) * a.itemsize):
            found.append(_prefetch_read(measured, a, vector, rows * ROW_PREFETCH_BYTES, plan, cache))
    return tuple(found)


def rows_of_block(
    measured: MeasuredStatement, rows: str, vector: str, extents: Mapping[str, int], target: Target
) -> tuple[PrefetchRead, ...]:
    """Return the elements that the copy of a block prefetches: it has parts of distant rows, too short for hardware prefetchers.

    `rows`: the iterator with one value for each part; `extents`: of the copy's other iterators, the `vector` among them, in one
    block. What lies behind a block's last rows is the next block's. Parts that are transposed are not prefetched: each vector
    reads many rows.
    """
    (source,) = (a for a in measured.accesses if not a.is_write)
    row = source.itemsize * prod(extents.values())
    if source.read is None or abs(source.stride(vector)) != 1:
        return ()
    if source.itemsize * measured.footprint(source) <= target.cache(2).size or 2 * row > PREFETCH_BYTES:
        return ()
    later = {rows: add(IndexExpr(rows, i64), lit(PREFETCH_BYTES // row))}
    return (PrefetchRead(replace(source.read, subscripts=tuple(substitute(s, later) for s in source.read.subscripts))),)


def _stream_prefetches(
    measured: MeasuredStatement, streams: list[MemoryAccess], vector: str, target: Target, plan: TilePlan | None = None
) -> tuple[PrefetchRead, ...]:
    """Return what is prefetched of operands that are walked at once; `plan`: by tiles of so many rows, else one after another."""
    passing = {a.tensor for a in streams}
    beside = [a for a in measured.accesses if not a.is_write and a.tensor not in passing and a.stride(vector)]
    first = target.caches[0].size
    room = (int(target.caches[0].usable) - sum(a.itemsize * measured.footprint(a) for a in beside)) // 2
    if room < MIN_PREFETCH_BYTES:
        return ()
    distance = min(PREFETCH_BYTES, first // 3, room) // max(1, len(streams))
    return tuple(_prefetch_read(measured, a, vector, distance, plan) for a in streams)


def _prefetch_read(
    measured: MeasuredStatement, access: MemoryAccess, vector: str, distance: int, plan: TilePlan | None, cache: int = 1
) -> PrefetchRead:
    """Return what is prefetched so many bytes before its use, in all rows of a tile together."""
    later = _later(measured, access, vector, distance // access.itemsize, plan)
    subscripts = access.read.subscripts if access.read is not None else ()
    return PrefetchRead(Read(access.tensor, tuple(substitute(s, later) for s in subscripts)), cache)


def _later(
    measured: MeasuredStatement, access: MemoryAccess, vector: str, elements: int, plan: TilePlan | None
) -> dict[str, Expr]:
    """Return what the iterators are that many elements later: in a tile of several rows some of each row's, behind the last ones
    the first of the next tile's. Which they are is told by where a step begins, so that it is one number for all its vectors."""
    at = IndexExpr(vector, i64)
    rows = [] if plan is None else [(i, n) for i, n in plan.others if n > 1 and access.stride(i)]
    if plan is None or len(rows) != 1:
        return {vector: add(at, lit(elements))}
    ((row, count),) = rows
    elements //= count
    step, length, start = plan.size(vector), measured.extent(vector), measured.lo(vector)
    # Steps begin at multiples of their length, rows at `start`.
    tiles = floordiv(add(scale(step, floordiv(at, step)), lit(elements - start)), length)
    return {
        vector: subtract(add(at, lit(elements)), scale(length, tiles)),
        row: add(IndexExpr(row, i64), scale(count, tiles)),
    }


def next_row_prefetches(
    program: TypedProgram, measured: MeasuredStatement, plan: TilePlan, target: Target
) -> tuple[PrefetchRead, ...]:
    """Return the elements that a statement without a reduction prefetches which shares its rows with others: while these compute
    and write, what it reads next comes, and so do the lines that it writes.

    Of several reads of a tensor the one farthest on.
    """
    vector = plan.vector
    if vector is None or program.sizes:
        return ()
    found: dict[str, MemoryAccess] = {}
    for a in measured.accesses:
        if is_row(program, measured, a, vector) and measured.footprint(a) * a.itemsize > target.cache(2).size:
            known = found.get(a.tensor)
            if known is None or (a.offset or 0) > (known.offset or 0):
                found[a.tensor] = a
    write = measured.write
    prefetches = _stream_prefetches(measured, list(found.values()), vector, target)
    if program.tensor(write.tensor).role is Role.OUTPUT and is_walked(measured, write, vector, target):
        later = {vector: add(IndexExpr(vector, i64), lit(RESULT_PREFETCH_BYTES // write.itemsize))}
        element = tuple(substitute(s, later) for s in measured.statement.subscripts)
        prefetches += (PrefetchRead(Read(write.tensor, element, dtype=program.tensor(write.tensor).dtype)),)
    return prefetches


def tile_prefetches(
    program: TypedProgram, measured: MeasuredStatement, plan: TilePlan, order: tuple[str, ...], target: Target
) -> tuple[PrefetchRead, ...]:
    """Return the elements that the next register tile reads of operands from beyond the second cache which no prefetcher follows.

    `order`: the loops over tiles, outermost first. Of rows that are broadcast a tile reads a few elements in turn, and what they
    have ends soon; of vectors, where each term's lie in a page of their own, a piece each.
    """
    terms = measured.statement.reduced
    row = next((i for i in reversed(order) if measured.extent(i) > plan.size(i)), None)
    if row is None or plan.vector is None or plan.vector in terms or program.sizes:
        return ()
    second = target.cache(2).size
    far = [a for a in measured.accesses if a.read and a.itemsize * measured.footprint(a) > second]
    rows = [a for a in far if a.stride(row) and not a.stride(plan.vector) and any(abs(a.stride(r)) == 1 for r in terms)]
    found = next_tile(program, measured, plan, rows, row, target)
    pieces = [a for a in far if _is_by_pieces(measured, a, plan)] if not target.prefetch.second_fills_first else []
    return found + tuple(replace(a, cache=2) for a in next_tile(program, measured, plan, pieces, plan.vector, target))


def _is_by_pieces(measured: MeasuredStatement, access: MemoryAccess, plan: TilePlan) -> bool:
    """Whether tiles read vectors of an operand side by side, the next ones in another page for each term, for several rows: with
    fewer a core has the lines of many terms on their way by itself."""
    assert plan.vector is not None
    terms = [r for r in measured.statement.reduced if measured.extent(r) > 1]
    own_pages = all(abs(access.stride(r)) * access.itemsize >= PAGE for r in terms)
    uses = prod(s for i, s in plan.others if not access.stride(i))
    more = measured.extent(plan.vector) > plan.size(plan.vector)
    return access.stride(plan.vector) == 1 and own_pages and more and uses >= MIN_TILE_ROWS


def next_tile(
    program: TypedProgram,
    measured: MeasuredStatement,
    plan: TilePlan,
    reads: list[MemoryAccess],
    row: str,
    target: Target,
) -> tuple[PrefetchRead, ...]:
    """Return the elements of operands that the next tile along an iterator reads.

    Where strides are unknown only of those beyond the second cache: each row to come takes a register of its own. They come
    into the second cache where this tile's rows and the next one's would evict each other from the first, or not at all.
    """
    later = add(IndexExpr(row, i64), lit(plan.size(row)))
    found = []
    for a in reads:
        if a.read is None or not all(map(is_quasi_affine, a.read.subscripts)):
            continue  # a gathered element would have to be looked up first
        if program.sizes and measured.footprint(a) * a.itemsize <= target.cache(2).size:
            continue
        if follows_tiles(target) and _row(measured, a) >= MIN_FOLLOWED_ROW_BYTES:
            continue
        there = tuple(substitute(s, {row: later}) for s in a.read.subscripts)
        steps = [(2 * s, abs(a.stride(i)) * a.itemsize) for i, s in plan.others]
        near = all(target.caches[0].holds_rows(count, step) for count, step in steps)
        if not near and target.prefetch.second_fills_first:
            continue
        found.append(PrefetchRead(replace(a.read, subscripts=there, pad=None), 1 if near else 2))
    return tuple(found)


def _row(measured: MeasuredStatement, access: MemoryAccess) -> int:
    """Return how many bytes of an access the terms walk side by side."""
    terms = (r for r in measured.statement.reduced if abs(access.stride(r)) == 1)
    return access.itemsize * max(map(measured.extent, terms), default=1)


def is_walked(measured: MeasuredStatement, write: MemoryAccess, vector: str, target: Target) -> bool:
    """Whether results lie one after another, beyond the second cache: else a store waits until their line has come."""
    if write.stride(vector) != 1 or not all(map(is_quasi_affine, measured.statement.subscripts)):
        return False
    return _is_dense(measured, write) and measured.footprint(write) * write.itemsize > target.cache(2).size


def is_row(program: TypedProgram, measured: MeasuredStatement, access: MemoryAccess, vector: str) -> bool:
    """Whether an argument is walked along its memory, each element once, but for ends of rows."""
    if access.read is None or access.read.pad is not None or program.tensor(access.tensor).role is not Role.INPUT:
        return False
    if access.stride(vector) != 1 or not all(map(is_quasi_affine, access.read.subscripts)):
        return False
    return _is_dense(measured, access)


def _is_dense(measured: MeasuredStatement, access: MemoryAccess) -> bool:
    """Whether each element from the first to the last is used once, but for ends of rows."""
    elements = measured.points
    return elements <= _reach(measured, access) <= MAX_REACH_RATIO * elements


def _reach(measured: MeasuredStatement, access: MemoryAccess) -> int:
    """Return how many elements lie from the first to the last that is read."""
    return 1 + sum(abs(access.stride(i)) * (measured.extent(i) - 1) for i in measured.bounds)


def _streams(
    program: TypedProgram, measured: MeasuredStatement, access: MemoryAccess, vector: str, target: Target
) -> bool:
    """Whether the elements of an operand are walked once, one after another, and lie beyond the second cache."""
    if not is_row(program, measured, access, vector):
        return False
    elements = measured.points
    if not elements == _reach(measured, access) == measured.footprint(access):
        return False  # the prefetched lines might be no operand's, or in the caches
    size = elements * access.itemsize
    row = measured.extent(vector) * access.itemsize
    return size > target.cache(2).size if row <= MAX_SHORT_ROW_BYTES else target.from_memory(size)
