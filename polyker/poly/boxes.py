"""Boxes: sets of instances whose dimensions run over fixed ranges, each whatever the others are."""

from __future__ import annotations

from polyker.poly.isl import Set, dim, read_set


def ends(points: Set, dimension: int) -> tuple[int, int] | None:
    """Return the least and the greatest value of a dimension; None where there is none, or sizes decide.

    >>> from polyker.poly.isl import read_set
    >>> ends(read_set("{ [i, j] : 0 <= i < 4 and 1 <= j < 9 }"), 1)
    (1, 8)
    """
    low, high = points.dim_min_val(dimension), points.dim_max_val(dimension)
    return (low.get_num_si(), high.get_num_si()) if low.is_int() and high.is_int() else None


def free_range(points: Set, dimension: int) -> tuple[int, int] | None:
    """Return (least, greatest) of a dimension that takes all values between whatever the others are, None for any other.

    >>> from polyker.poly.isl import read_set
    >>> free_range(read_set("{ [i, j] : 0 <= i < 4 and 1 <= j < 9 and i + j > 1 }"), 1) is None
    True
    """
    found = ends(points, dimension)
    if found is None or points.is_box():
        return found
    least, greatest = found
    lines = along(points, dimension, read_set(f"{{ [x] : {least} <= x <= {greatest} }}"))
    return (least, greatest) if lines.is_subset(points) else None


def is_free(points: Set, dimension: int) -> bool:
    """Whether a dimension takes the same values whatever the others are; of symbolic sizes, too.

    >>> from polyker.poly.isl import read_set
    >>> is_free(read_set("[n, m] -> { [i, j] : 0 <= i < n and 0 <= j < m }"), 1)
    True
    """
    return bool(along(points, dimension, values_along(points, dimension)).is_subset(points))


def values_along(points: Set, dimension: int) -> Set:
    """Return the values of a dimension.

    >>> from polyker.poly.isl import read_set
    >>> values_along(read_set("[n] -> { [i, j] : 0 <= i < n and 0 <= j < 4 }"), 0)
    Set("[n] -> { [i] : 0 <= i < n }")
    """
    count = points.dim(dim.set)
    alone = points.project_out(dim.set, dimension + 1, count - dimension - 1).project_out(dim.set, 0, dimension)
    return alone.reset_tuple_id()


def interval_along(points: Set, dimension: int) -> Set:
    """Return an interval around the values of a dimension: the least where its ends are linear."""
    values = values_along(points, dimension)
    interval = Set.from_basic_set(values.simple_hull().remove_divs())
    # A hull is one of fractions; the least integer may be more.
    low, high = values.dim_min_val(0), values.dim_max_val(0)
    interval = interval.lower_bound_val(dim.set, 0, low) if low.is_int() else interval
    return interval.upper_bound_val(dim.set, 0, high) if high.is_int() else interval


def across(interval: Set, dimension: int, count: int) -> Set:
    """Return the space of so many dimensions where one of them has the values of an interval."""
    return interval.insert_dims(dim.set, 0, dimension).insert_dims(dim.set, dimension + 1, count - dimension - 1)


def is_box(points: Set) -> bool:
    """Whether each dimension takes the same values whatever the others are, without gaps; of symbolic sizes, too.

    >>> from polyker.poly.isl import read_set
    >>> is_box(read_set("[n] -> { [i, j] : 0 <= i < n and 0 <= j < 4 }"))
    True
    """
    return bool(box_around(points).is_subset(points))


def box_around(points: Set) -> Set:
    """Return a box around a set whose ends sizes may decide: the least where they are linear.

    >>> from polyker.poly.isl import read_set
    >>> box_around(read_set("[n] -> { [i, j] : 0 <= i < n and 0 <= j <= i }"))
    Set("[n] -> { [i, i1] : 0 <= i < n and 0 <= i1 < n }")
    """
    box, count = points.universe(points.get_space()).reset_tuple_id(), points.dim(dim.set)
    for d in range(count):
        box = box.intersect(across(interval_along(points, d), d, count))
    return box.set_tuple_name(points.get_tuple_name()) if points.has_tuple_name() else box


def in_one_piece(points: Set) -> Set:
    """Return a set that is a box, but a union of several pieces, as that box; any other set as it is.

    >>> from polyker.poly.isl import read_set
    >>> in_one_piece(read_set("[n] -> { [i] : 0 <= i < n and (5*floor(i/5) <= n - 5 or 5*floor(n/5) <= i) }"))
    Set("[n] -> { [i] : 0 <= i < n }")
    """
    if points.n_basic_set() < 2:
        return points
    box = box_around(points)
    return box if box.is_subset(points) else points


def along(points: Set, dimension: int, interval: Set) -> Set:
    """Return the points with each value of an interval along a dimension, whatever values they had there.

    >>> from polyker.poly.isl import read_set
    >>> along(read_set("{ S0[i, j] : 0 <= i < 4 and j = i }"), 1, read_set("{ [x] : 0 <= x < 3 }"))
    Set("{ S0[i, i1] : 0 <= i <= 3 and 0 <= i1 <= 2 }")
    """
    count, name = points.dim(dim.set), points.get_tuple_name()
    lines = points.project_out(dim.set, dimension, 1).insert_dims(dim.set, dimension, 1)
    box = across(interval, dimension, count)
    return lines.reset_tuple_id().intersect(box).set_tuple_name(name) if name else lines.intersect(box)


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
