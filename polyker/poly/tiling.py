"""Tiles of iteration domains as relations between instances."""

from __future__ import annotations

from polyker.ir.typed import TypedProgram
from polyker.poly.boxes import across, ends, interval_along
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
    """Return the space about a set, without the tiles along a dimension that an end of the set's box cuts.

    >>> from polyker.poly.isl import read_set
    >>> uncut(read_set("{ [i, j] : 2 <= i < 11 and 0 <= j < i }"), 0, 4, 0)
    Set("{ [i, j] : 4 <= i <= 7 }")
    >>> uncut(read_set("[n] -> { [i, j] : 2 <= i < n and 0 <= j < i }"), 0, 4, 0).is_equal(
    ...     read_set("[n] -> { [i, j] : 4 <= i and 4*floor(i/4) + 3 < n }"))
    True
    """
    space = points.universe(points.get_space())
    found = ends(points, dimension)
    if found is not None:
        least, greatest = found
        first = origin - (origin - least) // size * size
        last = origin + (greatest + 1 - origin) // size * size - 1
        whole = space.lower_bound_val(dim.set, dimension, int_val(first))
        return whole.upper_bound_val(dim.set, dimension, int_val(last))
    values, named = interval_along(points, dimension), points.has_tuple_name()
    inside = _whole_tiles(values, size, origin)
    space = space.reset_tuple_id().intersect(across(inside, dimension, points.dim(dim.set)))
    return space.set_tuple_name(points.get_tuple_name()) if named else space


def _whole_tiles(values: Set, size: int, origin: int) -> Set:
    """Return the values of the tiles that lie within an interval."""
    low, high = values.dim_min(0), values.dim_max(0)
    if low.n_piece() == high.n_piece() == 1:
        # Floors of sizes alone: what is left of a tile's own place in a set makes its loops hard to find.
        first = low.add_constant_val(int_val(size - 1 - origin)).scale_down_val(int_val(size)).floor()
        last = high.add_constant_val(int_val(1 - origin)).scale_down_val(int_val(size)).floor()
        ends = [Set.from_pw_aff(e.scale_val(int_val(size)).add_constant_val(int_val(origin))) for e in (first, last)]
        return (
            ends[0]
            .apply(read_map("{ [e] -> [x] : x >= e }"))
            .intersect(ends[1].apply(read_map("{ [e] -> [x] : x < e }")))
        )
    start = f"{origin} + {size}*floor((x - {origin})/{size})"
    whole = values
    for end in (start, f"{start} + {size - 1}"):
        whole = whole.intersect(read_map(f"{{ [x] -> [{end}] }}").intersect_range(values).domain())
    return whole


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
