"""Find the accumulators of a tile: the nests over one store, whose STACK buffers hold nothing from before.

    for k: unroll r: unroll c: vector v: acc[r, c, v] += A[i+r, k] * B[k, 16*(j+c)+v]

Buffers that each tile sets anew live no longer than it: their scope stands around its loops alone. What a cut tile's vectors
leave as it was would be carried along in registers from tile to tile else, and saved around each.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from msgspec import Struct, field

from polyker.codegen.ir.kernel import (
    Allocate,
    Buffer,
    Const,
    For,
    KernelIR,
    KExpr,
    Load,
    LoopKind,
    Prefetch,
    Space,
    Stmt,
    StmtBlock,
    Store,
    Var,
)
from polyker.codegen.ir.polynomial import Poly, constant, polynomial
from polyker.codegen.ir.walk import (
    allocated,
    blocks_of,
    buffers_of,
    expressions,
    loads_in,
    rebuild,
    substitute,
    uses,
    with_blocks,
    with_expressions,
)
from polyker.structs import replace


def narrow(kernel: KernelIR) -> tuple[KernelIR, set[str]]:
    """Return the kernel with a scope of accumulators in each block that their tiles stand in, and the names of these."""
    held = [b for b in allocated(kernel.body) if b.space is Space.STACK]
    touched: _Touched = {}
    _note(kernel.body, touched)
    own = {b.name: b for b in held if _is_own(b.name, kernel.body, touched)}
    narrower = _Narrower({b.name for b in held}, touched)
    body = narrower.block(kernel.body, own) if own else kernel.body
    return replace(kernel, body=body), narrower.seen


class _Narrower(Struct):
    """Moves scopes of buffers; `taken`: the names of all. A buffer of several blocks has a name for each."""

    taken: set[str]
    touched: _Touched
    seen: set[str] = field(default_factory=set)

    def block(self, block: StmtBlock, own: Mapping[str, Buffer]) -> StmtBlock:
        """Return a block without the scopes of some buffers, with new ones around the tiles in it."""
        here = {name: buffer for name, buffer in own.items() if _beginning(name, block, self.touched) is not None}
        inner = {name: buffer for name, buffer in own.items() if name not in here}
        found: list[Stmt] = []
        for stmt in block:
            match stmt:
                case Allocate(buffers=buffers, body=body) if any(b.name in own for b in buffers):
                    rest = tuple(b for b in buffers if b.name not in own)
                    inside = self.block(body, inner)
                    found += (Allocate(rest, inside),) if rest else inside
                case _:
                    found.append(with_blocks(stmt, lambda b: self.block(b, inner)))
        result = tuple(found)
        held: list[Buffer] = []
        for name, buffer in here.items():
            new = self._name(name)
            held.append(replace(buffer, name=new))
            result = result if new == name else tuple(_renamed(s, name, new) for s in result)
        return (Allocate(tuple(reversed(held)), result),) if held else result

    def _name(self, name: str) -> str:
        new, n = name, 1
        while new in self.seen or (new != name and new in self.taken):
            new, n = f"{name}_{n}", n + 1
        self.seen.add(new)
        return new


def _renamed(stmt: Stmt, old: str, new: str) -> Stmt:
    """Return a statement that uses another buffer in place of one."""

    def change(e: KExpr) -> KExpr:
        e = rebuild(e, change)
        return replace(e, buffer=new) if isinstance(e, Load) and e.buffer == old else e

    stmt = with_blocks(with_expressions(stmt, change), lambda block: tuple(_renamed(s, old, new) for s in block))
    return replace(stmt, buffer=new) if isinstance(stmt, Store) and stmt.buffer == old else stmt


class StoreNest(Struct, frozen=True):
    """Loops around one store: `serial` ones, then those of a tile, `tile`, then its vectors; `prefetches`: what is prefetched."""

    serial: tuple[For, ...]
    tile: tuple[For, ...]
    vector: For | None
    prefetches: tuple[Stmt, ...]
    store: Store


def nest_of(outer: For) -> StoreNest | None:
    """Return a loop as a nest around one store whose value reads without conditions and without look-ups."""
    serial: list[For] = []
    tile: list[For] = []
    block: StmtBlock = (outer,)
    vector: For | None = None
    while len(block) == 1 and isinstance(block[0], For) and vector is None:
        loop = block[0]
        if loop.kind is LoopKind.VECTOR:
            vector = loop
        elif loop.kind is LoopKind.UNROLL:
            tile.append(loop)
        elif tile or loop.kind not in (LoopKind.SERIAL, LoopKind.TRANSPOSE):
            return None
        else:
            serial.append(loop)
        block = loop.body
    *prefetches, store = block if block else (None,)
    if not tile or not isinstance(store, Store) or not all(isinstance(s, Prefetch) for s in prefetches):
        return None
    if any(load.predicate is not None or any(loads_in(*load.indices)) for load in loads_in(*expressions(store))):
        return None
    return StoreNest(tuple(serial), tuple(tile), vector, tuple(prefetches), store)


# The buffers that a statement and those in it read or write, by its identity.
_Touched: TypeAlias = dict[int, frozenset[str]]


def _note(block: StmtBlock, touched: _Touched) -> frozenset[str]:
    """Note what each statement of a block touches, and return what all of it does."""
    for stmt in block:
        if id(stmt) not in touched:
            inside = (_note(body, touched) for body in blocks_of(stmt))
            touched[id(stmt)] = frozenset(buffers_of(stmt)).union(*inside)
    return frozenset().union(*(touched[id(stmt)] for stmt in block))


def _is_own(name: str, block: StmtBlock, touched: _Touched) -> bool:
    """Whether all loops over a STACK buffer have the same ends, and the first sets all elements anew whenever the block runs that
    they stand in; there may be several such blocks."""
    if (first := _beginning(name, block, touched)) is not None:
        shapes: list[_Shape | None] = []
        _collect(name, block, {}, shapes)
        anew = not any(load.buffer == name for load in loads_in(*expressions(first.store)))
        return anew and shapes[0] is not None and all(s == shapes[0] for s in shapes)
    using = (s for s in block if name in touched[id(s)])
    return all(
        blocks_of(s) and name not in buffers_of(s) and all(_is_own(name, b, touched) for b in blocks_of(s))
        for s in using
    )


def _beginning(name: str, block: StmtBlock, touched: _Touched) -> StoreNest | None:
    """Return the first loops of a block that use a buffer, if they are a tile's and store to it."""
    using = next((s for s in block if name in touched[id(s)]), None)
    first = nest_of(using) if isinstance(using, For) else None
    return first if first is not None and not first.serial and first.store.buffer == name else None


# Of an access: for each index its factors with the ends of the loops that they belong to, and the rest.
_Shape: TypeAlias = tuple[tuple[tuple[tuple[int, Poly, Poly], ...], Poly], ...]


def _collect(name: str, block: StmtBlock, loops: Mapping[str, For], shapes: list[_Shape | None]) -> None:
    """Note the shape of each access to a buffer; None where it is none of loops from 0."""
    for stmt in block:
        places = [stmt.indices] if isinstance(stmt, Store) and stmt.buffer == name else []
        places += [load.indices for load in loads_in(*expressions(stmt)) if load.buffer == name]
        shapes += [_shape(p, loops) for p in places]
        inside = {**loops, stmt.var: stmt} if isinstance(stmt, For) else loops
        for body in blocks_of(stmt):
            _collect(name, body, inside, shapes)


def _shape(indices: tuple[KExpr, ...], loops: Mapping[str, For]) -> _Shape | None:
    found = []
    names: dict[str, KExpr] = {}
    for d, index in enumerate(indices):
        parts = dict(polynomial(index))
        own = sorted(
            ((c, m[0].name) for m, c in parts.items() if len(m) == 1 and isinstance(m[0], Var) and m[0].name in loops),
            reverse=True,
        )
        names |= {var: Var(f"\0{d}.{n}") for n, (_, var) in enumerate(own)}
        rest = {m: c for m, c in parts.items() if not any(m == (Var(var),) for _, var in own)}
        if any(uses(var, *m) for m in rest for var in loops) or any(loops[var].lo != Const(0) for _, var in own):
            return None
        ends = []
        for factor, var in own:
            end = substitute(loops[var].hi, names)
            if any(uses(other, end) for other in loops):
                return None
            ends.append((factor, polynomial(end), constant(loops[var].step)))
        found.append((tuple(ends), rest))
    return tuple(found)
