"""Tiles of iteration domains as relations between instances."""

from __future__ import annotations

from polyker.ir.typed import TypedProgram
from polyker.poly.isl import Map, Set, dim, int_val, read_map, read_set
from polyker.poly.scop import parameters

# (iterator, size, origin): the tile of x is floor((x - origin) / size).
Tiling = tuple[tuple[str, int, int], ...]


def mates(program: TypedProgram, name: str, iterators: tuple[str, ...], tiles: Tiling) -> Map:
    """Return the relation of instances `name[iterators]` that differ in their places within a tile only."""
    sizes = {i: (size, origin) for i, size, origin in tiles if size > 1}
    others = [f"{i}_" if i in sizes else i for i in iterators]
    near = [f"floor(({i}_ - {o})/{s}) = floor(({i} - {o})/{s})" for i, (s, o) in sizes.items()]
    pair = f"{name}[{', '.join(iterators)}] -> {name}[{', '.join(others)}]"
    return read_map(f"{parameters(program)}{{ {pair} : {' and '.join(near) or '1 = 1'} }}")


def of_vectors(tiles: Tiling, grain: tuple[str, int] | None) -> Tiling:
    """Return tiles of one vector in place of those with several, `grain` being (iterator, lanes of a vector)."""
    vector, lanes = grain or (None, 1)
    return tuple((i, lanes if i == vector else size, origin) for i, size, origin in tiles)


def uncut(points: Set, dimension: int, size: int, origin: int) -> Set:
    """Return the space about a bounded set, without the tiles along a dimension that an end of the set's box cuts.

    >>> from polyker.poly.isl import read_set
    >>> uncut(read_set("{ [i, j] : 2 <= i < 11 and 0 <= j < i }"), 0, 4, 0)
    Set("{ [i, j] : 4 <= i <= 7 }")
    """
    least, greatest = (v.to_python() for v in (points.dim_min_val(dimension), points.dim_max_val(dimension)))
    first = origin - (origin - least) // size * size
    last = origin + (greatest + 1 - origin) // size * size - 1
    whole = points.universe(points.get_space()).lower_bound_val(dim.set, dimension, int_val(first))
    return whole.upper_bound_val(dim.set, dimension, int_val(last))


def by_vectors(
    program: TypedProgram, points: Set, iterators: tuple[str, ...], tiles: Tiling, grain: tuple[str, int]
) -> list[Set]:
    """Return the parts of a set by the vectors that their tiles have, `grain` being (iterator, lanes of a vector): the set
    where tiles do not extend along it."""
    vector, lanes = grain
    along = next((t for t in tiles if t[0] == vector), None)
    if along is None:
        return [points.coalesce()]
    _, size, origin = along
    name = points.get_tuple_name() if points.has_tuple_name() else ""
    near = mates(program, name, iterators, tiles)
    parts = [points.coalesce()]
    for n in range(size // lanes):
        place = f"floor((({vector} - {origin}) mod {size})/{lanes}) = {n}"
        here = read_set(f"{parameters(program)}{{ {name}[{', '.join(iterators)}] : {place} }}")
        having = near.intersect_range(points.intersect(here)).domain().coalesce()
        parts = [q for p in parts for q in (p.intersect(having), p.subtract(having)) if not q.is_empty()]
    return [p.coalesce() for p in parts]
