"""Build nests whose results exceed the caches and are written by streaming stores of whole lines."""

from __future__ import annotations

from math import prod

from polyker.cost.measure import UNKNOWN_STRIDE, MeasuredStatement, MemoryAccess
from polyker.cost.memory import rows_at_once
from polyker.cost.plan import TilePlan, has_gather
from polyker.ir.expr import IndexExpr
from polyker.ir.quasi_affine import is_quasi_affine, mod
from polyker.machine.model import Target
from polyker.poly.boxes import corners
from polyker.poly.isl import read_set
from polyker.schedule.nests.nest import Nest, band, offset, shared, tile_member
from polyker.schedule.tree.nodes import Leaf, MemberKind

# Least bytes of a row of the result that pay for finding its first aligned element, and two partial vectors (experience value).
MIN_STREAMED_ROW_BYTES = 1280
# Bytes of neighbouring rows that are written before the next ones elsewhere (experience value).
STREAM_RUN_BYTES = 2048
# The same as MIN_STREAMED_ROW_BYTES, of a row of whole lines, if the result begins with one (experience value).
MIN_ALIGNED_ROW_BYTES = 256
# The same where the memory traffic is at most this multiple of the result's bytes: there read-for-ownership costs little, and
# partial lines as much (experience values).
MIN_LONE_ROW_BYTES, LONE_TRAFFIC_RATIO = 8192, 1.25


def streams(measured: MeasuredStatement, plan: TilePlan, target: Target) -> bool:
    """Return whether the result of a statement is better written by streaming stores.

    It is where all that the statement touches exceeds the last cache, so that the result will not be there when it is read
    next, or will have driven out what else is read; a result that is small beside the cache stays in it all the same. The
    result has to be defined row by row of neighbouring elements, and not be read itself.
    """
    statement, vector = measured.statement, plan.vector
    write = measured.write
    if vector is None or write.stride(vector) != 1 or statement.op != "set":
        return False
    if any(a.tensor == write.tensor for a in measured.accesses if not a.is_write):
        return False
    if not all(isinstance(s, IndexExpr) or is_quasi_affine(s) for s in statement.subscripts):
        return False
    row, interleaved = measured.extent(vector, 0) * write.itemsize, _runs_on(measured, vector, target)
    if row < (
        MIN_ALIGNED_ROW_BYTES if interleaved or _is_whole_lines(measured, vector, target) else MIN_STREAMED_ROW_BYTES
    ):
        return False
    if any(e is None for _, e in measured.bounds.values()):
        return False
    if not exceeds_caches(measured, target):
        return False
    sizes = _sizes(measured)
    written = sizes[write.tensor]
    if not interleaved and row < MIN_LONE_ROW_BYTES and sum(sizes.values()) < LONE_TRAFFIC_RATIO * written:
        return False
    return corners(read_set(statement.domain)) is not None


def streams_tiles(measured: MeasuredStatement, plan: TilePlan, target: Target) -> bool:
    """Return whether a result that is transposed in registers is written by streaming stores, where it begins at a line: its rows
    are whole lines, and so are its vectors, and all that is touched exceeds the last cache (`codegen.llvm.loops.stream` stores
    them so)."""
    write, line = measured.write, target.caches[0].line
    if plan.vector is None or plan.lanes * write.itemsize != line or write.stride(plan.vector) != 1:
        return False
    if any(a.tensor == write.tensor for a in measured.accesses if not a.is_write):
        return False
    known = all(e is not None for _, e in measured.bounds.values())
    return known and _is_whole_lines(measured, plan.vector, target) and exceeds_caches(measured, target)


def read_order(measured: MeasuredStatement, inner: tuple[str, ...]) -> tuple[str, ...]:
    """Return iterators in the order in which the largest operand's elements lie in memory."""
    reads = [a for a in measured.accesses if not a.is_write]
    largest = max(reads, key=lambda a: measured.footprint(a) * a.itemsize)
    return tuple(sorted(inner, key=lambda i: abs(largest.stride(i)), reverse=True))


def exceeds_caches(measured: MeasuredStatement, target: Target) -> bool:
    """Whether a statement touches more than the last cache holds, and its result is no small part of that."""
    sizes, last = _sizes(measured), target.caches[-1].size
    return sum(sizes.values()) > last and sizes[measured.write.tensor] >= last // 4


def _sizes(measured: MeasuredStatement) -> dict[str, int]:
    """Return the bytes of each tensor that are touched."""
    sizes: dict[str, int] = {}
    for access in measured.accesses:
        sizes[access.tensor] = max(sizes.get(access.tensor, 0), _bytes(measured, access))
    return sizes


def _is_whole_lines(measured: MeasuredStatement, vector: str, target: Target) -> bool:
    """Whether rows of a result are whole lines, if it begins with one."""
    if _looks_up(measured, target):
        return False
    write, line = measured.write, target.caches[0].line
    steps = (abs(s) for i, s in write.strides.items() if i != vector)
    elements = (measured.extent(vector), write.offset or 0, *steps)
    return write.offset is not None and all(n * write.itemsize % line == 0 for n in elements)


def _looks_up(measured: MeasuredStatement, target: Target) -> bool:
    """Whether rows of an operand are looked up that come later where results take streaming stores; not where many pieces of
    memory come side by side: 51 MB of rows of 512 bytes took 13 ms on icelake-server, by streaming stores 8 to 10."""
    return rows_at_once(target) == 1 and any(a.read is not None and has_gather(a.read) for a in measured.accesses)


def _runs_on(measured: MeasuredStatement, vector: str, target: Target) -> bool:
    """Whether one row of a result begins where another ends: lines that both have part in are stored whole
    (`codegen.llvm.loops.interleave`)."""
    if _looks_up(measured, target):
        return False
    write = measured.write
    steps = [write.stride(i) for i in measured.bounds if i != vector and write.stride(i) and measured.extent(i) > 1]
    return bool(steps) and min(steps, key=abs) == measured.extent(vector)


def _bytes(measured: MeasuredStatement, access: MemoryAccess) -> int:
    """Return about how many bytes of a tensor an access touches; a gathered one may touch any."""
    strides = {i: abs(s) for i, s in access.strides.items() if s}
    elements = prod(measured.extent(i) for i in strides)
    least = min(strides.values(), default=1)
    return elements * access.itemsize * (1 if least >= UNKNOWN_STRIDE else max(1, min(least, 64 // access.itemsize)))


def run_of(
    measured: MeasuredStatement, plan: TilePlan, order: tuple[str, ...], target: Target
) -> tuple[tuple[str, ...], tuple[str, int] | None]:
    """Return an order of loops, and the iterator with so many values of which rows of the result run on, for short rows.

    The given `order` and None where the operands are read in that order anyway. Where short rows lie in another order than their
    operands' the operand is read in the order of its memory, by as many of its rows at once as write neighbours: both sides go on
    for a while before they jump.

        for k: for m: O[k,m,0:80] = X[m,k,0:80]     ->     for m.block (8): for k: for m: O[k,m,0:80] = X[m,k,0:80]
    """
    write, vector = measured.write, plan.vector
    inner = measured.statement.iterators[measured.statement.outer :]
    rest = [i for i in inner if i != vector and write.stride(i)]
    far = [a for a in measured.accesses if not a.is_write and a.stride(vector or "") == 1]
    if vector is None or len(rest) < 2 or len(rest) + 1 < len(inner) or not far:
        return order, None
    read = max(far, key=lambda a: measured.footprint(a) * a.itemsize)
    near = min(rest, key=lambda i: abs(write.stride(i)))
    row = measured.extent(vector) * write.itemsize
    crossed = [i for i in rest if abs(read.stride(i)) < abs(read.stride(near)) and measured.extent(i) > 1]
    if not crossed or row >= MIN_STREAMED_ROW_BYTES or abs(write.stride(near)) != measured.extent(vector):
        return order, None
    if measured.footprint(read) * read.itemsize <= target.cache(2).size:
        return order, None
    size = -(-STREAM_RUN_BYTES // row)
    size = next((n for n in range(size, 2 * size) if measured.extent(near) % n == 0), size)
    walked = sorted(rest, key=lambda i: abs(read.stride(i)), reverse=True)
    return (*walked, vector), (near, size)


def stream_nest(
    measured: MeasuredStatement, plan: TilePlan, order: tuple[str, ...], run: tuple[str, int] | None = None
) -> Nest:
    """Return the nest: the loops in order, the vector innermost and taken by as many vectors as the plan says.

    `run`: the iterator whose loop runs over blocks of so many values, with these just around the vector.
    """
    here = (measured.statement,)
    assert plan.vector is not None
    assert order[-1] == plan.vector
    loops = [tile_member(here, i, run[1] if run and i == run[0] else 1, measured.lo(i)) for i in order[:-1]]
    if run is not None:
        loops.append(shared(here, mod(offset(run[0], measured.lo(run[0])), run[1]), f"{run[0]}.row"))
    time = offset(plan.vector, measured.lo(plan.vector))
    loops.append(shared(here, time, plan.vector, MemberKind.STREAM, plan.lanes * plan.chunks))
    return Nest(here, band(loops, Leaf()))
