"""Bytes between the levels of memory, by a model of the kernel's loops.

A loop's body that touches no more than a cache holds brings each element that the whole loop touches once; a larger one brings
what its parts bring, again in each iteration. What a loop touches follows from the ranges of its variables, those of the loops
around it in the middle of theirs. Caches begin cold, hold 3/4 of their size, and know neither sets nor prefetches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import TypeAlias

from msgspec import Struct

from polyker.codegen.ir.kernel import (
    Allocate,
    Buffer,
    Const,
    For,
    If,
    KernelIR,
    KExpr,
    Let,
    Load,
    Op,
    Space,
    StmtBlock,
    Store,
    Var,
)
from polyker.codegen.ir.polynomial import polynomial, value_of
from polyker.codegen.ir.walk import expressions, subexpressions
from polyker.explain.report import LevelTraffic
from polyker.machine.model import Target

MAX_MODEL_ACCESSES = 4000  # of a kernel that the model looks at


class AccessNode(Struct, frozen=True):
    """An access: the buffer and its subscripts."""

    buffer: str
    indices: tuple[KExpr, ...]
    is_store: bool


class LoopNode(Struct, frozen=True):
    """A loop and what is in it."""

    loop: For
    body: ModelBody


class BranchNode(Struct, frozen=True):
    """What is done if a condition holds, and what else."""

    condition: KExpr
    body: ModelBody
    orelse: ModelBody


ModelNode: TypeAlias = AccessNode | LoopNode | BranchNode
ModelBody: TypeAlias = tuple[ModelNode, ...]
# Of each dimension the least and greatest subscript, and how many there are at most; and how often the access runs.
AccessSpan: TypeAlias = tuple[tuple[tuple[int, int, int], ...], int]
LoopRanges: TypeAlias = dict[str, tuple[int | None, int | None]]
Bytes: TypeAlias = dict[str, float]


class Footprint(Struct, frozen=True):
    """Bytes of each buffer that are loaded, stored, and either."""

    loads: Bytes
    stores: Bytes
    both: Bytes

    @property
    def size(self) -> float:
        """Bytes in all."""
        return sum(self.both.values())


def levels_of(
    kernel: KernelIR, values: Mapping[str, int], target: Target, kept: Iterable[str] = ()
) -> tuple[LevelTraffic, ...]:
    """Return the bytes between each cache and what lies behind it; () where the kernel is too large to look at.

    `values`: the kernel's integers. `kept`: buffers whose values are there before the call and needed.
    """
    model = _Model(kernel, values, target, frozenset(kept))
    body = model.body(kernel.body)
    if model.count > MAX_MODEL_ACCESSES:
        return ()
    names = [*(f"L{n}" for n in range(1, len(target.caches) + 1)), "memory"]
    found = []
    for near, far, cache in zip(names, names[1:], target.caches, strict=False):
        ranges: LoopRanges = {n: (v, v) for n, v in values.items()}
        read, written = model.traffic(body, ranges, cache.usable)
        found.append(LevelTraffic(near, far, round(sum(read.values())), round(sum(written.values()))))
    return tuple(found)


class _Model:
    def __init__(self, kernel: KernelIR, values: Mapping[str, int], target: Target, kept: frozenset[str]) -> None:
        self.values, self.kept = dict(values), kept
        self.line = target.caches[0].line
        self.buffers: dict[str, Buffer] = {b.name: b for b in kernel.buffers}
        self.lets: dict[str, KExpr] = {}
        self.count = 0

    def body(self, block: StmtBlock) -> ModelBody:
        """Return the loops and accesses of a block."""
        found: list[ModelNode] = []
        for stmt in block:
            for expr in expressions(stmt):
                for e in subexpressions(expr):
                    if isinstance(e, Load):
                        found.append(AccessNode(e.buffer, e.indices, False))
            match stmt:
                case Store(buffer=buffer, indices=indices):
                    found.append(AccessNode(buffer, indices, True))
                case For(body=body):
                    found.append(LoopNode(stmt, self.body(body)))
                case If(condition=condition, body=body, orelse=orelse):
                    found.append(BranchNode(condition, self.body(body), self.body(orelse)))
                case Allocate(buffers=own, body=body):
                    self.buffers |= {b.name: b for b in own}
                    found += self.body(body)
                case Let(name=name, value=value):
                    self.lets[name] = value
                case _:
                    pass
        found = list(dict.fromkeys(found))
        self.count += len(found)
        return tuple(found)

    def traffic(self, body: ModelBody, ranges: LoopRanges, room: float) -> tuple[Bytes, Bytes]:
        """Return the bytes read from and written to beyond a cache while a body runs once."""
        body = tuple(self._decided(body, ranges))
        touched = self.footprint(body, ranges)
        if touched.size <= room or not any(isinstance(part, LoopNode) for part in body):
            return self.fresh(touched, touched)
        if len(body) == 1 and isinstance(body[0], LoopNode):
            return self._loop(body[0], ranges, room)
        read: Bytes = {}
        written: Bytes = {}
        group: list[ModelNode] = []
        for part in [*body, None]:
            if part is not None and (not group or self.footprint((*group, part), ranges).size <= room):
                group.append(part)
                continue
            for total, more in zip((read, written), self.traffic(tuple(group), ranges, room), strict=True):
                for name, size in more.items():
                    total[name] = total.get(name, 0) + size
            group = [part] if part is not None else []
        return read, written

    def _loop(self, node: LoopNode, ranges: LoopRanges, room: float) -> tuple[Bytes, Bytes]:
        trips, middle = self._trips(node.loop, ranges)
        if not trips:
            return {}, {}
        inside = {**ranges, node.loop.var: (middle, middle), node.loop.thread: (0, 0)}
        once = self.footprint(node.body, inside)
        if once.size <= room:
            return self.fresh(self.footprint((node,), ranges), once)
        read, written = self.traffic(node.body, inside, room)
        return {n: trips * s for n, s in read.items()}, {n: trips * s for n, s in written.items()}

    def fresh(self, whole: Footprint, once: Footprint) -> tuple[Bytes, Bytes]:
        """Return what has to be read and written of a footprint, if `once` of it is in the cache at a time.

        What is stored there first need not be read, and what a temporary holds need not leave if its place is used again.
        """
        read = {n: s for n, s in whole.loads.items() if n not in once.stores or n in self.kept}
        own = {n for n, b in self.buffers.items() if b.space is not Space.ARGUMENT}
        back = {n: s for n, s in whole.stores.items() if not (n in own and n in once.loads and s <= once.both[n])}
        return read, back

    def footprint(self, body: ModelBody, ranges: LoopRanges) -> Footprint:
        """Return the bytes that a body touches, in whole cache lines."""
        found: dict[str, list[tuple[bool, AccessSpan]]] = {}
        self._spans(body, ranges, {}, found)
        loads: Bytes = {}
        stores: Bytes = {}
        both: Bytes = {}
        for name, touches in found.items():
            for total, kind in ((loads, False), (stores, True)):
                own = [spans for is_store, spans in touches if is_store is kind]
                if own:
                    total[name] = self._bytes(name, own)
            both[name] = self._bytes(name, [spans for _, spans in touches])
        return Footprint(loads, stores, both)

    def _spans(
        self,
        body: ModelBody,
        ranges: LoopRanges,
        trips: Mapping[str, int],
        found: dict[str, list[tuple[bool, AccessSpan]]],
    ) -> None:
        """Add the accesses of a body."""
        total = prod(trips.values())
        for part in self._decided(body, ranges):
            if isinstance(part, LoopNode):
                count, _ = self._trips(part.loop, ranges)
                low, high = self._ends(part.loop, ranges)
                if count:
                    threads = max(1, part.loop.lanes)
                    inside = {**ranges, part.loop.var: (low, high), part.loop.thread: (0, threads - 1)}
                    widest = max(count, -(-(high - low + 1) // part.loop.step))
                    turns = {**trips, part.loop.var: widest}
                    if part.loop.thread:
                        turns[part.loop.thread] = min(threads, widest)
                    self._spans(part.body, inside, turns, found)
                continue
            buffer = self.buffers[part.buffer]
            spans = []
            for index, extent in zip(part.indices, buffer.shape, strict=True):
                size = self._value(extent)
                least, greatest = _extremes(index, ranges)
                low = 0 if least is None else min(max(0, least), size - 1)
                high = size - 1 if greatest is None else max(low, min(greatest, size - 1))
                many = prod(trips.get(n, 1) for n in self._names(index))
                spans.append((low, high, min(high - low + 1, many)))
            found.setdefault(part.buffer, []).append((part.is_store, (tuple(spans), total)))

    def _names(self, expr: KExpr) -> frozenset[str]:
        """Return the variables that an expression depends on, through the values that it gathers, too."""
        found = {e.name for e in subexpressions(expr) if isinstance(e, Var)}
        bound = [self._names(self.lets[n]) for n in found if n in self.lets]
        return frozenset(found).union(*bound)

    def _decided(self, body: ModelBody, ranges: LoopRanges) -> Iterator[AccessNode | LoopNode]:
        """Yield the parts of a body; of choices what is chosen, both where that varies."""
        for part in body:
            if not isinstance(part, BranchNode):
                yield part
                continue
            points = {n: low for n, (low, high) in ranges.items() if low is not None and low == high}
            holds = value_of(part.condition, points)
            if holds is None or holds:
                yield from self._decided(part.body, ranges)
            if not holds:
                yield from self._decided(part.orelse, ranges)

    def _bytes(self, name: str, touches: Sequence[AccessSpan]) -> float:
        """Return the bytes of the lines that accesses to a buffer reach together: of a box around them, or of each alone."""
        touches = list(dict.fromkeys(touches))
        whole = self._box(name, touches)
        return whole if len(touches) == 1 else min(whole, sum(self._box(name, [t]) for t in touches))

    def _box(self, name: str, touches: Sequence[AccessSpan]) -> float:
        buffer = self.buffers[name]
        size = buffer.dtype.itemsize
        hull = [(min(t[d][0] for t, _ in touches), max(t[d][1] for t, _ in touches)) for d in range(len(buffer.shape))]
        many = [sum(t[d][2] for t, _ in touches) for d in range(len(buffer.shape))]
        run, runs, joined = size, 1, True
        for (low, high), count, extent, stride in sorted(
            zip(hull, many, buffer.shape, buffer.strides, strict=True), key=lambda x: self._stride(x[3])
        ):
            span = high - low + 1
            # Where few of the values are met, or the stride is long, each is a run of its own.
            if joined and self._stride(stride) * size == run and 2 * count >= span:
                run *= span
                joined = span == self._value(extent)
            else:
                runs, joined = runs * min(span, count), False
        elements = sum(min(often, prod(c for _, _, c in t)) for t, often in touches)
        lines = -(-run // self.line) * self.line if run > self.line // 2 or runs > 1 else run
        return float(min(runs * lines, elements * self.line))

    def _stride(self, stride: KExpr) -> int:
        value = value_of(stride, self.values)
        return 1 << 40 if value is None else abs(value)

    def _value(self, expr: KExpr) -> int:
        """Return an extent."""
        value = value_of(expr, self.values)
        return 1 if value is None else value

    def _trips(self, loop: For, ranges: LoopRanges) -> tuple[int, int]:
        """Return the number of iterations and the middle one, the loops around in the middle of their ranges."""
        middle = {n: (low + high) // 2 for n, (low, high) in ranges.items() if low is not None and high is not None}
        low, high = value_of(loop.lo, middle), value_of(loop.hi, middle)
        if low is None or high is None:
            return loop.trip or loop.lanes or 1, 0
        trips = max(0, -(-(high - low) // loop.step))
        return trips, low + trips // 2 * loop.step

    def _ends(self, loop: For, ranges: LoopRanges) -> tuple[int, int]:
        low, high = _extremes(loop.lo, ranges)[0], _extremes(loop.hi, ranges)[1]
        count, middle = self._trips(loop, ranges)
        first = middle - count // 2 * loop.step
        return (first if low is None else low), (first + count * loop.step if high is None else high) - 1


def _extremes(expr: KExpr, ranges: LoopRanges) -> tuple[int | None, int | None]:
    """Return the least and the greatest value of an index expression, None where they cannot be told."""
    low: int | None = 0
    high: int | None = 0
    for monomial, factor in polynomial(expr).items():
        a, b = (1, 1) if not monomial else _of_atom(monomial[0], ranges) if len(monomial) == 1 else (None, None)
        if factor < 0:
            a, b = b, a
        low = None if low is None or a is None else low + factor * a
        high = None if high is None or b is None else high + factor * b
    return low, high


def _of_atom(atom: KExpr, ranges: LoopRanges) -> tuple[int | None, int | None]:
    match atom:
        case Var(name=name):
            return ranges.get(name, (None, None))
        case Op(op="mod" | "floordiv" as op, args=(x, Const(value=int() as by))) if by > 0:
            low, high = _extremes(x, ranges)
            if low is None or high is None:
                return (0, by - 1) if op == "mod" else (None, None)
            if op == "floordiv":
                return low // by, high // by
            return (low % by, high % by) if low // by == high // by else (0, by - 1)
        case Op(op="minimum" | "maximum" as op, args=args):
            parts = [_extremes(a, ranges) for a in args]
            pick = min if op == "minimum" else max
            ends = [[p[k] for p in parts if p[k] is not None] for k in (0, 1)]
            return (pick(ends[0]) if ends[0] else None), (pick(ends[1]) if ends[1] else None)  # type: ignore[type-var]
        case _:
            return None, None
