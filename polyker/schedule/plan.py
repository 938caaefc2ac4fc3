"""Choosing the register tile of one statement: which iterator is the vector, which are unrolled, by how much.

The model counts, for one step of the innermost reduction loop, what each access costs the load ports and what the arithmetic
costs the floating-point ports, and takes the larger. It knows strides, extents and the Target; no operator has a case.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil, prod

from polyker.ir.expr import Call, Expr, Index, Read, children
from polyker.ir.quasi_affine import is_quasi_affine
from polyker.rewrite.pack import can_pack
from polyker.schedule.measure import Measured, MemoryAccess
from polyker.target.model import Target

# Cycles, for one core of a current out-of-order processor: a vector load or store of one register; one lane of a gather or of
# a scatter; one broadcast; and what a loop iteration costs besides.
LOAD, BROADCAST, LOOP = 0.6, 0.5, 1.0
# One lane of a gather, by where the next lane lies: in the same cache line, in the same page, elsewhere. A scatter costs more.
GATHER_LINE, GATHER_PAGE, GATHER_FAR, SCATTER = 1.2, 2.0, 5.0, 1.5
# Copying one element into another layout, and where the copy is transposed in registers; transposing one alone.
PACK, PACK_ACROSS, TRANSPOSE = 4.0, 0.8, 0.35
# Operations that the body of a tile may repeat: what LLVM compiles in a tenth of a second.
MOST_OPERATIONS = 400
# Functions cost several multiply-adds a vector.
HEAVY = {
    "exp",
    "expm1",
    "log",
    "log1p",
    "sin",
    "cos",
    "tan",
    "tanh",
    "erf",
    "sigmoid",
    "gelu",
    "silu",
    "pow",
    "div",
    "sqrt",
}


@dataclass(frozen=True, slots=True)
class Plan:
    """The tile: `vector` iterator (None: scalar) with `lanes` lanes, `chunks` vectors of it, and the unrolled `others`."""

    vector: str | None
    lanes: int
    chunks: int
    others: tuple[tuple[str, int], ...]
    cost: float  # cycles for one point of the iteration domain
    packed: tuple[Read, ...] = ()  # reads that are copied into another layout first
    packs_result: bool = False  # the result is written in another layout first

    def size(self, iterator: str) -> int:
        """Return the tile's extent along an iterator."""
        return self.lanes * self.chunks if iterator == self.vector else dict(self.others).get(iterator, 1)


def choose(measured: Measured, free: Sequence[str], reduced: Sequence[str], target: Target) -> Plan:
    """Return the cheapest tile over the iterators that may be reordered: `free` ones (of the result) and `reduced` ones."""
    lanes = vector_lanes(measured, target)
    best = Plan(None, 1, 1, (), _scalar_cost(measured))
    size = sum(1 for _ in values(measured.statement.expr))
    for vector in (*free, *reduced):
        for plan in _tiles(
            measured, vector, [f for f in free if f != vector], vector in reduced, lanes, target, bool(reduced)
        ):
            if plan.cost < best.cost * 0.999 and unrolled(plan) * size <= max(MOST_OPERATIONS, size):
                best = plan
    return best


def unrolled(plan: Plan) -> int:
    """Return how often a tile's body is repeated."""
    return plan.chunks * prod(s for _, s in plan.others)


def vector_lanes(measured: Measured, target: Target) -> int:
    """Return how many elements a vector of this statement holds: as many as its widest value fits in a register."""
    widths = [e.dtype.real.itemsize for e in values(measured.statement.expr) if e.dtype is not None]
    return target.lanes(max([measured.statement.acc.real.itemsize, *widths]))


def values(expr: Expr) -> Iterator[Expr]:
    """Yield the nodes of a value: the expression and what is below it, subscripts left out."""
    stack = [expr]
    while stack:
        node = stack.pop()
        yield node
        if not isinstance(node, Read):
            stack.extend(children(node))


def _scalar_cost(measured: Measured) -> float:
    return 1.0 + 0.7 * len(measured.accesses) + _operations(measured)


def _operations(measured: Measured) -> float:
    """Return the arithmetic of one instance in multiply-adds; a product that is summed is one."""
    count = 0.0
    for e in values(measured.statement.expr):
        if isinstance(e, Call):
            count += 12.0 if e.op in HEAVY else max(1, len(e.args) - 1)
    if (
        measured.statement.op == "add"
        and isinstance(measured.statement.expr, Call)
        and measured.statement.expr.op == "mul"
    ):
        return max(count, 1.0)
    return count + (measured.statement.op != "set")


def _tiles(
    measured: Measured, vector: str, others: list[str], folds: bool, lanes: int, target: Target, reduces: bool
) -> Iterator[Plan]:
    extent = measured.extent(vector)
    width = min(lanes, max(2, 1 << max(0, extent - 1).bit_length()))
    most = max(1, ceil(extent / width))
    chunk_choices = [c for c in (1, 2, 3, 4, 8) if c <= most and (reduces or c <= 4)]
    if not reduces:
        for chunks in chunk_choices:
            yield _plan(measured, vector, width, chunks, (), folds, target, reduces)
        return
    for chunks in chunk_choices:
        yield _plan(measured, vector, width, chunks, (), folds, target, reduces)
        for n, first in enumerate(others):
            for a in _sizes(measured.extent(first)):
                if chunks * a > target.vector_registers - 3:
                    continue
                yield _plan(measured, vector, width, chunks, ((first, a),), folds, target, reduces)
                for second in others[n + 1 :]:
                    for b in _sizes(measured.extent(second)):
                        if chunks * a * b <= target.vector_registers - 3:
                            yield _plan(
                                measured, vector, width, chunks, ((first, a), (second, b)), folds, target, reduces
                            )


def _sizes(extent: int) -> list[int]:
    return [s for s in (2, 3, 4, 5, 6, 7, 8, 10, 12, 13, 14) if s <= extent]


def _plan(
    measured: Measured,
    vector: str,
    width: int,
    chunks: int,
    others: tuple[tuple[str, int], ...],
    folds: bool,
    target: Target,
    reduces: bool,
) -> Plan:
    """Cost one tile; a tile that does not divide an extent is charged for the iterations of the last, partial tile."""
    vectors = chunks * prod(s for _, s in others)
    registers = vectors + 2
    loads, copies_made = 0.0, 0.0
    packed: list[Read] = []
    may_pack = reduces and not measured.statement.outer
    total = prod(measured.extent(i) for i in measured.bounds)
    steps = max(1.0, total / (vectors * width))
    for access in measured.accesses:
        if access.read is None or (not access.strides and reduces):
            continue
        copies = prod((s for i, s in others if access.stride(i)), start=1) * (chunks if access.stride(vector) else 1)
        cost = copies * _access_cost(access, vector, width)
        if not reduces and unit_iterator(measured, access, vector) is not None:
            cost = min(cost, copies * TRANSPOSE * width)
        if may_pack and access.stride(vector) not in (0, 1) and can_pack(access.read, vector):
            size = prod(measured.extent(i) for i in access.strides)
            better = copies * LOAD * max(1.0, width * access.itemsize / 64)
            copying = (PACK_ACROSS if unit_iterator(measured, access, vector) is not None else PACK) * size / steps
            if 4 * size <= total and better + copying < cost:
                packed.append(access.read)
                cost, copies_made = better, copies_made + copying
        loads += cost
        if access.stride(vector) and reduces:
            registers += chunks if copies > chunks else copies
    arithmetic = vectors * _operations(measured) / target.fma_per_cycle
    latency = float(target.fma_latency) if reduces else 0.0
    write = next(a for a in measured.accesses if a.is_write)
    terms = prod(measured.extent(r) for r in measured.statement.reduced) if reduces else 1
    store = width if folds else _access_cost(write, vector, width)
    packs_result = False
    if may_pack and not folds and write.stride(vector) not in (0, 1) and store > PACK * width and bare_target(measured):
        store, packs_result = PACK * width, True
    cycles = max(arithmetic, loads, latency) + 0.15 * min(arithmetic, loads) + LOOP / 2
    cycles += vectors * store / max(1, terms) + copies_made
    if registers > target.vector_registers:
        cycles += 2.0 * (registers - target.vector_registers)
    points = vectors * width
    waste = 1.0
    for iterator, size in ((vector, chunks * width), *others):
        extent = measured.extent(iterator)
        if extent:
            tail = extent % size
            # A partial tile of a vector does the work of whole vectors; an unrolled one that of its own rows, less well fed.
            done = extent - tail + (ceil(tail / width) * width if iterator == vector else tail * 1.3)
            waste *= done / extent
    return Plan(vector, width, chunks, others, cycles / points * waste, tuple(packed), packs_result)


def unit_iterator(measured: Measured, access: MemoryAccess, vector: str) -> str | None:
    """Return the iterator along which a read that strides over the vector is contiguous, 16 bytes or more: see Kind.TRANSPOSE."""
    read = access.read
    if read is None or abs(access.stride(vector)) <= 1 or read.pad is not None or has_gather(read):
        return None
    inner = measured.statement.iterators[measured.statement.outer :]
    unit = (i for i in inner if i != vector and abs(access.stride(i)) == 1)
    return next((i for i in unit if measured.extent(i) * access.itemsize >= 16), None)


def has_gather(read: Read) -> bool:
    """Whether a subscript of a read holds a read."""
    return any(not is_quasi_affine(s) for s in read.subscripts)


def bare_target(measured: Measured) -> bool:
    """Whether the target's subscripts are indices from 0, each once."""
    names = [s.name for s in measured.statement.subscripts if isinstance(s, Index)]
    return len(set(names)) == len(measured.statement.subscripts) == len(names) and all(
        measured.bounds[n][0] == 0 for n in names
    )


def _access_cost(access: MemoryAccess, vector: str, width: int) -> float:
    stride = access.stride(vector)
    if stride == 0:
        return BROADCAST
    if stride == 1:
        return LOAD * max(1.0, width * access.itemsize / 64)
    if stride == -1:
        return 2 * LOAD
    step = abs(stride) * access.itemsize
    lane = GATHER_LINE if step < 64 else GATHER_PAGE if step < 2048 else GATHER_FAR
    return lane * width * (SCATTER if access.is_write else 1.0)
