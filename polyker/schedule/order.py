"""The order of a nest's loops: what stays in cache while what moves, and where a long sum is cut."""

from __future__ import annotations

from math import log2, prod

import islpy as isl

from polyker.poly.isl import read_set
from polyker.schedule.measure import FAR, Measured, MemoryAccess
from polyker.schedule.plan import Plan
from polyker.target.model import Target

# Terms that one accumulator sums before it is added to the others: longer sums are summed by blocks, so that rounding
# grows with the number of blocks and not with the number of terms.
BLOCK_TERMS = 4096
# Rows that are reduced together where the terms lie a row apart, of so many bytes at least: few enough to be read as streams,
# enough that the results, which are read and written once for each block, cost little.
BLOCK_ROWS, LEAST_ROW = 8, 2048


def memory_order(measured: Measured, inner: tuple[str, ...], vector: str | None) -> tuple[str, ...]:
    """Return the iterators with the largest strides outermost and the vector innermost."""

    def weight(iterator: str) -> int:
        return max((abs(a.stride(iterator)) * (2 if a.is_write else 1) for a in measured.accesses), default=0)

    rest = sorted((i for i in inner if i != vector), key=weight, reverse=True)
    return tuple(rest) + ((vector,) if vector is not None else ())


def reduced_order(measured: Measured, plan: Plan) -> tuple[str, ...]:
    """Return the reduced iterators in the order of the largest operand's memory, one that the tile cuts innermost."""
    reduced = measured.statement.reduced

    def weight(iterator: str) -> int:
        return max((abs(a.stride(iterator)) for a in measured.accesses), default=0)

    last = plan.across[0] if plan.across is not None else plan.vector
    rest = sorted((i for i in reduced if i != last), key=weight, reverse=True)
    return tuple(rest) + ((last,) if last in reduced and last else ())


def block_of(measured: Measured, plan: Plan, terms: tuple[str, ...], target: Target) -> tuple[str, int] | None:
    """Return the iterator and size at which a reduction is cut, None where it is not.

    A long sum of floating-point terms is, so that rounding grows less; and one whose terms lie a row of memory apart, so that
    a few rows are read from end to end.
    """
    statement = measured.statement
    if statement.acc.itemsize > next(a.itemsize for a in measured.accesses if a.is_write):
        return None  # blocks are added up in the result, which is too narrow for that
    if _walks_across(measured, plan, terms, target):
        return terms[0], BLOCK_ROWS
    if statement.op not in ("add", "mul") or statement.acc.kind not in "fc":
        return None
    if _has_quotients(statement.domain):
        return None
    partial = plan.lanes * plan.chunks if plan.vector in terms else 1
    count = 1
    for i in reversed(terms):
        extent = measured.extent(i, 1 << 24)
        if measured.bounds[i][0] != 0:
            continue
        if count * extent // partial > BLOCK_TERMS:
            size = max(1, BLOCK_TERMS * partial // count)
            return (i, size) if size < extent else None
        count *= extent
    return None


def _has_quotients(domain: str) -> bool:
    """Whether a domain hangs on quotients or remainders: isl may need hours for the loops over its blocks."""
    return any(part.dim(isl.dim_type.div) for part in read_set(domain).get_basic_sets())


def _walks_across(measured: Measured, plan: Plan, terms: tuple[str, ...], target: Target) -> bool:
    """Whether a tile would read a short piece of each of many rows of a large operand, and its neighbour the next pieces.

    Each element is read once; the results fit in the second cache, where they wait for the next rows.
    """
    kept = [i for i in measured.bounds if i not in measured.statement.reduced]
    write = next(a for a in measured.accesses if a.is_write)
    second = target.cache(2).size
    if plan.vector not in kept or plan.vector is None or measured.extent(plan.vector) < 2 * plan.size(plan.vector):
        return False
    rows = measured.extent(terms[0])
    if measured.bounds[terms[0]][0] != 0 or rows < 4 * BLOCK_ROWS:
        return False
    if prod(measured.extent(i) for i in kept) * write.itemsize > second // 2:
        return False
    return any(
        a.stride(plan.vector) == 1
        and LEAST_ROW <= abs(a.stride(terms[0])) * a.itemsize < FAR
        and all(a.stride(i) or measured.extent(i) == 1 for i in measured.bounds)
        and prod(measured.extent(i) for i in measured.bounds) * a.itemsize > second
        for a in measured.accesses
        if not a.is_write
    )


def tile_order(measured: Measured, plan: Plan, kept: tuple[str, ...]) -> tuple[str, ...]:
    """Return the tile loops, outermost first, so that what the inner ones leave in place is large and what they move small.

    The innermost loop moves every operand that depends on its iterator: from the inside out, take the iterator whose
    operands' panels (a tile wide, all terms long) are the smallest; among equals the one that walks the largest operand in
    the order of its memory.
    """
    reads = [a for a in measured.accesses if not a.is_write]

    def bytes_of(access: MemoryAccess) -> int:
        return prod(measured.extent(i) for i in access.strides if access.stride(i)) * access.itemsize

    def moved(iterator: str) -> tuple[int, int]:
        moving = [a for a in reads if a.stride(iterator)]
        panel = sum(panel_bytes(measured, plan, kept, a) for a in moving)
        largest = max(moving, key=bytes_of, default=None)
        stride = abs(largest.stride(iterator)) if largest is not None else FAR
        return round(log2(panel + 1)), stride

    write = next(a for a in measured.accesses if a.is_write)
    if bytes_of(write) > 2 * sum(map(bytes_of, reads)):
        # What is written is most of what is moved: it is written in the order of its memory, as far as that goes.
        return tuple(sorted(kept, key=lambda i: abs(write.stride(i)), reverse=True))
    return tuple(sorted(kept, key=moved, reverse=True))


def panel_bytes(measured: Measured, plan: Plan, kept: tuple[str, ...], access: MemoryAccess) -> int:
    """Return the bytes of what one tile reads of an operand."""
    terms = {i: measured.extent(i) for i in measured.statement.reduced}
    wide = prod(plan.size(i) for i in kept if access.stride(i))
    return int(wide * prod(n for i, n in terms.items() if access.stride(i)) * access.itemsize)


def panels_of(measured: Measured, plan: Plan, order: tuple[str, ...], target: Target) -> tuple[tuple[str, int], ...]:
    """Return (iterator, tiles) of the innermost loop that stay together outside the others: what half the second cache holds."""
    if len(order) < 2:
        return ()
    inner = order[-1]
    reads = [a for a in measured.accesses if not a.is_write]
    moving = sum(panel_bytes(measured, plan, order, a) for a in reads if a.stride(inner))
    stays = any(not a.stride(inner) for a in reads)
    tiles = -(-measured.extent(inner) // plan.size(inner))
    second = target.cache(2).size
    fit = max(1, second // 2 // max(1, moving))
    return ((inner, fit),) if stays and 2 <= fit < tiles else ()
