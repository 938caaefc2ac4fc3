"""Make loops inside vector loops uniform: in one iteration, their variable has one value in all lanes.

    for l vector(4): for k in range(l, n): B     ->     for l vector(4): for k in range(min of l, n): if k >= l: B

Else each lane would begin with a value of its own, and lanes that share an element, one after another by k, would meet in it.
"""

from __future__ import annotations

from functools import reduce

from polyker.codegen.ir.kernel import Const, For, If, KernelIR, KExpr, LoopKind, Op, Stmt, StmtBlock, Var
from polyker.codegen.ir.walk import substitute, uses, with_blocks
from polyker.ir.dtypes import bool_
from polyker.structs import replace


def uniform_inner_loops(kernel: KernelIR) -> KernelIR:
    """Return the kernel with loops inside vector loops from the first value that a lane has to the last."""
    return replace(kernel, body=_block(kernel.body, None))


def _block(block: StmtBlock, vector: For | None) -> StmtBlock:
    return tuple(_statement(s, vector) for s in block)


def _statement(stmt: Stmt, vector: For | None) -> Stmt:
    if isinstance(stmt, For) and stmt.kind is LoopKind.VECTOR:
        return with_blocks(stmt, lambda block: _block(block, stmt))
    inside = with_blocks(stmt, lambda block: _block(block, vector))
    if vector is None or not isinstance(inside, For) or not uses(vector.var, inside.lo):
        return inside
    return _from_the_first(inside, vector)


def _from_the_first(loop: For, vector: For) -> For:
    """Return a loop over the values of all lanes, with its body where they are a lane's own."""

    def of(lane: int, expr: KExpr) -> KExpr:
        return substitute(expr, {vector.var: Op("add", (vector.lo, Const(lane)))})

    def of_all(op: str, expr: KExpr) -> KExpr:
        return reduce(lambda x, y: Op(op, (x, y)), (of(lane, expr) for lane in range(vector.lanes)))

    here = Var(loop.var)
    mine = Op("and", (Op("le", (loop.lo, here), bool_), Op("lt", (here, loop.hi), bool_)), bool_)
    if loop.step > 1:
        beyond = Op("mod", (Op("sub", (here, loop.lo)), Const(loop.step)))
        mine = Op("and", (mine, Op("eq", (beyond, Const(0)), bool_)), bool_)
    lo, hi = of_all("minimum", loop.lo), of_all("maximum", loop.hi)
    return For(loop.var, lo, hi, (If(mine, loop.body),))
