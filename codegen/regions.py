"""PARALLEL loops that do too little to be worth starting threads run as serial ones; the others learn what an iteration does.

A region takes a microsecond or so to start where the threads still look for work, and wakes them where they sleep. Where sizes
are symbols the kernel decides when it runs: `For.work` is an expression of the sizes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from polyker.codegen.kernel import (
    Allocate,
    Block,
    Const,
    For,
    Guard,
    If,
    Kernel,
    KExpr,
    Let,
    LoopKind,
    Op,
    Stmt,
    Store,
    Var,
)
from polyker.codegen.simplify import trip_count
from polyker.codegen.simplify_index import has_load, simplify_expression
from polyker.codegen.walk import is_parallel, substitute
from polyker.codegen.work import cost
from polyker.ir.dtypes import i64

# Operations (polyker.codegen.work) of a whole loop from which on threads take part: 5 to 15 microseconds of one core's time.
LEAST = 150_000
# Products of trip counts must not overflow: what is beyond counts as so much.
_MOST_TRIPS, _MOST = 1 << 15, 1 << 40


def settle(kernel: Kernel, least: int = LEAST) -> Kernel:
    """Return the kernel with `work` noted in its PARALLEL loops, and those serial that do fewer than `least` operations."""
    if not is_parallel(kernel):
        return kernel
    return replace(kernel, body=_block(kernel.body, least))


def serial(loop: For) -> For:
    """Return a PARALLEL loop as a serial one."""
    body = (Let(loop.thread, Const(0)), *loop.body) if loop.thread else loop.body
    return replace(loop, kind=LoopKind.SERIAL, lanes=0, thread="", work=None, body=body)


def _block(block: Block, least: int) -> Block:
    return tuple(_statement(s, least) for s in block)


def _statement(stmt: Stmt, least: int) -> Stmt:
    match stmt:
        case For(kind=LoopKind.PARALLEL, body=body):
            work, trip = simplify_expression(_middle(stmt, _operations(body)), {}), trip_count(stmt)
            if trip is not None and (trip < 2 or (isinstance(work, Const) and trip * int(work.value.real) < least)):
                return serial(stmt)
            return replace(stmt, work=None if has_load(work) else work)
        case For(body=body) | Allocate(body=body):
            return replace(stmt, body=_block(body, least))
        case If(body=body, orelse=orelse):
            return replace(stmt, body=_block(body, least), orelse=_block(orelse, least))
        case _:
            return stmt


def _operations(block: Block) -> KExpr:
    """Return about how many operations a block does, a vector's counted as one: an expression of what is bound outside."""
    total: KExpr = Const(0)
    for stmt in reversed(block):
        match stmt:
            case For(lo=lo, hi=hi, step=step, body=body, kind=kind):
                length = Op("add", (hi, Op("neg", (lo,)), Const(step - 1)))
                trips: KExpr = Op("maximum", (Const(0), Op("floordiv", (length, Const(step)))))
                trips = Op("minimum", (trips, Const(1 if kind is LoopKind.VECTOR else _MOST_TRIPS)))
                each = _middle(stmt, Op("add", (Const(1), _operations(body))))
                total = Op("minimum", (Const(_MOST), Op("add", (total, Op("mul", (trips, each))))))
            case If(condition=condition, body=body, orelse=orelse):
                # As many as the longer way takes: most conditions tell full tiles from partial ones.
                longer = Op("maximum", (_operations(body), _operations(orelse)))
                total = Op("add", (total, Const(cost(condition)), longer))
            case Allocate(body=body):
                total = Op("add", (total, _operations(body)))
            case Let(name=name, value=value):
                bound = value if value.dtype == i64 and _is_index(value) else Const(0)
                total = Op("add", (substitute(total, {name: bound}), Const(cost(value))))
            case Store(value=value):
                total = Op("add", (total, Const(1 + cost(value))))
            case Guard(condition=condition):
                total = Op("add", (total, Const(cost(condition))))
            case _:
                total = Op("add", (total, Const(1)))
    return simplify_expression(total, {})


def _middle(loop: For, work: KExpr) -> KExpr:
    """Return the work in an iteration in the middle of a loop."""
    half = Op("floordiv", (Op("add", (loop.hi, Op("neg", (loop.lo,)))), Const(2)))
    values: Mapping[str, KExpr] = {loop.var: Op("add", (loop.lo, half)), loop.thread: Const(0)}
    return substitute(work, values)


def _is_index(expr: KExpr) -> bool:
    """Return whether an expression is arithmetic of indices, without loads."""
    match expr:
        case Const() | Var():
            return True
        case Op(args=args):
            return all(_is_index(a) for a in args)
        case _:
            return False
