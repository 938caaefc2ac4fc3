"""PARALLEL loops that do too little to be worth starting threads run as serial ones; the others learn what an iteration does.

A region takes a microsecond or so to start where the threads still look for work, and wakes them where they sleep. Where sizes
are symbols the kernel decides when it runs: `For.work` is an expression of the sizes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import count

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
from polyker.codegen.simplify_index import FALSE, TRUE, has_load, simplify_expression
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
    return replace(kernel, body=_block(kernel.body, least, count()))


def serial(loop: For) -> For:
    """Return a PARALLEL loop as a serial one."""
    body = (Let(loop.thread, Const(0)), *loop.body) if loop.thread else loop.body
    return replace(loop, kind=LoopKind.SERIAL, lanes=0, thread="", work=None, body=body)


def _block(block: Block, least: int, numbers: Iterator[int]) -> Block:
    return tuple(s for stmt in block for s in _statement(stmt, least, numbers))


def _statement(stmt: Stmt, least: int, numbers: Iterator[int]) -> Block:
    match stmt:
        case For(kind=LoopKind.PARALLEL, body=body):
            # A loop in an unrolled one stands here several times, its variable with one name.
            estimate, trip = _Estimate(f"{stmt.var}.work{next(numbers)}"), trip_count(stmt)
            work = estimate.operations(body, {stmt.var: estimate.middle(stmt, {}), stmt.thread: Const(0)})
            if trip is not None and (trip < 2 or (isinstance(work, Const) and trip * int(work.value.real) < least)):
                return (serial(stmt),)
            if any(has_load(let.value) for let in estimate.lets):
                return (stmt,)
            return (*estimate.lets, replace(stmt, work=work))
        case For(body=body) | Allocate(body=body):
            return (replace(stmt, body=_block(body, least, numbers)),)
        case If(body=body, orelse=orelse):
            return (replace(stmt, body=_block(body, least, numbers), orelse=_block(orelse, least, numbers)),)
        case _:
            return (stmt,)


class _Estimate:
    """About how many operations a block does, a vector's counted as one: an expression of what is bound outside.

    What it is made of has names of its own (`lets`): written out it would be long. Loops inside are looked at in their middle.
    """

    def __init__(self, name: str) -> None:
        self.lets: list[Let] = []
        self._name = name

    def operations(self, block: Block, values: Mapping[str, KExpr]) -> KExpr:
        """Return the operations of a block for values of the variables that loops bind."""
        values = dict(values)
        terms: list[KExpr] = []
        for stmt in block:
            match stmt:
                case For():
                    terms.append(self._loop(stmt, values))
                case If(condition=condition, body=body, orelse=orelse):
                    # The longer way: most conditions tell full tiles from partial ones.
                    holds = simplify_expression(substitute(condition, values), {})
                    ways = [self.operations(b, values) for b, no in ((body, FALSE), (orelse, TRUE)) if holds != no]
                    terms += [Const(cost(condition)), self._named(Op("maximum", (Const(0), *ways)))]
                case Allocate(buffers=buffers, body=body):
                    inside = self.operations(body, values)
                    for _ in buffers[1:]:  # as of extents one in another; LLVM makes one bound of them all
                        inside = self._total([inside])
                    terms.append(inside)
                case Let(name=name, value=value):
                    terms.append(Const(cost(value)))
                    values[name] = substitute(value, values) if _is_index(value) else Const(0)
                case Store(value=value):
                    terms.append(Const(1 + cost(value)))
                case Guard(condition=condition):
                    terms.append(Const(cost(condition)))
                case _:
                    terms.append(Const(1))
        return self._total(terms)

    def _total(self, terms: list[KExpr]) -> KExpr:
        return self._named(Op("minimum", (Const(_MOST), Op("add", (Const(0), *terms)))))

    def _loop(self, loop: For, values: Mapping[str, KExpr]) -> KExpr:
        if loop.kind is LoopKind.VECTOR:
            return self.operations(loop.body, {**values, loop.var: Const(0)})
        lo, hi = substitute(loop.lo, values), substitute(loop.hi, values)
        length = Op("add", (hi, Op("neg", (lo,)), Const(loop.step - 1)))
        times = Op("maximum", (Const(0), Op("floordiv", (length, Const(loop.step)))))
        trips = self._named(Op("minimum", (Const(_MOST_TRIPS), times)))
        each = self.operations(loop.body, {**values, loop.var: self.middle(loop, values)})
        more = Const(0 if loop.kind is LoopKind.UNROLL else 1)
        return self._named(Op("minimum", (Const(_MOST), Op("mul", (trips, Op("add", (more, each)))))))

    def middle(self, loop: For, values: Mapping[str, KExpr]) -> KExpr:
        """Return a value of a loop's variable halfway."""
        lo, hi = substitute(loop.lo, values), substitute(loop.hi, values)
        half = Op("floordiv", (Op("add", (hi, Op("neg", (lo,)))), Const(2)))
        return self._named(Op("maximum", (lo, Op("add", (lo, half)))))

    def _named(self, value: KExpr) -> KExpr:
        """Return the value, by a name of its own where it is more than a constant or a variable."""
        value = simplify_expression(value, {})
        if isinstance(value, Const | Var):
            return value
        known = next((let for let in self.lets if let.value == value), None)
        if known is None:
            known = Let(f"{self._name}.{len(self.lets)}", value)
            self.lets.append(known)
        return Var(known.name)


def _is_index(expr: KExpr) -> bool:
    """Return whether an expression is arithmetic of indices, without loads."""
    match expr:
        case Const() | Var():
            return expr.dtype == i64
        case Op(args=args):
            return expr.dtype == i64 and all(_is_index(a) for a in args)
        case _:
            return False
