"""Random kernels: valid by construction, exact in floating point, with every kind of statement and access."""

from __future__ import annotations

from random import Random

import numpy as np
from msgspec import Struct, field

from polyker.codegen.ir.kernel import (
    Allocate,
    Buffer,
    Const,
    Convert,
    For,
    Guard,
    If,
    KernelIR,
    KExpr,
    Let,
    Load,
    LoopKind,
    Op,
    Space,
    Stmt,
    StmtBlock,
    Store,
    Var,
)
from polyker.ir.dtypes import DTYPES, DType, bool_, i64
from tests.codegen.support import index

Interval = tuple[int, int]


class Case(Struct):
    """A kernel with its data; `strides` in elements."""

    kernel: KernelIR
    arrays: dict[str, np.ndarray]
    integers: dict[str, int]
    strides: dict[str, tuple[int, ...]]


class Known(Struct):
    """A buffer under construction: its extents grow with its accesses, unless fixed."""

    name: str
    dtype: DType
    extents: list[int]
    space: Space = Space.ARGUMENT
    writable: bool = True
    fixed: bool = False


class Generator(Struct):
    rng: Random
    dtype: DType
    sizes: dict[str, int] = field(default_factory=dict)
    known: dict[str, Known] = field(default_factory=dict)
    count: int = 0
    in_vector: bool = False
    masked: bool = False

    def fresh(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    # Index expressions, with the interval of their values

    def affine(self, scope: dict[str, Interval], most: int = 2) -> tuple[KExpr, Interval]:
        rng = self.rng
        names = rng.sample(sorted(scope), min(len(scope), rng.randint(0, most)))
        if self.in_vector and rng.random() < 0.7 and "" not in names:
            lane = [n for n in scope if n.startswith("v")]
            names = list(dict.fromkeys([*lane[-1:], *names]))
        terms: list[KExpr] = []
        low = high = 0
        for name in names:
            factor = rng.choice([1, 1, 1, 1, -1, 2, 3, -2])
            lo, hi = scope[name]
            terms.append(Var(name) if factor == 1 else index("mul", factor, name))
            low += min(factor * lo, factor * hi)
            high += max(factor * lo, factor * hi)
        shift = rng.randint(-2, 3)
        terms.append(Const(shift))
        expr: KExpr = terms[0] if len(terms) == 1 else Op("add", tuple(terms))
        low, high = low + shift, high + shift
        if rng.random() < 0.12:
            divisor = rng.choice([2, 3, 4])
            if rng.random() < 0.5:
                return index("floordiv", expr, divisor), (low // divisor, high // divisor)
            return index("mod", expr, divisor), (0, divisor - 1)
        return expr, (low, high)

    def subscript(self, buffer: Known, axis: int, scope: dict[str, Interval]) -> KExpr:
        """An index that stays inside; the extent grows as needed, a fixed one folds the index by `mod`."""
        expr, (low, high) = self.affine(scope)
        if buffer.fixed:
            extent = buffer.extents[axis]
            return expr if 0 <= low and high < extent else index("mod", expr, extent)
        shift = -low + self.rng.choice([0, 0, 1, 5])
        buffer.extents[axis] = max(buffer.extents[axis], high + shift + 1)
        return expr if shift == 0 else index("add", expr, shift)

    def access(self, buffer: Known, scope: dict[str, Interval]) -> tuple[KExpr, ...]:
        return tuple(self.subscript(buffer, k, scope) for k in range(len(buffer.extents)))

    def condition(self, scope: dict[str, Interval]) -> KExpr:
        x, _ = self.affine(scope)
        y, _ = self.affine(scope, 1)
        result: KExpr = Op(self.rng.choice(["lt", "le", "gt", "ge", "eq", "ne"]), (x, y), bool_)
        if self.rng.random() < 0.2:
            result = Op(self.rng.choice(["and", "or"]), (result, self.condition(scope)), bool_)
        return Op("not", (result,), bool_) if self.rng.random() < 0.1 else result

    # Values: at most one term comes from a buffer that the kernel writes, so that sums stay small and exact

    def read(self, scope: dict[str, Interval]) -> Load:
        buffer = self.rng.choice([b for b in self.known.values() if not b.writable and b.dtype == self.dtype])
        if self.rng.random() < 0.15:  # a predicated access that may lie outside
            exprs = [self.affine(scope)[0] for _ in buffer.extents]
            tests: list[KExpr] = []
            for axis, expr in enumerate(exprs):
                tests += [
                    Op("ge", (expr, Const(0)), bool_),
                    Op("lt", (expr, Const(max(1, buffer.extents[axis]))), bool_),
                ]
            other = Const(self.number(), self.dtype)
            return Load(buffer.name, tuple(exprs), self.dtype, Op("and", tuple(tests), bool_), other)
        return Load(buffer.name, self.access(buffer, scope), self.dtype)

    def gathered(self, scope: dict[str, Interval]) -> Load:
        table = self.known["T"]
        inner = self.known["I"]
        return Load("T", (Load("I", self.access(inner, scope), i64),), table.dtype)

    def number(self) -> bool | int | float | complex:
        value = self.rng.randint(0, 5)
        return {"b": bool(value % 2), "f": float(value), "c": complex(value, 1)}.get(self.dtype.kind, value)

    def value(self, scope: dict[str, Interval], old: Load | None) -> KExpr:
        rng = self.rng
        if old is None and rng.random() < 0.25:
            written = self.known[rng.choice(["Y", "Z"])]
            return Load(written.name, self.access(written, scope), self.dtype)
        term: KExpr = self.gathered(scope) if rng.random() < 0.1 else self.read(scope)
        if rng.random() < 0.3:
            term = Op(rng.choice(["add", "mul"]), (term, Const(self.number(), self.dtype)), self.dtype)
        elif rng.random() < 0.2 and self.dtype.kind in "iuf":
            expr, (low, high) = self.affine(scope)
            if abs(low) < 100 and abs(high) < 100 and (low >= 0 or self.dtype.kind != "u"):
                term = Op("add", (term, Convert(expr, self.dtype)), self.dtype)
        if rng.random() < 0.15:
            term = Op("where", (self.condition(scope), term, Const(self.number(), self.dtype)), self.dtype)
        if old is None:
            return term
        ops = ["add", "add", "minimum", "maximum"] if self.dtype.kind != "b" else ["and", "or"]
        return Op(rng.choice(ops), (old, term), self.dtype)

    # Statements

    def block(self, scope: dict[str, Interval], depth: int) -> StmtBlock:
        return tuple(s for _ in range(self.rng.randint(1, 2)) for s in self.statement(scope, depth))

    def statement(self, scope: dict[str, Interval], depth: int) -> list[Stmt]:
        roll = self.rng.random()
        if depth > 0 and roll < 0.62:
            return [self.loop(scope, depth)]
        if depth > 0 and roll < 0.72:
            orelse = self.block(scope, depth - 1) if self.rng.random() < 0.4 else ()
            return [If(self.condition(scope), self.block(scope, depth - 1), orelse)]
        if depth > 1 and roll < 0.80 and not self.in_vector:
            return [self.tile(scope, depth)]
        if roll < 0.83:
            return [Guard(Op("lt", (self.affine(scope)[0], Const(self.rng.choice([9, 90, 90, 90, 90, 90]))), bool_), 7)]
        if roll < 0.88:
            name = self.fresh("t")
            expr, interval = self.affine(scope)
            return [Let(name, expr), *self.statement({**scope, name: interval}, 0)]
        return [self.store(scope)]

    def store(self, scope: dict[str, Interval]) -> Stmt:
        live = [b for b in self.known.values() if b.writable and b.dtype == self.dtype and b.space is not Space.SCRATCH]
        buffer = self.rng.choice(live)
        at = self.access(buffer, scope)
        old = Load(buffer.name, at, self.dtype) if self.rng.random() < 0.5 else None
        return Store(buffer.name, at, self.value(scope, old))

    def loop(self, scope: dict[str, Interval], depth: int) -> Stmt:
        rng = self.rng
        kinds = [LoopKind.SERIAL, LoopKind.SERIAL, LoopKind.UNROLL] + [LoopKind.VECTOR] * (0 if self.in_vector else 4)
        kind = rng.choice(kinds)
        if kind is LoopKind.VECTOR:
            return self.vector_loop(scope, depth)
        name = self.fresh("i")
        step = rng.choice([1, 1, 2])
        uniform = {k: v for k, v in scope.items() if not k.startswith(("v", "t"))} if kind is LoopKind.UNROLL else scope
        lo, (low, high) = self.affine(uniform, 1) if rng.random() < 0.3 else (Const(0), (0, 0))
        if rng.random() < 0.5:
            hi: KExpr = (
                Const(low + rng.randint(-1, 5)) if isinstance(lo, Const) else index("add", lo, rng.randint(0, 4))
            )
            top = high + 20
        else:
            size = rng.choice(sorted(self.sizes))
            hi, top = Var(size), self.sizes[size]
        if kind is LoopKind.UNROLL:
            extra = rng.randint(0, 3)
            hi = index("minimum", hi, index("add", lo, extra)) if rng.random() < 0.5 else index("add", lo, extra)
            body = self.block({**scope, name: (low, high + extra)}, depth - 1)
            return For(name, lo, hi, body, step, LoopKind.UNROLL, lanes=max(1, extra))
        body = self.block({**scope, name: (low, max(low, top - 1))}, depth - 1)
        return For(name, lo, hi, body, step)

    def vector_loop(self, scope: dict[str, Interval], depth: int) -> Stmt:
        rng = self.rng
        name = self.fresh("v")
        lanes = rng.choice([1, 2, 4, 8, 8, 16, 3, 6])
        lo, (low, high) = self.affine(scope, 1)
        full = rng.random() < 0.4
        size = rng.choice(sorted(self.sizes))
        hi = index("add", lo, lanes) if full else index("minimum", size, index("add", lo, lanes))
        self.in_vector = True
        body = self.block({**scope, name: (low, high + lanes - 1)}, min(depth - 1, 1))
        self.in_vector = False
        return For(name, lo, hi, body, kind=LoopKind.VECTOR, lanes=lanes, trip=lanes if full else None)

    def tile(self, scope: dict[str, Interval], depth: int) -> Stmt:
        """A STACK buffer: set whole, used, and left."""
        rng = self.rng
        name = self.fresh("S")
        extents = [rng.randint(1, 5) for _ in range(rng.randint(0, 1))] + [rng.choice([1, 3, 8, 16, 20])]
        known = Known(name, self.dtype, extents, Space.STACK, fixed=True)
        shape = tuple(Const(e) for e in extents)
        strides = tuple(Const(int(np.prod(extents[k + 1 :]))) for k in range(len(extents)))
        rows, column = [self.fresh("r") for _ in extents[:-1]], self.fresh("v")
        at = (*(Var(r) for r in rows), Var(column))
        fill: Stmt = Store(name, at, Const(self.number(), self.dtype))
        outer, lanes = self.fresh("r"), rng.choice([4, 8])
        upper = index("minimum", extents[-1], index("add", outer, lanes))
        fill = For(column, Var(outer), upper, (fill,), kind=LoopKind.VECTOR, lanes=lanes)
        kind = rng.choice([LoopKind.SERIAL, LoopKind.UNROLL])
        fill = For(outer, Const(0), Const(extents[-1]), (fill,), lanes, kind, lanes=8)
        for row, extent in zip(rows, extents, strict=False):
            fill = For(row, Const(0), Const(extent), (fill,), kind=kind, lanes=extent)
        self.known[name] = known
        body = self.block(scope, depth - 1)
        del self.known[name]
        out = self.known["Y"]
        copy = Store("Y", self.access(out, scope), Load(name, tuple(Const(e - 1) for e in extents), self.dtype))
        return Allocate((Buffer(name, self.dtype, shape, strides, Space.STACK),), (fill, *body, copy))


def _strides(rng: Random, extents: list[int], writable: bool) -> tuple[int, ...]:
    """Random strides: any order of the dimensions, gaps, and signs; inputs may repeat elements."""
    order = list(range(len(extents)))
    if rng.random() < 0.3:
        rng.shuffle(order)
    strides = [0] * len(extents)
    step = rng.choice([1, 1, 1, 2])
    for axis in reversed(order):
        strides[axis] = step * rng.choice([1, 1, 1, -1])
        step *= extents[axis] + rng.choice([0, 0, 1])
    if not writable and rng.random() < 0.15:
        strides[rng.randrange(len(strides))] = 0
    return tuple(strides)


def random_case(seed: int, dtypes: str = "f32 f32 f64 f64 i64 i32 u8 i16 bool c64 i8 u16 u32 u64 c128") -> Case:
    """Return a random kernel with data on which every operation is exact."""
    rng = Random(seed)
    dtype = DTYPES[rng.choice(dtypes.split())]
    g = Generator(rng, dtype, {"N": rng.randint(0, 20), "M": rng.randint(1, 9)})
    for name, dims, writable in (("A", 1, False), ("B", 2, False), ("Y", 1, True), ("Z", 2, True)):
        g.known[name] = Known(name, dtype, [1] * dims, writable=writable)
    g.known["I"] = Known("I", i64, [1], writable=False)
    g.known["T"] = Known("T", dtype, [11], writable=False, fixed=True)
    body = tuple(s for _ in range(rng.randint(1, 2)) for s in [g.loop({}, 3)])
    buffers, arrays, strides = [], {}, {}
    integers = dict(g.sizes)
    data = np.random.default_rng(seed)
    for known in g.known.values():
        steps = _strides(rng, known.extents, known.writable)
        texts: list[KExpr] = []
        for axis, step in enumerate(steps):
            if rng.random() < 0.5:
                texts.append(Const(step))
            else:
                name = f"stride_{known.name}_{axis}"
                integers[name] = step
                texts.append(Var(name))
        shape = tuple(Const(e) for e in known.extents)
        buffers.append(Buffer(known.name, known.dtype, shape, tuple(texts), Space.ARGUMENT, known.writable))
        values = data.integers(0, 11 if known.name == "I" else 9, known.extents)
        array = (values % 2 == 1) if known.dtype.kind == "b" else values.astype(known.dtype.numpy)
        for axis, step in enumerate(steps):
            if step == 0:
                array = np.repeat(np.take(array, [0], axis), known.extents[axis], axis)
        arrays[known.name], strides[known.name] = array, steps
    return Case(KernelIR("k", tuple(buffers), tuple(integers), body), arrays, integers, strides)
