"""Pack, in each iteration of the outer loops, the bounding box of the elements that it reads.

Before: `O[f,h,w] += X[c,h+r,w+s] * K[f,c,r,s]`. After, with a copy for each tile of 8 values of h and 2 of c, the times being
a = floor(h/8) and q = floor(c/2): `P[a,q,x,y,z] = X[2q+x, 8a+y, z];  O[f,h,w] += P[a,q,c-2q,h+r-8a,w+s] * K[f,c,r,s]`.
The temporary's leading dimensions number the runs, so that no run reads what another has copied; its buffer holds one box, and
overlapping windows have each element in it once.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from polyker.ir.dtypes import i64
from polyker.ir.expr import Expr, Pad, Read, SizeExpr, transform
from polyker.ir.quasi_affine import add, coefficients, index, indices, indices_of, lit, scale
from polyker.ir.typed import UNBOUNDED_EXTENT, TypedProgram, TypedStatement
from polyker.poly.symbolic import from_least
from polyker.rewrite.core.fresh import Fresh, identity
from polyker.rewrite.materialise.pack_operand import image_of
from polyker.structs import replace


class Tile(Struct, frozen=True):
    """What one run holds of an iterator: `size` values from `origin + size * time` on; `time` None: all of them, once."""

    time: Expr | None
    size: int
    origin: int


class PackedRun(Struct, frozen=True):
    """The copy into `tensor`, and the statement that reads it.

    `numbers`: a time of a loop around -> the copy's iterator for it; `elements`: the copy's other iterators, one a dimension of
    the operand, each from 0 to below its extent in `extents`.
    """

    copy: TypedStatement
    statement: TypedStatement
    tensor: str
    numbers: Mapping[Expr, str]
    elements: tuple[str, ...]
    extents: tuple[int, ...]


def box_of(read: Read, tiles: Mapping[str, Tile]) -> tuple[int, ...] | None:
    """Return the extents of the box that a run reads; None where a subscript is not affine in tiled iterators."""
    extents = []
    for s in read.subscripts:
        parts = coefficients(s)
        if parts is None or not indices_of(s) <= tiles.keys():
            return None
        extents.append(1 + sum(abs(c) * (tiles[i].size - 1) for i, c in parts.items() if i in tiles))
    return tuple(extents)


def pack_run(
    program: TypedProgram,
    fresh: Fresh,
    statement: TypedStatement,
    read: Read,
    times: tuple[Expr, ...],
    tiles: Mapping[str, Tile],
) -> PackedRun:
    """Copy what each run of the loops `times` (over the statement's iterators) reads of an operand, which has a box.

    An element outside the operand, where the statement's domain has instances that nobody needs the value of, is a 0.
    """
    numbers = {t: fresh.iterator() for t in times}
    extents = box_of(read, tiles)
    assert extents is not None
    assert read.dtype is not None
    elements = fresh.iterators(len(extents))
    corners = [_corner(s, tiles) for s in read.subscripts]
    local = from_least(read.subscripts, corners)
    domain = image_of(program, statement, (*times, *local))
    tensor = fresh.temporary("pack", read.dtype, tuple(lit(UNBOUNDED_EXTENT) for _ in (*times, *elements)))
    iterators = (*numbers.values(), *elements)
    own: dict[Expr, Expr] = {t: index(n) for t, n in numbers.items()}
    places = tuple(add(index(n), transform(c, lambda e: own.get(e, e))) for n, c in zip(elements, corners, strict=True))
    pad = read.pad or Pad("constant", identity("add", read.dtype))
    value = replace(read, subscripts=places, pad=pad)
    copy = fresh.sets(domain, iterators, (tensor, indices(iterators)), value, statement)
    packed = Read(tensor, (*times, *local), dtype=read.dtype)
    changed = transform(statement.expr, lambda e: packed if e == read else e)
    return PackedRun(copy, replace(statement, expr=changed), tensor, numbers, elements, extents)


def _corner(subscript: Expr, tiles: Mapping[str, Tile]) -> Expr:
    """Return the least value of a subscript in a run, over the times of the tiles."""
    terms: list[Expr] = []
    for name, c in (coefficients(subscript) or {}).items():
        if name not in tiles:
            terms.append(scale(c, SizeExpr(name, i64)) if name else lit(c))
            continue
        tile = tiles[name]
        terms.append(lit(c * tile.origin + (c * (tile.size - 1) if c < 0 else 0)))
        if tile.time is not None:
            terms.append(scale(c * tile.size, tile.time))
    return add(*terms)
