"""Build nests that transpose tiles in registers, for statements that read and write along other iterators.

`O[j,i] = X[i,j]` is written along i, so i is the vector; X is contiguous along j. A TRANSPOSE loop over some j directly around
the vector lets the code generator read pieces of X's rows, and transpose them to vectors along i in registers. No memory is
needed in between, and reads of both kinds can stand in one statement. The subscripts may be any quasi-affine functions that
are contiguous within a tile, such as `P[floor(j/48), k, j mod 48] = B[j,k]` inside a loop over floor(j/48).
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from msgspec import Struct

from polyker.cost.measure import MeasuredStatement
from polyker.cost.plan import TilePlan, unit_iterator
from polyker.ir.expr import Expr
from polyker.ir.quasi_affine import floordiv, mod
from polyker.ir.typed import TypedProgram
from polyker.machine.model import LANE_BYTES, Target
from polyker.schedule.nests.nest import band, offset, shared, variants
from polyker.schedule.nests.tiles import DomainPart
from polyker.schedule.tree.nodes import Leaf, Member, MemberKind, Tree

# Most loads of one tile's code: what LLVM compiles in a few milliseconds.
MAX_TILE_PIECES = 64
# Rows that a copy reads side by side where it writes less than a line of each (experience value).
COPY_ROWS = 8


def across_of(measured: MeasuredStatement, vector: str) -> tuple[str, ...]:
    """Return the iterators along which the reads that stride over the vector are contiguous."""
    found = (unit_iterator(measured, a, vector) for a in measured.accesses)
    return tuple(dict.fromkeys(i for i in found if i is not None))


def across_sizes(
    measured: MeasuredStatement, vector: str, lanes: int, across: tuple[str, ...], line: int = 64
) -> dict[str, int]:
    """Return how many iterations of each TRANSPOSE loop make a tile: a cache line of each row where they are few enough.

    Where more than one loop is to be repeated each has the elements of one piece, the later ones 1 if that is still too many.
    """
    sizes: dict[str, int] = {}
    for iterator in across:
        widths = [a.itemsize for a in measured.accesses if unit_iterator(measured, a, vector) == iterator]
        piece = max(1, LANE_BYTES // min(widths))
        most = max(piece, MAX_TILE_PIECES * piece // lanes)
        size = min(max(1, line // min(widths)), most) if len(across) == 1 else piece
        if len(across) > 1 and prod(sizes.values()) * size > MAX_TILE_PIECES:
            size = 1
        extent = measured.extent(iterator)
        if extent < 4 * size:
            # A few tiles of one size rather than full ones and a thin rest.
            size = max(1, -(-extent // -(-extent // size)))
        sizes[iterator] = size
    return sizes


def transposing_tree(
    program: TypedProgram,
    measured: MeasuredStatement,
    plan: TilePlan,
    across: tuple[str, ...],
    order: tuple[str, ...],
    target: Target,
    within: Mapping[str, int] | None = None,
) -> Tree:
    """Return the loops of a statement over the iterators `order`, with the tile loops of `across` and the vector innermost.

    `within`: iterator -> size of its blocks, where loops around this tree run over the blocks: here it runs inside one.

        for other: for i.panel: for j.tile: for i.tile:
            transpose j: vector i: …
    """
    statement, vector = measured.statement, plan.vector
    assert vector is not None
    here, blocks = (statement,), dict(within or {})
    origin = {i: measured.lo(i) for i in order}
    sizes = {**across_sizes(measured, vector, plan.lanes, across), vector: plan.lanes}
    for i, block in blocks.items():
        sizes[i] = _divisor(block, sizes.get(i, 1))

    def place(iterator: str) -> Expr:
        at = offset(iterator, origin[iterator])
        return mod(at, blocks[iterator]) if iterator in blocks else at

    def tile(iterator: str) -> Member:
        size = sizes.get(iterator, 1)
        return shared(here, floordiv(place(iterator), size), f"{iterator}.tile" if size > 1 else iterator)

    inner = (*(i for i in across if i in order), vector)
    outside = [i for i in order if i not in inner]
    loops = [tile(i) for i in outside]
    panel = panel_of(target, sizes[vector])
    if blocks.get(vector, measured.extent(vector)) > panel:
        loops.append(shared(here, floordiv(place(vector), panel), f"{vector}.panel"))
    loops += [tile(i) for i in inner]
    written = measured.write.itemsize
    if outside and inner == (vector,) and sizes[vector] * written < target.caches[0].line:
        # Tiles share no line: a few rows of each at a time, so that a line is full before many others are begun.
        i = outside[-1]
        rows = shared(here, mod(place(i), COPY_ROWS), f"{i}.row")
        loops[len(outside) - 1 :] = [
            shared(here, floordiv(place(i), COPY_ROWS), f"{i}.rows"),
            *loops[len(outside) :],
            rows,
        ]
    lanes = shared(here, mod(place(vector), sizes[vector]), f"{vector}.lanes", MemberKind.VECTOR, sizes[vector])

    def inside(part: DomainPart) -> Tree:
        whole = part.is_own_shape
        kind = MemberKind.TRANSPOSE if whole else MemberKind.SERIAL
        rows = [
            shared(here, mod(place(i), sizes[i]), f"{i}.columns", kind, sizes[i] if whole else 0)
            for i in inner[:-1]
            if sizes[i] > 1
        ]
        return band([*rows, *([lanes] if sizes[vector] > 1 else [])], Leaf())

    tiles = tuple((i, sizes[i], origin[i]) for i in inner if sizes[i] > 1)
    return band(loops, variants(program, here, statement.iterators, tiles, inside))


class CopyLoops(Struct, frozen=True):
    """The loops of a copy: the caller's `around`, outermost first, and inside them those over `order`, the vector among them.

    `within`: iterator -> size of its blocks, where the loops around run over the blocks: inside, the iterator's place is taken
    modulo that size, so that subscripts such as `j mod 48` are contiguous along it.
    """

    order: tuple[str, ...]
    around: tuple[Member, ...] = ()
    within: Mapping[str, int] | None = None


def copy_nest(
    program: TypedProgram, measured: MeasuredStatement, vector: str, lanes: int, loops: CopyLoops, target: Target
) -> Tree:
    """Return the nest of a copy, whose elements are contiguous along `vector`: by vectors, transposed where it has to be."""
    plan = TilePlan(vector, lanes, 1, (), 0.0)
    across = tuple(i for i in across_of(measured, vector) if i in loops.order)
    tree = transposing_tree(program, measured, plan, across, loops.order, target, loops.within)
    return band(list(loops.around), tree)


def _divisor(block: int, size: int) -> int:
    """Return the largest divisor of a block that is at most `size`."""
    return next(s for s in range(min(block, size), 0, -1) if block % s == 0)


def panel_of(target: Target, lanes: int) -> int:
    """Return how many rows are kept together: so many that a line of each fills half of the first cache."""
    first = target.caches[0]
    return max(1, first.size // 2 // first.line // lanes) * lanes


def write_order(measured: MeasuredStatement, inner: tuple[str, ...]) -> tuple[str, ...]:
    """Return iterators in the order in which the written elements lie in memory: lines that a tile leaves half written are
    finished soon."""
    write = measured.write
    return tuple(sorted(inner, key=lambda i: abs(write.stride(i)), reverse=True))
