"""Turn each outermost BLOCK loop into a Launch, whose grid and block sizes the host computes."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from itertools import accumulate, count, groupby
from math import prod

from msgspec import Struct

from polyker.codegen.ir.greatest import greatest
from polyker.codegen.ir.kernel import (
    AXES,
    Allocate,
    Barrier,
    Buffer,
    Const,
    For,
    Guard,
    If,
    KernelIR,
    KExpr,
    Launch,
    LoopKind,
    Op,
    Space,
    Stmt,
    StmtBlock,
)
from polyker.codegen.ir.polynomial import polynomial
from polyker.codegen.ir.simplify_index import IndexRange, bounds, simplify_expression
from polyker.codegen.ir.walk import allocated, buffers_of, expressions, names_bound, names_in, statements, with_blocks
from polyker.codegen.passes.simplify import trip_count
from polyker.errors.base import InternalError, failure
from polyker.errors.codegen import TOO_MUCH_SHARED
from polyker.machine.model import Gpu
from polyker.structs import replace

# The most blocks that a grid may have along each axis (CUDA C++ Programming Guide, compute capabilities). Blocks take the
# iterations of a BLOCK loop in turn, so fewer of them than iterations do as well.
MAX_GRID_BLOCKS = ((1 << 31) - 1, 65535, 65535)

# Bytes of shared memory that a kernel has without asking for more at its launch (ibid.); each buffer begins at such a multiple.
STATIC_SHARED_BYTES, SHARED_ALIGNMENT = 48 << 10, 16

# Blocks where their number follows from nothing that the host knows, along all such axes together (chosen).
UNKNOWN_BLOCKS = 1024


def launches(kernel: KernelIR) -> KernelIR:
    """Return the kernel with each outermost BLOCK loop, and the threads in it, as a Launch; one thread runs the rest."""
    numbers = count()

    def block(
        body: StmtBlock, ranges: dict[str, IndexRange], known: frozenset[str], held: tuple[Buffer, ...]
    ) -> StmtBlock:
        """Return a block of the host; `held`: buffers around it, of the one thread that runs what is in no loop over blocks."""
        found: list[Stmt] = []
        for mapped, part in groupby(body, _is_mapped):
            if mapped:
                for stmt in part:
                    found += statement(stmt, ranges, known, held)
                continue
            inside = tuple(part)
            used = {name for s in statements(inside) for name in buffers_of(s)}
            own = tuple(b for b in held if b.name in used)
            inside = (Allocate(own, inside),) if own else inside
            one = Const(1)
            found.append(Launch(f"kernel{next(numbers)}", (one, one, one), (1, 1, 1), inside))
        return tuple(found)

    def statement(
        stmt: Stmt, ranges: dict[str, IndexRange], known: frozenset[str], held: tuple[Buffer, ...]
    ) -> StmtBlock:
        match stmt:
            case For(kind=LoopKind.BLOCK):
                return (_launch(f"kernel{next(numbers)}", stmt, ranges, known),)
            case For(body=body):
                inner = {**ranges, stmt.var: loop_range(stmt, ranges)}
                return (replace(stmt, body=block(body, inner, known | {stmt.var}, held)),)
            case If():
                return (with_blocks(stmt, lambda b: block(b, ranges, known, held)),)
            case Allocate(buffers=buffers, body=body):
                return block(body, ranges, known, (*held, *buffers))
            case _:
                raise InternalError(f"{type(stmt).__name__} stands around a loop over blocks")

    return replace(kernel, body=block(kernel.body, {}, frozenset(kernel.integers), ()))


def _is_mapped(stmt: Stmt) -> bool:
    return any(isinstance(s, For) and s.kind is LoopKind.BLOCK for s in statements((stmt,)))


def loop_range(loop: For, ranges: Mapping[str, IndexRange]) -> IndexRange:
    """Return the least and the greatest value of a loop's variable."""
    greatest = bounds(polynomial(loop.hi), ranges)[1]
    return bounds(polynomial(loop.lo), ranges)[0], None if greatest is None else greatest - 1


def _launch(name: str, loop: For, ranges: dict[str, IndexRange], known: frozenset[str]) -> Launch:
    blocks: dict[str, list[KExpr | None]] = {a: [] for a in AXES}
    threads = dict.fromkeys(AXES, 1)

    def counted(stmt: Stmt, around: tuple[For, ...]) -> Stmt:
        match stmt:
            case For(kind=LoopKind.THREAD):
                threads[stmt.axis] = max(threads[stmt.axis], stmt.lanes)
            case For(kind=LoopKind.BLOCK):
                trips = _trips(stmt, around, ranges, known)
                blocks[stmt.axis].append(trips)
                stmt = replace(stmt, lanes=max(0, int(trips.value.real)) if isinstance(trips, Const) else 0)
            case _:
                pass
        inside = (*around, stmt) if isinstance(stmt, For) else around
        return with_blocks(stmt, lambda block: tuple(counted(s, inside) for s in block))

    outermost = counted(loop, ())
    assert isinstance(outermost, For)
    each = Const(round(UNKNOWN_BLOCKS ** (1 / max(1, sum(None in found for found in blocks.values())))))
    trips = {a: [each if t is None else t for t in found] for a, found in blocks.items()}
    x, y, z = (_most(trips[a], most, ranges) for a, most in zip(AXES, MAX_GRID_BLOCKS, strict=True))
    if _shared((outermost,)):
        outermost = end_together(outermost, dict(zip(AXES, (x, y, z), strict=True)))
    return Launch(name, (x, y, z), (threads["x"], threads["y"], threads["z"]), (outermost,))


def end_together(loop: For, grid: Mapping[str, KExpr], *, again: bool = False) -> For:
    """Return a loop over blocks with a barrier at the end of each iteration, where one block may run several of them.

    What they share is filled anew by the next: that needs none where the next begins with one. `again`: a loop around may come
    here again in one block.
    """
    count = grid[loop.axis]
    once = loop.most is not None and isinstance(count, Const) and loop.most <= int(count.value.real)
    again = again or not once

    def block(body: StmtBlock) -> StmtBlock:
        return tuple(map(statement, body))

    def statement(stmt: Stmt) -> Stmt:
        match stmt:
            case For(kind=LoopKind.BLOCK):
                return end_together(stmt, grid, again=again)
            case _:
                return with_blocks(stmt, block)

    if any(map(_is_mapped, loop.body)):
        return replace(loop, body=block(loop.body))
    shared = frozenset(b.name for b in _shared(loop.body))
    needed = again and _first(loop.body, shared) is _First.USED
    return replace(loop, body=(*loop.body, Barrier())) if needed else loop


def _shared(block: StmtBlock) -> list[Buffer]:
    """Return the buffers in shared memory that a block and those in it allocate."""
    return [b for b in allocated(block) if b.space is Space.SHARED]


class _First(Enum):
    """What a block of statements is sure to come to first: a barrier, or maybe a use of shared memory, or neither."""

    MET = "met"
    USED = "used"
    NEITHER = "neither"


def _first(block: StmtBlock, shared: frozenset[str]) -> _First:
    for stmt in block:
        match stmt:
            case Barrier(warps=False):
                return _First.MET
            case For(body=body) | Allocate(body=body):
                found = _first(body, shared)
                if found is _First.MET and isinstance(stmt, For) and not stmt.trip:
                    found = _First.NEITHER  # maybe it does not run at all
            case If(body=body, orelse=orelse):
                both = {_first(body, shared), _first(orelse, shared)}
                found = _First.USED if _First.USED in both else both.pop() if len(both) == 1 else _First.NEITHER
            case _:
                found = _First.USED if buffers_of(stmt) & shared else _First.NEITHER
        if found is not _First.NEITHER:
            return found
    return _First.NEITHER


def _trips(loop: For, around: tuple[For, ...], ranges: dict[str, IndexRange], known: frozenset[str]) -> KExpr | None:
    """Return how many iterations there are at most, as the host computes it; None where it follows from nothing that it knows."""
    trip = trip_count(loop)
    if trip is not None:
        return Const(trip)
    length: KExpr = Op("sub", (loop.hi, loop.lo))
    if loop.step > 1:
        length = Op("floordiv", (Op("add", (length, Const(loop.step - 1))), Const(loop.step)))
    return greatest(length, around, known, ranges)


def _most(trips: list[KExpr], most: int, ranges: dict[str, IndexRange]) -> KExpr:
    """Return how many blocks the loops of one axis need, 1 at least."""
    found: KExpr = Const(1)
    for trip in dict.fromkeys(trips):
        found = trip if found == Const(1) else Op("maximum", (found, trip))
    if isinstance(found, Const):
        return Const(max(1, min(most, int(found.value.real))))
    return simplify_expression(Op("maximum", (Const(1), Op("minimum", (Const(most), found)))), ranges)


class SharedMemory(Struct, frozen=True):
    """The shared memory of a launch: where each of its buffers begins, and all bytes."""

    places: Mapping[str, int]
    size: int

    @property
    def asked(self) -> int:
        """Bytes that a launch has to request, 0 where it has them anyhow."""
        return self.size if self.size > STATIC_SHARED_BYTES else 0


def shared_memory(launch: Launch) -> SharedMemory:
    """Return the shared memory of a launch; buffers of one name, of parts of one scope, are one."""
    sizes: dict[str, int] = {}
    for buffer in _shared(launch.body):
        elements = prod(int(e.value.real) for e in buffer.shape if isinstance(e, Const))
        sizes[buffer.name] = -(-elements * buffer.dtype.itemsize // SHARED_ALIGNMENT) * SHARED_ALIGNMENT
    places = dict(zip(sizes, accumulate(sizes.values(), initial=0), strict=False))
    return SharedMemory(places, sum(sizes.values()))


def check_shared(kernel: KernelIR, gpu: Gpu, target: str) -> None:
    """Raise CompileError for a launch that takes more shared memory than a block has."""
    for launch in statements(kernel.body):
        if isinstance(launch, Launch) and (size := shared_memory(launch).size) > gpu.shared:
            raise failure(TOO_MUCH_SHARED, kernel=launch.name, bytes=size, limit=gpu.shared, target=target)


def arguments_of(kernel: KernelIR, launch: Launch) -> tuple[tuple[Buffer, ...], tuple[str, ...], bool]:
    """Return what a launch is called with, in order: arrays, then integers, then (whether it has guards) where failures go."""
    used = {name for s in statements(launch.body) for name in (*buffers_of(s), *names_in(*expressions(s)))}
    buffers = tuple(b for b in kernel.buffers if b.name in used)
    strides = names_in(*(s for b in buffers for s in b.strides))
    numbers = tuple(sorted((used | strides) - names_bound(launch.body) - {b.name for b in buffers}))
    return buffers, numbers, any(isinstance(s, Guard) for s in statements(launch.body))
