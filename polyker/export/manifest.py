"""What stands beside a library: a manifest, and the files by which pkg-config and CMake find it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

from polyker.export.entry import Subject, scratch_bytes
from polyker.machine.model import Target
from polyker.record.codec import encode


def manifest(
    subjects: Sequence[Subject],
    texts: Sequence[str],
    schedules: Sequence[str],
    target: Target,
    files: Mapping[str, bytes],
) -> str:
    """Return the manifest: of each operator its text, schedule and record; the target; versions; digests of the files."""
    found: dict[str, Any] = {
        "format": 1,
        "target": {"name": target.name, "triple": target.triple, "cpu": target.cpu, "features": target.features},
        "versions": {name: version(name) for name in ("polyker", "llvmlite", "islpy")},
        "operators": [
            {
                "name": s.name,
                "text": text,
                "schedule": schedule,
                "parameters": [{"name": s.tensors[t.name], "type": t.dtype.name} for t in s.given],
                "sizes": list(s.sizes.values()),
                "constants": [s.record.call.tensor(n).label for n in s.constants],
                "scratch": None if (fixed := scratch_bytes(s.record)) is None else fixed[1],
                "numbers": {str(number): told for number, told in s.meanings.items()},
                "record": json.loads(encode(s.record, text)),
            }
            for s, text, schedule in zip(subjects, texts, schedules, strict=True)
        ],
        "files": {name: hashlib.sha256(content).hexdigest() for name, content in files.items()},
    }
    return json.dumps(found, indent=1, sort_keys=True) + "\n"


def pkg_config(name: str, version_: str) -> str:
    """Return the `.pc` file of a library that lies where the file does."""
    return f"""\
prefix=${{pcfiledir}}
Name: {name}
Description: kernels made by polyker
Version: {version_}
Cflags: -I${{prefix}}
Libs: -L${{prefix}} -l:{name}
"""


def cmake_config(name: str, file: str) -> str:
    """Return the file by which `find_package(NAME)` imports a library that lies where the file does."""
    kind = "SHARED" if file.endswith((".so", ".dylib", ".dll")) else "OBJECT" if file.endswith(".o") else "STATIC"
    place = "OBJECTS" if kind == "OBJECT" else "LOCATION"
    return f"""\
if(NOT TARGET {name}::{name})
  add_library({name}::{name} {kind} IMPORTED)
  set_target_properties({name}::{name} PROPERTIES
    IMPORTED_{place} "${{CMAKE_CURRENT_LIST_DIR}}/{file}"
    INTERFACE_INCLUDE_DIRECTORIES "${{CMAKE_CURRENT_LIST_DIR}}")
endif()
"""
