"""Sets whose bounds depend on sizes: these bounds as expressions, and what they are for the sizes that are expected."""

from __future__ import annotations

from collections.abc import Iterable

import islpy as isl

from polyker.errors import InternalError
from polyker.ir.dtypes import i64
from polyker.ir.expr import Call, Expr
from polyker.ir.quasi_affine import add, lit, subtract
from polyker.ir.typed import TypedProgram
from polyker.poly.affine import expr_of
from polyker.poly.forms import form_of_aff
from polyker.poly.isl import read_set

# What a size is taken for of which no value is expected (chosen).
ASSUMED_SIZE = 256


def expected(program: TypedProgram, points: isl.Set) -> isl.Set:
    """Return a set with the expected values for the sizes: for what is worth doing, never for what is right."""
    likely = dict(program.likely)
    for name, _ in program.sizes:
        place = points.find_dim_by_name(isl.dim_type.param, name)
        if place >= 0:
            points = points.fix_val(isl.dim_type.param, place, likely.get(name, ASSUMED_SIZE))
            points = points.project_out(isl.dim_type.param, place, 1)  # a size that is known is none to count by
    return points


def bounds_of(domain: isl.Set, dimension: int, program: TypedProgram) -> tuple[Expr, Expr]:
    """Return expressions for the least and the greatest value of a dimension, valid wherever the set is not empty.

    Several pieces give their minimum or maximum: a bound that may be wider than the set, never narrower. An empty set gives
    0 and -1.
    """
    inside = domain.intersect_params(read_set(program.context))
    if inside.is_empty():
        return lit(0), lit(-1)
    low, high = inside.dim_min(dimension), inside.dim_max(dimension)
    return _combined(low, "minimum"), _combined(high, "maximum")


def box_of(program: TypedProgram, points: isl.Set, dimensions: range) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
    """Return the least values of dimensions of a set, and how many values there are up to the greatest."""
    bounds = [bounds_of(points, d, program) for d in dimensions]
    return tuple(low for low, _ in bounds), tuple(add(subtract(high, low), lit(1)) for low, high in bounds)


def from_least(places: Iterable[Expr], lows: Iterable[Expr]) -> tuple[Expr, ...]:
    """Return places in a box as they are counted from its least ones."""
    return tuple(subtract(place, low) for place, low in zip(places, lows, strict=True))


def _combined(bound: isl.PwAff, op: str) -> Expr:
    forms: list[Expr] = []
    for _, piece in bound.coalesce().get_pieces():
        form = form_of_aff(piece)
        if form is None:
            raise InternalError("a bound of an inline reduction has no quasi-affine form")
        expr = expr_of(form)
        if expr not in forms:
            forms.append(expr)
    return forms[0] if len(forms) == 1 else Call(op, tuple(forms), i64)
