"""Join the end of one row and the beginning of the next of a STREAM loop into one line, which is stored whole.

    for i: stream j in 0:n: O[i*n + j] = f(i, j)

A line that holds the end of one row and the beginning of the next cannot go by streaming stores in two parts. The end of a row is
kept instead, in memory of the function's own; where the next row begins at the very element its beginning joins it, and the line
is stored whole. Where it begins elsewhere, and after the last row, what was kept is stored through the caches. Places are
compared when the loop runs, so nothing has to be known of strides.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from polyker.codegen.ir.kernel import (
    Allocate,
    Buffer,
    Const,
    For,
    KExpr,
    LoopKind,
    Op,
    Prefetch,
    Space,
    StmtBlock,
    Store,
    Var,
)
from polyker.codegen.ir.polynomial import constant
from polyker.codegen.ir.walk import buffers_of, statements, substitute
from polyker.codegen.llvm.access import memory
from polyker.codegen.llvm.access.memory import BufferPointer
from polyker.codegen.llvm.convert import ElementValue
from polyker.codegen.llvm.loops.serial import serial_loop
from polyker.codegen.llvm.loops.stream_parts import Stream, vectors
from polyker.codegen.llvm.loops.vector import leading
from polyker.codegen.llvm.operations import integer_extremum
from polyker.codegen.llvm.statements import Statements
from polyker.codegen.llvm.text import Reg, const
from polyker.ir.dtypes import i64
from polyker.structs import replace

# Where nothing is kept: no place in a result, which may lie before its first element where strides are negative.
NOWHERE = -(1 << 63)
# The buffer of the line, and the variables that the parts of a row are cut at.
_LINE, _USED, _FIRST, _SECOND, _REST = "\0line", "\0used", "\0first", "\0second", "\0rest"


class JoinedRows(Struct):
    """What is kept from row to row of a STREAM loop: `kept` points to the place in the result behind the elements in `line`, to
    NOWHERE where there are none; `lanes`: the elements of a line, 0 until the first row was emitted."""

    place: BufferPointer
    kept: Reg
    line: Reg
    lanes: int = 0


def joined_rows_of(code: Statements, loop: For) -> tuple[int, JoinedRows] | None:
    """Return the identity of the STREAM loop in a serial loop's body, and the state that joins its rows; None where anything else
    in the body uses the result."""
    b, streams = code.b, list(_streams(loop.body))
    stores = [s for row in streams for s in row.body if isinstance(s, Store)]
    if len(streams) != 1 or len(stores) != 1:
        return None
    name, place = stores[0].buffer, code.e.places[stores[0].buffer]
    prefetches = (s for s in statements(loop.body) if isinstance(s, Prefetch) and s.buffer == name)
    if place.buffer.space is not Space.ARGUMENT or place.buffer.dtype.is_complex or any(prefetches):
        return None
    if [s for s in statements(loop.body) if name in buffers_of(s)] != stores:
        return None
    kept, line = (Reg(b.name(), "ptr", 1, 0) for _ in range(2))
    b.allocas.append(f"  {kept.text} = alloca i64, align 8")
    b.line(f"  store i64 {NOWHERE}, {kept.typed}, align 8")
    return id(streams[0]), JoinedRows(place, kept, line)


def _streams(block: StmtBlock) -> Iterator[For]:
    for stmt in block:
        if isinstance(stmt, Allocate):
            yield from _streams(stmt.body)
        elif isinstance(stmt, For) and stmt.kind is LoopKind.STREAM:
            yield stmt


def join_row(code: Statements, joined: JoinedRows, stream: Stream, head: Reg) -> None:
    """Store a row: `head` elements up to the first one that is aligned to a vector, whole vectors by streaming stores, the rest
    kept."""
    e, b, loop, lanes = code.e, code.b, stream.loop, stream.lanes
    _begin(code, joined, lanes)
    lo = e.uniform(e.poly(loop.lo))
    length = integer_extremum(b, "smax", b.binary("sub", e.uniform(e.poly(loop.hi)), lo), const(0, "i64"))
    part = integer_extremum(b, "smin", head, length)
    left = b.binary("sub", length, part)
    used = b.binary("and", b.binary("sub", const(0, "i64"), head), const(lanes - 1, "i64"))
    begin = e.uniform(
        e.offset(stream.store.buffer, tuple(substitute(i, {loop.var: loop.lo}) for i in stream.store.indices))
    )
    kept = b.impure(f"load i64, {joined.kept.typed}, align 8", "i64", 1)
    joins = b.binary("and", b.compare("icmp eq", kept, begin), b.compare("icmp eq", part, head))
    other = b.binary("xor", joins, const(1, "i1"))
    some = b.compare("icmp ne", kept, const(NOWHERE, "i64"))
    code.either(b.binary("and", some, other), lambda: _store_kept(code, joined, kept))

    first, wide = b.binary("add", lo, part), lanes * stream.chunks
    turns = b.binary("mul", b.binary("udiv", left, const(wide, "i64")), const(wide, "i64"))
    rest = b.binary("and", left, const(-lanes, "i64"))
    counts = {_USED: used, _FIRST: first, _SECOND: b.binary("add", first, turns), _REST: b.binary("add", first, rest)}
    e.values |= {name: ElementValue(i64, reg) for name, reg in counts.items()}

    def join() -> None:
        code.block((_kept(stream, loop.lo, Var(_FIRST), Op("sub", (loop.lo, Var(_USED)))),))
        code.either(
            joins, lambda: _store_line(code, joined, begin, used), lambda: _store_part(code, joined, begin, used, part)
        )

    e.anywhere = True
    code.either(b.compare("icmp ne", part, const(0, "i64")), join)
    e.anywhere, e.streamed = False, code.streamed
    cuts = [(_FIRST, _SECOND, stream.chunks), (_SECOND, _REST, 1)] if stream.chunks > 1 else [(_FIRST, _REST, 1)]
    for start, stop, count in cuts:
        turn = f"{loop.var}{start}"
        elements = vectors(replace(stream, chunks=count), Var(turn))
        serial_loop(code, For(turn, Var(start), Var(stop), elements, lanes * count))
    e.streamed, e.anywhere = "", True
    some = b.compare("icmp ne", b.binary("and", left, const(lanes - 1, "i64")), const(0, "i64"))
    code.either(some, lambda: code.block((_kept(stream, Var(_REST), loop.hi, Var(_REST)),)))
    e.anywhere = False
    end = b.binary("add", begin, length)
    after = b.pure(f"select {some.typed}, {end.typed}, i64 {NOWHERE}", "i64", 1, (some, end))
    b.line(f"  store {after.typed}, {joined.kept.typed}, align 8")
    for name in counts:
        del e.values[name]


def end_joined_rows(code: Statements, joined: JoinedRows, lanes: int = 0) -> None:
    """Store what was kept of the last row, if any was; `lanes`: those of a line, where the rows go on in another way."""
    if lanes:
        _begin(code, joined, lanes)
    if not joined.lanes:
        return
    kept = code.b.impure(f"load i64, {joined.kept.typed}, align 8", "i64", 1)

    def store() -> None:
        _store_kept(code, joined, kept)
        code.b.line(f"  store i64 {NOWHERE}, {joined.kept.typed}, align 8")

    code.either(code.b.compare("icmp ne", kept, const(NOWHERE, "i64")), store)


def _begin(code: Statements, joined: JoinedRows, lanes: int) -> None:
    """Give the line its memory: two vectors, as the beginning of a row is stored from any element of the first."""
    e, place = code.e, joined.place
    if not joined.lanes:
        joined.lanes = lanes
        code.b.allocas.append(f"  {joined.line.text} = alloca [{2 * lanes} x {place.element}], align 64")
    buffer = Buffer(_LINE, place.buffer.dtype, (Const(2 * lanes),), (Const(1),), Space.STACK)
    e.places[_LINE] = BufferPointer(buffer, joined.line, place.element, place.itemsize, False, "", reassociating=True)
    e.strides[_LINE] = (constant(1),)


def _kept(stream: Stream, lo: KExpr, hi: KExpr, origin: KExpr) -> For:
    """Return the loop that computes a row's elements into the line, which begins at `origin`."""
    loop = stream.loop
    element = Store(_LINE, (Op("sub", (Var(loop.var), origin)),), stream.store.value)
    body = tuple(element if s is stream.store else s for s in loop.body)
    return For(loop.var, lo, hi, body, kind=LoopKind.VECTOR, lanes=stream.lanes)


def _store_line(code: Statements, joined: JoinedRows, begin: Reg, used: Reg) -> None:
    """Store the whole line, by streaming stores."""
    b = code.b
    memory.store_raw(
        b, joined.place, _at(code, joined, b.binary("sub", begin, used)), _line(code, joined), None, code.streamed
    )


def _store_part(code: Statements, joined: JoinedRows, begin: Reg, used: Reg, count: Reg) -> None:
    """Store a row's first elements, which nothing was kept for."""
    data = _line(code, joined, used)
    memory.store_raw(
        code.b, joined.place, _at(code, joined, begin), data, leading(code, count, joined.lanes, surely=True).mask
    )


def _store_kept(code: Statements, joined: JoinedRows, kept: Reg) -> None:
    """Store what was kept, the elements before a place in the result: from the beginning of the line on."""
    b, place, lanes = code.b, joined.place, joined.lanes
    elements = memory.element_number(b, place, place.pointer)
    count = b.binary("and", b.binary("add", elements, kept), const(lanes - 1, "i64"))
    data, mask = _line(code, joined), leading(code, count, joined.lanes, surely=True).mask
    memory.store_raw(b, place, _at(code, joined, b.binary("sub", kept, count)), data, mask)


def _at(code: Statements, joined: JoinedRows, offset: Reg) -> Reg:
    return memory.offset_pointer(code.b, joined.place, joined.place.pointer, offset)


def _line(code: Statements, joined: JoinedRows, first: Reg | None = None) -> Reg:
    """Return a vector of the line's elements, from an element on."""
    b, place = code.b, joined.place
    pointer = joined.line if first is None else memory.offset_pointer(b, place, joined.line, first)
    align = place.align * (joined.lanes if first is None else 1)
    text = f"load <{joined.lanes} x {place.element}>, {pointer.typed}, align {align}"
    return b.impure(text, place.element, joined.lanes)
