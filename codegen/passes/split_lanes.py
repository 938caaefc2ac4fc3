"""Split vector loops whose lanes are no power of two into native vectors.

    vector(40) v in 0:40: acc[r, v] += A[i, k] * B[k, j+v]
    ->
    unroll(3) c in 0:3: vector(16) v in 16*c:min(40, 16*c+16): acc[r, v] += A[i, k] * B[k, j+v]

LLVM widens a vector whose lanes are no power of two to the next one, and takes it apart where it has no such operation: values
that are kept between iterations go through the stack. Lanes may run one after another, so these vectors may, too.
"""

from __future__ import annotations

from polyker.codegen.ir.kernel import Const, For, KernelIR, LoopKind, Op, Stmt, StmtBlock, Var
from polyker.codegen.ir.polynomial import constant, expression, plus, polynomial, scaled
from polyker.codegen.ir.walk import allocated, statements, stores_of, with_blocks
from polyker.machine.model import Target
from polyker.structs import replace


def split_lanes(kernel: KernelIR, target: Target) -> KernelIR:
    """Return the kernel with such loops in native vectors, the last one masked; a narrower one gets a power of two."""
    return replace(kernel, body=_Splitter(kernel, target).block(kernel.body))


class _Splitter:
    def __init__(self, kernel: KernelIR, target: Target) -> None:
        self._target = target
        self._sizes = {b.name: b.dtype.itemsize for b in (*kernel.buffers, *allocated(kernel.body))}
        self._names = {s.var for s in statements(kernel.body) if isinstance(s, For)}

    def block(self, block: StmtBlock) -> StmtBlock:
        """Return a block with its vectors split."""
        return tuple(map(self._statement, block))

    def _statement(self, stmt: Stmt) -> Stmt:
        if not isinstance(stmt, For) or stmt.kind is not LoopKind.VECTOR:
            return with_blocks(stmt, self.block)
        if not stmt.lanes & (stmt.lanes - 1):
            return stmt
        lanes = self._target.lanes(max((self._sizes[s.buffer] for s in stores_of(stmt.body)), default=1))
        if stmt.lanes < lanes:
            return replace(stmt, lanes=1 << stmt.lanes.bit_length())
        count = -(-stmt.lanes // lanes)
        outer = self._fresh(f"{stmt.var}c")
        first = plus(polynomial(stmt.lo), scaled(polynomial(Var(outer)), lanes))
        end = expression(plus(first, constant(lanes)))
        trip = lanes if stmt.trip == count * lanes else None
        hi = end if trip else Op("minimum", (stmt.hi, end))
        inner = replace(stmt, lo=expression(first), hi=hi, lanes=lanes, trip=trip)
        return For(outer, Const(0), Const(count), (inner,), kind=LoopKind.UNROLL, lanes=count, trip=count)

    def _fresh(self, name: str) -> str:
        while name in self._names:
            name += "_"
        self._names.add(name)
        return name
