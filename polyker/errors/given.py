"""Values that a caller gave, read and shown without trusting what their methods do."""

from __future__ import annotations

import operator
from itertools import islice
from numbers import Real
from typing import Any, TypeGuard, TypeVar

import numpy as np

T = TypeVar("T")
_PROTOCOLS = ("__array__", "__array_interface__", "__dlpack__")
_LONG, _DEEP = 16, 2  # of lists that are shown
_DIGITS = 640  # of an integer; Python refuses to print one of some thousands


def is_a(value: object, classes: type[T] | tuple[type, ...]) -> TypeGuard[T]:
    """Return what isinstance does, False where it raises, as for a weak proxy of what is gone."""
    try:
        return isinstance(value, classes)
    except Exception:
        return False


def of_class(cls: type, attribute: str) -> Any:
    """Return an attribute that every class has, whatever its metaclass says."""
    return type.__dict__[attribute].__get__(cls)


def type_name(value: object) -> str:
    """Return the name of an object's class."""
    return str(of_class(type(value), "__name__"))


def shown(value: object) -> str:
    """Return a text, or what was raised, for a message."""
    try:
        text = str(value)
    except Exception:
        text = ""
    if not isinstance(value, Exception):
        return text or f"a {type_name(value)}"
    return f"{type_name(value)}: {text}" if text else type_name(value)


def integer(value: object) -> int | None:
    """Return a value that is an integer (NumPy's included) as an int, None for anything else, bools included."""
    if is_a(value, bool):
        return None
    if is_a(value, int) and issubclass(type(value), int):
        return int.__index__(value)  # a plain int of what may be a class of its own
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except Exception:
        return None


def number(value: object) -> float | None:
    """Return a value that is a real number (NumPy's included) as a float, None for anything else, bools included."""
    whole = integer(value)
    if whole is None and (is_a(value, bool) or not is_a(value, Real)):
        return None
    try:
        return float(value if whole is None else whole)  # type: ignore[arg-type]
    except Exception:  # a number too large, or one whose methods raise
        return None


def exact_text(value: object) -> str | None:
    """Return a text as a plain str, whose methods are Python's own; None for anything else."""
    return str.__str__(value) if issubclass(type(value), str) else None


def listed(value: object, most: int) -> list[object] | None:
    """Return what an iterable yields, None for anything else, and for what yields more or raises."""
    try:
        found = list(islice(value, most + 1))  # type: ignore[call-overload]
    except Exception:
        return None
    return found if len(found) <= most else None


def printed(value: object) -> str:
    """Return a value's repr for a message, or what it is: an array's would read its elements, whatever lies there."""
    if type(value) is int and value.bit_length() > _DIGITS:
        return f"an integer of {value.bit_length()} bits"
    try:
        return f"a {type_name(value)}" if _holds_array(value, 0) else repr(value)
    except Exception:
        return f"a {type_name(value)}"


def _holds_array(value: object, depth: int) -> bool:
    """Whether a value is an array, or a list of such; True for what is too long or deep to be shown."""
    if type(value) in (list, tuple, set, frozenset, dict):
        items = [*value.items()] if is_a(value, dict) else [*value]  # type: ignore[misc]
        return depth == _DEEP or len(items) > _LONG or any(_holds_array(item, depth + 1) for item in items)
    return is_array(value)


def is_array(value: object) -> bool:
    """Return whether an object is an array by what its class has, a number of NumPy's not."""
    return not issubclass(type(value), np.generic) and any(hasattr(type(value), protocol) for protocol in _PROTOCOLS)


def text_of(value: object) -> str:
    """Return a value's str for a message, or what it is where it has none."""
    if issubclass(type(value), str):
        return str.__str__(value)
    try:
        return printed(value) if type(value) is int else str(value)
    except Exception:
        return f"a {type_name(value)}"
