"""Match statements that compute the same values up to the names of indices, and map the elements of their results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import permutations

import islpy as isl
from msgspec import Struct

from polyker.ir.expr import Expr
from polyker.ir.quasi_affine import add, coefficients, is_quasi_affine, lit
from polyker.ir.typed import TypedProgram, TypedStatement
from polyker.poly.isl import read_map, read_set, union_of
from polyker.poly.scop import access_relation, elements_written, image
from polyker.poly.touches import alone
from polyker.rewrite.core.match import match

# Most dimensions of which all orders are tried: 24 (chosen).
MAX_PERMUTED_DIMS = 4

# The iterator of one statement -> that of another.
TensorNames = Mapping[str, str]


class Elements(Struct, frozen=True):
    """Where an element of one tensor lies in another: dimension d there is dimension `order[d]` here, plus `offsets[d]`."""

    order: tuple[int, ...]
    offsets: tuple[int, ...]

    @property
    def same(self) -> bool:
        """Whether each element has the same place in both."""
        return self.order == tuple(range(len(self.order))) and not any(self.offsets)

    def place(self, subscripts: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """Return the subscripts of an element there."""
        moved = zip(self.order, self.offsets, strict=True)
        return tuple(add(subscripts[d], lit(n)) if n else subscripts[d] for d, n in moved)

    def back(self) -> Elements:
        """Return where an element of the other lies in the one."""
        order = tuple(self.order.index(d) for d in range(len(self.order)))
        return Elements(order, tuple(-self.offsets[d] for d in order))


def alike(one: TypedStatement, other: TypedStatement) -> Iterator[tuple[TensorNames, Elements]]:
    """Yield the ways in which one statement is the other: names for its iterators, and where its target has the other's elements.

    Domains are not looked at. A statement that reads its own target, or adds in the order of the text, keeps its order.
    """
    kinds = [(s.op, s.acc, s.in_order, s.outer, len(s.iterators), len(s.subscripts)) for s in (one, other)]
    if kinds[0] != kinds[1] or one.iterators[: one.outer] != other.iterators[: other.outer]:
        return
    tensors = {one.target: other.target}
    known = match(one.expr, other.expr, {i: i for i in one.iterators[: one.outer]}, tensors)
    if known is None:
        return
    ordered = one.in_order or one.is_ordered
    rank = len(one.subscripts)
    for order in permutations(range(rank)) if rank <= MAX_PERMUTED_DIMS and not ordered else [tuple(range(rank))]:
        names: TensorNames | None = known
        offsets = []
        for d, o in enumerate(order):
            step = None if names is None else _offset(one.subscripts[d], other.subscripts[o], names, tensors)
            if step is None:
                break
            names = step[0]
            offsets.append(step[1])
        if names is None or len(offsets) < rank:
            continue
        left = [i for i in other.iterators if i not in names.values()]
        names = {**names, **dict(zip((i for i in one.iterators if i not in names), left, strict=False))}
        if set(names) != set(one.iterators) or set(names.values()) != set(other.iterators):
            continue
        elements = Elements(order, tuple(offsets))
        kept = tuple(names[i] for i in one.iterators) == other.iterators and elements.same
        if {names[i] for i in one.reduced} == set(other.reduced) and (kept or not ordered):
            yield names, elements


def _offset(here: Expr, there: Expr, names: TensorNames, tensors: TensorNames) -> tuple[TensorNames, int] | None:
    """Return names with which one subscript is another plus a constant, and the constant."""
    one, other = ((alone(e), is_quasi_affine(e)) for e in (here, there))
    if one[0] is not None and other[0] is not None:
        (i, a), (j, b) = one[0], other[0]
        return ({**names, i: j}, a - b) if names.get(i, j) == j else None
    if one[1] and other[1]:
        parts, others = coefficients(here), coefficients(there)
        if parts is not None and others is not None:
            renamed = {names.get(i, i): n for i, n in parts.items() if n}
            wanted = {i: n for i, n in others.items() if n}
            step = renamed.pop("", 0) - wanted.pop("", 0)
            return (names, step) if renamed == wanted else None
    found = match(here, there, names, tensors)
    return None if found is None else (found, 0)


def points_as(program: TypedProgram, one: TypedStatement, other: TypedStatement, names: TensorNames) -> isl.Set:
    """Return the points of one statement, as the other names them."""
    own = {there: here for here, there in names.items()}
    return image(program, one, (own[i] for i in other.iterators), other.name)


def same_terms(program: TypedProgram, pairs: list[tuple[TypedStatement, TypedStatement, TensorNames]]) -> bool | None:
    """Whether each element that the second statements of `pairs` define has the same terms in the first.

    None: it has, and these define other elements, too.
    """
    context = read_set(program.context)
    every = union_of(elements_written(program, other) for _, other, _ in pairs)
    whole = True
    for one, other, names in pairs:
        terms, own = points_as(program, one, other, names), read_set(other.domain).intersect_params(context)
        terms = terms.intersect_params(context)
        if terms.is_equal(own):
            continue
        access = read_map(access_relation(program, other, other.target, other.subscripts))
        # Of iterations of a loop, one may change an element that the other keeps.
        if other.outer or not terms.intersect(access.intersect_range(every).domain()).is_equal(own):
            return False
        whole = False
    return True if whole else None
