"""Map reductions to blocks whose threads share the terms of an element: threads an element, and blocks."""

from __future__ import annotations

from math import prod

from msgspec import Struct

from polyker.cost.measure import MeasuredStatement
from polyker.ir.quasi_affine import is_quasi_affine
from polyker.machine.model import Gpu

# Threads of a block that reduce one element: where several blocks share its terms (experience value), and where one block has
# them all (1024: a block's most threads).
SHARED_ELEMENT_THREADS, LONE_BLOCK_THREADS = 256, 1024
# Most terms of an element that one block reduces, so that what follows can be in the same launch (experience value).
MAX_LONE_BLOCK_TERMS = 1 << 14
# Least terms of a thread, to pay for the synchronisation (experience value).
MIN_TERMS_PER_THREAD = 8


class Across(Struct, frozen=True):
    """An element's terms along `iterator` are distributed over `width` threads of a block; `blocks` blocks share those along
    `cut`."""

    iterator: str
    width: int
    blocks: int = 1
    cut: str = ""


def has_gathers(measured: MeasuredStatement) -> bool:
    """Return whether a statement computes places that it reads or writes from what it reads."""
    subscripts = [s for a in measured.accesses if a.read is not None for s in a.read.subscripts]
    return not all(map(is_quasi_affine, (*subscripts, *measured.statement.subscripts)))


def across(measured: MeasuredStatement, gpu: Gpu) -> Across | None:
    """Return how the terms of each element are distributed; None where a thread had better sum those of its own elements.

    So where neighbouring threads then read neighbours, and would not by elements of their own, or elements are too few for the
    threads of the GPU. An index that is found outside leaves a thread's part out, so gathers are not distributed: others would
    wait.
    """
    statement = measured.statement
    reads = [a for a in measured.accesses if not a.is_write]
    if not reads or has_gathers(measured) or statement.in_order:
        return None
    kept = [i for i in statement.iterators[statement.outer :] if i not in statement.reduced]
    largest = max(reads, key=measured.footprint)
    unit = [i for i in statement.reduced if abs(largest.stride(i)) == 1]
    if not unit:
        return None
    along = max(unit, key=measured.extent)
    long, elements = measured.extent(along), max(1, prod(measured.extent(i) for i in kept))
    terms = prod(measured.extent(i) for i in statement.reduced)
    if 8 * elements <= gpu.processors and any(measured.expected(i) is None for i in statement.reduced):
        terms = max(
            terms, gpu.processors * gpu.resident * MIN_TERMS_PER_THREAD
        )  # of so few elements, too few threads cost more than too many
    most = min(gpu.processors * gpu.resident // elements, terms // MIN_TERMS_PER_THREAD)
    if not any(abs(largest.stride(i)) == 1 for i in kept):
        most = max(most, min(gpu.warp, terms // 2))
    if most < gpu.warp or long < gpu.warp // 2:
        return None
    count = _below(most)
    room = _below(long // 2)
    whole = elements >= gpu.processors or (terms <= MAX_LONE_BLOCK_TERMS and 2 * room >= min(count, LONE_BLOCK_THREADS))
    width = max(gpu.warp, min(count, LONE_BLOCK_THREADS if whole else SHARED_ELEMENT_THREADS, room))
    blocks = 1 if whole else max(1, count // width)
    cut = (
        along if long >= 2 * width * blocks else max(statement.reduced, key=lambda i: (i != along, measured.extent(i)))
    )
    parts = long // width if cut == along else measured.extent(cut)
    return Across(along, width, min(blocks, _below(max(1, parts))), cut)


def _below(count: int) -> int:
    """Return the greatest power of two that is not above a count."""
    return 1 << (count.bit_length() - 1)
