"""Address swizzled buffers: their indices, with an exclusive or that only the printer knows.

    t[r, c]        ->  t[64 * r + (c ^ 4 * (r % 8))]
    t[8*q + 1, c]  ->  t[512 * q + (c ^ 4) + 64]
    t[r, 4*x + 1]  ->  t[64 * r + 4 * (x ^ (r % 8)) + 1]

In the last form a compiler sees that neighbours begin at a multiple of 16 bytes, and reads them at once.
"""

from __future__ import annotations

from collections.abc import Sequence

from polyker.codegen.ir.kernel import Buffer, Const, Op
from polyker.codegen.ir.polynomial import (
    Poly,
    as_constant,
    atom,
    constant,
    expression,
    is_multiple,
    minus,
    plus,
    polynomial,
    scaled,
    times,
)
from polyker.codegen.ir.simplify_index import IndexRanges, bounds, simplify_expression
from polyker.schedule.tree.swizzle import Swizzle, swizzle_of


def swizzle_of_buffer(buffer: Buffer) -> Swizzle:
    """Return how the elements of a swizzled buffer are placed."""
    return swizzle_of(_row(buffer), buffer.dtype.itemsize, buffer.swizzle)


def _row(buffer: Buffer) -> int:
    row = as_constant(polynomial(buffer.shape[-1]))
    assert row is not None
    return row


def swizzled_offset(buffer: Buffer, indices: Sequence[Poly], ranges: IndexRanges) -> Poly:
    """Return where an element of a swizzled buffer lies; `xor` stands in it as an operation of index arithmetic.

    What lies within a chunk, and what is a multiple of all chunks that change places, has no bits that the exclusive or changes:
    it is added to that of the rest.
    """
    way, row = swizzle_of_buffer(buffer), _row(buffer)
    rows: Poly = {}
    for index, stride in zip(indices[:-1], buffer.strides[:-1], strict=True):
        rows = plus(rows, times(index, _divided(polynomial(stride), row)))
    line = Op("floordiv", (expression(rows), Const(way.line // row)))
    number = polynomial(simplify_expression(Op("mod", (line, Const(way.count))), ranges))
    moved = scaled(number, way.chunk)
    low, rest = _parted(indices[-1], way.chunk)
    least, most = bounds(low, ranges)
    if least is None or most is None or least < 0 or most >= way.chunk:
        low, rest = {}, indices[-1]
    middle, high = _parted(rest, way.chunk * way.count)
    unit = way.chunk if is_multiple(middle, way.chunk) else 1
    changed = _exclusive_or(_divided(middle, unit), _divided(moved, unit))
    return plus(plus(scaled(rows, row), plus(high, low)), scaled(changed, unit))


def _parted(poly: Poly, unit: int) -> tuple[Poly, Poly]:
    """Return a polynomial in two parts: what is no multiple of `unit`, with the least constant, and multiples of it."""
    high = {m: c // unit * unit for m, c in poly.items() if c % unit == 0 or not m}
    high = {m: c for m, c in high.items() if c}
    return minus(poly, high), high


def _divided(poly: Poly, unit: int) -> Poly:
    return {m: c // unit for m, c in poly.items()}


def _exclusive_or(a: Poly, b: Poly) -> Poly:
    one, other = as_constant(a), as_constant(b)
    if one is not None and other is not None:
        return constant(one ^ other)
    if one == 0 or other == 0:
        return a if other == 0 else b
    return atom(Op("xor", (expression(a), expression(b))))
