"""Separate full from partial tiles: parts of an iteration domain whose tiles have one shape."""

from __future__ import annotations

import islpy as isl
from msgspec import Struct

from polyker.ir.typed import TypedProgram, TypedStatement
from polyker.poly.boxes import box_around, corners, free_range, is_box
from polyker.poly.isl import read_set
from polyker.poly.scop import map_onto
from polyker.poly.tiling import Tiling, by_vectors, mates, of_vectors, uncut

# Most disjoint isl sets, with symbolic sizes, of the terms that all results of a tile share and of the others: more take isl
# seconds.
MAX_SYMBOLIC_PIECES = 2
# Most values of an iterator by which the reduction's iterations are split (chosen; bounds the code).
MAX_SPLIT_VALUES = 8


class DomainPart(Struct, frozen=True):
    """A part of a domain; `is_own_shape`: all its tiles are of one constant shape, so that unrolled loops need no tests.

    `only`: the one iterator along which its tiles may be cut.
    """

    domain: isl.Set
    is_own_shape: bool
    only: str | None = None


class Separation(Struct, frozen=True):
    """How partial tiles are separated whose shapes the sizes or a slanted border decide: they are one part, or two: those cut
    `along` one iterator only, and the rest; or, `one_by_one`, one part for each tiled iterator: those cut along it and along none
    before, the last with the rest.

    `grain`: (iterator, lanes) where the domain is of whole vectors of a tile: they are separated by the vectors they have, too.
    """

    along: str | None = None
    one_by_one: bool = False
    grain: tuple[str, int] | None = None


TOGETHER = Separation()


def tile_parts(
    program: TypedProgram,
    domain: isl.Set,
    iterators: tuple[str, ...],
    tiles: Tiling,
    separation: Separation = TOGETHER,
) -> list[DomainPart]:
    """Split a domain by the shape of its tiles.

    `tiles` has (iterator, size, origin): the tile of x is floor((x - origin) / size). The first part has the full tiles. For a
    box of fixed extents, or whole tiles within one, the partial ones are separated by the dimensions in which they are cut: each
    part has one shape. Else `separation` says how. Empty parts are left out; the parts are disjoint.
    """
    grain = separation.grain
    tiles = tuple(t for t in tiles if t[1] > 1)
    if program.sizes:
        domain = domain.intersect_params(read_set(program.context))
    if not tiles:
        return [DomainPart(domain, True)]
    if program.sizes and grain and not is_box(domain):
        of_one = _of_vectors(program, domain, iterators, tiles, grain)
        if of_one is not None:
            parts = [DomainPart(part, True) for part in of_one[0]] + [DomainPart(part, False) for part in of_one[1]]
            return [p for p in parts if not p.domain.is_empty()]
    if program.sizes and domain.coalesce().n_basic_set() > 1:
        # Where extents are the larger of two sizes each piece would have full and partial tiles of its own.
        return [DomainPart(domain, False)]
    box = None if program.sizes else corners(domain)
    if box is not None:
        ranges = dict(zip(iterators, box, strict=True))
        tiles = tuple(t for t in tiles if _has_both(*ranges[t[0]], *t[1:]))
    if not program.sizes and (box is not None or _is_of_tiles(program, domain, iterators, tiles)):
        parts = [DomainPart(part, True) for part in _by_cuts(domain, iterators, tiles)]
    elif not program.sizes and grain and (of_one := _of_vectors(program, domain, iterators, tiles, grain)):
        parts = [DomainPart(part, True) for part in (*of_one[0], *of_one[1])]
    else:
        of_size = tiles if program.sizes else ()
        ranges = {t[0]: found for t in of_size if (found := free_range(domain, iterators.index(t[0]))) is not None}
        known = tuple(t for t in tiles if t[0] in ranges)
        tiles = tuple(t for t in tiles if t not in known)
        # Tiles that the end of a range of known length cuts are alike, too.
        shapes = _by_cuts(domain, iterators, tuple(t for t in known if _has_both(*ranges[t[0]], *t[1:])))
        partial = _cut(program, domain, iterators, tiles)
        others = tuple(t for t in tiles if t[0] != separation.along)
        parts = [DomainPart(shape.subtract(partial).coalesce(), True) for shape in shapes]
        if separation.one_by_one:
            for tile in tiles[:-1]:
                here = _cut(program, domain, iterators, (tile,)).intersect(partial)
                parts.append(DomainPart(here.coalesce(), False))
                partial = partial.subtract(here)
            # A slanted border may cut a tile at a corner, and some of its rows along no iterator alone.
            parts.append(DomainPart(partial.coalesce(), False))
        elif others and len(others) < len(tiles):
            rest = _cut(program, domain, iterators, others)
            parts += [
                DomainPart(partial.subtract(rest).coalesce(), False, separation.along),
                DomainPart(rest.coalesce(), False),
            ]
        else:
            parts.append(DomainPart(partial.coalesce(), False))
    return [p for p in parts if not p.domain.is_empty()]


def _by_cuts(domain: isl.Set, iterators: tuple[str, ...], tiles: Tiling) -> list[isl.Set]:
    """Return the parts of a domain by the dimensions in which an end of its box cuts their tiles, that of none first."""
    parts = [domain]
    for iterator, size, origin in () if domain.is_empty() else tiles:
        whole = uncut(domain, iterators.index(iterator), size, origin)
        parts = [p for part in parts for p in (part.intersect(whole), part.subtract(whole))]
    return parts


def _by_first_cuts(domain: isl.Set, iterators: tuple[str, ...], tiles: Tiling) -> list[isl.Set]:
    """Return the parts of a domain by the first dimension in which an end of its box cuts their tiles, that of none first."""
    cut: list[isl.Set] = []
    for iterator, size, origin in tiles:
        whole = uncut(domain, iterators.index(iterator), size, origin)
        cut.append(domain.subtract(whole))
        domain = domain.intersect(whole)
    return [domain, *cut]


def _of_vectors(
    program: TypedProgram, domain: isl.Set, iterators: tuple[str, ...], tiles: Tiling, grain: tuple[str, int]
) -> tuple[list[isl.Set], list[isl.Set]] | None:
    """Return the parts of a domain of whole vectors by the vectors that their tiles have, and those that an end of its box cuts,
    by the ends; None if it is none.

    Tiles that an end of the domain's box cuts have all their vectors.
    """
    inside, *cut = (_by_first_cuts if program.sizes else _by_cuts)(domain, iterators, tiles)
    whole = all(p.is_empty() or _is_of_tiles(program, p, iterators, tiles) for p in cut)
    if not whole or not _is_of_tiles(program, inside, iterators, of_vectors(tiles, grain)):
        return None
    return by_vectors(program, inside, iterators, tiles, grain), [p.coalesce() for p in cut]


def _has_both(least: int, greatest: int, size: int, origin: int) -> bool:
    """Whether a range of values has whole tiles, and others that an end cuts."""
    starts = (least - origin) % size == 0, (greatest + 1 - origin) % size == 0
    whole = (greatest + 1 - origin) // size + (origin - least) // size
    return whole > 0 and not all(starts)


def common_terms(program: TypedProgram, statement: TypedStatement, tiles: Tiling) -> tuple[isl.Set, isl.Set] | None:
    """Return the instances of a reduction whose term all results of their tile have, and the others.

    `tiles`: of the kept iterators, as in `tile_parts`. None where there are no others, or sets of symbolic sizes are not simple.
    """
    tiles = tuple(t for t in tiles if t[1] > 1)
    if not tiles:
        return None
    domain = read_set(statement.domain).intersect_params(read_set(program.context))
    if program.sizes and domain.coalesce().n_basic_set() > 1:
        return None
    some = _of_some(program, statement, domain, tiles).coalesce()
    every = domain.subtract(some).coalesce()
    if program.sizes and every.n_basic_set() > 1:
        # What is told of some that holds of all would cut the others to pieces.
        every = domain.subtract(some.gist(domain)).coalesce()
    if some.is_empty() or (program.sizes and every.n_basic_set() + some.n_basic_set() > MAX_SYMBOLIC_PIECES):
        return None
    return every, some


def by_terms(program: TypedProgram, statement: TypedStatement, some: isl.Set, tiles: Tiling) -> list[isl.Set] | None:
    """Return the parts of the reduction that some results of a tile have, one for each value of the short reduced iterator that
    says which these are: all terms of a part have the same results of a tile. None where no such iterator does.

        O[w+s] += X[w] * K[s]: the results of a tile at the border have s = 0, those from the second on s = 1, ...
    """
    tiles = tuple(t for t in tiles if t[1] > 1)
    short: list[tuple[int, range]] = []
    for d, i in enumerate(statement.iterators):
        low, high = some.dim_min_val(d), some.dim_max_val(d)
        if (
            i in statement.reduced
            and low.is_int()
            and high.is_int()
            and 0 < high.to_python() - low.to_python() < MAX_SPLIT_VALUES
        ):
            short.append((d, range(low.to_python(), high.to_python() + 1)))
    for d, values in short:
        parts = [some.fix_val(isl.dim_type.set, d, isl.Val(v)) for v in values]
        if all(_of_some(program, statement, part, tiles).is_empty() for part in parts):
            # Both ends of a row have their own results.
            pieces = (p for part in parts for p in part.coalesce().make_disjoint().get_basic_sets())
            return [isl.Set.from_basic_set(p) for p in pieces]
    return None


def _of_some(program: TypedProgram, statement: TypedStatement, domain: isl.Set, tiles: Tiling) -> isl.Set:
    """Return the instances of a part of a reduction whose term not all results have that the part has of their tile."""
    onto = map_onto(program, statement, statement.kept)
    lacking = onto.intersect_range(domain.apply(onto)).domain().subtract(domain)
    near = mates(program, statement.name, statement.iterators, tiles)
    return near.intersect_domain(domain).intersect_range(lacking).domain()


def _is_of_tiles(program: TypedProgram, domain: isl.Set, iterators: tuple[str, ...], tiles: Tiling) -> bool:
    """Whether a domain has all of each tile that it has a part of, as far as the tile lies in the domain's box."""
    around = domain.apply(mates(program, _name(domain), iterators, tiles))
    if program.sizes:
        return bool(around.intersect(box_around(domain)).is_subset(domain))
    for d in range(domain.dim(isl.dim_type.set)):
        low, high = domain.dim_min_val(d), domain.dim_max_val(d)
        if not low.is_int() or not high.is_int():
            return False
        around = around.lower_bound_val(isl.dim_type.set, d, low).upper_bound_val(isl.dim_type.set, d, high)
    return bool(around.is_subset(domain))


def _cut(program: TypedProgram, domain: isl.Set, iterators: tuple[str, ...], tiles: Tiling) -> isl.Set:
    """Return the instances whose tile, along `tiles` together, reaches outside the domain."""
    near = mates(program, _name(domain), iterators, tiles)
    return near.intersect_domain(domain).intersect_range(domain.complement()).domain()


def _name(domain: isl.Set) -> str:
    return domain.get_tuple_name() if domain.has_tuple_name() else ""
