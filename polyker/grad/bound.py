"""A program with symbolic sizes, its reductions apart, in names of the notation: what derivatives are taken of."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import reduce

import islpy as isl
from msgspec import Struct

from polyker.errors.base import failure
from polyker.errors.gradients import NO_REVERSE
from polyker.ir.dtypes import DTYPES, DType, TensorType, f64, i64
from polyker.ir.expr import (
    FUNCTIONS,
    REDUCTIONS,
    Call,
    Cast,
    Dots,
    Expr,
    IndexExpr,
    Literal,
    Range,
    Read,
    SizeExpr,
    rebuild,
    walk,
)
from polyker.ir.program import Program
from polyker.ir.quasi_affine import add, lit, print_affine
from polyker.ir.reductions import identity
from polyker.ir.typed import TypedLoop, TypedProgram, TypedStatement, statements_of
from polyker.poly.affine import expr_of
from polyker.poly.binding.bind import bind
from polyker.poly.forms import form_of_aff
from polyker.poly.isl import read_set, set_text
from polyker.record.signatures import signature_of
from polyker.rewrite.normalise.extract_reductions import extract_reductions
from polyker.rewrite.normalise.log_sums import log_sums
from polyker.structs import replace

_WORDS = ("for", "in", "where", "and", "or", "not", "pad", "inf", "nan", "True", "False")


class PlainStatement(Struct, frozen=True):
    """A statement in names of the notation; `domain` is the isl set of its instances, `own` the typed statement."""

    target: str
    subscripts: tuple[Expr, ...]
    op: str
    expr: Expr
    ranges: tuple[Range, ...]
    conditions: tuple[Expr, ...]
    own: TypedStatement


class PlainProgram(Struct, frozen=True):
    """The assignments of a program in order; `shapes` and `dtypes` of its tensors, `constant` the extrema of log sums.

    Inputs of floats are bound to f64, those that subscripts read to i64: a derivative is of any types.
    """

    typed: TypedProgram
    assignments: tuple[PlainStatement, ...]
    shapes: Mapping[str, tuple[Expr, ...]]
    dtypes: Mapping[str, DType]
    constant: frozenset[str]
    names: Names

    @property
    def inputs(self) -> frozenset[str]:
        """The names of the inputs."""
        return frozenset(self.names.tensors[name] for name in self.typed.inputs)


class Names:
    """Names of the notation for the generated ones of a typed program; `fresh` names are none of the program's."""

    def __init__(self, typed: TypedProgram, program: Program) -> None:
        words = {*FUNCTIONS, *REDUCTIONS, *DTYPES, *_WORDS}
        self._taken = words | {
            *program.inputs,
            *program.outputs,
            *program.temporaries,
            *program.sizes,
            *program.parameters,
        }
        self.tensors: dict[str, str] = {}
        given = {*program.inputs, *program.outputs, *program.temporaries}
        for t in typed.tensors:
            self.tensors[t.name] = t.label if t.label in given else self.fresh(re.sub(r"\W+", "_", t.label).strip("_"))
        self.sizes = dict(typed.sizes)
        labels = dict(typed.labels)
        self.indices: dict[str, str] = {}
        for name in dict.fromkeys(i for s in typed.statements() for i in s.iterators):
            label = labels.get(name, name)
            self.indices[name] = self.fresh(label if label.isidentifier() else name)

    def fresh(self, wanted: str) -> str:
        """Return a name that nothing has: this one, or with a number behind it."""
        found, number = wanted, 1
        while found in self._taken:
            found, number = f"{wanted}_{number}", number + 1
        self._taken.add(found)
        return found

    def plain(self, expr: Expr, casts: frozenset[DType]) -> Expr:
        """Return an expression in names of the notation, without types; of conversions those to a type in `casts` stay."""

        def change(e: Expr) -> Expr:
            match e:
                case Cast(to=to, arg=arg):
                    return Cast(to, change(arg)) if to in casts else change(arg)
                case IndexExpr(name=name):
                    return IndexExpr(self.indices.get(name, name))
                case SizeExpr(name=name):
                    return SizeExpr(self.sizes.get(name, name))
                case Literal(value=value):
                    return _constant(value)
                case Call(op="mul", args=(Literal(value=-1), arg)):
                    return Call("neg", (change(arg),))
                case Read(tensor=tensor):
                    made = rebuild(e, change)
                    assert isinstance(made, Read)
                    return replace(made, tensor=self.tensors[tensor], dtype=None)
                case _:
                    return replace(rebuild(e, change), dtype=None)

        return change(expr)


def bound(program: Program, fixed: Mapping[str, int]) -> PlainProgram:
    """Return a program bound to symbolic sizes; raises GradientError for what has no derivative yet, and what binding raises."""
    types = symbolic_types(program)
    sizes: dict[str, int | str] = {name: fixed.get(name, name) for name in program.sizes}
    typed = bind(program, types, {n: v for n, v in sizes.items() if n in program.keywords or n in fixed})
    first = {t.name for t in typed.tensors}
    summed = log_sums(typed)
    constant = {s.target for s in summed.statements() if s.op == "max" and s.target not in first}
    flat = extract_reductions(summed)
    names = Names(flat, program)
    explicit = frozenset(e.to for s in program.statements() for e in walk(s.expr) if isinstance(e, Cast))
    implicit = {e.to for s in flat.statements() for e in walk(s.expr) if isinstance(e, Cast)}
    casts = explicit | {t for t in implicit if t.kind in "iub"}
    if f64 not in explicit:
        casts -= {f64}
    return PlainProgram(
        flat,
        tuple(_without_starts(list(_assignments(flat, names, casts)))),
        {names.tensors[t.name]: tuple(names.plain(_extent(e), casts) for e in t.shape) for t in flat.tensors},
        {names.tensors[t.name]: t.dtype for t in flat.tensors},
        frozenset(names.tensors[t] for t in constant),
        names,
    )


def symbolic_types(program: Program) -> dict[str, TensorType]:
    """Return types with a size for each dimension of the inputs, one for those that have to agree."""
    ranks: dict[str, int] = {}
    integers: set[str] = set()
    for s in program.statements():
        if any(isinstance(e, Dots) for subs in (s.subscripts, *(r.subscripts for r in s.reads())) for e in subs):
            reason = "`...` stands for any number of dimensions"
            raise failure(NO_REVERSE, span=s.span, tensor=s.target, reason=reason, advice="write indices instead")
        for read in s.reads():
            ranks.setdefault(read.tensor, len(read.subscripts))
            integers |= {e.tensor for sub in read.subscripts for e in walk(sub) if isinstance(e, Read)}
        integers |= {e.tensor for sub in s.subscripts for e in walk(sub) if isinstance(e, Read)}
        ranks.setdefault(s.target, len(s.subscripts))
    groups = {place: group[0] for group in signature_of(program).agreeing for place in group}
    taken = {*program.inputs, *program.outputs, *program.temporaries, *program.sizes}
    named: dict[object, str] = {}
    found: dict[str, TensorType] = {}
    for name in program.inputs:
        declared = program.declaration(name)
        shape: list[int | str] = []
        given = declared.shape if declared is not None and declared.shape is not None else (None,) * ranks.get(name, 0)
        for d, extent in enumerate(given):
            match extent:
                case Literal(value=int(value)):
                    shape.append(value)
                case SizeExpr(name=size):
                    shape.append(size)
                case _:
                    place = groups.get((name, d), (name, d))
                    if place not in named:
                        named[place] = next(n for n in _candidates(f"{place[0]}{place[1]}") if n not in taken)
                        taken.add(named[place])
                    shape.append(named[place])
        dtype = declared.dtype if declared is not None and declared.dtype is not None else None
        found[name] = TensorType(dtype or (i64 if name in integers else f64), tuple(shape))
    return found


def _constant(value: bool | int | float | complex) -> Expr:
    """Return a constant as texts have it: below zero it is a negative."""
    is_below = isinstance(value, (int, float)) and not isinstance(value, bool) and value < 0
    return Call("neg", (Literal(-value),)) if is_below else Literal(value)


def _extent(expr: Expr) -> Expr:
    """Return an extent as shapes may say it, without the constant that it is where it would be less."""
    match expr:
        case Call(op="maximum", args=(Literal(), extent)) | Call(op="maximum", args=(extent, Literal())):
            return _extent(extent)
    return rebuild(expr, _extent)


def _candidates(name: str) -> Iterator[str]:
    yield name
    while True:
        name += "_"
        yield name


def _assignments(flat: TypedProgram, names: Names, casts: frozenset[DType]) -> Iterator[PlainStatement]:
    for node in flat.body:
        if isinstance(node, TypedLoop):
            inside = next(statements_of((node,)))
            reason = "it is computed step by step in a loop"
            raise failure(NO_REVERSE, span=inside.span, tensor=names.tensors[inside.target], reason=reason, advice="")
        if node.reads_own or node.scatters:
            reason = "an element is computed from others of it" if node.reads_own else "`=` writes at gathered places"
            raise failure(NO_REVERSE, span=node.span, tensor=names.tensors[node.target], reason=reason, advice="")
        ranges, conditions = _instances(flat, node)
        yield PlainStatement(
            names.tensors[node.target],
            tuple(names.plain(e, casts) for e in node.subscripts),
            node.op,
            names.plain(node.expr, casts),
            tuple(Range(names.indices[i], names.plain(lo, casts), names.plain(hi, casts)) for i, lo, hi in ranges),
            tuple(names.plain(c, casts) for c in conditions),
            node,
        )


def _without_starts(assignments: list[PlainStatement]) -> Iterator[PlainStatement]:
    """Yield all but those that set what a reduction begins with anyway."""
    ops = {a.target: a.own for a in assignments if a.op != "set"}
    for a in assignments:
        after = ops.get(a.target)
        if after is None or a.op != "set" or a.own.expr != identity(after.op, a.own.acc):
            yield a


def _instances(program: TypedProgram, s: TypedStatement) -> tuple[list[tuple[str, Expr, Expr]], list[Expr]]:
    """Return the ranges of a statement's iterators, and the conditions that its instances fulfil besides."""
    domain = read_set(s.domain).intersect_params(read_set(program.context))
    ranges = []
    for d, name in enumerate(s.iterators):
        low, high = (_end(program, s, domain, d, greatest=greatest) for greatest in (False, True))
        ranges.append((name, low, add(high, lit(1))))
    sizes = tuple(name for name, _ in program.sizes)
    inside = [f"{print_affine(lo)} <= {name} < {print_affine(hi)}" for name, lo, hi in ranges]
    box = read_set(set_text(sizes, s.iterators, inside, s.name)).intersect_params(read_set(program.context))
    left = domain.gist(box).compute_divs()
    return ranges, conditions_of(left, s)


def _end(program: TypedProgram, s: TypedStatement, domain: isl.Set, d: int, *, greatest: bool) -> Expr:
    """Return an expression, without minima and maxima, that a dimension of a statement's domain never goes below or above."""
    if domain.is_empty():
        return lit(-1 if greatest else 0)
    sizes, name = tuple(n for n, _ in program.sizes), s.iterators[d]
    for _, piece in (domain.dim_max(d) if greatest else domain.dim_min(d)).coalesce().get_pieces():
        form = form_of_aff(piece)
        if form is None:
            continue
        text = print_affine(expr_of(form))
        beyond = f"{name} > {text}" if greatest else f"{name} < {text}"
        if domain.is_disjoint(read_set(set_text(sizes, s.iterators, [beyond], s.name))):
            return expr_of(form)
    reason = f"the range of `{dict(program.labels).get(name, name)}` has no end of one form"
    raise failure(
        NO_REVERSE, span=s.span, tensor=program.tensor(s.target).label, reason=reason, advice="give it a `for`"
    )


def conditions_of(points: isl.Set, s: TypedStatement) -> list[Expr]:
    """Return what the points of a set over a statement's iterators fulfil, as conditions that all hold."""
    count = points.dim(isl.dim_type.set)
    parts: list[list[Expr]] = []
    for basic in points.get_basic_sets():
        flat = basic.move_dims(isl.dim_type.param, 0, isl.dim_type.set, 0, count)
        for d, name in enumerate(s.iterators):
            flat = flat.set_dim_name(isl.dim_type.param, d, name)
        parts.append([_condition(c, s) for c in flat.get_constraints()])
    if not all(parts):
        return []
    if len(parts) == 1:
        return parts[0]
    return [reduce(lambda a, b: Call("or", (a, b)), [reduce(lambda a, b: Call("and", (a, b)), p) for p in parts])]


def _condition(constraint: isl.Constraint, s: TypedStatement) -> Expr:
    form = form_of_aff(constraint.get_aff())
    if form is None:
        raise failure(NO_REVERSE, span=s.span, tensor=s.target, reason="its instances are no affine set", advice="")
    return Call("eq" if constraint.is_equality() else "ge", (_with_indices(expr_of(form), s), lit(0)))


def _with_indices(expr: Expr, s: TypedStatement) -> Expr:
    """Return an expression of a form, in which what is an iterator is an index and not a size."""

    def change(e: Expr) -> Expr:
        return IndexExpr(e.name, i64) if isinstance(e, SizeExpr) and e.name in s.iterators else rebuild(e, change)

    return change(expr)
