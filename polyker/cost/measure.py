"""Measure a statement for the cost model: the strides of its accesses by iterator, and its iterators' extents."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import prod

import islpy as isl
from msgspec import Struct, field

from polyker.ir.expr import Call, Expr, Literal, Read, SizeExpr, reads_in, walk
from polyker.ir.layout import Layout
from polyker.ir.quasi_affine import coefficients, indices_of, is_quasi_affine
from polyker.ir.typed import TypedProgram, TypedStatement
from polyker.poly.boxes import free_range
from polyker.poly.checks import evaluate_shape
from polyker.poly.isl import read_set
from polyker.record.sizes import MAX_EXACT_SIZE, MIN_LARGE_SIZE
from polyker.structs import replace

# Elements from one place to the next where the stride is not known, or the index is no affine function: in other pages (chosen).
UNKNOWN_STRIDE = 1 << 20
# Least stride, in elements, that is taken for one that depends on sizes: nothing counts on neighbours in one line (chosen).
MIN_SYMBOLIC_STRIDE = 16
# Elements that a tensor of unknown extents is taken to have: the more dimensions it has the shorter they are (chosen).
UNKNOWN_TENSOR_ELEMENTS = 1 << 18
# Values that an iterator is taken to have where no sizes bound them: more than any sum that is not cut (chosen).
MAX_ASSUMED_EXTENT = 1 << 24
# Most terms along an iterator of a window (chosen; bounds the projections by isl).
MAX_WINDOW_TERMS = 16


class MemoryAccess(Struct, frozen=True):
    """One access: its tensor, element size in bytes, stride in elements for each iterator (0 where it does not move).

    `read`: the expression, None for the write. `joined`: so many neighbours, `read` the first, are read as one element.
    `offset`: the element, in elements, where all iterators are 0; None where it is not known. `reach`: how far apart two elements
    may lie, in elements, that a gather reads in one step and the next.
    """

    tensor: str
    itemsize: int
    strides: Mapping[str, int]
    read: Read | None = None
    joined: int = 1
    offset: int | None = 0
    reach: int = UNKNOWN_STRIDE

    @property
    def is_write(self) -> bool:
        """Whether it is the statement's target."""
        return self.read is None

    def stride(self, iterator: str) -> int:
        """Return the stride for an iterator, 0 where the access does not depend on it."""
        return self.strides.get(iterator, 0)


class MeasuredStatement(Struct, frozen=True):
    """A statement with its accesses and the (least value, number of values) of each iterator, None where it is a symbol.

    `likely`: of iterators whose number of values is a symbol, the one that is expected.
    `limits`: of those the numbers that they have no more of, whatever the sizes that the schedule is for, where there are such.
    `invariant`: of a statement that runs with others, the tensors that none of them writes: copies of these can be made before.
    `copyable`: of a statement without a reduction, the reads that can be copied before its own loops.
    `bordered`: the iterators of the result of whose values some lack a few of the terms, as at the border of an image.
    """

    statement: TypedStatement
    accesses: tuple[MemoryAccess, ...]
    bounds: Mapping[str, tuple[int | None, int | None]]
    likely: Mapping[str, int] = field(default_factory=dict)
    invariant: frozenset[str] | None = None
    copyable: frozenset[Read] = frozenset()
    limits: Mapping[str, int] = field(default_factory=dict)
    bordered: frozenset[str] = frozenset()

    @property
    def write(self) -> MemoryAccess:
        """The access of the statement's target."""
        return next(a for a in self.accesses if a.is_write)

    @property
    def points(self) -> int:
        """The number of its instances, as if the domain were a box; of unknown extents as `extent` says."""
        return prod(map(self.extent, self.bounds))

    def may_copy(self, access: MemoryAccess) -> bool:
        """Whether an operand may be copied before the statement's loops."""
        if not self.statement.reduced:
            return access.read in self.copyable
        return access.tensor in self.invariant if self.invariant is not None else not self.statement.outer

    def is_read_once(self, access: MemoryAccess) -> bool:
        """Whether no two instances use the same element of an access, as far as its strides say."""
        return all(access.stride(i) or self.extent(i) == 1 for i in self.bounds)

    def extent(self, iterator: str, guess: int | None = None) -> int:
        """Return the number of an iterator's values; where it depends on sizes `guess`, else the one expected, else as many as
        tensors of `UNKNOWN_TENSOR_ELEMENTS` have."""
        exact = self.bounds[iterator][1]
        known = self.expected(iterator) if guess is None else guess if exact is None else exact
        if known is None:
            ranks = [len(a.strides) for a in self.accesses if iterator in a.strides]
            side: float = UNKNOWN_TENSOR_ELEMENTS ** (1 / max(ranks, default=2))
            return round(side)
        return known

    def expected(self, iterator: str) -> int | None:
        """Return the number of an iterator's values, or the one expected; None where it depends on sizes that are unknown."""
        extent = self.bounds[iterator][1]
        return self.likely.get(iterator) if extent is None else extent

    def is_exact(self, iterator: str) -> bool:
        """Whether the expected number of an iterator's values is the very one: it is no size, or a short one."""
        extent = self.bounds[iterator][1]
        return extent is not None or self.likely.get(iterator, MAX_EXACT_SIZE + 1) <= MAX_EXACT_SIZE

    def most(self, iterator: str) -> int:
        """Return a number of values that an iterator has no more of, whatever the sizes that the schedule is for."""
        extent = self.bounds[iterator][1]
        return extent if extent is not None else self.limits.get(iterator, MAX_ASSUMED_EXTENT)

    def lo(self, iterator: str) -> int:
        """Return the least value of an iterator, 0 where it is not a constant."""
        return self.bounds[iterator][0] or 0

    def footprint(self, access: MemoryAccess, held: Mapping[str, int] | None = None) -> int:
        """Return how many elements an access reaches, as if each dimension were walked alone; overlapping windows count once.

        `held`: iterators of which there are so many values only.
        """

        def extent(iterator: str) -> int:
            return (held or {}).get(iterator, self.extent(iterator))

        subscripts = self.statement.subscripts if access.read is None else access.read.subscripts
        elements = 1
        for s in subscripts:
            parts = coefficients(s) if is_quasi_affine(s) else None
            if parts is None:
                return prod(extent(i) for i in access.strides)
            elements *= 1 + sum(abs(c) * (extent(i) - 1) for i, c in parts.items() if i in self.bounds)
        return min(-(-elements // access.joined), prod(extent(i) for i in access.strides))


Layouts = Callable[[str], Layout]


def measure(program: TypedProgram, statement: TypedStatement, layout: Layouts) -> MeasuredStatement:
    """Return what the cost model needs to know of a statement."""
    domain = read_set(statement.domain)
    bounds = {i: values_of(domain, d) for d, i in enumerate(statement.iterators)}
    likely, limits = likely_extents(program, statement, domain), limits_of(program, statement, domain)
    bordered = frozenset(_bordered(statement, domain, bounds)) if statement.reduced else frozenset[str]()
    return MeasuredStatement(
        statement, accesses(program, statement, layout), bounds, likely, limits=limits, bordered=bordered
    )


def _bordered(
    statement: TypedStatement, domain: isl.Set, bounds: Mapping[str, tuple[int | None, int | None]]
) -> Iterator[str]:
    """Yield the iterators of the result whose value says which values a short reduction iterator takes."""
    short = [i for i in statement.reduced if 1 < (bounds[i][1] or 0) <= MAX_WINDOW_TERMS]
    if not short or domain.is_box():
        return
    for kept in statement.kept:
        for term in short:
            both = domain
            for d, iterator in reversed([*enumerate(statement.iterators)]):
                if iterator not in (kept, term):
                    both = both.project_out(isl.dim_type.set, d, 1)
            if (
                free_range(both.coalesce(), int(statement.iterators.index(kept) < statement.iterators.index(term)))
                is None
            ):
                yield kept


def tensor_elements(program: TypedProgram, tensor: str) -> int:
    """Return how many elements a tensor has; of an extent that depends on sizes as `MeasuredStatement.extent` does."""
    shape = program.tensor(tensor).shape
    side, values = round(UNKNOWN_TENSOR_ELEMENTS ** (1 / max(1, len(shape)))), dict(program.likely)
    known = ({e.name for e in walk(extent) if isinstance(e, SizeExpr)} <= {*values} for extent in shape)
    return prod(evaluate_shape(e, values) if given else side for e, given in zip(shape, known, strict=True))


def likely_extents(program: TypedProgram, statement: TypedStatement, domain: isl.Set) -> dict[str, int]:
    """Return the number of values that each iterator has where the sizes are as expected, nothing where none is.

    Where there are none at these sizes there is one at others.
    """
    if not program.likely:
        return {}
    for name, value in program.likely:
        place = domain.find_dim_by_name(isl.dim_type.param, name)
        if place >= 0:
            domain = domain.fix_val(isl.dim_type.param, place, value)
    found = {i: values_of(domain, d)[1] for d, i in enumerate(statement.iterators)}
    return {i: max(1, n) for i, n in found.items() if n is not None}


def limits_of(program: TypedProgram, statement: TypedStatement, domain: isl.Set) -> dict[str, int]:
    """Return a number of values that each iterator has no more of while no size is above the expected one, where there is such.

    Sizes of MIN_LARGE_SIZE or more stand for longer ones, too. An extent such as N - M is most where M is least.
    """
    for name, value in program.likely:
        place = domain.find_dim_by_name(isl.dim_type.param, name)
        if place >= 0 and value < MIN_LARGE_SIZE:
            domain = domain.upper_bound_val(isl.dim_type.param, place, value)
    found = {i: values_of(domain, d)[1] for d, i in enumerate(statement.iterators)} if program.likely else {}
    return {i: n for i, n in found.items() if n is not None}


def accesses(program: TypedProgram, statement: TypedStatement, layout: Layouts) -> tuple[MemoryAccess, ...]:
    """Return the accesses of a statement, the write first."""
    write = _access(program, statement.target, statement.subscripts, statement.iterators, layout, None)
    groups = [g for e in walk(statement.expr) if isinstance(e, Call) and e.op == "join" and (g := _neighbours(e.args))]
    others = {r for g in groups for r in g[1:]}
    reads = [r for r in dict.fromkeys(statement.reads()) if r not in others]
    found = {r: _access(program, r.tensor, r.subscripts, statement.iterators, layout, r) for r in reads}
    for first, *more in groups:
        count, access = 1 + len(more), found[first]
        if 1 in access.strides.values():
            continue  # other neighbours than those of the reduction
        strides = {i: s // count or 1 for i, s in access.strides.items()}
        found[first] = replace(access, itemsize=count * access.itemsize, strides=strides, joined=count)
    return (write, *found.values())


def _neighbours(parts: tuple[Expr, ...]) -> list[Read]:
    """Return the reads of parts that read one element each, all of one tensor, each one further along its last dimension."""
    found = [list(dict.fromkeys(reads_in(p))) for p in parts]
    reads = [own[0] for own in found if len(own) == 1]
    if len(reads) < len(parts) or not reads[0].subscripts or any(r.pad is not None for r in reads):
        return []
    *outer, last = reads[0].subscripts
    first = coefficients(last) if is_quasi_affine(last) else None
    for n, read in enumerate(reads):
        *around, place = read.subscripts
        here = coefficients(place) if is_quasi_affine(place) else None
        if first is None or here is None or read.tensor != reads[0].tensor or around != outer:
            return []
        if {**here, "": here.get("", 0) - n} != {**first, "": first.get("", 0)}:
            return []
    return reads


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
    steps = element_strides(found.shape, layout(tensor), dict(program.likely))
    strides: dict[str, int] = {}
    offset: int | None = 0
    reach = 0
    for subscript, step, extent in zip(subscripts, steps, found.shape, strict=True):
        parts = coefficients(subscript) if is_quasi_affine(subscript) else None
        if parts is None:
            for name in indices_of(subscript):
                strides[name] = UNKNOWN_STRIDE
            reach += step * int(extent.value.real) if isinstance(extent, Literal) else UNKNOWN_STRIDE
            offset = None
            continue
        for name, factor in parts.items():
            if name in iterators and factor:
                strides[name] = strides.get(name, 0) + factor * step
            elif factor:
                offset = None if name or offset is None else offset + factor * step
    return MemoryAccess(
        tensor, found.dtype.itemsize, strides, read, offset=offset, reach=min(UNKNOWN_STRIDE, reach or UNKNOWN_STRIDE)
    )


def element_strides(shape: tuple[Expr, ...], layout: Layout, likely: Mapping[str, int]) -> tuple[int, ...]:
    """Return a stride in elements for each dimension, UNKNOWN_STRIDE if it is not known, never 1 where that is only likely."""
    if not layout.dense:
        return tuple(1 if d == layout.unit else UNKNOWN_STRIDE for d in range(len(shape)))
    strides: list[int] = []
    step = 1
    for extent in reversed(shape):
        strides.append(step)
        names = {e.name for e in walk(extent) if isinstance(e, SizeExpr)}
        if step >= UNKNOWN_STRIDE or not names <= {*likely}:
            step = UNKNOWN_STRIDE
        else:
            step *= evaluate_shape(extent, likely)
            step = max(step, MIN_SYMBOLIC_STRIDE) if names else step
    return tuple(reversed(strides))
