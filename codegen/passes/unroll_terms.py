"""Unroll the reduction loop of a register tile by a few iterations.

    for k in 0:K: prefetch A[i+4, k]; unroll r: unroll c: vector v: acc[r, c, v] += A[i+r, k] * B[k, 8*c+v]
    ->
    for k4 in 0:K step 4: prefetch A[i+4, k4]; the tile of k4, of k4+1, of k4+2, of k4+3
    for k in 4*floor(K/4):K: the tile of k

A step of a tile of short vectors has few arithmetic instructions, and beside them counters, a branch and a prefetch of a line
that earlier steps prefetch, too. A core issues four to six instructions a cycle, half as many with both hardware threads busy:
without this overhead there are slots for the loads. Where 512-bit operations are double-pumped a step takes so long that the
overhead is hidden; there unrolling pays for windows that move by one element an iteration, whose vectors are shuffled out of each
other (polyker.codegen.llvm.access.realign). The order of the additions stays.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf, prod

from msgspec import Struct

from polyker.codegen.ir.kernel import (
    Allocate,
    Buffer,
    Const,
    For,
    If,
    KernelIR,
    KExpr,
    Let,
    LoopKind,
    Op,
    Prefetch,
    Space,
    Stmt,
    StmtBlock,
    Store,
    Var,
)
from polyker.codegen.ir.polynomial import Monomial, Poly, constant, expression, offset_of, plus, polynomial, scaled
from polyker.codegen.ir.walk import (
    allocated,
    expressions,
    loads_in,
    loops_of,
    names_in,
    stores_of,
    substitute,
    uses,
    values_of,
    with_blocks,
)
from polyker.codegen.passes.by_columns import lanes_across
from polyker.codegen.passes.simplify import trip_count
from polyker.ir.expr import TRANSCENDENTAL
from polyker.ir.functions import cost_of
from polyker.machine.model import Target
from polyker.structs import replace

# Reduction iterations taken at once, and most vector operations of them together (experience values); stores that make a tile.
UNROLL_FACTOR, MAX_UNROLLED_OPERATIONS, MIN_TILE_STORES = 4, 100, 4
# Sums of a tile beside which no more values than these may pass one by one in a step: the loads of several terms would take the
# sums' registers (seen in what LLVM makes of tiles of 10 and 12 rows of two vectors; 8 of three, 6 of four and 4 of six fit).
MIN_FULL_TILE_SUMS, MAX_PASSING_VALUES = 16, 8
# Most places a symbolic stride apart that such terms may read: a core keeps about as many pointers. LLVM goes from one to
# the next where there are more, loads what all the terms read there, and the values take the sums' registers (experience value).
MAX_POINTERS = 10
# Divisor of the longest loop's work that a loop has to reach, and assumed trip count of a loop of unknown length (experience
# values).
MIN_WORK_DIVISOR, UNKNOWN_TRIPS = 8, 64


def several_terms(kernel: KernelIR, target: Target) -> KernelIR:
    """Return an equal kernel whose reduction loops of register tiles are unrolled by a few iterations."""
    arrays = {b.name: b for b in kernel.buffers}
    found = _loops(kernel.body, 1, arrays)
    most = max((work for _, _, work in found), default=0)
    buffers = arrays | {b.name: b for b in allocated(kernel.body)}
    chosen = {
        id(loop): weight
        for loop, weight, work in found
        if MIN_WORK_DIVISOR * work >= most
        and not _strays(loop, weight, buffers)
        and (not target.double_pumped or _slides(loop, buffers))
    }
    line = target.caches[0].line
    return replace(kernel, body=_TermUnroller(chosen, buffers, line).block(kernel.body)) if chosen else kernel


def _loops(block: StmtBlock, times: int, arrays: Mapping[str, Buffer]) -> list[tuple[For, int, int]]:
    """Return the reduction loops of a tile, each with the vector operations of one iteration and of all of them.

    Vectors with one row a lane have tiles of their own (`codegen.llvm.loops.columns`).
    """
    found = []
    for s in block:
        match s:
            case For(kind=LoopKind.SERIAL) if lanes_across(s, arrays):
                pass
            case For(kind=LoopKind.SERIAL, step=1) if (
                weight := _weight(s.body)
            ) and 2 * weight <= MAX_UNROLLED_OPERATIONS:
                found.append((s, weight, times * _trips(s) * weight))
            case For(kind=LoopKind.SERIAL | LoopKind.PARALLEL):
                found += _loops(s.body, times * _trips(s), arrays)
            case Allocate(body=body):
                found += _loops(body, times, arrays)
            case If(body=body, orelse=orelse):
                found += _loops(body, times, arrays) + _loops(orelse, times, arrays)
    return found


def _trips(loop: For) -> int:
    trip = trip_count(loop)
    return UNKNOWN_TRIPS if trip is None else trip


def _weight(block: StmtBlock) -> int:
    """Return the vector operations of a tile's step, 0 for what is none: it has unrolled vectors and nothing else."""
    stores, weight = tile_size(block)
    return weight if stores >= MIN_TILE_STORES and not _exceeds_registers(block, stores) else 0


def _exceeds_registers(block: StmtBlock, sums: int) -> bool:
    """Whether LLVM would load more values of all unrolled iterations than registers are left beside a tile's sums."""
    if any(s.value.dtype.is_complex for s in stores_of(block)):
        return 2 * sums > MIN_FULL_TILE_SUMS  # each product transposes its operands in registers, too
    return sums > MIN_FULL_TILE_SUMS and _passing(block) > MAX_PASSING_VALUES


def _passing(block: StmtBlock) -> int:
    """Return how many values a step broadcasts."""
    return sum(dict(_spread(block, {})).values())


def _spread(block: StmtBlock, trips: Mapping[str, int]) -> Iterator[tuple[tuple[str, tuple[KExpr, ...]], int]]:
    """Yield what the vectors of a tile's step read that is the same for all lanes, and in how many places the copies read it.

    `trips`: those of the UNROLL loops around, by their variables.
    """
    for s in block:
        match s:
            case For(kind=LoopKind.UNROLL, var=var, body=body):
                yield from _spread(body, {**trips, var: trip_count(s) or 0})
            case For(var=var, body=body):
                for e in (e for t in body for e in loads_in(*expressions(t))):
                    if not uses(var, *e.indices):
                        names = names_in(*e.indices)
                        yield (e.buffer, e.indices), prod([trips[n] for n in trips if n in names])
            case _:
                pass


def _size(weight: int) -> int:
    """Return the unroll factor of the reduction loop, by the vector operations of one."""
    return UNROLL_FACTOR if UNROLL_FACTOR * weight <= MAX_UNROLLED_OPERATIONS else UNROLL_FACTOR // 2


def _strays(loop: For, weight: int, buffers: Mapping[str, Buffer]) -> bool:
    """Whether the terms that would be taken at once are read at more places than there are registers to point at, beside
    many sums."""
    strides = (s for b in buffers.values() for s in b.strides)
    if tile_size(loop.body)[0] <= MIN_FULL_TILE_SUMS or all(isinstance(s, Const) for s in strides):
        return False
    places: set[tuple[str, frozenset[tuple[Monomial, int]]]] = set()
    for name, place in _places(loop.body, {}, buffers):
        step = {tuple(a for a in m if a != Var(loop.var)): c for m, c in place.items() if Var(loop.var) in m}
        for term in range(_size(weight)):
            here = plus(place, scaled(step, term))
            places.add((name, frozenset((m, c) for m, c in here.items() if m)))
    return len(places) > MAX_POINTERS


def _slides(loop: For, buffers: Mapping[str, Buffer]) -> bool:
    """Whether each vector of a tile of one row reads a window that the next iteration moves by one element, on or back."""
    lanes = next((s.lanes for s in loops_of(loop.body, LoopKind.VECTOR)), 0)
    count, _ = tile_size(loop.body)
    windows = set[tuple[str, int]]()
    for name, place in _places(loop.body, {}, buffers):
        vectors = [m for m, c in place.items() if c == 1 and len(m) == 1 and m != (Var(loop.var),)]
        if abs(place.get((Var(loop.var),), 0)) == 1 and vectors:
            windows.add((name, place.get((), 0)))
    return lanes > 0 and 1 < count == len(windows) and len({at % lanes for _, at in windows}) == 1


def _places(block: StmtBlock, values: Mapping[str, KExpr], buffers: Mapping[str, Buffer]) -> Iterator[tuple[str, Poly]]:
    """Yield where a tile's step reads memory: the buffer, and the place in it."""
    for s in block:
        match s:
            case For(kind=LoopKind.UNROLL, var=var, lo=Const(value=lo), body=body):
                for n in range(trip_count(s) or 0):
                    yield from _places(body, {**values, var: Const(int(lo.real) + n)}, buffers)
            case For(body=body):
                yield from _places(body, values, buffers)
            case Store(value=value):
                for e in loads_in(value):
                    if buffers[e.buffer].space is not Space.STACK:
                        yield e.buffer, offset_of(buffers[e.buffer], (substitute(i, values) for i in e.indices))


def tile_size(block: StmtBlock) -> tuple[int, int]:
    """Return the vectors that a block stores, and its operations; none where it has other loops or branches."""
    stores, weight = 0, 0
    for s in block:
        match s:
            case For(kind=LoopKind.UNROLL | LoopKind.VECTOR as kind, body=body):
                times = 1 if kind is LoopKind.VECTOR else trip_count(s)
                vectors, inner = tile_size(body)
                if times is None or not vectors:
                    return 0, 0
                stores, weight = stores + times * vectors, weight + times * inner
            case Store(value=value):
                stores, weight = stores + 1, weight + operations(value)
            case Let(value=value):
                weight += operations(value)
            case Prefetch():
                pass
            case _:
                return 0, 0
    return stores, weight


def operations(value: KExpr) -> int:
    """Return the vector operations of a value."""
    return sum(cost_of(e.op).usual if e.op in TRANSCENDENTAL else 1 for e in values_of(value) if isinstance(e, Op))


class _TermUnroller(Struct, frozen=True):
    """Rewrites the chosen loops, identity -> vector operations of an iteration; `line`: bytes of a cache's line."""

    chosen: Mapping[int, int]
    buffers: Mapping[str, Buffer]
    line: int

    def block(self, block: StmtBlock) -> StmtBlock:
        result: list[Stmt] = []
        for s in block:
            match s:
                case For() if id(s) in self.chosen:
                    result += self._taken(s)
                case _:
                    result.append(with_blocks(s, self.block))
        return tuple(result)

    def _taken(self, loop: For) -> list[Stmt]:
        """Return the unrolled loop, and the one over the remaining iterations."""
        trip, size = trip_count(loop), _size(self.chosen[id(loop)])
        if trip is not None and trip < 2 * size:
            return [loop]
        group = Var(f"{loop.var}.group")
        first, rest = _plus(group, 1), self._unasked(loop.body, loop.var, size)
        once = For(loop.var, group, first, loop.body, 1, LoopKind.UNROLL, 1, 1)
        others = For(loop.var, first, _plus(group, size), rest, 1, LoopKind.UNROLL, size - 1, size - 1)
        return by_groups(loop, size, (once, others), group.name)

    def _unasked(self, block: StmtBlock, var: str, size: int) -> StmtBlock:
        """Return a tile without the prefetches that so many iterations before and after it make."""
        kept = (s for s in block if not (isinstance(s, Prefetch) and self._moves(s, var) * size <= self.line))
        return tuple(replace(s, body=self._unasked(s.body, var, size)) if isinstance(s, For) else s for s in kept)

    def _moves(self, prefetches: Prefetch, var: str) -> float:
        """Return how many bytes a request moves on with each term, infinite where that is not constant."""
        buffer = self.buffers[prefetches.buffer]
        place = offset_of(buffer, prefetches.indices)
        found = [m for m in place if any(uses(var, a) for a in m)]
        if any(m != (Var(var),) for m in found):
            return inf
        return abs(place.get((Var(var),), 0)) * buffer.dtype.itemsize


def _plus(var: Var, value: int) -> KExpr:
    return Op("add", (var, Const(value)))


def by_groups(loop: For, size: int, body: StmtBlock, var: str) -> list[Stmt]:
    """Return the loop over whole groups of `size` terms, its body and variable given, and the one over the rest, if any."""
    trip, end = trip_count(loop), _whole_groups(loop, size)
    left = None if trip is None else trip % size
    groups = replace(loop, var=var, hi=end, body=body, step=size, trip=None if trip is None else trip // size)
    return [groups] if left == 0 else [groups, replace(loop, lo=end, trip=left)]


def _whole_groups(loop: For, size: int) -> KExpr:
    """Return where the whole groups of a loop's terms end."""
    if (trip := trip_count(loop)) is not None:
        return expression(plus(polynomial(loop.lo), constant(trip - trip % size)))
    length = Op("maximum", (Op("sub", (loop.hi, loop.lo)), Const(0)))
    return Op("add", (loop.lo, Op("mul", (Op("floordiv", (length, Const(size))), Const(size)))))
