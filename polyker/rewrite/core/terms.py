"""Group the terms of a reduction: the elements that hold them, the whole groups, and the remainder."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from msgspec import Struct

from polyker.cost.plan import values
from polyker.ir.dtypes import i64
from polyker.ir.expr import Expr, IndexExpr, Read, reads_in
from polyker.ir.quasi_affine import add, coefficients, indices_of, is_quasi_affine, lit, scale
from polyker.ir.typed import TypedProgram, TypedStatement
from polyker.poly.boxes import across, along, values_along
from polyker.poly.isl import Set, dim, read_map, read_set
from polyker.poly.scop import domain_text, image
from polyker.rewrite.core.fresh import Fresh
from polyker.rewrite.core.reindex import reindexed, renamed
from polyker.structs import replace


class FactorPlaces(Struct, frozen=True):
    """Where the elements of a factor lie: one place a dimension, over the statement's iterators; of the terms one by one.

    `read`: the only read, whose dimensions they are, with the place of each (None where it is fixed); None where the places are
    the iterators. `own`: the dimension of the terms alone, None where they share one with others.
    """

    places: tuple[Expr, ...]
    read: Read | None
    of: tuple[int | None, ...]
    own: int | None


def places_of(statement: TypedStatement, factor: Expr, term: str) -> FactorPlaces | None:
    """Return where a factor's elements lie, None where it does not depend on the term, or as no affine function."""
    used = indices_of(factor)
    if term not in used:
        return None
    reads = [r for r in dict.fromkeys(reads_in(factor)) if any(indices_of(s) for s in r.subscripts)]
    found = _dimensions(reads[0], term) if len(reads) == 1 else None
    inside = {i for r in reads for s in r.subscripts for i in indices_of(s)}
    bare = any(isinstance(e, IndexExpr) for e in values(factor))
    if found is not None and not bare and inside == used:
        return found
    names = [i for i in statement.iterators if i in used]
    return FactorPlaces(tuple(IndexExpr(i, i64) for i in names), None, (), names.index(term))


def _dimensions(read: Read, term: str) -> FactorPlaces | None:
    """Return the places along a read's dimensions: what one iterator alone walks has its values."""
    if not all(map(is_quasi_affine, read.subscripts)):
        return None
    often = [i for s in read.subscripts for i in indices_of(s)]
    places: list[Expr] = []
    of: list[int | None] = []
    own = None
    for s in read.subscripts:
        names = indices_of(s)
        if not names:
            of.append(None)
            continue
        if term in names and coefficients(s) is None:
            return None
        name = next(iter(names))
        alone = len(names) == 1 and often.count(name) == 1
        if alone and name == term:
            own = len(places)
        of.append(len(places))
        places.append(IndexExpr(name, i64) if alone else s)
    return FactorPlaces(tuple(places), read, tuple(of), own)


def elements_of(places: FactorPlaces, term: str, extent: Callable[[str], int], count: int) -> int:
    """Return how many elements of `count` terms a factor has."""
    total = 1
    for d, place in enumerate(places.places):
        parts = coefficients(place)
        if d == places.own:
            total *= -(-extent(term) // count)
        elif parts is None:
            total *= max(extent(i) for i in indices_of(place))
        else:
            total *= 1 + sum(abs(c) * (extent(i) - 1) for i, c in parts.items() if i in indices_of(place))
    return total


class BlockedTerms(Struct, frozen=True):
    """A reduction's terms taken `count` at a time: the values of `element`, each the first of as many terms from `low` on.

    `full`: the values that have all their terms; `partial`: those that have fewer, with their number. `statement`: over
    `element`; `rest`: the instances of the original statement whose terms are none of `full`.
    """

    term: str
    element: str
    count: int
    low: int
    full: Set
    partial: tuple[tuple[int, Set], ...]
    statement: TypedStatement
    rest: Set

    def at(self, place: Expr, part: int) -> Expr:
        """Return the value of a term."""
        return add(scale(self.count, place), lit(self.low + part))


def terms_by(
    program: TypedProgram, fresh: Fresh, statement: TypedStatement, term: str, count: int
) -> BlockedTerms | None:
    """Return a reduction's terms `count` at a time, None where they are not the same ones for all results, without gaps."""
    domain = read_set(statement.domain)
    context = read_set(program.context)
    d = statement.iterators.index(term)
    values = values_along(domain, d)
    low = values.dim_min_val(0)
    if not low.is_int() or not along(domain, d, values).is_subset(domain):
        return None
    least = low.get_num_si()
    having = [values.apply(read_map(f"{{ [x] -> [q] : x = {least + p} + {count} q }}")) for p in range(count)]
    if not all(b.is_subset(a) for a, b in pairwise(having)):
        return None
    partial = [(p, having[p - 1].subtract(having[p]).coalesce()) for p in range(1, count)]
    element = fresh.iterator()
    iterators = tuple(element if i == term else i for i in statement.iterators)
    group = f"{count} {element} <= {term} - {least} < {count} {element} + {count}"
    points = image(program, statement, iterators, where=group).coalesce()
    reduced = tuple(element if i == term else i for i in statement.reduced)
    changed = reindexed(statement, iterators, points, {}, reduced=reduced)
    left = tuple((p, s) for p, s in partial if not s.intersect_params(context).is_empty())
    full = having[-1].coalesce()
    those = full.apply(read_map(f"{{ [q] -> [x] : {least} + {count} q <= x < {least} + {count} q + {count} }}"))
    rest = where(domain, d, values.subtract(those))
    return BlockedTerms(term, element, count, least, full, left, changed, rest.coalesce())


def whole_groups(terms: BlockedTerms) -> BlockedTerms:
    """Return the terms without those that make no whole group."""
    d = terms.statement.iterators.index(terms.element)
    domain = where(read_set(terms.statement.domain), d, terms.full)
    return replace(terms, statement=replace(terms.statement, domain=str(domain.coalesce())), partial=())


def remainder(fresh: Fresh, statement: TypedStatement, terms: BlockedTerms) -> TypedStatement:
    """Return the statement for the terms that make no whole group, one by one."""
    own = fresh.statement()
    made = renamed(statement, {i: fresh.iterator() for i in statement.iterators})
    return replace(made, name=own, domain=domain_text(terms.rest, own))


def where(elements: Set, dimension: int, values: Set) -> Set:
    """Return the elements whose place along a dimension is one of the values."""
    count, name = elements.dim(dim.set), elements.get_tuple_name()
    box = across(values, dimension, count)
    return elements.intersect(box.set_tuple_name(name) if name else box)
