"""Keep elements that one iteration of a serial loop writes and a later one reads in registers.

    for t: S[t] = S[t-1] + X[t]        carried[1] = S[lo-1]
                                       for t: x = carried[1] + X[t]; S[t] = x; carried[1] = x

A load from what was stored just before waits for the store: several times the latency of the addition. Carried values are
STACK buffers with constant places, which become registers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from typing import TypeAlias, TypeGuard

from msgspec import Struct

from polyker.codegen.ir.kernel import (
    Allocate,
    Buffer,
    Const,
    For,
    If,
    KernelIR,
    KExpr,
    Let,
    Load,
    LoopKind,
    Op,
    Space,
    Stmt,
    StmtBlock,
    Store,
    Var,
)
from polyker.codegen.ir.polynomial import Poly, as_constant, expression, minus, polynomial
from polyker.codegen.ir.walk import (
    expressions,
    loaded,
    loads_in,
    loops_of,
    rebuild,
    statements,
    subexpressions,
    substitute,
    uses,
    with_blocks,
    with_expressions,
)
from polyker.codegen.passes.simplify import trip_count
from polyker.ir.dtypes import DType, bool_
from polyker.poly.steps import MAX_REGISTER_DISTANCE
from polyker.structs import replace

_LANE = Var("\0lane")
# Loops whose iterations run one by one.
_WALKED = (LoopKind.SERIAL, LoopKind.PARALLEL, LoopKind.BLOCK, LoopKind.THREAD)

ElementIndex: TypeAlias = tuple[Poly, ...]  # an access's indices, the vector loop's variable written as lo + lane


def carry(kernel: KernelIR) -> KernelIR:
    """Return the kernel with what its serial loops store, and read again a few iterations later, kept in registers.

    Run after `unroll`: what the iterations of an UNROLL loop share is visible then.
    """
    types = {b.name: b.dtype for b in kernel.buffers if b.writable}
    read = loaded(kernel.body)
    types = {name: dtype for name, dtype in types.items() if name in read}
    return replace(kernel, body=_Carrier(types).block(kernel.body)) if types else kernel


class _CarriedStore(Struct, frozen=True):
    """A store of a loop's body, `position` statements into it: alone, or within the VECTOR loop `vector`."""

    position: tuple[int, int]
    vector: For | None
    store: Store
    element: ElementIndex

    @property
    def lanes(self) -> int:
        return 1 if self.vector is None else self.vector.lanes


class _CarriedRead(Struct, frozen=True):
    """An element that a loop's body reads, within the VECTOR loop `vector` if it stands in one."""

    vector: For | None
    element: ElementIndex


class _Carried(Struct, frozen=True):
    """A store whose values later iterations read from `buffer`, and the greatest distance at which they do."""

    site: _CarriedStore
    buffer: Buffer
    distances: tuple[int, ...]

    def place(self, distance: int) -> tuple[KExpr, ...]:
        """Return the place of the value of so many stores ago, 1 or more."""
        vector = self.site.vector
        if vector is None:
            return (Const(distance - 1),)
        return Const(distance - 1), expression(minus(polynomial(Var(vector.var)), polynomial(vector.lo)))


class _Carrier:
    def __init__(self, types: dict[str, DType]) -> None:
        self._types = types
        self._count = 0

    def block(self, block: StmtBlock) -> StmtBlock:
        """Return a block with its loops changed."""
        return tuple(s for stmt in block for s in self._statement(stmt))

    def _statement(self, stmt: Stmt) -> StmtBlock:
        match stmt:
            case For(kind=LoopKind.SERIAL) if found := self._carried(stmt):
                return self._rewritten(stmt, found)
            case For(kind=kind) if kind not in _WALKED:
                return (stmt,)
            case _:
                return (with_blocks(stmt, self.block),)

    def _carried(self, loop: For) -> list[_Carried]:
        """Return the stores whose elements are read a few iterations later, before anything else is stored there."""
        if any(loops_of(loop.body, LoopKind.BLOCK)):
            return []  # on the host of a GPU no thread's registers last from one iteration to the next
        sites = [s for s in _sites(loop) if s.store.buffer in self._types]
        known = trip_count(loop)
        trip = MAX_REGISTER_DISTANCE + 1 if known is None else known
        counts: dict[str, int] = {}
        for stmt in statements(loop.body):
            if isinstance(stmt, Store):
                counts[stmt.buffer] = counts.get(stmt.buffer, 0) + 1
        reads = _reads(loop, counts.keys())
        found = []
        for site in sites:
            name = site.store.buffer
            if name not in reads:
                continue
            others = [s for s in sites if s.store.buffer == name]
            if len(others) < counts[name] or not _advances(site.element, loop) or not _is_plain(site.element, loop):
                continue
            distances = tuple(
                d for d in range(1, min(MAX_REGISTER_DISTANCE, trip - 1) + 1) if _is_read(reads[name], loop, site, d)
            )
            if distances and all(o is site or _apart(site, o, loop, distances[-1]) for o in others):
                self._count += 1
                shape = (Const(distances[-1] + 1), *(() if site.vector is None else (Const(site.lanes),)))
                strides = (Const(1),) if site.vector is None else (Const(site.lanes), Const(1))
                buffer = Buffer(f"carried{self._count}", self._types[name], shape, strides, Space.STACK)
                found.append(_Carried(site, buffer, distances))
        return found

    def _rewritten(self, loop: For, carried: list[_Carried]) -> StmtBlock:
        before = tuple(s for c in carried for s in _starts(loop, c))
        body: list[Stmt] = []
        for n, stmt in enumerate(loop.body):
            if _is_vector(stmt):
                inner = tuple(s for k, one in enumerate(stmt.body) for s in _changed(one, stmt, (n, k), loop, carried))
                body.append(replace(stmt, body=inner))
            else:
                body.extend(_changed(stmt, None, (n, 0), loop, carried))
        result: StmtBlock = (*before, replace(loop, body=tuple(body)))
        return (Allocate(tuple(c.buffer for c in reversed(carried)), result),)


def _sites(loop: For) -> Iterator[_CarriedStore]:
    """Yield the stores that run in every iteration, whose lanes the loop does not change."""
    for n, stmt in enumerate(loop.body):
        if isinstance(stmt, Store):
            yield _CarriedStore((n, 0), None, stmt, _element(stmt.indices, None))
        elif _is_vector(stmt) and stmt.lanes > 1 and not uses(loop.var, stmt.lo, stmt.hi):
            for k, inner in enumerate(stmt.body):
                if isinstance(inner, Store):
                    yield _CarriedStore((n, k), stmt, inner, _element(inner.indices, stmt))


def _is_vector(stmt: Stmt) -> TypeGuard[For]:
    return isinstance(stmt, For) and stmt.kind is LoopKind.VECTOR


def _element(indices: tuple[KExpr, ...], vector: For | None) -> ElementIndex:
    if vector is None:
        return tuple(polynomial(i) for i in indices)
    lane = {vector.var: Op("add", (vector.lo, _LANE))}
    return tuple(polynomial(substitute(i, lane)) for i in indices)


def _factor(poly: Poly, var: KExpr) -> int | None:
    """Return the constant factor of a variable in a polynomial, None where it stands elsewhere in it too."""
    for monomial in poly:
        if monomial != (var,) and any(e == var for atom in monomial for e in subexpressions(atom)):
            return None
    return poly.get((var,), 0)


def _advances(element: ElementIndex, loop: For) -> bool:
    """Return whether no two iterations of a loop have one element, for any lanes of theirs."""
    return any(_factor(p, Var(loop.var)) and _factor(p, _LANE) == 0 for p in element)


def _is_plain(element: ElementIndex, loop: For) -> bool:
    """Return whether an element's indices depend on nothing that is loaded or bound within the loop, but for its variable."""
    inside = {s.name for s in statements(loop.body) if isinstance(s, Let)}
    atoms = (e for p in element for monomial in p for atom in monomial for e in subexpressions(atom))
    return not any(isinstance(e, Load) or (isinstance(e, Var) and e.name in inside) for e in atoms)


def _earlier(element: ElementIndex, loop: For, distance: int) -> ElementIndex:
    """Return an element of so many iterations before."""
    before = {loop.var: Op("add", (Var(loop.var), Const(-distance * loop.step)))}
    return tuple(polynomial(substitute(expression(p), before)) for p in element)


def _apart(site: _CarriedStore, other: _CarriedStore, loop: For, distance: int) -> bool:
    """Return whether another store misses an element of `distance` iterations before, in all iterations from that to this."""
    var = Var(loop.var)
    for mine, theirs in zip(site.element, other.element, strict=True):
        gap = as_constant(minus(theirs, mine))
        step, lane = _factor(mine, var), _factor(mine, _LANE)
        if gap is None or step is None or lane is None:
            continue
        reach = abs(lane) * (max(site.lanes, other.lanes) - 1)
        if all(abs(gap + step * loop.step * d) > reach for d in range(distance + 1)):
            return True
    return False


def _reads(loop: For, buffers: Set[str]) -> dict[str, list[_CarriedRead]]:
    """Return what a loop's body surely reads of some buffers, by buffer."""
    found: dict[str, list[_CarriedRead]] = {}
    for stmt in loop.body:
        vector = stmt if _is_vector(stmt) else None
        for one in (stmt,) if vector is None else vector.body:
            for load in loads_in(*expressions(one)) if isinstance(one, Store | Let) else ():
                if load.buffer in buffers and load.predicate is None:
                    found.setdefault(load.buffer, []).append(_CarriedRead(vector, _element(load.indices, vector)))
    return found


def _is_read(reads: Sequence[_CarriedRead], loop: For, site: _CarriedStore, distance: int) -> bool:
    """Return whether a loop's body reads what a store wrote so many iterations ago, lane by lane."""
    wanted = _earlier(site.element, loop, distance)
    return any(read.element == wanted and _same_lanes(read.vector, site.vector) for read in reads)


def _same_lanes(a: For | None, b: For | None) -> bool:
    if a is None or b is None:
        return a is b
    return (a.lanes, polynomial(a.lo), polynomial(a.hi)) == (b.lanes, polynomial(b.lo), polynomial(b.hi))


def _starts(loop: For, carried: _Carried) -> Iterator[Stmt]:
    """Yield the loads of what was stored before the first iteration, each if some iteration reads it."""
    site, trip = carried.site, trip_count(loop)

    def in_lanes(start: Store) -> Stmt:
        return start if site.vector is None else replace(site.vector, body=(start,))

    dtype = carried.buffer.dtype
    for distance in range(1, carried.distances[-1] + 1):
        # The iteration that reads it is the first one from which a distance reaches back so far.
        first = min(d for d in carried.distances if d >= distance) - distance
        at = {loop.var: Op("add", (loop.lo, Const(-distance * loop.step)))}
        element = Load(site.store.buffer, tuple(substitute(i, at) for i in site.store.indices), dtype)
        start = in_lanes(Store(carried.buffer.name, carried.place(distance), element))
        if trip is not None:
            yield start
            continue
        yield in_lanes(
            Store(carried.buffer.name, carried.place(distance), Const(False if dtype.kind == "b" else 0, dtype))
        )
        yield If(Op("lt", (Op("add", (loop.lo, Const(first * loop.step))), loop.hi), bool_), (start,))


def _changed(
    stmt: Stmt, vector: For | None, position: tuple[int, int], loop: For, carried: list[_Carried]
) -> Iterator[Stmt]:
    """Yield a statement with its loads of carried elements replaced, and where it stores such elements, the copies
    that carry them to the next iteration."""

    def change(expr: KExpr) -> KExpr:
        if isinstance(expr, Load) and expr.predicate is None:
            for c in carried:
                if c.site.store.buffer == expr.buffer and _same_lanes(vector, c.site.vector):
                    element = _element(expr.indices, vector)
                    for d in c.distances:
                        if element == _earlier(c.site.element, loop, d):
                            place = c.place(d + (position > c.site.position))
                            return Load(c.buffer.name, _in_lanes(place, c.site.vector, vector), expr.dtype)
        return rebuild(expr, change)

    own = next((c for c in carried if c.site.position == position), None)
    changed = with_expressions(stmt, change) if isinstance(stmt, Let | Store) else stmt
    if own is None or not isinstance(changed, Store):
        yield changed
        return
    name = f"{own.buffer.name}.now"
    yield Let(name, changed.value)
    yield replace(changed, value=Var(name, own.buffer.dtype))
    for d in range(own.distances[-1] + 1, 1, -1):
        yield Store(own.buffer.name, own.place(d), Load(own.buffer.name, own.place(d - 1), own.buffer.dtype))
    yield Store(own.buffer.name, own.place(1), Var(name, own.buffer.dtype))


def _in_lanes(place: tuple[KExpr, ...], own: For | None, vector: For | None) -> tuple[KExpr, ...]:
    """Return a place in terms of another vector loop's variable."""
    if own is None or vector is None or own.var == vector.var:
        return place
    return tuple(substitute(p, {own.var: Var(vector.var)}) for p in place)
