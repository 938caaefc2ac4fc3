"""Binding: an untyped program and argument types give the typed program, with exact domains, extents and types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from polyker.errors.base import failure
from polyker.errors.shapes import GATHERED_TARGET, NO_EXTENT, WRONG_RANK
from polyker.errors.types import BAD_ACC
from polyker.ir.dtypes import DType, TensorType, bf16, bool_, f16
from polyker.ir.expr import Expr, Literal
from polyker.ir.program import Loop, Node, Program, Statement
from polyker.ir.promotion import ValueType
from polyker.ir.typed import Role, TypedLoop, TypedNode, TypedProgram, TypedStatement, TypedTensor
from polyker.poly.affine import expr_of
from polyker.poly.binding.bounds import IndexBound, interval, scope_text
from polyker.poly.binding.context import BindingContext
from polyker.poly.binding.coverage import Coverage, statement_times
from polyker.poly.binding.dead import drop_dead
from polyker.poly.binding.extents import fresh_shape
from polyker.poly.binding.inside import Shape, Stated, check_subscript, require_equal
from polyker.poly.binding.ranges import StatementRanges
from polyker.poly.binding.ranges_text import RangeText, range_texts
from polyker.poly.binding.sizes import argument_shapes, bind_sizes, check_large, declared_shapes
from polyker.poly.binding.statement_types import StatementType, limits, type_statements
from polyker.poly.binding.subjects import BoundStatement, IndexScope, Namer, expand_dots, name_statement, rank_error
from polyker.poly.binding.widths import check_widths
from polyker.poly.isl import isl_job

# isl operations that a binding may take, a second or two. Numbers take a small part of that; of symbols, the conditions under
# which several statements fill what they share can grow beyond all use, and a kernel for the shapes at hand is compiled.
BIND_ISL_OPERATIONS = 8_000_000


class _LoopedStatement(Struct, frozen=True, eq=False):
    """A statement with the loops around it: user's index -> iterator, the innermost scope, the loops' ranges."""

    statement: Statement
    loops: Mapping[str, str]
    scope: IndexScope | None
    bounds: Mapping[str, IndexBound]


def bind(
    program: Program,
    types: Mapping[str, TensorType],
    sizes: Mapping[str, int | str] | None = None,
    *,
    acc: DType | None = None,
) -> TypedProgram:
    """Return the typed program for these argument types; extents are elements, a name is a size that stays symbolic.

    `types` has every input. `sizes` gives the sizes that no shape does: an int, or the name under which one stays
    symbolic.
    `acc` is the type to accumulate sums and products in, where it is of the same sort of number.

    Raises:
        ShapeError: for ranks, extents, ranges or coverage that disagree, explained at the place in the text.
        DTypeError: for operations and stores that the types do not take.
        CompileError: where isl fails, or needs more than `BIND_ISL_OPERATIONS` operations.
    """
    if acc is not None and acc in (f16, bf16, bool_):
        raise failure(BAD_ACC, dtype=acc)
    with isl_job("bind", BIND_ISL_OPERATIONS):
        return _Binder(program, types, sizes or {}, acc).run()


def infer(
    program: Program, types: Mapping[str, TensorType], sizes: Mapping[str, int | str] | None = None
) -> dict[str, TensorType]:
    """Return the types of the outputs, in order; a symbolic extent that is no plain size is shown as its expression.

    Each says the ranges of the program's indices, too.
    """
    with isl_job("bind", BIND_ISL_OPERATIONS):
        binder = _Binder(program, types, sizes or {}, None)
        typed = binder.run()
    labels = {**dict(typed.sizes)}
    ranges = tuple(dict.fromkeys(r.text for texts in binder.range_texts() for r in texts))
    found = {}
    for name in typed.outputs:
        tensor = typed.tensor(name)
        shape = tuple(_dimension(e, labels) for e in tensor.shape)
        found[tensor.label] = TensorType(tensor.dtype, shape, ranges=ranges)
    return found


def infer_ranges(
    program: Program, types: Mapping[str, TensorType], sizes: Mapping[str, int | str]
) -> list[list[RangeText]]:
    """Return the inferred ranges of each statement, which do not depend on the types of elements."""
    with isl_job("ranges", BIND_ISL_OPERATIONS // 10):
        binder = _Binder(program, types, sizes, None)
        binder.solve()
        return binder.range_texts()


def _dimension(extent: object, labels: Mapping[str, str]) -> int | str:
    from polyker.ir.typed_printing import print_expr

    if isinstance(extent, Literal):
        return int(extent.value.real)
    return print_expr(extent, labels)  # type: ignore[arg-type]


class _Binder:
    """The state of one binding: what is known of shapes grows until every statement has its ranges."""

    def __init__(
        self, program: Program, types: Mapping[str, TensorType], sizes: Mapping[str, int | str], acc: DType | None
    ) -> None:
        self.program, self.types, self.acc = program, types, acc
        self.context = BindingContext(program)
        arguments = argument_shapes(self.context, program, types)
        self.sizes = bind_sizes(self.context, program, arguments, sizes)
        self.places: list[_LoopedStatement] = []
        self.tree = self._place(program.body, {}, None, {})
        self.shapes: dict[str, Shape | None] = {p.statement.target: None for p in self.places}
        self.declared = declared_shapes(self.context, program, self.sizes)
        self.shapes |= {**arguments, **self.declared}
        self.fresh = {t for t, s in self.shapes.items() if s is None}
        self.definers: dict[str, list[int]] = {t: [] for t in self.shapes}
        for k, p in enumerate(self.places):
            self.definers[p.statement.target].append(k)
        self.solved: dict[int, tuple[BoundStatement, dict[str, IndexBound]]] = {}
        self.ranges: dict[int, StatementRanges] = {}

    def run(self) -> TypedProgram:
        """Return the typed program."""
        self.solve()
        self._check_late()
        for subject, bounds in self.solved.values():
            check_widths(self.context, subject, bounds)
        order = [self.solved[k] for k in range(len(self.places))]
        unify = self.context.unify
        shapes = {t: tuple(map(unify, s)) for t, s in self.shapes.items() if s is not None}
        self.coverage = coverage = Coverage(self.context, order, shapes, statement_times(self.tree, order))
        coverage.check(frozenset(self.program.inputs), self.program.outputs)
        typed, dtypes = self._types([s for s, _ in order])
        return drop_dead(self._assemble(order, typed, dtypes))

    def _place(
        self, body: tuple[Node, ...], loops: dict[str, str], scope: IndexScope | None, bounds: dict[str, IndexBound]
    ) -> tuple[object, ...]:
        """Number the statements in the order of the text; returns the tree of (iterator, body) and numbers."""
        tree: list[object] = []
        for node in body:
            if isinstance(node, Statement):
                tree.append(len(self.places))
                self.places.append(_LoopedStatement(node, loops, scope, bounds))
                continue
            tree.append(self._place_loop(node, loops, scope, bounds))
        return tuple(tree)

    def _place_loop(
        self, node: Loop, loops: dict[str, str], scope: IndexScope | None, bounds: dict[str, IndexBound]
    ) -> tuple[str, tuple[object, ...]]:
        iterator = self.context.iterator(node.range.index)
        inner = {**loops, node.range.index: iterator}
        given = Namer(self.context, self.sizes).given((node.range,), inner)
        lo, hi = given[iterator]
        inner_scope = IndexScope((iterator,), given, (), scope, None, node.span)
        return iterator, self._place(
            node.body, inner, inner_scope, {**bounds, iterator: interval(iterator, lo, hi, True)}
        )

    def solve(self) -> None:
        """Find the ranges of every statement, as soon as what it reads has extents; recurrences go without theirs."""
        waiting = list(range(len(self.places)))
        while waiting:
            ready = next((k for k in waiting if not self._unknown(k)), waiting[0])
            waiting.remove(ready)
            self._solve_one(ready)
            target = self.places[ready].statement.target
            if target in self.fresh and self.shapes[target] is None and not set(self.definers[target]) & set(waiting):
                self._define(target, self.definers[target])

    def _unknown(self, number: int) -> set[str]:
        return {r.tensor for r in self.places[number].statement.reads() if self.shapes.get(r.tensor, ()) is None}

    def _solve_one(self, number: int) -> None:
        place = self.places[number]
        statement = expand_dots(self.context, place.statement, self.shapes)
        sizes = {name: self.context.unify(form) for name, form in self.sizes.items()}
        subject = name_statement(self.context, sizes, number, statement, place.loops, place.scope)
        if any(form is None for form in subject.target.subscripts):
            self._check_gathered(subject)
        ranges = StatementRanges(self.context, subject, self.shapes, place.bounds, self._late(number))
        self.ranges[number] = ranges
        self.solved[number] = subject, ranges.solve()

    def _late(self, number: int) -> dict[str, Shape | None]:
        """Return the tensors read here that this or a later statement defines, with the extents they have before it."""
        found: dict[str, Shape | None] = {}
        for read in self.places[number].statement.reads():
            tensor, definers = read.tensor, self.definers.get(read.tensor, [])
            if tensor in self.program.inputs or all(k < number for k in definers):
                continue
            before = [self.solved[k] for k in definers if k < number and k in self.solved]
            if tensor in self.fresh and before:
                found[tensor] = fresh_shape(self.context, tensor, before)
            else:
                found[tensor] = self.shapes[tensor]
        return found

    def range_texts(self) -> list[list[RangeText]]:
        """Return the inferred ranges of each statement, once they are found."""
        return [range_texts(self.context, self.ranges[k], self.solved[k][1]) for k in range(len(self.places))]

    def _check_gathered(self, subject: BoundStatement) -> None:
        statement = subject.statement
        span, target = statement.target_span or statement.span, statement.target
        if self.shapes.get(target) is None:
            raise self.context.error(GATHERED_TARGET, span, tensor=target)

    def _define(self, target: str, definers: list[int]) -> None:
        subjects = [self.solved[k][0] for k in definers]
        first = len(subjects[0].target.subscripts)
        for subject in subjects[1:]:
            if len(subject.target.subscripts) != first:
                values = {"subscripts": len(subject.target.subscripts), "rank": first, "tensor": target}
                like = f"as in `{subjects[0].target.text}`"
                raise self.context.error(
                    WRONG_RANK, subject.target.span, access=subject.target.text, shape=like, **values
                )
        shape = fresh_shape(self.context, target, [self.solved[k] for k in definers])
        self.shapes[target] = tuple(map(self.context.unify, shape))

    def _check_late(self) -> None:
        """Check the reads of tensors that their statement or a later one still defines.

        A bare subscript there agrees with the others of its index, unless an offset or a stride on the left decides the
        extent: in `S[t+1] = S[t] + X[t]`, S has one element more than X.
        """
        for number, (_, bounds) in self.solved.items():
            ranges = self.ranges[number]
            for access in ranges.late_reads():
                shape = self.shapes[access.tensor]
                assert shape is not None
                if len(shape) != len(access.subscripts):
                    raise rank_error(self.context, access, shape)
                for d, (form, extent) in enumerate(zip(access.subscripts, shape, strict=True)):
                    if form is None or access.pad is not None:
                        continue
                    index = access.bare[d]
                    if index in ranges.stated and self._is_plain(access.tensor, d):
                        require_equal(self.context, index, ranges.stated[index], Stated(access, d, shape))
                    check_subscript(self.context, bounds, access, d, form, extent)

    def _is_plain(self, tensor: str, d: int) -> bool:
        """Whether all that defines a tensor has an index alone or a constant as its subscript in a dimension."""
        targets = [self.solved[k][0].target for k in self.definers[tensor]]
        return all(t.bare[d] is not None or ((f := t.subscripts[d]) is not None and f.is_constant) for t in targets)

    def _types(self, subjects: list[BoundStatement]) -> tuple[list[StatementType], dict[str, DType]]:
        known = {t: self._given(t) for t in self.program.inputs}
        known |= {
            d.name: ValueType(d.dtype)
            for d in self.program.types
            if d.dtype is not None and d.name not in self.program.inputs
        }
        self.names = {t: f"t{k}" for k, t in enumerate(dict.fromkeys([*self.program.inputs, *self.shapes]))}
        domains = {
            first: scope_text(self.context, self.solved[s.number][1], scope, "R")
            for s in subjects
            for first, scope in s.scopes.items()
        }
        return type_statements(subjects, known, self.names, domains, self.acc)

    def _given(self, tensor: str) -> ValueType:
        """Return an argument's type; a Python scalar for a declared parameter is of the declared type."""
        given, declared = self.types[tensor], self.program.declaration(tensor)
        if given.weak and declared is not None and declared.dtype is not None:
            return ValueType(declared.dtype)
        return ValueType(given.dtype, given.weak)

    def _assemble(
        self,
        order: list[tuple[BoundStatement, dict[str, IndexBound]]],
        typed: list[StatementType],
        dtypes: Mapping[str, DType],
    ) -> TypedProgram:
        statements = []
        for (subject, bounds), kind in zip(order, typed, strict=True):
            name = f"S{subject.number}"
            statements.append(
                TypedStatement(
                    name,
                    subject.iterators,
                    len(subject.loops),
                    scope_text(self.context, bounds, subject.scope, name),
                    self.names[subject.statement.target],
                    kind.subscripts,
                    subject.statement.op,
                    kind.expr,
                    kind.acc,
                    subject.reduced,
                    subject.statement.span,
                    self.coverage.defined_elements(subject, bounds, self.names[subject.statement.target]),
                )
            )
        labels = tuple((n, label) for n, label in self.context.labels.items() if n[0] == "i")
        exprs = [s.expr for s in statements]
        return TypedProgram(
            tuple(self._tensor(t, dtypes, exprs) for t in self.names),
            tuple((name, label) for label, name in self.context.sizes.items()),
            tuple(self.names[t] for t in self.program.inputs),
            tuple(self.names[t] for t in self.program.outputs),
            _body(self.tree, statements),
            self.context.text,
            tuple(self.context.checks),
            labels,
        )

    def _tensor(self, tensor: str, dtypes: Mapping[str, DType], exprs: Sequence[Expr]) -> TypedTensor:
        shape = self.shapes[tensor]
        if shape is None or tensor not in dtypes:
            raise self.context.error(NO_EXTENT, None, tensor=tensor, dimension=0, why=": no statement defines it")
        check_large(self.context, tensor, shape, dtypes[tensor].itemsize)
        if tensor not in self.program.inputs:
            # An argument keeps its own sizes: its shape says what they are.
            shape = tuple(map(self.context.unify, shape))
        extents, given = tuple(map(expr_of, shape)), self.types.get(tensor)
        within = limits(self.names[tensor], exprs) if given is not None and given.weak else None
        return TypedTensor(self.names[tensor], tensor, dtypes[tensor], extents, self._role(tensor), within)

    def _role(self, tensor: str) -> Role:
        given, returned = tensor in self.program.inputs, tensor in self.program.outputs
        if given:
            return Role.INOUT if returned else Role.INPUT
        return Role.OUTPUT if returned else Role.TEMPORARY


def _body(tree: tuple[object, ...], statements: list[TypedStatement]) -> tuple[TypedNode, ...]:
    nodes: list[TypedNode] = []
    for node in tree:
        match node:
            case int(number):
                nodes.append(statements[number])
            case (str(iterator), tuple(body)):
                nodes.append(TypedLoop(iterator, _body(body, statements)))
    return tuple(nodes)
