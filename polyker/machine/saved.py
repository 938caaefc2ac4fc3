"""Facts of this machine's core that were measured here: a file of the user's, as those of this folder.

`polyker doctor --measure --save` writes it. The environment variable POLYKER_MACHINE names another file; none where it is empty.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from polyker.errors.base import failure
from polyker.errors.codegen import MACHINE_FILE
from polyker.machine.facts import check
from polyker.process.whole_file import whole_file

VARIABLE = "POLYKER_MACHINE"
_logger = logging.getLogger("polyker")


def path() -> Path:
    """Return where the facts of this machine are saved."""
    from platformdirs import user_config_path

    return user_config_path("polyker") / "machine.toml"


def measured_here() -> Path | None:
    """Return the file that facts of this machine are read from, None where the environment wants none."""
    named = os.environ.get(VARIABLE)
    return path() if named is None else Path(named) if named else None


def saved_facts(cpu: str) -> Mapping[str, Any]:
    """Return the facts that were saved for a core of LLVM's name, none where there are none.

    Raises CompileError for a file of POLYKER_MACHINE that cannot be read or says what is no fact; a file in the user's folder
    that is of another core, or damaged, is left alone.
    """
    named, file = os.environ.get(VARIABLE), measured_here()
    if file is None:
        return {}
    import tomllib

    try:
        found = tomllib.loads(file.read_text(encoding="utf-8"))
        check(found)
    except (OSError, ValueError) as error:
        if named is not None:
            raise failure(MACHINE_FILE, path=str(file), why=str(error)) from error
        if not isinstance(error, FileNotFoundError):
            _logger.warning("%s is left alone: %s", file, error)
        return {}
    if named is not None or cpu in found.get("cores", ()):
        return found
    _logger.warning("%s is left alone: it is of %s, this is %s", file, found.get("cores", "no core"), cpu)
    return {}


def save(facts: Mapping[str, Any]) -> Path:
    """Write facts to the user's file, whole or not at all; raises OSError where its folder cannot be written."""

    import tomli_w

    check(facts)
    file = path()
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with whole_file(file) as part:
        part.write_text(tomli_w.dumps(facts), encoding="utf-8")
    return file
