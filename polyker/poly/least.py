"""The least value of an iterator as a function of those around it."""

from __future__ import annotations

import islpy as isl

from polyker.ir.expr import Expr
from polyker.ir.quasi_affine import indices_of
from polyker.poly.affine import expr_of
from polyker.poly.forms import form_of_aff
from polyker.poly.isl import Set, dim


def least_value(points: Set, names: tuple[str, ...], place: int, given: int) -> Expr | None:
    """Return the least value of dimension `place` for each value of the first `given` ones; None where it is not one affine
    function of them. `names`: those of the dimensions.

    >>> from polyker.ir.quasi_affine import print_affine
    >>> from polyker.poly.isl import read_set
    >>> triangle = read_set("{ S0[i0, i1, i2] : 0 <= i0 < 9 and i0 < i1 < 9 and i0 < i2 <= i1 }")
    >>> print_affine(least_value(triangle, ("i0", "i1", "i2"), 2, 1))
    '(i0 + 1)'
    """
    return _form(_values(points, names, place, given).dim_min(0))


def is_invariant(points: Set, names: tuple[str, ...], place: int) -> bool:
    """Return whether dimension `place` has the same least value and the same greatest one for all values of those before it."""
    values = _values(points, names, place, place)
    ends = (_form(values.dim_min(0)), _form(values.dim_max(0)))
    return all(end is not None and not indices_of(end) for end in ends)


def fixed_value(points: Set, names: tuple[str, ...], place: int, given: int) -> Expr | None:
    """Return the value that dimension `place` has for each value of the first `given` ones; None where it has several."""
    values = _values(points, names, place, given)
    least = values.dim_min(0)
    return _form(least) if least.is_equal(values.dim_max(0)) else None


def _values(points: Set, names: tuple[str, ...], place: int, given: int) -> Set:
    """Return the values of a dimension, the first `given` ones as parameters."""
    behind = points.dim(dim.set) - place - 1
    values = points.reset_tuple_id()
    values = values.project_out(dim.set, place + 1, behind) if behind else values
    values = values.project_out(dim.set, given, place - given) if place > given else values
    for d, name in enumerate(names[:given]):
        values = values.set_dim_name(dim.set, d, name)
    values = values.move_dims(dim.param, values.dim(dim.param), dim.set, 0, given) if given else values
    return values.coalesce()


def _form(value: isl.PwAff) -> Expr | None:
    value = value.coalesce()
    pieces = value.get_pieces()
    for _, piece in pieces:
        form = form_of_aff(piece)
        if form is not None and len(pieces) == 1:
            return expr_of(form)
        if form is not None and isl.PwAff.from_aff(piece).intersect_domain(value.domain()).is_equal(value):
            return expr_of(form)
    return None
