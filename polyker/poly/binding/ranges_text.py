"""Index ranges as a person reads them: the values, and the accesses that bounded them."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from polyker.poly.binding.bounds import IndexBound
from polyker.poly.binding.context import BindingContext
from polyker.poly.binding.ranges import StatementRanges


class RangeText(Struct, frozen=True):
    """The range of an index of one statement: its text, and the dimensions that are the range, where bare subscripts say it."""

    index: str
    text: str
    dimensions: tuple[tuple[str, int], ...]


def range_texts(context: BindingContext, ranges: StatementRanges, bounds: Mapping[str, IndexBound]) -> list[RangeText]:
    """Return the inferred ranges of a statement's indices, those of its inline reductions last."""
    found = []
    for index in (i for scope in ranges.scopes for i in scope.indices if i in ranges.origins):
        accesses, bound, label = ranges.origins[index], bounds[index], context.label(index)
        if bound.lo is not None and bound.hi is not None:
            values = f"in {context.show(bound.lo)}:{context.show(bound.hi)}"
        else:
            values = f"where {context.relabel(' and '.join(bound.constraints))}"
        sources = ", ".join(dict.fromkeys(a.text for a in accesses))
        bare = all(index in a.bare for a in accesses)
        dimensions = ((a.tensor, a.bare.index(index)) for a in accesses if bare)
        found.append(RangeText(label, f"{label} {values}, from {sources}", tuple(dict.fromkeys(dimensions))))
    return found
