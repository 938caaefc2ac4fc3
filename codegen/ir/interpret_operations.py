"""The operations of the Kernel IR on NumPy arrays."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Any, TypeAlias

import numpy as np

from polyker.errors.base import InternalError
from polyker.ir.dtypes import DType
from polyker.reference import special

Array: TypeAlias = np.ndarray[Any, Any]

_BINARY: dict[str, Callable[..., Any]] = {
    "add": np.add, "mul": np.multiply, "sub": np.subtract, "div": np.divide, "floordiv": np.floor_divide,
    "mod": np.remainder, "minimum": np.minimum, "maximum": np.maximum, "and": np.logical_and, "or": np.logical_or,
    "bit_and": np.bitwise_and, "bit_or": np.bitwise_or, "bit_xor": np.bitwise_xor, "shift_left": np.left_shift,
    "shift_right": np.right_shift,
    "hypot": np.hypot, "atan2": np.arctan2, "copysign": np.copysign, "fmod": np.fmod,
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal,
}  # fmt: skip
_UNARY: dict[str, Callable[..., Any]] = {
    "neg": np.negative, "not": np.logical_not, "bit_not": np.invert, "abs": np.abs,
    "exp": np.exp, "expm1": np.expm1, "log": np.log,
    "log1p": np.log1p, "sqrt": np.sqrt, "sin": np.sin, "cos": np.cos, "tan": np.tan, "tanh": np.tanh, "floor": np.floor,
    "ceil": np.ceil, "trunc": np.trunc, "round": np.rint, "exp2": np.exp2, "log2": np.log2, "log10": np.log10, "cbrt": np.cbrt,
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh, "asinh": np.arcsinh,
    "acosh": np.arccosh, "atanh": np.arctanh, "sign": np.sign, "conj": np.conj, "real": np.real, "imag": np.imag,
}  # fmt: skip
_ROUNDING = ("floor", "ceil", "trunc", "round")
_SPECIAL: dict[str, Callable[[Any], Any]] = {
    "erf": special.error_function, "erfc": special.complementary, "erfinv": special.inverse_error_function,
    "lgamma": special.log_gamma, "digamma": special.digamma,
}  # fmt: skip


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
    return np.asarray(_apply(op, args)).astype(dtype.numpy, copy=False)


def _apply(op: str, args: list[Array]) -> Any:
    x = args[0]
    if op == "where":
        return np.where(*args)
    if op == "pow":
        return _power(x, args[1])
    if op in _ROUNDING and x.dtype.kind in "iub":
        return x
    if op in _BINARY:
        return reduce(_BINARY[op], args)
    if op in _UNARY:
        return x if op == "sign" and x.dtype.kind == "b" else _UNARY[op](x)
    if op in _SPECIAL:
        return _each(_SPECIAL[op], x)
    one = np.ones((), x.dtype)
    match op:
        case "multiply_add":
            return x * args[1] + args[2]
        case "join":
            return _joined(args)
        case "larger" | "larger_masked":
            return np.where(args[1] > x, args[1], x)
        case "smaller" | "smaller_masked":
            return np.where(args[1] < x, args[1], x)
        case "fused_add" | "fused_sub":
            return x + args[1] if op == "fused_add" else x - args[1]
        case "copied":
            return x
        case "below" | "above":
            end = x.dtype.type(-np.inf if op == "below" else np.inf)
            return np.where(np.isnan(x), -end, np.where(x == end, np.nan, np.nextafter(x, end)))
        case "dot2":
            return sum(p * q for p, q in zip(_parts(x, np.int16), _parts(args[1], np.int16), strict=True))
        case "dot4":
            return sum(p * q for p, q in zip(_parts(x, np.uint8), _parts(args[1], np.int8), strict=True))
        case "rsqrt":
            return one / np.sqrt(x)
        case "relu":
            return np.maximum(x, np.zeros((), x.dtype))
        case "softplus":
            return np.logaddexp(np.zeros((), x.dtype), x)
        case "popcount":
            return np.bitwise_count(x.astype(np.uint64) & np.uint64((1 << 8 * x.dtype.itemsize) - 1))
        case "sigmoid":
            return one / (one + np.exp(-x))
        case "silu":
            return x / (one + np.exp(-x))
        case "gelu":
            wide = x.astype(np.float64)
            return 0.5 * wide * (1 + _each(special.error_function, wide * math.sqrt(0.5)))
        case _:
            raise InternalError(f"no operation {op!r}")


def _joined(parts: list[Array]) -> Any:
    """Return integers side by side in 32 bits, the first lowest."""
    bits = 32 // len(parts)
    whole = sum((p.astype(np.int64) & ((1 << bits) - 1)) << (bits * n) for n, p in enumerate(parts))
    return np.asarray(whole).astype(np.uint32)


def _parts(x: Array, kind: type[np.integer[Any]]) -> list[Array]:
    """Return the integers of a kind that lie side by side in 32 bits, as i64."""
    bits = 8 * np.dtype(kind).itemsize
    return [(x.astype(np.int64) >> (bits * n)).astype(kind).astype(np.int64) for n in range(32 // bits)]


def _each(function: Callable[[Any], Any], x: Array) -> Array:
    return np.asarray([function(v) for v in np.ravel(x).astype(np.float64)]).reshape(np.shape(x))


def _power(x: Array, y: Array) -> Any:
    if x.dtype.kind not in "iu":
        return np.power(x, y)
    x, y = np.broadcast_arrays(x, y)
    positive = np.power(x, np.where(y < 0, np.zeros((), y.dtype), y))
    odd = (y & np.ones((), y.dtype)) != 0
    negative = np.where(x == 1, 1, np.where(x + np.ones((), x.dtype) == 0, np.where(odd, -1, 1), 0))
    return np.where(y < 0, negative.astype(x.dtype), positive)
