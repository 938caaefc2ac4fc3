"""Order a nest's loops for reuse in the caches, and cut long sums."""

from __future__ import annotations

from math import log2, prod

import islpy as isl

from polyker.cost.measure import UNKNOWN_STRIDE, MeasuredStatement, MemoryAccess
from polyker.cost.memory import is_one_row_faster
from polyker.cost.plan import TilePlan
from polyker.machine.model import PAGE, Target
from polyker.poly.isl import read_set

# Terms that one accumulator sums before it is added to the others (experience value): longer sums are blocked, so that the
# rounding error grows with the number of blocks and not with the number of terms.
MAX_ACCUMULATED_TERMS = 4096
# Rows that are reduced together where the reduction strides over rows (experience value): few enough for the hardware
# prefetchers' streams, enough to amortise reading and writing the results once a block.
BLOCK_ROWS = 8
# The same where the last cache holds the operand and the first one the results. From memory a single row is fastest on some
# processors, where the results take at most this share of the first cache, so that the stream does not evict them (experience
# values).
BLOCK_ROWS_IN_CACHE, MAX_RESULT_CACHE_SHARE = 4, 3 / 8
# Least bytes of a contiguous run of terms, so that adding its sum to the result is cheap beside reading it (experience value).
MIN_RUN_BYTES = 256


def memory_order(measured: MeasuredStatement, inner: tuple[str, ...], vector: str | None) -> tuple[str, ...]:
    """Return the iterators with the largest strides outermost and the vector innermost.

    Just around the vector is a loop in which some access goes on where its row ended: else all of them jump after each row.
    """

    def step(access: MemoryAccess, iterator: str) -> int:
        # A gather goes half as far as it could, about: rows that are no longer than others' steps stay in the caches.
        stride = abs(access.stride(iterator))
        return access.reach // 2 if stride == UNKNOWN_STRIDE else stride * (2 if access.is_write else 1)

    def weight(iterator: str) -> int:
        return max((step(a, iterator) for a in measured.accesses), default=0)

    rest = sorted((i for i in inner if i != vector), key=weight, reverse=True)
    near = {
        min((i for i in rest if a.stride(i)), key=lambda i: abs(a.stride(i)), default=None) for a in measured.accesses
    }
    around = [i for i in rest if i in near][-1:]
    return (*(i for i in rest if i not in around), *around, *((vector,) if vector is not None else ()))


def reduced_order(measured: MeasuredStatement, plan: TilePlan) -> tuple[str, ...]:
    """Return the reduced iterators in the order of the largest operand's memory, one that the tile cuts innermost."""
    reduced = measured.statement.reduced

    def weight(iterator: str) -> int:
        return max((abs(a.stride(iterator)) for a in measured.accesses), default=0)

    last = plan.across[0] if plan.across is not None else plan.vector
    rest = sorted((i for i in reduced if i != last), key=weight, reverse=True)
    return tuple(rest) + ((last,) if last in reduced and last else ())


def block_of(
    measured: MeasuredStatement, plan: TilePlan, terms: tuple[str, ...], target: Target
) -> tuple[str, int] | None:
    """Return the iterator and size at which a reduction is cut, None where it is not.

    A long floating-point sum is, so that rounding grows less; one whose stride is a row of memory, so that a few
    rows are read from end to end; and one over runs of terms with those of other results between them (`s[j] += A[i,j,k]`),
    so that the operand is read in the order of its memory.
    """
    statement = measured.statement
    if statement.acc.itemsize > measured.write.itemsize:
        return None  # blocks are added up in the result, which is too narrow for that
    rows = _rows_across(measured, plan, terms, target)
    if rows is not None:
        return terms[0], rows
    if _leaps(measured, plan, terms, target):
        return terms[0], 1
    if statement.op not in ("add", "mul") or statement.acc.kind not in "fc":
        return None
    if _has_quotients(statement.domain):
        return None
    partial = plan.lanes * plan.chunks if plan.vector in terms else 1
    count = 1
    for i in reversed(terms):
        extent = measured.most(i)
        if measured.bounds[i][0] != 0:
            continue
        if count * extent // partial > MAX_ACCUMULATED_TERMS:
            size = max(1, MAX_ACCUMULATED_TERMS * partial // count)
            return (i, size) if size < extent else None
        count *= extent
    return None


def _has_quotients(domain: str) -> bool:
    """Whether a domain hangs on quotients or remainders: isl may need hours for the loops over its blocks."""
    return any(part.dim(isl.dim_type.div) for part in read_set(domain).get_basic_sets())


def _rows_across(measured: MeasuredStatement, plan: TilePlan, terms: tuple[str, ...], target: Target) -> int | None:
    """Return how many rows of a large operand are reduced together, None where tiles do not walk across them.

    There a tile would read a short piece of each of many rows, and its neighbour the next pieces.
    """
    if plan.vector is None or plan.vector in measured.statement.reduced:
        return None
    if measured.extent(plan.vector) < 2 * plan.size(plan.vector):
        return None
    reads = _read_once(measured, plan.vector)
    results = _waiting(measured, around_block(measured, plan, terms[0]))
    rows = _rows_together(sum(measured.footprint(a) * a.itemsize for a in reads), results, target)
    if not _may_return(measured, terms[0], rows, results, target):
        return None
    whole = prod(measured.extent(i) for i in measured.bounds)
    far = [a for a in reads if whole * a.itemsize > target.cache(2).size]
    return rows if any(abs(a.stride(terms[0])) * a.itemsize < UNKNOWN_STRIDE for a in far) else None


def around_block(measured: MeasuredStatement, plan: TilePlan, term: str) -> tuple[str, ...]:
    """Return the iterators of results, outermost first, whose loops stand around that over blocks of a term.

    In an operand that is walked by rows theirs lie further apart than the term's: it is read in the order of its memory.
    """
    statement = measured.statement
    kept = [i for i in statement.iterators[statement.outer :] if i not in statement.reduced and i != plan.vector]
    walked = [a for a in _read_once(measured, plan.vector or "") if a.stride(term)]
    found = (i for i in kept if walked and all(abs(a.stride(i)) > abs(a.stride(term)) for a in walked))
    return tuple(sorted(found, key=lambda i: abs(walked[0].stride(i)), reverse=True))


def _rows_together(read: int, results: int, target: Target) -> int:
    """Return how many rows are reduced together, of operands of `read` bytes, while so many bytes of `results` wait."""
    first, last = target.caches[0].size, target.caches[-1].size
    if read <= last // 2:
        return BLOCK_ROWS_IN_CACHE if results <= first // 3 else BLOCK_ROWS
    return 1 if is_one_row_faster(target) and results <= MAX_RESULT_CACHE_SHARE * first else BLOCK_ROWS


def _leaps(measured: MeasuredStatement, plan: TilePlan, terms: tuple[str, ...], target: Target) -> bool:
    """Whether a tile would read runs of terms of an operand that lie far apart, with those of other results between them."""
    vector, kept = plan.vector, [i for i in measured.bounds if i not in measured.statement.reduced]
    if vector is None or vector not in terms[1:]:
        return False
    if not _may_return(measured, terms[0], BLOCK_ROWS, _waiting(measured), target):
        return False

    def pays(access: MemoryAccess) -> bool:
        run = prod(measured.extent(i) for i in terms if abs(access.stride(i)) < abs(access.stride(terms[0])))
        whole = prod(measured.extent(i) for i in measured.bounds)
        return run * access.itemsize >= MIN_RUN_BYTES or whole * access.itemsize > target.cache(2).size

    return any(
        abs(a.stride(terms[0])) * a.itemsize > PAGE
        and any(abs(a.stride(terms[0])) > abs(a.stride(i)) and measured.extent(i) > 1 for i in kept)
        and pays(a)
        for a in _read_once(measured, vector)
    )


def _waiting(measured: MeasuredStatement, around: tuple[str, ...] = ()) -> int:
    """Return the bytes of the results of one iteration of the loops `around`, and of those that are common to statements."""
    statement = measured.statement
    kept = [i for i in statement.iterators[statement.outer :] if i not in statement.reduced and i not in around]
    return prod(measured.extent(i) for i in kept) * measured.write.itemsize


def _may_return(measured: MeasuredStatement, outer: str, rows: int, results: int, target: Target) -> bool:
    """Whether so many bytes of results may wait in the second cache for the next `rows` of an outer iterator's many values."""
    fit = results <= target.cache(2).size // 2
    return fit and measured.bounds[outer][0] == 0 and measured.extent(outer) >= 4 * rows


def _read_once(measured: MeasuredStatement, vector: str) -> list[MemoryAccess]:
    """Return the operands that are contiguous along the vector, each of whose elements is read once: windows overlap."""
    along = (a for a in measured.accesses if not a.is_write and a.stride(vector) == 1 and measured.is_read_once(a))
    return [a for a in along if 2 * measured.footprint(a) > measured.points]


def tile_order(measured: MeasuredStatement, plan: TilePlan, kept: tuple[str, ...]) -> tuple[str, ...]:
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
        stride = abs(largest.stride(iterator)) if largest is not None else UNKNOWN_STRIDE
        return round(log2(panel + 1)), stride

    write = measured.write
    if bytes_of(write) > 2 * sum(map(bytes_of, reads)):
        # What is written is most of what is moved: it is written in the order of its memory, as far as that goes.
        return tuple(sorted(kept, key=lambda i: abs(write.stride(i)), reverse=True))
    return tuple(sorted(kept, key=moved, reverse=True))


def panel_bytes(measured: MeasuredStatement, plan: TilePlan, kept: tuple[str, ...], access: MemoryAccess) -> int:
    """Return the bytes of what one tile reads of an operand."""
    terms = {i: measured.extent(i) for i in measured.statement.reduced}
    wide = prod(plan.size(i) for i in kept if access.stride(i))
    return int(wide * prod(n for i, n in terms.items() if access.stride(i)) * access.itemsize)


def panels_of(
    measured: MeasuredStatement, plan: TilePlan, order: tuple[str, ...], target: Target
) -> tuple[tuple[str, int], ...]:
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
