"""Describe the statements that may be fused, and which iterators of two of them correspond.

An item is a statement, with the one that starts it where it is a reduction. Two items can share a loop if one iterator of
each can be its time: of two instances that touch one element, the one that the text runs first comes in the same iteration, or in
an earlier one. Mostly the subscripts show it; else isl computes the distances.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property

import islpy as isl
from msgspec import Struct, field

from polyker.cost.measure import MeasuredStatement
from polyker.cost.plan import TilePlan
from polyker.ir.expr import IndexExpr
from polyker.ir.quasi_affine import indices_of
from polyker.ir.typed import TypedProgram, TypedStatement
from polyker.poly.isl import read_map, read_set
from polyker.poly.scop import access_relation, parameters
from polyker.poly.touches import Touch, alone, touches
from polyker.structs import replace


class Item(Struct, frozen=True, eq=False, dict=True):
    """A statement; `start` sets the result of a reduction to its identity before it, `epilogue` reads each result after it.

    `make_free` and `make_measured` give what costs time to find, when it is asked for.
    """

    statement: TypedStatement
    start: TypedStatement | None
    reduces: bool
    make_free: Callable[[], tuple[str, ...]]
    make_measured: Callable[[], MeasuredStatement]
    epilogue: TypedStatement | None = None
    # Whether loops run in order, so that one may carry what a statement reads of its own elements.
    in_order: bool = False
    # Tiles that the model chose for it inside some loops, by these and by the tensors that may be copied before them.
    plans: dict[tuple[tuple[str, ...], frozenset[str] | None], TilePlan] = field(default_factory=dict)

    @cached_property
    def free(self) -> tuple[str, ...]:
        """The iterators that may be moved outside all others of the statement."""
        return self.make_free()

    @cached_property
    def carried(self) -> str | None:
        """The iterator that is outermost in the text's order and carries what the statement reads of its own elements, None for
        another: a loop over it may stand outside all others in that order."""
        s = self.statement
        first = s.iterators[s.outer] if len(s.iterators) > s.outer else None
        steps = self.in_order and not self.reduces and s.op == "set" and s.reads_own
        return first if steps and first not in self.free else None

    @cached_property
    def loops(self) -> tuple[str, ...]:
        """The iterators whose loops may be shared with others."""
        return self.free if self.carried is None else (self.carried, *self.free)

    @cached_property
    def measured(self) -> MeasuredStatement:
        """The strides and extents."""
        return self.make_measured()

    @cached_property
    def touches(self) -> tuple[Touch, ...]:
        """The accesses; the start of a reduction may write more elements than its terms reach."""
        first, *rest = touches(self.statement)
        last = touches(self.epilogue) if self.epilogue is not None else ()
        return (replace(first, everywhere=self.start is not None), *rest, *last)

    @cached_property
    def writes(self) -> frozenset[str]:
        """The tensors written."""
        return frozenset(t.tensor for t in self.touches if t.is_write)

    @cached_property
    def tensors(self) -> frozenset[str]:
        """The tensors read or written."""
        return frozenset(t.tensor for t in self.touches)

    def of_start(self, iterators: Iterable[str]) -> tuple[str, ...]:
        """Return the iterators of a reduction's start that have the place of the reduction's own in the target."""
        assert self.start is not None
        places = {s.name: n for n, s in enumerate(self.statement.subscripts) if isinstance(s, IndexExpr)}
        names = [s.name for s in self.start.subscripts if isinstance(s, IndexExpr)]
        return tuple(names[places[i]] for i in iterators)

    def conflicts(self, other: Item) -> bool:
        """Whether the text's order of the two matters."""
        return bool(self.writes & other.tensors or other.writes & self.tensors)


def are_apart(program: TypedProgram, first: Item, second: Item) -> bool:
    """Whether two items touch no element in common that one of them writes."""
    return all(
        one.tensor != other.tensor or not (one.is_write or other.is_write) or _are_apart(program, one, other)
        for one in first.touches
        for other in second.touches
    )


def _are_apart(program: TypedProgram, one: Touch, other: Touch) -> bool:
    exact = one.exact and other.exact
    return exact and _elements(program, one).range().is_disjoint(_elements(program, other).range())


def _elements(program: TypedProgram, touch: Touch) -> isl.Map:
    """Return the element of each instance of an access."""
    relation = read_map(access_relation(program, touch.statement, touch.tensor, touch.subscripts))
    return relation if touch.everywhere else relation.intersect_domain(read_set(touch.statement.domain))


class Lag(Struct, frozen=True):
    """How two iterators move together: of two instances that touch one element, the first item's is at most `most` later.

    `exact`: always by as much.
    """

    most: int
    exact: bool

    def with_(self, other: Lag | None) -> Lag:
        """Return what holds of the instances of both."""
        if other is None:
            return self
        return Lag(max(self.most, other.most), self.exact and other.exact and self.most == other.most)


# Most iterations of a common loop by which a statement may lag behind one that it reads: their values wait in a buffer
# (experience value).
MAX_LAG = 64


def follows(program: TypedProgram, first: Item, a: str, second: Item, b: str) -> Lag | None:
    """Return by how much loops over the first item's iterator `a` and the second's `b` can be one loop, the first item's part
    before and the second's so much later; None if not."""
    together: Lag | None = None
    for one in first.touches:
        for other in second.touches:
            if one.tensor != other.tensor or not (one.is_write or other.is_write):
                continue
            found = _step(program, one, a, other, b)
            if found is None or found.most > MAX_LAG:
                return None
            together = found.with_(together)
    return Lag(0, True) if together is None else together


def walks_with(first: Item, a: str, second: Item, b: str) -> bool:
    """Whether some tensor that both access is walked alike by the two iterators, but for few elements, and none differently."""
    found = False
    for one in first.touches:
        for other in second.touches:
            if one.tensor == other.tensor:
                lag = _lag(one, a, other, b)
                if lag is not None and abs(lag) <= MAX_LAG:
                    found = True
                elif _uses(one, a) or _uses(other, b):
                    return False
    return found


def _uses(touch: Touch, iterator: str) -> bool:
    return any(iterator in indices_of(s) for s in touch.subscripts)


def _lag(one: Touch, a: str, other: Touch, b: str) -> int | None:
    """Return by how much `a` is greater than `b` where the two touch one element, None if the subscripts do not show it."""
    if one.exact and other.exact:
        for s, t in zip(one.subscripts, other.subscripts, strict=True):
            here, there = alone(s), alone(t)
            if here is not None and there is not None and (here[0], there[0]) == (a, b):
                return there[1] - here[1]
    return None


def _step(program: TypedProgram, one: Touch, a: str, other: Touch, b: str) -> Lag | None:
    """Return how much later the first iterator may be of two accesses of one element; None if nothing is known."""
    lag = _lag(one, a, other, b)
    if lag is not None:
        return Lag(lag, True)
    if not (one.exact and other.exact and _uses(one, a) and _uses(other, b)):
        return None
    head = parameters(program)
    pairs = _elements(program, one).apply_range(_elements(program, other).reverse())
    left = ", ".join(one.statement.iterators)
    right = ", ".join(f"{i}_" for i in other.statement.iterators)
    names = f"{one.statement.name}[{left}] -> {other.statement.name}[{right}]"
    later = pairs.wrap().apply(read_map(f"{head}{{ [{names}] -> [{a} - {b}_] }}"))
    if later.is_empty():
        return Lag(0, True)
    most, least = later.dim_max_val(0), later.dim_min_val(0)
    return Lag(most.get_num_si(), bool(most.eq(least))) if most.is_int() else None
