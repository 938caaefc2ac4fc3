"""Full and partial tiles: the parts of an iteration domain whose tiles have one shape each, so that full ones need no test."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import islpy as isl

from polyker.ir.typed import TypedProgram
from polyker.poly.boxes import corners
from polyker.poly.isl import read_map, read_set
from polyker.poly.scop import parameters


@dataclass(frozen=True)
class Part:
    """A part of a domain; `is_own_shape`: all its tiles are of one constant shape, so that unrolled loops need no tests.

    `only`: the one iterator along which its tiles may be cut.
    """

    domain: isl.Set
    is_own_shape: bool
    only: str | None = None


def tile_parts(
    program: TypedProgram,
    domain: isl.Set,
    iterators: tuple[str, ...],
    tiles: tuple[tuple[str, int, int], ...],
    apart: str | None = None,
) -> list[Part]:
    """Split a domain by the shape of its tiles.

    `tiles` has (iterator, size, origin): the tile of x is floor((x - origin) / size). The first part has the full tiles. For a
    box of fixed extents the partial ones are kept apart by the dimensions in which they are cut: each part has one shape. Else
    they are one part, or two: those cut along the iterator `apart` only, and the rest. Empty parts are left out; the parts are
    disjoint.
    """
    tiles = tuple(t for t in tiles if t[1] > 1)
    if program.sizes:
        domain = domain.intersect_params(read_set(program.context))
    if not tiles:
        return [Part(domain, True)]
    if not program.sizes and corners(domain) is not None:
        cut = [_cut(program, domain, iterators, (t,)) for t in tiles]
        parts = []
        for choice in product((False, True), repeat=len(tiles)):
            part = domain
            for is_cut, cut_part in zip(choice, cut, strict=True):
                part = part.intersect(cut_part) if is_cut else part.subtract(cut_part)
            parts.append(Part(part, True))
    else:
        partial = _cut(program, domain, iterators, tiles)
        others = tuple(t for t in tiles if t[0] != apart)
        parts = [Part(domain.subtract(partial).coalesce(), True)]
        if others and len(others) < len(tiles):
            rest = _cut(program, domain, iterators, others)
            parts += [Part(partial.subtract(rest).coalesce(), False, apart), Part(rest.coalesce(), False)]
        else:
            parts.append(Part(partial.coalesce(), False))
    return [p for p in parts if not p.domain.is_empty()]


def _cut(
    program: TypedProgram, domain: isl.Set, iterators: tuple[str, ...], tiles: tuple[tuple[str, int, int], ...]
) -> isl.Set:
    """Return the instances whose tile, along `tiles` together, reaches outside the domain."""
    sizes = {i: (s, o) for i, s, o in tiles}
    others = [f"{i}_" if i in sizes else i for i in iterators]
    near = []
    for i, (size, origin) in sizes.items():
        near.append(f"floor(({i}_ - {origin})/{size}) = floor(({i} - {origin})/{size})")
    name = domain.get_tuple_name() if domain.has_tuple_name() else ""
    mates = read_map(
        f"{parameters(program)}{{ {name}[{', '.join(iterators)}] -> {name}[{', '.join(others)}] : {' and '.join(near)} }}"
    )
    outside = mates.intersect_domain(domain).intersect_range(domain.complement())
    return outside.domain()
