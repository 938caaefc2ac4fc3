"""Distribute what a block runs between two barriers over its threads.

isl writes what one thread runs, its numbers being parameters. Here loops over those numbers are put around the largest parts
that hold no barrier: so a barrier stands in no such loop, and whatever is around one is the same for all threads.
"""

from __future__ import annotations

from collections.abc import Callable

from polyker.codegen.ir.kernel import (
    Allocate,
    Barrier,
    Commit,
    For,
    If,
    KExpr,
    LoopKind,
    Op,
    Space,
    Stmt,
    StmtBlock,
    Wait,
    loop_of,
)
from polyker.codegen.ir.walk import names_in, statements, with_blocks
from polyker.errors.base import InternalError
from polyker.ir.dtypes import bool_
from polyker.schedule.tree.to_isl import Threads

_MEETINGS = (Barrier, Commit, Wait)


def dealt_to_threads(block: StmtBlock, threads: tuple[Threads, ...]) -> StmtBlock:
    """Return the block of a launch with loops over the numbers of its threads, x the innermost."""
    found: list[Stmt] = []
    part: list[Stmt] = []
    for stmt in (*block, None):
        if stmt is not None and not _is_common(stmt):
            part.append(stmt)
            continue
        if part:
            inner: StmtBlock = tuple(part)
            for t in threads:
                inner = (loop_of(t.name, t.extent, inner, LoopKind.THREAD, t.axis),)
            found += inner
            part.clear()
        match stmt:
            case None:
                pass
            case If() if _of_threads(stmt, threads):
                found += dealt_to_threads(_sunk(stmt), threads)
            case _:
                found.append(with_blocks(stmt, lambda inner: dealt_to_threads(inner, threads)))
    return tuple(found)


def _of_threads(stmt: If, threads: tuple[Threads, ...]) -> bool:
    """Whether a condition tells threads apart."""
    return bool(names_in(stmt.condition) & {t.name for t in threads})


def _sunk(stmt: If) -> StmtBlock:
    """Return a test of threads' numbers put inside the statements in it that all threads of a block come to.

    isl puts around several statements what it knows of each. All threads come to the points where they meet, or none does: the
    test holds there whatever it says of a thread elsewhere.
    """
    if all(any(isinstance(s, _MEETINGS) for s in statements(part)) for part in (stmt.body, stmt.orelse)):
        raise InternalError("threads meet on both sides of a test of their numbers")
    otherwise = Op("not", (stmt.condition,), bool_)
    return (*_under(stmt.condition, stmt.body), *_under(otherwise, stmt.orelse))


def _under(condition: KExpr, block: StmtBlock) -> StmtBlock:
    """Return a block whose statements are tested each, but for the points where threads meet."""
    return tuple(
        with_blocks(s, lambda inner: _under(condition, inner)) if _is_common(s) else If(condition, (s,)) for s in block
    )


def _is_common(stmt: Stmt) -> bool:
    """Whether all threads of a block have to come to a statement."""
    return any(
        isinstance(s, _MEETINGS)
        or (isinstance(s, For) and s.kind is LoopKind.BLOCK)
        or (isinstance(s, Allocate) and any(b.space is Space.SHARED for b in s.buffers))
        for s in statements((stmt,))
    )


def iterations(
    block: StmtBlock, kind: LoopKind, axis: str, whole: Callable[[For], Stmt], single: Callable[[StmtBlock], Stmt]
) -> StmtBlock:
    """Return what isl made of a loop, its loops changed by `whole`; of one iteration isl makes no loop: `single` gets those."""
    result: list[Stmt] = []
    alone: list[Stmt] = []  # of iterations without a loop, whose statements belong together

    def is_loop(stmt: Stmt) -> bool:
        return isinstance(stmt, For) and (stmt.kind, stmt.axis) == (kind, axis)

    def flush() -> None:
        if alone:
            result.append(single(tuple(alone)))
            alone.clear()

    for stmt in block:
        if is_loop(stmt):
            flush()
            assert isinstance(stmt, For)
            result.append(whole(stmt))
        elif isinstance(stmt, If) and any(map(is_loop, statements((stmt,)))):
            flush()
            result.append(with_blocks(stmt, lambda inner: iterations(inner, kind, axis, whole, single)))
        else:
            alone.append(stmt)
    flush()
    return tuple(result)
