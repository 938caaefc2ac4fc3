"""Operators and functions on single values, typed and computed as numpy's scalars are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, TypeAlias

import numpy as np

from polyker.errors import failure
from polyker.errors.reference import NEGATIVE_POWER, OPERANDS
from polyker.ir import dtypes as dt
from polyker.ir.functions import TABLE
from polyker.reference.special import complementary, digamma, error_function, inverse_error_function, log_gamma
from polyker.reference.tags import WEAK_FLOAT, WEAK_INT, Tag, Weak, evaluated, float_of, promote

Unary: TypeAlias = Callable[[Any], Any]
Binary: TypeAlias = Callable[[Any, Any], Any]

_TRANSCENDENTAL: dict[str, Any] = {
    "exp": np.exp, "expm1": np.expm1, "log": np.log, "log1p": np.log1p, "sqrt": np.sqrt,
    "sin": np.sin, "cos": np.cos, "tan": np.tan, "tanh": np.tanh, "exp2": np.exp2, "log2": np.log2, "log10": np.log10,
    "cbrt": np.cbrt, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh,
    "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
}  # fmt: skip
_COMPOSED = ("rsqrt", "erf", "erfc", "erfinv", "lgamma", "digamma", "sigmoid", "gelu", "silu", "softplus")
_CLASSES: dict[str, Any] = {"isnan": np.isnan, "isinf": np.isinf, "isfinite": np.isfinite}
_PARTS = ("conj", "real", "imag")
# What bools have none of, by the name that the notation has for it.
_NOT_OF_BOOLS = {"neg": "-", "sign": "sign", "relu": "relu"}
_ROUNDINGS: dict[str, Unary] = {"floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "round": np.rint}
_PAIRS: dict[str, Any] = {"hypot": np.hypot, "atan2": np.arctan2, "copysign": np.copysign, "fmod": np.fmod}
_COMPARE: dict[str, Binary] = {
    "lt": lambda a, b: a < b, "le": lambda a, b: a <= b, "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b, "eq": lambda a, b: a == b, "ne": lambda a, b: a != b,
}  # fmt: skip


def refuse(op: str, *tags: Tag) -> Exception:
    """Return the error for an operator that does not take these types."""
    return failure(OPERANDS, op=op, types=" and ".join(map(str, tags)))


def unary(op: str, tag: Tag, widen: bool) -> tuple[Tag, Tag, Unary]:
    """Return (type the argument is converted to, type of the result, the function)."""
    if tag.kind == "c" and op in TABLE and not TABLE[op].complex:
        raise refuse(op, tag)
    if op in _TRANSCENDENTAL or op in _COMPOSED:
        return _floating(op, float_of(tag), widen)
    if op in _PARTS:
        return _part(op, tag, widen)
    boolean, whole = tag == dt.bool_, tag.kind in "biu"
    if boolean and op in _NOT_OF_BOOLS:
        raise refuse(_NOT_OF_BOOLS[op], tag)
    match op:
        case "neg":
            return tag, tag, lambda a: -a
        case "bit_not":
            if not whole:
                raise refuse("~", tag)
            return tag, tag, (np.logical_not if boolean else lambda a: ~a)
        case "abs":
            return tag, _real(tag), (_same if boolean else abs)
        case "floor" | "ceil" | "trunc" | "round":
            if op == "round" and boolean:
                return dt.f16, dt.f16, _same
            return tag, tag, _same if whole else _pythonic(_ROUNDINGS[op], tag)
        case "sign":
            return tag, tag, _pythonic(np.sign, tag)
        case "relu":
            none = evaluated(tag, widen)(0)
            return tag, tag, _pythonic(lambda a: np.maximum(a, none), tag)
        case "isnan" | "isinf" | "isfinite":
            # An integer of Python's may be larger than a float.
            return tag, dt.bool_, (lambda a: np.bool_(op == "isfinite")) if whole else _CLASSES[op]
        case "popcount" if whole:
            return tag, dt.u8, np.bitwise_count
    raise refuse(op, tag)


def _part(op: str, tag: Tag, widen: bool) -> tuple[Tag, Tag, Unary]:
    """Return the conjugate, the real or the imaginary part of numbers; real ones are their own, with no imaginary part."""
    cplx = tag.kind == "c"
    if op == "conj":
        return tag, tag, (np.conj if cplx else _same)
    if op == "real":
        return tag, _real(tag), (_real_part if cplx else _same)
    part = evaluated(_real(tag), widen)
    return tag, _real(tag), (lambda a: part(a.imag)) if cplx else (lambda a: part(0))


def _floating(op: str, tag: Tag, widen: bool) -> tuple[Tag, Tag, Unary]:
    if op in _TRANSCENDENTAL:
        return tag, tag, _pythonic(_TRANSCENDENTAL[op], tag)
    kind = evaluated(tag, widen)
    # A function made of several operations is computed one type wider, so that it is rounded once.
    wide: Any = (np.complex128 if tag.kind == "c" else np.float64) if kind in (np.float32, np.complex64) else kind
    wide = {float: np.float64, complex: np.complex128}.get(wide, wide)
    function = _composed(op)
    return tag, tag, lambda a: kind(function(wide(a)))


def _composed(op: str) -> Unary:
    match op:
        case "rsqrt":
            return lambda a: type(a)(1) / np.sqrt(a)
        case "sigmoid":
            return _sigmoid
        case "silu":
            return lambda a: a * _sigmoid(a)
        case "softplus":
            return lambda a: np.logaddexp(type(a)(0), a)
        case "gelu":
            return lambda a: a * complementary(-a / np.sqrt(type(a)(2))) / 2
    return _SPECIAL[op]


_SPECIAL: dict[str, Unary] = {
    "erf": error_function, "erfc": complementary, "erfinv": inverse_error_function, "lgamma": log_gamma, "digamma": digamma,
}  # fmt: skip


def _sigmoid(a: Any) -> Any:
    if a.real >= 0:
        return 1 / (1 + np.exp(-a))
    e = np.exp(a)
    return e / (1 + e)


def binary(op: str, a: Tag, b: Tag, widen: bool) -> tuple[Tag, Tag, Binary]:
    """Return (type both arguments are converted to, type of the result, the function)."""
    if "c" in (a.kind, b.kind) and op in ("lt", "le", "gt", "ge", "minimum", "maximum"):
        raise refuse(op, a, b)
    if op in _COMPARE:
        # Integers compare exactly, whatever their types (and Python ints with them), as numpy's do.
        both_whole = all(t == WEAK_INT or t.kind in "biu" for t in (a, b))
        return (WEAK_INT if both_whole else promote(a, b)), dt.bool_, _COMPARE[op]
    if op in ("and", "or"):
        return dt.bool_, dt.bool_, (np.logical_and if op == "and" else np.logical_or)
    tag = promote(a, b)
    if op in _PAIRS:
        return _of_reals(op, tag, a, b)
    match op:
        case "add":
            return tag, tag, (np.logical_or if tag == dt.bool_ else lambda x, y: x + y)
        case "sub":
            if tag == dt.bool_:
                raise refuse("-", a, b)
            return tag, tag, lambda x, y: x - y
        case "mul":
            return tag, tag, (np.logical_and if tag == dt.bool_ else lambda x, y: x * y)
        case "minimum" | "maximum":
            return tag, tag, _pythonic2(np.minimum if op == "minimum" else np.maximum, tag)
        case "bit_and" | "bit_or" | "bit_xor" | "shift_left" | "shift_right":
            return _bitwise(op, tag, a, b)
        case "div":
            wide = WEAK_FLOAT if tag == WEAK_INT else dt.f64 if tag.kind in "biu" else tag
            return wide, wide, _pythonic2(np.true_divide, wide)
        case "pow":
            tag = dt.i8 if tag == dt.bool_ else tag
            return tag, tag, _power(tag)
        case "floordiv" | "mod":
            tag = dt.i8 if tag == dt.bool_ else tag
            if tag.kind == "c":
                raise refuse(op, a, b)
            return tag, tag, _floored(op, tag)
    raise refuse(op, a, b)


def _of_reals(op: str, tag: Tag, a: Tag, b: Tag) -> tuple[Tag, Tag, Binary]:
    """Return a function of two real numbers."""
    if tag.kind == "c":
        raise refuse(op, a, b)
    if op == "fmod":
        return _truncated(dt.i8 if tag == dt.bool_ else tag)
    weak = isinstance(a, Weak) or isinstance(b, Weak)
    tag = float_of(tag) if weak else promote(float_of(a), float_of(b))
    return tag, tag, _pythonic2(_PAIRS[op], tag)


def _bitwise(op: str, tag: Tag, a: Tag, b: Tag) -> tuple[Tag, Tag, Binary]:
    if tag.kind not in "biu":
        raise refuse(op, a, b)
    if op in ("shift_left", "shift_right"):
        tag = dt.i8 if tag == dt.bool_ else tag
        if tag == WEAK_INT:
            return tag, tag, _shifted_left if op == "shift_left" else _shifted_right
        return tag, tag, (np.left_shift if op == "shift_left" else np.right_shift)
    function: Binary = {"bit_and": lambda x, y: x & y, "bit_or": lambda x, y: x | y}.get(op, lambda x, y: x ^ y)
    return tag, tag, function


def _shifted_left(x: int, y: int) -> int:
    """Shift Python integers as numpy shifts i64: by 64 or more, or by a negative number, nothing is left."""
    return x << y if 0 <= y < 64 else 0


def _shifted_right(x: int, y: int) -> int:
    return x >> y if 0 <= y < 64 else -1 if x < 0 else 0


def _floored(op: str, tag: Tag) -> Binary:
    if tag == WEAK_INT:
        if op == "mod":
            return lambda x, y: x % y if y else 0
        return lambda x, y: x // y if y else 0
    return _pythonic2(np.floor_divide if op == "floordiv" else np.remainder, tag)


def _truncated(tag: Tag) -> tuple[Tag, Tag, Binary]:
    """Return the remainder of a division that rounds to 0; by 0 it is 0 for integers."""
    if tag == WEAK_INT:
        return tag, tag, lambda x, y: (abs(x) % abs(y)) * (1 if x >= 0 else -1) if y else 0
    return tag, tag, _pythonic2(np.fmod, tag)


def clip(tags: Sequence[Tag]) -> tuple[Tag, Callable[[Any, Any, Any], Any]]:
    """Return (type all arguments are converted to, minimum(maximum(x, low), high))."""
    tag = reduce(promote, tags)
    if tag.kind == "c":
        raise refuse("clip", *tags)
    larger, smaller = _pythonic2(np.maximum, tag), _pythonic2(np.minimum, tag)
    return tag, lambda x, low, high: smaller(larger(x, low), high)


def _power(tag: Tag) -> Binary:
    if tag.kind == "f" or tag.kind == "c":
        return _pythonic2(np.power, tag)

    def whole(x: Any, y: Any) -> Any:
        if y < 0:
            raise failure(NEGATIVE_POWER)
        return x**y

    return whole


def _real(tag: Tag) -> Tag:
    return (WEAK_FLOAT if tag.kind == "c" else tag) if isinstance(tag, Weak) else tag.real


def _same(a: Any) -> Any:
    return a


def _real_part(a: Any) -> Any:
    return a.real


def _pythonic(function: Unary, tag: Tag) -> Unary:
    """Keep a weak value a Python number."""
    if not isinstance(tag, Weak):
        return function
    return lambda a: function(a).item()


def _pythonic2(function: Binary, tag: Tag) -> Binary:
    if not isinstance(tag, Weak):
        return function
    return lambda a, b: function(a, b).item()
