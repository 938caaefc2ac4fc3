"""What the threads of a block run between two barriers, dealt out to them.

isl writes what one thread runs, its numbers being parameters. Here loops over those numbers are put around the largest parts
that hold no barrier: so a barrier stands in no such loop, and whatever is around one is the same for all threads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from polyker.codegen.kernel import (
    Allocate,
    Barrier,
    Block,
    Commit,
    Const,
    For,
    If,
    KExpr,
    LoopKind,
    Op,
    Space,
    Stmt,
    Var,
    Wait,
)
from polyker.codegen.walk import statements, subexpressions
from polyker.errors.base import InternalError
from polyker.ir.dtypes import bool_
from polyker.schedule.to_isl import Threads


def dealt_to_threads(block: Block, threads: tuple[Threads, ...]) -> Block:
    """Return the block of a launch with loops over the numbers of its threads, x the innermost."""
    found: list[Stmt] = []
    part: list[Stmt] = []
    for stmt in (*block, None):
        if stmt is not None and not _is_common(stmt):
            part.append(stmt)
            continue
        if part:
            inner: Block = tuple(part)
            for t in threads:
                loop = For(
                    t.name,
                    Const(0),
                    Const(t.extent),
                    inner,
                    kind=LoopKind.THREAD,
                    lanes=t.extent,
                    trip=t.extent,
                    axis=t.axis,
                )
                inner = (loop,)
            found += inner
            part.clear()
        match stmt:
            case None:
                pass
            case If() if _of_threads(stmt, threads):
                found += dealt_to_threads(_sunk(stmt), threads)
            case If(body=body, orelse=orelse):
                found.append(
                    replace(stmt, body=dealt_to_threads(body, threads), orelse=dealt_to_threads(orelse, threads))
                )
            case For(body=body) | Allocate(body=body):
                found.append(replace(stmt, body=dealt_to_threads(body, threads)))
            case _:
                found.append(stmt)
    return tuple(found)


def _of_threads(stmt: If, threads: tuple[Threads, ...]) -> bool:
    """Whether a condition tells threads apart that need not meet in what it is of."""
    names = {t.name for t in threads}
    meet = any(
        isinstance(s, (Barrier, Commit, Wait)) or (isinstance(s, Allocate) and s.buffer.space is Space.SHARED)
        for s in statements((stmt,))
    )
    return not meet and any(isinstance(e, Var) and e.name in names for e in subexpressions(stmt.condition))


def _sunk(stmt: If) -> Block:
    """Return a test of threads' numbers put inside the loops over blocks in it, which are the same for all threads."""
    otherwise = Op("not", (stmt.condition,), bool_)
    then = [s for inner in stmt.body for s in _under(stmt.condition, inner)]
    return (*then, *(s for inner in stmt.orelse for s in _under(otherwise, inner)))


def _under(condition: KExpr, stmt: Stmt) -> Block:
    match stmt:
        case For(kind=LoopKind.BLOCK, body=body):
            return (replace(stmt, body=tuple(s for inner in body for s in _under(condition, inner))),)
        case If() if _is_common(stmt):
            return tuple(s for inner in _sunk(stmt) for s in _under(condition, inner))
        case _ if _is_common(stmt):
            raise InternalError("a test of threads' numbers stands around what all threads of a block come to")
        case _:
            return (If(condition, (stmt,)),)


def _is_common(stmt: Stmt) -> bool:
    """Whether all threads of a block have to come to a statement."""
    return any(
        isinstance(s, (Barrier, Commit, Wait))
        or (isinstance(s, For) and s.kind is LoopKind.BLOCK)
        or (isinstance(s, Allocate) and s.buffer.space is Space.SHARED)
        for s in statements((stmt,))
    )


def iterations(
    block: Block, kind: LoopKind, axis: str, whole: Callable[[For], Stmt], single: Callable[[Block], Stmt]
) -> Block:
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
            body = iterations(stmt.body, kind, axis, whole, single)
            result.append(replace(stmt, body=body, orelse=iterations(stmt.orelse, kind, axis, whole, single)))
        else:
            alone.append(stmt)
    flush()
    return tuple(result)
