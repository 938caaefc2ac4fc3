"""Element types of values in the plain interpreter: numpy's promotion; literals, indices, sizes are weak (NEP 50)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from msgspec import Struct

from polyker.errors import failure
from polyker.errors.reference import LITERAL, OPERANDS
from polyker.ir import dtypes as dt
from polyker.ir.dtypes import DType


class Weak(Struct, frozen=True):
    """The type of a value that follows the other operand: a Python int (i), float (f) or complex (c)."""

    kind: str

    def __repr__(self) -> str:
        return {"i": "int", "f": "float", "c": "complex"}[self.kind]


Tag: TypeAlias = DType | Weak
WEAK_INT, WEAK_FLOAT, WEAK_COMPLEX = Weak("i"), Weak("f"), Weak("c")
_SAMPLES: dict[str, Any] = {"i": 0, "f": 0.0, "c": 0j}
_HALVES = ("f16", "bf16")


def tag_of_literal(value: bool | int | float | complex) -> Tag:
    """Return the type of a Python scalar: weak, but for bool, which is numpy's bool."""
    if isinstance(value, bool):
        return dt.bool_
    if isinstance(value, int):
        return WEAK_INT
    return WEAK_FLOAT if isinstance(value, float) else WEAK_COMPLEX


def promote(a: Tag, b: Tag) -> Tag:
    """Return the common type of two values.

    bf16 promotes as f16 does, with itself in f16's place; bf16 with f16 gives f32 (numpy has no answer for either).
    """
    if a == b:
        return a
    if isinstance(a, Weak) and isinstance(b, Weak):
        return max(a, b, key=lambda w: "ifc".index(w.kind))
    if isinstance(a, Weak):
        return promote(b, a)
    if a.name in _HALVES and isinstance(b, DType) and b.name in _HALVES:
        return dt.f32
    if isinstance(b, DType) and b.name == "bf16":
        return promote(b, a)
    brain = a.name == "bf16"
    left: Any = dt.f16.numpy if brain else a.numpy
    found = dt.from_numpy(np.result_type(left, _SAMPLES[b.kind] if isinstance(b, Weak) else b.numpy))
    if found is None:
        raise failure(OPERANDS, op="promotion", types=f"{a} and {b}")
    return dt.bf16 if brain and found == dt.f16 else found


def settle(tag: Tag) -> DType:
    """Return the type that a value has when nothing else decides: i64, f64 or c128 for a weak one."""
    return tag if isinstance(tag, DType) else {"i": dt.i64, "f": dt.f64, "c": dt.c128}[tag.kind]


def float_of(tag: Tag) -> Tag:
    """Return what a function such as `exp` gives for an argument of this type, as numpy's does."""
    if isinstance(tag, Weak):
        return max(tag, WEAK_FLOAT, key=lambda w: "ifc".index(w.kind))
    if tag.kind in "fc":
        return tag
    return {1: dt.f16, 2: dt.f32}.get(tag.itemsize, dt.f64)


def evaluated(tag: Tag, widen: bool) -> Any:
    """Return the numpy scalar type (or Python type) that values of this type are computed in."""
    if isinstance(tag, Weak):
        return {"i": int, "f": float, "c": complex}[tag.kind]
    if widen and tag.kind in "fc":
        return np.longdouble if tag.kind == "f" else np.clongdouble
    return np.float32 if tag.name in _HALVES else tag.numpy.type


def rounding(dtype: DType, widen: bool) -> Callable[[Any], Any] | None:
    """Return what storing does to a value computed for `dtype`: f16 and bf16 round once; None for nothing."""
    if widen or dtype.name not in _HALVES:
        return None
    half: Any = dtype.numpy.type
    return lambda v: np.float32(half(v))


def literal(value: Any, to: DType, widen: bool) -> Any:
    """Return a constant as a value of type `to`; raises DTypeError for an integer that does not fit."""
    if to.is_integer and isinstance(value, int) and not isinstance(value, bool):
        info = np.iinfo(to.numpy)
        if not info.min <= value <= info.max:
            raise failure(LITERAL, value=value, dtype=to)
    return converter(tag_of_literal(value), to, widen)(value)


def converter(source: Tag, to: Tag, widen: bool) -> Callable[[Any], Any]:
    """Return the function that converts a computed value of type `source` to one of type `to`; integers wrap."""
    if source == to:
        return _same
    target = evaluated(to, widen)
    if isinstance(to, Weak):
        return target  # type: ignore[no-any-return]
    if isinstance(source, Weak):
        if to.kind in "iu":
            bits = 8 * to.itemsize
            if source.kind == "i":
                return lambda v: target(_wrap(v, bits, to.kind))
            return lambda v: np.float64(v.real).astype(target)
        return target if to.kind == "c" else lambda v: target(v.real)
    if evaluated(source, widen) is target:
        return _same
    if source.kind == "c" and to.kind in "iuf":
        return lambda v: v.real.astype(target)
    return lambda v: v.astype(target)


def _same(value: Any) -> Any:
    return value


def _wrap(value: int, bits: int, kind: str) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if kind == "i" and value >> (bits - 1) else value


def identity(op: str, tag: Tag, widen: bool) -> Any:
    """Return what a reduction of values of type `tag` over nothing gives."""
    kind = evaluated(tag, widen)
    match op:
        case "add" | "sum" | "mean":
            return kind(0)
        case "mul" | "prod":
            return kind(1)
        case "any":
            return np.False_
        case "all":
            return np.True_
    low = op in ("max", "logsumexp")
    if tag == WEAK_INT:
        return -(2**63) if low else 2**63 - 1
    if isinstance(tag, Weak) or tag.kind == "f":
        return kind(-np.inf if low else np.inf)
    if tag.kind == "b":
        return np.bool_(not low)
    if tag.kind == "c":
        raise failure(OPERANDS, op=op, types=tag)
    info = np.iinfo(tag.numpy)
    return kind(info.min if low else info.max)
