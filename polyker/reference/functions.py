"""Operators and functions on single values, typed and computed as numpy's scalars are."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from polyker.errors import failure
from polyker.errors.reference import NEGATIVE_POWER, OPERANDS
from polyker.ir import dtypes as dt
from polyker.reference.tags import WEAK_FLOAT, WEAK_INT, Tag, Weak, evaluated, float_of, promote

Unary: TypeAlias = Callable[[Any], Any]
Binary: TypeAlias = Callable[[Any, Any], Any]

_TRANSCENDENTAL: dict[str, Any] = {
    "exp": np.exp, "expm1": np.expm1, "log": np.log, "log1p": np.log1p, "sqrt": np.sqrt,
    "sin": np.sin, "cos": np.cos, "tan": np.tan, "tanh": np.tanh,
}  # fmt: skip
_COMPOSED = ("rsqrt", "erf", "sigmoid", "gelu", "silu")
_COMPARE: dict[str, Binary] = {
    "lt": lambda a, b: a < b, "le": lambda a, b: a <= b, "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b, "eq": lambda a, b: a == b, "ne": lambda a, b: a != b,
}  # fmt: skip


_TWO_OVER_ROOT_PI = 2 / np.sqrt(4 * np.arctan(np.longdouble(1)))


def refuse(op: str, *tags: Tag) -> Exception:
    """Return the error for an operator that does not take these types."""
    return failure(OPERANDS, op=op, types=" and ".join(map(str, tags)))


def unary(op: str, tag: Tag, widen: bool) -> tuple[Tag, Tag, Unary]:
    """Return (type the argument is converted to, type of the result, the function)."""
    if op in _TRANSCENDENTAL or op in _COMPOSED:
        return _floating(op, float_of(tag), widen)
    boolean, whole, cplx = tag == dt.bool_, tag.kind in "biu", tag.kind == "c"
    match op:
        case "neg":
            if boolean:
                raise refuse("-", tag)
            return tag, tag, lambda a: -a
        case "bit_not":
            if not whole:
                raise refuse("~", tag)
            return tag, tag, (np.logical_not if boolean else lambda a: ~a)
        case "abs":
            return tag, _real(tag), (_same if boolean else abs)
        case "conj":
            return tag, tag, (np.conj if cplx else _same)
        case "real":
            return tag, _real(tag), (_real_part if cplx else _same)
        case "imag":
            zero = evaluated(_real(tag), widen)
            return tag, _real(tag), (lambda a: zero(a.imag)) if cplx else (lambda a: zero(0))
        case "floor" | "ceil" | "round":
            if cplx and op != "round":
                raise refuse(op, tag)
            if op == "round" and boolean:
                return dt.f16, dt.f16, _same
            rounded: Unary = {"floor": np.floor, "ceil": np.ceil, "round": np.rint}[op]
            return tag, tag, _same if whole else _pythonic(rounded, tag)
        case "sign":
            if boolean:
                raise refuse(op, tag)
            return tag, tag, _pythonic(np.sign, tag)
        case "relu":
            if cplx or boolean:
                raise refuse(op, tag)
            none = evaluated(tag, widen)(0)
            return tag, tag, _pythonic(lambda a: np.maximum(a, none), tag)
    raise refuse(op, tag)


def _floating(op: str, tag: Tag, widen: bool) -> tuple[Tag, Tag, Unary]:
    if op in _TRANSCENDENTAL:
        return tag, tag, _pythonic(_TRANSCENDENTAL[op], tag)
    if tag.kind == "c" and op in ("erf", "gelu"):
        raise refuse(op, tag)
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
        case "erf":
            return error_function
        case "sigmoid":
            return _sigmoid
        case "silu":
            return lambda a: a * _sigmoid(a)
    return lambda a: a * complementary(-a / np.sqrt(type(a)(2))) / 2


def _sigmoid(a: Any) -> Any:
    if a.real >= 0:
        return 1 / (1 + np.exp(-a))
    e = np.exp(a)
    return e / (1 + e)


def error_function(a: Any) -> Any:
    """Return erf of a float64 (by the C library) or a longdouble (by its power series, or its continued fraction)."""
    if isinstance(a, np.float64):
        return np.float64(math.erf(a))
    if not abs(a) < 3:
        return np.sign(a) * (1 - complementary(abs(a)))
    term = total = a
    for n in range(1, 200):
        term = term * 2 * a * a / (2 * n + 1)
        total += term
    return _TWO_OVER_ROOT_PI * np.exp(-a * a) * total


def complementary(a: Any) -> Any:
    """Return 1 - erf, exact where that is small."""
    if isinstance(a, np.float64):
        return np.float64(math.erfc(a))
    if not a >= 3:
        return 1 - error_function(a) if a > -3 else 2 - complementary(-a) if a <= -3 else a
    fraction = type(a)(0)
    for n in range(200, 0, -1):
        fraction = (type(a)(n) / 2) / (a + fraction)
    return np.exp(-a * a) * (_TWO_OVER_ROOT_PI / 2) / (a + fraction)


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
