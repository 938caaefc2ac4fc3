"""Index ranges: rounds of bounds that intersect, then the check of all subscripts.

The rules are those of the notation. In a round, a subscript with one open index bounds it to the values for which every
admitted value of its other indices is in bounds, and the bounds of the round intersect. A bare subscript gives the whole
extent, and all bare ones of an index must agree; indices that have one come first. A subscript with no open index is
checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from polyker.errors.shapes import EMPTY_NEIGHBOUR, EMPTY_PAD, NO_RANGE
from polyker.poly import isl
from polyker.poly.affine import Affine, Condition, constant, quotient, variable
from polyker.poly.binding.bounds import IndexBound, interval, is_bounded, meet, scope_text, simplest
from polyker.poly.binding.context import BindingContext
from polyker.poly.binding.inside import Shape, Stated, check_subscript, require_equal
from polyker.poly.binding.subjects import AffineAccess, BoundStatement, IndexScope, rank_error


class StatementRanges:
    """The ranges of one statement's indices, found round by round; `bounds` has the closed ones.

    `late`: the extents, as far as statements before this one give them, of tensors that it or a later one still defines.
    Their reads bound only what nothing else does, and are checked once all is known. `origins`: what bounded each
    inferred index. `stated`: the bare subscript that gives an index its extent.
    """

    def __init__(
        self,
        context: BindingContext,
        subject: BoundStatement,
        shapes: Mapping[str, Shape | None],
        loops: Mapping[str, IndexBound],
        late: Mapping[str, Shape | None],
    ) -> None:
        self.context, self.subject = context, subject
        self.shapes: Mapping[str, Shape | None] = shapes
        self.late: Mapping[str, Shape | None] = late
        self.bounds: dict[str, IndexBound] = dict(loops)
        self.origins: dict[str, tuple[AffineAccess, ...]] = {}
        self.stated: dict[str, Stated] = {}
        self.scopes = [subject.scope, *subject.scopes.values()]
        known = [a for a in (*subject.reads, subject.target) if self._known(a) is not None]
        self.accesses = [a for a in known if not self._is_late(a)]
        self.last_resort = [a for a in known if self._is_late(a)]
        for access in known:
            if len(access.subscripts) != len(self.shape(access)):
                raise rank_error(context, access, self.shape(access))

    def late_reads(self) -> list[AffineAccess]:
        """Return the reads whose tensors this or a later statement still defines."""
        return [a for a in self.subject.reads if self._is_late(a)]

    def _is_late(self, access: AffineAccess) -> bool:
        return access.tensor in self.late and not access.is_write

    def _known(self, access: AffineAccess) -> Shape | None:
        return (self.late if self._is_late(access) else self.shapes).get(access.tensor)

    def shape(self, access: AffineAccess) -> Shape:
        """Return the shape of the accessed tensor, known here."""
        shape = self._known(access)
        assert shape is not None
        return tuple(map(self.context.unify, shape))

    def solve(self) -> dict[str, IndexBound]:
        """Find every index's range and check every subscript; returns the ranges, those of inline reductions too."""
        for scope in self.scopes:
            for index, (lo, hi) in scope.given.items():
                self.bounds[index] = interval(index, lo, hi, True)
        sources = [(accesses, padded) for accesses in (self.accesses, self.last_resort) for padded in (False, True)]
        while self._open():
            if not any(self._round(accesses, padded) for accesses, padded in sources):
                self._fail()
        self._check_cycles()
        for access in self.accesses:
            self._check(access)
        return self.bounds

    def _open(self) -> list[str]:
        return [i for scope in self.scopes for i in scope.indices if i not in self.bounds]

    def _round(self, accesses: list[AffineAccess], padded: bool) -> bool:
        """Bound the open indices by these accesses, padded ones or others; returns whether any was bounded.

        Indices that stand alone somewhere come first: they have values before the bounds of the others are looked for. A
        padded subscript bounds an index only where the index stands alone in it.
        """
        open_indices = set(self._open())
        chosen = [a for a in accesses if (a.pad is not None) == padded]
        found = self._agree(
            [(i, a, d) for a in chosen for d, i in enumerate(a.bare) if i is not None and i in open_indices]
        )
        settled = set(found) or open_indices
        for access in () if padded else chosen:
            for d, form in enumerate(access.subscripts):
                if form is None or access.bare[d] is not None:
                    continue
                around = self._closure(form.indices)
                inside = around & open_indices
                if len(inside) == 1 and inside <= form.indices & settled:
                    (index,) = inside
                    bound = self._bound(index, access, d, around - inside)
                    if bound is not None:
                        found.setdefault(index, []).append((access, bound))
        for index, bounds in found.items():
            self.bounds[index] = meet(self.context, index, [b for _, b in bounds])
            self.origins[index] = tuple(a for a, _ in bounds)
        return bool(found)

    def _agree(self, bare: list[tuple[str, AffineAccess, int]]) -> dict[str, list[tuple[AffineAccess, IndexBound]]]:
        """Return the whole extent as the bound of each index that stands alone, where all such extents are equal."""
        found: dict[str, list[AffineAccess]] = {}
        for index, access, d in bare:
            here = Stated(access, d, self.shape(access))
            require_equal(self.context, index, self.stated.setdefault(index, here), here)
            found.setdefault(index, []).append(access)
        bounds = {}
        for index, accesses in found.items():
            bound = interval(index, constant(0), self.context.unify(self.stated[index].extent), False)
            bounds[index] = [(a, bound) for a in accesses]
        return bounds

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

    def _bound(self, index: str, access: AffineAccess, d: int, others: set[str]) -> IndexBound | None:
        """Return the values of `index` for which the subscript is in bounds for every admitted value of the others.

        None where the others have no values: then every value is in bounds, and the subscript bounds nothing. Where a bare
        subscript gives the index its extent, a condition says for each of its values which of the others it admits.
        """
        form, extent = access.subscripts[d], self.shape(access)[d]
        assert form is not None
        conditions = self._conditions(access.scope, others)
        together = self._conditions(access.scope, others | {index}) if index in self.stated else conditions
        box = None if together else self._corners(form, index, others)
        if box is None:
            return self._bound_by_isl(index, access, d, others, conditions, together)
        for other in sorted(others):
            for some in self.bounds[other].lengths():
                if some.is_constant and some.const < 1:
                    return None
                self._need_values(("ge", some - 1), index, access, d)
        least, greatest = box
        factor = form.coefficient(index)
        if factor < 0:
            lo = -quotient("floordiv", extent - 1 - greatest, -factor)
            return interval(index, lo, quotient("floordiv", least, -factor) + 1, False)
        lo = -quotient("floordiv", least, factor)
        return interval(index, lo, quotient("floordiv", extent - 1 - greatest, factor) + 1, False)

    def _need_values(self, condition: Condition, index: str, access: AffineAccess, d: int) -> None:
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
        self, index: str, access: AffineAccess, d: int, others: set[str], conditions: list[str], together: list[str]
    ) -> IndexBound | None:
        """Return what `_bound` does; `conditions`: those on the others, `together`: those on the index, too."""
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
        bad = isl.read_set(isl.set_text(names, (index, *order), [*admitted, *together, outside]))
        good = bad.project_out(isl.dim.set, 1, len(order)).complement().intersect_params(self.context.set).coalesce()
        if index in self.stated and together != conditions:
            # Beyond its extent, where a condition may hold of no value, it has none.
            whole = interval(index, constant(0), self.context.unify(self.stated[index].extent), False)
            inside = isl.read_set(isl.set_text(names, (index,), list(whole.constraints))).intersect_params(
                self.context.set
            )
            if inside.is_subset(good):
                return None
            good = good.intersect(inside).coalesce()
        if not good.is_empty() and not is_bounded(good):
            return None
        text = isl.constraints_of(good.gist_params(self.context.set).set_dim_name(isl.dim.set, 0, index))
        return simplest(self.context, index, good, (text,))

    def _conditions(self, scope: IndexScope, indices: set[str]) -> list[str]:
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

    def _why(self, index: str, uses: list[tuple[AffineAccess, int]]) -> str:
        reasons = []
        for access, d in uses:
            form = access.subscripts[d]
            assert form is not None
            open_others = [self.context.label(o) for o in form.indices if o != index and o not in self.bounds]
            if self._known(access) is None:
                if access.is_write:
                    continue
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

    def _check(self, access: AffineAccess) -> None:
        for d, (form, extent) in enumerate(zip(access.subscripts, self.shape(access), strict=True)):
            if access.pad is not None and access.pad.mode != "constant":
                self._need_elements(access, d, extent)
            if form is None or access.pad is not None:
                continue
            check_subscript(self.context, self.bounds, access, d, form, extent)

    def _need_elements(self, access: AffineAccess, d: int, extent: Affine) -> None:
        assert access.pad is not None
        domain = isl.read_set(scope_text(self.context, self.bounds, access.scope))
        values = {"access": access.text, "mode": access.pad.mode, "dimension": d, "tensor": access.tensor}
        if self.context.proves(("ge", extent - 1)) or domain.is_empty():
            return
        bad = domain.intersect_params(self.context.read([f"{extent.text} <= 0"]))
        self.context.require_none(bad, domain, EMPTY_PAD, access.span, **values)
