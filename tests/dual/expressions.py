"""Expressions as Python functions of one statement instance that give a derivative."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct

from polyker.ir.expr import Call, Cast, Expr, Read, Reduce
from polyker.ir.functions import TABLE
from polyker.reference.integers import Env, points
from polyker.reference.values import EvaluationScope, evaluate
from tests.dual.partials import partials


class Change(NamedTuple):
    """A derivative: `size` is the sum of the absolute values of what it is the sum of, which bounds its rounding errors."""

    value: float
    size: float


NONE = Change(0.0, 0.0)
ChangeFunction = Callable[[Env], Change]


def scaled(by: Any, change: Change) -> Change:
    """Return a derivative times a number."""
    return Change(float(by) * change.value, abs(float(by)) * change.size)


def total(changes: list[Change]) -> Change:
    """Return a sum."""
    return Change(sum(c.value for c in changes), sum(c.size for c in changes))


class Tangent(Struct, frozen=True):
    """The derivatives of a tensor's elements."""

    value: Any
    size: Any


class DualScope(Struct, frozen=True):
    """What derivatives are computed in: the values, and the tangents of the tensors of floats."""

    values: EvaluationScope
    tangents: Mapping[str, Tangent]

    def value(self, expr: Expr) -> Callable[[Env], Any]:
        """Return the function of an expression's value."""
        return evaluate(expr, self.values).of


def change_of(expr: Expr, scope: DualScope) -> ChangeFunction | None:
    """Return the derivative of an expression as a function; None where it never changes."""
    if evaluate(expr, scope.values).tag.kind != "f":
        return None
    match expr:
        case Read(tensor=tensor):
            return _read(expr, scope) if tensor in scope.tangents else None
        case Cast(arg=arg):
            return change_of(arg, scope)
        case Reduce():
            return _reduced(expr, scope)
        case Call(op="where", args=(condition, a, b)):
            test, chosen = scope.value(condition), [change_of(a, scope), change_of(b, scope)]
            if chosen == [None, None]:
                return None
            yes, no = (f or (lambda env: NONE) for f in chosen)
            return lambda env: yes(env) if test(env) else no(env)
        case Call(op="add", args=args):
            signs = [(-1, a.args[0]) if isinstance(a, Call) and a.op == "neg" else (1, a) for a in args]
            terms = [(sign, f) for sign, a in signs if (f := change_of(a, scope)) is not None]
            return (lambda env: total([scaled(sign, f(env)) for sign, f in terms])) if terms else None
        case Call(op="pow", args=(a, *rest)) if len(rest) > 1:
            return change_of(Call("pow", (a, Call("pow", tuple(rest)))), scope)
        case Call(op=op, args=(*first, last)) if len(first) > 1 and (op not in TABLE or TABLE[op].arity == 2):
            return change_of(Call(op, (Call(op, tuple(first)), last)), scope)
        case Call(op="mul", args=(a, b)):
            return _product(a, b, scope)
        case Call():
            return _call(expr, scope)
    return None


def _product(a: Expr, b: Expr, scope: DualScope) -> ChangeFunction | None:
    (x, y), (dx, dy) = (scope.value(a), scope.value(b)), (change_of(a, scope), change_of(b, scope))
    terms = [(of, other) for of, other in ((dx, y), (dy, x)) if of is not None]
    return (lambda env: total([scaled(other(env), of(env)) for of, other in terms])) if terms else None


def _call(call: Call, scope: DualScope) -> ChangeFunction | None:
    value, args = scope.value(call), [scope.value(a) for a in call.args]
    changes = [(n, f) for n, a in enumerate(call.args) if (f := change_of(a, scope)) is not None]
    if not changes:
        return None

    def run(env: Env) -> Change:
        found = partials(call.op, value(env), [a(env) for a in args])
        return total([scaled(found[n], f(env)) for n, f in changes])

    return run


def _read(read: Read, scope: DualScope) -> ChangeFunction:
    tangent = scope.tangents[read.tensor]
    subscripts = [scope.values.integer(s) for s in read.subscripts]
    move = {"edge": _edge, "wrap": _wrap, "reflect": _reflect}.get(read.pad.mode) if read.pad else None
    value, size = tangent.value, tangent.size

    def run(env: Env) -> Change:
        place = tuple([s(env) for s in subscripts])
        if read.pad is not None:
            if move is not None:
                place = tuple(map(move, place, value.shape))
            elif not all(0 <= c < n for c, n in zip(place, value.shape, strict=True)):
                return NONE
        return Change(float(value[place]), float(size[place]))

    return run


def _edge(c: int, n: int) -> int:
    return sorted((0, c, n - 1))[1]


def _wrap(c: int, n: int) -> int:
    return c % n


def _reflect(c: int, n: int) -> int:
    while n > 1 and not 0 <= c < n:
        c = -c if c < 0 else 2 * (n - 1) - c
    return c if n > 1 else 0


def _reduced(reduce: Reduce, scope: DualScope) -> ChangeFunction | None:
    change = change_of(reduce.body, scope)
    if change is None or reduce.op in ("argmax", "argmin", "any", "all"):
        return None
    of, admits = scope.value(reduce.body), scope.values.admits(reduce.conditions)
    names = [r.index for r in reduce.ranges]

    def terms(env: Env) -> Iterator[Term]:
        for _ in points(names, scope.values.ranges, env):
            if admits(env):
                yield Term(float(of(env)), change(env))

    joins = {"sum": Sum, "mean": Mean, "prod": Product, "max": Largest, "min": Smallest, "logsumexp": LogSum}[reduce.op]

    def run(env: Env) -> Change:
        running = joins()
        for term in terms(env):
            running.take(term)
        return running.change()

    return run


class Term(NamedTuple):
    """A value, and its derivative."""

    value: float
    change: Change


class Sum:
    """A running reduction of terms, here a sum: `take` adds a term, `change` is the derivative of the result so far."""

    def __init__(self) -> None:
        self.terms: list[Term] = []

    def take(self, term: Term) -> None:
        """Add a term."""
        self.terms.append(term)

    def change(self) -> Change:
        """Return the derivative of what the terms make."""
        return total([t.change for t in self.terms])


class Mean(Sum):
    """A mean."""

    def change(self) -> Change:
        return scaled(1 / len(self.terms), super().change()) if self.terms else NONE


class Product(Sum):
    """A product: each term's change times the others' values, from both ends, so that no zero divides."""

    def change(self) -> Change:
        values = [1.0, *(t.value for t in self.terms)]
        before = np.multiply.accumulate(values)[:-1]
        after = np.multiply.accumulate([*values[1:], 1.0][::-1])[::-1][1:]
        return total([scaled(a * b, t.change) for a, b, t in zip(before, after, self.terms, strict=True)])


class Largest(Sum):
    """A maximum: the mean of the changes of the terms that attain it."""

    def change(self) -> Change:
        if not self.terms:
            return NONE
        best = self.best([t.value for t in self.terms])
        if math.isnan(best):
            return Change(math.nan, math.nan)
        attained = [t.change for t in self.terms if t.value == best]
        return scaled(1 / len(attained), total(attained))

    @staticmethod
    def best(values: list[float]) -> float:
        """Return the extremum."""
        return float(np.max(values))


class Smallest(Largest):
    """A minimum."""

    @staticmethod
    def best(values: list[float]) -> float:
        return float(np.min(values))


class LogSum(Sum):
    """The logarithm of a sum of exponentials: its weights are the softmax of the terms."""

    def change(self) -> Change:
        if not self.terms:
            return NONE
        values = np.array([t.value for t in self.terms])
        weights = np.exp(values - values.max())
        return total([scaled(w / weights.sum(), t.change) for w, t in zip(weights, self.terms, strict=True)])


STATEMENT_JOINS = {"add": Sum, "mul": Product, "max": Largest, "min": Smallest, "logsumexp": LogSum}
