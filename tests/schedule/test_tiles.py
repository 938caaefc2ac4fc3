"""The parts of a domain by the shape of its tiles: they are apart, cover it, and say rightly whose tiles are all alike."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest

import polyker as pk
from polyker.poly.isl import read_set
from polyker.schedule.nests.tiles import Separation, tile_parts
from tests.artifacts import generated
from tests.schedule.support import case

BOX = "0 <= i < 10 and 2 <= j < 13"
PROGRAM = case("O[i] = X[i]", X="f32[4]").flat


def points(domain) -> set[tuple[int, int]]:  # type: ignore[no-untyped-def]
    found: list[tuple[int, int]] = []
    domain.foreach_point(lambda p: found.append(tuple(p.get_coordinate_val(3, d).to_python() for d in range(2))))
    return set(found)


@pytest.mark.parametrize(
    ("domain", "count"),
    [
        (BOX, 4),
        ("0 <= i < 8 and 2 <= j < 10", 1),  # whole tiles alone
        (f"{BOX} and j <= i + 4", 2),
        (f"{BOX} and i mod 2 = 0", 1),  # none is full
        (f"{BOX} and (i < 4 or j < 6)", 3),  # whole tiles of a box
    ],
)
def test_parts_cover_a_domain_and_know_whether_their_tiles_are_of_one_shape(domain: str, count: int) -> None:
    whole = read_set(f"{{ S0[i, j] : {domain} }}")
    parts = tile_parts(PROGRAM, whole, ("i", "j"), (("i", 4, 0), ("j", 4, 2)))
    assert len(parts) == count
    seen = [points(p.domain) for p in parts]
    assert sum(map(len, seen)) == len(set().union(*seen))
    assert set().union(*seen) == points(whole)
    for part, mine in zip(parts, seen, strict=True):
        shapes: dict[tuple[int, int], set[tuple[int, int]]] = defaultdict(set)
        for i, j in mine:
            shapes[i // 4, (j - 2) // 4].add((i % 4, (j - 2) % 4))
        alike = len({frozenset(s) for s in shapes.values()}) == 1
        assert alike or not part.is_own_shape
        if domain == BOX:
            assert part.is_own_shape


@pytest.mark.parametrize("border", ["j < i", "j <= i + 4", "i + j < 20", "2*j <= i + 3", "j < i or 3*i < j"])
@pytest.mark.parametrize("parted", [{}, {"along": "i"}, {"along": "j"}, {"one_by_one": True}])
def test_each_instance_of_a_slanted_domain_is_in_one_part(border: str, parted: dict[str, Any]) -> None:
    # A corner of a tile may lie outside where no row of it along one iterator ends in it.
    whole = read_set(f"{{ S0[i, j] : 1 <= i < 19 and 0 <= j < 21 and ({border}) }}")
    parts = tile_parts(PROGRAM, whole, ("i", "j"), (("i", 4, 1), ("j", 8, 0)), Separation(**parted))
    seen = [points(p.domain) for p in parts]
    assert len(parts) > 1
    assert sum(map(len, seen)) == len(points(whole))
    assert set().union(*seen) == points(whole)


def test_pieces_of_a_symbolic_domain_have_no_tiles_of_their_own() -> None:
    """Where an extent is the larger of two sizes each piece would be cut in its own way."""
    found = case("Q[i,j] = M[i,j]\nQ[b,d] = E[b,d]\nO[n,e] = Q[e,n]", M="f32[A,B]", E="f32[C,D]").flat
    statement = list(found.statements())[-1]
    tiles = tuple((i, 8, 0) for i in statement.iterators)
    parts = tile_parts(found, read_set(statement.domain), statement.iterators, tiles)
    assert [p.is_own_shape for p in parts] == [False]


@pytest.mark.parametrize("parted", [{}, {"along": "i1"}, {"one_by_one": True}])
def test_tiles_that_a_known_extent_cuts_are_alike_where_another_extent_is_a_size(parted: dict[str, Any]) -> None:
    found = case("O[i,j,k] = X[i,j,k]", X="f32[10,n,9]").flat
    statement = list(found.statements())[-1]
    parts = tile_parts(
        found,
        read_set(statement.domain),
        statement.iterators,
        (("i0", 4, 0), ("i1", 4, 0), ("i2", 3, 0)),
        Separation(**parted),
    )
    assert [p.is_own_shape for p in parts] == [True, True, False]
    for n in (0, 3, 4, 10):
        sizes = read_set(f"[n0] -> {{ : n0 = {n} }}")
        seen = [p.domain.intersect_params(sizes) for p in parts]
        elements = [d.count_val().to_python() for d in seen]
        assert elements == [8 * (n // 4 * 4) * 9, 2 * (n // 4 * 4) * 9, 10 * (n % 4) * 9]
        assert all(a.is_disjoint(b) for x, a in enumerate(seen) for b in seen[:x])


def test_extents_that_are_all_known_have_tiles_of_their_own_whatever_the_terms() -> None:
    found = case("C[i,j] += A[i,k] * B[k,j]", A="f32[10,n]", B="f32[n,10]").flat
    domain = read_set("[n0] -> { S0[i, j] : n0 > 0 and 0 <= i < 10 and 0 <= j < 10 }")
    parts = tile_parts(found, domain, ("i", "j"), (("i", 4, 0), ("j", 4, 0)), Separation(one_by_one=True))
    assert [p.is_own_shape for p in parts] == [True] * 4


def test_a_tile_that_an_edge_cuts_is_not_mixed_with_the_whole_ones() -> None:
    # All filters fit in one tile: of that loop's one iteration isl makes no loop, and the pieces of the columns lie in it.
    types = pk.f32[32, 120, 120], pk.f32[32, 32, 3, 3]
    kernel = pk.op("O[f,h,w] += X[c,h+r,w+s] * K[f,c,r,s]").compile(*types, target="cpu:x86-64-v4")
    assert "vectors of 16 along i0, 2 at a time x 14 i2" in generated(kernel, "schedule")
    loops = generated(kernel, "loops")
    assert "else:" not in loops
    whole, cut = (f"t4_{scope}.own[0" if "parallel" in loops else f"t4_{scope}[0" for scope in ("p1", "p2"))
    assert loops.count(whole) == loops.count(cut) == 4
    assert loops.rindex(whole) < loops.index(cut)


@pytest.mark.parametrize("columns, vectors", [(100, 7), (75, 5), (64, 4)])
def test_a_short_row_is_read_in_one_piece(columns: int, vectors: int) -> None:
    kernel = pk.op("C[i] += A[k,i] * B[k]").compile(pk.f32[10000, columns], pk.f32[10000], target="cpu:x86-64-v4")
    assert f"vectors of 16 along i0, {vectors} at a time" in generated(kernel, "schedule")
