"""Transpose the tensors of recurrences along the contiguous dimension, so that vectors run along another one.

Before: `Y[j,i] = X[j,i] + maximum(Y[j-1,i-1], Y[j+1,i-1])  for i in 1:N, j in 1:M`, where the recurrence
is carried along a row. After, with rows of j: `A[i,j] = X[j,i];  B[i,j] = A[i,j] + maximum(B[i-1,j-1], B[i-1,j+1]);  Y[j,i] =
B[i,j]`.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from msgspec import Struct, field

from polyker.ir.decision import Decision
from polyker.ir.expr import Expr, Literal, Read, Reduce, reads_in, transform
from polyker.ir.layout import Layout
from polyker.ir.quasi_affine import coefficients, indices, indices_of, is_quasi_affine
from polyker.ir.typed import Role, TypedLoop, TypedNode, TypedProgram, TypedStatement, replaced, statements_of
from polyker.poly.boxes import ends
from polyker.poly.isl import dim, read_map, read_set
from polyker.poly.scop import access_relation, domain_text, tensor_box
from polyker.rewrite.core.fresh import Fresh
from polyker.rewrite.normalise.argument_order import permuted
from polyker.structs import replace

# Least extent of the dimension that becomes the last; least elements of the whole tensor (experience values).
MIN_LAST_EXTENT, MIN_TENSOR_ELEMENTS = 16, 1024
# Tensors that are copied, at most: a copy of an element takes a third of a nanosecond, a step of a chain one or two.
MAX_TRANSPOSED_TENSORS = 4

# Tensor -> its dimensions in the order of the transposed one.
_Orders = dict[str, tuple[int, ...]]


def transpose_recurrences(
    program: TypedProgram, layout: Callable[[str], Layout], budget: int | None = None
) -> tuple[TypedProgram, tuple[Decision, ...]]:
    """Return the program with such recurrences in transposed tensors, and what was done in words.

    `budget`: bytes that the transposed tensors of one may take, if there is a limit.
    """
    found = _Turned(program, layout, budget)
    body: list[TypedNode] = []
    for n, node in enumerate(program.body):
        body += found.node(n, node)
    return (found.fresh.finish(tuple(body)) if found.notes else program), tuple(found.notes)


class _Turned(Struct, dict=True):
    program: TypedProgram
    layout: Callable[[str], Layout]
    budget: int | None = None
    notes: list[Decision] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.fresh = Fresh(self.program)

    def node(self, n: int, node: TypedNode) -> list[TypedNode]:
        """Return the statements of a node of the program's body, with copies around them where they are transposed.

        Where a loop is not transposed as a whole its statements may be, in each iteration.
        """
        before, after = list(statements_of(self.program.body[:n])), list(statements_of(self.program.body[n + 1 :]))
        found = self._transpose(node, lambda t: self._has_values(t, before), lambda t: self._is_needed(t, after))
        if found is not None:
            return found
        if not isinstance(node, TypedLoop):
            return [node]
        return list(replaced((node,), lambda s: self._transpose(s, lambda _: True, lambda _: True) or [s]))

    def _transpose(
        self, node: TypedNode, has_values: Callable[[str], bool], is_needed: Callable[[str], bool]
    ) -> list[TypedNode] | None:
        """Return a node in transposed tensors, with the copies before and after it; None where it is not to be transposed.

        `has_values`, `is_needed`: whether elements of a tensor that the node writes are set before, and used later.
        """
        inside = list(statements_of((node,)))
        found = ((s, t) for s in inside if (t := self._orders(s, inside, isinstance(node, TypedLoop))))
        statement, orders = next(found, (None, {}))
        if statement is None:
            return None
        written = {s.target for s in inside}
        first = [t for t in orders if t not in written or has_values(t)]
        last = [t for t in orders if t in written and is_needed(t)]
        if len(first) + len(last) > MAX_TRANSPOSED_TENSORS or (
            self.budget is not None and sum(map(self._bytes, orders)) > self.budget
        ):
            return None
        names = {t: self._transposed(t, order) for t, order in orders.items()}
        if not isinstance(node, TypedLoop):
            node = _rows_last(statement, orders[statement.target][-1])
        label = self.program.tensor(statement.target).label
        self.notes.append(Decision(statement.name, f"goes along {label}, which is transposed"))
        (moved,) = replaced((node,), lambda s: [permuted(s, orders, names)])
        around = None if isinstance(node, TypedLoop) else statement
        copies_in = [self._copy(t, orders[t], names[t], around, back=False) for t in first]
        copies_out = [self._copy(t, orders[t], names[t], around, back=True) for t in last]
        return [*copies_in, moved, *copies_out]

    def _orders(self, statement: TypedStatement, inside: list[TypedStatement], steps: bool) -> _Orders | None:
        """Return how the tensors of a node are to be transposed for a statement of it; None where there is no need."""
        target = statement.target
        if statement.op != "set" or not all(map(is_quasi_affine, statement.subscripts)):
            return None
        # In a loop that stays as it is, what other steps wrote is there already.
        own = [r for r in statement.reads() if r.tensor == target]
        own = [r for r in own if steps or r.subscripts == statement.subscripts or self._depends(statement, r)]
        rank, offsets = len(statement.subscripts), [_offsets(statement, r) for r in own]
        if not offsets or rank < 2 or not self._is_plain(target, inside):
            return None
        free = [d for d in range(rank) if _is_free(d, offsets)]
        if rank - 1 in free:
            return None
        # One statement that goes along its rows alone is computed in several rows side by side as it is.
        if not steps and all(off[-1] and not any(off[:-1]) for off in offsets):
            return None
        inner = [d for d, e in enumerate(statement.subscripts) if statement.iterators[-1] in indices_of(e)]
        # Element by element, in the order of the text, if no row is free.
        across = max(free, key=lambda d: self._extent(target, d)) if free else min(inner, default=rank - 1)
        if across == rank - 1:
            return None
        # Another that is vectorised along it now would be carried along it then.
        alike = all(_is_free(across, _own_offsets(s)) for s in inside if s.target == target)
        if (free and not alike) or not self._pays(statement, target, across, 0 if steps else statement.outer):
            return None
        orders: _Orders = {target: _last(across, rank)}
        (row,) = indices_of(statement.subscripts[across]) or ("",)
        for name, places in self._others(inside, row, target).items():
            if places is not None and self._is_plain(name, inside):
                orders[name] = places
        return orders

    def _others(self, inside: list[TypedStatement], row: str, target: str) -> dict[str, tuple[int, ...] | None]:
        """Return the tensors whose last dimension is another than that of the row's index, and their order; None: left alone."""
        found: dict[str, tuple[int, ...] | None] = {}
        for s in inside:
            for read in s.reads():
                if read.tensor == target or len(read.subscripts) < 2 or row not in s.iterators:
                    continue
                at = [d for d, e in enumerate(read.subscripts) if row in indices_of(e)]
                order = (
                    _last(at[0], len(read.subscripts)) if len(at) == 1 and at[0] != len(read.subscripts) - 1 else None
                )
                found[read.tensor] = order if found.get(read.tensor, order) == order else None
        return found

    def _is_plain(self, tensor: str, inside: list[TypedStatement]) -> bool:
        """Whether a tensor lies row by row, and the statements tell its elements by affine subscripts alone."""
        if not self.layout(tensor).dense or any(s.target == tensor and s.defines is not None for s in inside):
            return False
        uses = [s.subscripts for s in inside if s.target == tensor]
        uses += [r.subscripts for s in inside for r in reads_in(s.expr, *s.subscripts) if r.tensor == tensor]
        return all(is_quasi_affine(e) for subscripts in uses for e in subscripts)

    def _depends(self, statement: TypedStatement, read: Read) -> bool:
        """Whether a statement reads what other instances of the same iteration of the loops around it write."""
        if not {i for e in read.subscripts for i in indices_of(e)} <= set(statement.iterators):
            return True  # a term of an inline reduction
        domain = read_set(statement.domain)
        reads, writes = (
            read_map(access_relation(self.program, statement, statement.target, at)).intersect_domain(domain)
            for at in (read.subscripts, statement.subscripts)
        )
        pairs = reads.apply_range(writes.reverse())
        for d in range(statement.outer):
            pairs = pairs.equate(dim.in_, d, dim.out, d)
        return not pairs.subtract(domain.identity()).is_empty()

    def _pays(self, statement: TypedStatement, tensor: str, across: int, outer: int) -> bool:
        """Whether rows are long enough, and the statement has to do with enough of the elements that are copied, in each
        iteration of the `outer` loops."""
        if self._extent(tensor, across) < MIN_LAST_EXTENT:
            return False
        domain = read_set(statement.domain)
        spans = [ends(domain, d) for d in range(outer, len(statement.iterators))]
        elements = prod(self._extent(tensor, d) for d in range(len(statement.subscripts)))
        points = prod(hi - lo + 1 for lo, hi in (s for s in spans if s is not None))
        return None in spans or (elements >= MIN_TENSOR_ELEMENTS and 2 * points >= elements)

    def _extent(self, tensor: str, dimension: int) -> int:
        extent = self.program.tensor(tensor).shape[dimension]
        return int(extent.value.real) if isinstance(extent, Literal) else MIN_LAST_EXTENT

    def _bytes(self, tensor: str) -> int:
        found = self.program.tensor(tensor)
        return prod(self._extent(tensor, d) for d in range(len(found.shape))) * found.dtype.itemsize

    def _has_values(self, tensor: str, before: list[TypedStatement]) -> bool:
        return self.program.tensor(tensor).role is Role.INOUT or any(s.target == tensor for s in before)

    def _is_needed(self, tensor: str, after: list[TypedStatement]) -> bool:
        role = self.program.tensor(tensor).role
        return role is not Role.TEMPORARY or any(tensor in (s.target, *(r.tensor for r in s.reads())) for s in after)

    def _transposed(self, tensor: str, order: tuple[int, ...]) -> str:
        found = self.program.tensor(tensor)
        return self.fresh.temporary(f"{found.label}.transposed", found.dtype, tuple(found.shape[d] for d in order))

    def _copy(
        self, tensor: str, order: tuple[int, ...], transposed: str, around: TypedStatement | None, *, back: bool
    ) -> TypedStatement:
        """Return the statement that copies a tensor to its transposed one, or back, in the loops of the statement `around`."""
        found = self.program.tensor(tensor)
        element = self.fresh.iterators(len(order))
        at = indices(element)
        there = tuple(at[d] for d in order)
        domain, outer = read_set(tensor_box(self.program, tensor)).reset_tuple_id(), 0
        if around is not None and around.outer:
            loops, outer = read_set(around.domain).reset_tuple_id(), around.outer
            domain = loops.project_out(dim.set, outer, len(around.iterators) - outer).flat_product(domain)
        source, target = ((transposed, there), (tensor, at)) if back else ((tensor, at), (transposed, there))
        iterators = (*(around.iterators[:outer] if around is not None else ()), *element)
        return self.fresh.sets(domain, iterators, target, Read(*source, None, found.dtype), outer=outer)


def _rows_last(statement: TypedStatement, across: int) -> TypedStatement:
    """Return a statement with its rows' loop the innermost one, where it reads no element of another row."""
    (row,) = indices_of(statement.subscripts[across]) or ("",)
    if row not in statement.iterators[statement.outer : -1] or any(o[across] != 0 for o in _own_offsets(statement)):
        return statement
    iterators = (*(i for i in statement.iterators if i != row), row)

    def ordered(domain: str) -> str:
        points = read_set(domain)
        name, inner = points.get_tuple_name(), [f"x{d}" for d in range(points.dim(dim.set) - len(iterators))]
        before, after = (", ".join((*names, *inner)) for names in (statement.iterators, iterators))
        return domain_text(points.apply(read_map(f"{{ {name}[{before}] -> {name}[{after}] }}")), name)

    def change(expr: Expr) -> Expr:
        return replace(expr, domain=ordered(expr.domain)) if isinstance(expr, Reduce) and expr.domain else expr

    expr = transform(statement.expr, change)
    return replace(statement, iterators=iterators, domain=ordered(statement.domain), expr=expr)


def _last(dimension: int, rank: int) -> tuple[int, ...]:
    """Return the dimensions with one of them last."""
    return (*(d for d in range(rank) if d != dimension), dimension)


def _offsets(statement: TypedStatement, read: Read) -> tuple[int | None, ...]:
    """Return how far an element that is read is from the one that is written, in each dimension; None where that differs."""
    found: list[int | None] = []
    for there, here in zip(read.subscripts, statement.subscripts, strict=True):
        a, b = (coefficients(e) if is_quasi_affine(e) else None for e in (there, here))
        if a is None or b is None:
            found.append(None)
            continue
        difference = {n: a.get(n, 0) - b.get(n, 0) for n in {*a, *b}}
        found.append(difference.pop("", 0) if not any(v for n, v in difference.items() if n) else None)
    return tuple(found)


def _own_offsets(statement: TypedStatement) -> list[tuple[int | None, ...]]:
    """Return the offsets of what a statement reads of its target."""
    return [_offsets(statement, r) for r in statement.reads() if r.tensor == statement.target]


def _is_free(dimension: int, offsets: list[tuple[int | None, ...]]) -> bool:
    """Whether elements of a row along a dimension need none of each other, the other loops being around it."""
    for off in offsets:
        others = any(o != 0 for d, o in enumerate(off) if d != dimension)
        if off[dimension] is None or (off[dimension] != 0 and not others):
            return False
    return True
