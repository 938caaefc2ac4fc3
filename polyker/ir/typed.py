"""The typed program: bound to element types and to sizes (fixed or symbolic), with exact iteration domains.

Names are generated, so no name of the user's reaches isl, LLVM or CUDA: tensors `t0 t1 …`, sizes `n0 n1 …`, iterators
`i0 i1 …` (unique in the program; a loop's iterator is shared by the statements in it), statements `S0 S1 …`.
Labels keep the user's names, for messages and printing alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from functools import cached_property
from typing import TypeAlias

from msgspec import Struct

from polyker.errors.base import Span
from polyker.ir.dtypes import DType
from polyker.ir.expr import Expr, Read, reads_in, walk
from polyker.ir.quasi_affine import substitute
from polyker.structs import PartlyCompared, replace

# The extent of a temporary of which buffers hold parts: whatever its elements are, no array of it is made.
UNBOUNDED_EXTENT = 1 << 20


class Role(Enum):
    """What a tensor is to the caller. INOUT starts from the argument's values (the caller's array is copied first)."""

    INPUT = "input"
    OUTPUT = "output"
    INOUT = "inout"
    TEMPORARY = "temporary"


class Outside(PartlyCompared, frozen=True):
    """What a gather outside a tensor means where it is no wrong index: an error's code and values."""

    code: str
    values: tuple[tuple[str, str], ...]
    span: Span | None = None


class TypedTensor(Struct, frozen=True):
    """A tensor with its type; extents are `Literal`s, or quasi-affine expressions over `Size`s.

    `limits`: of an argument that is a Python integer, the least and the greatest value that it may have, where it is
    converted to narrower integers: numpy refuses those that do not fit (NEP 50). `outside`: see Outside.
    """

    name: str
    label: str
    dtype: DType
    shape: tuple[Expr, ...]
    role: Role
    limits: tuple[int, int] | None = None
    outside: Outside | None = None


class PrefetchRead(Struct, frozen=True):
    """An element that will be used, and the cache that its line is brought into, 1 the nearest; it need not exist."""

    read: Read
    cache: int = 1


class TypedStatement(PartlyCompared, frozen=True):
    """One statement over its exact domain.

    `iterators`: in execution order; the iterators of the loops around it come first (`outer` of them). The instance order
    within the statement is lexicographic in `iterators`. `domain`: isl text, `[n0] -> { S0[i0, i1] : … }`, one tuple
    dimension an iterator. `reduced`: the iterators that the target's element does not depend on by being its index, that is
    those that stand only on the right of a reduction. `expr` has dtype `acc`; what is stored is converted to the target's.
    With op "set" the target is assigned; else it is combined (add, mul, max, min, any, all, and logsumexp
    until polyker.rewrite.normalise.log_sums).

    `defines`: for a reduction, isl text of the target's elements `{ t2[c0] : … }` that start at its identity where nothing
    defined them before, also those that its `for` or `where` leaves out; None for all elements. It tells reductions into
    one tensor apart: in `T[i] max= A[i]; T[j] += B[j]` an element that only the second reaches starts at 0.

    `prefetch`: what each instance prefetches for a later one. `in_order`: of a reduction, its terms are combined with
    the element one by one in the order of the text; what it reads of the target are other elements. `regroups`: of a recurrence
    `element = earlier element op term`, its terms may be combined in any grouping. `seldom`: of a reduction, the iterators that
    alone decide whether its terms are identities, which for most of their values they are.
    """

    name: str
    iterators: tuple[str, ...]
    outer: int
    domain: str
    target: str
    subscripts: tuple[Expr, ...]
    op: str
    expr: Expr
    acc: DType
    reduced: tuple[str, ...] = ()
    span: Span | None = None
    defines: str | None = None
    prefetch: tuple[PrefetchRead, ...] = ()
    in_order: bool = False
    regroups: bool = False
    seldom: frozenset[str] = frozenset()

    def reads(self) -> Iterator[Read]:
        """Yield what is read, for the value and for subscripts, gathers' too; equal reads again and again."""
        return reads_in(self.expr, *self.subscripts)

    @property
    def kept(self) -> tuple[str, ...]:
        """The iterators that are not reduced."""
        return tuple(i for i in self.iterators if i not in self.reduced)

    def rewritten(self, change: Callable[[Expr], Expr]) -> TypedStatement:
        """Return the statement with its value and its subscripts changed."""
        return replace(self, expr=change(self.expr), subscripts=tuple(map(change, self.subscripts)))

    def substituted(self, values: Mapping[str, Expr]) -> TypedStatement:
        """Return the statement with indices replaced in its value and its subscripts; the domain stays."""
        return self.rewritten(lambda e: substitute(e, values))

    @property
    def reads_own(self) -> bool:
        """Whether it reads the tensor that it writes, a reduction's own update apart."""
        return any(r.tensor == self.target for r in self.reads())

    @property
    def scatters(self) -> bool:
        """Whether `=` writes at gathered places: of the instances that write one element the last counts."""
        return self.op == "set" and any(isinstance(e, Read) for s in self.subscripts for e in walk(s))

    @property
    def is_ordered(self) -> bool:
        """Whether the order of its instances may matter, apart from that of a reduction's terms."""
        return self.reads_own or self.scatters


class TypedLoop(Struct, frozen=True):
    """A sequential loop: every statement inside has `iterator` at the loop's depth; the domains hold its bounds."""

    iterator: str
    body: tuple[TypedNode, ...]


TypedNode: TypeAlias = TypedStatement | TypedLoop


def statements_of(body: Iterable[TypedNode]) -> Iterator[TypedStatement]:
    """Yield the statements of a body in order, those inside loops too."""
    for node in body:
        if isinstance(node, TypedLoop):
            yield from statements_of(node.body)
        else:
            yield node


def replaced(
    body: Iterable[TypedNode], change: Callable[[TypedStatement], Iterable[TypedNode]]
) -> tuple[TypedNode, ...]:
    """Return a body with each statement, inside loops too, replaced by what `change` makes of it."""
    found: list[TypedNode] = []
    for node in body:
        if isinstance(node, TypedLoop):
            found.append(replace(node, body=replaced(node.body, change)))
        else:
            found.extend(change(node))
    return tuple(found)


class Check(PartlyCompared, frozen=True):
    """A condition on the sizes that has to hold at the call: an isl parameter set, and the error otherwise.

    `code` and `values` go to `polyker.errors.failure`.
    """

    condition: str
    code: str
    values: tuple[tuple[str, str], ...] = ()
    span: Span | None = None


class TypedProgram(Struct, frozen=True, dict=True):
    """A program for given element types and sizes. `sizes` are the symbolic ones as (name, label), none if all are fixed;
    `products` those of them that the compiler made: the product of two others. `likely`: values that sizes are expected to
    have, which costs are reckoned with; what is compiled is right for all.

    `context` is an isl parameter set that holds of the sizes, such as `[n0] -> { : n0 >= 0 }`.
    """

    tensors: tuple[TypedTensor, ...]
    sizes: tuple[tuple[str, str], ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    body: tuple[TypedNode, ...]
    context: str
    checks: tuple[Check, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()  # iterator -> the user's name
    products: tuple[tuple[str, tuple[str, str]], ...] = ()
    likely: tuple[tuple[str, int], ...] = ()

    def tensor(self, name: str) -> TypedTensor:
        """Return the tensor of that (generated) name."""
        return self._by_name[name]

    @cached_property
    def _by_name(self) -> dict[str, TypedTensor]:
        return {t.name: t for t in self.tensors}

    def statements(self) -> Iterator[TypedStatement]:
        """Yield the statements in order, those inside loops too."""
        return statements_of(self.body)
