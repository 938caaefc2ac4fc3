"""A program with symbolic sizes, its reductions apart, in names of the notation: what derivatives are taken of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import reduce
from typing import TypeAlias

import islpy as isl
from msgspec import Struct

from polyker.errors.base import failure
from polyker.errors.gradients import NO_REVERSE
from polyker.grad.names import Names, symbolic_types
from polyker.ir.dtypes import DType, f64, i64
from polyker.ir.expr import Call, Cast, Expr, IndexExpr, Literal, Range, Read, SizeExpr, rebuild, walk
from polyker.ir.program import Program
from polyker.ir.quasi_affine import add, index, lit, print_affine
from polyker.ir.reductions import identity
from polyker.ir.typed import TypedNode, TypedProgram, TypedStatement, statements_of
from polyker.poly.affine import expr_of
from polyker.poly.binding.bind import bind
from polyker.poly.forms import form_of_aff
from polyker.poly.isl import read_set, set_text
from polyker.rewrite.normalise.extract_reductions import extract_reductions
from polyker.rewrite.normalise.log_sums import log_sums
from polyker.structs import replace


class PlainStatement(Struct, frozen=True):
    """A statement in names of the notation; `own`: the typed statement that it stands for."""

    target: str
    subscripts: tuple[Expr, ...]
    op: str
    expr: Expr
    ranges: tuple[Range, ...]
    conditions: tuple[Expr, ...]
    own: TypedStatement

    def rewritten(self, change: Callable[[Expr], Expr]) -> PlainStatement:
        """Return the statement with its value, subscripts and conditions changed."""
        subscripts, conditions = tuple(map(change, self.subscripts)), tuple(map(change, self.conditions))
        return replace(self, subscripts=subscripts, expr=change(self.expr), conditions=conditions)


class PlainLoop(Struct, frozen=True):
    """A loop whose iterations run one after another; `own`: its iterator and its bounds in the typed program."""

    range: Range
    body: tuple[PlainNode, ...]
    own: tuple[str, Expr, Expr]


PlainNode: TypeAlias = PlainStatement | PlainLoop


def plain_statements(nodes: Iterable[PlainNode]) -> Iterator[PlainStatement]:
    """Yield the statements in order, those inside loops too."""
    for node in nodes:
        if isinstance(node, PlainLoop):
            yield from plain_statements(node.body)
        else:
            yield node


class PlainProgram(Struct, frozen=True):
    """The nodes of a program in order; `shapes` and `dtypes` of its tensors, `constant` the extrema of log sums.

    Inputs of floats are bound to f64, those that subscripts read to i64: a derivative is of any types. `blocks`: the indices of
    loops over blocks of steps; `local`: the tensors that hold values of one block alone.
    """

    program: Program
    typed: TypedProgram
    nodes: tuple[PlainNode, ...]
    shapes: Mapping[str, tuple[Expr, ...]]
    dtypes: Mapping[str, DType]
    constant: frozenset[str]
    names: Names
    written: frozenset[str]  # the names of the statements that the text has, not made of its inline reductions
    results: Mapping[str, str] = {}  # of arguments that are changed, the names of what they become
    blocks: frozenset[str] = frozenset()
    local: frozenset[str] = frozenset()

    @property
    def statements(self) -> tuple[PlainStatement, ...]:
        """The statements in order, those inside loops too."""
        return tuple(plain_statements(self.nodes))

    @property
    def inputs(self) -> frozenset[str]:
        """The names of the inputs."""
        return frozenset(self.names.tensors[name] for name in self.typed.inputs)


def bound(program: Program, fixed: Mapping[str, int]) -> PlainProgram:
    """Return a program bound to symbolic sizes; raises GradientError for what has no derivative yet, and what binding raises."""
    types = symbolic_types(program)
    sizes: dict[str, int | str] = {name: fixed.get(name, name) for name in program.sizes}
    given = {*program.keywords, *program.parameters, *fixed}
    typed = bind(program, types, {name: value for name, value in sizes.items() if name in given})
    first = {t.name for t in typed.tensors}
    summed = log_sums(typed)
    constant = {s.target for s in summed.statements() if s.op == "max" and s.target not in first}
    written = frozenset(s.name for s in summed.statements())
    return _plain(program, extract_reductions(summed), constant, written)


def rebound(source: PlainProgram, typed: TypedProgram, blocks: frozenset[str]) -> PlainProgram:
    """Return the plain program of another typed program in the place of a source's; `blocks`: iterators of loops over blocks."""
    own = {plain: name for name, plain in source.names.tensors.items()}
    return _plain(source.program, typed, {own[name] for name in source.constant}, source.written, blocks)


def _plain(
    program: Program,
    typed: TypedProgram,
    constant: set[str],
    written: frozenset[str],
    blocks: frozenset[str] = frozenset(),
) -> PlainProgram:
    names = Names(typed, program)
    explicit = frozenset(e.to for s in program.statements() for e in walk(s.expr) if isinstance(e, Cast))
    implicit = {e.to for s in typed.statements() for e in walk(s.expr) if isinstance(e, Cast)}
    casts = explicit | {t for t in implicit if t.kind in "iub"}
    if f64 not in explicit:
        casts -= {f64}
    return PlainProgram(
        program,
        typed,
        _Plain(typed, names, casts, written).nodes(typed.body, {}),
        {names.tensors[t.name]: tuple(names.plain(_extent(e), casts) for e in t.shape) for t in typed.tensors},
        {names.tensors[t.name]: t.dtype for t in typed.tensors},
        frozenset(names.tensors[t] for t in constant),
        names,
        written,
        blocks=frozenset(names.indices[i] for i in blocks),
    )


def _extent(expr: Expr) -> Expr:
    """Return an extent as shapes may say it, without the constant that it is where it would be less."""
    match expr:
        case Call(op="maximum", args=(Literal(), extent)) | Call(op="maximum", args=(extent, Literal())):
            return _extent(extent)
    return rebuild(expr, _extent)


class _Plain(Struct):
    """Writes the nodes of a typed program in names of the notation."""

    program: TypedProgram
    names: Names
    casts: frozenset[DType]
    written: frozenset[str]

    def nodes(self, body: tuple[TypedNode, ...], bounds: Mapping[str, tuple[Expr, Expr]]) -> tuple[PlainNode, ...]:
        """Return nodes inside loops with these bounds."""
        found: list[PlainNode] = []
        for node in body:
            if isinstance(node, TypedStatement):
                found.append(self._statement(node, bounds))
                continue
            first = next(statements_of((node,)))
            domain = read_set(first.domain).intersect_params(read_set(self.program.context))
            place = first.iterators.index(node.iterator)
            low, high = (_end(self.program, first, domain, place, greatest=greatest) for greatest in (False, True))
            ends = low, add(high, lit(1))
            inside = self.nodes(node.body, {**bounds, node.iterator: ends})
            index, (lo, hi) = self.names.indices[node.iterator], (self.names.plain(e, self.casts) for e in ends)
            found.append(PlainLoop(Range(index, lo, hi), inside, (node.iterator, *ends)))
        # What a reduction outside loops begins with is not set: it is its identity anyway.
        return tuple(found if bounds else self._without_starts(found))

    def _without_starts(self, nodes: list[PlainNode]) -> Iterator[PlainNode]:
        """Yield all but the statements that set what an inline reduction begins with anyway: where no older values are."""
        ops = {a.target: a.own for a in nodes if isinstance(a, PlainStatement) and a.op != "set"}
        held = {self.names.tensors[name] for name in self.program.inputs}
        for a in nodes:
            if isinstance(a, PlainStatement) and a.op == "set" and a.own.name not in self.written:
                after = ops.get(a.target)
                if after is not None and a.target not in held and a.own.expr == identity(after.op, a.own.acc):
                    continue
            held |= {s.target for s in plain_statements((a,))}
            yield a

    def _statement(self, s: TypedStatement, bounds: Mapping[str, tuple[Expr, Expr]]) -> PlainStatement:
        if s.scatters:
            reason = "`=` writes at gathered places"
            raise failure(NO_REVERSE, span=s.span, tensor=self.names.tensors[s.target], reason=reason, advice="")
        ranges, conditions = _instances(self.program, s, bounds)
        return PlainStatement(
            self.names.tensors[s.target],
            tuple(self._written(e) for e in s.subscripts),
            s.op,
            self._written(s.expr),
            tuple(Range(self.names.indices[i], self._written(lo), self._written(hi)) for i, lo, hi in ranges),
            tuple(self._written(c) for c in conditions),
            s,
        )

    def _written(self, expr: Expr) -> Expr:
        return self.names.plain(expr, self.casts)


def _instances(
    program: TypedProgram, s: TypedStatement, bounds: Mapping[str, tuple[Expr, Expr]]
) -> tuple[list[tuple[str, Expr, Expr]], list[Expr]]:
    """Return the ranges of a statement's own iterators, and the conditions that its instances fulfil besides.

    `bounds`: of the loops around it.
    """
    domain = read_set(s.domain).intersect_params(read_set(program.context))
    ranges = []
    for d, name in enumerate(s.iterators):
        if name in bounds:
            ranges.append((name, *bounds[name]))
            continue
        low, high = (_end(program, s, domain, d, greatest=greatest) for greatest in (False, True))
        ranges.append((name, low, add(high, lit(1))))
    sizes = tuple(name for name, _ in program.sizes)
    inside = [f"{print_affine(lo)} <= {name} < {print_affine(hi)}" for name, lo, hi in ranges]
    box = read_set(set_text(sizes, s.iterators, inside, s.name)).intersect_params(read_set(program.context))
    left = domain.gist(box).compute_divs()
    return [r for r in ranges if r[0] not in bounds], conditions_of(left, s.iterators, s)


def _end(program: TypedProgram, s: TypedStatement, domain: isl.Set, d: int, *, greatest: bool) -> Expr:
    """Return an expression, without minima and maxima, that a dimension of a statement's domain never goes below or above."""
    if domain.is_empty():
        return lit(-1 if greatest else 0)
    sizes, name = tuple(n for n, _ in program.sizes), s.iterators[d]
    pieces = (domain.dim_max(d) if greatest else domain.dim_min(d)).coalesce().get_pieces()
    ends = [expr_of(form) for _, piece in pieces if (form := form_of_aff(piece)) is not None]
    for read in (Read(s.target, s.subscripts), *s.reads()):  # it lies inside of what it subscripts alone
        shape = program.tensor(read.tensor).shape
        ends += [
            add(n, lit(-1)) if greatest else lit(0)
            for e, n in zip(read.subscripts, shape, strict=True)
            if e == index(name)
        ]
    for end in ends:
        if not is_sayable(end):
            continue
        beyond = f"{name} {'>' if greatest else '<'} {print_affine(end)}"
        if domain.is_disjoint(read_set(set_text(sizes, s.iterators, [beyond], s.name))):
            return end
    reason = f"the range of `{dict(program.labels).get(name, name)}` has no end of one form"
    raise failure(
        NO_REVERSE, span=s.span, tensor=program.tensor(s.target).label, reason=reason, advice="give it a `for`"
    )


def is_sayable(expr: Expr) -> bool:
    """Whether a text may have an expression of sizes as an extent, or as an end of a range."""
    return all(not isinstance(e, Call) or e.op in ("add", "mul", "neg", "floordiv", "mod") for e in walk(expr))


def conditions_of(points: isl.Set, names: tuple[str, ...], s: TypedStatement) -> list[Expr]:
    """Return what the points of a set with named dimensions fulfil, as conditions that all hold; `s`: where an error points."""
    count = points.dim(isl.dim_type.set)
    parts: list[list[Expr]] = []
    for basic in points.get_basic_sets():
        flat = basic.move_dims(isl.dim_type.param, 0, isl.dim_type.set, 0, count)
        for d, name in enumerate(names):
            flat = flat.set_dim_name(isl.dim_type.param, d, name)
        parts.append([_condition(c, names, s) for c in flat.get_constraints()])
    if not all(parts):
        return []
    if len(parts) == 1:
        return parts[0]
    return [reduce(lambda a, b: Call("or", (a, b)), [reduce(lambda a, b: Call("and", (a, b)), p) for p in parts])]


def _condition(constraint: isl.Constraint, names: tuple[str, ...], s: TypedStatement) -> Expr:
    form = form_of_aff(constraint.get_aff())
    if form is None:
        raise failure(NO_REVERSE, span=s.span, tensor=s.target, reason="its instances are no affine set", advice="")
    return Call("eq" if constraint.is_equality() else "ge", (_with_indices(expr_of(form), names), lit(0)))


def _with_indices(expr: Expr, names: tuple[str, ...]) -> Expr:
    """Return an expression of a form in which some names are indices and not sizes."""

    def change(e: Expr) -> Expr:
        return IndexExpr(e.name, i64) if isinstance(e, SizeExpr) and e.name in names else rebuild(e, change)

    return change(expr)
