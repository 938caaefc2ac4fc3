"""Index arithmetic in 64 bits: what an affine form computes on its way stays below 2^62, or it is an error."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from polyker.errors.base import Span
from polyker.errors.shapes import INDEX_TOO_WIDE
from polyker.poly import isl
from polyker.poly.affine import Affine, Atom, Extremum, Quotient, constant, variable
from polyker.poly.binding.bounds import IndexBound
from polyker.poly.binding.context import BindingContext
from polyker.poly.binding.sizes import SIZE_LIMIT
from polyker.poly.binding.subjects import BoundStatement, source_text

# No dimension of an array in memory is longer (addresses of user space have 47 bits), so that sizes need no check at the call
# where what they give fits up to here.
MAX_ARRAY_EXTENT = 1 << 47


def check_widths(context: BindingContext, subject: BoundStatement, bounds: Mapping[str, IndexBound]) -> None:
    """Make sure that no subscript, bound or condition of a statement overflows: proved, or checked at the call.

    Raises:
        ShapeError: where one does whatever the sizes.
    """
    for access in (*subject.reads, subject.target):
        for d, form in enumerate(access.subscripts):
            if form is not None:
                _check(context, bounds, form, access.place(d))
    for scope in (*subject.scope.chain(), *subject.scopes.values()):
        forms = [form for restriction in scope.conditions for form in restriction.forms]
        forms += [end for ends in scope.given.values() for end in ends]
        for form in forms:
            _check(context, bounds, form, scope.span or subject.statement.span)
        for index in scope.indices:
            if not bounds[index].explicit:
                for end in (bounds[index].lo, bounds[index].hi):
                    _check(context, bounds, end or constant(0), scope.span or subject.statement.span)


def _check(context: BindingContext, bounds: Mapping[str, IndexBound], form: Affine, span: Span | None) -> None:
    if _greatest(form, bounds) < SIZE_LIMIT:
        return
    indices = set(form.indices)
    while wider := {n for i in indices for n in bounds[i].names} - indices:
        indices |= wider
    order = tuple(sorted(indices))
    points = isl.read_set(isl.set_text(context.names, order, [c for i in order for c in bounds[i].constraints]))
    points = points.intersect_params(context.set)
    possible = context.read([f"{n} < {SIZE_LIMIT}" for n in context.names])
    for part in _parts(form):
        wide = isl.set_text(context.names, order, [f"({part.text} >= {SIZE_LIMIT} or {part.text} <= {-SIZE_LIMIT})"])
        bad = points.intersect(isl.read_set(wide))
        if not bad.intersect_params(possible).is_empty():
            text = source_text(span) or context.show(form)
            context.require_none(bad, points, INDEX_TOO_WIDE, span, text=text)


def _greatest(form: Affine, bounds: Mapping[str, IndexBound]) -> int:
    """Return a bound of the magnitude of all that is computed of a form, for sizes of up to `MAX_ARRAY_EXTENT`."""

    def of_atom(atom: Atom) -> int:
        match atom:
            case str():
                bound = bounds.get(atom)
                ends = (bound.lo, bound.hi) if bound is not None else ()
                return max(
                    (MAX_ARRAY_EXTENT if end is None else _greatest(end, bounds) for end in ends),
                    default=MAX_ARRAY_EXTENT,
                )
            case Quotient(form=inner, divisor=divisor):
                return max(_greatest(inner, bounds), divisor)
            case Extremum(forms=forms):
                return max(_greatest(f, bounds) for f in forms)

    return abs(form.const) + sum(abs(coefficient) * of_atom(atom) for atom, coefficient in form.terms)


def _parts(form: Affine) -> Iterator[Affine]:
    """Yield all that is computed of a form: its terms, their sums, and what is divided."""
    total = constant(form.const)
    for atom, coefficient in form.terms:
        match atom:
            case Quotient(form=inner):
                yield from _parts(inner)
            case Extremum(forms=forms):
                for f in forms:
                    yield from _parts(f)
        term = variable(atom) * coefficient if isinstance(atom, str) else Affine(((atom, coefficient),))
        total = total + term
        yield term
        yield total
