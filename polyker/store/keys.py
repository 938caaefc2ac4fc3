"""Keys of the disk cache: digests of all that an entry depends on, versions included."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

# Raised whenever entries of the same key would be read in another way.
FORMAT = 1
_CODE = (".py", ".toml", ".lark", ".json", ".h")  # files that decide what is compiled


def digest(*parts: object) -> str:
    """Return the digest of parts, each by its repr; equal parts alone have equal digests."""
    told = hashlib.sha256()
    for part in (FORMAT, *parts):
        text = repr(part).encode("utf-8", "backslashreplace")
        told.update(b"%d:" % len(text))
        told.update(text)
    return told.hexdigest()


@cache
def revision() -> str:
    """Return what tells this compiler from others: a digest of its files' names, sizes and times, which needs no version."""
    return digest(*sorted(_files(str(Path(__file__).parents[1]))))


def _files(folder: str) -> Iterator[tuple[str, int, int]]:
    """Yield the name, size and time of the files below a folder that decide what is compiled."""
    try:
        entries = sorted(os.scandir(folder), key=lambda e: e.name)
    except OSError:
        return
    for entry in entries:
        if entry.name.endswith(_CODE):
            about = entry.stat()
            yield entry.name, about.st_size, about.st_mtime_ns
        elif entry.name != "__pycache__" and entry.is_dir():
            yield from _files(entry.path)


@cache
def versions() -> tuple[str, ...]:
    """Return the versions of what makes machine code: this compiler, islpy and llvmlite, none of which is imported."""
    return revision(), *(_installed(name) for name in ("islpy", "llvmlite"))


def _installed(name: str) -> str:
    """Return the name and version of an installed package, by the folder that pip keeps for it."""
    for folder in sys.path:
        try:
            found = [e for e in os.listdir(folder or ".") if e.startswith(f"{name}-") and e.endswith(".dist-info")]
        except OSError:
            continue
        if found:
            return found[0]
    from importlib.metadata import PackageNotFoundError, version

    try:
        return f"{name}-{version(name)}"
    except PackageNotFoundError:
        return name


def state_of(file: Path | None) -> tuple[object, ...]:
    """Return what tells a file's content from another's: its path, size and time; () where it is none."""
    try:
        about = None if file is None else file.stat()
    except OSError:
        about = None
    return () if about is None else (str(file), about.st_size, about.st_mtime_ns)
