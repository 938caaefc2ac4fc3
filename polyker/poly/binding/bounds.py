"""The range of an index as constraints, and the points that statements and reductions run over by the ranges of theirs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from polyker.poly import isl
from polyker.poly.affine import Affine, Extremum, constant, extremum
from polyker.poly.binding.context import BindingContext
from polyker.poly.binding.subjects import IndexScope
from polyker.poly.forms import form_of_aff


class IndexBound(Struct, frozen=True, eq=False):
    """The range of an index: constraints as isl text over `names` and itself; an interval [lo, hi) where it is one.

    `explicit`: given by the text's `for` (or a time loop), not inferred.
    """

    constraints: tuple[str, ...]
    names: frozenset[str]
    lo: Affine | None
    hi: Affine | None
    explicit: bool

    def lengths(self) -> list[Affine]:
        """Return forms whose least value is the number of values of an interval."""
        assert self.lo is not None
        assert self.hi is not None
        return [hi - lo for lo in _parts("maximum", self.lo) for hi in _parts("minimum", self.hi)]


def interval(index: str, lo: Affine, hi: Affine, explicit: bool) -> IndexBound:
    """Return the range lo <= index < hi."""
    least = lo.const if lo.is_constant else None
    above = [f"{form.text} <= {index}" for form in _parts("maximum", lo)]
    return IndexBound((*above, *_below(index, hi, least)), (lo.indices | hi.indices) - {index}, lo, hi, explicit)


def _parts(op: str, form: Affine) -> tuple[Affine, ...]:
    """Return the forms that a form is the least (op minimum) or the greatest (maximum) of."""
    match form.terms:
        case ((Extremum(op=found, forms=forms), 1),) if found == op and form.const == 0:
            return tuple(part for f in forms for part in _parts(op, f))
        case _:
            return (form,)


def _below(index: str, hi: Affine, least: int | None) -> list[str]:
    """Return `index < hi` as a conjunction without extrema where there is one; `least` is the index's lower bound."""
    conditions = []
    for form in _parts("minimum", hi):
        greatest = _parts("maximum", form)
        kept = [f for f in greatest if not (f.is_constant and least is not None and f.const <= least)]
        if len(greatest) > len(kept) == 1:
            conditions += _below(index, kept[0], least)
        else:
            conditions.append(f"{index} < {form.text}")
    return conditions


def is_bounded(points: Any) -> bool:
    """Whether a set of one dimension has a least and a greatest value whatever the sizes."""
    # Divisions aside: isl takes `i >= 2 * floor(i / 2)` for a bound of i.
    plain = points.remove_divs()
    return bool(plain.dim_has_lower_bound(isl.dim.set, 0) and plain.dim_has_upper_bound(isl.dim.set, 0))


def meet(context: BindingContext, index: str, bounds: Sequence[IndexBound]) -> IndexBound:
    """Return the intersection of several bounds of an index."""
    if len(bounds) == 1:
        return bounds[0]
    ends = [(b.lo, b.hi) for b in bounds if b.lo is not None and b.hi is not None]
    if len(ends) == len(bounds):
        lo = _decisive(context, "maximum", [lo for lo, _ in ends])
        return interval(index, lo, _decisive(context, "minimum", [hi for _, hi in ends]), False)
    constraints = tuple(dict.fromkeys(c for b in bounds for c in b.constraints))
    both = isl.read_set(isl.set_text(context.names, (index,), list(constraints)))
    return simplest(context, index, both.intersect_params(context.set), constraints)


def _decisive(context: BindingContext, op: str, ends: list[Affine]) -> Affine:
    """Return the least (op minimum) or greatest (maximum) of several ends, without those that others always decide."""
    sign = 1 if op == "minimum" else -1
    kept: list[Affine] = []
    for end in dict.fromkeys(part for form in ends for part in _parts(op, form)):
        if not any(context.proves(("ge", (end - other) * sign)) for other in kept):
            kept = [other for other in kept if not context.proves(("ge", (other - end) * sign))]
            kept.append(end)
    return extremum(op, kept)


def simplest(context: BindingContext, index: str, points: Any, constraints: tuple[str, ...]) -> IndexBound:
    """Return the bound of a set of one dimension with these constraints, as an interval where it is one."""
    if points.is_empty():
        return interval(index, constant(0), constant(0), False)
    ends = [end.coalesce().get_pieces() for end in (points.dim_min(0), points.dim_max(0))]
    lo, hi = (form_of_aff(pieces[0][1]) if len(pieces) == 1 else None for pieces in ends)
    if lo is not None and hi is not None:
        whole = interval(index, lo, hi + 1, False)
        if points.is_equal(
            isl.read_set(isl.set_text(context.names, (index,), list(whole.constraints))).intersect_params(context.set)
        ):
            return whole
    return IndexBound(constraints, frozenset(), None, None, False)


def domain_conditions(bounds: Mapping[str, IndexBound], scope: IndexScope) -> list[str]:
    """Return the constraints on all indices visible in a scope: ranges and `where` conditions."""
    conditions = [c for i in scope.visible() for c in bounds[i].constraints]
    return conditions + [c.text for s in scope.chain() for c in s.conditions]


def scope_text(
    context: BindingContext, bounds: Mapping[str, IndexBound], scope: IndexScope, tuple_name: str = ""
) -> str:
    """Return the isl text of the points that a scope runs over, those around it included; its parts have no point in common."""
    text = isl.set_text(context.names, scope.visible(), domain_conditions(bounds, scope), tuple_name)
    if not any(c.is_union for s in scope.chain() for c in s.conditions):
        return text
    return str(isl.read_set(text).coalesce().make_disjoint().coalesce())
