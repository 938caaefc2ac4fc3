"""Which sets are boxes, told by their points."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyker.poly.boxes import corners, free_range
from polyker.poly.isl import read_set


@given(st.sets(st.tuples(st.integers(0, 2), st.integers(-1, 1)), max_size=9))
def test_a_set_is_a_box_where_its_points_are_all_those_between_its_corners(points):
    text = " or ".join(f"(i = {i} and j = {j})" for i, j in sorted(points)) or "1 = 0"
    found = read_set(f"{{ S0[i, j] : {text} }}")
    ranges = [(min(c), max(c)) for c in zip(*points, strict=True)]
    filled = set(product(*(range(lo, hi + 1) for lo, hi in ranges))) if points else None
    assert corners(found) == (tuple(ranges) if filled == points else None)
    for d, (lo, hi) in enumerate(ranges):
        lines = {(*p[:d], v, *p[d + 1 :]) for p in points for v in range(lo, hi + 1)}
        assert free_range(found, d) == ((lo, hi) if lines == points else None)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("{ [i] : 0 <= i < 9 and i mod 2 = 0 }", None),
        ("[n] -> { [i] : 0 <= i < n }", None),
        ("[n] -> { [i] : 0 <= i < 4 and n > 0 }", ((0, 3),)),
        ("{ [i, j] : 0 <= i < 4 and i <= j < i + 2 }", None),
        ("{ [i] : i >= 0 }", None),
        ("{ S0[] }", ()),
    ],
)
def test_ranges_with_gaps_or_of_other_sizes_are_no_boxes(text, found):
    assert corners(read_set(text)) == found
