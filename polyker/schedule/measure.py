"""What the scheduler knows of a statement: its accesses' strides by iterator, and its iterators' extents."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod

import islpy as isl

from polyker.ir.expr import Expr, Literal, Read
from polyker.ir.layout import Layout
from polyker.ir.quasi_affine import coefficients, indices_of, is_quasi_affine
from polyker.ir.typed import TypedProgram, TypedStatement
from polyker.poly.isl import read_set

# A stride that is not known, or an index that is no affine function: far away.
FAR = 1 << 20
# Cells that a tensor of unknown extents is taken to have: the more dimensions it has the shorter they are.
CELLS = 1 << 18


@dataclass(frozen=True)
class MemoryAccess:
    """One access: its tensor, element size in bytes, stride in elements for each iterator (0 where it does not move).

    `read`: the expression, None for the write.
    """

    tensor: str
    itemsize: int
    strides: Mapping[str, int]
    read: Read | None = None

    @property
    def is_write(self) -> bool:
        """Whether it is the statement's target."""
        return self.read is None

    def stride(self, iterator: str) -> int:
        """Return the stride for an iterator, 0 where the access does not depend on it."""
        return self.strides.get(iterator, 0)


@dataclass(frozen=True)
class Measured:
    """A statement with its accesses and the (least value, number of values) of each iterator, None where it is a symbol.

    `steady`: of a statement that runs with others, the tensors that none of them writes: copies of these can be made before.
    """

    statement: TypedStatement
    accesses: tuple[MemoryAccess, ...]
    bounds: Mapping[str, tuple[int | None, int | None]]
    steady: frozenset[str] | None = None

    def may_copy(self, access: MemoryAccess) -> bool:
        """Whether an operand may be copied before the statement's loops."""
        return access.tensor in self.steady if self.steady is not None else not self.statement.outer

    def extent(self, iterator: str, guess: int | None = None) -> int:
        """Return the number of an iterator's values; where it depends on sizes `guess`, or as many as tensors of `CELLS` have."""
        extent = self.bounds[iterator][1]
        if extent is None and guess is None:
            ranks = [len(a.strides) for a in self.accesses if iterator in a.strides]
            side: float = CELLS ** (1 / max(ranks, default=2))
            return round(side)
        return (guess or 0) if extent is None else extent

    def lo(self, iterator: str) -> int:
        """Return the least value of an iterator, 0 where it is not a constant."""
        return self.bounds[iterator][0] or 0

    def footprint(self, access: MemoryAccess, held: Mapping[str, int] | None = None) -> int:
        """Return how many cells an access reaches, as if each dimension were walked alone; overlapping windows count once.

        `held`: iterators of which there are so many values only.
        """

        def extent(iterator: str) -> int:
            return (held or {}).get(iterator, self.extent(iterator))

        subscripts = self.statement.subscripts if access.read is None else access.read.subscripts
        cells = 1
        for s in subscripts:
            parts = coefficients(s) if is_quasi_affine(s) else None
            if parts is None:
                return prod(extent(i) for i in access.strides)
            cells *= 1 + sum(abs(c) * (extent(i) - 1) for i, c in parts.items() if i in self.bounds)
        return min(cells, prod(extent(i) for i in access.strides))


Layouts = Callable[[str], Layout]


def measure(program: TypedProgram, statement: TypedStatement, layout: Layouts) -> Measured:
    """Return what the cost model needs to know of a statement."""
    domain = read_set(statement.domain)
    bounds = {i: values_of(domain, d) for d, i in enumerate(statement.iterators)}
    return Measured(statement, accesses(program, statement, layout), bounds)


def accesses(program: TypedProgram, statement: TypedStatement, layout: Layouts) -> tuple[MemoryAccess, ...]:
    """Return the accesses of a statement, the write first."""
    write = _access(program, statement.target, statement.subscripts, statement.iterators, layout, None)
    reads = dict.fromkeys(statement.reads())
    return (write, *(_access(program, r.tensor, r.subscripts, statement.iterators, layout, r) for r in reads))


def values_of(domain: isl.Set, dimension: int) -> tuple[int | None, int | None]:
    """Return the least value and the number of values of a dimension, None where they depend on sizes."""
    if domain.is_empty():
        return 0, 0
    low, high = domain.dim_min_val(dimension), domain.dim_max_val(dimension)
    lo = low.get_num_si() if low.is_int() else None
    hi = high.get_num_si() if high.is_int() else None
    return lo, (hi - lo + 1 if lo is not None and hi is not None else None)


def _access(
    program: TypedProgram,
    tensor: str,
    subscripts: tuple[Expr, ...],
    iterators: tuple[str, ...],
    layout: Layouts,
    read: Read | None,
) -> MemoryAccess:
    found = program.tensor(tensor)
    steps = element_strides(found.shape, layout(tensor))
    strides: dict[str, int] = {}
    for subscript, step in zip(subscripts, steps, strict=True):
        parts = coefficients(subscript) if is_quasi_affine(subscript) else None
        if parts is None:
            for name in indices_of(subscript):
                strides[name] = FAR
            continue
        for name, factor in parts.items():
            if name in iterators and factor:
                strides[name] = strides.get(name, 0) + factor * step
    return MemoryAccess(tensor, found.dtype.itemsize, strides, read)


def element_strides(shape: tuple[Expr, ...], layout: Layout) -> tuple[int, ...]:
    """Return a stride in elements for each dimension, FAR where it is not known."""
    if not layout.dense:
        return tuple(1 if d == layout.unit else FAR for d in range(len(shape)))
    strides: list[int] = []
    step = 1
    for extent in reversed(shape):
        strides.append(step)
        step = step * int(extent.value.real) if isinstance(extent, Literal) and step < FAR else FAR
    return tuple(reversed(strides))
