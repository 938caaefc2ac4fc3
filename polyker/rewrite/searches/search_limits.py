"""Compare each term of a float search once, with the number next to the extremum.

    A[p] min= where(e(p,k) == M[p] or e(p,k) != e(p,k), k, none)        with M[p] = the greatest e(p,k), NaN where one is
    ->
    L[p] = below(M[p]);  A[p] min= where(not (e(p,k) <= L[p]), k, none)

No term is greater than their maximum, so those above the next lower number are equal to it; a comparison with NaN is false. Where
a term is NaN so is M, of which `below` is inf: no number is greater. Of -inf it is NaN: then all terms are -inf. The limit of a
minimum is `above`.
"""

from __future__ import annotations

from msgspec import Struct, field

from polyker.ir.dtypes import bool_
from polyker.ir.expr import Call, Read
from polyker.ir.quasi_affine import indices
from polyker.ir.typed import TypedNode, TypedProgram, replaced
from polyker.poly.isl import dim, read_set
from polyker.rewrite.core.fresh import Fresh
from polyker.rewrite.searches.match_searches import Search, searches
from polyker.structs import replace


def search_limits(program: TypedProgram) -> tuple[TypedProgram, tuple[Search, ...]]:
    """Return the program whose searches compare once, and all its searches."""
    made = _Limits(program)
    found = tuple(made.search(search) for search in searches(program))
    return (made.program(), found) if made.limits else (program, found)


class _Limits(Struct, dict=True):
    """Makes the limits of extrema, one for each, and the searches that compare with them."""

    original: TypedProgram
    limits: dict[str, str] = field(default_factory=dict)  # the tensor of an extremum's limit, by the extremum's name
    nodes: dict[str, tuple[TypedNode, ...]] = field(default_factory=dict)  # what stands for a statement, by its name

    def __post_init__(self) -> None:
        self.fresh = Fresh(self.original)

    def program(self) -> TypedProgram:
        return self.fresh.finish(replaced(self.original.body, lambda s: self.nodes.get(s.name, (s,))))

    def search(self, search: Search) -> Search:
        """Return a search by a limit; the same one where it is not of floats, which are accumulated in f32 or f64."""
        extremum, place, acc = search.extremum, search.place, search.extremum.acc
        if acc.kind != "f":
            return search
        limit = Read(self.limit(search), search.best.subscripts, dtype=acc)
        passes = Call("le" if extremum.op == "max" else "ge", (search.term, limit), bool_)
        hit = Call("not", (passes,), bool_)
        assert isinstance(place.expr, Call)
        place = replace(place, expr=replace(place.expr, args=(hit, *place.expr.args[1:])))
        self.nodes[place.name] = (place,)
        return replace(search, place=place, hit=hit)

    def limit(self, search: Search) -> str:
        """Return the tensor of the numbers next to an extremum's, set where it is known."""
        extremum, acc = search.extremum, search.extremum.acc
        if extremum.name in self.limits:
            return self.limits[extremum.name]
        elements = extremum.iterators[: len(search.best.subscripts)]
        limit = self.fresh.temporary("limit", acc, self.original.tensor(search.best.tensor).shape)
        points = read_set(extremum.domain).reset_tuple_id().project_out(dim.set, len(elements), 1)
        element = indices(elements)
        beside = "below" if extremum.op == "max" else "above"
        value = Call(beside, (Read(search.best.tensor, element, dtype=acc),), acc)
        sets = self.fresh.sets(points, elements, (limit, element), value)
        self.nodes[extremum.name] = (extremum, sets)
        self.limits[extremum.name] = limit
        return limit
