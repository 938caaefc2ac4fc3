"""Extents of fresh tensors: 1 + the largest subscript over all defining statements, exact by isl where not plain."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from polyker.errors.base import ShapeError, Span, advised
from polyker.errors.shapes import EMPTY_RANGE, NEGATIVE_ELEMENT, NO_EXTENT
from polyker.ir.printing import print_expr
from polyker.poly import isl
from polyker.poly.affine import Affine, Extremum, constant, extremum
from polyker.poly.binding.bounds import IndexBound, domain_conditions
from polyker.poly.binding.context import BindingContext
from polyker.poly.binding.declaring import descending
from polyker.poly.binding.subjects import BoundStatement, source_text
from polyker.poly.forms import form_of_aff

TensorDefinition = tuple[BoundStatement, Mapping[str, IndexBound]]


def fresh_shape(context: BindingContext, tensor: str, definitions: Sequence[TensorDefinition]) -> tuple[Affine, ...]:
    """Return the extents of a tensor that these statements define.

    Raises:
        ShapeError: for a subscript below 0, a gathered one, or an extent that no quasi-affine form gives.
    """
    rank = len(definitions[0][0].target.subscripts)
    return tuple(_extent(context, tensor, d, definitions) for d in range(rank))


def _extent(context: BindingContext, tensor: str, d: int, definitions: Sequence[TensorDefinition]) -> Affine:
    plain: list[Affine] | None = []
    for subject, bounds in definitions:
        hi = _plain(context, subject, bounds, d)
        if hi is None:
            plain = None
            break
        assert plain is not None
        plain.append(hi)
    if plain is not None:
        greatest = _greatest(context, plain)
        if greatest is not None:
            return greatest
    return _by_isl(context, tensor, d, definitions)


def _plain(context: BindingContext, subject: BoundStatement, bounds: Mapping[str, IndexBound], d: int) -> Affine | None:
    """Return 1 + the largest subscript where it is a constant, or an index over one non-empty plain interval."""
    form = subject.target.subscripts[d]
    if form is None:
        raise context.error(
            NO_EXTENT,
            subject.statement.target_span or subject.statement.span,
            tensor=subject.statement.target,
            dimension=d,
            why=": its subscript is gathered",
        )
    if _is_limited(subject, form):
        return None
    if form.is_constant and form.const >= 0:
        return form + 1
    index = form.variable
    if index is None:
        return None
    bound = bounds[index]
    if bound.names or bound.lo is None or bound.hi is None or not context.proves(("ge", bound.lo)):
        return None
    if bound.lo == constant(0):
        return bound.hi if context.proves(("ge", bound.hi)) else extremum("maximum", [constant(0), bound.hi])
    return bound.hi if context.proves(("ge", bound.hi - bound.lo - 1)) else None


def _with_gap(subject: BoundStatement, bounds: Mapping[str, IndexBound], d: int) -> Affine | None:
    """Return the extent over one interval that starts at a constant lo: hi where lo < hi, else 0; quasi-affine.

    For lo < hi, hi is at most (lo + 1) * (hi - lo); otherwise that product is at most 0.
    """
    form = subject.target.subscripts[d]
    if form is None or _is_limited(subject, form):
        return None
    if form.is_constant:
        return form + 1
    bound = bounds.get(form.variable or "")
    if bound is None or bound.names or bound.lo is None or bound.hi is None:
        return None
    if not bound.lo.is_constant or bound.lo.const < 0:
        return None
    inner = extremum("minimum", [bound.hi, (bound.hi - bound.lo) * (bound.lo.const + 1)])
    return extremum("maximum", [constant(0), bound.hi if bound.lo.const == 0 else inner])


def _is_limited(subject: BoundStatement, form: Affine) -> bool:
    """Whether a `where` condition that counts for extents may limit a subscript's values."""
    reduced = set(subject.reduced)
    kept = [c.indices for c in subject.scope.conditions if not c.indices & reduced]
    return any(not used or used & form.indices for used in kept)


def _greatest(context: BindingContext, forms: list[Affine]) -> Affine | None:
    distinct = list({f.text: f for f in forms}.values())
    for form in distinct:
        if all(other is form or context.proves(("ge", form - other)) for other in distinct):
            return form
    return None


def _decisive(
    subject: BoundStatement, bounds: Mapping[str, IndexBound], names: Iterable[str]
) -> tuple[list[str], list[str]]:
    """Return the indices that decide the values of these, in execution order, and the constraints on them.

    Constraints on reduced indices do not count (an empty reduction still has its whole output), unless the range of one
    of the target's own indices is written in terms of them.
    """
    reduced = set(subject.reduced)
    conditions = [c for c in subject.scope.conditions if not c.indices & reduced]
    seen = set(names)
    while True:
        wider = set(seen)
        for name in seen:
            wider |= bounds[name].names
        for c in conditions:
            if c.indices & wider:
                wider |= c.indices
        if wider == seen:
            break
        seen = wider
    order = [i for i in subject.iterators if i in seen]
    constraints = [c for i in order for c in bounds[i].constraints]
    return order, constraints + [c.text for c in conditions if c.indices <= seen]


def _written(subject: BoundStatement, bounds: Mapping[str, IndexBound]) -> tuple[list[str], list[str]]:
    """Return the indices and constraints of the instances whose elements have to exist.

    A reduction over inferred ranges alone gives the identity to all elements of the target's own indices, even over nothing;
    with `for`, `where` or a loop, only the instances that run count.
    """
    explicit = subject.loops or subject.scope.given or subject.scope.conditions
    if subject.statement.op != "set" and not explicit:
        return _decisive(subject, bounds, subject.target_indices)
    return list(subject.iterators), domain_conditions(bounds, subject.scope)


def _upwards(context: BindingContext, statement: Span | None) -> str | None:
    """Return a hint where a read is what makes an index of the target negative: its subscript falls as the index grows."""
    found = descending(context.program, statement)
    if found is None:
        return None
    read, text = found
    write = f": write `{text}`" if text else ""
    return f"`{source_text(read.span) or print_expr(read)}` counts from 0, not from the end{write}"


def _values(context: BindingContext, subject: BoundStatement, bounds: Mapping[str, IndexBound], form: Affine) -> Any:
    """Return the set of the values that a subscript takes."""
    order, constraints = _decisive(subject, bounds, form.indices)
    text = isl.set_text(context.names, ("v", *order), [*constraints, f"v = {form.text}"])
    values = isl.read_set(text).project_out(isl.dim.set, 1, len(order))
    return values.intersect_params(context.set) if context.names else values


def _by_isl(context: BindingContext, tensor: str, d: int, definitions: Sequence[TensorDefinition]) -> Affine:
    all_values: Any = None
    for subject, bounds in definitions:
        form = subject.target.subscripts[d]
        assert form is not None
        values = _values(context, subject, bounds, form)
        span = subject.target.spans[d] if d < len(subject.target.spans) else subject.statement.target_span
        order, constraints = _written(subject, bounds)
        domain = isl.read_set(isl.set_text(context.names, tuple(order), constraints))
        below = isl.read_set(isl.set_text(context.names, tuple(order), [f"{form.text} < 0"]))
        subscript = source_text(span) or context.show(form)
        bad, place = domain.intersect(below), subject.statement.span
        try:
            context.require_none(bad, domain, NEGATIVE_ELEMENT, span, subscript=subscript, tensor=tensor)
        except ShapeError as error:
            hint = _upwards(context, place)
            raise error if hint is None else advised(error, hint) from None
        if not (values.is_empty() or values.remove_divs().dim_has_upper_bound(isl.dim.set, 0)):
            raise context.error(NO_EXTENT, span, tensor=tensor, dimension=d, why=": nothing bounds it from above")
        all_values = values if all_values is None else all_values.union(values)
    # The value -1 stands for "nothing is written", so that the extent is then 0.
    all_values = all_values.intersect_params(context.set).intersect(isl.read_set("{ [v] : v >= 0 }"))
    whole = all_values.union(isl.read_set(isl.set_text(context.names, ("v",), ["v = -1"])))
    extent = recognise(context, whole.dim_max(0).coalesce())
    if extent is not None:
        return extent
    gaps = [_with_gap(subject, bounds, d) for subject, bounds in definitions]
    if all(g is not None for g in gaps):
        return extremum("maximum", [g for g in gaps if g is not None])
    # Nothing else is quasi-affine: take the sizes for which something is written.
    subject = definitions[0][0]
    context.require_set(all_values.params(), EMPTY_RANGE, subject.statement.span, tensor=tensor)
    extent = recognise(context, all_values.intersect_params(context.set).dim_max(0).coalesce())
    if extent is None:
        raise context.error(NO_EXTENT, subject.statement.span, tensor=tensor, dimension=d, why=" for symbolic sizes")
    return extent


def recognise(context: BindingContext, greatest: Any) -> Affine | None:
    """Return 1 + an `isl.PwAff` as a form, or a maximum or minimum of forms; None where it is neither."""
    inside = greatest.intersect_params(context.set) if context.names else greatest
    forms: list[Affine] = []
    for _, piece in inside.get_pieces():
        form = form_of_aff(piece)
        if form is None:
            return None
        if form not in forms:
            forms.append(form)
    if len(forms) == 1:
        return forms[0] + 1
    low, *rest = sorted(forms, key=lambda f: not f.is_constant)
    candidates = [*reversed(forms), extremum("maximum", forms), extremum("minimum", forms)]
    if low.is_constant and len(rest) > 1:
        # An empty set beside a maximum, or beside a minimum.
        candidates.insert(len(forms), extremum("maximum", rest))
        candidates.append(extremum("maximum", [low, extremum("minimum", rest)]))
    for candidate in candidates:
        text = f"{isl.parameters(context.names)}{{ [{candidate.text}] }}"
        if isl.read_pw_aff(text).intersect_params(context.set).is_equal(inside):
            return _one_more(candidate)
    return None


def _one_more(form: Affine) -> Affine:
    """Return form + 1, the 1 moved into extrema."""
    match form.terms:
        case ((Extremum(op=op, forms=forms), 1),) if form.const == 0:
            return extremum(op, [_one_more(f) for f in forms])
        case _:
            return form + 1
