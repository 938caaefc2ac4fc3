"""The parts of STREAM loops: what comes before the first aligned element, whole vectors, pieces side by side, the rest."""

from __future__ import annotations

from msgspec import Struct

from polyker.codegen.ir.kernel import Const, For, Guard, KExpr, Let, LoopKind, Op, Prefetch, StmtBlock, Store, Var
from polyker.codegen.ir.polynomial import as_constant, constant_length, minus
from polyker.codegen.ir.walk import loaded, loads_in, names_in, substitute, values_of
from polyker.codegen.llvm.access import memory
from polyker.codegen.llvm.access.scope import EmitterScope
from polyker.codegen.llvm.text import IRBuilder, Reg, const
from polyker.cost.memory import rows_at_once
from polyker.machine.model import Target

# Rows of fewer bytes are streamed where they are whole lines, and stored through the caches where they are not (experience
# value).
MIN_PARTIAL_LINE_ROW_BYTES = 1280
# Least bytes of a row that is taken by pieces side by side, and those of one piece that are taken in turn (experience values).
MIN_SPLIT_ROW_BYTES, PIECE_TURN_BYTES = 4 << 20, 512


class Stream(Struct, frozen=True):
    """A STREAM loop that can be taken by vectors: its one store, the lanes of a vector, the vectors of one iteration.

    `short`: one iteration is a whole row, which is streamed if it begins at an aligned element.
    """

    loop: For
    store: Store
    lanes: int
    chunks: int
    short: bool = False


def stream_of(e: EmitterScope, loop: For, target: Target) -> Stream | None:
    """Return how a STREAM loop is carried out; None where it runs as a serial one.

    It runs by vectors where its only store goes to neighbouring elements of a buffer in memory that the loop does not read: then
    no iteration depends on another. Inside a vector loop there is no one place to begin at.
    """
    if e.lanes.count > 1:
        return None
    stores = [s for s in loop.body if isinstance(s, Store)]
    if loop.step != 1 or len(stores) != 1 or not all(isinstance(s, Store | Let | Guard) for s in loop.body):
        return None
    store, inside = stores[0], {s.name for s in loop.body if isinstance(s, Let)}
    if store.buffer in loaded(loop.body) or e.places[store.buffer].on_stack:
        return None
    if any(loads_in(*store.indices)) or names_in(*store.indices) & inside:
        return None
    step = minus(e.offset(store.buffer, _at(store, loop, 1)), e.offset(store.buffer, store.indices))
    if as_constant(step) != 1:
        return None
    place = e.places[store.buffer]
    widest = max(place.buffer.dtype.real.itemsize, *(n.dtype.real.itemsize for n in values_of(store.value)))
    lanes = target.lanes(widest)
    if lanes <= 1:
        return None
    length = constant_length(loop)
    if length and length % lanes == 0 and length * place.itemsize < MIN_PARTIAL_LINE_ROW_BYTES:
        return Stream(loop, store, lanes, length // lanes, short=True)
    return Stream(loop, store, lanes, max(1, loop.lanes // lanes))


def _at(store: Store, loop: For, step: int) -> tuple[KExpr, ...]:
    return tuple(substitute(i, {loop.var: Op("add", (Var(loop.var), Const(step)))}) for i in store.indices)


def head_of(e: EmitterScope, b: IRBuilder, stream: Stream) -> Reg:
    """Return how many elements lie before the first one that is aligned to a vector."""
    loop, store = stream.loop, stream.store
    place = e.places[store.buffer]
    first = tuple(substitute(i, {loop.var: loop.lo}) for i in store.indices)
    pointer = e.pointer(place, e.offset(store.buffer, first))
    before = b.binary("sub", const(0, "i64"), memory.element_number(b, place, pointer))
    return b.binary("and", before, const(stream.lanes - 1, "i64"))


def last_line(stream: Stream) -> Prefetch:
    """Return a prefetch of the last element's line, which the rest of this row, and perhaps the start of the next, is stored to.

    Stores reach the cache in their order: one that waits for its line holds up those behind it.
    """
    last = Op("sub", (stream.loop.hi, Const(1)))
    indices = tuple(substitute(i, {stream.loop.var: last}) for i in stream.store.indices)
    return Prefetch(stream.store.buffer, indices, write=True)


def _vector(loop: For, lo: KExpr, hi: KExpr, lanes: int, trip: int | None = None) -> For:
    return For(loop.var, lo, hi, loop.body, kind=LoopKind.VECTOR, lanes=lanes, trip=trip)


def vectors(stream: Stream, first: KExpr) -> StmtBlock:
    """Return one iteration's whole vectors, the first of which begins at an element."""
    loop, lanes = stream.loop, stream.lanes
    starts = (Op("add", (first, Const(lanes * c))) for c in range(stream.chunks))
    return tuple(_vector(loop, start, Op("add", (start, Const(lanes))), lanes, lanes) for start in starts)


def pieces_of(stream: Stream, target: Target) -> tuple[int, int]:
    """Return how many pieces of a row are taken side by side, and how many iterations of each in turn.

    All operands together have about as many pieces as the target says.
    """
    count, size = round(rows_at_once(target) / (1 + len(loaded(stream.loop.body)))), stream.store.value.dtype.itemsize
    if count < 2 or (constant_length(stream.loop) or 0) * size < MIN_SPLIT_ROW_BYTES:
        return 1, 1
    return count, max(1, PIECE_TURN_BYTES // (stream.lanes * stream.chunks * size))


def side_by_side(stream: Stream, head: str, runs: str, pieces: tuple[int, int]) -> For:
    """Return the loop over a row's pieces, of `runs` iterations each.

    `head`: as below; `runs`: the variable that holds the number of turns.
    """
    loop, (count, turn) = stream.loop, pieces
    run, piece, step = (Var(f"{loop.var}\0{name}") for name in ("run", "piece", "step"))
    place = Op("add", (Op("mul", (piece, Var(runs))), run))
    place = Op("add", (Op("mul", (place, Const(turn))), step))
    width = Const(stream.lanes * stream.chunks)
    body = vectors(stream, Op("add", (Var(head), Op("mul", (width, place)))))
    inner = For(piece.name, Const(0), Const(count), (For(step.name, Const(0), Const(turn), body),))
    return For(run.name, Const(0), Var(runs), (inner,))


def parts(stream: Stream, head: str, first: str, count: str) -> tuple[StmtBlock, For, StmtBlock]:
    """Return what comes before the whole vectors, the loop over them, and what comes after.

    `head`: the variable that holds the first aligned element's index; `first`, `count`: those of the loop's bounds.
    """
    loop, lanes = stream.loop, stream.lanes
    width = lanes * stream.chunks
    turn, last = Var(f"{loop.var}\0turn"), Var(f"{loop.var}\0rest")
    whole = vectors(stream, Op("add", (Var(head), Op("mul", (Const(width), turn)))))
    rest = Op("add", (Var(head), Op("mul", (Const(width), Var(count)))))
    end = Op("minimum", (Op("add", (last, Const(lanes))), loop.hi))
    return (
        (_vector(loop, loop.lo, Var(head), lanes),),
        For(turn.name, Var(first), Var(count), whole),
        (For(last.name, rest, loop.hi, (_vector(loop, last, end, lanes),), lanes),),
    )


def is_long(stream: Stream) -> bool:
    """Return whether the loop surely reaches its first aligned element."""
    length = constant_length(stream.loop)
    return length is not None and length >= stream.lanes
