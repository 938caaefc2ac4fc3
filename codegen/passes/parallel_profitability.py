"""Make PARALLEL loops with too little work serial; compute from which trip count on the others run on threads.

A region takes half a microsecond to start where the threads still look for work, and some more where they sleep and are woken.
The regions of a loop follow each other so fast that the threads are awake from the second on: each has to do less, all together
as much as a single one. Where sizes are symbols the kernel decides when it runs: `For.enough` is an expression of the sizes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count

from msgspec import Struct

from polyker.codegen.ir.kernel import (
    Allocate,
    Const,
    For,
    Guard,
    If,
    KernelIR,
    KExpr,
    Let,
    LoopKind,
    Op,
    Stmt,
    StmtBlock,
    Store,
    Var,
)
from polyker.codegen.ir.polynomial import is_arithmetic
from polyker.codegen.ir.simplify_index import FALSE, TRUE, has_load, simplify_expression
from polyker.codegen.ir.walk import is_parallel, substitute, with_blocks
from polyker.codegen.ir.work import cost
from polyker.codegen.passes.simplify import trip_count
from polyker.cost.table import REGION_OPERATIONS
from polyker.ir.dtypes import i64
from polyker.structs import replace

# Least operations (polyker.codegen.ir.work) of a whole loop for threads to take part: 5 to 15 microseconds of one core's time
# (experience value).
MIN_PARALLEL_OPERATIONS = 150_000
# Products of trip counts must not overflow: what is beyond counts as so much.
_MAX_TRIPS, _MAX_OPERATIONS = 1 << 15, 1 << 40


def settle(kernel: KernelIR, least: int = MIN_PARALLEL_OPERATIONS) -> KernelIR:
    """Return the kernel with `enough` noted in its PARALLEL loops, and those serial that do fewer than `least` operations."""
    if not is_parallel(kernel):
        return kernel
    return replace(kernel, body=_block(kernel.body, _Around(least), count()))


def serial(loop: For) -> For:
    """Return a PARALLEL loop as a serial one."""
    body = (Let(loop.thread, Const(0)), *loop.body) if loop.thread else loop.body
    return replace(loop, kind=LoopKind.SERIAL, lanes=0, thread="", enough=None, body=body)


class _Around(Struct, frozen=True):
    """What is around a loop: serial loops, the outermost first; `least`: operations of a region outside all of them."""

    least: int
    loops: tuple[For, ...] = ()

    def enough(self, estimate: _Estimate) -> KExpr:
        """Return the operations from which on one of the regions here is worth its start."""
        runs: KExpr = Const(1)
        for loop in self.loops:
            runs = estimate.product(runs, estimate.trips(loop, {}))
        each = Op("floordiv", (Const(self.least), Op("maximum", (Const(1), runs))))
        return estimate.named(Op("maximum", (Const(min(self.least, REGION_OPERATIONS)), each)))


def _block(block: StmtBlock, around: _Around, numbers: Iterator[int]) -> StmtBlock:
    return tuple(s for stmt in block for s in _statement(stmt, around, numbers))


def _statement(stmt: Stmt, around: _Around, numbers: Iterator[int]) -> StmtBlock:
    match stmt:
        case For(kind=LoopKind.PARALLEL, body=body):
            # A loop in an unrolled one stands here several times, its variable with one name.
            estimate, trip = _Estimate(f"{stmt.var}.work{next(numbers)}"), trip_count(stmt)
            work = estimate.operations(body, {stmt.var: estimate.middle(stmt, {}), stmt.thread: Const(0)})
            # In iterations: the operations of all might overflow.
            each = Op("maximum", (Const(1), work))
            before = Op("floordiv", (Op("add", (around.enough(estimate), Const(-1))), each))
            enough = estimate.named(Op("add", (before, Const(1))))
            if trip is not None and (trip < 2 or (isinstance(enough, Const) and trip < int(enough.value.real))):
                return (serial(stmt),)
            if any(has_load(let.value) for let in estimate.lets):
                return (stmt,)
            return (*estimate.lets, replace(stmt, enough=enough))
        case For(kind=LoopKind.SERIAL):
            around = replace(around, loops=(*around.loops, stmt))
        case _:
            pass
    return (with_blocks(stmt, lambda block: _block(block, around, numbers)),)


class _Estimate:
    """About how many operations a block does, a vector's counted as one: an expression of what is bound outside.

    What it is made of has names of its own (`lets`): written out it would be long. Loops inside are looked at in their middle.
    """

    def __init__(self, name: str) -> None:
        self.lets: list[Let] = []
        self._name = name

    def operations(self, block: StmtBlock, values: Mapping[str, KExpr]) -> KExpr:
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
                    terms += [Const(cost(condition)), self.named(Op("maximum", (Const(0), *ways)))]
                case Allocate(buffers=buffers, body=body):
                    inside = self.operations(body, values)
                    for _ in buffers[1:]:  # as of extents one in another; LLVM makes one bound of them all
                        inside = self._total([inside])
                    terms.append(inside)
                case Let(name=name, value=value):
                    terms.append(Const(cost(value)))
                    index = value.dtype == i64 and is_arithmetic(value)
                    values[name] = substitute(value, values) if index else Const(0)
                case Store(value=value):
                    terms.append(Const(1 + cost(value)))
                case Guard(condition=condition):
                    terms.append(Const(cost(condition)))
                case _:
                    terms.append(Const(1))
        return self._total(terms)

    def _total(self, terms: list[KExpr]) -> KExpr:
        return self.named(Op("minimum", (Const(_MAX_OPERATIONS), Op("add", (Const(0), *terms)))))

    def _loop(self, loop: For, values: Mapping[str, KExpr]) -> KExpr:
        if loop.kind is LoopKind.VECTOR:
            return self.operations(loop.body, {**values, loop.var: Const(0)})
        each = self.operations(loop.body, {**values, loop.var: self.middle(loop, values)})
        more = Const(0 if loop.kind is LoopKind.UNROLL else 1)
        return self.product(self.trips(loop, values), Op("add", (more, each)))

    def trips(self, loop: For, values: Mapping[str, KExpr]) -> KExpr:
        """Return how many iterations a loop has, the bound on all counts at most."""
        lo, hi = substitute(loop.lo, values), substitute(loop.hi, values)
        length = Op("add", (hi, Op("neg", (lo,)), Const(loop.step - 1)))
        times = Op("maximum", (Const(0), Op("floordiv", (length, Const(loop.step)))))
        return self.named(Op("minimum", (Const(_MAX_TRIPS), times)))

    def product(self, trips: KExpr, each: KExpr) -> KExpr:
        """Return so many times what each does, the bound on all work at most."""
        return self.named(Op("minimum", (Const(_MAX_OPERATIONS), Op("mul", (trips, each)))))

    def middle(self, loop: For, values: Mapping[str, KExpr]) -> KExpr:
        """Return a value of a loop's variable halfway."""
        lo, hi = substitute(loop.lo, values), substitute(loop.hi, values)
        half = Op("floordiv", (Op("add", (hi, Op("neg", (lo,)))), Const(2)))
        return self.named(Op("maximum", (lo, Op("add", (lo, half)))))

    def named(self, value: KExpr) -> KExpr:
        """Return the value, by a name of its own where it is more than a constant or a variable."""
        value = simplify_expression(value, {})
        if isinstance(value, Const | Var):
            return value
        known = next((let for let in self.lets if let.value == value), None)
        if known is None:
            known = Let(f"{self._name}.{len(self.lets)}", value)
            self.lets.append(known)
        return Var(known.name)
