"""What `polyker cache` prints of the kernels that are kept on disk."""

from __future__ import annotations

import time
from collections.abc import Iterator

from polyker.errors.base import escape
from polyker.store import disk
from polyker.store.entries import unpack
from polyker.store.folder import mode, path


def listed() -> Iterator[str]:
    """Yield a line an entry, then their number and bytes."""
    found = disk.files()
    for kept in found:
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(kept.used))
        try:
            entry = unpack(kept.file.read_bytes())
            told = f"{entry.kind:9} {kept.size:9,} B  {used}  {entry.key[:12]}  {escape(entry.about)}"
        except (OSError, ValueError) as error:
            told = f"{'damaged':9} {kept.size:9,} B  {used}  {kept.file.name[:12]}  {escape(str(error))}"
        yield told
    yield summary(found)


def summary(found: list[disk.KeptFile]) -> str:
    """Return the number of entries, their bytes, where they lie, and the mode of the cache."""
    size = sum(kept.size for kept in found)
    return f"{len(found)} entries, {size / 1e6:.1f} MB of at most {disk.MAX_BYTES / 1e6:.0f}, in {path()} ({mode()})"


def verified() -> tuple[list[str], bool]:
    """Return what was found damaged, a line each, and whether nothing was."""
    count, bad = len(disk.files()), disk.verify()
    lines = [f"{kept.file}: {escape(why)}" for kept, why in bad]
    return [*lines, f"{count - len(bad)} of {count} entries are sound"], not bad


def cleared() -> str:
    """Delete all entries; return what was deleted."""
    if mode() == "ro":
        return "nothing is deleted: POLYKER_CACHE is ro"
    return f"{disk.clear()} entries deleted"
