"""The register tile of one statement: its vector iterator, its unrolled iterators, and the values that it holds."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from msgspec import Struct

from polyker.cost.measure import MeasuredStatement, MemoryAccess
from polyker.ir.expr import Call, Cast, Expr, IndexExpr, Literal, Read, children, walk
from polyker.ir.functions import OPERATORS, TABLE, cost_of
from polyker.ir.quasi_affine import coefficients, indices_of, is_quasi_affine
from polyker.machine.model import Target

# Most operations that the body of a tile repeats: what LLVM compiles in a tenth of a second.
MAX_TILE_OPERATIONS = 400
# Least size of what is read in one pass, in sizes of the last cache, for that to keep no part of it for the next pass (chosen).
MIN_STREAMED_CACHES = 1.5
# What costs several multiply-adds a vector.
HEAVY = frozenset(op for op in (*OPERATORS, *TABLE) if cost_of(op).heavy)


def is_costly(expr: Expr) -> bool:
    """Whether a value is a function that costs several multiply-adds a vector; a square does not."""
    square = (
        isinstance(expr, Call) and expr.op == "pow" and isinstance(expr.args[1], Literal) and expr.args[1].value == 2
    )
    return isinstance(expr, Call) and expr.op in HEAVY and not square


class TilePlan(Struct, frozen=True):
    """The tile: `vector` iterator (None: scalar) with `lanes` lanes, `chunks` vectors of it, and the unrolled `others`."""

    vector: str | None
    lanes: int
    chunks: int
    others: tuple[tuple[str, int], ...]
    cost: float  # cycles for one point of the iteration domain
    packed: tuple[Read, ...] = ()  # reads that are copied into another layout first
    packs_result: bool = False  # the result is written in another layout first
    written: str | None = None  # the unrolled iterator that the result is written along, transposed in registers
    across: tuple[str, int] | None = (
        None  # terms, so many of which are read at once by rows and transposed in registers
    )
    is_cut: bool = False  # a tile may end within its vectors
    passing: tuple[str, ...] = ()  # iterators that move the operand whose values pass through one register, if any

    def size(self, iterator: str) -> int:
        """Return the tile's extent along an iterator."""
        return self.lanes * self.chunks if iterator == self.vector else dict(self.others).get(iterator, 1)

    @property
    def grain(self) -> tuple[str, int] | None:
        """The vector iterator, and the lanes of a vector."""
        return None if self.vector is None else (self.vector, self.lanes)


def describe(plan: TilePlan) -> str:
    """Return a tile in words."""
    tile = "".join(f" x {s} {i}" for i, s in plan.others if s > 1)
    if plan.vector is None:
        return f"scalar{tile}"
    return f"vectors of {plan.lanes} along {plan.vector}, {plan.chunks} at a time{tile}"


def unrolled(plan: TilePlan) -> int:
    """Return how often a tile's body is repeated."""
    return plan.chunks * prod(s for _, s in plan.others)


def vector_lanes(measured: MeasuredStatement, target: Target, vector: str | None = None) -> int:
    """Return how many elements a vector of this statement holds: as many as its widest value fits in a register.

    `vector`: the iterator that it is along, where that is known; values that do not move with it are no vectors. An index that
    is converted is made in the narrower type: lane numbers of it on a number that lanes share.
    """
    nodes = [e for e in values(measured.statement.expr) if vector is None or _moves(e, vector)]
    made = {id(e.arg) for e in nodes if isinstance(e, Cast) and isinstance(e.arg, IndexExpr)}
    widths = [e.dtype.real.itemsize for e in nodes if e.dtype is not None and id(e) not in made]
    lanes = target.lanes(max([measured.statement.acc.real.itemsize, *widths]))
    by_halves = target.double_pumped and vector is not None and lanes > 1 and _only_passes(measured, vector, target)
    return lanes // 2 if by_halves else lanes


def _only_passes(measured: MeasuredStatement, vector: str, target: Target) -> bool:
    """Whether a sum does little but read vectors, each once, from memory: so many that the last cache keeps no part of them."""
    moving = [a for a in measured.accesses if a.read is not None and a.stride(vector)]
    bytes_read = sum(a.itemsize * measured.footprint(a) for a in moving)
    return (
        bool(measured.statement.reduced)
        and bytes_read > MIN_STREAMED_CACHES * target.caches[-1].size
        and all(a.stride(vector) == 1 and measured.is_read_once(a) for a in moving)
        and not any(map(is_costly, values(measured.statement.expr)))
    )


def _moves(expr: Expr, vector: str) -> bool:
    """Whether a value differs from lane to lane of a vector along an iterator."""
    return any(isinstance(e, IndexExpr) and e.name == vector for e in walk(expr))


def values(expr: Expr) -> Iterator[Expr]:
    """Yield the nodes of a value: the expression and what is below it, subscripts left out."""
    stack = [expr]
    while stack:
        node = stack.pop()
        yield node
        if not isinstance(node, Read):
            stack.extend(children(node))


def unit_iterator(measured: MeasuredStatement, access: MemoryAccess, vector: str) -> str | None:
    """Return the iterator along which a read that strides over the vector is contiguous, 16 bytes or more: see Kind.TRANSPOSE."""
    read = access.read
    if read is None or access.joined > 1 or abs(access.stride(vector)) <= 1 or read.pad is not None or has_gather(read):
        return None
    inner = measured.statement.iterators[measured.statement.outer :]
    unit = (i for i in inner if i != vector and abs(access.stride(i)) == 1)
    return next((i for i in unit if measured.extent(i) * access.itemsize >= 16), None)


def has_gather(read: Read) -> bool:
    """Whether a subscript of a read holds a read."""
    return any(not is_quasi_affine(s) for s in read.subscripts)


def bare_target(measured: MeasuredStatement) -> bool:
    """Whether the target's subscripts are indices from 0, each once."""
    names = [s.name for s in measured.statement.subscripts if isinstance(s, IndexExpr)]
    return len(set(names)) == len(measured.statement.subscripts) == len(names) and all(
        measured.bounds[n][0] == 0 for n in names
    )


def can_pack(read: Read, vector: str) -> bool:
    """Whether a read's subscripts are affine and move with the vector iterator."""
    parts = [coefficients(s) for s in read.subscripts]
    return all(p is not None for p in parts) and any(p is not None and p.get(vector) for p in parts)


def can_pack_block(read: Read) -> bool:
    """Whether each subscript of a read is affine in an iterator of its own, and none is padded."""
    if read.pad is not None:
        return False
    parts = [coefficients(s) for s in read.subscripts]
    used = [i for s in read.subscripts for i in indices_of(s)]
    return all(p is not None for p in parts) and len(used) == len(set(used))
