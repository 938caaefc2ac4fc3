"""Whole tiles over a triangle: a register tile that the border of the results crosses computes all its cells, but stores only
results.

Before, over `j <= i`: `A[i,j] += e[i,j,k]` with a test for each vector. After: the same for every cell of a tile of 6 x 64 that
holds a result at all, without tests. Accumulators are the tile's own, so what is computed for other cells is seen by nobody; the
store keeps to the results. The terms of an additional cell are those that some result of its tile has.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

import islpy as isl

from polyker.ir.quasi_affine import is_quasi_affine
from polyker.ir.typed import TypedProgram, TypedStatement
from polyker.poly.boxes import corners
from polyker.poly.count import count
from polyker.poly.isl import Set, read_map, read_set
from polyker.poly.scop import access_relation, domain_text, parameters, tensor_box
from polyker.poly.tiling import Tiling, mates

# Cells that are computed for each that is a result, at most: beyond, tests cost less.
MOST = 1.6


@dataclass(frozen=True, slots=True)
class WholeTiles:
    """The statement with the additional instances, and the cells to store, as a set over the iterators that are kept."""

    statement: TypedStatement
    results: Set


def whole_tiles(
    program: TypedProgram, statement: TypedStatement, tiles: Tiling, *, moved: bool = False
) -> WholeTiles | None:
    """Return a reduction with whole tiles, None where its results are a box or what would be read is not there.

    `tiles` has (kept iterator, size, origin): the tile of x is floor((x - origin) / size). `moved`: the loops around the
    statement are its own, moved outside; else they are the text's, and what is read in them may change.
    """
    kept = tuple(i for i in statement.iterators if i not in statement.reduced)
    tiles = tuple(t for t in tiles if t[1] > 1 and t[0] in kept)
    if not tiles or program.sizes or (statement.outer and not moved):
        return None
    domain = read_set(statement.domain)
    results = domain.apply(_onto(program, statement.iterators, kept, statement.name))
    if results.is_empty() or corners(results) is not None:
        return None
    box = _box(results)
    if _computed(program, results, kept, tiles) > MOST * (count(results).number or 1):
        return None
    cells = results.apply(mates(program, "", kept, tiles)).intersect(box).coalesce()
    near = mates(program, statement.name, statement.iterators, tiles)
    onto = _onto(program, statement.iterators, kept, statement.name)
    around = onto.intersect_range(cells.subtract(results)).domain()
    wide = domain.union(domain.apply(near).intersect(around)).coalesce()
    for read in statement.reads():
        if not all(map(is_quasi_affine, read.subscripts)):
            return None
        if read.pad is None:
            reached = wide.apply(read_map(access_relation(program, statement, read.tensor, read.subscripts)))
            if not reached.is_subset(read_set(tensor_box(program, read.tensor))):
                return None
    return WholeTiles(replace(statement, domain=domain_text(wide, statement.name)), results)


def _onto(program: TypedProgram, iterators: tuple[str, ...], kept: tuple[str, ...], name: str) -> isl.Map:
    return read_map(f"{parameters(program)}{{ {name}[{', '.join(iterators)}] -> [{', '.join(kept)}] }}")


def _computed(program: TypedProgram, results: isl.Set, kept: tuple[str, ...], tiles: Tiling) -> int:
    """Return the number of cells of all tiles that hold a result."""
    sizes = {i: (size, origin) for i, size, origin in tiles}
    places = [f"floor(({i} - {sizes[i][1]})/{sizes[i][0]})" if i in sizes else i for i in kept]
    onto = read_map(f"{parameters(program)}{{ [{', '.join(kept)}] -> [{', '.join(places)}] }}")
    return (count(results.apply(onto)).number or 0) * prod(size for size, _ in sizes.values())


def _box(cells: isl.Set) -> isl.Set:
    """Return the least box of fixed corners around a set."""
    whole = isl.Set.universe(cells.get_space())
    for d in range(cells.dim(isl.dim_type.set)):
        whole = whole.lower_bound_val(isl.dim_type.set, d, cells.dim_min_val(d))
        whole = whole.upper_bound_val(isl.dim_type.set, d, cells.dim_max_val(d))
    return whole
