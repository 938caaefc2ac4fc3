"""WebAssembly modules: LLVM's relocatable object becomes a module that has its memory and its stack and exports functions.

The memory begins with the stack, which grows down, so that what outgrows it traps; then comes the data, and from `__heap_base`
on all is the caller's. The format: https://github.com/WebAssembly/tool-conventions/blob/main/Linking.md
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from polyker.errors.base import InternalError

# A kernel's own arrays take up to 32 KiB; the rest is for what it calls (chosen).
STACK_BYTES = 1 << 17
PAGE = 1 << 16
# What the module exports beside the functions of kernels.
MEMORY, HEAP_BASE = "memory", "__heap_base"
_CUSTOM, _IMPORTS, _MEMORIES, _GLOBALS, _EXPORTS, _CODE, _DATA, _COUNT = 0, 2, 5, 6, 7, 10, 11, 12
_FUNCTION, _TABLE, _MEMORY, _GLOBAL = range(4)  # what is imported or exported
_I32 = 0x7F
_SEGMENTS, _SYMBOLS = 5, 8  # parts of the section `linking`
_UNDEFINED, _NAMED, _ABSOLUTE = 0x10, 0x40, 0x200  # flags of a symbol
# The relocations, by their numbers: of what, and whether a signed number of bytes, an unsigned one, or four bytes hold it.
_RELOCATIONS = {
    0: ("function", "leb"),
    3: ("data", "leb"),
    4: ("data", "sleb"),
    5: ("data", "i32"),
    6: ("type", "leb"),
    7: ("global", "leb"),
}
_PADDED = 5  # bytes of a number that is relocated


def uleb(value: int) -> bytes:
    """Return an unsigned number, seven bits a byte."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes((*out, value))


def sleb(value: int) -> bytes:
    """Return a signed number, seven bits a byte."""
    out = bytearray()
    while not -64 <= value < 64:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes((*out, value & 127))


def _padded(value: int, *, signed: bool) -> bytes:
    if signed and value >= 1 << 31:  # addresses are signed there
        value -= 1 << 32
    digits = [value >> 7 * n & 127 for n in range(_PADDED)]
    return bytes((*(d | 128 for d in digits[:-1]), digits[-1]))


class _Reader:
    """Numbers and names, one after the other."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data, self.at = data, at

    @property
    def more(self) -> bool:
        return self.at < len(self.data)

    def take(self, count: int) -> bytes:
        self.at += count
        if self.at > len(self.data):
            raise InternalError("a WebAssembly object ends too early")
        return self.data[self.at - count : self.at]

    def number(self, *, signed: bool = False) -> int:
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value - (1 << shift) if signed and byte & 64 else value

    def block(self) -> bytes:
        return self.take(self.number())

    def name(self) -> str:
        return self.block().decode()


class _Segment(Struct):
    """Data: its bytes, the power of 2 that its address is a multiple of, and the address."""

    content: bytearray
    start: int  # of the content, in the section
    power: int = 0
    address: int = 0


class _Symbol(Struct, frozen=True):
    """What a relocation refers to: the index of a function or a global; of data, a segment and the offset in it."""

    kind: str
    name: str
    index: int
    offset: int = 0
    defined: bool = True


class _Object:
    """A relocatable object, read."""

    def __init__(self, image: bytes) -> None:
        reader = _Reader(image)
        if reader.take(8) != b"\0asm\1\0\0\0":
            raise InternalError("no WebAssembly object")
        self.sections: list[tuple[int, bytearray]] = []
        self.symbols: list[_Symbol] = []
        self.segments: list[_Segment] = []
        self.relocations: list[tuple[int, int, int, int, int]] = []  # section, kind, offset, index, addend
        while reader.more:
            kind = reader.take(1)[0]
            self.sections.append((kind, bytearray(reader.block())))
        for kind, body in self.sections:
            if kind == _DATA:
                self._read_data(bytes(body))
        for kind, body in self.sections:
            if kind == _CUSTOM:
                inner = _Reader(bytes(body))
                name = inner.name()
                if name == "linking":
                    self._read_linking(inner)
                elif name.startswith("reloc."):
                    self._read_relocations(inner)

    def _read_data(self, body: bytes) -> None:
        reader = _Reader(body)
        for _ in range(reader.number()):
            if reader.number():
                raise InternalError("a segment of data without a place")
            if reader.take(1) != b"\x41":  # i32.const
                raise InternalError("a segment of data whose place is no constant")
            reader.number(signed=True)
            reader.take(1)
            content = bytearray(reader.block())
            self.segments.append(_Segment(content, reader.at - len(content)))

    def _read_linking(self, reader: _Reader) -> None:
        if reader.number() != 2:
            raise InternalError("a section `linking` of an unknown version")
        while reader.more:
            kind, part = reader.take(1)[0], _Reader(reader.block())
            if kind == _SEGMENTS:
                for n in range(part.number()):
                    part.name()
                    self.segments[n].power = part.number()
                    part.number()
            elif kind == _SYMBOLS:
                self.symbols = [_symbol(part) for _ in range(part.number())]
            else:
                raise InternalError(f"part {kind} of the section `linking` is not known")

    def _read_relocations(self, reader: _Reader) -> None:
        section = reader.number()
        for _ in range(reader.number()):
            kind = reader.number()
            if kind not in _RELOCATIONS:
                raise InternalError(f"relocation {kind} of WebAssembly is not known")
            offset, index = reader.number(), reader.number()
            addend = reader.number(signed=True) if _RELOCATIONS[kind][0] == "data" else 0
            self.relocations.append((section, kind, offset, index, addend))


def _symbol(part: _Reader) -> _Symbol:
    kind, flags = part.take(1)[0], part.number()
    defined = not flags & _UNDEFINED
    if kind == 1:
        name = part.name()
        place = (part.number(), part.number(), part.number()) if defined else (0, 0, 0)
        if flags & _ABSOLUTE:
            raise InternalError(f"`{name}` has an absolute address")
        return _Symbol("data", name, place[0], place[1], defined)
    if kind == 3:
        return _Symbol("section", "", part.number())
    kinds = {0: "function", 2: "global", 4: "tag", 5: "table"}
    if kind not in kinds:
        raise InternalError(f"symbol {kind} of WebAssembly is not known")
    index = part.number()
    return _Symbol(kinds[kind], part.name() if defined or flags & _NAMED else "", index, 0, defined)


def linked(image: bytes, exported: Iterable[str]) -> bytes:
    """Return the module of an object: it imports nothing, and exports functions, its memory, and where free memory begins.

    The memory may grow. Raises InternalError for what an object of kernels does not have.
    """
    found = _Object(image)
    top = STACK_BYTES
    for segment in found.segments:
        top = -(-top >> segment.power << segment.power)
        segment.address, top = top, top + len(segment.content)
    heap = -(-top // 64) * 64
    globals_ = _imported_globals(found)
    for relocation in found.relocations:
        _relocate(found, relocation, globals_)
    functions = {s.name: s.index for s in found.symbols if s.kind == "function" and s.defined}
    own = {
        _MEMORIES: b"\1\0" + uleb(-(-heap // PAGE)),
        _GLOBALS: b"\2" + _global(STACK_BYTES, mutable=True) + _global(heap, mutable=False),
        _EXPORTS: _exports({name: functions[name] for name in exported}),
    }
    return _written(found, own)


def _imported_globals(found: _Object) -> dict[int, int]:
    """Return the indices of imported globals, with those of the module's; raises InternalError for other imports."""
    globals_: dict[int, int] = {}
    for kind, body in found.sections:
        reader = _Reader(bytes(body))
        if kind in (_MEMORIES, _GLOBALS, _EXPORTS):
            raise InternalError(f"an object with a section {kind}")
        if kind != _IMPORTS:
            continue
        for _ in range(reader.number()):
            reader.name()
            name, what = reader.name(), reader.take(1)[0]
            if what == _MEMORY:
                if reader.number() & 1:
                    reader.number()
                reader.number()
            elif what == _GLOBAL and name == "__stack_pointer":
                reader.take(2)
                globals_[len(globals_)] = 0
            else:
                raise InternalError(f"generated code needs `{name}`, which no module of WebAssembly has")
    return globals_


def _relocate(found: _Object, relocation: tuple[int, int, int, int, int], globals_: Mapping[int, int]) -> None:
    """Write the final number in place of what the object has there."""
    section, number, offset, index, addend = relocation
    kind, form = _RELOCATIONS[number]
    if kind == "type":
        value = index
    else:
        symbol = found.symbols[index]
        if symbol.kind != kind or (kind != "global" and not symbol.defined):
            raise InternalError(f"a relocation of a {kind} refers to the {symbol.kind} `{symbol.name}`")
        if kind == "data":
            value = found.segments[symbol.index].address + symbol.offset + addend
        else:
            value = globals_[symbol.index] if kind == "global" else symbol.index
    size = 4 if form == "i32" else _PADDED
    new = (value & 0xFFFFFFFF).to_bytes(4, "little") if form == "i32" else _padded(value, signed=form == "sleb")
    if found.sections[section][0] == _DATA:
        segment = next(s for s in found.segments if s.start <= offset < s.start + len(s.content))
        segment.content[offset - segment.start : offset - segment.start + size] = new
    else:
        found.sections[section][1][offset : offset + size] = new


def _global(value: int, *, mutable: bool) -> bytes:
    return bytes((_I32, mutable, 0x41)) + sleb(value) + b"\x0b"


def _exports(functions: Mapping[str, int]) -> bytes:
    entries = [(MEMORY, _MEMORY, 0), (HEAP_BASE, _GLOBAL, 1)]
    entries += [(name, _FUNCTION, index) for name, index in functions.items()]
    written = b"".join(_text(name) + bytes((what,)) + uleb(index) for name, what, index in entries)
    return uleb(len(entries)) + written


def _text(name: str) -> bytes:
    return uleb(len(name.encode())) + name.encode()


def _written(found: _Object, own: Mapping[int, bytes]) -> bytes:
    """Return the module: the object's sections, with these in place of imports and of what only linkers read."""
    # Fresh memory is 0, and data that is 0 needs no segment.
    kept = [s for s in found.segments if any(s.content)]
    data = b"".join(b"\0\x41" + sleb(s.address) + b"\x0b" + uleb(len(s.content)) + bytes(s.content) for s in kept)
    sections = {kind: bytes(body) for kind, body in found.sections if kind not in (_CUSTOM, _IMPORTS, _DATA, _COUNT)}
    sections |= own
    if kept:
        sections[_DATA] = uleb(len(kept)) + data
    # By their numbers, as the format wants them: what counts segments is not needed where no instruction names one.
    return b"\0asm\1\0\0\0" + b"".join(
        bytes((kind,)) + uleb(len(sections[kind])) + sections[kind] for kind in sorted(sections)
    )
