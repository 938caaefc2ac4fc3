"""Index ranges: what bare subscripts say, then rounds of bounds, then the check of all other subscripts.

The rules are those of the notation. A bare subscript gives its index the extent's range and all bare ones must agree.
Then, in rounds, a subscript with one open index bounds it to the values for which every admitted value of the other
indices is in bounds; the bounds of one round intersect. A subscript with no open index is checked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from polyker.errors.base import failure
from polyker.errors.shapes import EMPTY_NEIGHBOUR, EMPTY_PAD, NO_RANGE, RANGES_DISAGREE
from polyker.poly import isl
from polyker.poly.affine import Affine, Condition, constant, quotient, variable
from polyker.poly.bounds import Bound, interval, is_bounded, scope_text, simplest, tighter
from polyker.poly.context import Context
from polyker.poly.inside import check_subscript
from polyker.poly.subjects import Access, Scope, Subject, rank_error

Shape = tuple[Affine, ...]


def _of_one(index: str, *found: tuple[Access, str]) -> str | None:
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
            label = self.context.label(index)
            values = {"index": label, "first": show(known), "access": other.text, "second": show(extent)}
            values |= {"other": access.text, "shapes": f" ({shapes})"}
            hint = _of_one(label, (other, show(known)), (access, show(extent)))
            if hint is not None and (extent - known).is_constant:
                raise failure(RANGES_DISAGREE, span=access.place(d), hint=hint, sizes="", **values)
            self.context.require(("eq", extent - known), RANGES_DISAGREE, access.place(d), **values)
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
        return simplest(index, good, text)

    def _meet(self, index: str, bounds: list[Bound]) -> Bound:
        """Return the intersection of the bounds of one round."""
        lo, hi = bounds[0].lo, bounds[0].hi
        for bound in bounds[1:]:
            lo = tighter(lo, bound.lo, max)
            hi = tighter(hi, bound.hi, min)
        if lo is not None and hi is not None:
            return interval(index, lo, hi, False)
        constraints = tuple(dict.fromkeys(c for b in bounds for c in b.constraints))
        return Bound(constraints, frozenset(), None, None, False)

    def _conditions(self, scope: Scope, indices: set[str]) -> list[str]:
        """Return the `where` conditions that an access in `scope` sees and that use only these indices."""
        return [c.text for s in scope.chain() for c in s.conditions if c.indices and c.indices <= indices]

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
