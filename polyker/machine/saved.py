"""Facts of this machine's core that were measured here: a file of the user's, as those of this folder.

`polyker doctor --measure --save` writes it. The environment variable POLYKER_MACHINE names another file; none where it is empty.
"""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from polyker.errors.base import failure
from polyker.errors.codegen import MACHINE_FILE

VARIABLE = "POLYKER_MACHINE"
# What a file of facts may hold, by table: of a list how many numbers, else the type of one value.
TABLES: dict[str, dict[str, type | int]] = {
    "vector": {"native_bytes": int},
    "ports": {"fma": int, "fma_latency": int, "add": int},
    "caches": {"read": float},
    "memory": {"read": float, "side_by_side": float, "rows": int, "random_line": float, "pages": int},
    "prefetch": {"sums": 3, "next_rows": 3, "tiles": 3, "gathered_rows": 3, "second_fills_first": bool},
}
# What a file says of the processor itself.
_NAMES = ("cores", "target", "triple", "cpu", "features")
_logger = logging.getLogger("polyker")


def path() -> Path:
    """Return where the facts of this machine are saved."""
    from platformdirs import user_config_path

    return user_config_path("polyker") / "machine.toml"


def saved_facts(cpu: str) -> Mapping[str, Any]:
    """Return the facts that were saved for a core of LLVM's name, none where there are none.

    Raises CompileError for a file of POLYKER_MACHINE that cannot be read or says what is no fact; a file in the user's folder
    that is of another core, or damaged, is left alone.
    """
    named = os.environ.get(VARIABLE)
    if named == "":
        return {}
    file = Path(named) if named is not None else path()
    try:
        found = tomllib.loads(file.read_text(encoding="utf-8"))
        check(found)
    except (OSError, ValueError) as error:
        if named is not None:
            raise failure(MACHINE_FILE, path=str(file), why=str(error)) from error
        if not isinstance(error, FileNotFoundError):
            _logger.warning("%s is left alone: %s", file, error)
        return {}
    return found if named is not None or cpu in found.get("cores", ()) else {}


def save(facts: Mapping[str, Any]) -> Path:
    """Write facts to the user's file, whole or not at all; raises OSError where its folder cannot be written."""
    import tomli_w

    check(facts)
    file = path()
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle, name = tempfile.mkstemp(dir=file.parent)
    try:
        with os.fdopen(handle, "wb") as out:
            tomli_w.dump(facts, out)
        os.replace(name, file)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
    return file


def check(facts: Mapping[str, Any]) -> None:
    """Raise ValueError, which names its place, where a file says what is no fact of a core."""
    for name in facts:
        if name not in (*TABLES, *_NAMES):
            raise ValueError(f"`{name}` is no table of facts; known are {', '.join(TABLES)}")
    for name, known in TABLES.items():
        tables = facts.get(name, [] if name == "caches" else {})
        for table in tables if isinstance(tables, list) else [tables]:
            if not isinstance(table, dict):
                raise ValueError(f"`{name}` is no table")
            for key, value in table.items():
                if key not in known and name not in ("caches", "vector"):
                    raise ValueError(f"`{name}.{key}` is no fact of a core; known are {', '.join(known)}")
                if key in known and not _is_sound(value, known[key]):
                    raise ValueError(f"`{name}.{key} = {value!r}` is not {_said(known[key])}")


def _is_sound(value: Any, kind: type | int) -> bool:
    if kind is bool:
        return isinstance(value, bool)
    if isinstance(kind, int):
        return isinstance(value, list) and 0 < len(value) <= kind and all(_is_sound(v, float) for v in value)
    numbers = int if kind is int else (int, float)
    return (
        isinstance(value, numbers)
        and not isinstance(value, bool)
        and 0 <= value < float("inf")
        and (value > 0 or kind is int)
    )


def _said(kind: type | int) -> str:
    if kind is bool:
        return "true or false"
    if isinstance(kind, int):
        return f"a list of up to {kind} positive numbers"
    return "a whole number from 0 on" if kind is int else "a positive number"
