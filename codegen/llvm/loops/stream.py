"""STREAM loops: neighbouring elements are computed by vectors and written by streaming stores, whole lines at a time.

An ordinary store of an element that is not in the cache fetches its line first, only to overwrite it: a third of the traffic of a
sum of two arrays. A non-temporal store sends whole lines to memory instead. It has to be aligned to the vector, which arrays
are not, so the loop is cut where the address says: up to the first aligned element, then whole vectors, then the rest.

    for i in 0:n: O[i] = f(i)      head = -address(O[0]) mod vector
                                   O[0:head]; for each whole vector: non-temporal O[…]; O[rest]

Where pieces of memory come sooner side by side (`rows_at_once`) the whole vectors of a long row are those of a few pieces of
it, taken in turns of a few lines.
"""

from __future__ import annotations

from collections.abc import Callable

from polyker.codegen.ir.kernel import For
from polyker.codegen.llvm.convert import ElementValue
from polyker.codegen.llvm.loops.columns import columns_loop
from polyker.codegen.llvm.loops.interleave import JoinedRows, end_joined_rows, join_row, joined_rows_of
from polyker.codegen.llvm.loops.serial import serial_loop
from polyker.codegen.llvm.loops.stream_parts import (
    Stream,
    head_of,
    is_long,
    last_line,
    parts,
    pieces_of,
    side_by_side,
    stream_of,
    vectors,
)
from polyker.codegen.llvm.operations import integer_extremum
from polyker.codegen.llvm.statements import Statements
from polyker.codegen.llvm.text import Reg, const
from polyker.ir.dtypes import i64


class StreamLoops:
    """The STREAM loops of one kernel; `joins`: what keeps the ends of rows, by the identity of their loop."""

    def __init__(self) -> None:
        self.joins: dict[int, JoinedRows] = {}

    def around(self, code: Statements, loop: For) -> Callable[[], None] | None:
        """Begin to keep the ends of rows in a serial loop around them; return what stores the last one's."""
        found = joined_rows_of(code, loop)
        if found is None:
            return None
        row, self.joins[found[0]] = found
        return lambda: end_joined_rows(code, self.joins.pop(row))

    def loop(self, code: Statements, loop: For) -> None:
        """Emit a STREAM loop, as a serial one where its form does not allow more."""
        stream = stream_of(code.e, loop, code.target)
        if stream is None:
            columns_loop(code, loop)
        else:
            self._by_vectors(code, stream)

    def _by_vectors(self, code: Statements, stream: Stream) -> None:
        """Store up to the first aligned element, then whole vectors by streaming stores, then the rest."""
        e, b, loop = code.e, code.b, stream.loop
        lo, hi = e.uniform(e.poly(loop.lo)), e.uniform(e.poly(loop.hi))
        head = head_of(e, b, stream)
        code.streams = code.streamed_anywhere = True
        join = self.joins.get(id(loop))
        if stream.short:
            _short_row(code, stream, head, join)
            return
        if join is not None:
            join_row(code, join, stream, head)
            return
        length = b.binary("sub", hi, lo)
        if not is_long(stream):  # of a row that ends before it begins nothing is left, either
            head = integer_extremum(b, "smin", head, length)
        left = b.binary("sub", length, head)
        count = b.binary("udiv", left, const(stream.lanes * stream.chunks, "i64"))
        pieces, turn = pieces_of(stream, code.target)
        runs = b.binary("udiv", count, const(pieces * turn, "i64")) if pieces > 1 else const(0, "i64")
        first = b.binary("mul", runs, const(pieces * turn, "i64"))
        names = tuple(f"{loop.var}\0{name}" for name in ("head", "first", "count", "runs"))
        known = (b.binary("add", lo, head), first, count, runs)
        e.values |= {name: ElementValue(i64, value) for name, value in zip(names, known, strict=True)}
        before, whole, after = parts(stream, *names[:3])
        ends = b.binary("and", left, const(stream.lanes - 1, "i64"))
        # A line that is stored by streaming stores must not be in them.
        code.branch(b.compare("icmp ne", ends, const(0, "i64")), (last_line(stream),), ())
        e.anywhere = True
        code.block(before)
        e.streamed, e.anywhere = code.streamed, False
        if pieces > 1:
            serial_loop(code, side_by_side(stream, names[0], names[3], (pieces, turn)))
        serial_loop(code, whole)
        e.streamed, e.anywhere = "", True
        code.block(after)
        e.anywhere = False
        for name in names:
            del e.values[name]


def _short_row(code: Statements, stream: Stream, head: Reg, join: JoinedRows | None) -> None:
    """Store a row of whole vectors by streaming stores, where it begins at a line or together with its neighbours."""
    row = vectors(stream, stream.loop.lo)

    def past() -> None:
        if join is not None:
            end_joined_rows(code, join, stream.lanes)
        code.past(lambda: code.block(row))

    def through() -> None:
        if join is None:
            code.block(row)
        else:
            join_row(code, join, stream, head)

    code.either(code.b.compare("icmp eq", head, const(0, "i64")), past, through)
