"""The range of an index as constraints, and the points that statements and reductions run over by the ranges of theirs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from polyker.poly import isl
from polyker.poly.affine import Affine, Extremum, constant
from polyker.poly.context import Context
from polyker.poly.subjects import Scope


@dataclass(frozen=True, eq=False)
class Bound:
    """The range of an index: constraints as isl text over `names` and itself; an interval [lo, hi) where it is one.

    `explicit`: given by the text's `for` (or a time loop), not inferred.
    """

    constraints: tuple[str, ...]
    names: frozenset[str]
    lo: Affine | None
    hi: Affine | None
    explicit: bool


def interval(index: str, lo: Affine, hi: Affine, explicit: bool) -> Bound:
    """Return the range lo <= index < hi."""
    least = lo.const if lo.is_constant else None
    constraints = (f"{lo.text} <= {index}", *_below(index, hi, least))
    return Bound(constraints, (lo.indices | hi.indices) - {index}, lo, hi, explicit)


def _below(index: str, hi: Affine, least: int | None) -> list[str]:
    """Return `index < hi` as a conjunction without extrema where there is one; `least` is the index's lower bound."""
    match hi.terms:
        case ((Extremum(op="minimum", forms=forms), 1),) if hi.const == 0:
            return [c for form in forms for c in _below(index, form, least)]
        case ((Extremum(forms=forms), 1),) if hi.const == 0 and least is not None:
            kept = [f for f in forms if not (f.is_constant and f.const <= least)]
            if len(kept) == 1:
                return _below(index, kept[0], least)
    return [f"{index} < {hi.text}"]


def is_bounded(points: Any) -> bool:
    """Whether a set of one dimension has a least and a greatest value whatever the sizes."""
    # Divisions aside: isl takes `i >= 2 * floor(i / 2)` for a bound of i.
    plain = points.remove_divs()
    return bool(plain.dim_has_lower_bound(isl.dim.set, 0) and plain.dim_has_upper_bound(isl.dim.set, 0))


def tighter(a: Affine | None, b: Affine | None, choose: object) -> Affine | None:
    """Return the larger or (by `choose`, max or min) the smaller of two ends, None where it depends on sizes."""
    if a is None or b is None:
        return None
    if a == b:
        return a
    difference = a - b
    if not difference.is_constant:
        return None
    return (a if difference.const > 0 else b) if choose is max else (a if difference.const < 0 else b)


def simplest(index: str, good: Any, text: str) -> Bound:
    """Return the bound of a set of one dimension, as an interval where it is a constant one."""
    if good.dim(isl.dim.param) == 0 and not good.is_empty():
        lo, hi = good.dim_min_val(0).to_python(), good.dim_max_val(0).to_python()
        if good.is_equal(isl.read_set(f"{{ [{index}] : {lo} <= {index} <= {hi} }}")):
            return interval(index, constant(lo), constant(hi + 1), False)
    return Bound((text,), frozenset(), None, None, False)


def domain_conditions(bounds: Mapping[str, Bound], scope: Scope) -> list[str]:
    """Return the constraints on all indices visible in a scope: ranges and `where` conditions."""
    conditions = [c for i in scope.visible() for c in bounds[i].constraints]
    return conditions + [c.text for s in scope.chain() for c in s.conditions]


def scope_text(context: Context, bounds: Mapping[str, Bound], scope: Scope, tuple_name: str = "") -> str:
    """Return the isl text of the points that a scope runs over, those around it included; its parts have no point in common."""
    text = isl.set_text(context.names, scope.visible(), domain_conditions(bounds, scope), tuple_name)
    if not any(c.is_union for s in scope.chain() for c in s.conditions):
        return text
    return str(isl.read_set(text).coalesce().make_disjoint().coalesce())
