"""Prefetch gathered elements of large buffers some iterations before they are read.

    for i: g = index[i]; O[i] = T[g]        for i: g = index[i]; prefetch T[index[min(i + D, hi - 1)]]; O[i] = T[g]

No hardware foresees where a gathered element lies, and a core waits for memory with as many loads as fit into its window. The
indices themselves are read in order, so those of later iterations are at hand: a prefetch of what they point at keeps more
lines on their way, and costs little beside a line from memory; more still can be on their way to the second cache than to the
first; rows of several lines come sooner into the first on some (`gathers_rows_into_first`).

In the last cache that pays for elements alone, and where they lie in more pages than a core keeps addresses of: what is nearer
comes in time, and rows go on. Before a vector whose lanes gather, the elements of all its lanes are prefetched. Where
`O[i,j] = X[i, index[j]]` gathers from one row after another, the next one is prefetched from end to end. A prefetch reads no
memory itself, so an index that is out of range does no harm; the guard of its own iteration finds it.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import TypeAlias

from msgspec import Struct, field

from polyker.codegen.ir.kernel import (
    Allocate,
    Buffer,
    Const,
    For,
    KernelIR,
    KExpr,
    Let,
    Load,
    LoopKind,
    Op,
    Prefetch,
    Stmt,
    StmtBlock,
    Store,
    Var,
)
from polyker.codegen.ir.simplify_index import has_load
from polyker.codegen.ir.walk import expressions, loads_in, names_in, statements, substitute, with_blocks
from polyker.codegen.passes.simplify import trip_count
from polyker.cost.memory import gathers_rows_into_first
from polyker.ir.dtypes import i64
from polyker.machine.model import PAGE, Target
from polyker.structs import replace

# Prefetch distance in lines: more misses than a core's loads have in flight, fewer lines than its caches hold (experience value).
LINES_IN_FLIGHT = 96
# Lines of a long row that are prefetched: the hardware prefetchers bring the others (experience value).
ROW_HEAD_LINES = 16
_GOES_ON = (LoopKind.SERIAL, LoopKind.PARALLEL)


def prefetch_gathers(kernel: KernelIR, target: Target) -> KernelIR:
    """Return the kernel with prefetches of what its serial loops gather from buffers that the caches do not hold."""
    last, second, line = target.caches[-1].size // 2, target.cache(2).size, target.caches[0].line
    least = max(second, min(last, target.memory.pages * PAGE))
    large = {b.name: Large(b, bytes_of(b) > last) for b in kernel.buffers if bytes_of(b) > least}
    if not large or not any(isinstance(s, Let) and has_load(s.value) for s in statements(kernel.body)):
        return kernel
    counting = _GatherPrefetcher(large, {}, second // 2, line)
    counting.block(kernel.body)
    prefetches = _GatherPrefetcher(
        large, counting.counts, second // 2, line, 1 if target.prefetch.second_fills_first else 2
    )
    if gathers_rows_into_first(target):
        prefetches.near = frozenset(row for row, size in counting.rows.items() if size > line)
    return replace(kernel, body=prefetches.block(kernel.body)) if counting.counts else kernel


def bytes_of(buffer: Buffer) -> int:
    """Return the bytes of a buffer of constant shape, 0 for another."""
    sizes = [int(s.value.real) if isinstance(s, Const) else 0 for s in buffer.shape]
    return prod(sizes) * buffer.dtype.itemsize


def _with_end(vector: For) -> For:
    """Return a row's last vector with requests for its last lanes, too: where it does not begin at a line it ends in one more."""
    last = {vector.var: Op("sub", (vector.hi, Const(1)))}
    body: list[Stmt] = []
    for s in vector.body:
        body.append(s)
        if isinstance(s, Prefetch) and any(vector.var in names_in(i) for i in s.indices):
            body.append(replace(s, indices=tuple(substitute(i, last) for i in s.indices)))
    return replace(vector, body=tuple(body))


def _then(loops: tuple[For, ...], place: int, distance: int, value: KExpr) -> dict[str, KExpr]:
    """Return the place so many iterations of a loop later, by the loops' variables: after its last one come those of its next run
    if the loop around it moves the value on, too, and no bound inside; else the last one stays.

    No place is beyond those that some iteration has.
    """
    owner, outer = loops[place], loops[place - 1] if place else None
    there, trip = Op("add", (Var(owner.var), Const(distance))), trip_count(owner)
    bounds = {n for p in loops[place:] for e in (p.lo, p.hi) for n in names_in(e)}
    goes_on = outer is not None and outer.kind in _GOES_ON and outer.var in names_in(value) - bounds
    if outer is None or not goes_on or trip is None or trip < distance:
        return {owner.var: Op("minimum", (there, Op("sub", (owner.hi, Const(1)))))}
    past = Op("floordiv", (Op("sub", (there, owner.lo)), Const(trip)))
    following = Op("minimum", (Op("add", (Var(outer.var), past)), Op("sub", (outer.hi, Const(1)))))
    return {owner.var: Op("sub", (there, Op("mul", (past, Const(trip))))), outer.var: following}


class Large(Struct, frozen=True):
    """A buffer whose elements are prefetched."""

    buffer: Buffer
    in_memory: bool


_GatherRow: TypeAlias = tuple[str, tuple[KExpr, ...]]


class _GatherPrefetcher(Struct):
    """Adds the prefetches; `lines`: the elements that an iteration of each loop gathers, by its variable; `counts` counts them;
    `room`: the bytes of a row that the second cache keeps while it is gathered from; `cache`: that which lines are brought into.

    `owners`: of an index variable, how many loops stand around the one whose later iterations it prefetches for, and that one's
    name; `values`: what it stands for. `rows` counts the bytes of each row that an iteration takes, by its buffer and index;
    `near`: those that are brought into the first cache.
    """

    large: Mapping[str, Large]
    lines: Mapping[str, int]
    room: int
    line: int
    cache: int = 1
    counts: dict[str, int] = field(default_factory=dict)
    owners: dict[str, tuple[int, str]] = field(default_factory=dict)
    values: dict[str, KExpr] = field(default_factory=dict)
    rows: dict[_GatherRow, int] = field(default_factory=dict)
    near: frozenset[_GatherRow] = frozenset()

    def block(
        self,
        block: StmtBlock,
        loops: tuple[For, ...] = (),
        later: Mapping[str, Var] | None = None,
        bound: frozenset[str] = frozenset(),
    ) -> StmtBlock:
        """Return a block that runs in every iteration of the serial and vector loops around it.

        `later`: index variables, and those that hold the index of a later iteration; `bound`: what else the loops bind.
        """
        result: list[Stmt] = []
        later = dict(later or {})
        for stmt, after in zip(block, (*block[1:], None), strict=False):
            match stmt:
                case Let(name=name, value=value):
                    result += [*self._prefetches(stmt, loops, later), stmt]
                    if not names_in(value) & bound:
                        result += self._later(name, value, loops, later)
                    bound |= {name}
                case Store():
                    result += [*self._prefetches(stmt, loops, later), stmt]
                case Allocate(body=body):
                    result.append(replace(stmt, body=self.block(body, loops, later, bound)))
                case For(kind=LoopKind.SERIAL | LoopKind.PARALLEL, step=1, body=body):
                    result.append(replace(stmt, body=self.block(body, (*loops, stmt), later, bound)))
                case For(kind=LoopKind.VECTOR, var=var, body=body):
                    vector = replace(stmt, body=self.block(body, (*loops, stmt), later, bound | {var}))
                    goes_on = isinstance(after, For) and after.kind is LoopKind.VECTOR
                    result += [*self._lanes(stmt, loops, later, bound), vector if goes_on else _with_end(vector)]
                case For(kind=LoopKind.STREAM, step=1):
                    result += [*self._heads(stmt, loops, later), stmt]
                case For(kind=LoopKind.UNROLL):  # tiles look nothing up
                    result.append(stmt)
                case _:
                    result.append(with_blocks(stmt, self.block))
        return tuple(result)

    def _heads(self, row: For, loops: tuple[For, ...], later: Mapping[str, Var]) -> list[Stmt]:
        """Return requests for the first lines of what a later iteration's row is gathered from: the rest follows from there."""
        later, found = dict(later), list[Stmt]()
        inside = {row.var, *(s.name for s in row.body if isinstance(s, Let))}
        for s in row.body:
            if isinstance(s, Let) and not names_in(s.value) & inside:
                found += self._later(s.name, s.value, loops, later)
            for asked in self._prefetches(s, loops, later):
                if not isinstance(asked, Prefetch) or row.var not in {n for i in asked.indices for n in names_in(i)}:
                    continue
                elements = self.line // self.large[asked.buffer].buffer.dtype.itemsize
                for k in range(min(ROW_HEAD_LINES, -(-(trip_count(row) or 1) // elements))):
                    at = {row.var: Op("add", (row.lo, Const(k * elements)))}
                    found.append(replace(asked, indices=tuple(substitute(i, at) for i in asked.indices)))
        return found

    def _lanes(
        self, vector: For, loops: tuple[For, ...], later: Mapping[str, Var], bound: frozenset[str]
    ) -> list[Stmt]:
        """Return requests for what a later iteration gathers in each lane of a vector, one lane after another."""
        lane = Var(f"{vector.var}.lane")
        if (trip := trip_count(vector)) is None:
            return []
        lanes = For(lane.name, vector.lo, vector.hi, (), kind=LoopKind.UNROLL, lanes=trip, trip=trip)
        later, asked, own, here = dict(later), list[Stmt](), set[str](), {vector.var: lane}
        for s in vector.body:
            if isinstance(s, Let):
                if vector.var in names_in(s.value) and not names_in(s.value) & bound:
                    found = self._later(s.name, substitute(s.value, here), (*loops, lanes), later)
                    own |= {let.name for let in found}
                    asked += found
                bound |= {s.name}
            for request in self._prefetches(s, (*loops, lanes), later):
                if isinstance(request, Prefetch) and own & {n for i in request.indices for n in names_in(i)}:
                    asked.append(replace(request, indices=tuple(substitute(i, here) for i in request.indices)))
        return [replace(lanes, body=tuple(asked))] if any(isinstance(s, Prefetch) for s in asked) else []

    def _later(self, name: str, value: KExpr, loops: tuple[For, ...], later: dict[str, Var]) -> list[Let]:
        """Return the binding of a later iteration's index, if any, noted in `later`: of one that runs, and reads the index as
        this one does."""
        mine = (n for n in reversed(range(len(loops))) if loops[n].var in names_in(value))
        place = next((n for n in mine if loops[n].kind is not LoopKind.UNROLL), None)
        if place is None or not has_load(value) or value.dtype != i64:
            return []
        owner = loops[place]
        if any(owner.var in names_in(e) for p in loops[place + 1 :] for e in (p.lo, p.hi)):
            return []
        distance = max(2, LINES_IN_FLIGHT // max(1, self.lines.get(owner.var, 1)))
        self.owners[name], self.values[name] = (place, owner.var), value
        later[name] = Var(f"{name}.ahead")
        return [Let(f"{name}.ahead", substitute(value, _then(loops, place, distance, value)))]

    def _prefetches(self, stmt: Stmt, loops: tuple[For, ...], later: Mapping[str, Var]) -> list[Stmt]:
        """Return the prefetches of what later iterations gather with a statement."""
        found: list[Stmt] = []
        for e in loads_in(*expressions(stmt)):
            if e.buffer not in self.large:
                continue
            used = {n for i in e.indices for n in names_in(i)} & set(later)
            indices = (self._next_row(e, loops, used) if used else None) or tuple(
                substitute(i, later) for i in e.indices
            )
            row = e.buffer, tuple(self.values[n] for n in sorted(used))
            prefetches = Prefetch(e.buffer, indices, cache=1 if row in self.near else self.cache)
            lanes = any(p.kind is LoopKind.UNROLL for p in loops)
            rows = not lanes and any(self.lines.get(self.owners[n][1], 1) > 1 for n in used)
            near = rows and not self.large[e.buffer].in_memory
            if used and not near and prefetches not in found:
                found.append(prefetches)
                for place, var in {self.owners[name] for name in used}:
                    trips = prod(
                        trip_count(p) or 1 for p in loops[place + 1 :] if p.kind in (LoopKind.SERIAL, LoopKind.UNROLL)
                    )
                    self.counts[var] = self.counts.get(var, 0) + trips
                    wide = loops[-1].lanes if loops[-1].kind is LoopKind.VECTOR else 1
                    size = 0 if lanes else trips * wide * self.large[e.buffer].buffer.dtype.itemsize
                    self.rows[row] = self.rows.get(row, 0) + size
        return found

    def _next_row(self, load: Load, loops: tuple[For, ...], used: set[str]) -> tuple[KExpr, ...] | None:
        """Return elements of the next row one after another, where each iteration of an outer loop gathers from a row of its own
        that the second cache holds: about all of it will be gathered, and comes sooner so. None elsewhere."""
        gathered = [d for d, i in enumerate(load.indices) if names_in(i) & used]
        owners = {self.owners[name] for name in used}
        if len(gathered) != 1 or len(owners) != 1:
            return None
        ((place, var),), (dimension,) = owners, gathered
        rest = {n for d, i in enumerate(load.indices) if d != dimension for n in names_in(i)}
        outer = next((p for p in reversed(loops[:place]) if p.var in rest), None)
        buffer = self.large[load.buffer].buffer
        row, stride = buffer.shape[dimension], buffer.strides[dimension]
        if outer is None or not isinstance(row, Const) or not isinstance(stride, Const):
            return None
        elements = int(row.value.real)
        if (
            elements * int(stride.value.real) * buffer.dtype.itemsize > self.room
            or 2 * (trip_count(loops[place]) or 0) < elements
        ):
            return None
        following = Op("add", (Var(outer.var), Const(outer.step)))
        indices = [substitute(i, {outer.var: following}) for i in load.indices]
        indices[dimension] = Op("sub", (Var(var), loops[place].lo))
        return tuple(indices)
