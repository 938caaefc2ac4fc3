"""Values that a caller gave, read and shown without trusting what their methods do."""

from __future__ import annotations

import operator
from numbers import Real

_DIGITS = 640  # of an integer; Python refuses to print one of some thousands


def integer(value: object) -> int | None:
    """Return a value that is an integer (NumPy's included) as an int, None for anything else, bools included."""
    if isinstance(value, bool):
        return None
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


def printed(value: object) -> str:
    """Return a value's repr for a message, or what it is where it has none."""
    if type(value) is int and value.bit_length() > _DIGITS:
        return f"an integer of {value.bit_length()} bits"
    try:
        return repr(value)
    except Exception:
        return f"a {type(value).__name__}"


def text_of(value: object) -> str:
    """Return a value's str for a message, or what it is where it has none."""
    if isinstance(value, str):
        return str.__str__(value)
    try:
        return printed(value) if type(value) is int else str(value)
    except Exception:
        return f"a {type(value).__name__}"
