"""Hoist the initialisation of a scope's buffers out of loops.

    if n >= 1: for i: acc[i] = 0             for i: acc[i] = 0
    for k in 0:n: for i: acc[i] += …   ->    for k in 0:n: for i: acc[i] += …

What a buffer holds when its scope begins is nobody's. So constants may be put there whether or not a test around them holds that
has nothing to do with where they are put. Then accumulators begin anew in each tile, and none is carried to the next.
"""

from __future__ import annotations

from collections.abc import Collection

from polyker.codegen.ir.kernel import Const, For, If, Prefetch, Stmt, StmtBlock, Store
from polyker.codegen.ir.simplify_index import has_load
from polyker.codegen.ir.walk import expressions, names_in, statements


def begun(block: StmtBlock, buffers: Collection[str]) -> StmtBlock:
    """Return the block of a scope with these buffers, each of one thread alone, without tests around its first constants."""
    found: list[Stmt] = []
    for n, stmt in enumerate(block):
        if not _puts_constants(stmt, buffers):
            return (*found, *block[n:])
        if isinstance(stmt, If) and not stmt.orelse and _is_apart(stmt):
            found += stmt.body
        else:
            found.append(stmt)
    return tuple(found)


def _puts_constants(stmt: Stmt, buffers: Collection[str]) -> bool:
    """Whether a statement does nothing but that."""
    for s in statements((stmt,)):
        match s:
            case Store(buffer=buffer, value=Const()) if buffer in buffers:
                pass
            case For() | If() | Prefetch():
                pass
            case _:
                return False
    return True


def _is_apart(test: If) -> bool:
    """Whether the places under a test have nothing to do with it: no size of it is in them, and no element that it might
    guard."""
    below = [e for s in statements(test.body) for e in expressions(s)]
    return not names_in(test.condition) & names_in(*below) and not any(map(has_load, below))
