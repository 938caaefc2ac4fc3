"""Vectorise accesses of neighbouring elements by one thread of a GPU: up to 16 bytes at once.

What they are computed from goes at once as well, where that is contiguous, too.

    t[4*x] = a[4*x];  t[4*x + 1] = a[4*x + 1];  …        ->  t[4*x .. 4*x + 3] = a[4*x .. 4*x + 3]

What decides are offsets: those of a run are consecutive, and the first is a multiple of the run's length for all values of the
variables. An ARGUMENT buffer that is used so has to begin at such a multiple, too: `Buffer.alignment` says so, and the run time
moves one that does not; so it has to be dense. Conditions of neighbours are one where a multiple of the run's length is compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from typing import TypeAlias

from polyker.codegen.ir.kernel import (
    MAX_ACCESS_BYTES,
    Allocate,
    Buffer,
    Copy,
    If,
    KernelIR,
    KExpr,
    Launch,
    Load,
    Op,
    Space,
    Stmt,
    StmtBlock,
    Store,
    Var,
    VectorLoad,
    VectorStore,
)
from polyker.codegen.ir.polynomial import Poly, constant, is_dense, is_multiple, minus, offset_of, plus, polynomial
from polyker.codegen.ir.simplify_index import TRUE, has_load
from polyker.codegen.ir.walk import is_zero, loads_in, operands, with_blocks, with_loads
from polyker.ir.dtypes import i64
from polyker.structs import replace

Loads: TypeAlias = tuple[Load, ...]

# Least bytes of an asynchronous copy (cp.async takes 4, 8 or 16).
MIN_ASYNC_COPY_BYTES = 4


def widen(kernel: KernelIR) -> KernelIR:
    """Return the kernel with wide accesses in its launches, and the alignments that they need."""
    found = _Widening({b.name: b for b in kernel.buffers})
    body = found.block(kernel.body)
    if not found.aligned:
        return replace(kernel, body=body)
    buffers = tuple(replace(b, alignment=found.aligned.get(b.name, b.alignment)) for b in kernel.buffers)
    return replace(kernel, buffers=buffers, body=body)


class _Widening:
    def __init__(self, buffers: dict[str, Buffer]) -> None:
        self.buffers = buffers
        self.aligned: dict[str, int] = {}  # of ARGUMENT buffers, in bytes
        self.inside = False
        self.names = (f"w{n}" for n in count())

    def block(self, block: StmtBlock) -> StmtBlock:
        """Return a block with runs of stores as wide ones."""
        result: list[Stmt] = []
        left = [self._statement(s) for s in self._joined(block)]
        while left:
            found, taken = self._run(left) if self.inside and isinstance(left[0], Store) else ((left[0],), 1)
            result += found
            del left[:taken]
        return tuple(result)

    def _statement(self, stmt: Stmt) -> Stmt:
        match stmt:
            case Launch(body=body):
                self.inside = True
                stmt = replace(stmt, body=self.block(body))
                self.inside = False
                return stmt
            case Allocate(buffers=buffers):
                self.buffers |= {b.name: b for b in buffers}
            case _:
                pass
        return with_blocks(stmt, self.block)

    def _joined(self, block: StmtBlock) -> list[Stmt]:
        """Return a block in which neighbours under conditions that are one stand under one.

        Where a condition holds if the next one does, and they read memory at once, all stand under the last one, and one by one
        where it does not hold.
        """
        result: list[Stmt] = []
        left = list(block)
        while left:
            found, taken = left[0], 1
            match left[0]:
                case If(body=(Store(buffer=name),), orelse=()) if self.inside:
                    size = self._most(name)
                    while size > 1:
                        part = left[:size]
                        tests = [s for s in part if isinstance(s, If) and not s.orelse and len(s.body) == 1]
                        stores = [s.body[0] for s in tests if isinstance(s.body[0], Store) and s.body[0].buffer == name]
                        conditions = [s.condition for s in tests]
                        if len(stores) == size and agree(conditions):
                            found, taken = replace(tests[0], body=tuple(stores)), size
                            break
                        if len(stores) == size and fall(conditions) and self._is_read_at_once(stores):
                            found, taken = If(conditions[-1], tuple(stores), tuple(tests[:-1])), size
                            break
                        size //= 2
            result.append(found)
            del left[:taken]
        return result

    def _is_read_at_once(self, run: list[Store]) -> bool:
        """Whether neighbours are stored at once, and so is read what one of their operands is."""
        if not self._neighbours(run[0].buffer, [s.indices for s in run]):
            return False
        columns = zip(*(loads_in(s.value) for s in run), strict=False)
        return any(self._is_one(c) for c in columns)

    def _most(self, name: str) -> int:
        """Return how many elements of a buffer an access may take."""
        buffer = self.buffers[name]
        return max(1, MAX_ACCESS_BYTES // buffer.dtype.itemsize)

    def _run(self, block: Sequence[Stmt]) -> tuple[tuple[Stmt, ...], int]:
        """Return what the first statements of a block, stores, become; and how many they are."""
        first = block[0]
        assert isinstance(first, Store)
        size = self._most(first.buffer)
        while size > 1:
            run = [s for s in block[:size] if isinstance(s, Store) and s.buffer == first.buffer]
            if len(run) == size:
                found = self._stored(run) or self._loaded(run)
                if found:
                    return found, size
            size //= 2
        if self.buffers[first.buffer].later and isinstance(first.value, Load):
            return (self._copied([first], first.value),), 1
        return (first,), 1

    def _copied(self, run: list[Store], source: Load) -> Stmt:
        """Return the copy of neighbouring elements; it arrives later where it may: of 4, 8 or 16 bytes, or 0, from afar."""
        first, size = run[0], len(run)
        buffer, origin = self.buffers[first.buffer], self.buffers[source.buffer]
        later = buffer.later and size * buffer.dtype.itemsize >= MIN_ASYNC_COPY_BYTES
        later = later and origin.space not in (Space.SHARED, Space.STACK) and self._is_whole(origin, size)
        if not later and size == 1:
            return first
        self._align(source.buffer, size)
        copy = Copy(
            first.buffer, first.indices, source.buffer, source.indices, size, source.predicate, source.other, later
        )
        if copy.predicate in (TRUE, None):
            return replace(copy, predicate=None, other=None)
        assert copy.predicate is not None
        if not copy.later or is_zero(copy.other):
            return copy
        assert copy.other is not None
        values = (copy.other,) * size
        absent: Stmt = (
            VectorStore(first.buffer, first.indices, values) if size > 1 else replace(first, value=copy.other)
        )
        return If(copy.predicate, (replace(copy, predicate=None, other=None),), (absent,))

    def _stored(self, run: list[Store]) -> tuple[Stmt, ...]:
        """Return one store of neighbouring elements, () where that may not be."""
        first, size = run[0], len(run)
        if not self._neighbours(first.buffer, [s.indices for s in run]):
            return ()
        loads = tuple(s.value for s in run if isinstance(s.value, Load))
        if len(loads) == size and loads[0].buffer != first.buffer and self._is_one(loads):
            self._align(first.buffer, size)
            return (self._copied(run, loads[0]),)
        for s in run:  # all is read before anything is stored
            if any(e.buffer == s.buffer and e.indices != s.indices for e in loads_in(s.value)):
                return ()
        self._align(first.buffer, size)
        read, values = self._read(run)
        return (*read, VectorStore(first.buffer, first.indices, values))

    def _loaded(self, run: list[Store]) -> tuple[Stmt, ...]:
        """Return one load of neighbouring elements, and the stores of each; () where that may not be."""
        loads = tuple(s.value for s in run if isinstance(s.value, Load))
        if self.buffers[run[0].buffer].space not in (Space.SHARED, Space.STACK) or len(loads) < len(run):
            return ()
        source = loads[0]
        if self.buffers[source.buffer].space in (Space.SHARED, Space.STACK) or not self._is_one(loads):
            return ()
        self._align(source.buffer, len(run))
        load, values = self._load(loads)
        return load, *(replace(s, value=v) for s, v in zip(run, values, strict=True))

    def _read(self, run: list[Store]) -> tuple[list[Stmt], tuple[KExpr, ...]]:
        """Return wide loads of what neighbours in a run read of neighbouring elements, and the values computed from them."""
        made: list[Stmt] = []
        read: dict[Load, KExpr] = {}
        found = [tuple(loads_in(s.value)) for s in run]
        for column in zip(*found, strict=True) if len({len(f) for f in found}) == 1 else ():
            step = min(len(run), self._most(column[0].buffer))
            for loads in (column[n : n + step] for n in range(0, len(run), step)):
                if (
                    step > 1
                    and loads[0] not in read
                    and not any(map(has_load, loads[0].indices))
                    and self._is_one(loads)
                ):
                    self._align(loads[0].buffer, step)
                    load, values = self._load(loads)
                    made.append(load)
                    read |= zip(loads, values, strict=True)

        return made, tuple(with_loads(s.value, read) for s in run)

    def _load(self, loads: Loads) -> tuple[VectorLoad, tuple[Var, ...]]:
        """Return a load of neighbouring elements, and what it binds."""
        first, name = loads[0], next(self.names)
        values = tuple(Var(f"{name}.{n}", first.dtype) for n in range(len(loads)))
        mask = (None, None) if first.predicate == TRUE else (first.predicate, first.other)
        return VectorLoad(tuple(v.name for v in values), first.buffer, first.indices, first.dtype, *mask), values

    def _is_one(self, loads: Loads) -> bool:
        """Whether loads are those of neighbouring elements, and all or none of them are made."""
        if len({(d.buffer, d.other) for d in loads}) > 1:
            return False
        conditions = [TRUE if d.predicate is None else d.predicate for d in loads]
        return self._neighbours(loads[0].buffer, [d.indices for d in loads]) and agree(conditions)

    def _neighbours(self, name: str, places: Sequence[tuple[KExpr, ...]]) -> bool:
        """Whether elements of a buffer follow each other in memory, from a multiple of their number on."""
        buffer = self.buffers[name]
        if buffer.space is Space.STACK or not is_dense(buffer):
            return False
        offsets = [offset_of(buffer, indices) for indices in places]
        first, size = offsets[0], len(offsets)
        return is_multiple(first, size) and all(o == plus(first, constant(n)) for n, o in enumerate(offsets))

    def _is_whole(self, buffer: Buffer, size: int) -> bool:
        """Whether neighbours lie at a multiple of their bytes, or may be asked to: one complex number is aligned as its parts."""
        return size > 1 or not buffer.dtype.is_complex or is_dense(buffer)

    def _align(self, name: str, size: int) -> None:
        """Ask for what an access of so many neighbours needs beyond what each element has."""
        buffer = self.buffers[name]
        if buffer.space is Space.ARGUMENT and (size > 1 or buffer.dtype.is_complex):
            self.aligned[name] = max(self.aligned.get(name, 0), size * buffer.dtype.itemsize)


def agree(conditions: Sequence[KExpr]) -> bool:
    """Whether the conditions of neighbours hold for all of them or for none.

    Comparisons in which neighbours differ by one are of multiples of their number: 4 x + n < 4 m does not depend on n in 0..3.
    """
    size, steps = len(conditions), _steps(conditions)
    # Of values e, e - 1, … or e, e + 1, … all are above 0 or none.
    return steps is not None and all(is_multiple(plus(e, constant(min(0, -step))), size) for e, step in steps)


def fall(conditions: Sequence[KExpr]) -> bool:
    """Whether each of the conditions of neighbours holds wherever the next one does: e > 0, e - 1 > 0, …"""
    steps = _steps(conditions)
    return steps is not None and all(step == -1 for _, step in steps)


def _steps(conditions: Sequence[KExpr]) -> list[tuple[Poly, int]] | None:
    """Return what differs between the conditions of neighbours: what the first compares with 0, and by what each is more.

    None where other parts differ, or by anything but 1 and -1.
    """
    parts = [_parts(c) for c in conditions]
    if any(p is None or len(p) != len(parts[0] or ()) for p in parts):
        return None
    found: list[tuple[Poly, int]] = []
    for column in zip(*(p for p in parts if p is not None), strict=True):
        if all(p == column[0] for p in column):
            continue
        known = [p for p in column if isinstance(p, Mapping)]
        step = next(
            (s for s in (-1, 1) if all(p == plus(known[0], constant(s * n)) for n, p in enumerate(known))), None
        )
        if len(known) < len(column) or step is None:
            return None
        found.append((known[0], step))
    return found


def _parts(condition: KExpr) -> list[Poly | KExpr] | None:
    """Return what has to hold: polynomials that are above 0, and other conditions; None where it reads memory."""
    if has_load(condition):
        return None
    match condition:
        case Op(op="and", args=args):
            found = [_parts(a) for a in args]
            return (
                [p for part in found if part is not None for p in part] if all(f is not None for f in found) else None
            )
        case Op(op="lt" | "le" | "gt" | "ge" as op, args=(a, b)) if a.dtype == i64:
            low, high = (a, b) if op in ("lt", "le") else (b, a)
            shift = constant(op in ("le", "ge"))
            lows = operands(low) if isinstance(low, Op) and low.op == "maximum" else (low,)
            highs = operands(high) if isinstance(high, Op) and high.op == "minimum" else (high,)
            return [plus(minus(polynomial(h), polynomial(low_)), shift) for low_ in lows for h in highs]
        case _:
            return [] if condition == TRUE else [condition]
