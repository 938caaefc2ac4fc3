"""Expressions as Python functions of one statement instance: each with its type, known before anything runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from polyker.errors import failure
from polyker.errors.reference import MISSING, NOT_INTEGER, NOTHING
from polyker.ir import dtypes as dt
from polyker.ir.dtypes import DType
from polyker.ir.expr import Call, Cast, Expr, IndexExpr, Literal, Read, Reduce, SizeExpr, reads_values
from polyker.ir.functions import TABLE
from polyker.reference.functions import binary, refuse, several, unary
from polyker.reference.integers import Env, IntegerFunction, gathers, integer, of_indices, points
from polyker.reference.memory import TensorMemory, load
from polyker.reference.ranges import IndexSpans
from polyker.reference.reductions import result_tag, step
from polyker.reference.tags import (
    WEAK_INT,
    Tag,
    Weak,
    converter,
    evaluated,
    identity,
    literal,
    promote,
    rounding,
    tag_of_literal,
)


class Evaluated(Struct, frozen=True):
    """A typed function of the environment; `constant` is the value of a literal."""

    tag: Tag
    of: Callable[[Env], Any]
    constant: Any = None


class EvaluationScope(Struct, frozen=True):
    """What expressions are evaluated in."""

    tensors: Mapping[str, TensorMemory]
    sizes: Mapping[str, int]
    ranges: IndexSpans
    widen: bool = False
    acc: DType | None = None

    def integer(self, expr: Expr) -> IntegerFunction:
        """Return a subscript, bound or condition as a function; gathers are read."""
        return integer(expr, self.sizes, self._gather)

    def admits(self, conditions: Sequence[Expr], *accesses: Callable[[Env], Any]) -> Callable[[Env], bool]:
        """Return whether an instance is admitted: by the conditions on indices, then by those that read values.

        Where the first ones hold the accesses have to be in bounds, whatever the others say.
        """
        domain = [self.integer(c) for c in conditions if not reads_values(c)]
        tests = [convert(evaluate(c, self), dt.bool_, self.widen) for c in conditions if reads_values(c)]
        if not tests:
            return lambda env: all(c(env) for c in domain)

        def admitted(env: Env) -> bool:
            if not all(c(env) for c in domain):
                return False
            for access in accesses:
                access(env)
            found = [bool(t(env)) for t in tests]
            return all(found)

        return admitted

    def _gather(self, read: Read) -> IntegerFunction:
        value = _read(read, self)
        if value.tag.kind not in "iu":
            raise failure(NOT_INTEGER, span=read.span, what=read.tensor)
        return lambda env: int(value.of(env))


def convert(value: Evaluated, to: Tag, widen: bool) -> Callable[[Env], Any]:
    """Return the value as a function of type `to`."""
    if value.tag == to:
        return value.of
    if value.constant is not None and isinstance(to, DType):
        fixed = literal(value.constant, to, widen)
        return lambda env: fixed
    change, of = converter(value.tag, to, widen), value.of
    return lambda env: change(of(env))


def evaluate(expr: Expr, scope: EvaluationScope) -> Evaluated:
    """Return the expression as a typed function."""
    match expr:
        case Literal(value=value):
            if isinstance(value, bool):
                held = dt.bool_.numpy.type(value)
                return Evaluated(dt.bool_, lambda env: held)
            return Evaluated(tag_of_literal(value), lambda env: value, value)
        case IndexExpr(name=name):
            return Evaluated(WEAK_INT, lambda env: env[name])
        case SizeExpr(name=name):
            if name not in scope.sizes:
                raise failure(MISSING, span=expr.span, name=name)
            size = scope.sizes[name]
            return Evaluated(WEAK_INT, lambda env: size)
        case Read():
            return _read(expr, scope)
        case Cast(to=to, arg=arg):
            inner = convert(evaluate(arg, scope), to, scope.widen)
            rounded = rounding(to, scope.widen)
            return Evaluated(to, inner if rounded is None else lambda env: rounded(inner(env)))
        case Reduce():
            return _inline(expr, scope)
        case Call(op=op, args=args):
            return _call(op, args, scope)
    raise refuse(type(expr).__name__)


def _read(read: Read, scope: EvaluationScope) -> Evaluated:
    tensor = scope.tensors[read.tensor]
    fetch = load(tensor, read, [gathers(s) for s in read.subscripts])
    place, subscripts = of_indices(read.subscripts), list(map(scope.integer, read.subscripts))
    if tensor.tag == WEAK_INT:
        # A Python integer has to fit what it meets, as a literal has to.
        return Evaluated(WEAK_INT, lambda env: tensor.data, int(tensor.data))
    if place is not None:
        return Evaluated(tensor.tag, lambda env: fetch(place(env)))
    # No function more: gathers in gathers are as many calls deep as there are.
    return Evaluated(tensor.tag, lambda env: fetch(tuple([s(env) for s in subscripts])))


def _call(op: str, args: tuple[Expr, ...], scope: EvaluationScope) -> Evaluated:
    if op == "add":
        return _sum(args, scope)
    values = [evaluate(a, scope) for a in args]
    if op == "where":
        return _where(values, scope.widen)
    if len(values) > 2 and op in TABLE and TABLE[op].arity > 2:
        return _several(op, values, scope.widen)
    if op == "not":
        test = convert(values[0], dt.bool_, scope.widen)
        true = dt.bool_.numpy.type
        return Evaluated(dt.bool_, lambda env: true(not test(env)))
    if op == "pow":
        return _chain(values[-1], [(op, v) for v in reversed(values[:-1])], scope.widen)
    if len(values) > 1:
        return _chain(values[0], [(op, v) for v in values[1:]], scope.widen)
    return _unary(op, values[0], scope.widen)


def _unary(op: str, value: Evaluated, widen: bool) -> Evaluated:
    takes, gives, function = unary(op, value.tag, widen)
    if op == "neg" and value.constant is not None and isinstance(value.tag, Weak):
        negated = -value.constant
        return Evaluated(gives, lambda env: negated, negated)
    of = convert(value, takes, widen)
    return Evaluated(gives, lambda env: function(of(env)))


def _sum(args: tuple[Expr, ...], scope: EvaluationScope) -> Evaluated:
    """Fold additions from the left; a negated term is subtracted, so that `a - b` promotes before it negates."""
    terms = [(op, evaluate(term, scope)) for op, term in map(_added, args[1:])]
    return _chain(evaluate(args[0], scope), terms, scope.widen)


def _added(term: Expr) -> tuple[str, Expr]:
    """Return how a term of a sum is taken, and what of it."""
    return ("sub", term.args[0]) if isinstance(term, Call) and term.op == "neg" else ("add", term)


def _chain(first: Evaluated, rest: list[tuple[str, Evaluated]], widen: bool) -> Evaluated:
    """Fold operands in a loop, from the left, `pow` from the right: there may be more than Python's calls may nest."""
    if not rest:
        return first
    (op, value), *more = rest
    start = _pair(op, value, first, widen) if op == "pow" else _pair(op, first, value, widen)
    if not more:
        return start
    tag = start.tag
    steps: list[tuple[Callable[[Any], Any] | None, Callable[[Env], Any], Callable[[Any, Any], Any], bool]] = []
    for op, value in more:
        takes, gives, function = binary(op, *((value.tag, tag) if op == "pow" else (tag, value.tag)), widen)
        change = None if tag == takes else converter(tag, takes, widen)
        steps.append((change, convert(value, takes, widen), function, op == "pow"))
        tag = gives

    def fold(env: Env) -> Any:
        total = start.of(env)
        for change, other, function, turned in steps:
            total, operand = total if change is None else change(total), other(env)
            total = function(operand, total) if turned else function(total, operand)
        return total

    return Evaluated(tag, fold)


def _pair(op: str, a: Evaluated, b: Evaluated, widen: bool) -> Evaluated:
    takes, gives, function = binary(op, a.tag, b.tag, widen)
    if op == "pow" and takes == WEAK_INT and isinstance(b.constant, int) and b.constant < 0:
        takes = gives = Weak("f")
        function = binary(op, takes, takes, widen)[2]
    # Comparisons take integers as Python's ints, which are exact.
    left, right = convert(a, takes, widen), convert(b, takes, widen)
    if gives == dt.bool_:
        true = dt.bool_.numpy.type
        return Evaluated(gives, lambda env: true(function(left(env), right(env))))
    return Evaluated(gives, lambda env: function(left(env), right(env)))


def _where(values: list[Evaluated], widen: bool) -> Evaluated:
    test = convert(values[0], dt.bool_, widen)
    tag = promote(values[1].tag, values[2].tag)
    yes, no = convert(values[1], tag, widen), convert(values[2], tag, widen)

    def pick(env: Env) -> Any:
        a, b = yes(env), no(env)
        return a if test(env) else b

    return Evaluated(tag, pick)


def _several(op: str, values: list[Evaluated], widen: bool) -> Evaluated:
    tag, function = several(op, [v.tag for v in values], widen)
    args = [convert(v, tag, widen) for v in values]
    return Evaluated(tag, lambda env: function(*(a(env) for a in args)))


def _inline(reduce: Reduce, scope: EvaluationScope) -> Evaluated:
    """Return an inline reduction as a typed function; its result keeps the type that it accumulates in until stored."""
    body = evaluate(reduce.body, scope)
    tag = result_tag(reduce.op, body.tag)
    admits = scope.admits(reduce.conditions, body.of)
    names = [r.index for r in reduce.ranges]

    def instances(env: Env) -> Iterator[None]:
        for _ in points(names, scope.ranges, env):
            if admits(env):
                yield None

    if reduce.op in ("argmax", "argmin"):
        return Evaluated(tag, _arg(reduce.op, names[0], body, instances))
    acc = scope.acc if scope.acc is not None and reduce.op not in ("any", "all", "max", "min") else tag
    of = convert(body, acc, scope.widen)
    if reduce.op == "logsumexp":
        return _converted(acc, tag, _logsumexp(of, instances, evaluated(acc, scope.widen)), scope.widen)
    combine, start = step(reduce.op, acc), identity(reduce.op, acc, scope.widen)
    divide = reduce.op == "mean"

    def run(env: Env) -> Any:
        total, count = start, 0
        for _ in instances(env):
            total, count = combine(total, of(env)), count + 1
        if divide and isinstance(acc, Weak):
            return total / count if count else float("nan")
        return total / evaluated(acc, scope.widen)(count) if divide else total

    return _converted(acc, tag, run, scope.widen)


def _converted(acc: Tag, tag: Tag, run: Callable[[Env], Any], widen: bool) -> Evaluated:
    if acc == tag:
        return Evaluated(tag, run)
    change = converter(acc, tag, widen)
    return Evaluated(tag, lambda env: change(run(env)))


def _logsumexp(of: Callable[[Env], Any], instances: Callable[[Env], Iterator[None]], kind: Any) -> Callable[[Env], Any]:
    wide = np.longdouble if kind is np.longdouble else np.float64

    def run(env: Env) -> Any:
        terms = [wide(of(env)) for _ in instances(env)]
        if any(np.isnan(t) for t in terms):
            return kind(np.nan)
        largest = max(terms, default=wide(-np.inf))
        if np.isinf(largest):
            return kind(largest)
        return kind(largest + np.log(sum(np.exp(t - largest) for t in terms)))

    return run


def _arg(op: str, index: str, body: Evaluated, instances: Callable[[Env], Iterator[None]]) -> Callable[[Env], Any]:
    def better(a: Any, b: Any) -> bool:
        if b != b:
            return False
        return bool(a != a or (a > b if op == "argmax" else a < b))

    def run(env: Env) -> Any:
        best: Any = None
        where = 0
        for _ in instances(env):
            value = body.of(env)
            if best is None or better(value, best):
                best, where = value, env[index]
        if best is None:
            raise failure(NOTHING, op=op)
        return np.int64(where)

    return run


def type_of(expr: Expr, tags: Mapping[str, Tag | None]) -> Tag | None:
    """Return the type of an expression, None as long as it depends on tensors of unknown type alone."""
    match expr:
        case Literal(value=value):
            return tag_of_literal(value)
        case IndexExpr() | SizeExpr():
            return WEAK_INT
        case Read(tensor=tensor):
            return tags[tensor]
        case Cast(to=to):
            return to
        case Reduce(op=op, body=body):
            inner = type_of(body, tags)
            return None if inner is None else result_tag(op, inner)
        case Call(op=op, args=args):
            return _type_of_call(op, args, tags)
    raise refuse(type(expr).__name__)


def _type_of_call(op: str, args: tuple[Expr, ...], tags: Mapping[str, Tag | None]) -> Tag | None:
    if op == "add":
        return _type_of_sum(args, tags)
    known = [t for t in (type_of(a, tags) for a in (args[1:] if op == "where" else args)) if t is not None]
    if op == "not" or op in ("and", "or", "lt", "le", "gt", "ge", "eq", "ne"):
        return dt.bool_
    if not known:
        return None
    total = known[-1] if op == "pow" else known[0]
    rest = known[-2::-1] if op == "pow" else known[1:]
    if op == "where":
        for t in rest:
            total = promote(total, t)
        return total
    if op in TABLE and TABLE[op].arity > 2:
        return several(op, known, False)[0]
    if len(args) > 1:
        if not rest:
            return binary(op, total, total, False)[1]
        for t in rest:
            total = binary(op, *((t, total) if op == "pow" else (total, t)), False)[1]
        if op == "pow" and total == WEAK_INT and _negative(args[-1]):
            return Weak("f")
        return total
    return unary(op, total, False)[1]


def _type_of_sum(args: tuple[Expr, ...], tags: Mapping[str, Tag | None]) -> Tag | None:
    total = type_of(args[0], tags)
    for arg in args[1:]:
        op, term = _added(arg)
        tag = type_of(term, tags)
        if total is None or tag is None:
            total = tag if total is None else total
        else:
            total = binary(op, total, tag, False)[1]
    return total


def _negative(expr: Expr) -> bool:
    return (isinstance(expr, Literal) and isinstance(expr.value, int) and expr.value < 0) or (
        isinstance(expr, Call) and expr.op == "neg" and _positive(expr.args[0])
    )


def _positive(expr: Expr) -> bool:
    return isinstance(expr, Literal) and isinstance(expr.value, int) and expr.value > 0
