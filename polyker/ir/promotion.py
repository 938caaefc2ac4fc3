"""Promotion of element types, numpy's (NEP 50): literals, sizes, indices and Python scalars are weak."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from msgspec import Struct

from polyker.ir.dtypes import DType, bf16, f16, f32, f64, from_numpy

_SAMPLES: dict[str, Any] = {"i": 0, "u": 0, "f": 0.0, "c": 0j}


class UnknownType(Exception):
    """A tensor is read whose type is not known yet (a recurrence); `tensor` names it."""

    def __init__(self, tensor: str) -> None:
        super().__init__(tensor)
        self.tensor = tensor


class ValueType(Struct, frozen=True):
    """The type of a value: its own name for promotion (`f16` though computed in f32), and whether it is weak.

    A weak value has i64 (u64 where it is too large for that), f64 or c128, the type it is computed in when nothing else decides.
    """

    dtype: DType
    weak: bool = False

    def __str__(self) -> str:
        return {"i": "int", "u": "int", "f": "float", "c": "complex"}[self.dtype.kind] if self.weak else self.dtype.name


@cache
def promote(a: ValueType, b: ValueType) -> ValueType:
    """Return the common type of two values.

    f16 with bf16 gives f32; bf16 with integers gives what f16 does, itself in f16's place (numpy has no answer there).
    """
    if a == b:
        return a
    if a.weak and b.weak:
        return max(a, b, key=lambda v: "iufc".index(v.dtype.kind))
    if a.weak:
        return promote(b, a)
    halves = {a.dtype, b.dtype}
    if halves == {f16, bf16}:
        return ValueType(f32)
    left, right = (f16 if v.dtype == bf16 and not v.weak else v.dtype for v in (a, b))
    found = from_numpy(np.result_type(left.numpy, _SAMPLES[right.kind] if b.weak else right.numpy))
    assert found is not None
    return ValueType(bf16 if found == f16 and bf16 in halves else found)


def computed(dtype: DType) -> DType:
    """Return the type that values of this type are computed in: f32 for the storage types f16 and bf16."""
    return f32 if dtype in (f16, bf16) else dtype


def floating(value: ValueType) -> ValueType:
    """Return what `exp` and its like give: f16 for 8-bit integers and bool, f32 for 16-bit ones, then f64 (numpy's)."""
    if value.dtype.kind in "fc":
        return value
    if value.weak:
        return ValueType(f64, True)
    return ValueType({1: f16, 2: f32}.get(value.dtype.itemsize, f64))


def integer_range(dtype: DType) -> tuple[int, int]:
    """Return the least and the greatest value of an integer type."""
    bits = 8 * dtype.itemsize
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if dtype.kind == "i" else (0, (1 << bits) - 1)


def fits(value: int, dtype: DType) -> bool:
    """Whether an integer is in the range of an integer type."""
    low, high = integer_range(dtype)
    return low <= value <= high
