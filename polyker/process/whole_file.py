"""Write files whole or not at all: under another name first, which then takes the file's place."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def whole_file(file: Path) -> Iterator[Path]:
    """Yield the path to write, in the file's folder; it takes the file's place, or is removed where the block raises."""
    import tempfile  # with its compressors and random numbers: what only reads loads none of them

    handle, name = tempfile.mkstemp(dir=file.parent, suffix=".part")
    os.close(handle)
    try:
        yield Path(name)
        os.replace(name, file)
    finally:
        with suppress(OSError):
            os.unlink(name)
