"""Boxes: sets of instances whose dimensions run over fixed ranges, each whatever the others are."""

from __future__ import annotations

from polyker.poly.isl import Set, dim


def free_range(points: Set, dimension: int) -> tuple[int, int] | None:
    """Return (least, greatest) of a dimension that takes all values between whatever the others are, None for any other.

    >>> from polyker.poly.isl import read_set
    >>> free_range(read_set("{ [i, j] : 0 <= i < 4 and 1 <= j < 9 and i + j > 1 }"), 1) is None
    True
    """
    low, high = points.dim_min_val(dimension), points.dim_max_val(dimension)
    if not low.is_int() or not high.is_int():
        return None
    lines = points.project_out(dim.set, dimension, 1).insert_dims(dim.set, dimension, 1)
    lines = lines.lower_bound_val(dim.set, dimension, low).upper_bound_val(dim.set, dimension, high)
    whole = lines.reset_tuple_id().is_subset(points.reset_tuple_id())
    return (low.get_num_si(), high.get_num_si()) if whole else None


def corners(points: Set) -> tuple[tuple[int, int], ...] | None:
    """Return (least, greatest) of each dimension of a box with fixed corners; None for any other set, and an empty one.

    >>> from polyker.poly.isl import read_set
    >>> corners(read_set("{ S0[i, j] : 0 <= i < 4 and 1 <= j < 9 }"))
    ((0, 3), (1, 8))
    """
    if points.is_empty():
        return None
    found: list[tuple[int, int]] = []
    for dimension in range(points.dim(dim.set)):
        here = free_range(points, dimension)
        if here is None:
            return None
        found.append(here)
    return tuple(found)
