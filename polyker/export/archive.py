"""Static libraries: the common archive format of GNU's ar, with its table of symbols. Equal objects give equal bytes."""

from __future__ import annotations

from collections.abc import Mapping

_MAGIC, _END = b"!<arch>\n", b"`\n"
_SHORT = 15  # characters of a name that stands in its own header


def archive(members: Mapping[str, bytes], symbols: Mapping[str, tuple[str, ...]]) -> bytes:
    """Return an archive of object files by name; `symbols`: those that each of them defines for others."""
    names = b"".join(f"{name}/\n".encode() for name in members if len(name) > _SHORT)
    named = [(symbol.encode(), member) for member in members for symbol in symbols.get(member, ())]
    strings = b"".join(symbol + b"\0" for symbol, _ in named)
    head = len(_MAGIC) + _size(4 + 4 * len(named) + len(strings)) + (_size(len(names)) if names else 0)
    places, at = {}, head
    for name, image in members.items():
        places[name] = at
        at += _size(len(image))
    index = len(named).to_bytes(4, "big") + b"".join(places[m].to_bytes(4, "big") for _, m in named) + strings
    found = _MAGIC + _member(b"/", index) + (_member(b"//", names) if names else b"")
    for name, image in members.items():
        short = f"{name}/".encode() if len(name) <= _SHORT else b"/%d" % names.index(f"{name}/\n".encode())
        found += _member(short, image)
    return found


def _size(content: int) -> int:
    return 60 + content + content % 2


def _member(name: bytes, content: bytes) -> bytes:
    """Return a header of 60 bytes, without time, owner and group, and the content, padded to an even length."""
    head = (
        name.ljust(16)
        + b"0".ljust(12)
        + b"0".ljust(6)
        + b"0".ljust(6)
        + b"100644".ljust(8)
        + b"%-10d" % len(content)
        + _END
    )
    return head + content + b"\n" * (len(content) % 2)
