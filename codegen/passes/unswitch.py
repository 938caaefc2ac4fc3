"""Unswitch reduction loops whose terms are identities unless a loop-invariant condition holds.

    for l: m = minimum(m, where(c, t(l), inf))   ->   if c: for l: m = minimum(m, t(l))

The condition reads nothing that the loop writes. For reductions to which an identity adds nothing at all, as a sum's zero may:
-0.0 + 0.0 is 0.0.
"""

from __future__ import annotations

from polyker.codegen.ir.kernel import (
    Const,
    For,
    If,
    KernelIR,
    KExpr,
    Load,
    LoopKind,
    Op,
    Prefetch,
    Stmt,
    StmtBlock,
    Store,
)
from polyker.codegen.ir.walk import loads_in, names_in, statements, with_blocks
from polyker.codegen.passes.simplify import trip_count
from polyker.rewrite.core.accumulate import COMBINE
from polyker.rewrite.core.fresh import identity
from polyker.structs import replace

_REDUCTIONS = {COMBINE[op]: op for op in ("max", "min")}


def unswitch(kernel: KernelIR) -> KernelIR:
    """Return the kernel with such conditions around the outermost serial loops that do not change them."""
    body = _block(kernel.body)
    return kernel if body == kernel.body else replace(kernel, body=body)


def _block(block: StmtBlock) -> StmtBlock:
    return tuple(_statement(s) for s in block)


def _statement(stmt: Stmt) -> Stmt:
    # A branch in a tile, for each of its rows, would cost more than a choice.
    if isinstance(stmt, For) and stmt.kind is LoopKind.SERIAL:
        condition = _condition(stmt)
        if condition is not None:
            return If(condition, (_without(stmt),))
    return with_blocks(stmt, _block)


def _condition(loop: For) -> KExpr | None:
    """Return the condition that all terms of a loop have in common, if it is the same in all iterations."""
    inside = [s for s in statements((loop,)) if not isinstance(s, Prefetch)]
    loops, stores = [s for s in inside if isinstance(s, For)], [s for s in inside if isinstance(s, Store)]
    # Where no term is, the condition may read what is not there.
    if not stores or len(loops) + len(stores) < len(inside) or any((trip_count(s) or 0) < 1 for s in loops):
        return None
    conditions = [found and found[0] for found in map(guarded, stores)]
    condition = conditions[0]
    if condition is None or any(c != condition for c in conditions):
        return None
    changed = {s.var for s in loops}
    written = {s.buffer for s in stores}
    read = {load.buffer for load in loads_in(condition)}
    return None if changed & names_in(condition) or written & read else condition


def guarded(store: Store) -> tuple[KExpr, KExpr] | None:
    """Return the condition without which what a statement adds is the identity of its reduction, and the term where it holds."""
    match store.value:
        case Op(
            op="maximum" | "minimum" as op,
            args=(Load() as old, Op(op="where", args=(condition, term, Const() as none))),
        ):
            same = old.buffer == store.buffer and old.indices == store.indices
            wanted = identity(_REDUCTIONS[op], store.value.dtype).value
            return (condition, term) if same and none.value == wanted else None
        case _:
            return None


def _without(stmt: Stmt) -> Stmt:
    """Return a statement whose terms are taken as if their condition held."""
    if not isinstance(stmt, Store):
        return with_blocks(stmt, lambda block: tuple(map(_without, block)))
    found = guarded(stmt)
    assert found is not None
    assert isinstance(stmt.value, Op)
    return replace(stmt, value=replace(stmt.value, args=(stmt.value.args[0], found[1])))
