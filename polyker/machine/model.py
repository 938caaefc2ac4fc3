"""What the compiler knows of a processor: plain values, so that a new processor is one new value."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from polyker.ir.instructions import DotProduct, instructions

# What a core's prefetchers do not look beyond, in bytes: what lies farther apart is no stream to them.
PAGE = 4096
# Pages whose addresses a core keeps.
PAGES = 3072


@dataclass(frozen=True, slots=True)
class Cache:
    """One level of cache as one core sees it: size and line in bytes, associativity in ways."""

    size: int
    line: int = 64
    ways: int = 8

    def holds_rows(self, count: int, step: int) -> bool:
        """Return whether lines that lie `step` bytes apart stay together: too many at a large power of two fall into one set.

        Two ways are left to what else passes.
        """
        way = self.size // self.ways
        return step < self.line or count <= (self.ways - 2) * (way // gcd(step, way))


# Bytes of scratch memory that are kept from call to call at most, and cycles a byte of more: it is mapped and cleared each time.
KEPT, FRESH = 32 << 20, 0.5


# Cycles a byte that memory costs beyond the first cache: in the first, the second, the third, in memory; of a desktop's core.
CYCLES = (0.0, 1 / 128, 1 / 48, 1 / 20)


@dataclass(frozen=True, slots=True)
class Gpu:
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


@dataclass(frozen=True, slots=True)
class Target:
    """A processor: what LLVM is told (`triple`, `cpu`, `features`) and what the schedules are made for.

    `vector_bytes`: width of a vector register in bytes; `vector_registers`: their number; `masked`: whether masked loads and
    stores are cheap (AVX-512, SVE); `fma_per_cycle` and `fma_latency`: fused multiply-adds a cycle, and their latency in
    cycles; `caches`: from the level nearest the core outwards; `cores`. `gpu`: of a GPU, whose multiprocessors are the cores.
    `dot`: how many products of narrow integers, side by side in 32 bits, one instruction adds up at most, 1 where there is none;
    `dot_products` are these instructions. `asks`: whether it pays to ask for the next rows while others are computed;
    where it does not, the core's own prefetchers are on the way, and are led astray. `asks_second`: whether a line that is asked
    for in the second cache stays out of the first. `asks_streams`: the cache in which it pays to ask for what a sum along memory
    is to read later, 0 where it does not pay. `follows_rows`: whether prefetchers follow the rows of a register tile, and the
    next one's, by themselves, so that asking for them only costs instructions. `one_stream`: whether one row of memory after
    another comes sooner than several side by side. `double_pumped`: whether vectors of the full width pass through the core in
    two halves, and what is read from memory comes sooner by half ones.
    `adds_apart`: whether additions and extrema pass through other pipes than multiply-adds and comparisons, with registers enough
    to let them.
    `streams`: how many pieces of memory that lie far apart had better be walked side by side by what only passes over it.
    `rows_near`: whether gathered rows of several lines had better be asked for in the first cache, where single lines had not.
    `passing`: cycles a byte, as `CYCLES` has them, of what one statement passes on to another.
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
    asks: bool = True
    asks_second: bool = True
    asks_streams: int = 1
    follows_rows: bool = False
    one_stream: bool = False
    double_pumped: bool = False
    adds_apart: bool = False
    streams: int = 1
    rows_near: bool = False
    passing: tuple[float, ...] = CYCLES

    def cache(self, level: int) -> Cache:
        """Return the cache of a level, 1 the nearest; the outermost one where there are fewer."""
        return self.caches[min(level, len(self.caches)) - 1]

    def beyond(self, size: float) -> float:
        """Return the cycles a byte that memory costs of which so many bytes are in use, beyond what the first cache costs."""
        return CYCLES[min(self._level(size), len(CYCLES) - 1)]

    def passed(self, size: float) -> float:
        """Return `beyond` of what one statement passes on to another, among so many bytes."""
        return self.passing[min(self._level(size), len(self.passing) - 1)]

    def _level(self, size: float) -> int:
        """Return the cache that holds so many bytes beside others, 0 the nearest."""
        return next((n for n, c in enumerate(self.caches) if size <= 0.75 * c.size), len(self.caches))

    def from_memory(self, size: float) -> bool:
        """Whether what takes so many bytes comes from memory: other data is in the last cache, too."""
        return size > 0.75 * self.caches[-1].size

    def fresh(self, size: float) -> float:
        """Return the cycles that a byte of scratch memory costs before it is used, where so many bytes are needed."""
        return FRESH if size > KEPT else 0.0

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
        return max(1, self.vector_bytes // itemsize)
