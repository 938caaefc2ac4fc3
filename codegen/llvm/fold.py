"""Folding of integer instructions whose operands are constants, while the text is written."""

from __future__ import annotations

import operator

_NAMES = {"true": 1, "false": 0}
_FOLDED = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul,
    "and": operator.and_, "or": operator.or_, "xor": operator.xor,
}  # fmt: skip


def number(text: str, elem: str) -> int | None:
    """Return the value of an integer literal, or of one repeated over the lanes; None where it is something else."""
    if elem[0] != "i" or text[0] == "%":
        return None
    if text.startswith("splat"):
        text = text[len("splat (") + len(elem) + 1 : -1]
    if text in _NAMES:
        return _NAMES[text]
    return int(text) if text.lstrip("-").isdigit() else None


def numbers(text: str, elem: str, lanes: int) -> list[int] | None:
    """Return the values of a vector of integer literals, one a lane; None where it is something else."""
    one = number(text, elem)
    if one is not None:
        return [one] * lanes
    if not text.startswith(f"<{elem} "):
        return None
    found = [number(part.split(" ")[1], elem) for part in text[1:-1].split(", ")]
    return None if None in found else [n for n in found if n is not None]


def wrapped(value: int, elem: str) -> int:
    """Return `value` as the signed integer that `elem` holds (i1: 0 or 1)."""
    bits = int(elem[1:])
    if bits == 1:
        return value & 1
    return (value + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))


def unsigned(value: int, elem: str) -> int:
    """Return the value of the same bits without sign."""
    return value % (1 << int(elem[1:]))


def fold_binary(op: str, x: int, y: int, elem: str) -> int | None:
    """Return `op x, y` for constants; None for operations that are not folded."""
    return wrapped(_FOLDED[op](x, y), elem) if op in _FOLDED else None


def neutral(op: str, y: int, elem: str) -> bool:
    """Return whether `op x, y` is x."""
    if op == "mul":
        return y == 1
    if op == "and":
        return y == wrapped(-1, elem)
    return op in ("add", "sub", "or", "xor", "shl", "lshr", "ashr") and y == 0


def fold_compare(op: str, x: int, y: int, elem: str) -> bool | None:
    """Return an icmp of constants; None for other comparisons."""
    kind, _, test = op.partition(" ")
    if kind != "icmp":
        return None
    if test[0] == "u" or elem == "i1":
        x, y = unsigned(x, elem), unsigned(y, elem)
    return {"eq": x == y, "ne": x != y, "lt": x < y, "le": x <= y, "gt": x > y, "ge": x >= y}[
        test if test in ("eq", "ne") else test[1:]
    ]
