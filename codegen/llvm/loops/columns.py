"""Emit serial loops around vectors with one row a lane (see by_columns) by tiles that are transposed in registers.

Where the result exceeds the caches, and its row stride is whole lines, the first tile begins at a line boundary, which is found
at run time: the steps before it are scalar, and the tiles' rows, a line each, are written by streaming stores.
"""

from __future__ import annotations

from polyker.codegen.ir.kernel import Const, For, KExpr, Op, Space, Store, Var
from polyker.codegen.ir.polynomial import (
    Poly,
    as_constant,
    constant,
    constant_length,
    expression,
    minus,
    plus,
    polynomial,
)
from polyker.codegen.ir.walk import expressions, statements, substitute
from polyker.codegen.llvm.access import memory
from polyker.codegen.llvm.convert import ElementValue
from polyker.codegen.llvm.loops.lines import begins, exceed, split_by_lines
from polyker.codegen.llvm.loops.serial import serial_loop
from polyker.codegen.llvm.loops.transpose import transpose_loop
from polyker.codegen.llvm.operations import integer_extremum
from polyker.codegen.llvm.statements import Statements
from polyker.codegen.llvm.text import Reg, const
from polyker.codegen.passes.by_columns import lanes_across, outside, tile_of, tiles
from polyker.codegen.passes.unroll_terms import operations
from polyker.ir.dtypes import i64
from polyker.structs import replace

# Most operations of a tile, and its least steps (chosen).
_MAX_TILE_OPERATIONS, _MIN_TILE_STEPS = 400, 4
# Least tiles of a row where steps before the first line, and behind the last one, are taken one by one (experience value).
_MIN_ALIGNED_TILES = 32


def columns_loop(code: Statements, loop: For) -> None:
    """Emit a serial loop, by tiles where vectors in it go from row to row of memory."""
    buffers = {b.name: b for b in code.kernel.buffers}
    size = lanes_across(loop, buffers) if code.e.lanes.count == 1 else 0
    if not size:
        serial_loop(code, loop)
        return
    weight = sum(operations(e) for s in statements(loop.body) for e in expressions(s))
    while size * weight > _MAX_TILE_OPERATIONS and size > _MIN_TILE_STEPS:
        size //= 2
    length = constant_length(loop)
    stores = outside(loop, buffers)
    past = _past(code, loop, *stores[0], size, length) if len(stores) == 1 else None
    if past is None and length is not None:
        count, rest = divmod(length, size)
        end = expression(plus(polynomial(loop.lo), constant(count * size)))
        serial_loop(code, tiles(loop, loop.lo, end, size, count))
        if rest:
            transpose_loop(code, tile_of(loop, end, rest))
    else:
        _measured(code, loop, size, past)


def _measured(code: Statements, loop: For, size: int, past: tuple[Reg, Reg] | None) -> None:
    """Emit steps up to a line if the rows are written by streaming stores, tiles, and the steps that are left."""
    e, b = code.e, code.b
    lo, hi = e.uniform(e.poly(loop.lo)), e.uniform(e.poly(loop.hi))
    length = integer_extremum(b, "smax", b.binary("sub", hi, lo), const(0, "i64"))
    head = const(0, "i64")
    if past is not None:
        head = integer_extremum(b, "smin", b.select(past[0], past[1], head), length)
    first = b.binary("add", lo, head)
    whole = b.binary("and", b.binary("sub", length, head), const(-size, "i64"))
    known = {f"{loop.var}\0first": first, f"{loop.var}\0end": b.binary("add", first, whole)}
    e.values |= {name: ElementValue(i64, value) for name, value in known.items()}
    start, end = (Var(name) for name in known)
    if past is not None:
        serial_loop(code, replace(loop, hi=start, trip=None))
        code.streams = code.streamed_anywhere = True
        e.lines_past = past[0]
    serial_loop(code, tiles(loop, start, end, size, None))
    e.lines_past = None
    serial_loop(code, replace(loop, lo=end, trip=None))
    for name in known:
        del e.values[name]


def _past(code: Statements, loop: For, row: For, store: Store, size: int, length: int | None) -> tuple[Reg, Reg] | None:
    """Return whether the rows of tiles are streaming stores, and the steps before the first line; None where they never are."""
    e, b = code.e, code.b
    place, line = e.places[store.buffer], code.target.caches[0].line
    # Rows of fewer steps than lanes need masks, which streaming stores do not have.
    if place.buffer.space is not Space.ARGUMENT or size != row.lanes or size * place.itemsize != line:
        return None
    if length is not None and length < _MIN_ALIGNED_TILES * size:
        return None
    conditions: list[KExpr] = []

    def offset(row_at: KExpr, step_at: KExpr) -> Poly:
        at = {row.var: row_at, loop.var: step_at}
        return e.offset(store.buffer, tuple(substitute(i, at) for i in store.indices))

    begin = offset(row.lo, loop.lo)
    rows = minus(offset(_next(row.lo), loop.lo), begin)
    if not exceed(code, place, conditions) or not split_by_lines(code, place, rows, conditions):
        return None
    element = memory.element_number(b, place, e.pointer(place, begin))
    onwards = as_constant(minus(offset(row.lo, _next(loop.lo)), begin)) == 1
    before = b.binary("sub", const(0, "i64"), element) if onwards else b.binary("add", element, const(1, "i64"))
    head = b.binary("and", before, const(size - 1, "i64"))
    return begins(code, place, place.itemsize, conditions), head


def _next(at: KExpr) -> KExpr:
    return Op("add", (at, Const(1)))
