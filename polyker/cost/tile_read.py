"""One read of a statement, as the cost of its register tiles needs it."""

from __future__ import annotations

from dataclasses import dataclass

from polyker.cost.measure import MemoryAccess
from polyker.cost.tile_lines import Panel

# The part of what windows cost that each term moves by one element, where they are made of each other's vectors.
REALIGNED = 0.6


@dataclass(slots=True)
class TileRead:
    """What a read costs one tile: `one` vector of it in cycles; packed first for `copying` cycles in all, `near`."""

    access: MemoryAccess
    one: float
    moves: bool  # with the vector
    near: float
    copying: float | None
    panel: int  # bytes that one vector's place reads over all the terms
    again: Panel | None  # that tiles read again where it lies
    conflicts: bool  # comes later by many rows at once
    apart: bool  # each element once, from beyond the first cache
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
        return self.copies(chunks, others) * self.one * (REALIGNED if together else 1.0)
