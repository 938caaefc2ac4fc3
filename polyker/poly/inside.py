"""Subscripts whose indices all have ranges: in bounds everywhere by proof, or checked at the call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from polyker.errors.shapes import OUT_OF_BOUNDS, RANGES_DISAGREE
from polyker.poly import isl
from polyker.poly.affine import Affine, constant
from polyker.poly.bounds import Bound, scope_text
from polyker.poly.context import Context
from polyker.poly.subjects import Access, source_text


def check_late(
    context: Context, bounds: Mapping[str, Bound], access: Access, d: int, form: Affine, extent: Affine
) -> None:
    """As `check_subscript`, for an extent found only after the ranges: a bare subscript has to agree with it."""
    bound = bounds.get(form.variable or "")
    if bound is None or bound.explicit:
        check_subscript(context, bounds, access, d, form, extent)
        return
    label = context.label(form.variable or "")
    values = {"index": label, "first": "other", "access": "the rest of the statement", "other": access.text}
    values |= {"second": context.show(extent), "shapes": ""}
    if bound.lo is not None and bound.hi is not None:
        values["first"] = context.show(bound.hi - bound.lo)
        context.require(("eq", bound.lo), RANGES_DISAGREE, access.span, **values)
        context.require(("eq", bound.hi - extent), RANGES_DISAGREE, access.span, **values)
        return
    index = form.variable
    assert index is not None
    found = isl.read_set(isl.set_text(context.names, (index,), list(bound.constraints)))
    whole = isl.read_set(isl.set_text(context.names, (index,), [f"0 <= {index} and {index} < {extent.text}"]))
    differ = found.subtract(whole).union(whole.subtract(found)).intersect_params(context.set)
    if not differ.is_empty():
        context.require_set(context.set.subtract(differ.params()), RANGES_DISAGREE, access.span, **values)


def check_subscript(
    context: Context, bounds: Mapping[str, Bound], access: Access, d: int, form: Affine, extent: Affine
) -> None:
    """Make sure that a subscript is in 0:extent everywhere: proved, or checked at the call.

    Raises:
        ShapeError: where it leaves the extent whatever the sizes.
    """
    plain = bounds.get(form.variable or "")
    if plain is not None and not plain.explicit and plain.hi == extent and plain.lo == constant(0):
        return
    if _inside_by_corners(context, bounds, form, extent):
        return
    names = context.names
    domain = isl.read_set(scope_text(context, bounds, access.scope))
    if names:
        domain = domain.intersect_params(context.set)
    outside = f"({form.text} < 0 or {form.text} >= {extent.text})"
    bad = domain.intersect(isl.read_set(isl.set_text(names, access.scope.visible(), [outside])))
    if bad.is_empty():
        return
    span = access.place(d)
    subscript = source_text(span) or context.show(form)
    values = {"access": access.text, "tensor": access.tensor, "subscript": subscript, "extent": context.show(extent)}
    if not names:
        values["extent"] += f", and is {_sample(context, bad, form)}"
    context.require_none(bad, domain, OUT_OF_BOUNDS, span, **values)


def _inside_by_corners(context: Context, bounds: Mapping[str, Bound], form: Affine, extent: Affine) -> bool:
    if not form.is_linear_in(form.indices):
        return False
    least = greatest = form
    for index in form.indices:
        bound = bounds[index]
        if bound.lo is None or bound.hi is None or bound.names:
            return False
        ends = (bound.lo, bound.hi - 1) if form.coefficient(index) > 0 else (bound.hi - 1, bound.lo)
        least, greatest = least.replace({index: ends[0]}), greatest.replace({index: ends[1]})
    return context.proves(("ge", least)) and context.proves(("ge", extent - 1 - greatest))


def _sample(context: Context, bad: Any, form: Affine) -> str:
    point = bad.lexmin().sample_point()
    visible = [bad.get_dim_name(isl.dim.set, k) for k in range(bad.dim(isl.dim.set))]
    at = {
        name: constant(point.get_coordinate_val(isl.dim.set, k).to_python())
        for k, name in enumerate(visible)
        if name is not None
    }
    used = sorted(form.indices)
    value = context.show(form.replace(at))
    return f"{value} at " + ", ".join(f"{context.label(i)} = {context.show(at[i])}" for i in used) if used else value
