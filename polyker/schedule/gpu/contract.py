"""Tile contractions for a GPU: a block's tile, a thread's elements, and the terms on chip at once.

    block.y: block.x:
        with acc for each thread:
            thread.y: thread.x: acc = 0
            for k.block:
                with tiles of A and B, shared:
                    thread.y: thread.x: copy A's;  thread.y: thread.x: copy B's
                    thread.y: thread.x: for k: unroll i: unroll j: acc += A * B
            thread.y: thread.x: store

An index of the result is a column's if the operand that lies along the result's rows moves with it, a row's if the other one
does; further ones are those of a batch. Tiles at the border are computed whole: a copy has a 0 where there is no element, and
what comes of it is not stored; so threads test nothing, whatever the reduction.
"""

from __future__ import annotations

from itertools import product
from math import prod

from msgspec import Struct

from polyker.cost.measure import MeasuredStatement
from polyker.cost.table import GPU_COPY, GPU_ITERATION, GPU_LATENCY, GPU_LAUNCH, GPU_READ, GPU_STALL
from polyker.ir.expr import Expr, Read
from polyker.ir.quasi_affine import coefficients, floordiv
from polyker.machine.model import Gpu
from polyker.poly.isl import read_set
from polyker.rewrite.materialise.pack_run import Tile, box_of
from polyker.schedule.nests.nest import offset
from polyker.structs import replace

# Threads along x and y, and elements of each along them that are tried, of 32 bits; of wider ones there are fewer
# (chosen: 8 by 8 elements and 16 by 16 threads are what registers hold).
BLOCK_SIDE_THREADS = 16
THREAD_ELEMENTS = (8, 4, 2)
# Terms on chip at once, about (experience value); blocks of a multiprocessor for which shared memory has to suffice, as registers
# do.
TERMS_ON_CHIP = 16
MIN_RESIDENT_BLOCKS = 2
# Parts of a multiprocessor that issue instructions (CUDA C++ Programming Guide); most steps on chip (experience value).
SCHEDULERS, MAX_STAGES = 4, 4
# Registers of a thread beside its elements and what it multiplies (experience value), and the most that two blocks of 256 threads
# leave it of a multiprocessor's 65,536.
OTHER_REGISTERS, MAX_REGISTERS = 40, 128
# Greatest share of the cycles of a whole sum that one in runs may take, as both are estimates (chosen).
MAX_CYCLES_SHARE = 0.7
# Numbers of runs that are tried, and of blocks to each multiprocessor that others come to (chosen).
RUN_COUNTS, BLOCKS_PER_MULTIPROCESSOR = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512), range(1, 9)
# Least extents of a row or column, and of the reduction, for which tiles are on chip (experience values).
MIN_TILED_EXTENT, MIN_TILED_TERMS = 16, 8
# Where there are this many times fewer blocks than multiprocessors, each with more terms than this, threads share the terms
# (experience values).
BLOCK_SHORTAGE, MIN_SHARED_TERMS = 4, 1024
# Values that an index of unknown extent is taken to have: at least, and for each that other schedules take it to have (chosen).
UNKNOWN_EXTENT, UNKNOWN_EXTENT_FACTOR = 64, 4


class Side(Struct, frozen=True):
    """An index of the result that threads share: `threads` along its axis, each with `elements` neighbours."""

    iterator: str
    threads: int
    elements: int

    @property
    def size(self) -> int:
        """Values of the index in one block."""
        return self.threads * self.elements


class ContractionTiling(Struct, frozen=True):
    """What is chosen: the column's index on x, the row's on y, the batch's on blocks alone, and the terms of a step.

    `terms`: (reduced iterator, values of it that are on chip at once or None for all), the outermost first. `stages`: steps whose
    terms are on chip: those of the one that is summed, and of the next ones, which are copied meanwhile. `later`: threads need
    not wait for these copies before.
    """

    column: Side
    row: Side
    batch: tuple[str, ...]
    terms: tuple[tuple[str, int | None], ...]
    origin: dict[str, int]
    extents: dict[str, int]
    stages: int = 1
    later: bool = False

    def tiles(self) -> dict[str, Tile]:
        """Return what a block holds of each iterator in one step."""
        sizes: dict[str, int | None] = {s.iterator: s.size for s in (self.column, self.row)}
        sizes |= dict.fromkeys(self.batch, 1) | dict(self.terms)
        return {
            i: Tile(None, self.extents[i], self.origin[i]) if n is None else Tile(self.time(i, n), n, self.origin[i])
            for i, n in sizes.items()
        }

    def time(self, iterator: str, size: int) -> Expr:
        """Return the number of the tile that an iterator is in."""
        return floordiv(offset(iterator, self.origin[iterator]), size)

    def __str__(self) -> str:
        (c, r) = self.column, self.row
        on_chip = ", ".join(i if n is None else f"{n} of {i}" for i, n in self.terms)
        return (
            f"blocks of {r.size} {r.iterator} x {c.size} {c.iterator}, "
            f"{r.elements} x {c.elements} elements a thread in registers, operands shared for {on_chip}"
            + (f", {self.stages} steps in turn" if self.stages > 1 else "")
        )


class Runs(Struct, frozen=True):
    """A sum is cut along a reduced iterator into `count` runs of `run` neighbouring values, each of blocks of its own."""

    along: str
    count: int
    run: int


class _Candidate(Struct, frozen=True):
    """Tiles that fit: how many blocks they make, and what a term costs a thread."""

    chosen: ContractionTiling
    count: int
    effort: float
    resident: int  # blocks at once on a multiprocessor

    def cycles(self, terms: int, runs: int, gpu: Gpu) -> float:
        """Return about how many cycles all blocks take of which each has so many terms: by waves of those that are resident.

        A multiprocessor issues what its blocks have to do one after another; where these are few, it waits for their reads.
        """
        warps = self.chosen.row.threads * self.chosen.column.threads / (gpu.warp * SCHEDULERS)

        def wave(blocks: int) -> float:
            return terms * max(blocks * warps * self.effort, self.effort + GPU_STALL) + GPU_LATENCY if blocks else 0.0

        full, last = divmod(-(-self.count * runs // gpu.processors), self.resident)
        return full * wave(self.resident) + wave(last)


def choose_contraction(
    measured: MeasuredStatement, kept: tuple[str, ...], gpu: Gpu, *, started: bool
) -> ContractionTiling | None:
    """Return the tiles of a reduction whose kept iterators tell its elements apart; None where on-chip tiles do not pay.

    `started`: it starts all elements of the result, from 0 on, those too that have no terms.
    """
    terms = prod(_extent(measured, i) for i in measured.statement.reduced)
    found = [
        (c.cycles(terms, 1, gpu), n, c.chosen)
        for n, c in enumerate(_candidates(measured, kept, gpu, started=started))
        if BLOCK_SHORTAGE * c.count >= gpu.processors or terms <= MIN_SHARED_TERMS
    ]
    return min(found, key=lambda f: f[:2])[2] if found else None


def choose_runs(measured: MeasuredStatement, kept: tuple[str, ...], gpu: Gpu) -> Runs | None:
    """Return how a sum of products is cut so that its tiles are enough blocks for the GPU; None where it had better stay whole.

    What the runs come to lies in memory, where another launch adds it up: it is written and read once.
    """
    statement = measured.statement
    if any(measured.bounds[i][1] is None for i in statement.iterators) or not read_set(statement.domain).is_box():
        return None
    terms = prod(_extent(measured, i) for i in statement.reduced)
    elements = prod(_extent(measured, i) for i in kept) * statement.acc.itemsize
    best: tuple[float, Runs | None] = (float("inf"), None)
    for c in _candidates(measured, kept, gpu, started=False):
        along, part = max(c.chosen.terms, key=lambda t: c.chosen.extents[t[0]])
        extent = c.chosen.extents[along]
        for most in sorted({*RUN_COUNTS, *(n * gpu.processors // c.count for n in BLOCKS_PER_MULTIPROCESSOR)} - {0}):
            run = -(-extent // (most * (part or 1))) * (part or 1)
            count = -(-extent // run)
            cycles = c.cycles(terms // extent * run, count, gpu)
            if count > 1:
                cycles = (cycles + GPU_LAUNCH + 2 * count * elements / gpu.bandwidth * gpu.clock) / MAX_CYCLES_SHARE
            if cycles < best[0]:
                best = cycles, Runs(along, count, run) if count > 1 else None
    return best[1]


def _candidates(measured: MeasuredStatement, kept: tuple[str, ...], gpu: Gpu, *, started: bool) -> list[_Candidate]:
    """Return the tiles that fit of a reduction, none where it has not the form of a product."""
    statement = measured.statement
    reads = [a for a in measured.accesses if not a.is_write]
    plain = all(a.read is not None and _is_plain(a.read) for a in reads)
    if statement.outer or statement.in_order or len(reads) < 2 or not plain:
        return []
    if not all(any(a.stride(i) for i in statement.reduced) for a in reads):
        return []
    sides = _sides(measured, kept)
    held = prod(_extent(measured, i) for i in statement.reduced)
    if sides is None or held < MIN_TILED_TERMS:
        return []
    column, row = sides
    batch = tuple(i for i in kept if i not in sides)
    origin = {i: measured.lo(i) for i in statement.iterators}
    extents = {i: _extent(measured, i) for i in statement.iterators}
    if started:
        extents |= {i: origin[i] + extents[i] for i in kept}
        origin |= dict.fromkeys(kept, 0)
    wide = max(1, max(a.itemsize for a in measured.accesses) // 4)
    registers = max(wide, statement.acc.itemsize // 4)  # of an element
    terms = _terms(measured, TERMS_ON_CHIP // wide)
    blocks = prod(_extent(measured, i) for i in batch)
    # A wait leaves out the copies of the iterations between a copy and its use: with two stages there are none. With more, each
    # block has to have so many steps.
    known = all(measured.bounds[i][1] is not None for i in statement.reduced)
    most = MAX_STAGES if known and read_set(statement.domain).is_box() else 2
    found: list[_Candidate] = []
    for high, across in product(THREAD_ELEMENTS, THREAD_ELEMENTS):
        chosen = ContractionTiling(
            Side(column, BLOCK_SIDE_THREADS, across), Side(row, BLOCK_SIDE_THREADS, high), batch, terms, origin, extents
        )
        boxes = [(box_of(a.read, chosen.tiles()), a.itemsize) for a in reads if a.read is not None]
        if any(b is None for b, _ in boxes) or high * across * registers > THREAD_ELEMENTS[0] ** 2:
            continue
        shared = sum(prod(b) * size for b, size in boxes if b is not None)
        if shared > gpu.shared // MIN_RESIDENT_BLOCKS:
            continue
        count = blocks * prod(-(-extents[s.iterator] // s.size) for s in (chosen.row, chosen.column))
        at_once = max(1, 4 // wide)
        loads = -(-high // at_once) - (-across // at_once)
        effort = high * across + GPU_ITERATION + GPU_READ * loads + GPU_COPY * (high + across)
        chosen = replace(chosen, stages=min(most, _stages(chosen, effort, shared, gpu)), later=gpu.copies_later)
        used = min(MAX_REGISTERS, registers * (high * across + high + across) + OTHER_REGISTERS)
        resident = gpu.resident_blocks(BLOCK_SIDE_THREADS * BLOCK_SIDE_THREADS, used, shared * chosen.stages)
        found.append(_Candidate(chosen, count, effort, max(1, resident)))
    return found


def _stages(chosen: ContractionTiling, effort: float, shared: int, gpu: Gpu) -> int:
    """Return how many steps' terms are on chip: enough that a copy is there when its step begins, if there is room for them.

    `effort`: of a term in a thread; `shared`: bytes of a step.
    """
    terms = prod(chosen.extents[i] if n is None else n for i, n in chosen.terms)
    step = next((-(-chosen.extents[i] // n) for i, n in reversed(chosen.terms) if n is not None), 1)
    cycles = terms * effort * chosen.row.threads * chosen.column.threads / (gpu.warp * SCHEDULERS)
    return max(
        1, min(1 + -(-GPU_LATENCY // int(cycles)), MAX_STAGES, step, gpu.shared // MIN_RESIDENT_BLOCKS // shared)
    )


def _extent(measured: MeasuredStatement, iterator: str) -> int:
    """Return the number of an iterator's values; unknown ones are taken to be many."""
    known = measured.bounds[iterator][1]
    return max(UNKNOWN_EXTENT, UNKNOWN_EXTENT_FACTOR * measured.extent(iterator)) if known is None else known


def _is_plain(read: Read) -> bool:
    padded = read.pad is not None and read.pad.mode != "constant"
    return not padded and all(coefficients(s) is not None for s in read.subscripts) and bool(read.subscripts)


def _sides(measured: MeasuredStatement, kept: tuple[str, ...]) -> tuple[str, str] | None:
    """Return the column's index and the row's: of two long ones that different operands move with, the first contiguous."""
    reads = [a for a in measured.accesses if not a.is_write]
    write = measured.write
    pairs = []
    for c, r in product(kept, kept):
        separate = any(a.stride(r) and not a.stride(c) for a in reads) and any(
            a.stride(c) and not a.stride(r) for a in reads
        )
        wide, high = _extent(measured, c), _extent(measured, r)
        if separate and min(wide, high) >= MIN_TILED_EXTENT:
            pairs.append((abs(write.stride(c)) == 1, wide, high, c, r))
    if not pairs:
        return None
    best = max(pairs, key=lambda p: (p[0], min(p[1], p[2]), p[1]))
    return best[3], best[4]


def _terms(measured: MeasuredStatement, depth: int) -> tuple[tuple[str, int | None], ...]:
    """Return how much of each reduced iterator is on chip at once, the nearest in memory innermost: all, then part of one."""
    reads = [a for a in measured.accesses if not a.is_write]
    reduced = measured.statement.reduced

    def nearest(i: str) -> int:
        return min((abs(a.stride(i)) for a in reads if a.stride(i)), default=1 << 30)

    found: list[tuple[str, int | None]] = []
    held = 1
    for i in sorted(reduced, key=lambda i: (nearest(i), -reduced.index(i))):
        extent = measured.bounds[i][1]
        if extent is not None and held * extent <= depth:
            found.append((i, None))
            held *= extent
        else:
            size = max(1, round(depth / held))
            found.append((i, size))
            held *= size
    return tuple(reversed(found))
