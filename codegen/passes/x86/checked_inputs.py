"""Version register tiles of extrema for inputs without NaN, which one pass over the inputs checks.

    for k: m = maximum(m, t(k))
    ->
    total = 0; for every element x of the inputs: total += 0 * x     (NaN where x is NaN or infinite; once, before all else)
    if total == total: for k: m = larger(m, t(k))                     (one instruction)
    else:              for k: m = maximum(m, t(k))

MAXPS and MINPS return their second operand if either is NaN, so each iteration, or each pair of iterations, is tested: up to half
of the work where N^2 elements are read in N^3 iterations. Infinities are allowed where they make no NaN (max of sums: -inf; max
of minima: both): x is replaced by `larger(x, -largest)` in the check, which keeps a NaN in x.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count
from math import prod

import numpy as np

from polyker.codegen.ir.kernel import (
    FREE,
    Allocate,
    Buffer,
    Const,
    Convert,
    For,
    If,
    KernelIR,
    KExpr,
    Let,
    Load,
    LoopKind,
    Op,
    Prefetch,
    Space,
    Stmt,
    StmtBlock,
    Store,
    Var,
    loop_of,
)
from polyker.codegen.ir.number_facts import FINITE, May, facts, may
from polyker.codegen.ir.polynomial import as_constant, polynomial
from polyker.codegen.ir.walk import blocks_of, loads_in, names_bound, rebuild, statements, unused, with_blocks
from polyker.codegen.ir.work import exceeds
from polyker.codegen.passes.unroll_terms import tile_size
from polyker.codegen.passes.x86.pair_extrema import MIN_TILE_RESULTS
from polyker.cost.operation_cost import MIN_OPERATIONS_PER_INPUT
from polyker.ir.dtypes import DType, bool_, f32
from polyker.machine.model import Target
from polyker.structs import replace

# Independent accumulators of the check, which hide the latency of a multiply-add (4 cycles).
CHECK_ACCUMULATORS = 4
# What inputs may be, the weakest demand first; of two that are as weak the one that lets the extremum's identity pass.
_DEMANDS = {
    "maximum": (May(False, True, True), May(False, False, True), May(False, True, False), FINITE),
    "minimum": (May(False, True, True), May(False, True, False), May(False, False, True), FINITE),
}


def checked(kernel: KernelIR, target: Target) -> KernelIR:
    """Return an equal kernel that takes extrema without tests where it sees that no term is NaN; or the same one."""
    tiles = _tiles(kernel.body) if target.triple.startswith("x86_64") else ()
    terms = [term for s in statements(tiles) if (term := _extremum(s)) is not None]
    if not terms:
        return kernel
    inputs = _inputs(kernel, terms)
    sizes = [_elements(b) for b in inputs]
    looks = sum((s or 0) // target.lanes(b.dtype.itemsize) for s, b in zip(sizes, inputs, strict=True))
    if not inputs or None in sizes or not exceeds(tiles, {}, MIN_OPERATIONS_PER_INPUT * looks):
        return kernel
    for demand in _DEMANDS[terms[0].op]:
        known = facts(kernel, {b.name: demand for b in inputs})
        if not any(may(t, known).nan for t in terms):
            break
    else:
        return kernel
    check = _InputCheck(demand, target, _names(kernel))
    return replace(kernel, body=check.before(inputs, lambda clean: _Free(known, clean).block(kernel.body)))


def _names(kernel: KernelIR) -> set[str]:
    """Return the names that are in use."""
    return {b.name for b in kernel.buffers} | set(kernel.integers) | names_bound(kernel.body)


def _extremum(stmt: Stmt) -> Op | None:
    """Return what a statement stores where it is an extremum of its element's float and a term."""
    match stmt:
        case Store(value=Op(op="maximum" | "minimum", args=(Load(buffer=old), _), dtype=dtype) as value):
            return value if dtype.kind == "f" and dtype.itemsize >= 4 and old == stmt.buffer else None
        case _:
            return None


def _is_tile(stmt: Stmt) -> bool:
    """Whether a statement is a loop over the reduction of a register tile of extrema."""
    if not isinstance(stmt, For) or stmt.kind is not LoopKind.SERIAL or tile_size(stmt.body)[0] < MIN_TILE_RESULTS:
        return False
    inside = [s for s in statements(stmt.body) if not isinstance(s, Prefetch)]
    loops = all(s.kind in (LoopKind.UNROLL, LoopKind.VECTOR) for s in inside if isinstance(s, For))
    return loops and all(isinstance(s, For) or _extremum(s) is not None for s in inside)


def _tiles(block: StmtBlock) -> StmtBlock:
    """Return a block's register tiles of extrema, and the loops and branches around them."""
    kept: list[Stmt] = []
    for s in block:
        if _is_tile(s):
            kept.append(s)
        elif isinstance(inner := with_blocks(s, _tiles), (For, Allocate, If)) and any(blocks_of(inner)):
            kept.append(inner)
    return tuple(kept)


def _inputs(kernel: KernelIR, terms: list[Op]) -> list[Buffer]:
    """Return the buffers of floats that nobody writes and that the terms depend on."""
    seen: set[str] = set()
    new = {load.buffer for load in loads_in(*terms)}
    while new:
        seen |= new
        stored = [s.value for s in statements(kernel.body) if isinstance(s, Store) and s.buffer in new]
        new = {load.buffer for load in loads_in(*stored)} - seen
    return [
        b for b in kernel.buffers
        if b.name in seen and b.space is Space.ARGUMENT and not b.writable and b.dtype.kind == "f"
    ]  # fmt: skip


def _elements(buffer: Buffer) -> int | None:
    """Return how many elements a buffer has that vectors can look through; None where it is not known, or where they cannot."""
    sizes = [as_constant(polynomial(s)) for s in buffer.shape]
    if not sizes or None in sizes or as_constant(polynomial(buffer.strides[-1])) != 1:
        return None
    return prod(s or 0 for s in sizes)


class _Free:
    """Gives a block's tiles a form without tests of extrema whose arguments cannot be NaN, taken where `clean` is 1."""

    def __init__(self, known: Mapping[str, May], clean: Var) -> None:
        self.known = known
        self.condition = Op("eq", (clean, Const(1)), bool_)

    def block(self, block: StmtBlock) -> StmtBlock:
        return tuple(self.tile(s) if _is_tile(s) else with_blocks(s, self.block) for s in block)

    def tile(self, tile: Stmt) -> Stmt:
        free = self.inside((tile,))
        return tile if free == (tile,) else If(self.condition, free, (tile,))

    def inside(self, block: StmtBlock) -> StmtBlock:
        return tuple(
            replace(s, value=self.value(s.value)) if isinstance(s, Store) else with_blocks(s, self.inside)
            for s in block
        )

    def value(self, expr: KExpr) -> KExpr:
        expr = rebuild(expr, self.value)
        match expr:
            case Op(op="maximum" | "minimum" as op, args=(x, y), dtype=dtype) if dtype.kind == "f":
                if not may(x, self.known).nan and not may(y, self.known).nan:
                    return Op(FREE[op], (x, y), dtype)
            case _:
                pass
        return expr


class _InputCheck:
    """Makes the loops that look through inputs; `taken`: names that are in use."""

    def __init__(self, demand: May, target: Target, taken: set[str]) -> None:
        self.demand = demand
        self.target = target
        self.taken = taken

    def before(self, inputs: list[Buffer], body: Callable[[Var], StmtBlock]) -> StmtBlock:
        """Return: look through the inputs, then the body, which is given a variable that is 1 where they are as demanded."""
        wide = max((f32, *(b.dtype for b in inputs)), key=lambda d: d.itemsize)
        lanes = self.target.lanes(wide.itemsize)
        sums = Buffer(
            self._name("sums"), wide, (Const(CHECK_ACCUMULATORS), Const(lanes)), (Const(lanes), Const(1)), Space.STACK
        )
        total = Buffer(self._name("total"), wide, (Const(1),), (Const(1),), Space.STACK)
        zero = Const(0.0, wide)
        row, lane = self._name("v"), self._name("v")
        sum_ = Load(sums.name, (Var(row), Var(lane)), wide)
        element = Load(total.name, (Const(0),), wide)
        start = self._rows(row, lane, lanes, Store(sums.name, (Var(row), Var(lane)), zero))
        end = self._rows(row, lane, lanes, Store(total.name, (Const(0),), Op("add", (element, sum_), wide)))
        looked = tuple(s for b in inputs for s in self._look(b, sums.name, lanes, wide))
        whole = (start, *looked, Store(total.name, (Const(0),), zero), end)
        clean = Var(self._name("clean"))
        is_number = Op("where", (Op("eq", (element, element), bool_), Const(1), Const(0)))
        # Loops on several threads see numbers of the kernel, none of its small arrays.
        return (Allocate((total,), (Allocate((sums,), whole), Let(clean.name, is_number), *body(clean))),)

    def _name(self, start: str) -> str:
        return unused(self.taken, (f"{start}.{k}" for k in count()))

    def _rows(self, row: str, lane: str, lanes: int, stmt: Stmt) -> For:
        """Return a statement for each lane of the vectors that are looked at together."""
        vector = loop_of(lane, lanes, (stmt,), LoopKind.VECTOR)
        return loop_of(row, CHECK_ACCUMULATORS, (vector,), LoopKind.UNROLL)

    def _look(self, buffer: Buffer, sums: str, lanes: int, dtype: DType) -> StmtBlock:
        """Return the loops that add 0 for each element of a buffer, and NaN for what is not as demanded."""
        *outer, size = (as_constant(polynomial(s)) or 0 for s in buffer.shape)
        indices = [self._name("v") for _ in outer]
        first, row, lane = self._name("v"), self._name("v"), self._name("v")
        step = CHECK_ACCUMULATORS * lanes
        whole, rest = size - size % step, size % step
        around = tuple(Var(i) for i in indices)

        def look(start: KExpr, number: KExpr) -> Store:
            place = Op("add", (start, Op("mul", (number, Const(lanes))), Var(lane)))
            return self._added(Load(buffer.name, (*around, place), buffer.dtype), sums, (number, Var(lane)), dtype)

        every = self._rows(row, lane, lanes, look(Var(first), Var(row)))
        block: StmtBlock = (
            (For(first, Const(0), Const(whole), (every,), step, LoopKind.SERIAL, 0, whole // step),) if whole else ()
        )
        for number in range(-(-rest // lanes)):
            count = min(lanes, rest - number * lanes)
            part = (look(Const(whole), Const(number)),)
            block += (For(lane, Const(0), Const(count), part, 1, LoopKind.VECTOR, lanes, count),)
        for index, count in reversed(list(zip(indices, outer, strict=True))):
            block = (loop_of(index, count, block),)
        return block

    def _added(self, value: KExpr, sums: str, place: tuple[KExpr, KExpr], dtype: DType) -> Store:
        if value.dtype != dtype:
            value = Convert(value, dtype)
        largest = float(np.finfo(dtype.numpy).max)
        if self.demand.negative:
            value = Op("larger", (value, Const(-largest, dtype)), dtype)
        if self.demand.positive:
            value = Op("smaller", (value, Const(largest, dtype)), dtype)
        nothing = Op("mul", (value, Const(0.0, dtype)), dtype)
        return Store(sums, place, Op("add", (Load(sums, place, dtype), nothing), dtype))
