"""What the compiler knows of a processor: plain values, so that a new processor is one new value."""

from __future__ import annotations

from math import gcd
from typing import Literal

from msgspec import Struct

from polyker.ir.instructions import DotProduct, instructions

# Bytes of a page: what a core's prefetchers do not look beyond.
PAGE = 4096
# Bytes of a lane: a register of 128 bits or a part of a wider one, within which every vector unit shuffles in one cycle.
LANE_BYTES = 16


class Cache(Struct, frozen=True):
    """One level of cache as one core sees it: size and line in bytes, associativity in ways; `read`: bytes a cycle,
    None where it was not measured.
    """

    size: int
    line: int = 64
    ways: int = 8
    read: float | None = None

    @property
    def usable(self) -> float:
        """The bytes that stay of what is used again, beside what passes: three quarters (chosen)."""
        return 0.75 * self.size

    def holds_rows(self, count: int, step: int) -> bool:
        """Return whether lines that lie `step` bytes apart stay together: too many at a large power of two fall into one set.

        Two ways are left to what else passes.
        """
        way = self.size // self.ways
        return step < self.line or count <= (self.ways - 2) * (way // gcd(step, way))


class Memory(Struct, frozen=True):
    """Memory as one core sees it.

    `read`: bytes a cycle of a row; `side_by_side`: of `rows` rows at once, None where it was not measured. `random_line`:
    cycles that a line takes which nothing foresees, while others are on their way. `pages`: entries of the last translation
    buffer.
    """

    read: float = 15.2
    side_by_side: float | None = None
    rows: int = 8
    random_line: float = 20.0
    pages: int = 3072


class PrefetchPolicy(Struct, frozen=True):
    """What prefetch instructions are for.

    The first four are rates in any unit, of one pattern each: by the core's own prefetchers, with requests into the first cache,
    with requests into the second one; empty where nothing was measured. `sums`: a sum along memory. `next_rows`: rows that are
    read, computed on and written. `tiles`: rows of register tiles. `gathered_rows`: rows of several lines at places that a table
    says. `second_fills_first`: a prefetch of a line into the second cache brings it into the first one, too.
    """

    sums: tuple[float, ...] = ()
    next_rows: tuple[float, ...] = ()
    tiles: tuple[float, ...] = ()
    gathered_rows: tuple[float, ...] = ()
    second_fills_first: bool = False


class Gpu(Struct, frozen=True):
    """What the schedules of a GPU are made for.

    `arch`: as nvcc names it, such as sm_90a. `warp`: threads that run together; `threads`: the most in a block; of one
    multiprocessor `registers` (of 32 bits), `shared` bytes that one block may have, and threads in all (`resident`);
    `processors`: multiprocessors; `flops`: multiply-adds of f32 count as two, in operations a second; `bandwidth` of memory
    in bytes a second; `l2`: bytes. `simulated`: the kernels run on this machine's processor. `copies_later`: whether a thread can
    ask for copies into shared memory and go on. Of one multiprocessor, too: `blocks` at once at most, and `lanes`, the f32 units;
    `reserved`: bytes of shared memory that CUDA keeps for each block beside what it asks for. `matrix`: operations a second of
    the matrix units by element type, without sparsity (`tf32`: f32 with 10 bits of mantissa, which no f32 product asks for).
    """

    arch: str
    warp: int
    threads: int
    registers: int
    shared: int
    resident: int
    processors: int
    flops: float
    bandwidth: float
    l2: int
    simulated: bool = False
    copies_later: bool = True
    blocks: int = 32
    reserved: int = 1 << 10
    lanes: int = 128
    matrix: tuple[tuple[str, float], ...] = ()

    @property
    def clock(self) -> float:
        """Cycles a second at which the published `flops` are reached."""
        return self.flops / (2 * self.lanes * self.processors)

    def matrix_rate(self, dtype: str) -> float | None:
        """Return the operations a second of the matrix units on an element type, None where they do not take it."""
        return dict(self.matrix).get(dtype)

    def resident_blocks(self, threads: int, registers: int, shared: int) -> int:
        """Return how many blocks a multiprocessor has at once that take so many threads, registers a thread and shared bytes.

        Registers are given to a warp by 256, shared memory by 128 bytes. 0 where not even one fits.
        """
        warps = -(-threads // self.warp)
        by_warp = -(-registers * self.warp // 256) * 256
        held = -(-(shared + self.reserved) // 128) * 128
        return min(
            self.blocks,
            self.resident // (warps * self.warp),
            self.registers // by_warp // warps if registers else self.blocks,
            (self.shared + self.reserved) // held,
        )


class Target(Struct, frozen=True):
    """A processor: what LLVM is told (`triple`, `cpu`, `features`) and what the schedules are made for.

    `vector_bytes`: width of a vector register in bytes; `vector_registers`: their number; `masked`: whether masked loads and
    stores are cheap (AVX-512, SVE); `fma_per_cycle` and `fma_latency`: fused multiply-adds a cycle, and their latency in
    cycles; `caches`: from the level nearest the core outwards; `cores`. `gpu`: of a GPU, whose multiprocessors are the cores.
    `dot`: how many products of narrow integers, side by side in 32 bits, one instruction adds up at most, 1 where there is none;
    `dot_products` are these instructions. `native_bytes`: width of the vectors that pass through the core whole, 0 for all; wider
    ones pass in two halves. `add_pipes`: additions and extrema a cycle by pipes of their own, 0 where those of multiply-adds take
    them. `fma`: whether multiply-adds round once: `fused`, `none`, or `either` as the machine likes. `half`: whether instructions
    convert f16; `maximum`: whether there are minima and maxima that are NaN where one argument is; `widest`: bytes of the largest
    element of a vector.
    """

    name: str
    triple: str
    cpu: str
    features: str
    vector_bytes: int
    vector_registers: int
    masked: bool
    fma_per_cycle: int
    fma_latency: int
    caches: tuple[Cache, ...]
    cores: int = 1
    gpu: Gpu | None = None
    dot: int = 1
    native_bytes: int = 0
    add_pipes: int = 0
    memory: Memory = Memory()
    prefetch: PrefetchPolicy = PrefetchPolicy()
    fma: Literal["none", "fused", "either"] = "none"
    half: bool = False
    maximum: bool = False
    widest: int = 8

    def cache(self, level: int) -> Cache:
        """Return the cache of a level, 1 the nearest; the outermost one where there are fewer."""
        return self.caches[min(level, len(self.caches)) - 1]

    def level(self, size: float) -> int:
        """Return the cache that holds so many bytes beside others, 0 the nearest; their number for memory."""
        return next((n for n, c in enumerate(self.caches) if size <= c.usable), len(self.caches))

    def from_memory(self, size: float) -> bool:
        """Whether what takes so many bytes comes from memory: other data is in the last cache, too."""
        return self.level(size) == len(self.caches)

    @property
    def double_pumped(self) -> bool:
        """Whether vectors of the full width pass through the core in two halves."""
        return 0 < self.native_bytes < self.vector_bytes

    @property
    def has_separate_adders(self) -> bool:
        """Whether additions and extrema have pipes of their own, with registers enough to keep these busy."""
        return self.masked and self.add_pipes > 0

    @property
    def dot_products(self) -> tuple[DotProduct, ...]:
        """The instructions on sums of products of narrow integers, one of each meaning."""
        return tuple(r for r in instructions(self.triple, self.features) if r.terms <= self.dot)

    @property
    def pairs_extrema(self) -> bool:
        """Whether terms of a float's extremum are taken in pairs, which one test for NaN serves: x86's instructions keep a NaN in
        one argument alone, and registers are many."""
        return self.masks

    @property
    def masks(self) -> bool:
        """Whether an instruction may leave some lanes as they are: AVX-512's do."""
        return self.triple.startswith("x86_64") and self.vector_bytes >= 64

    def lanes(self, itemsize: int) -> int:
        """Return how many elements of `itemsize` bytes a vector register holds."""
        return max(1, self.vector_bytes // itemsize) if itemsize <= self.widest else 1
