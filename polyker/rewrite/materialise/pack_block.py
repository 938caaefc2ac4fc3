"""Pack an operand by cache blocks: each iteration of the outer loops copies the part that it uses.

Before: `C[i,j] += A[i,k] * B[k,j]`. After, with a copy for each block of 256 columns, `around` being `floor(j/256)`:
`P[floor(j/256), k, j] = B[k,j];  C[i,j] += A[i,k] * P[floor(j/256), k, j]`. The temporary's leading dimensions number the
runs, so that no run reads what another has copied; its buffer holds one run's elements.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from polyker.ir.expr import Expr, Read, transform
from polyker.ir.quasi_affine import indices, indices_of, lit, print_affine, renaming, substitute
from polyker.ir.typed import UNBOUNDED_EXTENT, TypedProgram, TypedStatement
from polyker.poly.boxes import in_one_piece
from polyker.poly.isl import read_set
from polyker.poly.scop import map_onto
from polyker.poly.symbolic import from_least
from polyker.rewrite.core.fresh import Fresh
from polyker.structs import replace


class PackedBlock(Struct, frozen=True):
    """The copy into `tensor`, and the statement that reads it.

    `names`: an iterator of the statement -> the copy's; `numbers`: a time of a loop around -> the copy's iterator for it. The
    tensor's dimensions are those numbers, then the elements of the iterators `element` counted from their least values.
    """

    copy: TypedStatement
    statement: TypedStatement
    tensor: str
    element: tuple[str, ...]
    names: Mapping[str, str]
    numbers: Mapping[Expr, str]


def pack_block(
    program: TypedProgram,
    fresh: Fresh,
    statement: TypedStatement,
    read: Read,
    around: tuple[Expr, ...],
    origin: Mapping[str, int],
) -> PackedBlock:
    """Copy what each run of the loops `around` (times over the statement's iterators) reads of an operand.

    Loops whose time the read's own iterators determine need no number.
    """
    element = tuple(i for i in statement.iterators if any(i in indices_of(s) for s in read.subscripts))
    runs = tuple(dict.fromkeys(t for t in around if not indices_of(t) <= set(element)))
    numbers = {t: fresh.iterator() for t in runs}
    names = {i: fresh.iterator() for i in element}
    iterators = (*numbers.values(), *names.values())
    domain = read_set(statement.domain).intersect_params(read_set(program.context))
    onto = map_onto(program, statement, (*map(print_affine, runs), *element))
    elements = in_one_piece(onto.intersect_domain(domain).range().coalesce())
    assert read.dtype is not None
    tensor = fresh.temporary("pack", read.dtype, tuple(lit(UNBOUNDED_EXTENT) for _ in iterators))
    lows = [lit(origin[i]) for i in element]
    here = (*indices(numbers.values()), *from_least(indices(names.values()), lows))
    there = (*runs, *from_least(indices(element), lows))
    own = renaming(names)
    value = replace(read, subscripts=tuple(substitute(s, own) for s in read.subscripts))
    copy = fresh.sets(elements, iterators, (tensor, here), value, statement)
    packed = Read(tensor, there, dtype=read.dtype)
    changed = transform(statement.expr, lambda e: packed if e == read else e)
    return PackedBlock(copy, replace(statement, expr=changed), tensor, element, names, numbers)
