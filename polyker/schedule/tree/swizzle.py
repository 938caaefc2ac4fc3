"""Swizzle shared-memory buffers: permute the 16-byte chunks of a row, so that columns use all banks.

    chunk     0 1 2 3 4 5 6 7
    line 0    a b c d e f g h
    line 1    b a d c f e h g
    line 2    c d a b g h e f       chunk c of line r lies at c xor (r mod n), here of n = 8

A line is a row, or as many short ones as all banks hold: their chunks lie in different banks anyhow. Neighbours within 16 bytes
stay neighbours, so one access takes them as before, and no memory is lost to padding. What is read along a column by 16 bytes
meets no bank twice; element by element 8 banks are met, as a chunk begins at each fourth one.
"""

from __future__ import annotations

from msgspec import Struct

# Bytes of a chunk, the widest access; and of all banks, 32 of 4 bytes.
CHUNK_BYTES, BANK_ROW_BYTES = 16, 128


class Swizzle(Struct, frozen=True):
    """A way to place the elements of a buffer: `count` chunks change places. All in elements, and powers of two."""

    count: int
    chunk: int
    line: int

    def place(self, offset: int) -> int:
        """Return where the element of an offset lies, that of another one nowhere else."""
        return offset ^ self.chunk * (offset // self.line % self.count)


def swizzle_of(row: int, itemsize: int, count: int) -> Swizzle:
    """Return the swizzle of rows of so many elements of `itemsize` bytes."""
    return Swizzle(count, CHUNK_BYTES // itemsize, max(row, BANK_ROW_BYTES // itemsize))


def largest_swizzle(row: int, itemsize: int) -> int:
    """Return how many chunks change places where it helps most: a row's, up to those of all banks."""
    return max(2, min(row * itemsize, BANK_ROW_BYTES) // CHUNK_BYTES)


def why_not_swizzled(row: int, itemsize: int, count: int) -> str:
    """Return why the chunks of rows cannot change places, "" where they can."""
    if row & (row - 1):
        return f"its rows have {row} elements, which is no power of two"
    if count < 2 or count & (count - 1):
        return f"{count} is no power of two from 2 on"
    chunks = row * itemsize // CHUNK_BYTES
    if chunks < count:
        return f"its rows have {chunks} chunk{'s' * (chunks != 1)} of {CHUNK_BYTES} bytes, fewer than {count}"
    return ""
