"""Pack an operand: copy it once into a temporary with the layout of the loop that reads it.

Before: `C[i,j] += A[i,k] * B[j,k]` with vectors along j. After: `P[k,j] = B[j,k];  C[i,j] += A[i,k] * P[k,j]`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import islpy as isl

from polyker.ir.dtypes import DType, i64
from polyker.ir.expr import Expr, IndexExpr, Literal, Read, transform
from polyker.ir.quasi_affine import add, indices_of, lit, print_affine, substitute, subtract
from polyker.ir.typed import TypedProgram, TypedStatement
from polyker.poly.isl import read_map, read_set
from polyker.poly.scop import domain_text, instances_within, parameters, tensor_box, values_taken
from polyker.poly.symbolic import bounds_of
from polyker.rewrite.core.fresh import Fresh

# Row strides in bytes that are multiples of this use a quarter of the sets of a first cache or fewer; bytes of a line.
SET_CONFLICT_STRIDE, LINE_BYTES = 1024, 64
# Rows of at least so many bytes are aligned to lines: vectors along them would cross lines (experience value).
MIN_LINE_ALIGNED_ROW_BYTES = 512


@dataclass(frozen=True, slots=True)
class Packed:
    """The copy, and the statement that reads (or writes) the copy instead."""

    copy: TypedStatement
    statement: TypedStatement


@dataclass(frozen=True, slots=True)
class PackedLayout:
    """The layout of a temporary that an operand is copied to: its dimensions run over `places`, each counted from its least.

    The places are affine in the statement's iterators. `source`: the operand's subscripts, by the places' values. `aligned`: long
    rows of it begin with lines, and neighbouring ones do not fall into the same sets of a cache.
    """

    label: str
    places: Sequence[Expr]
    source: Callable[[tuple[Expr, ...]], tuple[Expr, ...]]
    aligned: bool = False


def pack_elements(
    program: TypedProgram, fresh: Fresh, statement: TypedStatement, read: Read, layout: PackedLayout, outer: int = 0
) -> Packed:
    """Copy what `read` reaches into a temporary; in `outer` loops around the statement again in each iteration."""
    places = layout.places
    around = statement.iterators[:outer]
    elements = image_of(program, statement, [*(IndexExpr(i, i64) for i in around), *places])
    iterators = tuple(fresh.iterator() for _ in places)
    lows, extents = box_of(program, elements, range(outer, outer + len(places)))
    assert read.dtype is not None
    name = fresh.temporary(layout.label, read.dtype, _rows_apart(extents, read.dtype) if layout.aligned else extents)
    values = tuple(IndexExpr(i, i64) for i in iterators)
    here = tuple(subtract(v, low) for v, low in zip(values, lows, strict=True))
    there = tuple(subtract(p, low) for p, low in zip(places, lows, strict=True))
    copy_name = fresh.statement()
    copy = TypedStatement(
        copy_name, (*around, *iterators), outer, domain_text(elements, copy_name), name, here, "set",
        replace(read, subscripts=layout.source(values)), read.dtype, (), statement.span,
    )  # fmt: skip
    packed = Read(name, there, dtype=read.dtype)
    changed = transform(statement.expr, lambda e: packed if e == read else e)
    return Packed(copy, replace(statement, expr=changed))


def pack_read(program: TypedProgram, fresh: Fresh, statement: TypedStatement, read: Read, vector: str) -> Packed:
    """Copy what `read` reaches into a temporary in which `vector` has stride one.

    The temporary keeps the tensor's dimensions that do not move with the vector; in place of the others it has the iterators
    of their subscripts, the vector last. Padding is resolved by the copy.
    """
    moving = [s for s in read.subscripts if vector in indices_of(s)]
    fixed = [s for s in read.subscripts if vector not in indices_of(s)]
    walked = [i for i in statement.iterators if i != vector and any(i in indices_of(s) for s in moving)] + [vector]

    def source(values: tuple[Expr, ...]) -> tuple[Expr, ...]:
        own = dict(zip(walked, values[len(fixed) :], strict=True))
        kept = iter(values)
        return tuple(substitute(s, own) if vector in indices_of(s) else next(kept) for s in read.subscripts)

    places = [*fixed, *(IndexExpr(i, i64) for i in walked)]
    return pack_elements(program, fresh, statement, read, PackedLayout("pack", places, source, aligned=True))


def _rows_apart(extents: tuple[Expr, ...], dtype: DType) -> tuple[Expr, ...]:
    """Return the extents with long rows of whole lines, of a line more where a few rows would fill a set of a cache."""
    *others, row = extents
    length = row.value * dtype.itemsize if isinstance(row, Literal) and isinstance(row.value, int) else 0
    if not others or not length or (length < MIN_LINE_ALIGNED_ROW_BYTES and length % SET_CONFLICT_STRIDE):
        return extents
    more = LINE_BYTES if length % SET_CONFLICT_STRIDE == 0 else -length % LINE_BYTES
    if (length + more) % SET_CONFLICT_STRIDE == 0:
        more += LINE_BYTES
    return (*others, add(row, lit(more // dtype.itemsize)))


def pack_padded(program: TypedProgram, fresh: Fresh, statement: TypedStatement, read: Read) -> Packed:
    """Copy the part of a padded operand that `read` reaches, padding and all, so that nothing has to be tested later.

    Before: `O[i] += X[i+r-1; pad=0] * K[r]`. After: `P[c] = X[c-1; pad=0];  O[i] += P[i+r] * K[r]`.
    """
    layout = PackedLayout("padded", read.subscripts, lambda values: values)
    return pack_elements(program, fresh, statement, read, layout)


def apart_from_border(program: TypedProgram, fresh: Fresh, copy: TypedStatement) -> list[TypedStatement]:
    """Return a copy of a tensor with constants around it as two: the tensor's own elements, and the constants.

    Without a test the first is a value like others: it may be computed where it would be read.
    """
    read = copy.expr
    if not isinstance(read, Read) or read.pad is None or read.pad.value is None or read.dtype is None:
        return [copy]
    domain = read_set(copy.domain)
    own = instances_within(program, copy, read.tensor, read.subscripts)
    elements, border = domain.intersect(own).coalesce(), domain.subtract(own).coalesce()
    found = [replace(copy, domain=domain_text(elements, copy.name), expr=replace(read, pad=None))]
    if not border.is_empty():
        name, value = fresh.statement(), replace(read.pad.value, dtype=read.dtype)
        found.append(replace(copy, name=name, domain=domain_text(border, name), expr=value))
    return found


def pack_result(program: TypedProgram, fresh: Fresh, statement: TypedStatement, vector: str) -> Packed:
    """Let a reduction with bare subscripts write a temporary whose last dimension is `vector`, and copy it to its target.

    The copy covers every element of the target: those that the reduction leaves out hold its identity.
    """
    order = [s for s in statement.subscripts if s != IndexExpr(vector, i64)] + [IndexExpr(vector, i64)]
    names = [s.name for s in order if isinstance(s, IndexExpr)]
    own = [s.name for s in statement.subscripts if isinstance(s, IndexExpr)]
    swap = read_map(f"{parameters(program)}{{ {statement.target}[{', '.join(own)}] -> [{', '.join(names)}] }}")
    elements = read_set(tensor_box(program, statement.target)).apply(swap)
    lows, extents = box_of(program, elements, range(len(order)))
    dtype = program.tensor(statement.target).dtype
    name = fresh.temporary("result", dtype, extents)
    iterators = tuple(fresh.iterator() for _ in order)
    renamed = {s.name: i for s, i in zip(order, iterators, strict=True) if isinstance(s, IndexExpr)}
    target = tuple(IndexExpr(renamed[s.name], i64) for s in statement.subscripts if isinstance(s, IndexExpr))
    value = Read(
        name, tuple(subtract(IndexExpr(i, i64), low) for i, low in zip(iterators, lows, strict=True)), dtype=dtype
    )
    copy_name = fresh.statement()
    copy = TypedStatement(
        copy_name, iterators, 0, domain_text(elements, copy_name), statement.target, target, "set", value, dtype, (),
        statement.span,
    )  # fmt: skip
    places = tuple(subtract(s, low) for s, low in zip(order, lows, strict=True))
    return Packed(copy, replace(statement, target=name, subscripts=places))


def start_of_packed(
    program: TypedProgram, start: TypedStatement, before: TypedStatement, after: TypedStatement
) -> TypedStatement:
    """Return the start of the packed result: the same elements, their dimensions in the packed order."""
    dimension = dict(zip(before.subscripts, start.iterators, strict=True))
    iterators = tuple(dimension[s] for s in after.subscripts)
    old, new = ", ".join(start.iterators), ", ".join(iterators)
    swap = read_map(f"{parameters(program)}{{ {start.name}[{old}] -> {start.name}[{new}] }}")
    domain = read_set(start.domain).apply(swap)
    places = tuple(IndexExpr(i, i64) for i in iterators)
    return replace(start, target=after.target, iterators=iterators, subscripts=places, domain=str(domain))


def image_of(program: TypedProgram, statement: TypedStatement, places: Sequence[Expr]) -> isl.Set:
    """Return the set of the values that expressions over a statement's iterators take."""
    return values_taken(program, statement, tuple(map(print_affine, places))).coalesce()


def box_of(program: TypedProgram, elements: isl.Set, dimensions: range) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
    """Return the least values of dimensions of a set, and how many values there are up to the greatest."""
    bounds = [bounds_of(elements, d, program) for d in dimensions]
    lows = tuple(low for low, _ in bounds)
    return lows, tuple(add(subtract(high, low), lit(1)) for low, high in bounds)
