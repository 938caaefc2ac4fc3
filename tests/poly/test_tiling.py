"""Parts of sets by the vectors of their tiles."""

from __future__ import annotations

import polyker as pk
from polyker.poly.isl import read_set
from polyker.poly.tiling import by_vectors


def test_tiles_that_do_not_extend_along_the_vector_are_one_part() -> None:
    program = pk.op("O[i] = X[i]").program
    points = read_set("{ [i, j] : 0 <= i < 9 and 0 <= j < 20 }")
    assert by_vectors(program, points, ("i", "j"), (("i", 4, 0),), ("j", 8)) == [points]  # type: ignore[arg-type]
