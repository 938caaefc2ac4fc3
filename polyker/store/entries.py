"""One entry of the disk cache as the bytes of a file: a line with the digest of the rest, a line of JSON, an image."""

from __future__ import annotations

import hashlib
import json

from msgspec import Struct

_MAGIC = b"polyker-cache-1"


class CacheEntry(Struct, frozen=True):
    """What is kept: its kind and key, a line on what it is, a record as JSON, and an image, such as an object file."""

    kind: str
    key: str
    about: str
    record: str
    image: bytes = b""


def pack(entry: CacheEntry) -> bytes:
    """Return the bytes of an entry's file."""
    head = {"kind": entry.kind, "key": entry.key, "about": entry.about, "record": entry.record}
    rest = json.dumps(head, separators=(",", ":")).encode() + b"\n" + entry.image
    return _MAGIC + b" " + hashlib.sha256(rest).hexdigest().encode() + b"\n" + rest


def unpack(raw: bytes) -> CacheEntry:
    """Return the entry of a file; raises ValueError for bytes that `pack` did not return."""
    first, _, rest = raw.partition(b"\n")
    if first != _MAGIC + b" " + hashlib.sha256(rest).hexdigest().encode():
        raise ValueError("its digest differs")
    head, _, image = rest.partition(b"\n")
    try:
        return CacheEntry(**json.loads(head), image=image)
    except (TypeError, RecursionError) as error:
        raise ValueError(f"it is no entry: {error}") from error
