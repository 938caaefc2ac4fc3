"""What the threads of a block run between two barriers, dealt out to them.

isl writes what one thread runs, its numbers being parameters. Here loops over those numbers are put around the largest parts
that hold no barrier: so a barrier stands in no such loop, and whatever is around one is the same for all threads.
"""

from __future__ import annotations

from dataclasses import replace

from polyker.codegen.kernel import Allocate, Barrier, Block, Const, For, If, LoopKind, Space, Stmt
from polyker.codegen.walk import statements
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
            case If(body=body, orelse=orelse):
                found.append(
                    replace(stmt, body=dealt_to_threads(body, threads), orelse=dealt_to_threads(orelse, threads))
                )
            case For(body=body) | Allocate(body=body):
                found.append(replace(stmt, body=dealt_to_threads(body, threads)))
            case _:
                found.append(stmt)
    return tuple(found)


def _is_common(stmt: Stmt) -> bool:
    """Whether all threads of a block have to come to a statement."""
    return any(
        isinstance(s, Barrier)
        or (isinstance(s, For) and s.kind is LoopKind.BLOCK)
        or (isinstance(s, Allocate) and s.buffer.space is Space.SHARED)
        for s in statements((stmt,))
    )
