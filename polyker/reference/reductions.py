"""Reductions: their types, and the step that takes one more value in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from polyker.ir import dtypes as dt
from polyker.ir.dtypes import DType
from polyker.reference.functions import refuse
from polyker.reference.tags import WEAK_FLOAT, WEAK_INT, Tag, Weak


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


def accumulator(op: str, target: DType, acc: DType | None) -> DType:
    """Return the type that an update accumulates in: the target's own (f16 and bf16 in f32), unless `acc` is given."""
    if op in ("any", "all"):
        return dt.bool_
    if op in ("max", "min"):
        return target
    if acc is not None:
        return acc
    return dt.i64 if target == dt.bool_ else target
