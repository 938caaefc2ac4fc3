"""Reductions: inline ones, and the step that an updating statement repeats."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from polyker.errors import failure
from polyker.errors.reference import NOTHING
from polyker.ir import dtypes as dt
from polyker.ir.dtypes import DType
from polyker.ir.expr import Reduce
from polyker.reference.functions import refuse
from polyker.reference.integers import Env, points
from polyker.reference.tags import WEAK_FLOAT, WEAK_INT, Tag, Weak, converter, evaluated, identity
from polyker.reference.values import Scope, Value, convert, evaluate


def result_tag(op: str, tag: Tag) -> Tag:
    """Return the type of a reduction of values of type `tag`: inline, or what an update adds to a tensor's type."""
    if tag.kind == "c" and op in ("max", "min", "argmax", "argmin", "logsumexp"):
        raise refuse(op, tag)
    if op in ("argmax", "argmin"):
        return dt.i64
    if op in ("any", "all"):
        return dt.bool_
    if op in ("mean", "logsumexp"):
        return tag if tag.kind in "fc" else WEAK_FLOAT if tag == WEAK_INT else dt.f64
    return dt.i64 if op in ("sum", "prod", "add", "mul") and tag == dt.bool_ else tag


def step(op: str, tag: Tag) -> Callable[[Any, Any], Any]:
    """Return the function that takes one more value into a running one, both of type `tag`."""
    match op:
        case "add" | "sum" | "mean":
            return lambda a, b: a + b
        case "mul" | "prod":
            return lambda a, b: a * b
        case "any":
            return np.logical_or
        case "all":
            return np.logical_and
        case "logsumexp":
            return _log_of_sum
    pick: Any = np.maximum if op == "max" else np.minimum
    if isinstance(tag, Weak):
        return lambda a, b: pick(a, b).item()
    return pick  # type: ignore[no-any-return]


def _log_of_sum(a: Any, b: Any) -> Any:
    """Return log(exp(a) + exp(b)), in f64 or wider until it is stored."""
    wide = np.longdouble if isinstance(a, np.longdouble) or isinstance(b, np.longdouble) else np.float64
    return np.logaddexp(wide(a), wide(b))


def inline(reduce: Reduce, scope: Scope) -> Value:
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
        return Value(tag, _arg(reduce.op, names[0], body, instances))
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


def _converted(acc: Tag, tag: Tag, run: Callable[[Env], Any], widen: bool) -> Value:
    if acc == tag:
        return Value(tag, run)
    change = converter(acc, tag, widen)
    return Value(tag, lambda env: change(run(env)))


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


def _arg(op: str, index: str, body: Value, instances: Callable[[Env], Iterator[None]]) -> Callable[[Env], Any]:
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


def accumulator(op: str, target: DType, acc: DType | None) -> DType:
    """Return the type that an update accumulates in: the target's own (f16 and bf16 in f32), unless `acc` is given."""
    if op in ("any", "all"):
        return dt.bool_
    if op in ("max", "min"):
        return target
    if acc is not None:
        return acc
    return dt.i64 if target == dt.bool_ else target
