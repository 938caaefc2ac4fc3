"""Operators and functions on single values, typed and computed as numpy's scalars are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, TypeAlias

import numpy as np

from polyker.errors import failure
from polyker.errors.reference import NEGATIVE_POWER, OPERANDS
from polyker.ir import dtypes as dt
from polyker.ir.functions import TABLE, Function
from polyker.reference.tags import WEAK_FLOAT, WEAK_INT, Tag, Weak, evaluated, float_of, promote

Unary: TypeAlias = Callable[[Any], Any]
Binary: TypeAlias = Callable[[Any, Any], Any]

_COMPARE: dict[str, Binary] = {
    "lt": lambda a, b: a < b, "le": lambda a, b: a <= b, "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b, "eq": lambda a, b: a == b, "ne": lambda a, b: a != b,
}  # fmt: skip


def refuse(op: str, *tags: Tag) -> Exception:
    """Return the error for an operator that does not take these types."""
    return failure(OPERANDS, op=op, types=" and ".join(map(str, tags)))


def unary(op: str, tag: Tag, widen: bool) -> tuple[Tag, Tag, Unary]:
    """Return (type the argument is converted to, type of the result, the function)."""
    known = TABLE.get(op)
    if known is None:
        return _operator(op, tag)
    boolean, whole = tag == dt.bool_, tag.kind in "biu"
    if (tag.kind == "c" and not known.complex) or (known.takes == "integer" and not whole):
        raise refuse(op, tag)
    if known.takes == "float":
        tag = float_of(tag)
        return tag, tag, _floating(known, tag, widen)
    if boolean and known.takes == "number" and known.of_bool != dt.bool_:
        if known.of_bool is None:
            raise refuse(op, tag)
        return known.of_bool, known.of_bool, _same
    gives: Tag = {"bool": dt.bool_, "u8": dt.u8, "real": _real(tag)}.get(known.gives, tag)
    if tag.kind in known.itself:
        return tag, gives, _same
    if known.gives == "bool" and whole:  # an integer of Python's may be larger than a float
        return tag, gives, lambda a: known.value(0)
    return tag, gives, _pythonic(known.value, gives)


def _operator(op: str, tag: Tag) -> tuple[Tag, Tag, Unary]:
    boolean, whole = tag == dt.bool_, tag.kind in "biu"
    if op == "neg":
        if boolean:
            raise refuse("-", tag)
        return tag, tag, lambda a: -a
    if op != "bit_not" or not whole:
        raise refuse("~" if op == "bit_not" else op, tag)
    return tag, tag, (np.logical_not if boolean else lambda a: ~a)


def _floating(known: Function, tag: Tag, widen: bool) -> Callable[..., Any]:
    """Return a function of floats; what is made of several operations is computed one type wider, so that it is rounded once."""
    kind = evaluated(tag, widen)
    wide: Any = {float: np.float64, complex: np.complex128}.get(kind)
    return known.value if wide is None else lambda *args: kind(known.value(*map(wide, args)))


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
        case "bit_and" | "bit_or" | "bit_xor" | "shift_left" | "shift_right":
            return _bitwise(op, tag, a, b)
        case "div":
            wide = WEAK_FLOAT if tag == WEAK_INT else dt.f64 if tag.kind in "biu" else tag
            return wide, wide, _pythonic(np.true_divide, wide)
        case "pow":
            tag = dt.i8 if tag == dt.bool_ else tag
            return tag, tag, _power(tag)
        case "floordiv" | "mod":
            tag = dt.i8 if tag == dt.bool_ else tag
            if tag.kind == "c":
                raise refuse(op, a, b)
            return tag, tag, _floored(op, tag)
    if op in TABLE:
        takes, function = several(op, (a, b), widen)
        return takes, takes, function
    raise refuse(op, a, b)


def several(op: str, tags: Sequence[Tag], widen: bool) -> tuple[Tag, Callable[..., Any]]:
    """Return (type all arguments are converted to, and that of the result, the function) of a function of several arguments."""
    known = TABLE[op]
    floats = known.takes == "float"
    if floats and not any(isinstance(t, Weak) for t in tags):
        tags = [float_of(t) for t in tags]
    tag = reduce(promote, tags)
    if tag.kind == "c" and not known.complex:
        raise refuse(op, *tags)
    if floats:
        tag = float_of(tag)
        return tag, _floating(known, tag, widen)
    tag = known.of_bool if tag == dt.bool_ and known.of_bool is not None else tag
    if op == "fmod" and tag == WEAK_INT:  # Python's integers have no such operator
        return tag, lambda x, y: (abs(x) % abs(y)) * (1 if x >= 0 else -1) if y else 0
    return tag, _pythonic(known.value, tag)


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
    return _pythonic(np.floor_divide if op == "floordiv" else np.remainder, tag)


def _power(tag: Tag) -> Binary:
    if tag.kind == "f" or tag.kind == "c":
        return _pythonic(np.power, tag)

    def whole(x: Any, y: Any) -> Any:
        if y < 0:
            raise failure(NEGATIVE_POWER)
        return x**y

    return whole


def _real(tag: Tag) -> Tag:
    return (WEAK_FLOAT if tag.kind == "c" else tag) if isinstance(tag, Weak) else tag.real


def _same(a: Any) -> Any:
    return a


def _pythonic(function: Callable[..., Any], tag: Tag) -> Callable[..., Any]:
    """Keep a weak value a Python number."""
    if not isinstance(tag, Weak):
        return function

    def plain(*args: Any) -> Any:
        found = function(*args)
        return found.item() if isinstance(found, np.generic) else found

    return plain
