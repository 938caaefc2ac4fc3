"""Make loops inside vector loops uniform: in one iteration, their variable has one value in all lanes.

    for l vector(4): for k in range(l, n): B     ->     for l vector(4): for k in range(min of l, n): if k >= l: B

Else each lane would begin with a value of its own, and lanes that share an element, one after another by k, would meet in it.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

from polyker.codegen.ir.kernel import (
    Allocate,
    Const,
    For,
    If,
    KernelIR,
    KExpr,
    Launch,
    LoopKind,
    Op,
    Stmt,
    StmtBlock,
    Var,
)
from polyker.codegen.ir.walk import subexpressions, substitute
from polyker.ir.dtypes import bool_


def uniform_inner_loops(kernel: KernelIR) -> KernelIR:
    """Return the kernel with loops inside vector loops from the first value that a lane has to the last."""
    return replace(kernel, body=_block(kernel.body, None))


def _block(block: StmtBlock, vector: For | None) -> StmtBlock:
    return tuple(_statement(s, vector) for s in block)


def _statement(stmt: Stmt, vector: For | None) -> Stmt:
    match stmt:
        case If(body=body, orelse=orelse):
            return replace(stmt, body=_block(body, vector), orelse=_block(orelse, vector))
        case For(kind=LoopKind.VECTOR, body=body):
            return replace(stmt, body=_block(body, stmt))
        case For(lo=lo, body=body):
            inside = replace(stmt, body=_block(body, vector))
            return inside if vector is None or not _moves(lo, vector.var) else _from_the_first(inside, vector)
        case Allocate(body=body) | Launch(body=body):
            return replace(stmt, body=_block(body, vector))
        case _:
            return stmt


def _moves(expr: KExpr, name: str) -> bool:
    return any(isinstance(e, Var) and e.name == name for e in subexpressions(expr))


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
