"""Map a statement's loops to the blocks and threads of a GPU by extents and strides."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

from msgspec import Struct

from polyker.cost.measure import UNKNOWN_STRIDE, MeasuredStatement, MemoryAccess
from polyker.ir.expr import Expr
from polyker.ir.quasi_affine import add, coefficients, lit
from polyker.ir.typed import TypedProgram, TypedStatement
from polyker.machine.model import Gpu
from polyker.schedule.tree.block_threads import AXES
from polyker.schedule.tree.nodes import Member, MemberKind
from polyker.structs import replace

# Threads of a block without communication, and their rows where two iterators are mapped (experience values).
BLOCK_THREADS = 256
BLOCK_ROWS = 8

# Most elements of a result that one thread computes along y, with common reads once (experience value).
MAX_THREAD_ELEMENTS = 8

# Bytes of the widest access of a thread (CUDA C++ Programming Guide: 16).
MAX_ACCESS_BYTES = 16

# Independent partial sums of a thread: they hide latency, and round less (experience value).
PARTIAL_SUMS_PER_THREAD = 8


class GridMapping(Struct, frozen=True):
    """The iterators along the axes x, y, z, each with the number of threads of a block along it (1: only blocks).

    `rest`: iterators that each thread runs through, outermost first. `elements`: an iterator of which each thread takes so many
    neighbours at once, in registers.
    """

    axes: tuple[tuple[str, int], ...]
    rest: tuple[str, ...]
    elements: tuple[str, int] | None = None

    def size(self, iterator: str) -> int:
        """Return how many neighbours along an iterator a thread takes at once."""
        return self.elements[1] if self.elements is not None and self.elements[0] == iterator else 1

    def __str__(self) -> str:
        return ", ".join(
            f"{i} on block.{a}" + (f" and {n} of thread.{a}" if n > 1 else "")
            for a, (i, n) in zip(AXES, self.axes, strict=False)
        ) + (f", {self.elements[1]} x {self.elements[0]} in registers" if self.elements else "")


def grid(loops: Sequence[Member], statements: Iterable[TypedStatement]) -> list[Member]:
    """Return loops over blocks along x, y and z, the first along x; each block runs through the others.

    Outermost first: z, then y and x. Without any loop there is one block.
    """
    if not loops:
        return [Member(tuple((s.name, lit(0)) for s in statements), "once", MemberKind.BLOCK, 0, "x")]
    blocks = [replace(m, kind=MemberKind.BLOCK, axis=axis) for m, axis in zip(loops, AXES, strict=False)]
    return [*reversed(blocks), *loops[len(AXES) :]]


def choose_mapping(measured: MeasuredStatement, free: tuple[str, ...], gpu: Gpu) -> GridMapping:
    """Return the mapping of a statement whose iterators `free` carry no dependence.

    Neighbouring threads (axis x) take neighbouring elements of the result; where it has none, of the largest read.
    """
    if not free:
        return GridMapping((), ())
    along = contiguous(measured, free)
    others = [i for i in reversed(free) if i != along and measured.extent(i) > 1]
    others.sort(key=lambda i: -min(measured.extent(i), BLOCK_THREADS))  # stable: of two long ones the inner one is y
    width = _power(
        min(measured.extent(along), BLOCK_THREADS if not others else max(gpu.warp, BLOCK_THREADS // BLOCK_ROWS))
    )
    axes = [(along, width)]
    for place, i in enumerate(others[:2]):
        room = BLOCK_THREADS // width if place == 0 else 1
        axes.append((i, _power(min(room, measured.extent(i)))))
    mapped = {i for i, _ in axes}
    return GridMapping(tuple(axes), tuple(i for i in free if i not in mapped))


def with_elements(measured: MeasuredStatement, mapping: GridMapping, gpu: Gpu) -> GridMapping:
    """Return the mapping of a reduction with several elements of the result to a thread, where its terms have reads in common.

    Only along y (or z): neighbouring threads still take neighbouring elements. There stay blocks for every multiprocessor.
    """
    threads = dict(mapping.axes)
    blocks = prod(-(-measured.extent(i) // n) for i, n in mapping.axes)
    for i, _ in mapping.axes[1:]:
        common = any(a.stride(i) == 0 and a.strides for a in measured.accesses if not a.is_write)
        for elements in (MAX_THREAD_ELEMENTS, MAX_THREAD_ELEMENTS // 2, MAX_THREAD_ELEMENTS // 4):
            if common and measured.extent(i) >= elements * threads[i] and blocks >= 2 * elements * gpu.processors:
                return replace(mapping, elements=(i, elements))
    return mapping


def partial_sums(measured: MeasuredStatement, mapping: GridMapping) -> tuple[str, int] | None:
    """Return the reduced iterator of which each thread has so many partial sums; None for several elements, or few terms."""
    reduced = measured.statement.reduced
    longest = max(reduced, key=measured.extent)
    count = min(PARTIAL_SUMS_PER_THREAD, _power(measured.extent(longest) + 1) // 2)
    terms = prod(measured.extent(i) for i in reduced)
    return (longest, count) if mapping.elements is None and count > 1 and terms >= 4 * PARTIAL_SUMS_PER_THREAD else None


def element_shape(program: TypedProgram, measured: MeasuredStatement) -> tuple[Expr, ...] | None:
    """Return, for each iterator that is not reduced, a number that its values are below; None in loops of the text, where no
    extent of the target shows such a number, and for negative values."""
    statement = measured.statement
    kept = statement.kept
    shape = tuple(e for i in kept if (e := below(program, measured, i)) is not None)
    least = [measured.bounds[i][0] for i in kept]
    if statement.outer or len(shape) < len(kept) or any(lo is None or lo < 0 for lo in least):
        return None
    return shape


def below(program: TypedProgram, measured: MeasuredStatement, iterator: str) -> Expr | None:
    """Return a number that an iterator's values are below, None for a size that no extent of the target shows."""
    lo, count = measured.bounds[iterator]
    if lo is not None and count is not None:
        return lit(lo + count)
    statement = measured.statement
    for subscript, extent in zip(statement.subscripts, program.tensor(statement.target).shape, strict=True):
        parts = {i: n for i, n in (coefficients(subscript) or {}).items() if n}
        if parts in ({iterator: 1}, {iterator: 1, "": min(0, parts.get("", 0))}):
            return add(extent, lit(-parts.get("", 0)))
    return None


def sum_cut(measured: MeasuredStatement, gpu: Gpu) -> tuple[str, int] | None:
    """Return how a reduction is cut into partial results in memory: along which iterator, and how many.

    Where the elements of the result are too few for the threads of the GPU, or neighbouring ones read far apart. None where they
    are not, or the partial results would be many beside what is read.
    """
    statement = measured.statement
    kept = statement.kept
    reads = [a for a in measured.accesses if not a.is_write]
    if not reads:
        return None
    largest = max(reads, key=measured.footprint)
    unit = [i for i in statement.reduced if abs(largest.stride(i)) == 1]
    along = max(unit or statement.reduced, key=measured.extent)
    results = prod(measured.extent(i) for i in kept)
    threads = gpu.processors * gpu.resident
    strided = bool(unit) and not any(abs(largest.stride(i)) == 1 for i in kept)
    most = min(threads // max(1, results), measured.extent(along) // (2 * PARTIAL_SUMS_PER_THREAD))
    if strided:
        most = max(most, min(gpu.warp, measured.extent(along) // 2))
    count = (_power(most + 1) // 2) if most > 0 else 0
    few = 4 * results * count <= measured.footprint(largest)
    return (along, count) if count >= gpu.warp and few else None


def at_once(access: MemoryAccess, along: str, most: int) -> int:
    """Return how many neighbours along an iterator one access takes, `most` where it does not move: 1 where it is not aligned."""
    stride, others = access.stride(along), [s for i, s in access.strides.items() if i != along]
    if not stride:
        return most
    if stride != 1 or access.offset is None or any(abs(s) >= UNKNOWN_STRIDE for s in others):
        return 1
    size = max(1, min(most, MAX_ACCESS_BYTES // access.itemsize))
    while any(s % size for s in (access.offset, *others)):
        size //= 2
    return size


def contiguous(measured: MeasuredStatement, free: tuple[str, ...]) -> str:
    """Return the iterator along which neighbours lie together in the result, else in the largest read, else the last."""
    by_size = sorted(measured.accesses, key=lambda a: (not a.is_write, -measured.footprint(a)))
    for access in by_size:
        found = [i for i in free if abs(access.stride(i)) == 1 and measured.extent(i) > 1]
        if found:
            return max(found, key=measured.extent)
    return max(free, key=lambda i: (measured.extent(i), free.index(i)))


def _power(count: int) -> int:
    """Return the least power of two that is not below a count."""
    return 1 << max(0, count - 1).bit_length()
