"""Reading and writing entries: a file is there whole or not at all, and one that is damaged counts as missing.

Names are digests alone. What was not used for longest goes when there is more than `MAX_BYTES`.
"""

from __future__ import annotations

import logging
import os
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from msgspec import Struct, field

from polyker.process.jobs import checkpoint
from polyker.process.whole_file import whole_file
from polyker.store.entries import CacheEntry, pack, unpack
from polyker.store.folder import folder, is_own, mode, warn_once
from polyker.store.keys import digest

MAX_BYTES = 1 << 30
KEPT_BYTES = MAX_BYTES * 9 // 10  # what is left when entries go, so that they do not go one by one
MAX_ENTRY_BYTES = 256 << 20
SUFFIX, PART, LOCK = ".pk", ".part", ".lock"
# Seconds: after how long a use is noted again; how old a file is that a process left half-written, or an unused lock.
_NOTED, _ABANDONED = 3600.0, 3600.0
_WRITES_A_LOOK = 64  # of one process between two looks at how much there is
_WATCHED = ("POLYKER_VERIFY", "POLYKER_DUMP")
_WAIT = 0.01  # seconds between two tries to lock
_logger = logging.getLogger("polyker.cache")


class Counts(Struct):
    """What this process found on disk, what it did not find, and what it made, by kind of entry; `writes`: of all kinds."""

    hits: dict[str, int] = field(default_factory=dict)
    misses: dict[str, int] = field(default_factory=dict)
    made: dict[str, int] = field(default_factory=dict)
    writes: int = 0


counts = Counts()


def is_bypassed() -> bool:
    """Whether kernels are compiled whatever is on disk: the cache is off, or someone wants to watch the passes."""
    return mode() == "off" or any(os.environ.get(name, "") not in ("", "0") for name in _WATCHED)


def read(kind: str, key: str) -> CacheEntry | None:
    """Return the entry of a key, None where there is none, or none that may be used."""
    chosen = mode()
    where = None if chosen == "off" else folder(make=False)
    found = None if where is None else _read(where / (key + SUFFIX), kind, key)
    table = counts.misses if found is None else counts.hits
    table[kind] = table.get(kind, 0) + 1
    if chosen != "off":
        _logger.debug("%s of %s %s", "miss" if found is None else "hit", kind, key[:12])
    return found


def _read(file: Path, kind: str, key: str) -> CacheEntry | None:
    try:
        raw, used = _bytes(file)
        found = unpack(raw)
        if (found.kind, found.key) != (kind, key):
            raise ValueError("it is another entry's")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, MemoryError) as error:
        warn_once(file.name, f"{file} is not used: {error}")
        return None
    if mode() == "rw" and time.time() - used > _NOTED:
        with suppress(OSError):
            os.utime(file)
    return found


def _bytes(file: Path) -> tuple[bytes, float]:
    """Return the content of a file of this user's, which no other may write, and when it was used."""
    handle = os.open(file, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    with os.fdopen(handle, "rb") as stream:
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode) or not is_own(about):
            raise OSError("it is no file that this user alone may write")
        if about.st_size > MAX_ENTRY_BYTES:
            raise OSError(f"it has {about.st_size} bytes")
        return stream.read(), about.st_mtime


def write(entry: CacheEntry) -> None:
    """Keep an entry; where that cannot be, it is as if it had gone at once."""
    counts.made[entry.kind] = counts.made.get(entry.kind, 0) + 1
    if mode() != "rw":
        return
    where = folder(make=True)
    if where is None:
        return
    try:
        with whole_file(where / (entry.key + SUFFIX)) as part:
            part.write_bytes(pack(entry))
        if counts.writes % _WRITES_A_LOOK == 0:
            shrink(where)
        counts.writes += 1
    except OSError as error:
        warn_once("write", f"nothing more is kept on disk: {error}")


def kept(kind: str, about: str, parts: Sequence[object], make: Callable[[], tuple[bytes, str]]) -> tuple[bytes, str]:
    """Return what `make` returns, an image and a text on it, from disk where an entry for the same parts is there.

    `parts`: all that it depends on; `about`: what the list of entries says of it.
    """
    key = digest(kind, *parts)
    entry = read(kind, key)
    if entry is None:
        image, text = make()
        entry = CacheEntry(kind, key, about, text, image)
        write(entry)
    return entry.image, entry.record


@contextmanager
def making(key: str, seconds: float) -> Iterator[None]:
    """Hold the lock of a key while its entry is made, so that processes which need it make it once.

    Whoever has the lock reads the entry first: another process may have made it. After `seconds`, or where no lock can be had,
    it goes on without.
    """
    where = folder(make=True) if mode() == "rw" else None
    if where is None:
        yield
        return
    import filelock

    lock = filelock.FileLock(where / (key + LOCK), mode=0o600, thread_local=False)
    until = time.monotonic() + seconds
    try:
        while not lock.is_locked and time.monotonic() < until:
            try:
                lock.acquire(timeout=0)
            except filelock.Timeout:
                checkpoint()
                time.sleep(_WAIT)
    except (OSError, NotImplementedError) as error:
        _logger.debug("no lock for %s: %s", key[:12], error)
    try:
        yield
    finally:
        if lock.is_locked:
            lock.release()


class KeptFile(Struct, frozen=True):
    """A file of the cache: its path, bytes, and when it was last used, in seconds since 1970."""

    file: Path
    size: int
    used: float


def files(where: Path | None = None, suffix: str = SUFFIX) -> list[KeptFile]:
    """Return the entries, the last used first."""
    found = []
    where = folder(make=False) if where is None else where
    with suppress(OSError):
        for item in os.scandir(where) if where is not None else ():
            if item.name.endswith(suffix):
                with suppress(OSError):
                    about = item.stat(follow_symlinks=False)
                    found.append(KeptFile(Path(item.path), about.st_size, about.st_mtime))
    return sorted(found, key=lambda k: (-k.used, k.file.name))


def shrink(where: Path) -> None:
    """Delete what was not used for longest where there is too much, and what processes that were killed left behind."""
    total, most = 0, MAX_BYTES
    found = files(where)
    if sum(k.size for k in found) > MAX_BYTES:
        most = KEPT_BYTES
    gone = []
    for k in found:
        total += k.size
        if total > most:
            gone.append(k)
    abandoned = time.time() - _ABANDONED
    gone += [k for suffix in (PART, LOCK) for k in files(where, suffix) if k.used < abandoned]
    for k in gone:
        with suppress(OSError):
            k.file.unlink()


def verify() -> list[tuple[KeptFile, str]]:
    """Return the entries that are damaged, each with the reason, and delete them where that is allowed."""
    bad = []
    for k in files():
        try:
            entry = unpack(_bytes(k.file)[0])
            if entry.key + SUFFIX != k.file.name:
                raise ValueError("it is another entry's")
        except (OSError, ValueError, MemoryError) as error:
            bad.append((k, str(error)))
            if mode() == "rw":
                with suppress(OSError):
                    k.file.unlink()
    return bad


def clear() -> int:
    """Delete all entries, and what was left half-written; return how many entries there were."""
    where = folder(make=False)
    found = files(where)
    if where is not None and mode() != "ro":
        for k in [*found, *files(where, PART), *files(where, LOCK)]:
            with suppress(OSError):
                k.file.unlink()
    return len(found)
