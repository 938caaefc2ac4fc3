"""Which bare names are indices, which are sizes, which are 0-d tensors.

A name is one of the three in the whole program. It is a tensor if it is subscripted, assigned or declared with a type.
It is a size if it stands in a declared shape, is among the sizes given by value, or is a parameter without a type that
stands in a subscript, bound or condition. Any other name in a subscript is an index if it
 1. is given by `for`, by a loop or by an inline reduction,
 2. or stands alone in a subscript (`X[i]`),
 3. or stands in subscripts on both sides of one statement, or on the right of a reduction, and in no bound of a range
    (`O[i+j] = X[2*i] * Y[3*j]`, `s += X[2*i]`),
and else a size, as is every other name in a bound or condition: N in `R[i] = X[N-1-i]`, and in
`... for i in 0:N`. A size that no declared shape gives is given by keyword, `N=4`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from enum import Enum
from typing import assert_never

from msgspec import Struct

from polyker.einsum_frontend.syntax import Syntax
from polyker.errors.base import Span, failure
from polyker.errors.syntax import INDEX_AS_TENSOR, NOT_IN_SCOPE, REUSED, SIZE_AS_INDEX, TENSOR_AS_INDEX, TENSOR_NEEDED
from polyker.ir.expr import Call, Cast, Dots, Expr, IndexExpr, Literal, Range, Read, Reduce, SizeExpr, rebuild, walk
from polyker.ir.program import Declared, Loop, Node, Statement
from polyker.structs import replace


class NamePlace(Enum):
    """Where a bare name stands."""

    ALONE = "a bare subscript"
    SUBSCRIPT = "a subscript"
    BOUND = "a bound"
    WHERE = "a condition"
    SHAPE = "a shape"
    BINDER = "a range"
    VALUE = "an expression"


class Occurrence(Struct, frozen=True):
    """A bare name where it stands; `free` if no inline reduction around it gives it."""

    name: str
    place: NamePlace
    free: bool
    span: Span | None


class Kinds(Struct, frozen=True):
    """What the names of a program are; a name in none of the sets that stands bare in an expression is a 0-d tensor."""

    indices: frozenset[str]
    sizes: frozenset[str]
    tensors: frozenset[str]


def occurrences(expr: Expr, place: NamePlace, bound: frozenset[str] = frozenset()) -> Iterator[Occurrence]:
    """Yield the bare names of an expression in the order of the text."""
    match expr:
        case IndexExpr(name=name, span=span):
            yield Occurrence(name, place, name not in bound, span)
        case Read(subscripts=subscripts):
            for subscript in subscripts:
                alone = isinstance(subscript, IndexExpr)
                yield from occurrences(subscript, NamePlace.ALONE if alone else NamePlace.SUBSCRIPT, bound)
        case Reduce(ranges=ranges, body=body, conditions=conditions):
            inner = bound | {r.index for r in ranges}
            for extent in ranges:
                yield from of_range(extent, inner)
            yield from occurrences(body, place, inner)
            for condition in conditions:
                yield from occurrences(condition, NamePlace.WHERE, inner)
        case Call(args=args):
            for arg in args:
                yield from occurrences(arg, place, bound)
        case Cast(arg=arg):
            yield from occurrences(arg, place, bound)
        case Literal() | SizeExpr() | Dots():
            return
        case _:
            assert_never(expr)


def of_range(extent: Range, bound: frozenset[str] = frozenset()) -> Iterator[Occurrence]:
    """Yield the index that a range gives, and the names in its bounds."""
    yield Occurrence(extent.index, NamePlace.BINDER, extent.index not in bound, extent.span)
    for limit in (extent.lo, extent.hi):
        if limit is not None:
            yield from occurrences(limit, NamePlace.BOUND, bound)


def of_target(statement: Statement) -> Iterator[Occurrence]:
    """Yield the names in the subscripts of the left side."""
    return occurrences(Read(statement.target, statement.subscripts), NamePlace.VALUE)


def of_clauses(statement: Statement) -> Iterator[Occurrence]:
    """Yield the names in `for` and `where`."""
    for extent in statement.ranges:
        yield from of_range(extent)
    for condition in statement.conditions:
        yield from occurrences(condition, NamePlace.WHERE)


def classify(syntax: Syntax, given: Collection[str], indices: Collection[str] = ()) -> Kinds:
    """Return what each name of the program is; `given` are sizes and `indices` indices, wherever they stand.

    Raises ParseError where a name is of two kinds.
    """
    tensors = _tensors(syntax)
    everything = list(_all_occurrences(syntax.body))
    integral = {o.name for o in everything if o.place not in (NamePlace.VALUE, NamePlace.BINDER)}
    sizes = set(given)
    for declared in _declared(syntax):
        for dimension in declared.shape or ():
            sizes |= {o.name for o in occurrences(dimension, NamePlace.SHAPE)}
    parameters = syntax.header.parameters if syntax.header else ()
    sizes |= {p.name for p in parameters if p.name in (integral | sizes) and p.name not in tensors}
    found = (_indices(syntax.body, everything) | set(indices)) - sizes
    sizes |= integral - found
    kinds = Kinds(frozenset(found), frozenset(sizes), frozenset(tensors))
    _check_disjoint(kinds, syntax, everything, set(given))
    return kinds


def _tensors(syntax: Syntax) -> set[str]:
    tensors = {d.name for d in _declared(syntax) if d.dtype is not None or d.shape is not None}
    if syntax.header:
        tensors |= {d.name for d in syntax.header.outputs}
    for statement in _statements(syntax.body):
        tensors.add(statement.target)
        for expr in (*statement.subscripts, statement.expr, *statement.conditions):
            tensors |= {e.tensor for e in _walk_reads(expr)}
    return tensors


def _declared(syntax: Syntax) -> tuple[Declared, ...]:
    header = syntax.header
    return (*header.parameters, *header.outputs, *syntax.types) if header else syntax.types


def _walk_reads(expr: Expr) -> Iterator[Read]:
    return (e for e in walk(expr) if isinstance(e, Read))


def _statements(body: tuple[Node, ...]) -> Iterator[Statement]:
    for node in body:
        if isinstance(node, Loop):
            yield from _statements(node.body)
        else:
            yield node


def _all_occurrences(body: tuple[Node, ...]) -> Iterator[Occurrence]:
    for node in body:
        if isinstance(node, Loop):
            yield from of_range(node.range)
            yield from _all_occurrences(node.body)
        else:
            yield from of_target(node)
            yield from occurrences(node.expr, NamePlace.VALUE)
            yield from of_clauses(node)


def _indices(body: tuple[Node, ...], everything: list[Occurrence]) -> set[str]:
    """Return the names that rules 1 to 3 make indices."""
    bounds = {o.name for o in everything if o.place is NamePlace.BOUND}
    found = {o.name for o in everything if o.place in (NamePlace.BINDER, NamePlace.ALONE)}
    for statement in _statements(body):
        left = {o.name for o in of_target(statement)}
        parts = (o for e in (statement.expr, *statement.conditions) for o in occurrences(e, NamePlace.VALUE))
        right = {o.name for o in parts if o.place is NamePlace.SUBSCRIPT}
        found |= (right if statement.op != "set" else left & right) - bounds
    return found


def _check_disjoint(kinds: Kinds, syntax: Syntax, everything: list[Occurrence], given: set[str]) -> None:
    assigned = {s.target for s in _statements(syntax.body)} | {d.name for d in _declared(syntax)}
    for o in everything:
        if o.name in kinds.sizes and o.place is NamePlace.BINDER:
            raise failure(SIZE_AS_INDEX, span=o.span, name=o.name)
        if o.place in (NamePlace.ALONE, NamePlace.BINDER) and o.name in kinds.tensors - assigned:
            first = next(r for s in _statements(syntax.body) for r in s.reads() if r.tensor == o.name)
            raise failure(INDEX_AS_TENSOR, span=first.span, name=o.name)
        if o.name in kinds.tensors and o.place is not NamePlace.VALUE:
            hint = (
                None
                if o.place in (NamePlace.ALONE, NamePlace.SUBSCRIPT)
                else "a size has a name of its own, and no type"
            )
            raise failure(TENSOR_AS_INDEX, span=o.span, hint=hint, name=o.name, place=o.place.value)
    for declared in _declared(syntax):
        if declared.name in kinds.tensors & kinds.sizes:
            raise failure(TENSOR_NEEDED, span=declared.span, name=declared.name, kind="a size")
    for statement in _statements(syntax.body):
        read = {r.tensor for e in (statement.expr, *statement.conditions) for r in _walk_reads(e)}
        clash = ({statement.target} | read) & (given | kinds.sizes)
        if clash:
            raise failure(TENSOR_NEEDED, span=statement.span, name=min(clash), kind="a size")


# Putting the kinds into the expressions.


def resolve(expr: Expr, kinds: Kinds, scope: frozenset[str], place: NamePlace = NamePlace.VALUE) -> Expr:
    """Return `expr` with every bare name as an Index, a Size or a Read of a 0-d tensor.

    `scope` are the indices that have a value where the expression stands.
    Raises ShapeError at an index outside its scope, and ParseError where an inline reduction uses an index around it.
    """
    match expr:
        case IndexExpr(name=name, span=span):
            if name in scope:
                return expr
            if name in kinds.indices:
                raise _no_value(expr, place)
            if name in kinds.sizes or place is not NamePlace.VALUE:
                return SizeExpr(name, span=span)
            return Read(name, (), span=span)
        case Read():
            return rebuild(expr, lambda e: resolve(e, kinds, scope, NamePlace.SUBSCRIPT))
        case Reduce(ranges=ranges):
            for extent in ranges:
                if extent.index in scope:
                    raise failure(REUSED, span=extent.span, index=extent.index, what="reduction")
            inner = scope | {r.index for r in ranges}
            return replace(
                expr,
                ranges=tuple(resolve_range(r, kinds, inner) for r in ranges),
                body=resolve(expr.body, kinds, inner, place),
                conditions=tuple(resolve(c, kinds, inner, NamePlace.WHERE) for c in expr.conditions),
            )
        case _:
            return rebuild(expr, lambda e: resolve(e, kinds, scope, place))


def resolve_range(extent: Range, kinds: Kinds, scope: frozenset[str]) -> Range:
    """Return a range with the names in its bounds resolved."""
    lo, hi = (None if e is None else resolve(e, kinds, scope, NamePlace.BOUND) for e in (extent.lo, extent.hi))
    return replace(extent, lo=lo, hi=hi)


def _no_value(index: IndexExpr, place: NamePlace) -> Exception:
    name = index.name
    why, advice = "it is an index of another statement", f"give it here too, as a subscript or with for {name} in ..."
    if place in (NamePlace.WHERE, NamePlace.BOUND):
        why = "it is an index of an inline reduction or of another statement"
        advice = f"a condition on an inline reduction stands inside it: sum[{name}](... where {name} ...)"
    return failure(NOT_IN_SCOPE, span=index.span, index=name, why=why, advice=advice)
