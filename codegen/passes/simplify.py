"""Simplify the Kernel IR: unroll loops, canonicalise index expressions, remove dead branches and loops."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import count
from typing import TypeAlias

from polyker.codegen.ir.kernel import (
    Allocate,
    Const,
    Copy,
    For,
    Guard,
    If,
    KernelIR,
    KExpr,
    Launch,
    Let,
    Load,
    LoopKind,
    Op,
    Prefetch,
    Shuffle,
    Stmt,
    StmtBlock,
    Store,
    Var,
    VectorLoad,
    VectorStore,
)
from polyker.codegen.ir.polynomial import Poly, constant, constant_length, expression, minus, plus, polynomial
from polyker.codegen.ir.simplify_index import FALSE, TRUE, IndexRange, bounds, simplify_expression
from polyker.codegen.ir.walk import (
    loops_of,
    names_in,
    rebuild,
    statements,
    subexpressions,
    substitute,
    unused,
    with_blocks,
    with_expressions,
)
from polyker.codegen.passes.repeats import UnrollRepeats, repeats_of
from polyker.ir.dtypes import bool_, i64
from polyker.structs import replace

# Loops whose iterations have nothing to do with each other as they are emitted.
_APART = (LoopKind.SERIAL, LoopKind.PARALLEL, LoopKind.UNROLL)
# What no statement of a block is where its other statements are handled.
_NOT_HERE = (Let, Shuffle, VectorLoad, VectorStore, Copy)


def trip_count(loop: For) -> int | None:
    """Return the exact number of iterations where it is a constant."""
    if loop.trip is not None:
        return loop.trip
    length = constant_length(loop)
    return None if length is None else max(0, -(-length // loop.step))


def unroll(kernel: KernelIR, *, tiles: bool = True) -> KernelIR:
    """Return the kernel with the body of each UNROLL loop repeated; without `tiles`, but for those that the emitter repeats.

    Before: `unroll i in lo:hi: S(i)`. After: `S(lo); S(lo+1); ...`; where the trip count is not a constant, each copy
    stands within `if lo+k < hi`. Run before `simplify`, which folds what the copies made constant.
    """
    if not any(loops_of(kernel.body, LoopKind.UNROLL)):
        return kernel
    return replace(kernel, body=_Copier(kernel, None if tiles else repeats_of(kernel)).block(kernel.body, {}))


def simplify(kernel: KernelIR) -> KernelIR:
    """Return an equal kernel with canonical index expressions, and without what never runs or runs once."""
    return replace(kernel, body=_Simplifier(kernel).block(kernel.body, {}))


class _Copier:
    """Copies blocks with variables replaced; Lets of a copy that joins another block get fresh names.

    `repeats`: which UNROLL loops stay, outside of loops whose iterations go together; None: none does.
    """

    def __init__(self, kernel: KernelIR, repeats: UnrollRepeats | None = None) -> None:
        self.repeats = repeats
        self.taken = {s.name for s in statements(kernel.body) if isinstance(s, (Let, Shuffle))}
        self._depth = 0
        self._names: dict[int, tuple[KExpr, tuple[str, ...]]] = {}  # of an index by its identity, which stays its own
        self._indices: dict[tuple[int, tuple[KExpr | None, ...]], KExpr] = {}

    def inlined(self, body: StmtBlock, values: Mapping[str, KExpr]) -> StmtBlock:
        """Return a copy that may stand in the block around."""
        self._depth += 1
        copy = self.block(body, dict(values))
        self._depth -= 1
        return copy

    def _put(self, expr: KExpr, values: Mapping[str, KExpr]) -> KExpr:
        """Return an expression with variables replaced; copies in which an index is the same share it."""
        if type(expr) is not Op or expr.dtype is not i64:
            return (
                values.get(expr.name, expr) if type(expr) is Var else rebuild(expr, partial(self._put, values=values))
            )
        known = self._names.get(id(expr))
        if known is None:
            known = self._names[id(expr)] = expr, tuple(names_in(expr))
        place = id(expr), tuple([values.get(name) for name in known[1]])
        found = self._indices.get(place)
        if found is None:
            found = self._indices[place] = substitute(expr, values)
        return found

    def _fresh(self, name: str) -> str:
        return unused(self.taken, (f"{name}.{number}" for number in count(1)))

    def block(self, block: StmtBlock, values: dict[str, KExpr]) -> StmtBlock:
        """Return a block with variables replaced and UNROLL loops repeated."""
        result: list[Stmt] = []
        values = dict(values)
        for stmt in block:
            match stmt:
                case Let(name=name, value=value) | Shuffle(name=name, value=value):
                    changed = self._put(value, values)
                    if self._depth:
                        fresh = self._fresh(name)
                        values[name] = Var(fresh, value.dtype)
                        name = fresh
                    result.append(replace(stmt, name=name, value=changed))
                case If(condition=condition, orelse=()) if values and _never(substitute(condition, values)):
                    pass  # what is in it need not keep what its loops promise
                case For() if values and _beyond(stmt, values):
                    pass  # nor does this one's branch run: its conditions say so together, where none does by itself
                case For(kind=LoopKind.UNROLL) if self.repeats is not None and self.repeats.suits(stmt):
                    result.append(self._statement(stmt, values) if values else stmt)
                case For(kind=LoopKind.UNROLL):
                    # Copies that prefetch one line do it once.
                    result.extend(
                        s for s in self._repeat(stmt, values) if not (isinstance(s, Prefetch) and s in result)
                    )
                case For(kind=LoopKind.VECTOR, body=(Prefetch() as prefetches, *rest)):
                    found = self._statement(prefetches, values | {stmt.var: substitute(stmt.lo, values)})
                    result += [found] if found not in result else []
                    result += self.block((replace(stmt, body=tuple(rest)),), values)
                case _:
                    result.append(self._statement(stmt, values))
        return tuple(result)

    def _statement(self, stmt: Stmt, values: dict[str, KExpr]) -> Stmt:
        match stmt:
            case Store(buffer=buffer, indices=indices, value=value):
                return Store(buffer, tuple([self._put(i, values) for i in indices]), self._put(value, values))
            case For(var=var, lo=lo, hi=hi, body=body):
                inner = {k: v for k, v in values.items() if k != var}
                lo, hi = substitute(lo, values), substitute(hi, values)
                enough = None if stmt.enough is None else substitute(stmt.enough, values)
                around = self.repeats
                if stmt.kind not in _APART:
                    self.repeats = None
                body = self.block(body, inner)
                self.repeats = around
                copy = For(
                    var, lo, hi, body, stmt.step, stmt.kind, stmt.lanes, stmt.trip, stmt.thread, enough, stmt.axis,
                    stmt.label,
                )  # fmt: skip
                return _counted(copy) if stmt.kind is LoopKind.VECTOR and stmt.trip is None and values else copy
            case _:
                assert not isinstance(stmt, _NOT_HERE), (
                    "what binds a name is handled by its block, wide accesses come later"
                )
                changed = with_expressions(stmt, partial(substitute, values=values))
                return with_blocks(changed, lambda block: self.block(block, values))

    def _repeat(self, loop: For, values: dict[str, KExpr]) -> list[Stmt]:
        result: list[Stmt] = []
        for at, within in copies(loop, values):
            copy = self.inlined(loop.body, {**values, loop.var: at})
            if within is not None:
                result.append(If(within, copy))
            else:
                result.extend(copy)
        return result


def copies(loop: For, values: Mapping[str, KExpr]) -> Iterator[tuple[KExpr, KExpr | None]]:
    """Yield what the variable of an UNROLL loop is in each copy of its body, and the condition for the copy, None for none.

    `values`: what the variables of loops around it are.
    """
    lo, hi = polynomial(substitute(loop.lo, values)), substitute(loop.hi, values)
    trip = trip_count(replace(loop, lo=expression(lo), hi=hi))
    if trip is not None and 0 < loop.lanes < trip and trip_count(loop) is None:
        return  # more than is promised: it never runs
    for k in range(loop.lanes if trip is None else trip):
        at = expression(plus(lo, constant(k * loop.step)))
        within = None if trip is not None else Op("lt", (at, hi), bool_)
        if within is not None and _never(within):
            break  # nor are later ones
        yield at, within


def _never(condition: KExpr) -> bool:
    """Whether a condition is false whatever the variables are."""
    return simplify_expression(condition, {}) == FALSE


# A loop by its identity, and the values of the variables that its bounds name.
_CopyPlace: TypeAlias = tuple[int, tuple[tuple[str, KExpr], ...]]


class InCopies:
    """Loops in copies of the bodies around them; copies in which a loop's bounds are the same share it."""

    def __init__(self) -> None:
        self._names: dict[int, tuple[For, frozenset[str]]] = {}  # of a loop by its identity, which stays its own
        self._found: dict[_CopyPlace, For | None] = {}
        self._copies: dict[_CopyPlace, tuple[tuple[KExpr, KExpr | None], ...]] = {}

    def copies(self, loop: For, values: Mapping[str, KExpr]) -> tuple[tuple[KExpr, KExpr | None], ...]:
        """Return what `copies` yields."""
        place = self._place(loop, values)
        if place not in self._copies:
            self._copies[place] = tuple(copies(loop, values))
        return self._copies[place]

    def of(self, loop: For, values: Mapping[str, KExpr]) -> For | None:
        """Return a loop with the number of its iterations where the copy tells it; None where it would have more of them than it
        promises. `values`: what the variables of the UNROLL loops around it are in the copy."""
        if loop.trip is not None or not values:
            return loop
        place = self._place(loop, values)
        if place not in self._found:
            lo, hi = substitute(loop.lo, values), substitute(loop.hi, values)
            copy = _counted(replace(loop, lo=lo, hi=hi))
            self._found[place] = None if (copy.trip or 0) > loop.lanes else copy
        return self._found[place]

    def _place(self, loop: For, values: Mapping[str, KExpr]) -> _CopyPlace:
        if id(loop) not in self._names:
            self._names[id(loop)] = loop, frozenset(names_in(loop.lo, loop.hi))
        names = self._names[id(loop)][1]
        return id(loop), tuple([(n, v) for n, v in values.items() if n in names])


def _beyond(loop: For, values: Mapping[str, KExpr]) -> bool:
    """Whether a copy of a loop would have more iterations than it promises: where a copy runs none does."""
    if loop.lanes == 0 or loop.kind not in (LoopKind.UNROLL, LoopKind.VECTOR, LoopKind.TRANSPOSE):
        return False
    if trip_count(loop) is not None:
        return False
    copy = _counted(replace(loop, lo=substitute(loop.lo, values), hi=substitute(loop.hi, values)))
    return (copy.trip or 0) > loop.lanes


def _counted(loop: For) -> For:
    """Return a vector loop with its number of iterations, where a copy's place in a tile tells how many are left."""
    counted = replace(loop, lo=simplify_expression(loop.lo, {}), hi=simplify_expression(loop.hi, {}))
    return replace(counted, trip=trip_count(counted))


class _Simplifier:
    def __init__(self, kernel: KernelIR) -> None:
        self._copier = _Copier(kernel)
        self._constant = {b.name for b in kernel.buffers if not b.writable}

    def block(self, block: StmtBlock, ranges: dict[str, IndexRange]) -> StmtBlock:
        """Return a simplified block; the Lets' ranges hold to its end."""
        ranges = dict(ranges)
        result: list[Stmt] = []
        for stmt in block:
            if isinstance(stmt, Let):
                value = simplify_expression(stmt.value, ranges)
                result.append(Let(stmt.name, value))
                if stmt.value.dtype.name == "i64":
                    ranges[stmt.name] = bounds(polynomial(value), ranges)
            elif isinstance(stmt, Shuffle):
                result.append(with_expressions(stmt, partial(simplify_expression, ranges=ranges)))
            else:
                result.extend(self._statement(stmt, ranges))
        return tuple(result)

    def _statement(self, stmt: Stmt, ranges: dict[str, IndexRange]) -> StmtBlock:
        match stmt:
            case Guard(condition=condition, code=code):
                holds = simplify_expression(condition, ranges)
                return () if holds == TRUE else (Guard(holds, code),)
            case If():
                return self._if(stmt, ranges)
            case For():
                return self._for(stmt, ranges)
            case _:
                assert not isinstance(stmt, _NOT_HERE), (
                    "what binds a name is handled by its block, wide accesses come later"
                )
                changed = with_expressions(stmt, partial(simplify_expression, ranges=ranges))
                if not isinstance(changed, Allocate | Launch):
                    return (changed,)
                inner = self.block(changed.body, ranges)
                return (replace(changed, body=inner),) if inner else ()

    def _if(self, stmt: If, ranges: dict[str, IndexRange]) -> StmtBlock:
        condition = simplify_expression(stmt.condition, ranges)
        if condition in (TRUE, FALSE):
            taken = stmt.body if condition == TRUE else stmt.orelse
            return self.block(self._copier.inlined(taken, {}), ranges)
        body, orelse = self.block(stmt.body, ranges), self.block(stmt.orelse, ranges)
        return (If(condition, body, orelse),) if body or orelse else ()

    def _for(self, loop: For, ranges: dict[str, IndexRange]) -> StmtBlock:
        lo, hi = simplify_expression(loop.lo, ranges), simplify_expression(loop.hi, ranges)
        trip = trip_count(replace(loop, lo=lo, hi=hi))
        first, last = polynomial(lo), polynomial(hi)
        if trip is None:
            reach = bounds(minus(last, first), ranges)[1]
            trip = 0 if reach is not None and reach <= 0 else None
        if trip == 0:
            return ()
        dealt = loop.kind in (LoopKind.BLOCK, LoopKind.THREAD)
        if trip == 1 and not dealt:
            return self.block(self._copier.inlined(loop.body, {loop.var: lo, loop.thread: Const(0)}), ranges)
        inner = {**ranges, loop.var: self._range(first, last, trip, loop, ranges)}
        body = self.block(loop.body, inner)
        if not body:
            return ()
        guards, body = ((), body) if dealt else self._hoistable(loop, body)
        if trip is None and guards:
            guards = (If(Op("lt", (lo, hi), bool_), guards),)
        rest = (replace(loop, lo=lo, hi=hi, trip=trip, body=body),) if body else ()
        return (*guards, *rest)

    def _range(self, lo: Poly, hi: Poly, trip: int | None, loop: For, ranges: dict[str, IndexRange]) -> IndexRange:
        low, first = bounds(lo, ranges)
        high = bounds(hi, ranges)[1]
        high = None if high is None else high - 1
        bounded = loop.kind in (LoopKind.UNROLL, LoopKind.VECTOR, LoopKind.TRANSPOSE, LoopKind.THREAD)
        most = trip if trip is not None else loop.lanes if bounded else None
        if most is not None and first is not None:
            reach = first + (most - 1) * loop.step
            high = reach if high is None else min(high, reach)
        return low, high

    def _hoistable(self, loop: For, body: StmtBlock) -> tuple[StmtBlock, StmtBlock]:
        """Split off the leading Guards that do not depend on the loop and read nothing that the kernel writes.

        A VECTOR loop keeps its own: there a Guard stands for the active lanes.
        """
        count = 0
        for stmt in body:
            if loop.kind is LoopKind.VECTOR or not isinstance(stmt, Guard) or self._depends(stmt.condition, loop.var):
                break
            count += 1
        return body[:count], body[count:]

    def _depends(self, expr: KExpr, name: str) -> bool:
        for node in subexpressions(expr):
            if isinstance(node, Var) and node.name == name:
                return True
            if isinstance(node, Load) and node.buffer not in self._constant:
                return True
        return False
