"""Tiles of iteration domains as relations between instances."""

from __future__ import annotations

from polyker.ir.typed import TypedProgram
from polyker.poly.isl import Map, read_map
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
