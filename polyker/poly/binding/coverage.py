"""Check coverage: all elements of outputs are written, all before they are read, and by `=` once.

Exact by isl; the plain cases (a statement that writes its whole target) are seen without it. A reduction defines the
elements of its target from its start: those it adds nothing to because a `for` or `where` left them out hold the identity,
while elements that no inferred range reaches stay undefined. `=` at gathered places counts as a reduction that starts at 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any

from polyker.errors.base import Span
from polyker.errors.shapes import NOTHING_TO_CHOOSE, READ_UNWRITTEN, UNWRITTEN, WRITTEN_TWICE
from polyker.poly import isl
from polyker.poly.affine import Affine, constant
from polyker.poly.binding.bounds import IndexBound, domain_conditions, scope_text
from polyker.poly.binding.context import BindingContext
from polyker.poly.binding.elements_text import elements_text
from polyker.poly.binding.inside import Shape
from polyker.poly.binding.subjects import AffineAccess, BoundStatement, IndexScope

CoveredStatement = tuple[BoundStatement, Mapping[str, IndexBound]]


class Coverage:
    """The statements of a program in the order of the text, with where each stands (`times`: see `statement_times`)."""

    def __init__(
        self,
        context: BindingContext,
        items: Sequence[CoveredStatement],
        shapes: Mapping[str, Shape],
        times: Mapping[int, tuple[int | str, ...]],
    ) -> None:
        self.context, self.items, self.shapes, self.times = context, items, shapes, times
        self.writers: dict[str, list[CoveredStatement]] = {}
        for item in items:
            self.writers.setdefault(item[0].statement.target, []).append(item)

    def check(self, given: frozenset[str], outputs: Sequence[str]) -> None:
        """Check the whole program; `given` are the tensors that arguments define.

        Raises:
            ShapeError: naming the elements, or the two instances.
        """
        for subject, bounds in self.items:
            if subject.sets_elements:
                self._check_once(subject, bounds)
            for scope in subject.scopes.values():
                if scope.op in ("argmax", "argmin"):
                    self._check_choice(scope, bounds)
        for subject, bounds in self.items:
            for access in subject.reads:
                if access.tensor not in given:
                    self._check_read(subject, bounds, access)
        for tensor in outputs:
            if tensor not in given:
                self._check_output(tensor)

    # Two instances of one `=` that write one element

    def _check_once(self, subject: BoundStatement, bounds: Mapping[str, IndexBound]) -> None:
        bare = {form.variable for form in subject.target.subscripts if form is not None}
        if bare.issuperset(subject.scope.indices):
            return
        own = len(subject.scope.indices)
        writes = self._writes(subject, bounds)
        same = writes.apply_range(writes.reverse())
        loops = len(subject.loops)
        for k in range(loops):
            same = same.equate(isl.dim.in_, k, isl.dim.out, k)
        order = isl.read_map(_lex_text(loops, own))
        pairs = same.intersect(order)
        if self.context.names:
            pairs = pairs.intersect_params(self.context.set)
        if pairs.is_empty():
            return
        # The first pair for some sizes, so that the message is the same each time.
        point = pairs.wrap().lexmin().sample_point()
        values = [point.get_coordinate_val(isl.dim.set, k).to_python() for k in range(2 * (loops + own))]
        names = [self.context.label(i) for i in subject.iterators]
        first, second = (
            ", ".join(f"{n} = {v}" for n, v in zip(names, values[at : at + len(names)], strict=True))
            for at in (0, len(names))
        )
        at = {i: constant(v) for i, v in zip(subject.iterators, values, strict=False)}
        at |= {
            name: constant(point.get_coordinate_val(isl.dim.param, k).to_python())
            for k in range(point.get_space().dim(isl.dim.param))
            if (name := point.get_space().get_dim_name(isl.dim.param, k)) is not None
        }
        forms = [form.replace(at) for form in subject.target.subscripts if form is not None]
        element = f"{subject.statement.target}[{', '.join(self.context.show(f) for f in forms)}]"
        span = subject.statement.target_span or subject.statement.span
        shown = {"element": element, "first": first, "second": second}
        self.context.require_none(pairs.domain(), writes.domain(), WRITTEN_TWICE, span, **shown)

    # An argmax over nothing

    def _check_choice(self, scope: IndexScope, bounds: Mapping[str, IndexBound]) -> None:
        outer, inner = self._points(scope.parent, bounds), self._points(scope, bounds)
        count = len(scope.indices)
        filled = inner.project_out(isl.dim.set, inner.dim(isl.dim.set) - count, count)
        empty = outer.subtract(filled)
        self.context.require_none(empty, outer, NOTHING_TO_CHOOSE, scope.span, op=scope.op)

    # Reads

    def _check_read(self, reader: BoundStatement, bounds: Mapping[str, IndexBound], access: AffineAccess) -> None:
        writers = self.writers.get(access.tensor, [])
        for writer, writer_bounds in writers:
            around = reader.loops[: len(writer.loops)] == writer.loops
            if writer.number < reader.number and around and self._covers(writer, writer_bounds):
                return
        reads = self._reads(reader, bounds, access)
        missing = reads.domain()
        for writer, writer_bounds in writers:
            done = self._done_before(reads, reader, access, writer, writer_bounds)
            missing = missing.subtract(done.domain())
        if self.context.names:
            missing = missing.intersect_params(self.context.set)
        if missing.is_empty():
            return
        elements = self._show_elements(access.tensor, reads.intersect_domain(missing).range())
        values = {"access": access.text, "elements": elements}
        self.context.require_none(missing, reads.domain(), READ_UNWRITTEN, access.span, **values)

    def _reads(self, reader: BoundStatement, bounds: Mapping[str, IndexBound], access: AffineAccess) -> Any:
        """Return {[time of the statement, own indices of the reductions around the access, element] -> [element]}.

        The element is on the left too: a gather may read several, and each has to be written.
        """
        visible = access.scope.visible()
        inner = [i for i in visible if i not in reader.iterators]
        elements, constraints = self._elements(access)
        conditions = domain_conditions(bounds, access.scope) + constraints
        return self._map([*self._time(reader), *inner, *elements], [*visible, *elements], elements, conditions)

    def _done_before(
        self,
        reads: Any,
        reader: BoundStatement,
        access: AffineAccess,
        writer: BoundStatement,
        bounds: Mapping[str, IndexBound],
    ) -> Any:
        """Return {read -> write of its element that comes before}, or -> start of the reduction that defines its element."""
        inner = len(access.scope.visible()) - len(reader.iterators) + len(access.subscripts)
        time = self._time(writer)
        elements, constraints = self._elements(writer.target)
        if writer.sets_elements:
            conditions = domain_conditions(bounds, writer.scope) + constraints
            length, strict = len(time), True
        else:
            conditions = self._defined(writer, bounds)
            length, strict = 2 * len(writer.loops) + 1, False
        writes = self._map(time[:length], list(writer.iterators), elements, conditions)
        before = isl.read_map(_before_text(len(time), inner, length, strict))
        return reads.apply_range(writes.reverse()).intersect(before)

    # Outputs

    def _check_output(self, tensor: str) -> None:
        writers = self.writers.get(tensor, [])
        for writer, bounds in writers:
            if not writer.loops and self._covers(writer, bounds):
                return
        shape = self.shapes[tensor]
        dims = [f"c{d}" for d in range(len(shape))]
        box = [f"0 <= {c} and {c} < {e.text}" for c, e in zip(dims, shape, strict=True)]
        missing = isl.read_set(isl.set_text(self.context.names, tuple(dims), box))
        written = isl.read_set(isl.set_text(self.context.names, tuple(dims), ["1 = 0"]))
        for writer, bounds in writers:
            written = written.union(self._written(writer, bounds))
        missing = missing.subtract(written)
        if self.context.names:
            missing = missing.intersect_params(self.context.set)
        if missing.is_empty():
            return
        span: Span | None = writers[0][0].statement.span if writers else None
        elements = self._show_elements(tensor, missing)
        self.context.require_none(missing, written, UNWRITTEN, span, elements=elements, tensor=tensor)

    def _written(self, writer: BoundStatement, bounds: Mapping[str, IndexBound]) -> Any:
        if writer.sets_elements:
            return self._writes(writer, bounds).range()
        elements, _ = self._elements(writer.target)
        iterators = list(writer.iterators)
        return self._map(iterators, iterators, elements, self._defined(writer, bounds)).range()

    def defined_elements(self, writer: BoundStatement, bounds: Mapping[str, IndexBound], name: str) -> str | None:
        """Return the text of the elements that a reduction defines, under the tensor's generated name; None for all."""
        shared = len(self.writers[writer.statement.target]) > 1
        if writer.sets_elements or not shared or self._covers(writer, bounds):
            return None
        elements = self._written(writer, bounds).coalesce().set_tuple_name(name)
        for d in range(elements.dim(isl.dim.set)):
            elements = elements.set_dim_name(isl.dim.set, d, f"c{d}")
        return str(elements)

    # What statements write

    def _covers(self, writer: BoundStatement, bounds: Mapping[str, IndexBound]) -> bool:
        """Whether a statement plainly writes (or, a reduction, defines) its whole target each time it is reached."""
        is_set = writer.sets_elements
        if is_set and writer.scope.conditions:
            return False
        seen: set[str] = set()
        for form, extent in zip(writer.target.subscripts, self.shapes[writer.statement.target], strict=True):
            index = None if form is None else form.variable
            if form is None:
                continue
            if form.is_constant and extent.is_constant and form.const == 0 and extent.const <= 1:
                continue
            if index is None or index in seen or index not in writer.scope.indices:
                return False
            seen.add(index)
            bound = bounds[index]
            explicit = bound.explicit and not is_set
            if not explicit and (bound.lo != constant(0) or bound.hi != extent):
                return False
        return not is_set or seen.issuperset(writer.scope.indices)

    def _defined(self, writer: BoundStatement, bounds: Mapping[str, IndexBound]) -> list[str]:
        """Return the constraints on loops, indices and elements c0, c1, ... for a reduction to define an element.

        A dimension that an index of a `for` or a gather decides is defined everywhere, others where the inferred ranges
        reach; `where` leaves elements at the identity.
        """
        loops = writer.scope.parent
        conditions = domain_conditions(bounds, loops) if loops is not None else []
        target, reached = writer.target, set[str]()
        for d, (form, extent) in enumerate(zip(target.subscripts, self.shapes[target.tensor], strict=True)):
            conditions.append(f"0 <= c{d} and c{d} < {extent.text}")
            if form is not None and not any(bounds[i].explicit for i in form.indices):
                conditions.append(f"c{d} = {form.text}")
                reached |= form.indices
        for i in writer.target_indices:
            if i in reached:
                conditions += bounds[i].constraints
        return conditions

    def _writes(self, subject: BoundStatement, bounds: Mapping[str, IndexBound]) -> Any:
        elements, constraints = self._elements(subject.target)
        conditions = domain_conditions(bounds, subject.scope) + constraints
        return self._map(list(subject.iterators), list(subject.iterators), elements, conditions)

    def _elements(self, access: AffineAccess) -> tuple[list[str], list[str]]:
        """Return the element's coordinates c0, c1, ... and the constraints that tie them to the indices."""
        elements = [f"c{d}" for d in range(len(access.subscripts))]
        constraints = []
        for c, form, extent in zip(elements, access.subscripts, self.shapes[access.tensor], strict=True):
            inside = f"0 <= {c} and {c} < {extent.text}"
            if form is None:
                constraints.append(inside)
            elif access.pad is None:
                constraints.append(f"{c} = {form.text}")
            elif access.pad.mode == "constant":
                constraints.append(f"{c} = {form.text} and {inside}")
            else:
                constraints.append(f"{inside} and {_padded(access.pad.mode, c, form, extent)}")
        return elements, constraints

    # isl

    def _map(self, domain: list[str], variables: list[str], elements: list[str], conditions: list[str]) -> Any:
        """Return {[domain] -> [elements]}; an entry of `domain` is a name, or a number."""
        dims = [d if d in variables else f"p{k} = {d}" for k, d in enumerate(domain)]
        hidden = [v for v in variables if v not in domain]
        body = " and ".join(conditions) or "1 = 1"
        if hidden:
            body = f"exists {', '.join(hidden)} : {body}"
        head = isl.parameters(self.context.names)
        return isl.read_map(f"{head}{{ [{', '.join(dims)}] -> [{', '.join(elements)}] : {body} }}")

    def _points(self, scope: IndexScope | None, bounds: Mapping[str, IndexBound]) -> Any:
        assert scope is not None
        points = isl.read_set(scope_text(self.context, bounds, scope))
        return points.intersect_params(self.context.set) if self.context.names else points

    def _time(self, subject: BoundStatement) -> list[str]:
        longest = max(len(t) for t in self.times.values())
        time = [str(t) for t in self.times[subject.number]]
        return time + ["0"] * (longest - len(time))

    def _show_elements(self, tensor: str, elements: Any) -> str:
        return elements_text(tensor, elements, self._subscript_names(tensor), self.context.relabel)

    def _subscript_names(self, tensor: str) -> list[str]:
        """Return the user's names for a tensor's subscripts: indices that stand there alone, else letters that are free."""
        accesses = [w.target for w, _ in self.writers.get(tensor, [])]
        accesses += [a for s, _ in self.items for a in s.reads if a.tensor == tensor]
        names: list[str] = []
        for d in range(len(self.shapes[tensor])):
            forms = (a.subscripts[d] for a in accesses if d < len(a.subscripts))
            own = (form.variable for form in forms if form is not None)
            known = (self.context.labels[i] for i in own if i in self.context.labels)
            taken = {*names, *self.context.labels.values()}
            name = next((n for n in known if n not in names), None) or next(n for n in _letters() if n not in taken)
            names.append(name)
        return names


def _letters() -> Iterator[str]:
    yield from "ijklmn"
    yield from (f"d{k}" for k in count())


def statement_times(tree: tuple[object, ...], items: Sequence[CoveredStatement]) -> dict[int, tuple[int | str, ...]]:
    """Return when a statement's instances run: places in bodies, loops' iterators between them, then own iterators."""
    times: dict[int, tuple[int | str, ...]] = {}

    def visit(body: tuple[object, ...], prefix: tuple[int | str, ...]) -> None:
        for place, node in enumerate(body):
            match node:
                case int(number):
                    times[number] = (*prefix, place, *items[number][0].scope.indices)
                case (str(iterator), tuple(inner)):
                    visit(inner, (*prefix, place, iterator))

    visit(tree, ())
    return times


def _padded(mode: str, element: str, form: Affine, extent: Affine) -> str:
    """Return which element a padded subscript reads: exact, but any element where a symbolic extent makes that non-affine."""
    last = (extent - 1).text
    if mode == "edge":
        return f"{element} = max(0, min({form.text}, {last}))"
    if not extent.is_constant:
        return "1 = 1"
    if mode == "wrap":
        return f"{element} = ({form.text}) mod {max(extent.const, 1)}"
    period = max(2 * (extent.const - 1), 1)
    wrapped = f"(({form.text}) mod {period})"
    return f"{element} = min({wrapped}, {period} - {wrapped})" if extent.const > 1 else f"{element} = 0"


def _lex_text(loops: int, own: int) -> str:
    left = [f"a{k}" for k in range(loops + own)]
    right = [f"b{k}" for k in range(loops + own)]
    order = f"{', '.join(left[loops:])} << {', '.join(right[loops:])}" if own else "1 = 0"
    return f"{{ [{', '.join(left)}] -> [{', '.join(right)}] : {order} }}"


def _before_text(length: int, inner: int, prefix: int, strict: bool) -> str:
    """Return {[time, inner] -> [time' up to prefix] : time' comes before time (or, unless strict, with it)}."""
    left = [f"a{k}" for k in range(length)] + [f"r{k}" for k in range(inner)]
    right = [f"b{k}" for k in range(prefix)]
    sign = "<<" if strict else "<<="
    return f"{{ [{', '.join(left)}] -> [{', '.join(right)}] : {', '.join(right)} {sign} {', '.join(left[:prefix])} }}"
