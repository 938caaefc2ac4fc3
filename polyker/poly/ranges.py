"""Index ranges: what bare subscripts say, then rounds of bounds, then the check of all other subscripts.

The rules are those of the notation. A bare subscript gives its index the extent's range and all bare ones must agree.
Then, in rounds, a subscript with one open index bounds it to the values for which every admitted value of the other
indices is in bounds; the bounds of one round intersect. A subscript with no open index is checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from polyker.errors.shapes import EMPTY_NEIGHBOUR, EMPTY_PAD, NO_RANGE, OUT_OF_BOUNDS, RANGES_DISAGREE
from polyker.poly import isl
from polyker.poly.affine import Affine, Condition, Extremum, condition_text, constant, quotient, variable
from polyker.poly.context import Context
from polyker.poly.subjects import Access, Scope, Subject, rank_error, source_text

Shape = tuple[Affine, ...]


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


class Ranges:
    """The ranges of one statement's indices, found step by step; `bounds` has the closed ones.

    `partial`: extents as far as they are known, of tensors that later statements may widen; they bound indices, and are
    checked once all is known.
    """

    def __init__(
        self,
        context: Context,
        subject: Subject,
        shapes: Mapping[str, Shape | None],
        loops: Mapping[str, Bound],
        partial: Mapping[str, Shape] | None = None,
    ) -> None:
        self.context, self.subject = context, subject
        self.partial = partial or {}
        self.shapes = {**shapes, **self.partial}
        self.bounds: dict[str, Bound] = dict(loops)
        self.accesses = [a for a in (*subject.reads, subject.target) if self.shapes.get(a.tensor) is not None]
        self.scopes = [subject.scope, *subject.scopes.values()]
        for access in self.accesses:
            if len(access.subscripts) != len(self.shape(access)):
                raise rank_error(context, access, self.shape(access))

    def shape(self, access: Access) -> Shape:
        """Return the shape of the accessed tensor, known here."""
        shape = self.shapes[access.tensor]
        assert shape is not None
        return tuple(map(self.context.unify, shape))

    def is_open(self) -> bool:
        """Whether the accesses with known extents leave an index without a range."""
        self._infer()
        return bool(self._open())

    def solve(self) -> dict[str, Bound]:
        """Find every index's range and check every subscript; returns the ranges, those of inline reductions too."""
        self._infer()
        if self._open():
            self._fail()
        self._check_cycles()
        for access in self.accesses:
            if access.tensor not in self.partial:
                self._check(access)
        return self.bounds

    def _infer(self) -> None:
        for scope in self.scopes:
            for index, (lo, hi) in scope.given.items():
                self.bounds[index] = interval(index, lo, hi, True)
        self._agree(self._bare(padded=False))
        self._rounds()
        while self._open():
            before = len(self.bounds)
            self._agree(self._bare(padded=True))
            if len(self.bounds) == before:
                return
            self._rounds()

    def _open(self) -> list[str]:
        return [i for scope in self.scopes for i in scope.indices if i not in self.bounds]

    def _bare(self, padded: bool) -> list[tuple[str, Access, int]]:
        return [
            (index, access, d)
            for access in self.accesses
            if (access.pad is not None) == padded
            for d, index in enumerate(access.bare)
            if index is not None and index not in self.bounds
        ]

    def _agree(self, bare: list[tuple[str, Access, int]]) -> None:
        first: dict[str, tuple[Access, int]] = {}
        for index, access, d in bare:
            extent = self.shape(access)[d]
            if index not in first:
                first[index] = (access, d)
                self.bounds[index] = interval(index, constant(0), extent, False)
                continue
            other, at = first[index]
            known = self.shape(other)[at]
            if known == extent:
                continue
            show = self.context.show
            shapes = ", ".join(
                dict.fromkeys(
                    f"{a.tensor} has shape [{', '.join(show(e) for e in self.shape(a))}]" for a in (other, access)
                )
            )
            values = {"index": self.context.label(index), "first": show(known), "access": other.text}
            self.context.require(
                ("eq", extent - known),
                RANGES_DISAGREE,
                access.place(d),
                second=show(extent),
                other=access.text,
                shapes=f" ({shapes})",
                **values,
            )
        for index in first:
            hi = self.bounds[index].hi
            assert hi is not None
            self.bounds[index] = interval(index, constant(0), self.context.unify(hi), False)

    def _rounds(self) -> None:
        while open_indices := set(self._open()):
            found: dict[str, list[Bound]] = {}
            for access in self.accesses:
                if access.pad is not None:
                    continue
                for d, form in enumerate(access.subscripts):
                    if form is None:
                        continue
                    around = self._closure(form.indices)
                    inside = around & open_indices
                    if len(inside) == 1 and inside <= form.indices:
                        (index,) = inside
                        bound = self._bound(index, access, d, around - inside)
                        if bound is not None:
                            found.setdefault(index, []).append(bound)
            if not found:
                return
            for index, bounds in found.items():
                self.bounds[index] = self._meet(index, bounds)

    def _closure(self, names: Iterable[str]) -> set[str]:
        """Return the indices and all those that their ranges depend on."""
        seen: set[str] = set()
        stack = list(names)
        while stack:
            name = stack.pop()
            if name not in seen:
                seen.add(name)
                if name in self.bounds:
                    stack.extend(self.bounds[name].names)
        return seen

    def _bound(self, index: str, access: Access, d: int, others: set[str]) -> Bound | None:
        """Return the values of `index` for which the subscript is in bounds for every admitted value of the others.

        None where the others have no values: then every value is in bounds, and the subscript bounds nothing.
        """
        form, extent = access.subscripts[d], self.shape(access)[d]
        assert form is not None
        conditions = self._conditions(access.scope, others)
        box = None if conditions else self._corners(form, index, others)
        if box is None:
            return self._bound_by_isl(index, access, d, others, conditions)
        for other in sorted(others):
            lo, hi = self.bounds[other].lo, self.bounds[other].hi
            assert lo is not None
            assert hi is not None
            some = hi - lo - 1
            if some.is_constant and some.const < 0:
                return None
            self._need_values(("ge", some), index, access, d)
        least, greatest = box
        factor = form.coefficient(index)
        if factor < 0:
            lo = -quotient("floordiv", extent - 1 - greatest, -factor)
            return interval(index, lo, quotient("floordiv", least, -factor) + 1, False)
        lo = -quotient("floordiv", least, factor)
        return interval(index, lo, quotient("floordiv", extent - 1 - greatest, factor) + 1, False)

    def _need_values(self, condition: Condition, index: str, access: Access, d: int) -> None:
        span = access.place(d)
        label = self.context.label(index)
        self.context.require(condition, EMPTY_NEIGHBOUR, span, index=label, access=access.text)

    def _corners(self, form: Affine, index: str, others: set[str]) -> tuple[Affine, Affine] | None:
        """Return the least and greatest value of the form without `index`, where all ranges are plain intervals."""
        if not form.is_linear_in(form.indices):
            return None
        rest = form - variable(index) * form.coefficient(index)
        least = greatest = rest
        for other in others:
            bound = self.bounds[other]
            if bound.lo is None or bound.hi is None or bound.names or other not in form.indices:
                return None
            factor = form.coefficient(other)
            ends = (bound.lo, bound.hi - 1) if factor > 0 else (bound.hi - 1, bound.lo)
            least = least.replace({other: ends[0]})
            greatest = greatest.replace({other: ends[1]})
        return least, greatest

    def _bound_by_isl(
        self, index: str, access: Access, d: int, others: set[str], conditions: list[str]
    ) -> Bound | None:
        form, extent = access.subscripts[d], self.shape(access)[d]
        assert form is not None
        order = sorted(others)
        admitted = [c for o in order for c in self.bounds[o].constraints] + conditions
        names = self.context.names
        # Where a range among the others depends on the index itself, no value of it is sure to admit any.
        if order and not any(index in self.bounds[o].names for o in order):
            some = isl.read_set(isl.set_text(names, tuple(order), admitted)).params()
            if some.intersect(self.context.set).is_empty():
                return None
            span = access.place(d)
            label = self.context.label(index)
            self.context.require_set(some, EMPTY_NEIGHBOUR, span, index=label, access=access.text)
        outside = f"({form.text} < 0 or {form.text} >= {extent.text})"
        bad = isl.read_set(isl.set_text(names, (index, *order), [*admitted, outside]))
        good = bad.project_out(isl.dim.set, 1, len(order)).complement().intersect_params(self.context.set).coalesce()
        good = good.gist_params(self.context.set)
        if good.is_empty():
            return interval(index, constant(0), constant(0), False)
        if not is_bounded(good):
            return None
        text = isl.constraints_of(good.set_dim_name(isl.dim.set, 0, index))
        return _simplest(index, good, text)

    def _meet(self, index: str, bounds: list[Bound]) -> Bound:
        """Return the intersection of the bounds of one round."""
        lo, hi = bounds[0].lo, bounds[0].hi
        for bound in bounds[1:]:
            lo = _tighter(lo, bound.lo, max)
            hi = _tighter(hi, bound.hi, min)
        if lo is not None and hi is not None:
            return interval(index, lo, hi, False)
        constraints = tuple(dict.fromkeys(c for b in bounds for c in b.constraints))
        return Bound(constraints, frozenset(), None, None, False)

    def _conditions(self, scope: Scope, indices: set[str]) -> list[str]:
        """Return the `where` conditions that an access in `scope` sees and that use only these indices."""
        return [
            condition_text(c) for s in scope.chain() for c in s.conditions if c[1].indices and c[1].indices <= indices
        ]

    def _fail(self) -> None:
        index = self._open()[0]
        label = self.context.label(index)
        uses = [
            (a, d)
            for a in (*self.subject.reads, self.subject.target)
            for d, f in enumerate(a.subscripts)
            if f is not None and index in f.indices
        ]
        if not uses:
            raise self.context.error(NO_RANGE, self.subject.statement.span, index=label, why="no subscript bounds it")
        access, d = uses[0]
        span = access.place(d)
        raise self.context.error(NO_RANGE, span, index=label, why=self._why(index, uses))

    def _why(self, index: str, uses: list[tuple[Access, int]]) -> str:
        reasons = []
        for access, d in uses:
            form = access.subscripts[d]
            assert form is not None
            open_others = [self.context.label(o) for o in form.indices if o != index and o not in self.bounds]
            if access.is_write and self.shapes.get(access.tensor) is None:
                continue
            if self.shapes.get(access.tensor) is None:
                reasons.append(f"the extents of `{access.tensor}` depend on it")
            elif access.pad is not None:
                reasons.append(f"`{access.text}` is padded")
            elif not open_others:
                reasons.append(f"`{access.text}` does not bound it, or its other indices have no values")
            else:
                reasons.append(f"`{access.text}` has `{'`, `'.join(open_others)}` open too")
        return "; ".join(dict.fromkeys(reasons)) or "nothing that is read bounds it"

    def _check_cycles(self) -> None:
        for index in self.bounds:
            if index in self._closure(self.bounds[index].names):
                label = self.context.label(index)
                span = self.subject.statement.span
                raise self.context.error(NO_RANGE, span, index=label, why="its bounds depend on itself")

    def _check(self, access: Access) -> None:
        for d, (form, extent) in enumerate(zip(access.subscripts, self.shape(access), strict=True)):
            if access.pad is not None and access.pad.mode != "constant":
                self._need_cells(access, d, extent)
            if form is None or access.pad is not None:
                continue
            check_subscript(self.context, self.bounds, access, d, form, extent)

    def _need_cells(self, access: Access, d: int, extent: Affine) -> None:
        assert access.pad is not None
        domain = isl.read_set(scope_text(self.context, self.bounds, access.scope))
        values = {"access": access.text, "mode": access.pad.mode, "dimension": d, "tensor": access.tensor}
        if self.context.proves(("ge", extent - 1)) or domain.is_empty():
            return
        bad = domain.intersect_params(self.context.read([f"{extent.text} <= 0"]))
        self.context.require_none(bad, domain, EMPTY_PAD, access.span, **values)


def is_bounded(points: Any) -> bool:
    """Whether a set of one dimension has a least and a greatest value whatever the sizes."""
    # Divisions aside: isl takes `i >= 2 * floor(i / 2)` for a bound of i.
    plain = points.remove_divs()
    return bool(plain.dim_has_lower_bound(isl.dim.set, 0) and plain.dim_has_upper_bound(isl.dim.set, 0))


def _tighter(a: Affine | None, b: Affine | None, choose: object) -> Affine | None:
    if a is None or b is None:
        return None
    if a == b:
        return a
    difference = a - b
    if not difference.is_constant:
        return None
    return (a if difference.const > 0 else b) if choose is max else (a if difference.const < 0 else b)


def _simplest(index: str, good: Any, text: str) -> Bound:
    """Return the bound of a set of one dimension, as an interval where it is a constant one."""
    if good.dim(isl.dim.param) == 0 and not good.is_empty():
        lo, hi = good.dim_min_val(0).to_python(), good.dim_max_val(0).to_python()
        if good.is_equal(isl.read_set(f"{{ [{index}] : {lo} <= {index} <= {hi} }}")):
            return interval(index, constant(lo), constant(hi + 1), False)
    return Bound((text,), frozenset(), None, None, False)


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


def domain_conditions(bounds: Mapping[str, Bound], scope: Scope) -> list[str]:
    """Return the constraints on all indices visible in a scope: ranges and `where` conditions."""
    conditions = [c for i in scope.visible() for c in bounds[i].constraints]
    return conditions + [condition_text(c) for s in scope.chain() for c in s.conditions]


def scope_text(context: Context, bounds: Mapping[str, Bound], scope: Scope, tuple_name: str = "") -> str:
    """Return the isl text of the points that a scope runs over, those around it included."""
    return isl.set_text(context.names, scope.visible(), domain_conditions(bounds, scope), tuple_name)
