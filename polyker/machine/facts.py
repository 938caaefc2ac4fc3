"""What a file of facts may say of a processor, and its check."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# By table: of a list how many numbers, else the type of one value.
TABLES: dict[str, dict[str, type | int]] = {
    "vector": {"native_bytes": int},
    "ports": {"fma": int, "fma_latency": int, "add": int},
    "caches": {"read": float},
    "memory": {"read": float, "side_by_side": float, "rows": int, "random_line": float, "pages": int},
    "prefetch": {"sums": 3, "next_rows": 3, "tiles": 3, "gathered_rows": 3, "second_fills_first": bool},
}
# What only a file has that code can be compiled for by name: of a core that runs, LLVM and the system say it.
_OF_TARGETS: dict[str, dict[str, type | int]] = {
    "vector": {
        "bytes": int,
        "registers": int,
        "masked": bool,
        "multiply_add": str,
        "half": bool,
        "maximum": bool,
        "widest": int,
    },
    "caches": {"size": int, "line": int, "ways": int},
}
_NAMES = ("cores", "target", "triple", "cpu", "features", "names", "level", "systems", "like", "extra")
# How multiply-adds round.
_ROUNDINGS = ("none", "fused", "either")


def check(facts: Mapping[str, Any]) -> None:
    """Raise ValueError, which names its place, where a file says what is no fact of a core."""
    for name, table in facts.items():
        if name in _NAMES:
            continue
        if name not in TABLES:
            raise ValueError(f"`{name}` is no table of facts; known are {', '.join(TABLES)}")
        several = name == "caches"
        if several != isinstance(table, list):
            raise ValueError("`caches` is [[caches]], one a level" if several else f"`{name}` is no table")
        known = TABLES[name] | (_OF_TARGETS.get(name, {}) if "triple" in facts else {})
        for part in table if several else [table]:
            _check_table(name, part, known)


def _check_table(name: str, table: Any, known: Mapping[str, type | int]) -> None:
    if not isinstance(table, dict):
        raise ValueError(f"`{name}` is no table")
    for key, value in table.items():
        if key not in known:
            where = " where no `triple` is" if key in _OF_TARGETS.get(name, {}) else ""
            raise ValueError(f"`{name}.{key}` is no fact of a core{where}; known are {', '.join(known)}")
        if not _is_sound(value, known[key]):
            raise ValueError(f"`{name}.{key} = {value!r}` is not {_said(known[key])}")


def _is_sound(value: Any, kind: type | int) -> bool:
    if kind is bool:
        return isinstance(value, bool)
    if kind is str:
        return value in _ROUNDINGS
    if isinstance(kind, int):
        return isinstance(value, list) and 0 < len(value) <= kind and all(_is_sound(v, float) for v in value)
    if isinstance(value, bool) or not isinstance(value, int if kind is int else (int, float)):
        return False
    return 0 <= value < float("inf") and (value > 0 or kind is int)


def _said(kind: type | int) -> str:
    if kind is bool:
        return "true or false"
    if kind is str:
        return f"one of {', '.join(_ROUNDINGS)}"
    if isinstance(kind, int):
        return f"a list of up to {kind} positive numbers"
    return "a whole number from 0 on" if kind is int else "a positive number"
