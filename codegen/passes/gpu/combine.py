"""Expand block reductions: shuffles within a warp, shared memory between the warps.

Before: `S = op of it and of v of the threads along x`. After, for 256 threads:

    c = op(v, v of the thread xor 16);  …xor 8;  …4;  …2;  …1
    if x % 32 == 0: w[x / 32] = c
    barrier
    if x == 0: S = op(S, op(w[0], w[1], …, w[7]))

Where each thread wants what the threads up to it have (a scan), a warp's threads keep two values, of all up to them and of all:

    if x % 32 & 1: p = op(t of the thread xor 1, p)
    t = op(t, t of the thread xor 1);  …2;  …4;  …8;  …16

and the totals of the warps before are combined with p. The order is fixed by the text: the same bits in each run. Needs the
launches, whose numbers of threads decide.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import count

from msgspec import Struct

from polyker.codegen.ir.kernel import (
    AXES,
    WARP,
    Allocate,
    Barrier,
    Buffer,
    Combine,
    Const,
    Convert,
    For,
    If,
    KernelIR,
    KExpr,
    Launch,
    Let,
    Load,
    LoopKind,
    Op,
    Shuffle,
    Space,
    Stmt,
    StmtBlock,
    Store,
    Var,
)
from polyker.codegen.ir.walk import statements, uses, with_blocks
from polyker.errors.base import InternalError
from polyker.ir.dtypes import DType, bool_
from polyker.structs import replace


def write_out(kernel: KernelIR) -> KernelIR:
    """Return the kernel without Combine; raises InternalError where one has not all threads of its launch along its axis."""
    if not _combines(kernel.body):
        return kernel
    writer = _Writer()
    buffers = {b.name: b.dtype for b in kernel.buffers}
    return replace(kernel, body=writer.block(kernel.body, _CombineScope(buffers)))


class _CombineScope(Struct, frozen=True):
    """What is around a block: the buffers alive, the launch, the THREAD loop along x; `again`: it may run more than once."""

    buffers: Mapping[str, DType]
    launch: Launch | None = None
    thread: For | None = None
    again: bool = False


class _Writer:
    """Numbers the values and the buffers that it makes."""

    def __init__(self) -> None:
        self.numbers = count()

    def block(self, block: StmtBlock, at: _CombineScope) -> StmtBlock:
        """Return a block without Combine."""
        return tuple(s for stmt in block for s in self.statement(stmt, at))

    def statement(self, stmt: Stmt, at: _CombineScope) -> Iterable[Stmt]:
        """Return what stands for a statement."""
        inside = at
        match stmt:
            case Combine():
                return self.combined(stmt, at)
            case For():
                threads = stmt.kind is LoopKind.THREAD
                again = at.again or (not threads and at.launch is not None and not _once(stmt, at.launch))
                inside = replace(at, thread=stmt if threads and stmt.axis == "x" else at.thread, again=again)
            case If(condition=condition):
                if at.thread is not None and uses(at.thread.var, condition) and _combines((stmt,)):
                    raise InternalError("some threads of a launch do not combine what the others do")
            case Allocate(buffers=held):
                inside = replace(at, buffers={**at.buffers, **{b.name: b.dtype for b in held}})
            case Launch():
                inside = _CombineScope(at.buffers, stmt)
            case _:
                pass
        return (with_blocks(stmt, lambda b: self.block(b, inside)),)

    def combined(self, stmt: Combine, at: _CombineScope) -> Iterator[Stmt]:
        """Yield what a Combine stands for."""
        thread, again = at.thread, at.again
        width, height, depth = (1, 1, 1) if at.launch is None else at.launch.block
        whole = thread is not None and thread.trip == width and thread.step == 1
        if thread is None or not whole or width % WARP or (width > WARP and height * depth > 1) or stmt.axis != "x":
            raise InternalError(f"threads combine into {stmt.buffer} that are not all of a launch's along x")
        dtype = stmt.value.dtype
        place: KExpr = Op("sub", (Var(thread.var), thread.lo))
        if stmt.before is not None:
            yield from self.scanned(stmt, stmt.before, place, width // WARP, again=again)
            return
        value = self.name()
        yield Let(value, stmt.value)
        for mask in (16, 8, 4, 2, 1):
            other, both = self.name(), self.name()
            yield Shuffle(other, Var(value, dtype), mask)
            yield Let(both, Op(stmt.op, (Var(value, dtype), Var(other, dtype)), dtype))
            value = both
        if width == WARP:
            yield If(_is(place, 0), (_update(stmt, at.buffers, Var(value, dtype)),))
            return
        warps = width // WARP
        table = self.table(dtype, warps)
        folded: KExpr = Load(table.name, (Const(0),), dtype)
        for n in range(1, warps):
            folded = Op(stmt.op, (folded, Load(table.name, (Const(n),), dtype)), dtype)
        first = If(_is(Op("mod", (place, Const(WARP))), 0), (_element(table.name, place, Var(value, dtype)),))
        fold = If(_is(place, 0), (_update(stmt, at.buffers, folded),))
        # Where the block comes here again its warps may not write before the last fold has read.
        yield Allocate((table,), (*((Barrier(),) if again else ()), first, Barrier(), fold))

    def scanned(self, stmt: Combine, before: KExpr, place: KExpr, warps: int, *, again: bool) -> list[Stmt]:
        """Return what a Combine stands for in which each thread stores what the threads up to it have."""
        dtype, found = stmt.value.dtype, list[Stmt]()

        def op(*args: KExpr) -> KExpr:
            return Op(stmt.op, args, dtype)

        def where(condition: KExpr, one: KExpr, other: KExpr) -> KExpr:
            return Op("where", (condition, one, other), dtype)

        def let(value: KExpr, block: list[Stmt] = found) -> KExpr:
            name = self.name()
            block.append(Let(name, value))
            return Var(name, dtype)

        first, term = _is(place, 0), let(stmt.value)
        own = total = let(where(first, op(_only(before, first), term), term))
        for mask in (1, 2, 4, 8, 16):
            other = Var(self.name(), dtype)
            found.append(Shuffle(other.name, total, mask))
            upper = Op("ge", (Op("mod", (place, Const(2 * mask))), Const(mask)), bool_)
            own = let(where(upper, op(other, own), own))
            if mask < WARP // 2 or warps > 1:
                total = let(op(total, other))
        if warps == 1:
            return [*found, Store(stmt.buffer, stmt.indices, own)]
        table, warp = self.table(dtype, warps), Op("floordiv", (place, Const(WARP)))
        store = If(_is(Op("mod", (place, Const(WARP))), 0), (_element(table.name, place, total),))
        rest: list[Stmt] = []
        sums = let(Load(table.name, (Const(0),), dtype), rest)
        for n in range(1, warps - 1):
            more = Load(table.name, (Const(n),), dtype)
            sums = let(where(Op("gt", (warp, Const(n)), bool_), op(sums, more), sums), rest)
        value = where(Op("gt", (warp, Const(0)), bool_), op(sums, own), own)
        rest.append(Store(stmt.buffer, stmt.indices, value))
        # As for a sum: the last one's readers come first.
        found.append(Allocate((table,), (*((Barrier(),) if again else ()), store, Barrier(), *rest)))
        return found

    def table(self, dtype: DType, warps: int) -> Buffer:
        """Return a buffer of the block with an element for each warp."""
        return Buffer(self.name(), dtype, (Const(warps),), (Const(1),), Space.SHARED)

    def name(self) -> str:
        """Return a name that no other node has."""
        return f"r{next(self.numbers)}"


def _combines(block: StmtBlock) -> bool:
    return any(isinstance(s, Combine) for s in statements(block))


def _only(value: KExpr, condition: KExpr) -> KExpr:
    """Return an element's value, which is loaded where the condition holds."""
    if isinstance(value, Load):
        return Load(
            value.buffer,
            value.indices,
            value.dtype,
            condition,
            Const(False if value.dtype == bool_ else 0, value.dtype),
        )
    if isinstance(value, Convert):
        return Convert(_only(value.arg, condition), value.dtype)
    raise InternalError("what threads combine begins with an element")


def _element(table: str, place: KExpr, value: KExpr) -> Store:
    return Store(table, (Op("floordiv", (place, Const(WARP))),), value)


def _is(place: KExpr, number: int) -> KExpr:
    return Op("eq", (place, Const(number)), bool_)


def _update(stmt: Combine, buffers: Mapping[str, DType], value: KExpr) -> Store:
    """Return the update of the element, rounded once."""
    dtype, own = value.dtype, buffers[stmt.buffer]
    old: KExpr = Load(stmt.buffer, stmt.indices, own)
    both = Op(stmt.op, (old if own == dtype else Convert(old, dtype), value), dtype)
    return Store(stmt.buffer, stmt.indices, both if own == dtype else Convert(both, own))


def _once(loop: For, launch: Launch) -> bool:
    """Return whether a loop is known to run at most once in each block."""
    if loop.kind is LoopKind.BLOCK:
        blocks = launch.grid[AXES.index(loop.axis)]
        return isinstance(blocks, Const) and loop.most is not None and loop.most <= int(blocks.value.real)
    return loop.trip is not None and loop.trip <= 1
