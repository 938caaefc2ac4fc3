"""Machine code for GPUs kept on disk between processes, one file an entry, in the user's cache folder.

A file is a line of JSON (what each kernel takes, and the hash of the rest), then the machine code. It appears complete or not
at all; one that is damaged counts as missing and is written anew. A folder that another user could write to is not used, as its
files would be run; nor is one that cannot be made. What was not used for longest goes when there is more than `MAX_CACHE_BYTES`.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from polyker.process.whole_file import whole_file

MAX_CACHE_BYTES = 256 << 20  # bytes of all binaries that are kept: some thousand (chosen)
_FORMAT = 1  # of a cache's entries: another number where what they hold changes
_logger = logging.getLogger("polyker")


def folder() -> Path | None:
    """Return the folder, made if it is not there; None where there can be none that is this user's alone to write."""
    from platformdirs import user_cache_path

    try:
        found = Path(os.environ.get("POLYKER_CACHE_DIR") or user_cache_path("polyker")) / "cuda"
        found.mkdir(mode=0o700, parents=True, exist_ok=True)
        about = os.lstat(found)
    except (OSError, RuntimeError) as error:
        _logger.info("machine code is not kept on disk: %s", error)
        return None
    others = hasattr(os, "getuid") and (about.st_uid != os.getuid() or about.st_mode & 0o022)
    if others or not stat.S_ISDIR(about.st_mode):
        _logger.warning("machine code is not kept in %s: others may write to it", found)
        return None
    return found


def kept(parts: tuple[str, ...], make: Callable[[], tuple[bytes, str]]) -> tuple[bytes, str]:
    """Return what `make` returns (machine code, and a text on it), from disk where an entry for the same parts is there.

    `parts`: all that the code depends on.
    """
    where = folder()
    if where is None:
        return make()
    file = where / (hashlib.sha256("\0".join((str(_FORMAT), *parts)).encode()).hexdigest()[:40] + ".cubin")
    found = _read(file)
    if found is None:
        found = make()
        _write(file, *found)
    return found


def _read(file: Path) -> tuple[bytes, str] | None:
    try:
        raw = file.read_bytes()
    except OSError:
        return None
    try:
        head, image = raw.split(b"\n", 1)
        about = json.loads(head)
        if about["sha256"] != _digest(image, about["text"]):
            raise ValueError("its hash differs")
    except (ValueError, KeyError, TypeError) as error:
        _logger.warning("%s is damaged and is written anew: %s", file, error)
        return None
    with suppress(OSError):
        os.utime(file)
    return image, about["text"]


def _digest(image: bytes, text: str) -> str:
    return hashlib.sha256(image + b"\0" + text.encode()).hexdigest()


def _write(file: Path, image: bytes, text: str) -> None:
    head = json.dumps({"sha256": _digest(image, text), "text": text}).encode()
    try:
        with whole_file(file) as part:
            part.write_bytes(head + b"\n" + image)
        _shrink(file.parent)
    except OSError as error:
        _logger.info("machine code is not kept on disk: %s", error)


def _entries(where: Path) -> Iterator[tuple[float, int, Path]]:
    for file in where.glob("*.cubin"):
        with suppress(OSError):
            about = file.stat()
            yield about.st_mtime, about.st_size, file


def _shrink(where: Path) -> None:
    """Delete the entries that were not used for longest, until the rest fits."""
    found = sorted(_entries(where), reverse=True)
    total = 0
    for _, size, file in found:
        total += size
        if total > MAX_CACHE_BYTES:
            with suppress(OSError):
                file.unlink()


def clear_folder() -> None:
    """Delete all entries."""
    where = folder()
    for _, _, file in _entries(where) if where is not None else ():
        with suppress(OSError):
            file.unlink()
