"""Transpose through shared memory what a block reads along another index than it writes.

block.y i.tile: block.x j.tile:
    with a tile of A, shared, its rows padded by an element:
        thread.y j: thread.x i: copy of A       neighbouring threads read neighbouring elements
        thread.y i: thread.x j: B[i,j] = …      and write neighbouring elements
"""

from __future__ import annotations

from msgspec import Struct

from polyker.ir.dtypes import i64
from polyker.ir.expr import Expr, IndexExpr, Read
from polyker.ir.quasi_affine import coefficients, floordiv, index, indices_of, is_quasi_affine, mod
from polyker.ir.typed import TypedProgram, TypedStatement
from polyker.rewrite.core.fresh import Fresh
from polyker.rewrite.materialise.pack_run import PackedRun, Tile, pack_run
from polyker.schedule.fusion.items import Item
from polyker.schedule.gpu.map import grid
from polyker.schedule.nests.nest import Nest, offset
from polyker.schedule.tree.nodes import Band, Filter, Leaf, Member, MemberKind, Promotion, Scope, Sequence, Tree

# Side of a tile, in elements: a warp's threads. Threads along its other side. Budget of shared memory for all tiles of a block,
# in bytes: below the 48 KiB that a kernel has without opting in (CUDA C++ Programming Guide).
TILE_SIDE, TILE_THREAD_ROWS = 32, 8
TILES_SHARED_BYTES = 40 << 10
# Least extents of the two indices: below, a warp uses whole lines anyhow (experience value).
MIN_TRANSPOSED_EXTENT = 16


class Transposed(Struct, frozen=True):
    """A statement's index along which it writes, that along which it reads `reads`, and its other ones."""

    statement: TypedStatement
    write: str
    read: str
    others: tuple[str, ...]
    reads: tuple[Read, ...]
    origin: dict[str, int]

    def __str__(self) -> str:
        tensors = len(self.reads)
        operands = f"{tensors} operand{'s' * (tensors > 1)}"
        return f"{TILE_SIDE} {self.read} x {TILE_SIDE} {self.write} of {operands} transposed in shared memory"


def choose_transposed(item: Item) -> Transposed | None:
    """Return which operands of a statement go through shared memory; None where none has to."""
    statement, measured = item.statement, item.measured
    inner = statement.iterators[statement.outer :]
    if item.reduces or statement.op != "set" or set(item.free) != set(inner) or statement.outer:
        return None
    target = measured.write
    along = [i for i in inner if abs(target.stride(i)) == 1 and measured.extent(i) >= MIN_TRANSPOSED_EXTENT]
    found: dict[str, list[Read]] = {}
    sizes: dict[str, int] = {}
    for a in measured.accesses:
        read = a.read
        if read is None or read.pad is not None or not along or not all(map(is_quasi_affine, read.subscripts)):
            continue
        unit = [
            i for i in inner if i != along[0] and abs(a.stride(i)) == 1 and measured.extent(i) >= MIN_TRANSPOSED_EXTENT
        ]
        if abs(a.stride(along[0])) > 1 and unit and all(_alone(read, i) for i in (along[0], unit[0])):
            found.setdefault(unit[0], []).append(read)
            sizes[unit[0]] = sizes.get(unit[0], 0) + TILE_SIDE * (TILE_SIDE + 1) * a.itemsize
    found = {u: reads for u, reads in found.items() if sizes[u] <= TILES_SHARED_BYTES}
    if not found:
        return None
    unit_of = max(found, key=lambda u: (len(found[u]), inner.index(u)))
    others = tuple(i for i in inner if i not in (along[0], unit_of))
    origin = {i: measured.lo(i) for i in inner}
    return Transposed(statement, along[0], unit_of, others, tuple(found[unit_of]), origin)


def _alone(read: Read, iterator: str) -> bool:
    """Return whether an index moves one dimension of an operand alone, by ones."""
    moved = [coefficients(s) or {} for s in read.subscripts if iterator in indices_of(s)]
    return len(moved) == 1 and abs(moved[0].get(iterator, 0)) == 1 and sum(bool(n) for n in moved[0]) == 1


def transposed_nest(program: TypedProgram, fresh: Fresh, transposed: Transposed) -> Nest:
    """Return the statement with its copies, and their nest."""
    places = {i: offset(i, transposed.origin[i]) for i in (transposed.write, transposed.read, *transposed.others)}
    sides = (transposed.write, transposed.read)
    times: dict[str, Expr] = {i: floordiv(places[i], TILE_SIDE) if i in sides else IndexExpr(i, i64) for i in places}
    tiles = {i: Tile(times[i], TILE_SIDE, transposed.origin[i]) if i in sides else Tile(times[i], 1, 0) for i in places}
    statement = transposed.statement
    copies: list[PackedRun] = []
    for read in transposed.reads:
        found = pack_run(program, fresh, statement, read, tuple(times.values()), tiles)
        statement, copies = found.statement, [*copies, found]
    blocks = []
    for i in (*sides, *transposed.others[-1:], *transposed.others[:-1]):
        own = [(c.copy.name, index(c.numbers[times[i]])) for c in copies]
        blocks.append(Member((*own, (statement.name, times[i])), f"{i}.tile" if i in sides else i))
    children = [
        Filter((c.copy.name,), _copy(c, read, transposed)) for c, read in zip(copies, transposed.reads, strict=True)
    ]
    body = _threads(statement.name, places[transposed.write], places[transposed.read])
    children.append(Filter((statement.name,), body))
    held = tuple(_tile(c, read, transposed) for c, read in zip(copies, transposed.reads, strict=True))
    tree = Band(tuple(grid(blocks, ())), Scope(held, Sequence(tuple(children))))
    return Nest((*(c.copy for c in copies), statement), tree)


def _dimension(read: Read, iterator: str) -> int:
    return next(d for d, s in enumerate(read.subscripts) if iterator in indices_of(s))


def _threads(name: str, along: Expr, across: Expr) -> Tree:
    """Return the threads of a tile: `along` lie neighbours, `across` each thread has every TILE_THREAD_ROWS-th."""
    within = mod(across, TILE_SIDE)
    return Band(
        (
            Member(((name, mod(within, TILE_THREAD_ROWS)),), "row.thread", MemberKind.THREAD, TILE_THREAD_ROWS, "y"),
            Member(((name, mod(along, TILE_SIDE)),), "lane.thread", MemberKind.THREAD, TILE_SIDE, "x"),
            Member(
                ((name, floordiv(within, TILE_THREAD_ROWS)),),
                "row.part",
                MemberKind.UNROLL,
                TILE_SIDE // TILE_THREAD_ROWS,
            ),
        ),
        Leaf(),
    )


def _copy(copy: PackedRun, read: Read, transposed: Transposed) -> Tree:
    elements = [IndexExpr(c, i64) for c in copy.elements]
    return _threads(
        copy.copy.name, elements[_dimension(read, transposed.read)], elements[_dimension(read, transposed.write)]
    )


def _tile(copy: PackedRun, read: Read, transposed: Transposed) -> Promotion:
    """Return a copy's tile, a row for each element along the write: what lies below another in it lies in another bank."""
    first = len(copy.numbers)
    last = _dimension(read, transposed.read)
    order = [*(d for d in range(len(copy.elements)) if d != last), last]
    layout = [(n, 1, 1) for n in range(first)] + [(first + d, 1, copy.extents[d]) for d in order]
    return Promotion(copy.tensor, (1,) * first + copy.extents, tuple(layout), shared=True, pad=1)
