"""What a register tile costs.

The model counts, for one step of the innermost reduction loop, what each access costs the load ports and what the arithmetic
costs the floating-point ports, and takes the larger; tiles that the end of an extent cuts are counted as what they are. It
knows strides, extents and the Target; no operator has a case.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import combinations
from math import ceil, gcd, inf, log2, prod

from polyker.cost import table
from polyker.cost.access_cost import access_cost, rows_longer
from polyker.cost.measure import MeasuredStatement, MemoryAccess
from polyker.cost.memory import beyond, fresh, is_one_row_faster, rows_at_once
from polyker.cost.operation_cost import arithmetic, takes_pairs
from polyker.cost.plan import TilePlan, bare_target, can_pack, unit_iterator, vector_lanes
from polyker.cost.tile_reads import TileRead, is_whole_lines, panel_of, passes_once
from polyker.ir.quasi_affine import is_quasi_affine
from polyker.machine.model import LANE_BYTES, PAGE, Target
from polyker.structs import replace

# How many times as long a vector takes from the second cache as from the first (experience value).
SECOND_CACHE_FACTOR = 1.3
# How many times as long a copy takes of what vectors along the reduction read once, from memory (experience value).
MEMORY_COPY_FACTOR = 3.0
# Cycles of a store besides where the tile's next rows lie in other pages (experience value).
FAR_STORE_CYCLES = 1.5
# Cycles of a vector's store besides where it lies across the rows of a result in memory: parts of many lines (fitted to TCCG's
# CCSD(T) in odd sizes).
PARTIAL_LINE_CYCLES = 5.0
# Cycles that a row takes each step whose line the other rows have evicted from the first cache (experience value).
SET_CONFLICT_CYCLES = 1.0
# Share by which it takes longer to fetch rows that run along the reduction, and whose lines evict each other (measured: of a
# 4096-square matrix in f64 six rows at a time take 0.9 of the time of thirteen).
SET_CONFLICT_DELAY = 0.15
# Cycles to fetch a line for a single element, where it is gone before its next element's turn (experience value).
LONE_ELEMENT_CYCLES = 12.0
# Sizes of an unrolled loop, and numbers of vectors along the vector iterator, that are tried (chosen).
UNROLLED_SIZES, VECTOR_COUNTS = (2, 3, 4, 5, 6, 7, 8, 10, 12, 13, 14), (1, 2, 3, 4, 6, 8)
# Cycles of a vector besides of several rows that are read at once, each element but once, from beyond the first cache: one after
# the other they come sooner (experience value).
SEVERAL_ROWS_CYCLES = 0.15
# Share by which it takes longer to fetch an operand from memory by vectors of several rows (experience value).
SEVERAL_ROWS_DELAY = 0.6
# The same by pieces of rows: from beyond the second cache, and from memory where pieces lie so many bytes apart that they are no
# neighbours; each for as many pieces as the hardware follows, and for more of them (experience values).
PIECES_DELAYS, FAR_PIECES_DELAYS, MIN_FAR_STRIDE_BYTES, MAX_FEW_PIECES = (0.35, 1.3), (2.0, 3.0), 128, 16
# How many times as long it takes to transpose more pieces than these from memory; and from beyond the first cache, each once,
# where one row after another comes sooner than several side by side (measured on znver4, of floats: 20000 x 64 by 8 columns).
MEMORY_PIECES_FACTOR, FAR_PIECES_FACTOR = 1.5, 1.75
# Least tiles along an iterator of unknown extent for the last one to be cut without much loss (chosen).
MIN_CUT_TILES = 16
# The part of the registers that masks take where sizes are unknown: one in so many (chosen).
MASK_REGISTERS_DIVISOR = 5
# Least terms of a block (chosen).
MIN_BLOCK_TERMS = 64
# Most iterators that are tried as unrolled ones (chosen; bounds the search).
MAX_UNROLLED_ITERATORS = 4


class TileCosts:
    """The tiles of one statement with one vector iterator; `may_pack`: an operand may be copied for it."""

    def __init__(
        self, measured: MeasuredStatement, vector: str, reduced: tuple[str, ...], target: Target, *, may_pack: bool
    ) -> None:
        self.may_pack = may_pack
        self.measured, self.vector, self.target = measured, vector, target
        self.reduces, self.folds = bool(reduced), vector in reduced
        self.extent = {i: measured.extent(i) for i in measured.bounds}
        most = 1 << max(0, self.extent[vector] - 1).bit_length()
        lanes = vector_lanes(measured, target, vector)
        self.width = min(lanes, max(2, most))
        # Terms whose operands are held at once, registers for the tests of them for NaN, and those that a vector takes: a complex
        # one's real and imaginary parts have one each.
        self.together, self.tested = (2, 2) if takes_pairs(measured, target) else (1, 0)
        self.parts = 2 if measured.statement.acc.is_complex else 1
        self.total = measured.points
        self.terms = prod(measured.extent(r) for r in measured.statement.reduced) if self.reduces else 1
        self.arithmetic = arithmetic(measured, target)
        self.part = self._part(lanes)
        self.arithmetic = replace(self.arithmetic, rate=self.arithmetic.rate / self.part)
        self.expected = all(measured.expected(i) is not None for i in measured.bounds)
        # Tiles of unknown shape are masked: what the masks are made from is in registers all the time.
        masks = 0 if self.expected else target.vector_registers // MASK_REGISTERS_DIVISOR
        self.registers = target.vector_registers - masks
        self.latency = float(target.fma_latency) * self.parts * self.part if self.reduces else 0.0
        self.folding = table.FOLD * log2(self.width) / max(1.0, self.terms / self.width) if self.folds else 0.0
        self.write = measured.write
        self.across = self._across(reduced)
        self.reads = [
            self._read(a) for a in measured.accesses if a.read is not None and (a.strides or not self.reduces)
        ]
        self.result = measured.footprint(self.write) * self.write.itemsize  # bytes
        self.from_second = beyond(target, target.cache(2).size // 2)  # cycles a byte
        self.scattered = self.result > target.cache(2).size
        # What it costs to write a vector of the result once more, and to read it again.
        self.again = 2 * (table.LOAD + self.width * self.write.itemsize * beyond(target, self.result))
        self.store, self.packs_result = self._store()
        self.known: dict[tuple[int, tuple[tuple[str, int], ...]], float] = {}
        self.stored = cache(self._stored)

    def _part(self, lanes: int) -> float:
        """Return the part that a vector takes of what one of all lanes does.

        Where these are double-pumped one of half the width, or less, takes half, and of what moves to the pipes of multiply-adds
        (polyker.codegen.passes.x86.balance_ports) one that fills the first quarter of a register.
        """
        if not self.target.double_pumped or 2 * self.width > lanes or lanes < vector_lanes(self.measured, self.target):
            return 1.0
        size = min(self.width, self.extent[self.vector]) * self.measured.statement.acc.itemsize
        return 1.0 if self.arithmetic.multiplies is not None and size < LANE_BYTES else 0.5

    def _read(self, access: MemoryAccess) -> TileRead:
        read, vector, width = access.read, self.vector, self.width
        assert read is not None
        one = access_cost(access, vector, width, self.target)
        if access.stride(vector) == 1 or (not access.stride(vector) and not self._is_far(access)):
            one *= self.part  # what waits for its lines is no sooner there
        if self.parts > 1:  # both parts of an element are broadcast, or those of a vector's elements sorted
            one = self.parts * one if not access.stride(vector) else one + self.parts * table.SHUFFLE
        unit = unit_iterator(self.measured, access, vector)
        across, columns, shuffles = unit is not None, 1, 0.0
        if across and not self.reduces:
            one = min(one, table.TRANSPOSE * width)
        elif across and self.across is not None and unit == self.across[0]:
            columns = self.across[1]
            shuffles = self.target.vector_bytes / LANE_BYTES - 1 + log2(columns)
            one = (table.TRANSPOSE_PIECE + table.READ_PIECE / columns) * width + self.arithmetic.taken(shuffles)
        near = table.LOAD * max(self.part, width * access.itemsize / 64)
        blocked = self.reduces and self.may_pack and self.measured.invariant is None
        if blocked and not self.folds and access.stride(vector) == 1 and self._is_far(access):
            one = near  # it is copied by blocks, each vector in a line of its own
        copying = None
        # Without a reduction a copy is made again in each iteration of the loops around.
        outer = () if self.reduces else self.measured.statement.iterators[: self.measured.statement.outer]
        elements = prod(self.measured.extent(i) for i in {*access.strides, *outer})
        free = self.may_pack and self.measured.may_copy(access) and access.stride(vector) not in (0, 1)
        if free and access.joined == 1 and 0 < 4 * elements <= self.total and can_pack(read, vector):
            # Along a term it is copied whole, through memory; else by blocks.
            copying = (
                (table.COPY_TRANSPOSED if across else table.COPY_ALONE)
                * elements
                * (MEMORY_COPY_FACTOR if self.folds else 1.0)
            )
            if self.reduces and self.measured.invariant is not None:  # it is copied whole, before the common loops
                copying += 2 * elements * access.itemsize * beyond(self.target, elements * access.itemsize)
        panel = 0
        if self.reduces and access.stride(vector):
            held = {i: 1 for i in access.strides if i not in self.measured.statement.reduced}
            held |= {} if self.folds else {vector: width}
            panel = self.measured.footprint(access, held) * access.itemsize
        blocks = self.reduces and not self.folds
        whole = self.measured.footprint(access) * access.itemsize
        far = self.reduces and self._is_far(access)
        fetched = whole * (table.LOAD / 64 + beyond(self.target, whole)) if far else 0.0
        outside = whole > self.target.caches[0].size
        return TileRead(
            access,
            one,
            bool(access.stride(vector)),
            near,
            copying,
            panel,
            panel_of(self.measured, access, vector, width, self.target) if blocks and copying is None else None,
            outside and is_one_row_faster(self.target) and read.dtype is not None and read.dtype.kind == "f",
            outside and self.folds and self.measured.is_read_once(access),
            fetched,
            self.target.from_memory(whole) and all(map(is_quasi_affine, read.subscripts)),
            columns,
            self._lone(access),
            self.target.double_pumped and not self.folds and self._slides(access),
            shuffles,
            not access.stride(vector) and read in self.arithmetic.in_memory,
        )

    def _slides(self, access: MemoryAccess) -> bool:
        """Whether vectors of an operand are windows that a reduction iteration moves by one element."""
        terms = self.measured.statement.reduced
        return access.stride(self.vector) == 1 and any(abs(access.stride(r)) == 1 for r in terms)

    def _lone(self, access: MemoryAccess) -> str | None:
        """Return the iterator an operand is contiguous along if the second cache does not keep its lines for the next tile."""
        unit = next((i for i in access.strides if abs(access.stride(i)) == 1), None)
        if unit is None or unit == self.vector or unit in self.measured.statement.reduced or not self._is_far(access):
            return None
        second = self.target.caches[min(1, len(self.target.caches) - 1)]
        terms = [r for r in self.measured.statement.reduced if access.stride(r)]
        stay = all(second.holds_rows(self.measured.extent(r), abs(access.stride(r)) * access.itemsize) for r in terms)
        return None if stay else unit

    def _across(self, reduced: tuple[str, ...]) -> tuple[str, int] | None:
        """Return the terms along which reads that stride over the vector are contiguous, with those in a piece of a row."""
        if self.folds:
            return None
        for a in self.measured.accesses:
            unit = unit_iterator(self.measured, a, self.vector)
            if unit in reduced and unit is not None and self.measured.bounds[unit][0] == 0:
                return unit, max(1, LANE_BYTES // a.itemsize)
        return None

    def _store(self) -> tuple[float, bool]:
        """Return what one vector of the result costs, and whether it is written to another layout first."""
        if self.folds:
            return 0.0, False
        store = access_cost(self.write, self.vector, self.width, self.target)
        free = [i for i in self.measured.bounds if i != self.vector and i not in self.measured.statement.reduced]
        along = any(
            abs(self.write.stride(i)) == 1 and self.measured.extent(i) * self.write.itemsize >= LANE_BYTES for i in free
        )
        copying = (table.COPY_TRANSPOSED if along else table.COPY_ALONE) * self.width + self.again
        copying += self.width * self.write.itemsize * fresh(self.result)
        far = self.write.stride(self.vector) not in (0, 1) and store > copying
        whole = self.measured.invariant is None and not self.measured.statement.outer
        if far and whole and self.reduces and self.may_pack and bare_target(self.measured):
            return copying, True
        return store, False

    def _written(self, others: tuple[tuple[str, int], ...]) -> str | None:
        """Return the unrolled iterator along which the result is contiguous, where it is not along the vector."""
        if self.folds or abs(self.write.stride(self.vector)) == 1:
            return None
        fits = (i for i, s in others if 16 <= s * self.write.itemsize <= self.target.vector_bytes)
        return next((i for i in fits if self.write.stride(i) == 1), None)

    def candidates(self, free: Sequence[str]) -> Iterator[tuple[int, tuple[tuple[str, int], ...]]]:
        """Yield (vectors, unrolled iterators with their sizes) of the tiles that the registers hold."""
        most = max(1, ceil(self.measured.extent(self.vector) / self.width))
        room = self.registers // self.parts - 3
        # As many as a short row has: it is read from end to end, and not in two pieces that are far from each other's next ones.
        whole = most <= room and not self.folds and self.measured.is_exact(self.vector)
        row = most if whole else min(most, VECTOR_COUNTS[-1])
        for chunks in sorted({*VECTOR_COUNTS, row}):
            if chunks > most or (not self.reduces and chunks > 4):
                continue
            yield chunks, ()
            if not self.reduces:
                continue
            others = self._others(free)
            for i in others:
                for a in self._sizes(i):
                    if chunks * a <= room:
                        yield chunks, ((i, a),)
            for i, j in combinations(others, 2):
                if self.measured.bordered.issuperset((i, j)):
                    continue
                for a in self._sizes(i):
                    for b in self._sizes(j):
                        if chunks * a * b > room:
                            break
                        yield chunks, ((i, a), (j, b))

    def _others(self, free: Sequence[str]) -> list[str]:
        """Return the iterators to unroll: of many, those that leave some read in place, and write close together."""
        others = [i for i in free if i != self.vector and self.measured.extent(i) > 1]
        if self.vector in self.measured.bordered:
            # A corner of such a tile would have its own results for each pair of terms.
            others = [i for i in others if i not in self.measured.bordered]
        if len(others) > MAX_UNROLLED_ITERATORS:
            ranked = sorted(
                others, key=lambda i: (all(r.access.stride(i) for r in self.reads), abs(self.write.stride(i)))
            )
            others = [i for i in others if i in ranked[:MAX_UNROLLED_ITERATORS]]
        return others

    def _sizes(self, iterator: str) -> list[int]:
        if self.measured.is_exact(iterator):
            return [s for s in UNROLLED_SIZES if s <= self.extent[iterator]]
        # Sizes in use are multiples of small powers of two, if of anything. Of many tiles a cut one matters little.
        many = (self.measured.expected(iterator) or 0) // MIN_CUT_TILES
        return [s for s in UNROLLED_SIZES if s & (s - 1) == 0 or s <= many]

    def cost(self, chunks: int, others: tuple[tuple[str, int], ...], limit: float = inf) -> float:
        """Return the cycles for one point of the iteration domain, cut tiles and copies included; of one that costs more than
        `limit`, a part of them that is more, too."""
        least = self._least(chunks, others)
        if least > limit:
            return least
        whole = [(self.vector, chunks), *others]
        total = 0.0
        points = max(1, prod(self.extent[i] for i, _ in whole))
        shapes: list[tuple[int, list[int]]] = [(1, [])]
        for iterator, size in whole:
            extent = self.extent[iterator]
            count = -(-extent // self.width) if iterator == self.vector else extent
            pieces = [(count // size, size), (1, count % size)]
            if self.measured.bounds[iterator][1] is None and count % size:
                pieces[1] = (1, size)  # what a size cuts is computed whole
            shapes = [(n * k, [*sizes, s]) for n, sizes in shapes for k, s in pieces if k and s]
        for count, sizes in shapes:
            rest = tuple((i, s) for (i, _), s in zip(others, sizes[1:], strict=True))
            total += count * self._cycles(sizes[0], rest)
            if total > limit * points:
                break
        return total / points

    def _least(self, chunks: int, others: tuple[tuple[str, int], ...]) -> float:
        """Return cycles for one point that no tile of these sizes takes less than: those of arithmetic and loads alone."""
        vectors, loads = chunks, 0.0
        for _, s in others:
            vectors *= s
        for r in self.reads:
            one = r.vectors(chunks, others)
            loads += one if r.copying is None else min(one, r.copies(chunks, others) * r.near)
        return self._step(self.arithmetic.cycles(vectors), loads, inside=loads) / (vectors * self.width)

    def _step(
        self, arithmetic: float, loads: float, folding: float = 0.0, streamed: float = 0.0, inside: float = 0.0
    ) -> float:
        """Return the cycles of one step: the port that has most to do decides, or memory; the other one's work delays it.

        `inside`: those of the loads that are part of the arithmetic's instructions.
        """
        most = max(max(arithmetic, loads, self.latency) + folding, streamed)
        return most + 0.15 * min(arithmetic, loads - inside) + table.ITERATION / 2

    def _stays(self, read: TileRead, chunks: int) -> bool:
        """Whether a vector that a read has along the reduction is the same in every tile: one step has all of them."""
        return self.folds and chunks * self.width >= self.terms and set(read.access.strides) == {self.vector}

    def _cycles(self, chunks: int, others: tuple[tuple[str, int], ...]) -> float:
        """Return the cycles of one step of a tile."""
        key = chunks, others
        if key in self.known:
            return self.known[key]
        vectors = chunks * prod(s for _, s in others)
        held, transposed, loads, copies_made = [0], 0, 0.0, 0.0
        steps = max(1.0, self.total / (vectors * self.width))
        again, streamed, near, tile = self._from_second(others), 0.0, 0.0, dict(others)
        shuffles = inside = 0.0  # instructions that broadcast or transpose operands, loads that are part of others
        for r in self.reads:
            copies = r.copies(chunks, others)
            held.append(copies)
            if self._stays(r, chunks):
                continue
            cost = r.vectors(chunks, others)
            by_rows, many = r.columns > 1, copies * self.width > MAX_FEW_PIECES
            if by_rows and many:
                alone = r.conflicts and passes_once(self.measured, r.access, self.vector, others)
                cost *= FAR_PIECES_FACTOR if alone else MEMORY_PIECES_FACTOR if r.memory else 1.0
            if r.copying is not None and copies * r.near + r.copying / steps < cost:
                cost, copies_made, by_rows = copies * r.near, copies_made + r.copying / steps, False
            transposed += copies * r.columns * by_rows
            in_memory = r.in_memory and copies == vectors
            shuffles += copies * (r.shuffles if by_rows else not r.moves and not in_memory)
            inside += cost * in_memory
            if r in again or (not self.folds and 2 * chunks * r.panel > self.target.caches[0].size):
                cost *= SECOND_CACHE_FACTOR
            several = any(map(r.access.strides.get, tile))
            if r.streams and several:
                cost += SEVERAL_ROWS_CYCLES * copies
            if r.fetched:
                longer = self._longer(r, others, copies // chunks, several) if not by_rows else self._pieces(r)[many]
                streamed += r.fetched / steps * (1.0 + longer)
            if r.again is not None and not by_rows:
                near += r.again.cycles(copies, others, self.measured, self.target)
            if r in again:
                streamed += copies * self.width * r.access.itemsize * self.from_second
            if r.lone is not None and tile.get(r.lone, 1) == 1:
                cost += LONE_ELEMENT_CYCLES * copies
            loads += cost + self._set_conflicts(
                r.access, ((self.vector, chunks * self.width), *others) if by_rows else others
            )
            if by_rows:
                held[-1] = 0
        arithmetic = self.arithmetic.cycles(vectors, shuffles)
        rows = vectors // chunks
        folding = self.folding * (rows + 1) * chunks
        cycles = self._step(arithmetic, loads, folding, max(streamed, near), inside)
        store, _ = self.stored(others)
        if self.folds and self.scattered and not any(abs(self.write.stride(i)) == 1 for i, _ in others):
            # Each result is alone in a line that is fetched and written back.
            store += 2 * self.target.memory.random_line
        store += (self._passes(others) - 1) * self.again
        cycles += vectors * store / max(1.0, self.terms / (self.width if self.folds else 1)) + copies_made
        if self.reduces:
            # All the operands of a step but those of one read are held, these pass one by one; and a value on its way.
            operands = self.together * (sum(held) - max(held) + 1)
            registers = self.parts * (vectors + transposed + operands) + (self.arithmetic.operations > 1) + self.tested
            cycles += table.SPILL * max(0, registers - self.registers)
        self.known[key] = cycles
        return cycles

    def _longer(self, read: TileRead, others: tuple[tuple[str, int], ...], rows: int, several: bool) -> float:
        """Return by what share of its time a read of vectors streams longer than one row after another."""
        if not self.folds:
            return SEVERAL_ROWS_DELAY * (several and read.memory)
        longer = rows_longer(rows, read.memory and self.measured.invariant is None, self.target)
        return longer + SET_CONFLICT_DELAY * (self._rows(read.access, others) is not None)

    def _pieces(self, read: TileRead) -> tuple[float, float]:
        """Return the same for a read of rows' pieces that are transposed: of few rows, and of many."""
        lines = read.memory and abs(read.access.stride(self.vector)) * read.access.itemsize >= MIN_FAR_STRIDE_BYTES
        return FAR_PIECES_DELAYS if lines else PIECES_DELAYS

    def _from_second(self, others: tuple[tuple[str, int], ...]) -> list[TileRead]:
        """Return the reads that tiles whose vectors run along the reduction make again, but not from the first cache.

        Whole rows of these operands pass. What the innermost loop over tiles leaves in place waits for one tile, what it moves
        for all of that loop. What is read once comes from where it lies, and passes the first cache, too, while the others wait;
        where several rows come sooner than one (`rows_at_once`) the loads of all of them are on their way together.
        """
        if not self.folds:
            return []
        rows = [r for r in self.reads if r.moves and not self.measured.is_read_once(r.access)]
        if not rows:
            return []
        tile, kept = dict(others), [i for i in self.measured.bounds if i not in self.measured.statement.reduced]
        tiles = {i: ceil(self.measured.extent(i) / tile.get(i, 1)) for i in kept}
        panels = [r.panel * prod(tile.get(i, 1) for i in kept if r.access.stride(i)) for r in rows]
        waits = rows_at_once(self.target) == 1 or all(tile.get(i, 1) == 1 for i in kept)
        passing = sum(r.panel for r in self.reads if r.moves and r not in rows) if waits else 0

        def moved(iterator: str) -> int:
            return sum(p for r, p in zip(rows, panels, strict=True) if r.access.stride(iterator))

        loops = [i for i in kept if tiles[i] > 1]
        inner = min(loops, key=moved, default=None)
        one, room = sum(panels) + passing, self.target.caches[0].usable
        sweep = one + moved(inner) * (tiles[inner] - 1) if inner is not None else one
        return [
            r
            for r in rows
            if any(not r.access.stride(i) for i in loops)
            and (sweep if inner is not None and r.access.stride(inner) else one) > room
        ]

    def _stored(self, others: tuple[tuple[str, int], ...]) -> tuple[float, bool]:
        """Return the cycles to store one vector of the result, and whether it is by rows, transposed in registers."""

        def is_far(iterator: str) -> bool:
            return abs(self.write.stride(iterator)) * self.write.itemsize >= PAGE

        written = self._written(others)
        store = self.store + FAR_STORE_CYCLES * any(s > 1 and is_far(i) for i, s in others)
        across = not self.folds and abs(self.write.stride(self.vector)) != 1
        wait = PARTIAL_LINE_CYCLES if across and self.result > self.target.caches[-1].size // 2 else 0.0
        if written is not None and is_whole_lines(self.measured, written, dict(others)[written], self.target):
            wait = 0.0
        if written is None:
            return store + wait, False
        rows = self.width / dict(others)[written]  # that a vector is a part of, each with a place of its own
        tile = ((self.vector, self.width), *(o for o in others if o[0] != written))
        each = FAR_STORE_CYCLES if self._rows(self.write, tile) is None else LONE_ELEMENT_CYCLES
        by_rows = table.TRANSPOSE * self.width + rows * each * is_far(self.vector)
        return min(store, by_rows) + wait, by_rows < store

    def _passes(self, others: tuple[tuple[str, int], ...]) -> int:
        """Return how often a tile comes back to its results: by blocks whose operands fill half of the first cache."""
        rows = [r.access.itemsize * prod(s for i, s in others if r.access.stride(i)) for r in self.reads if not r.moves]
        if self.folds or not rows or not self.expected:
            return 1
        return ceil(self.terms / max(MIN_BLOCK_TERMS, self.target.caches[0].size // 2 // max(rows)))

    def _is_far(self, access: MemoryAccess) -> bool:
        """Whether an operand comes from beyond the second cache."""
        return self.measured.footprint(access) * access.itemsize > self.target.cache(2).size

    def _set_conflicts(self, access: MemoryAccess, tile: tuple[tuple[str, int], ...]) -> float:
        """Return the cycles that a step loses where the rows of a tile fall into few sets of the first cache."""
        rows = self._rows(access, tile)
        return 0.0 if rows is None else SET_CONFLICT_CYCLES * rows

    def _rows(self, access: MemoryAccess, tile: tuple[tuple[str, int], ...]) -> int | None:
        """Return how many rows of an access a tile has, None where the first cache holds a line of each."""
        first = self.target.caches[0]
        found = [(s, abs(access.stride(i)) * access.itemsize) for i, s in tile if s > 1]
        found = [(s, step) for s, step in found if step >= first.line]
        rows = prod(s for s, _ in found)
        return None if first.holds_rows(rows, gcd(*(step for _, step in found))) else rows

    def plan(self, chunks: int, others: tuple[tuple[str, int], ...], cost: float) -> TilePlan:
        """Return the plan of a tile, with the reads that are packed for it."""
        steps = max(1.0, self.total / (chunks * prod(s for _, s in others) * self.width))
        packed = []
        for r in self.reads:
            copies = 0 if self._stays(r, chunks) else r.copies(chunks, others)
            if r.copying is not None and r.access.read is not None and copies * (r.one - r.near) > r.copying / steps:
                packed.append(r.access.read)
        moving = [r for r in self.reads if self.across and r.moves and r.access.read not in packed]
        units = [unit_iterator(self.measured, r.access, self.vector) for r in moving]
        across = self.across if self.across and self.across[0] in units else None
        # Rows that are written transposed in registers need no copy.
        written = self._written(others) if self.stored(others)[1] else None
        packs = self.packs_result and written is None
        found = TilePlan(self.vector, self.width, chunks, others, cost, tuple(packed), packs, written, across)
        return replace(found, passing=self._passing(chunks, others)) if self.reduces else found

    def _passing(self, chunks: int, others: tuple[tuple[str, int], ...]) -> tuple[str, ...]:
        """Return the iterators that move the read of which a step has most values: these pass, those of the others are held."""
        widest = max(self.reads, key=lambda r: (r.copies(chunks, others), not r.moves), default=None)
        return () if widest is None else tuple(i for i in (self.vector, *dict(others)) if widest.access.stride(i))
