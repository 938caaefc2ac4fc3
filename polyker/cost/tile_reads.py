"""What the reads of a register tile cost: vectors, and cache lines where an operand lies; and the lines it writes.

A tile reads a line for each vector, and for each single element whose neighbours belong to other results. Where the first cache
does not keep these lines until the next tile reads them, they come from the second one by one.
"""

from __future__ import annotations

from math import gcd, prod

from msgspec import Struct

from polyker.cost.measure import MeasuredStatement, MemoryAccess
from polyker.machine.model import Target

# Cycles a byte of a panel that is read where it lies and that the first cache does not hold: parts of rows come slower from the
# second cache than a packed panel, which hides behind the arithmetic (measured on a Zen 5: a line in 2.1 cycles).
PARTIAL_ROW_CYCLES_PER_BYTE = 1 / 32
# The share of its cost that a window keeps which each term moves by one element, where it is made of the others' vectors
# (experience value).
REALIGNED_SHARE = 0.6


class Panel(Struct, frozen=True):
    """An operand of which tiles read the same lines again and again where it lies.

    `bytes`: of the lines that one of its values in a step is a part of; `places`: their number over the reduction; `unit`: the
    iterator of the result that it is contiguous along, None where that is the vector.
    """

    access: MemoryAccess
    bytes: int
    places: int
    unit: str | None

    def lines(self, copies: int, others: tuple[tuple[str, int], ...]) -> float:
        """Return the bytes of the lines that a step reads of so many values."""
        return copies * self.bytes / dict(others).get(self.unit or "", 1)

    def cycles(
        self, copies: int, others: tuple[tuple[str, int], ...], measured: MeasuredStatement, target: Target
    ) -> float:
        """Return what a step waits for the second cache, 0 where the first one keeps the lines for the next tile."""
        lines = self.lines(copies, others)
        kept = lines * self.places <= target.caches[0].size and not self._has_set_conflicts(others, measured, target)
        return 0.0 if kept else lines * PARTIAL_ROW_CYCLES_PER_BYTE

    def _has_set_conflicts(
        self, others: tuple[tuple[str, int], ...], measured: MeasuredStatement, target: Target
    ) -> bool:
        """Whether the lines that a tile reads over the reduction fall into few sets of the first cache.

        Of vectors that lie one in a term, side by side, that is seen where it is decided what is packed.
        """
        if self.unit is None and not any(self.access.stride(i) for i, _ in others):
            return False
        first, tile = target.caches[0], (*((r, measured.extent(r)) for r in measured.statement.reduced), *others)
        steps = [(n, abs(self.access.stride(i)) * self.access.itemsize) for i, n in tile]
        far = [(n, step) for n, step in steps if n > 1 and step >= first.line]
        return not first.holds_rows(prod(n for n, _ in far), gcd(*(step for _, step in far)))


class TileRead(Struct):
    """What a read costs one tile: `one` vector of it in cycles; packed first for `copying` cycles in all, `near`."""

    access: MemoryAccess
    one: float
    moves: bool  # with the vector
    near: float
    copying: float | None
    panel: int  # bytes that one vector's place reads over the reduction
    again: Panel | None  # that tiles read again where it lies
    conflicts: bool  # comes later by many rows at once
    streams: bool  # each element once, from beyond the first cache
    fetched: float  # cycles in all to fetch it from beyond the second cache, where whole rows of it pass
    memory: bool  # from beyond the last cache, where subscripts say which row
    columns: int  # registers that one vector of it takes: transposed ones are made for several terms at once
    # An iterator: unless the tile has several of its values, each element is alone in the line that is fetched.
    lone: str | None
    slides: (
        bool  # a window that the next term moves by one element, made of others (polyker.codegen.llvm.access.realign)
    )
    shuffles: float  # instructions that transpose one vector of it
    in_memory: bool  # the same in all lanes, and the operand in memory of an operation where no other vector has it

    def copies(self, chunks: int, others: tuple[tuple[str, int], ...]) -> int:
        """Return how many vectors of it a tile reads each step."""
        count, strides = chunks if self.moves else 1, self.access.strides
        for i, s in others:
            if strides.get(i):
                count *= s
        return count

    def vectors(self, chunks: int, others: tuple[tuple[str, int], ...]) -> float:
        """Return what its vectors cost a tile each step, from the first cache."""
        together = self.slides and chunks > 1 and all(s == 1 for _, s in others)
        return self.copies(chunks, others) * self.one * (REALIGNED_SHARE if together else 1.0)


def panel_of(
    measured: MeasuredStatement, access: MemoryAccess, vector: str, width: int, target: Target
) -> Panel | None:
    """Return the panel of an operand for vectors of `width` along an iterator, None where it is contiguous along a term."""
    terms = measured.statement.reduced
    units = [i for i in access.strides if abs(access.stride(i)) == 1]
    if measured.is_read_once(access) or len(units) != 1 or units[0] in terms:
        return None
    moves = bool(access.stride(vector))
    if moves and units != [vector]:
        return None
    places = measured.footprint(access, {i: 1 for i in access.strides if i not in terms})
    return Panel(
        access, width * access.itemsize if moves else target.caches[0].line, places, None if moves else units[0]
    )


def is_whole_lines(measured: MeasuredStatement, iterator: str, size: int, target: Target) -> bool:
    """Whether so many results side by side along an iterator are whole cache lines, if the first of all begins one."""
    write, line = measured.write, target.caches[0].line
    steps = (s for i, s in write.strides.items() if i != iterator)
    return all(s * write.itemsize % line == 0 for s in (size, measured.extent(iterator), *steps))


def passes_once(
    measured: MeasuredStatement, access: MemoryAccess, vector: str, others: tuple[tuple[str, int], ...]
) -> bool:
    """Whether one tile, of vectors along one iterator and so many values of others, has all that an operand's element is for."""
    tile = dict(others)
    kept = (i for i in measured.bounds if i not in measured.statement.reduced and i != vector)
    return all(access.stride(i) or tile.get(i, 1) >= measured.extent(i) for i in kept)
