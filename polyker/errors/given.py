"""Values that a caller gave, read and shown without trusting what their methods do."""

from __future__ import annotations

import operator
from itertools import islice
from numbers import Real

import numpy as np

_PROTOCOLS = ("__array__", "__array_interface__", "__dlpack__")
_LONG, _DEEP = 16, 2  # of lists that are shown
_DIGITS = 640  # of an integer; Python refuses to print one of some thousands


def integer(value: object) -> int | None:
    """Return a value that is an integer (NumPy's included) as an int, None for anything else, bools included."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return int.__index__(value)  # a plain int of what may be a class of its own
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except Exception:
        return None


def number(value: object) -> float | None:
    """Return a value that is a real number (NumPy's included) as a float, None for anything else, bools included."""
    whole = integer(value)
    if whole is None and not (isinstance(value, Real) and not isinstance(value, bool)):
        return None
    try:
        return float(value if whole is None else whole)  # type: ignore[arg-type]
    except Exception:  # a number too large, or one whose methods raise
        return None


def exact_text(value: object) -> str | None:
    """Return a text as a plain str, whose methods are Python's own; None for anything else."""
    return str.__str__(value) if isinstance(value, str) else None


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
        return f"a {type(value).__name__}" if _holds_array(value, 0) else repr(value)
    except Exception:
        return f"a {type(value).__name__}"


def _holds_array(value: object, depth: int) -> bool:
    """Whether a value is an array, or a list of such; True for what is too long or deep to be shown."""
    if isinstance(value, (list, tuple, set, frozenset, dict)):
        items = [*value.items()] if isinstance(value, dict) else [*value]
        return depth == _DEEP or len(items) > _LONG or any(_holds_array(item, depth + 1) for item in items)
    return not isinstance(value, np.generic) and any(hasattr(type(value), protocol) for protocol in _PROTOCOLS)


def text_of(value: object) -> str:
    """Return a value's str for a message, or what it is where it has none."""
    if isinstance(value, str):
        return str.__str__(value)
    try:
        return printed(value) if type(value) is int else str(value)
    except Exception:
        return f"a {type(value).__name__}"
