"""Compute whole register tiles over triangular domains, where the border crosses them, and store only results.

Before, over `j <= i`: `A[i,j] += e[i,j,k]` with a test for each vector. After: the same for every element of those vectors of a
tile of 6 x 64 that hold a result at all, without tests: tiles of 6 x 16, 6 x 32, 6 x 48 and 6 x 64. Accumulators are the tile's
own: what is computed for other elements is seen by nobody; the store keeps to the results. The terms of an additional element are
those that some result of its tile has.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from math import prod

import islpy as isl
from msgspec import Struct

from polyker.ir.expr import Expr, Read
from polyker.ir.quasi_affine import is_quasi_affine
from polyker.ir.typed import TypedProgram, TypedStatement
from polyker.poly.boxes import across, corners, ends, interval_along
from polyker.poly.count import count
from polyker.poly.isl import Set, dim, read_map, read_set
from polyker.poly.scop import access_relation, domain_text, map_onto, parameters, tensor_box
from polyker.poly.symbolic import expected
from polyker.poly.tiling import Tiling, by_vectors, mates, of_vectors, uncut
from polyker.structs import replace

# Most vectors that are computed for each that is stored: a vector with tests costs as much as ten without (experience value).
MAX_VECTORS_PER_STORED_VECTOR = 8
# Most shapes of tiles; greatest share of elements more than with the shortest rows that are computed for the sake of fewer
# shapes: each has code of its own, and of symbolic sizes that of tiles which an end cuts comes on top (chosen).
MAX_TILE_SHAPES, MAX_EXTRA_SHARE, MAX_EXTRA_SHARE_OF_SIZES = 5, 1 / 18, 1 / 9
# Most pieces of the additional instances and the others where sizes are symbolic: of more of them isl takes seconds to find the
# loops (chosen).
MAX_SYMBOLIC_PIECES = 3


class WholeTiles(Struct, frozen=True):
    """The statement with the additional instances, and the elements to store, as a set over the iterators that are kept."""

    statement: TypedStatement
    results: Set


def whole_tiles(
    program: TypedProgram,
    statement: TypedStatement,
    tiles: Tiling,
    grain: tuple[str, int] | None = None,
    *,
    moved: bool = False,
) -> WholeTiles | None:
    """Return a reduction with whole tiles, None where its results are a box or what would be read is not there.

    `tiles` has (kept iterator, size, origin): the tile of x is floor((x - origin) / size). `grain`: (iterator, lanes) of its
    vectors: those without a result are left out of tiles that no end of the box cuts. `moved`: the loops around the statement
    are its own, moved outside; else they are the text's, and what is read in them may change: an additional instance reads only
    what results read in the same iteration, and the statement writes none of it.
    """
    kept = statement.kept
    tiles = tuple(t for t in tiles if t[1] > 1 and t[0] in kept)
    if not tiles:
        return None
    domain = read_set(statement.domain)
    if program.sizes:
        domain = domain.intersect_params(read_set(program.context))
    onto = map_onto(program, statement, kept)
    results = domain.apply(onto)
    if results.is_empty():
        return None
    if _box(results, statement.outer).is_subset(results) if program.sizes else corners(results) is not None:
        return None
    vectors = tuple((i, grain[1], origin) for i, _, origin in tiles if grain and i == grain[0])
    if _computed(program, results, kept, tiles, grain) > MAX_VECTORS_PER_STORED_VECTOR * _computed(
        program, results, kept, vectors, grain
    ):
        return None
    elements = _elements(program, results, kept, tiles, grain, statement.outer)
    near = mates(program, statement.name, statement.iterators, tiles)
    of_tile = domain.apply(near)
    wide = of_tile.intersect(onto.intersect_range(elements).domain()).coalesce()
    if not wide.intersect(onto.intersect_range(results).domain()).is_subset(domain):
        # Results keep the terms that they have.
        wide = domain.union(of_tile.intersect(onto.intersect_range(elements.subtract(results)).domain())).coalesce()
    if program.sizes and wide.n_basic_set() > MAX_SYMBOLIC_PIECES:
        return None
    for read in statement.reads():
        if not all(map(is_quasi_affine, read.subscripts)):
            return None
        if statement.outer and not moved and not _is_steady(program, statement, read, domain, wide):
            return None
        if read.pad is None:
            reached = wide.apply(read_map(access_relation(program, statement, read.tensor, read.subscripts)))
            if not reached.is_subset(read_set(tensor_box(program, read.tensor))):
                return None
    if program.sizes:
        wide, results = (s.gist_params(read_set(program.context)) for s in (wide, results))
    return WholeTiles(replace(statement, domain=domain_text(wide, statement.name)), results)


def _is_steady(program: TypedProgram, statement: TypedStatement, read: Read, domain: isl.Set, wide: isl.Set) -> bool:
    """Whether more instances read what those of the domain read in the same iteration of the loops around, and the statement
    writes none of it there."""
    step = map_onto(program, statement, statement.iterators[: statement.outer])

    def elements(tensor: str, subscripts: tuple[Expr, ...], instances: isl.Set) -> isl.Map:
        access = read_map(access_relation(program, statement, tensor, subscripts))
        return access.intersect_domain(instances).apply_domain(step)

    if read.pad is not None or not elements(read.tensor, read.subscripts, wide).is_subset(
        elements(read.tensor, read.subscripts, domain)
    ):
        return False
    if read.tensor != statement.target:
        return True
    written = elements(statement.target, statement.subscripts, domain)
    return bool(written.intersect(elements(read.tensor, read.subscripts, wide)).is_empty())


def _elements(
    program: TypedProgram,
    results: isl.Set,
    kept: tuple[str, ...],
    tiles: Tiling,
    grain: tuple[str, int] | None,
    outer: int,
) -> isl.Set:
    """Return the elements of tiles with as few vectors as the number of shapes allows, or with more where these are few."""
    box = _box(results, outer)
    elements = results.apply(mates(program, "", kept, tiles)).intersect(box).coalesce()
    inside = reduce(isl.Set.intersect, (uncut(results, kept.index(i), s, o) for i, s, o in tiles))
    inside = inside.intersect(box) if outer else inside
    for wide in _widths(program, results, kept, tiles, grain):
        if wide is None:
            break
        vectors = results.apply(mates(program, "", kept, of_vectors(tiles, wide))).coalesce().intersect(inside)
        parts = by_vectors(program, expected(program, vectors), kept, tiles, wide)
        if len(parts) <= MAX_TILE_SHAPES and not any(_are_on_a_line(program, p, kept, tiles, wide[0]) for p in parts):
            return vectors.union(elements.subtract(inside)).coalesce()
    return elements


def _widths(
    program: TypedProgram, results: isl.Set, kept: tuple[str, ...], tiles: Tiling, grain: tuple[str, int] | None
) -> list[tuple[str, int] | None]:
    """Return the parts that rows of a tile may be cut to, the best first: the longest of those that are nearly as good as the
    shortest, then the others, and None for whole rows."""
    widths = [*_parts_of_rows(tiles, grain), None]
    elements = [_computed(program, results, kept, tiles, wide) for wide in widths]
    more = MAX_EXTRA_SHARE_OF_SIZES if program.sizes else MAX_EXTRA_SHARE
    good = [w for w, c in zip(widths, elements, strict=True) if c <= (1 + more) * elements[0]]
    return [*reversed(good), *(w for w in widths if w not in good)]


def _are_on_a_line(program: TypedProgram, elements: isl.Set, kept: tuple[str, ...], tiles: Tiling, vector: str) -> bool:
    """Whether the place of a tile along the vector follows from its other places.

    isl then gives elements in terms of these, and their places in a row of the tile are no longer seen: no registers could hold
    it.
    """
    along = kept.index(vector)
    for c in elements.apply(_numbers(program, kept, tiles)).affine_hull().get_constraints():
        moving = [d for d in range(len(kept)) if not c.get_coefficient_val(dim.set, d).is_zero()]
        if c.is_equality() and along in moving and len(moving) > 1:
            return True
    return False


def _parts_of_rows(tiles: Tiling, grain: tuple[str, int] | None) -> Iterator[tuple[str, int]]:
    """Yield the parts of equal length, whole vectors each, that a row of a tile can be cut to, the shortest first."""
    for iterator, size, _ in tiles:
        if grain and iterator == grain[0]:
            yield from ((iterator, n) for n in range(grain[1], size, grain[1]) if size % n == 0)


def _computed(
    program: TypedProgram, results: isl.Set, kept: tuple[str, ...], tiles: Tiling, grain: tuple[str, int] | None
) -> int:
    """Return the number of elements of all tiles that hold a result, as far as vectors of them do."""
    fine = of_vectors(tiles, grain)
    numbers = expected(program, results.apply(_numbers(program, kept, fine)))
    return (count(numbers).number or 0) * prod(size for _, size, _ in fine)


def _numbers(program: TypedProgram, kept: tuple[str, ...], tiles: Tiling) -> isl.Map:
    """Return the map of elements to the numbers of their tiles."""
    sizes = {i: (size, origin) for i, size, origin in tiles}
    places = [f"floor(({i} - {sizes[i][1]})/{sizes[i][0]})" if i in sizes else i for i in kept]
    return read_map(f"{parameters(program)}{{ [{', '.join(kept)}] -> [{', '.join(places)}] }}")


def _box(elements: isl.Set, outer: int) -> isl.Set:
    """Return the least box around a set in each iteration of so many outer loops."""
    whole = isl.Set.universe(elements.get_space())
    for d in range(outer, elements.dim(dim.set)):
        found = None if outer else ends(elements, d)
        if found is not None:
            whole = whole.lower_bound_val(dim.set, d, found[0]).upper_bound_val(dim.set, d, found[1])
        elif not outer:
            whole = whole.intersect(across(interval_along(elements, d), d, elements.dim(dim.set)))
        else:
            others = isl.Set.universe(elements.get_space()).identity()
            for e in range(outer, elements.dim(dim.set)):
                if e != d:
                    others = others.project_out(dim.out, e, 1).insert_dims(dim.out, e, 1)
            whole = whole.intersect(isl.Set.from_basic_set(elements.apply(others).simple_hull()))
    return whole
