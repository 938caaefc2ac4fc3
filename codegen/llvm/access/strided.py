"""Emit accesses along a small stride as whole vectors, whose elements are shuffled out, or interleaved.

    x = X[2i]; y = X[2i+1]      two vectors of X, loaded once, and two shuffles
    Y[2i] = x; Y[2i+1] = y      two shuffles, and two whole vectors stored

Elements that the statements do not write are never stored: where some of a row are missing the vectors are masked, which is for
targets that mask stores cheaply. Elements between those that are read belong to the same array: they can be read.
"""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from polyker.codegen.ir.kernel import KExpr, Load, StmtBlock, Store, Var
from polyker.codegen.ir.polynomial import Monomial, Poly, constant, plus
from polyker.codegen.ir.walk import loaded, loads_in, names_in
from polyker.codegen.llvm.access import memory
from polyker.codegen.llvm.access.memory import BufferPointer
from polyker.codegen.llvm.access.scope import LANE, EmitterScope
from polyker.codegen.llvm.convert import ElementValue
from polyker.codegen.llvm.text import IRBuilder, Reg, const
from polyker.cost.access_cost import MAX_SHUFFLED_STRIDE

# The strides of such accesses: of a vector's elements one in so many is used.
STRIDES = tuple(range(2, MAX_SHUFFLED_STRIDE + 1))


class StridedRow(Struct, frozen=True):
    """Every `stride`-th element of a buffer; accesses that differ in where they begin alone have one row."""

    buffer: str
    stride: int
    terms: tuple[tuple[Monomial, int], ...]  # in the order of their variables


# The first and last place of what is read of each row.
RowPlaces: TypeAlias = dict[StridedRow, tuple[int, int]]


def row_of(e: EmitterScope, buffer: str, indices: tuple[KExpr, ...]) -> tuple[StridedRow, int] | None:
    """Return the row of an access in a vector loop and the place of its first lane; None where the stride is not a small one."""
    if e.places[buffer].buffer.dtype.is_complex:
        return None
    access = e.offset(buffer, indices)
    if access.get((LANE,), 0) not in STRIDES:
        return None
    offset = dict(access)
    stride, first = offset.pop((LANE,), 0), offset.pop((), 0)
    if not all(_is_uniform(e, a) for m in offset for a in m):
        return None
    terms = sorted(offset.items(), key=lambda term: [a.name if isinstance(a, Var) else repr(a) for a in term[0]])
    return StridedRow(buffer, stride, tuple(terms)), first


def _is_uniform(e: EmitterScope, atom: KExpr) -> bool:
    """Whether a part of an index is one value for all lanes, computed from variables alone."""
    names = names_in(atom)
    return all(n in e.values and e.values[n].lanes == 1 for n in names) and not any(loads_in(atom))


def rows_read(e: EmitterScope, block: StmtBlock) -> RowPlaces:
    """Return the rows that the stores at the head of a vector loop's body read anyhow, each with its first and last place."""
    found: RowPlaces = {}
    for stmt in block:
        if not isinstance(stmt, Store):
            break
        for expr in loads_in(stmt.value):
            access = row_of(e, expr.buffer, expr.indices) if expr.predicate is None else None
            if access is not None:
                row, place = access
                low, high = found.get(row, (place, place))
                found[row] = min(low, place), max(high, place)
    return found


def load(e: EmitterScope, rows: RowPlaces, expr: Load, active: int, mask: Reg | None = None) -> ElementValue | None:
    """Return the first `active` lanes of a load from vectors that its neighbours' lanes are in, too; None where it has none.

    `rows`: what `rows_read` tells; `mask`: the lanes that are on, where that is known when the code runs.
    """
    access = row_of(e, expr.buffer, expr.indices)
    if access is None or access[0] not in rows:
        return None
    (row, place), (low, high) = access, rows[access[0]]
    last = high - row.stride + 1  # whole vectors that begin there end with the last element that is read
    if last < low:
        return None
    start = min(low + (place - low) // row.stride * row.stride, last)
    target = e.places[expr.buffer]
    pointer = e.pointer(target, _offset(row, start))
    vectors = []
    for k in range(row.stride):
        at = memory.offset_pointer(e.b, target, pointer, const(k * active, "i64"))
        lanes = [(k * active + m) // row.stride for m in range(active)]
        own = None if mask is None else memory.picked_mask(e.b, mask, lanes, [True] * active)
        vectors.append(memory.raw_of(e.b, memory.load_vector(e.b, target, at, active, own)))
    first = place - start
    if row.stride == 4 and active % 4 == 0 and 0 <= first < 4:
        found = _fourth(e.b, vectors, first)
    else:
        found = _picked(e.b, vectors, [divmod(first + row.stride * k, active) for k in range(active)])
    count = e.lanes.count
    if active < count:
        found = e.b.shuffle(found, None, [*range(active), *[0] * (count - active)])
    return memory.value_of(e.b, target.buffer.dtype, found)


def load_masked(b: IRBuilder, place: BufferPointer, pointer: Reg, stride: int, mask: Reg) -> ElementValue:
    """Return every `stride`-th element where the mask is on, by masked vector loads; no other element is touched."""
    count, vectors = mask.lanes, []
    for k in range(stride):
        elements = [divmod(k * count + m, stride) for m in range(count)]
        own = memory.picked_mask(b, mask, [lane for lane, _ in elements], [rest == 0 for _, rest in elements])
        at = memory.offset_pointer(b, place, pointer, const(k * count, "i64"))
        vectors.append(memory.raw_of(b, memory.load_vector(b, place, at, count, own)))
    found = _picked(b, vectors, [divmod(stride * lane, count) for lane in range(count)])
    return memory.value_of(b, place.buffer.dtype, found)


def _offset(row: StridedRow, start: int) -> Poly:
    return plus(dict(row.terms), constant(start))


def _picked(b: IRBuilder, vectors: list[Reg], lanes: list[tuple[int, int] | None]) -> Reg:
    """Return a vector made of lanes of vectors as long: (which vector, which lane) each, None for any value."""
    count = len(lanes)
    used = sorted({lane[0] for lane in lanes if lane is not None})
    result, done = vectors[used[0]], {used[0]}
    if len(used) == 1:
        return b.shuffle(result, None, [0 if lane is None else lane[1] for lane in lanes])
    for n in used[1:]:
        first = len(done) == 1
        order = []
        for m, lane in enumerate(lanes):
            if lane is not None and lane[0] == n:
                order.append(count + lane[1])
            elif lane is not None and lane[0] in done and first:
                order.append(lane[1])
            else:
                order.append(m)
        result = b.shuffle(result, vectors[n], order)
        done.add(n)
    return result


def _fourth(b: IRBuilder, vectors: list[Reg], first: int) -> Reg:
    """Return every fourth lane of four vectors. What picks two such rows at a time is shared: eight shuffles for all four."""
    count, half = vectors[0].lanes, vectors[0].lanes // 2
    order = [first % 2 + 4 * m + other for other in (0, 2) for m in range(half)]
    low, high = (b.shuffle(x, y, order) for x, y in (vectors[:2], vectors[2:]))
    own = range(first // 2 * half, first // 2 * half + half)
    return b.shuffle(low, high, [*own, *(count + lane for lane in own)])


def _woven_fours(b: IRBuilder, vectors: list[Reg], k: int) -> Reg:
    """Return vector k of the four that four vectors' lanes, interleaved, fill; see `_fourth`."""
    count, half = vectors[0].lanes, vectors[0].lanes // 2
    order = [x for lane in range(k // 2 * half, k // 2 * half + half) for x in (lane, count + lane)]
    low, high = (b.shuffle(x, y, order) for x, y in (vectors[:2], vectors[2:]))
    places = [2 * (k % 2 * half // 2 + m // 4) + m % 2 + (count if m % 4 > 1 else 0) for m in range(count)]
    return b.shuffle(low, high, places)


def interleaved(e: EmitterScope, block: StmtBlock, *, masked: bool) -> list[Store]:
    """Return the stores at the head of a vector loop's block that are stored together, in the order of their elements in memory.

    Each is computed before any is stored: none reads what another one writes. `masked`: the target masks stores cheaply; without
    it they are together all elements of a row.
    """
    found: dict[int, Store] = {}
    row: StridedRow | None = None
    for stmt in block[: max(STRIDES)]:
        if not isinstance(stmt, Store):
            break
        access = row_of(e, stmt.buffer, stmt.indices)
        # What lies at constant places of the stack is in registers.
        if access is None or (e.places[stmt.buffer].on_stack and not access[0].terms):
            break
        places = {*found, access[1]}
        disjoint = access[1] not in found and max(places) - min(places) < access[0].stride
        if found and (access[0] != row or not disjoint or stmt.buffer in loaded((stmt,))):
            break
        row, found[access[1]] = access[0], stmt
    if row is None or (len(found) < row.stride and not masked):
        return []
    return list(found.values())


def store_backwards(e: EmitterScope, place: BufferPointer, base: Poly, value: ElementValue, mask: Reg | None) -> None:
    """Store a vector whose first lane's element is at `base`, each other one's before the last one's."""
    first = e.pointer(place, plus(base, constant(1 - value.lanes)))
    memory.store_vector(e.b, place, first, memory.reverse(e.b, value), memory.reverse_mask(e.b, mask))


def store(e: EmitterScope, stores: list[Store], values: list[ElementValue]) -> None:
    """Store the values of what `interleaved` returned."""
    places = {}
    for stmt, value in zip(stores, values, strict=True):
        access = row_of(e, stmt.buffer, stmt.indices)
        assert access is not None
        row, place = access
        places[place] = memory.raw_of(e.b, memory.splat_value(e.b, value, e.lanes.count))
    b, count, target, start = e.b, e.lanes.count, e.places[row.buffer], min(places)
    order = sorted(places)
    vectors = [places[p] for p in order]
    number = {p - start: n for n, p in enumerate(order)}
    pointer = e.pointer(target, _offset(row, start))
    for k in range(row.stride):
        elements = [divmod(k * count + m, row.stride) for m in range(count)]
        lanes = [(number[r], lane) if r in number else None for lane, r in elements]
        if not any(lanes):
            continue
        mask = memory.picked_mask(b, e.lanes.mask, [lane for lane, _ in elements], [r in number for _, r in elements])
        at = memory.offset_pointer(b, target, pointer, const(k * count, "i64"))
        fours = len(vectors) == row.stride == 4 and count % 4 == 0
        memory.store_raw(b, target, at, _woven_fours(b, vectors, k) if fours else _picked(b, vectors, lanes), mask)
