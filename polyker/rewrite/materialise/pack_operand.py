"""Pack an operand: copy it once into a temporary with the layout of the loop that reads it.

Before: `C[i,j] += A[i,k] * B[j,k]` with vectors along j. After: `P[k,j] = B[j,k];  C[i,j] += A[i,k] * P[k,j]`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import islpy as isl
from msgspec import Struct

from polyker.ir.dtypes import DType, i64
from polyker.ir.expr import Expr, IndexExpr, Literal, Read, transform
from polyker.ir.quasi_affine import add, index, indices, indices_of, lit, print_affine, substitute
from polyker.ir.typed import TypedProgram, TypedStatement
from polyker.poly.isl import read_map, read_set
from polyker.poly.scop import domain_text, image, instances_within, parameters, tensor_box, values_taken
from polyker.poly.symbolic import box_of, from_least
from polyker.rewrite.core.fresh import Fresh
from polyker.rewrite.core.reindex import reindexed
from polyker.structs import replace

# Row strides in bytes that are multiples of this use a quarter of the sets of a first cache or fewer; bytes of a line.
SET_CONFLICT_STRIDE, LINE_BYTES = 1024, 64
# Rows of at least so many bytes are aligned to lines: vectors along them would cross lines (experience value).
MIN_LINE_ALIGNED_ROW_BYTES = 512


class Packed(Struct, frozen=True):
    """The copy, and the statement that reads (or writes) the copy instead."""

    copy: TypedStatement
    statement: TypedStatement


class PackedLayout(Struct, frozen=True):
    """The layout of a temporary that an operand is copied to: its dimensions run over `places`, each counted from its least.

    The places are affine in the statement's iterators. `source`: the operand's subscripts, by the places' values. `aligned`: long
    rows of it begin with lines, and neighbouring ones do not fall into the same sets of a cache.
    """

    label: str
    places: Sequence[Expr]
    source: Callable[[tuple[Expr, ...]], tuple[Expr, ...]]
    aligned: bool = False

    @classmethod
    def over(cls, label: str, iterators: Sequence[str], read: Read) -> PackedLayout:
        """Return the layout whose dimensions run over the values of iterators that a read has."""

        def source(values: tuple[Expr, ...]) -> tuple[Expr, ...]:
            return tuple(substitute(s, dict(zip(iterators, values, strict=True))) for s in read.subscripts)

        return cls(label, indices(iterators), source)


def pack_elements(
    program: TypedProgram, fresh: Fresh, statement: TypedStatement, read: Read, layout: PackedLayout, outer: int = 0
) -> Packed:
    """Copy what `read` reaches into a temporary; in `outer` loops around the statement again in each iteration."""
    places = layout.places
    around = statement.iterators[:outer]
    elements = image_of(program, statement, (*indices(around), *places))
    iterators = fresh.iterators(len(places))
    lows, extents = box_of(program, elements, range(outer, outer + len(places)))
    assert read.dtype is not None
    name = fresh.temporary(layout.label, read.dtype, _rows_apart(extents, read.dtype) if layout.aligned else extents)
    values = indices(iterators)
    source = replace(read, subscripts=layout.source(values))
    copy = fresh.sets(elements, (*around, *iterators), (name, from_least(values, lows)), source, statement, outer)
    packed = Read(name, from_least(places, lows), dtype=read.dtype)
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
    order = [s for s in statement.subscripts if s != index(vector)] + [index(vector)]
    names = [s.name for s in order if isinstance(s, IndexExpr)]
    own = [s.name for s in statement.subscripts if isinstance(s, IndexExpr)]
    swap = read_map(f"{parameters(program)}{{ {statement.target}[{', '.join(own)}] -> [{', '.join(names)}] }}")
    elements = read_set(tensor_box(program, statement.target)).apply(swap)
    lows, extents = box_of(program, elements, range(len(order)))
    dtype = program.tensor(statement.target).dtype
    name = fresh.temporary("result", dtype, extents)
    iterators = fresh.iterators(len(order))
    renamed = dict(zip(names, iterators, strict=True))
    value = Read(name, from_least(indices(iterators), lows), dtype=dtype)
    copy = fresh.sets(elements, iterators, (statement.target, indices(renamed[i] for i in own)), value, statement)
    return Packed(copy, replace(statement, target=name, subscripts=from_least(order, lows)))


def start_of_packed(
    program: TypedProgram, start: TypedStatement, before: TypedStatement, after: TypedStatement
) -> TypedStatement:
    """Return the start of the packed result: the same elements, their dimensions in the packed order."""
    dimension = dict(zip(before.subscripts, start.iterators, strict=True))
    iterators = tuple(dimension[s] for s in after.subscripts)
    made = replace(start, target=after.target, subscripts=indices(iterators))
    return reindexed(made, iterators, image(program, start, iterators), {})


def image_of(program: TypedProgram, statement: TypedStatement, places: Sequence[Expr]) -> isl.Set:
    """Return the set of the values that expressions over a statement's iterators take."""
    return values_taken(program, statement, tuple(map(print_affine, places))).coalesce()
