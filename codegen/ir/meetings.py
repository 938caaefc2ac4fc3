"""Check that all threads reach each barrier and shuffle: none stands under what differs between them."""

from __future__ import annotations

from msgspec import Struct

from polyker.codegen.ir.kernel import (
    AXES,
    WARP,
    Allocate,
    Barrier,
    For,
    Guard,
    If,
    KernelIR,
    KExpr,
    Launch,
    Let,
    LoopKind,
    Shuffle,
    Space,
    Stmt,
    StmtBlock,
)
from polyker.codegen.ir.walk import bound_by, loads_in, names_in, statements
from polyker.errors.base import InternalError


def check_meetings(kernel: KernelIR) -> None:
    """Raise InternalError for a barrier that not every thread of its block comes to, or a shuffle or barrier of a warp's threads.

    A thread differs from others by its numbers and by what follows from them: variables, its own buffers, memory at such places.
    """
    for launch in statements(kernel.body):
        if isinstance(launch, Launch):
            # Threads are numbered along x first: those of a warp differ along x alone where rows are whole warps.
            rows = launch.block[0] % WARP == 0
            _SyncWalk(launch, frozenset("x" if rows else AXES), warps=True).block(
                launch.body, frozenset(), divergent=False
            )
            _SyncWalk(launch, frozenset(AXES), warps=False).block(launch.body, frozenset(), divergent=False)


class _SyncWalk(Struct):
    """`axes`: along which threads differ that have to meet: those of a warp, or those of a block."""

    launch: Launch
    axes: frozenset[str]
    warps: bool

    def block(self, block: StmtBlock, own: frozenset[str], *, divergent: bool) -> None:
        """Check a block; `own`: names that differ between the threads; `divergent`: some of them may not be here."""
        for stmt in block:
            if divergent and self.warps and isinstance(stmt, Shuffle):
                raise InternalError(f"some threads of a warp of {self.launch.name} miss a shuffle")
            if divergent and isinstance(stmt, Barrier) and stmt.warps is self.warps:
                whom = "a warp" if self.warps else "a block"
                raise InternalError(f"some threads of {whom} of {self.launch.name} miss a barrier")
            if isinstance(stmt, Guard):
                divergent = divergent or self.differs(stmt.condition, own)
            own |= self.bound(stmt, own)
            self.inside(stmt, own, divergent=divergent)

    def bound(self, stmt: Stmt, own: frozenset[str]) -> frozenset[str]:
        """Return the names that differ of those that a statement binds for the rest of its block."""
        alike = isinstance(stmt, Let) and not self.differs(stmt.value, own)
        return frozenset() if alike else frozenset(bound_by(stmt))

    def inside(self, stmt: Stmt, own: frozenset[str], *, divergent: bool) -> None:
        """Check the blocks in a statement."""
        match stmt:
            case For(kind=LoopKind.THREAD, body=body):
                mine = stmt.axis in self.axes
                count = self.launch.block[AXES.index(stmt.axis)]
                once = stmt.trip == count and stmt.step == 1 and not self.differs(stmt.lo, own)
                self.block(body, own | {stmt.var} if mine else own, divergent=divergent or (mine and not once))
            case For(body=body):
                differs = self.differs(stmt.lo, own) or self.differs(stmt.hi, own)
                self.block(body, own | {stmt.var} if differs else own, divergent=divergent or differs)
            case If(body=body, orelse=orelse):
                differs = self.differs(stmt.condition, own)
                self.block(body, own, divergent=divergent or differs)
                self.block(orelse, own, divergent=divergent or differs)
            case Allocate(buffers=buffers, body=body):
                self.block(body, own | {b.name for b in buffers if b.space is Space.STACK}, divergent=divergent)
            case _:
                pass

    def differs(self, expr: KExpr, own: frozenset[str]) -> bool:
        """Return whether the value of an expression may differ between threads."""
        return bool(names_in(expr) & own) or any(load.buffer in own for load in loads_in(expr))
