"""Emit transposed stores: what a TRANSPOSE loop writes by columns is transposed in registers, and stored by rows.

As many columns as a vector has lanes are a square. First the squares of elements within 16 bytes are transposed, then the
square of these: log2(lanes) rounds of two-register shuffles, none of which needs a table of indices on x86.
"""

from __future__ import annotations

from msgspec import Struct, field

from polyker.codegen.ir.polynomial import Poly, as_constant, plus, scaled
from polyker.codegen.llvm.access.memory import BufferPointer
from polyker.codegen.llvm.access.scope import EmitterScope
from polyker.codegen.llvm.text import IRBuilder, Reg, prefix_mask
from polyker.machine.model import LANE_BYTES


class TransposedRows(Struct):
    """Columns that are to be stored by rows, `count` of them, in the order of the iterations: from the first element on, or
    (`direction` -1) towards it. The first row lies at the offset `corner`, the next `stride` further."""

    place: BufferPointer
    corner: Poly
    stride: Poly
    count: int
    direction: int
    columns: list[Reg] = field(default_factory=list)


def transposed(e: EmitterScope, rows: TransposedRows) -> tuple[list[Reg], list[Reg], Reg | None]:
    """Return the pointers to the rows of a tile, the rows, and the mask of their elements (None: all)."""
    place = rows.place
    columns, filled, lanes = rows.columns[:: rows.direction], len(rows.columns), rows.columns[0].lanes
    columns += [Reg("poison", columns[0].elem, lanes, 0)] * (lanes - filled)
    pointers = pointers_of(e, place, rows.corner, rows.stride, rows.count)
    mask = None if filled == lanes else prefix_mask(filled, lanes)
    return pointers, _transposed(e.b, columns, place.itemsize), mask


def pointers_of(e: EmitterScope, place: BufferPointer, corner: Poly, stride: Poly, count: int) -> list[Reg]:
    """Return the pointers to the first of `count` rows that are `stride` apart."""
    step = as_constant(stride)
    if step is None:
        return [e.pointer(place, plus(corner, scaled(stride, r))) for r in range(count)]
    return e.pointers(place, corner, [r * step for r in range(count)])


def _transposed(b: IRBuilder, columns: list[Reg], itemsize: int) -> list[Reg]:
    """Return the rows of a square matrix of elements, whose side is a power of two."""
    count = len(columns)
    size = min(max(1, LANE_BYTES // itemsize), count)
    half = size // 2
    low = interleaved(count, size, 1, range(half))
    high = interleaved(count, size, 1, range(half, size))
    groups = [columns[k : k + size] for k in range(0, count, size)]
    for _ in range(half.bit_length()):
        groups = [[b.shuffle(g[r], g[r + half], order) for r in range(half) for order in (low, high)] for g in groups]
    places = [_transposed_places(b, [g[r] for g in groups], size) for r in range(size)]
    return [places[r][_reversed(p, count // size)] for p in range(count // size) for r in range(size)]


def _transposed_places(b: IRBuilder, registers: list[Reg], size: int) -> list[Reg]:
    """Return the rows of a square matrix of groups of `size` elements, in the order of their numbers with the bits reversed.

    The groups with even numbers of two registers become one, those with odd numbers another.
    """
    lanes = len(registers) * size

    def halved(those: list[Reg]) -> list[Reg]:
        if len(those) == 1:
            return those
        found: list[Reg] = []
        for odd in (0, 1):
            groups = [g + other for other in (0, lanes) for g in range(odd * size, lanes, 2 * size)]
            order = [g + k for g in groups for k in range(size)]
            found += halved([b.shuffle(x, y, order) for x, y in zip(those[::2], those[1::2], strict=True)])
        return found

    return halved(registers)


def _reversed(number: int, count: int) -> int:
    """Return the number with its bits in reversed order, of as many as the numbers below `count` have."""
    bits = count.bit_length() - 1
    return int(f"{number:0{bits}b}"[::-1], 2) if bits else number


def interleaved(rows: int, size: int, parts: int, taken: range) -> list[int]:
    """Return the lanes of `x[k], y[k]` for the taken k, within each place of `size` elements of `parts` lanes."""
    lanes = []
    for place in range(0, rows, size):
        for k in taken:
            for other in (0, rows):
                lanes += [(place + k + other) * parts + part for part in range(parts)]
    return lanes
