"""Compute partial register tiles as whole ones, from repeated elements, whose additional results nothing reads.

Before, a partial tile of 6 rows and 4 vectors tests each of its 24 vectors in each iteration of the reduction:

    for k: unroll r in 0:min(6, n-i): unroll c in 0:min(4, m/16-j): vector v in 0:min(16, m-16*(j+c)):
        acc[r, c, v] += A[i+r, k] * B[k, 16*(j+c)+v]

After, none is:

    for k: unroll r in 0:6: a = A[i + min(r, n-i-1), k];  unroll c in 0:4: vector v in 0:min(16, m-16*(j+c)):
        acc[r, c, v] += a * B[k, 16*(j+c)+v]

The rows beyond the end repeat the last one. The vectors beyond it have no active lane, so that they read nothing. Both write
elements of a STACK buffer that nothing reads: all loops over the buffer have the same ends, and the first of them sets it anew.

A small tile has code of its own for each number of vectors in a row, so that 200 columns are three tiles of 64 and one of 16:

    if count < 2: the tile with 1 vector a row;  else: if count < 3: the tile with 2;  else: …
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from itertools import count
from math import inf, prod
from typing import TypeAlias

from msgspec import Struct

from polyker.codegen.ir.kernel import (
    Const,
    For,
    If,
    KernelIR,
    KExpr,
    Let,
    Load,
    LoopKind,
    Op,
    Stmt,
    StmtBlock,
    Store,
    Var,
)
from polyker.codegen.ir.polynomial import Poly, as_constant, constant, plus, polynomial, scaled
from polyker.codegen.ir.walk import (
    loops_of,
    nested,
    rebuild,
    statements,
    subexpressions,
    substitute,
    unused,
    uses,
    with_blocks,
    with_loads,
)
from polyker.codegen.passes.own_buffers import StoreNest, narrow, nest_of
from polyker.codegen.passes.simplify import trip_count
from polyker.ir.dtypes import bool_, i64
from polyker.structs import replace

# Most shapes of a partial tile: each has code of its own (experience value).
MAX_CUT_SHAPES = 4
# Greatest factor by which fractions are extended to integers, so that no 64-bit coefficient wraps.
MAX_FRACTION_SCALE = 1 << 20


def fill(kernel: KernelIR, registers: int = 32) -> KernelIR:
    """Return the kernel with the tiles that a size cuts computed whole. Run before `unroll`.

    A tile whose accumulators take half of the vector registers at most has code for each number of vectors in its rows: with
    more of them they would not stay in registers where the code parts.
    """
    if all(trip_count(loop) is not None for loop in loops_of(kernel.body, LoopKind.UNROLL)):
        return kernel
    kernel, own = narrow(kernel)
    names = {s.name for s in statements(kernel.body) if isinstance(s, Let)}
    return replace(kernel, body=_Filler(names, own, registers // 2).block(kernel.body)) if own else kernel


class _Filler(Struct):
    taken: set[str]
    own: set[str]
    most: int  # vectors of a tile that has several shapes

    def block(self, block: StmtBlock) -> StmtBlock:
        done: list[Stmt] = []
        tile: list[_Cut | For] = []  # nests over one cut tile, one after another, and where its columns end
        end: _End | None = None
        for stmt in block:
            part = self._cut(stmt) or stmt if isinstance(stmt, For) else stmt
            here = part.end if isinstance(part, _Cut) else end if end and _loops_to(part, end) else None
            if tile and here != end:
                done += self._shapes(tile, end)
                tile = []
            if here is not None and isinstance(part, _Cut | For):
                tile.append(part)
            else:
                done.append(self._whole(part, {}) if isinstance(part, _Cut) else self._statement(part))
            end = here
        return (*done, *self._shapes(tile, end))

    def _statement(self, stmt: Stmt) -> Stmt:
        match stmt:
            case For() if (
                (nest := nest_of(stmt)) is not None and nest.vector is not None and _is_cheap(nest.store.value)
            ):
                return _all_columns(nest)
            case _:
                return with_blocks(stmt, self.block)

    def _cut(self, outer: For) -> _Cut | None:
        """Return a nest whose unrolled loops end at sizes; None where it cannot be computed whole."""
        nest = nest_of(outer)
        if nest is None or nest.store.buffer not in self.own:
            return None
        cut = [loop for loop in nest.tile if trip_count(loop) is None]
        inside = {loop.var for loop in (*nest.serial, *nest.tile)}
        if not cut or not all(_is_plain(loop, inside) for loop in cut) or not _are_apart(nest.store, cut, nest.vector):
            return None
        rows = tuple(loop for loop in cut if nest.vector is None or not uses(loop.var, nest.vector.hi))
        columns = tuple(loop for loop in cut if loop not in rows)
        found = _Cut(nest, rows, columns)
        if not all(_is_empty_beyond(nest.vector, loop) for loop in columns) or self._body(found, {}) is None:
            return None
        return found

    def _shapes(self, tile: list[_Cut | For], end: _End | None) -> StmtBlock:
        """Return what stands for nests over one cut tile: its shape that has no more vectors than hold a result.

        They stand in one block for each shape: where the code came together between them, accumulators would have to meet.
        """
        if end is None:
            return ()
        bound, most = end
        if not all(p.vectors <= self.most if isinstance(p, _Cut) else _is_stored_by_rows(p) for p in tile):
            return tuple(self._whole(p, {}) if isinstance(p, _Cut) else self._statement(p) for p in tile)
        counts = _counts(most)
        block: StmtBlock = ()
        for before, vectors in reversed([*zip((0, *counts), counts, strict=False)]):
            exact = vectors if vectors == before + 1 else None
            shape = tuple(
                self._whole(p, {p.columns[0].var: vectors})
                if isinstance(p, _Cut)
                else self._statement(_ending(p, end, exact))
                for p in tile
            )
            block = (If(Op("lt", (bound, Const(vectors + 1)), bool_), shape, block),) if block else shape
        return (If(Op("lt", (Const(0), bound), bool_), block),)

    def _whole(self, cut: _Cut, trips: Mapping[str, int]) -> Stmt:
        """Return a nest without tests, its columns' loops as often run as `trips` tells."""
        filled = self._body(cut, trips)
        assert filled is not None
        filled = nested(cut.nest.serial, filled)
        some = tuple(Op("lt", (loop.lo, loop.hi), bool_) for loop in (*cut.rows, *cut.columns))
        return If(some[0] if len(some) == 1 else Op("and", some, bool_), filled)

    def _body(self, cut: _Cut, trips: Mapping[str, int]) -> StmtBlock | None:
        """Return the tile's own loops: values that all vectors of a row share are read before these."""
        nest = cut.nest
        last: dict[str, KExpr] = {
            loop.var: Op("minimum", (Var(loop.var), Op("sub", (loop.hi, Const(1))))) for loop in cut.rows
        }
        own = [v.var for v in (nest.vector, *cut.columns) if v is not None]
        shared: dict[Load, str] = {}

        def change(e: KExpr) -> KExpr:
            e = rebuild(e, change)
            if not isinstance(e, Load) or e.buffer == nest.store.buffer:
                return e
            e = replace(e, indices=tuple(substitute(i, last) for i in e.indices))
            if nest.vector is not None and not uses(nest.vector.var, *e.indices):
                shared.setdefault(e, "")
            return e

        value = change(nest.store.value)
        if any(uses(name, *load.indices) for load in shared for name in own):
            return None
        lets = []
        for load in shared:
            shared[load] = self._name()
            lets.append(Let(shared[load], load))
        value = with_loads(value, {load: Var(name, load.dtype) for load, name in shared.items()})
        body: StmtBlock = (*nest.prefetches, replace(nest.store, value=value))
        if nest.vector is not None:
            body = (replace(nest.vector, body=body),)
        inner = True
        for loop in reversed(nest.tile):
            if inner and loop not in cut.columns:
                body, inner = (*lets, *body), False
            if trip_count(loop) is None:
                trip = trips.get(loop.var, loop.lanes)
                loop = replace(loop, hi=Const(trip), trip=trip)
            body = (replace(loop, body=body),)
        return (*lets, *body) if inner else body

    def _name(self) -> str:
        return unused(self.taken, (f"shared{number}" for number in count(len(self.taken))))


class _Cut(Struct, frozen=True):
    """A nest whose tile a size may cut: beyond their ends `rows` repeat the last one, `columns` have no active lane."""

    nest: StoreNest
    rows: tuple[For, ...]
    columns: tuple[For, ...]

    @property
    def vectors(self) -> int:
        """How many vectors the tile has."""
        return prod(loop.lanes for loop in self.nest.tile)

    @property
    def end(self) -> _End | None:
        """Where the columns end, if one loop runs over them."""
        return (self.columns[0].hi, self.columns[0].lanes) if len(self.columns) == 1 else None


# The upper end of an unrolled loop from 0 and the number of iterations that it has at most.
_End: TypeAlias = tuple[KExpr, int]


def _counts(most: int) -> list[int]:
    """Return how many vectors a row of a tile may have, up to `most`."""
    step = -(-most // MAX_CUT_SHAPES)
    return sorted({min(most, step * (k + 1)) for k in range(MAX_CUT_SHAPES)})


def _ends_at(loop: For, end: _End) -> bool:
    """Whether a loop is unrolled, begins at 0 and has this end."""
    return loop.kind is LoopKind.UNROLL and (loop.hi, loop.lanes) == end and loop.lo == Const(0) and loop.step == 1


def _loops_to(stmt: Stmt, end: _End) -> bool:
    """Whether a statement is a nest with an unrolled loop that has this end."""
    while isinstance(stmt, For):
        if _ends_at(stmt, end):
            return True
        if len(stmt.body) != 1:
            return False
        stmt = stmt.body[0]
    return False


def _is_stored_by_rows(stmt: For) -> bool:
    """Whether the vectors of a nest store to neighbouring elements: else each lane is stored by itself, in so much code that
    accumulators leave the registers where there are shapes of it."""
    for inner in loops_of((stmt,), LoopKind.VECTOR):
        stores = (s for s in inner.body if isinstance(s, Store))
        if any(uses(inner.var, i) for store in stores for i in store.indices[:-1]):
            return False
    return True


def _ending(stmt: Stmt, end: _End, count: int | None) -> Stmt:
    """Return a nest whose loop with this end runs `count` times, None: as often as it says."""
    if not isinstance(stmt, For) or count is None:
        return stmt
    if _ends_at(stmt, end):
        return replace(stmt, hi=Const(count), trip=count)
    return replace(stmt, body=tuple(_ending(s, end, count) for s in stmt.body))


def _is_plain(loop: For, inside: set[str]) -> bool:
    """Whether a loop runs from 0 to what the loops of its nest do not change."""
    return loop.lo == Const(0) and loop.step == 1 and loop.lanes > 0 and not any(uses(name, loop.hi) for name in inside)


def _are_apart(store: Store, cut: list[For], vector: For | None) -> bool:
    """Whether different iterations of the loops store to different elements."""
    lanes = {} if vector is None else {vector.var: vector.lanes}
    for loop in cut:
        for index in store.indices:
            parts = dict(polynomial(index))
            own = abs(parts.pop((Var(loop.var),), 0))
            others = {m: c for m, c in parts.items() if m}
            reach = sum(
                abs(c) * (lanes.get(m[0].name, inf) - 1 if len(m) == 1 and isinstance(m[0], Var) else inf)
                for m, c in others.items()
            )
            if own > reach:
                break
        else:
            return False
    return True


def _is_empty_beyond(vector: For | None, loop: For) -> bool:
    """Whether the vector has no active lane in iterations of a tile's loop beyond its end."""
    if vector is None or vector.lo != Const(0):
        return False
    ends = vector.hi.args if isinstance(vector.hi, Op) and vector.hi.op == "minimum" else (vector.hi,)
    limits = loop.hi.args if isinstance(loop.hi, Op) and loop.hi.op == "minimum" else (loop.hi,)
    # The loop is unrolled `lanes` times: what only says that it is no longer does not end it.
    limits = tuple(x for x in limits if (n := as_constant(polynomial(x))) is None or n < loop.lanes)
    return bool(limits) and all(any(_at_most_zero(end, loop.var, limit) for end in ends) for limit in limits)


def _is_cheap(value: KExpr) -> bool:
    """Whether what a result takes is no more than to fetch it, and to add it to another."""
    return sum(isinstance(e, Op) and e.dtype != i64 for e in subexpressions(value)) < 2


def _all_columns(nest: StoreNest) -> Stmt:
    """Return a nest over a cut tile without tests of its columns: vectors beyond the end have no active lane."""
    assert nest.vector is not None
    inside = {loop.var for loop in (*nest.serial, *nest.tile)}
    tile: list[For] = []
    for loop in nest.tile:
        cut = trip_count(loop) is None and uses(loop.var, nest.vector.hi) and _is_plain(loop, inside)
        whole = cut and _is_empty_beyond(nest.vector, loop)
        tile.append(replace(loop, hi=Const(loop.lanes), trip=loop.lanes) if whole else loop)
    (found,) = nested((*nest.serial, *tile, nest.vector), (*nest.prefetches, nest.store))
    return found


def _at_most_zero(end: KExpr, var: str, limit: KExpr) -> bool:
    """Whether an expression that falls with a variable is not positive where the variable is at its limit."""
    parts = dict(polynomial(end))
    slope = parts.pop((Var(var),), 0)
    if slope >= 0 or any(uses(var, *m) for m in parts):
        return False
    found = _most(plus(parts, scaled(polynomial(limit), slope)))
    return found is not None and found < 1


def _most(poly: Poly) -> Fraction | None:
    """Return a constant that a polynomial is at most, quotients taken as fractions; None where variables are left."""
    scale = 1
    while divided := [(m, m[0].args) for m in poly if len(m) == 1 and isinstance(m[0], Op) and m[0].op == "floordiv"]:
        monomial, (e, divisor) = divided[0]
        d = as_constant(polynomial(divisor))
        if d is None or d <= 0 or scale * d > MAX_FRACTION_SCALE:
            return None
        # f * (e // d) is at most f/d * e, and -f * (e // d) at most f/d * (d - 1 - e).
        poly, scale = scaled(poly, d), scale * d
        factor = poly[monomial] // d
        rest = {m: f for m, f in poly.items() if m != monomial}
        poly = plus(rest, scaled(plus(polynomial(e), constant(1 - d if factor < 0 else 0)), factor))
    known = as_constant(poly)
    return None if known is None else Fraction(known, scale)
