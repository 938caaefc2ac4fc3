"""Subscripts whose indices all have ranges: in bounds everywhere by proof, or checked at the call."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from polyker.errors.base import ShapeError, Span, advised, failure
from polyker.errors.shapes import OUT_OF_BOUNDS, RANGES_DISAGREE
from polyker.poly import isl
from polyker.poly.affine import Affine, constant
from polyker.poly.binding.bounds import IndexBound, scope_text
from polyker.poly.binding.context import BindingContext
from polyker.poly.binding.declaring import from_the_end
from polyker.poly.binding.subjects import AffineAccess, source_text

Shape = tuple[Affine, ...]


class Stated(Struct, frozen=True, eq=False):
    """A bare subscript, which gives its index the whole extent of a dimension."""

    access: AffineAccess
    dimension: int
    shape: Shape

    @property
    def extent(self) -> Affine:
        """The extent that the index is given."""
        return self.shape[self.dimension]


def require_equal(context: BindingContext, index: str, one: Stated, other: Stated) -> None:
    """Make sure that two bare subscripts give their index the same extent: proved, or checked at the call."""
    if one.extent == other.extent:
        return
    shown = (f"{s.access.tensor} has shape [{', '.join(map(context.show, s.shape))}]" for s in (one, other))
    label, first, second = context.label(index), context.show(one.extent), context.show(other.extent)
    values = {"index": label, "first": first, "access": one.access.text, "second": second, "other": other.access.text}
    values["shapes"] = f" ({', '.join(dict.fromkeys(shown))})"
    hint = _of_one(label, (one.access, first), (other.access, second))
    span = other.access.place(other.dimension)
    if hint is not None and (other.extent - one.extent).is_constant:
        raise failure(RANGES_DISAGREE, span=span, hint=hint, sizes="", **values)
    context.require(("eq", other.extent - one.extent), RANGES_DISAGREE, span, **values)


def _of_one(index: str, *found: tuple[AffineAccess, str]) -> str | None:
    """Return how an access is written whose extent of 1 is meant for all values of an index, None where none is 1.

    Of a dimension that `...` stands for, which has no name, what its extents have to be.
    """
    access = next((a for a, extent in found if extent == "1"), None)
    if index.startswith("..."):
        return "of the dimensions that `...` stands for each pair is equal, or one of it is 1"
    if access is None:
        return None
    written = re.sub(rf"\b{re.escape(index)}\b", "0", access.text)
    return f"an extent of 1 is not stretched: write `{written}`"


def check_subscript(
    context: BindingContext,
    bounds: Mapping[str, IndexBound],
    access: AffineAccess,
    d: int,
    form: Affine,
    extent: Affine,
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
    try:
        context.require_none(bad, domain, OUT_OF_BOUNDS, span, **values)
    except ShapeError as error:
        if not form.is_constant or form.const >= 0:
            raise
        raise advised(error, _from_the_end(context, span)) from None


def _from_the_end(context: BindingContext, span: Span | None) -> str:
    """Return what to write for an element counted from the end."""
    text = from_the_end(context.program, span)
    return "subscripts count from 0, never from the end" + (f": write `{text}`" if text else "")


def _inside_by_corners(context: BindingContext, bounds: Mapping[str, IndexBound], form: Affine, extent: Affine) -> bool:
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


def _sample(context: BindingContext, bad: Any, form: Affine) -> str:
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
