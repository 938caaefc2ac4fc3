"""The operations of the Kernel IR on NumPy arrays."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Any, TypeAlias

import numpy as np

from polyker.errors.base import InternalError
from polyker.ir.dtypes import DType
from polyker.ir.functions import TABLE
from polyker.ir.instructions import MEANINGS, DotProduct

Array: TypeAlias = np.ndarray[Any, Any]

_BINARY: dict[str, Callable[..., Any]] = {
    "add": np.add, "mul": np.multiply, "sub": np.subtract, "div": np.divide, "floordiv": np.floor_divide,
    "mod": np.remainder, "minimum": np.minimum, "maximum": np.maximum, "and": np.logical_and, "or": np.logical_or,
    "bit_and": np.bitwise_and, "bit_or": np.bitwise_or, "bit_xor": np.bitwise_xor, "shift_left": np.left_shift,
    "shift_right": np.right_shift,
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal,
}  # fmt: skip
_UNARY: dict[str, Callable[..., Any]] = {"neg": np.negative, "not": np.logical_not, "bit_not": np.invert}


def convert(value: Array, dtype: DType) -> Array:
    """Return `value` as `dtype`; of a complex number the real part where `dtype` is real and no bool."""
    if value.dtype.kind == "c" and dtype.kind not in "cb":
        value = value.real
    return np.asarray(value).astype(dtype.numpy, copy=False)


def combine(op: str, x: Array, y: Array) -> Array:
    """Return one step of a reduction."""
    return np.asarray(_BINARY[op](x, y)).astype(x.dtype, copy=False)


def apply(op: str, args: list[Array], dtype: DType) -> Array:
    """Return the value of an operation, of type `dtype`."""
    binary = _BINARY.get(op) if len(args) == 2 else None
    found = np.asarray(_apply(op, args) if binary is None else binary(*args))
    return found if found.dtype == dtype.numpy else found.astype(dtype.numpy)


def _apply(op: str, args: list[Array]) -> Any:
    x = args[0]
    if op == "where":
        return np.where(*args)
    if op == "pow":
        return _power(x, args[1])
    if op in _BINARY:
        return reduce(_BINARY[op], args)
    if op in _UNARY:
        return _UNARY[op](x)
    if op in _OWN:
        return _OWN[op](*args)
    if op in MEANINGS:
        return _dot(MEANINGS[op], *args)
    if op in TABLE:
        itself = x.dtype.kind in TABLE[op].itself or (x.dtype.kind == "b" and TABLE[op].of_bool is None)
        return x if itself else TABLE[op].value(*args)
    raise InternalError(f"no operation {op!r}")


def _joined(*parts: Array) -> Any:
    """Return integers side by side in 32 bits, the first lowest."""
    bits = 32 // len(parts)
    whole = sum((p.astype(np.int64) & ((1 << bits) - 1)) << (bits * n) for n, p in enumerate(parts))
    return np.asarray(whole).astype(np.uint32)


def _parts(x: Array, kind: DType) -> list[Array]:
    """Return the integers of a type that lie side by side in 32 bits, as i64."""
    bits = 8 * kind.itemsize
    return [(x.astype(np.int64) >> (bits * n)).astype(kind.numpy).astype(np.int64) for n in range(32 // bits)]


def _dot(instruction: DotProduct, x: Array, y: Array) -> Any:
    """Return the dot product of the integers in 32 bits of x with those of y."""
    return sum(p * q for p, q in zip(_parts(x, instruction.left), _parts(y, instruction.right), strict=True))


def _neighbour(x: Array, end: float) -> Any:
    """Return the next number towards `end`, an infinity: NaN lies beyond either (polyker.ir.expr.INTERNAL)."""
    last = x.dtype.type(end)
    return np.where(np.isnan(x), -last, np.where(x == last, np.nan, np.nextafter(x, last)))


def _larger(x: Array, y: Array) -> Any:
    return np.where(y > x, y, x)


def _smaller(x: Array, y: Array) -> Any:
    return np.where(y < x, y, x)


def _popcount(x: Array) -> Any:
    return np.bitwise_count(x.astype(np.uint64) & np.uint64((1 << 8 * x.dtype.itemsize) - 1))


# What this level has besides; of the functions of the notation only what means something else here: the ones of all bits.
_OWN: dict[str, Callable[..., Any]] = {
    "multiply_add": lambda x, y, z: x * y + z,
    "join": _joined,
    "larger": _larger,
    "larger_masked": _larger,
    "smaller": _smaller,
    "smaller_masked": _smaller,
    "fused_add": lambda x, y: x + y,
    "fused_sub": lambda x, y: x - y,
    "copied": lambda x: x,
    "below": lambda x: _neighbour(x, -math.inf),
    "above": lambda x: _neighbour(x, math.inf),
    "popcount": _popcount,
}


def _power(x: Array, y: Array) -> Any:
    if x.dtype.kind not in "iu":
        return np.power(x, y)
    x, y = np.broadcast_arrays(x, y)
    positive = np.power(x, np.where(y < 0, np.zeros((), y.dtype), y))
    odd = (y & np.ones((), y.dtype)) != 0
    negative = np.where(x == 1, 1, np.where(x + np.ones((), x.dtype) == 0, np.where(odd, -1, 1), 0))
    return np.where(y < 0, negative.astype(x.dtype), positive)
