"""Emit transposed loads: what a TRANSPOSE loop reads by columns is loaded by rows, and transposed in registers.

A load whose lanes lie in different rows of memory is a gather. Where the next iteration of the loop around reads the next
element of each row, some iterations together read pieces of the rows: 16 bytes of each, four rows' pieces to a register of
64 bytes, and the columns come from log2(elements of a piece) interleavings within 16 bytes, which are one instruction each
on every vector unit.
"""

from __future__ import annotations

from msgspec import Struct, field

from polyker.codegen.ir.kernel import For, Guard, Let, Load, LoopKind, Prefetch, Stmt, Store, Var
from polyker.codegen.ir.polynomial import Poly, as_constant, constant, plus
from polyker.codegen.ir.polynomial import atom as atom_poly
from polyker.codegen.ir.walk import loaded, stores_of, uses
from polyker.codegen.llvm.access import memory
from polyker.codegen.llvm.access.memory import BufferPointer
from polyker.codegen.llvm.access.scope import EmitterScope
from polyker.codegen.llvm.access.transpose_rows import TransposedRows, interleaved, pointers_of
from polyker.codegen.llvm.convert import ElementValue
from polyker.codegen.llvm.text import IRBuilder, Reg
from polyker.machine.model import LANE_BYTES

_STEP = Var("\0step")  # the number of the iteration, in index polynomials


def suits(loop: For) -> bool:
    """Return whether a TRANSPOSE loop may be split into columns: stores alone, under vector loops of known extent,
    and prefetches."""
    if loop.trip is None or loop.trip < 1 or loop.step != 1:
        return False
    return all(_suits(loop, s) for s in loop.body)


def _suits(loop: For, stmt: Stmt) -> bool:
    match stmt:
        case For(kind=LoopKind.TRANSPOSE) as inner:
            return not uses(loop.var, inner.lo, inner.hi) and suits(inner)
        case For(kind=LoopKind.VECTOR, lo=lo, hi=hi, trip=int(), body=body):
            return not uses(loop.var, lo, hi) and all(isinstance(s, Let | Guard | Store | Prefetch) for s in body)
        case Prefetch():
            return True
        case _:
            return False


class TransposeLoop(Struct):
    """A TRANSPOSE loop under way: iteration `step` of `trip`, the first at index `lo`; `outer`: the one around it.

    `_blocks` has the transposed blocks of each load, by the iteration that they begin with and the rows that they have of so many
    lanes; `_prefetched` the lines that were; `rows` what is written by rows when all iterations are done, of the buffers `_late`.
    """

    loop: For
    lo: Poly
    trip: int
    outer: TransposeLoop | None
    step: int = 0
    _written: frozenset[str] = frozenset()
    _blocks: dict[tuple[str, frozenset[object], int, int, int, int], list[Reg]] = field(default_factory=dict)
    _prefetched: set[str] = field(default_factory=set)
    _late: frozenset[str] = frozenset()
    rows: dict[tuple[str, frozenset[object]], TransposedRows] = field(default_factory=dict)

    def __post_init__(self) -> None:
        stores = [s.buffer for s in stores_of(self.loop.body)]
        self._written = frozenset(stores)
        self._late = frozenset(n for n in stores if stores.count(n) == 1) - loaded(self.loop.body)

    def asks(self, pointer: Reg) -> bool:
        """Whether a line is prefetched for the first time: what differs from column to column alone may be the same line."""
        if self.outer is not None:
            return self.outer.asks(pointer)
        new = pointer.text not in self._prefetched
        self._prefetched.add(pointer.text)
        return new

    def load(self, e: EmitterScope, expr: Load) -> ElementValue | None:
        """Return this iteration's value of a load; None unless it is contiguous along the loop and strided over the lanes."""
        here = self._load(e, expr)
        return here if here is not None or self.outer is None else self.outer.load(e, expr)

    def _load(self, e: EmitterScope, expr: Load) -> ElementValue | None:
        """Return what `load` does, of this loop alone."""
        rows, place = e.lanes.count, e.places[expr.buffer]
        active = memory.leading_lanes(e.lanes.mask, rows)
        size = _power(min(max(1, LANE_BYTES // place.itemsize), self.trip, rows))
        if not active or active == 1 or (size == 1 and place.itemsize < LANE_BYTES):
            # Of a single row nothing is gained; and LLVM 22 reads the wrong half of a piece of two doubles where the one lane is
            # compared on AVX-512.
            return None
        if expr.predicate is not None or expr.buffer in self._written:
            return None
        found = self._offset(e, expr)
        if found is None:
            return None
        offset, direction = found
        start = min(self.step // size * size, self.trip - size)
        key = (expr.buffer, frozenset(offset.items()), direction, start, active, rows)
        if key not in self._blocks:
            base, stride, varying = e.split(offset)
            if varying or as_constant(stride) in (0, 1, -1):
                return None
            first = start if direction > 0 else -(start + size - 1)
            pointers = pointers_of(e, place, plus(base, constant(first)), stride, active)
            self._blocks[key] = _block(e.b, place, pointers, rows, size)
        column = self.step - start
        raw = self._blocks[key][column if direction > 0 else size - 1 - column]
        return memory.value_of(e.b, place.buffer.dtype, raw)

    def store(self, e: EmitterScope, stmt: Store, value: ElementValue) -> bool:
        """Keep what an iteration stores, to be written by rows after the last one; False unless it is contiguous along the loop
        and strided over the lanes, and nothing else in the loop sees it."""
        rows, place = e.lanes.count, e.places[stmt.buffer]
        active = memory.leading_lanes(e.lanes.mask, rows)
        if not active or stmt.buffer not in self._late or value.im is not None:
            return False
        if self.trip > rows or rows & (rows - 1) or (found := self._offset(e, stmt)) is None:
            return False
        offset, direction = found
        key = (stmt.buffer, frozenset(offset.items()))
        if key not in self.rows:
            base, stride, varying = e.split(offset)
            if varying or as_constant(stride) in (0, 1, -1):
                return False
            first = 0 if direction > 0 else 1 - self.trip
            self.rows[key] = TransposedRows(place, plus(base, constant(first)), stride, active, direction)
        self.rows[key].columns.append(memory.raw_of(e.b, value))
        return True

    def _offset(self, e: EmitterScope, expr: Load | Store) -> tuple[Poly, int] | None:
        """Return the offset at the loop's first iteration, and 1 or -1: its step from one to the next."""
        known = e.affine[self.loop.var]
        e.affine[self.loop.var] = plus(self.lo, atom_poly(_STEP))
        offset = e.offset(expr.buffer, expr.indices)
        e.affine[self.loop.var] = known
        for monomial in offset:
            if any(not isinstance(a, Var) and uses(self.loop.var, a) for a in monomial):
                return None
            if _STEP in monomial and len(monomial) > 1:
                return None
        direction = offset.get((_STEP,), 0)
        return ({m: c for m, c in offset.items() if m != (_STEP,)}, direction) if direction in (1, -1) else None


def _power(value: int) -> int:
    """Return the largest power of two that is at most `value`."""
    return 1 << (value.bit_length() - 1)


def _block(b: IRBuilder, place: BufferPointer, pointers: list[Reg], rows: int, size: int) -> list[Reg]:
    """Return the `size` columns of a block whose rows begin at the pointers; what is beyond the last pointer is undefined.

    Row p*size + r's piece stands at place p of register r; then each place of all registers together is a square matrix.
    """
    parts = 2 if place.buffer.dtype.is_complex else 1
    places = 1 << (-(-rows // size) - 1).bit_length()
    registers: list[Reg | None] = []
    for r in range(size):
        pieces = [memory.load_piece(b, place, p, size) for p in pointers[r::size]]
        registers.append(_joined(b, [*pieces, *[None] * (places - len(pieces))]))
    half = size // 2
    low = interleaved(places * size, size, parts, range(half))
    high = interleaved(places * size, size, parts, range(half, size))
    for _ in range(half.bit_length()):
        pairs = [(registers[r], registers[r + half]) for r in range(half)]
        registers = [_mixed(b, x, y, order) for x, y in pairs for order in (low, high)]
    columns = [r for r in registers if r is not None]
    if rows == places * size:
        return columns
    return [b.shuffle(r, None, list(range(rows * parts))) for r in columns]


def _joined(b: IRBuilder, pieces: list[Reg | None]) -> Reg | None:
    """Return pieces of one length after another, the last ones perhaps undefined."""
    while len(pieces) > 1:
        pieces = [_mixed(b, x, y, None) for x, y in zip(pieces[::2], pieces[1::2], strict=True)]
    return pieces[0]


def _mixed(b: IRBuilder, x: Reg | None, y: Reg | None, order: list[int] | None) -> Reg | None:
    """Return the lanes of two vectors in an order, None: as they are; an undefined one's may be any."""
    if x is None:
        return None
    return b.shuffle(x, x if y is None else y, list(range(2 * x.lanes)) if order is None else order)
