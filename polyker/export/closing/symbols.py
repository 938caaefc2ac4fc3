"""Read the table of symbols of an object file: ELF, COFF, Mach-O or WebAssembly, of little-endian machines."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from polyker.errors.base import InternalError


def undefined(image: bytes) -> frozenset[str]:
    """Return the symbols that an object file leaves to be defined by others; of a WebAssembly module the functions."""
    if image[:4] == b"\x7fELF":
        return frozenset(_elf(image))
    if image[:4] == b"\0asm":
        return frozenset(_wasm(image))
    if image[:4] == b"\xcf\xfa\xed\xfe":
        return frozenset(_mach(image))
    if image[:2] in (b"\x64\x86", b"\x64\xaa"):
        return frozenset(_coff(image))
    raise InternalError(f"no object file begins with {image[:4]!r}")


def _text(image: bytes, at: int) -> str:
    return image[at : image.index(b"\0", at)].decode()


def _elf(image: bytes) -> Iterator[str]:
    wide = image[4] == 2
    sections, size, count = (
        struct.unpack_from("<Q", image, 40)[0] if wide else struct.unpack_from("<I", image, 32)[0],
        *struct.unpack_from("<HH", image, 58 if wide else 46),
    )
    # Of a section header: kind, where the section begins, its bytes, the section that it refers to.
    form, fields = ("<IIQQQQI", (1, 4, 5, 6)) if wide else ("<IIIIIII", (1, 4, 5, 6))
    headers = [struct.unpack_from(form, image, sections + n * size) for n in range(count)]
    symbol = "<IBBHQQ" if wide else "<IIIBBH"
    for header in headers:
        kind, at, length, names = (header[k] for k in fields)
        if kind != 2:  # SHT_SYMTAB
            continue
        for place in range(at, at + length, struct.calcsize(symbol)):
            entry = struct.unpack_from(symbol, image, place)
            section = entry[3] if wide else entry[5]
            if entry[0] and section == 0:
                yield _text(image, headers[names][4] + entry[0])


def _coff(image: bytes) -> Iterator[str]:
    table, count = struct.unpack_from("<II", image, 8)
    names, n = table + 18 * count, 0
    while n < count:
        zero, at, value, section, _, storage, more = struct.unpack_from("<IIIhHBB", image, table + 18 * n)
        if section == 0 and value == 0 and storage == 2:  # IMAGE_SYM_CLASS_EXTERNAL
            place = table + 18 * n
            yield _text(image, names + at) if zero == 0 else image[place : place + 8].rstrip(b"\0").decode()
        n += 1 + more


def _mach(image: bytes) -> Iterator[str]:
    """Yield names as C has them, without the underscore before them."""
    at = 32
    for _ in range(struct.unpack_from("<I", image, 16)[0]):
        command, size = struct.unpack_from("<II", image, at)
        if command == 2:  # LC_SYMTAB
            table, count, names = struct.unpack_from("<III", image, at + 8)
            for n in range(count):
                name, kind, _, _, value = struct.unpack_from("<IBBHQ", image, table + 16 * n)
                if kind & 0xEF == 1 and value == 0:  # N_EXT alone: undefined
                    yield _text(image, names + name).removeprefix("_")
        at += size


def _wasm(image: bytes) -> Iterator[str]:
    at = 8
    while at < len(image):
        kind = image[at]
        size, at = _leb(image, at + 1)
        if kind == 2:  # imports
            yield from _imports(image, at)
        at += size


def _imports(image: bytes, at: int) -> Iterator[str]:
    count, at = _leb(image, at)
    for _ in range(count):
        length, at = _leb(image, at)  # of the module's name
        length, at = _leb(image, at + length)
        name, kind, at = image[at : at + length].decode(), image[at + length], at + length + 1
        if kind == 0:  # a function, with its type
            yield name
            _, at = _leb(image, at)
        elif kind == 3:  # a global: its type, and whether it changes
            at += 2
        else:  # a table, with the type of its elements, or a memory: limits
            at += kind == 1
            bounded, at = image[at] & 1, at + 1
            for _ in range(1 + bounded):
                _, at = _leb(image, at)


def _leb(image: bytes, at: int) -> tuple[int, int]:
    """Return a number in LEB128, and where it ends."""
    value = shift = 0
    while True:
        byte, at = image[at], at + 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at
