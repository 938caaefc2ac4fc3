"""Addresses, loads and stores of the Kernel IR as LLVM IR: scalar, vector, masked, strided and gathered."""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct

from polyker.codegen.ir.kernel import Buffer, Space
from polyker.codegen.llvm.access import by_lane
from polyker.codegen.llvm.convert import MEMORY_TYPES, ElementValue, from_memory, to_memory
from polyker.codegen.llvm.text import IRBuilder, Reg, const, suffix, vector
from polyker.ir.dtypes import DType


class ActiveLanes(Struct, frozen=True):
    """The vector loop around: number of lanes, which are active (None: all), and whether any is (None: yes)."""

    count: int
    mask: Reg | None = None
    some: Reg | None = None


class BufferPointer(NamedTuple):
    """A buffer as the emitter knows it: pointer, memory element type, and the metadata of its accesses."""

    buffer: Buffer
    pointer: Reg
    element: str
    itemsize: int
    invariant: bool
    metadata: str
    reassociating: bool = False  # lanes that are off may be written
    plane: int = 0  # how far imaginary parts lie behind the real ones, in parts; 0: each beside its own

    @property
    def on_stack(self) -> bool:
        """Whether reading any element of a row is harmless."""
        return self.buffer.space is Space.STACK

    @property
    def parts(self) -> int:
        """How many numbers lie side by side in one element."""
        return 2 if self.buffer.dtype.is_complex and not self.plane else 1

    @property
    def align(self) -> int:
        """Bytes that a part is aligned to."""
        return self.itemsize // (2 if self.buffer.dtype.is_complex else 1)


def element_type(dtype: DType) -> str:
    """Return the LLVM type of one element in memory; of one part, for complex types."""
    return MEMORY_TYPES[dtype.real.name]


def offset_pointer(b: IRBuilder, place: BufferPointer, pointer: Reg, offset: Reg) -> Reg:
    """Return the pointer `offset` elements further."""
    if offset.text == "0":
        return pointer
    return b.element(f"[2 x {place.element}]" if place.parts > 1 else place.element, pointer, offset)


def element_number(b: IRBuilder, place: BufferPointer, pointer: Reg) -> Reg:
    """Return a pointer's address in elements of so many bytes as an element has: which of a line's elements it is, and how
    aligned."""
    address = b.convert("ptrtoint", pointer, "i64")
    size = place.itemsize.bit_length() - 1
    return b.binary("lshr", address, const(size, "i64")) if size else address


def prefetch(b: IRBuilder, pointer: Reg, cache: int, *, write: bool = False) -> None:
    """Prefetch a line into a cache; x86 brings lines that are to be written into the first cache always."""
    b.declarations["llvm.prefetch.p0"] = "declare void @llvm.prefetch.p0(ptr, i32 immarg, i32 immarg, i32 immarg)"
    b.line(f"  call void @llvm.prefetch.p0({pointer.typed}, i32 {int(write)}, i32 {max(0, 4 - cache)}, i32 1)")


def _parts(b: IRBuilder, place: BufferPointer, pointer: Reg) -> list[Reg]:
    """Return the pointers to an element's parts: one, or real and imaginary."""
    if not place.buffer.dtype.is_complex:
        return [pointer]
    return [pointer, b.element(place.element, pointer, const(place.plane or 1, "i64"))]


def _value(b: IRBuilder, dtype: DType, raw: list[Reg]) -> ElementValue:
    return ElementValue(dtype, *(from_memory(b, dtype.real, r) for r in raw))


def _raw(b: IRBuilder, value: ElementValue) -> list[Reg]:
    return [to_memory(b, value.dtype.real, p) for p in value.parts]


def _read(
    b: IRBuilder, place: BufferPointer, text: str, lanes: int, operands: tuple[Reg, ...], vector: str = ""
) -> Reg:
    """Emit a load instruction or call: movable where nothing writes the buffer."""
    return b.load(text, place.element, lanes, operands, None if place.invariant else place.buffer.name, vector)


def _scalar_load(place: BufferPointer, pointer: Reg) -> str:
    return f"load {place.element}, {pointer.typed}, align {place.align}{place.metadata}"


def load_scalar(b: IRBuilder, place: BufferPointer, pointer: Reg) -> ElementValue:
    """Load one element."""
    raw = [_read(b, place, _scalar_load(place, p), 1, (p,)) for p in _parts(b, place, pointer)]
    return _value(b, place.buffer.dtype, raw)


def is_loaded(b: IRBuilder, place: BufferPointer, pointer: Reg) -> bool:
    """Return whether a value that nothing changes was loaded from there already, on every way to this place."""
    return b.is_known(_scalar_load(place, pointer))


def store_scalar(b: IRBuilder, place: BufferPointer, pointer: Reg, value: ElementValue) -> None:
    """Store one element."""
    for p, raw in zip(_parts(b, place, pointer), _raw(b, value), strict=True):
        b.line(f"  store {raw.typed}, {p.typed}, align {place.align}{place.metadata}")


def _doubled(b: IRBuilder, mask: Reg) -> Reg:
    found = picked_mask(b, mask, [k // 2 for k in range(2 * mask.lanes)], [True] * (2 * mask.lanes))
    return mask if found is None else found


def load_vector(b: IRBuilder, place: BufferPointer, pointer: Reg, count: int, mask: Reg | None) -> ElementValue:
    """Load `count` neighbouring elements; where the mask is off memory is not touched and the value is zero."""
    if place.plane:
        return _value(b, place.buffer.dtype, [_load(b, place, p, count, mask) for p in _parts(b, place, pointer)])
    mask = _doubled(b, mask) if mask is not None and place.parts > 1 else mask
    return value_of(b, place.buffer.dtype, _load(b, place, pointer, count * place.parts, mask))


def _load(b: IRBuilder, place: BufferPointer, pointer: Reg, lanes: int, mask: Reg | None) -> Reg:
    kind = f"<{lanes} x {place.element}>"
    if mask is None:
        how = f"align {place.align}{place.metadata}"
        known = how if place.invariant or place.on_stack else ""
        return _read(b, place, f"load {kind}, {pointer.typed}, {how}", lanes, (pointer,), known)
    name = f"llvm.masked.load.{suffix(Reg('', place.element, lanes, 0))}.p0"
    b.declare(name, f"declare {kind} @{name}(ptr, i32 immarg, {mask.type}, {kind})")
    call = f"call {kind} @{name}({pointer.typed}, i32 {place.align}, {mask.typed}, {kind} zeroinitializer)"
    return _read(b, place, call + place.metadata, lanes, (pointer, mask))


def value_of(b: IRBuilder, dtype: DType, raw: Reg) -> ElementValue:
    """Return the value of a vector of memory elements, a complex one's parts side by side."""
    if not dtype.is_complex:
        return _value(b, dtype, [raw])
    return _value(b, dtype, [b.shuffle(raw, None, list(range(k, raw.lanes, 2))) for k in (0, 1)])


def load_piece(b: IRBuilder, place: BufferPointer, pointer: Reg, count: int) -> Reg:
    """Load `count` neighbouring elements, a complex one's parts side by side."""
    if not place.plane:
        return _load(b, place, pointer, count * place.parts, None)
    if count > 1:
        return _beside(b, [_load(b, place, p, count, None) for p in _parts(b, place, pointer)])
    both = Reg("poison", place.element, 2, 0)
    for part, p in enumerate(_parts(b, place, pointer)):
        both = b.insert(both, _read(b, place, _scalar_load(place, p), 1, (p,)), part)
    return both


def _beside(b: IRBuilder, raw: list[Reg]) -> Reg:
    """Return the parts of complex elements side by side."""
    if len(raw) == 1:
        return raw[0]
    count = raw[0].lanes
    return b.shuffle(raw[0], raw[1], [k // 2 + (k % 2) * count for k in range(2 * count)])


def load_strided(b: IRBuilder, place: BufferPointer, pointer: Reg, count: int, stride: int, lanes: int) -> ElementValue:
    """Load every `stride`-th element, `count` of them, by `stride` vector loads and shuffles; touches nothing past the last.

    The elements between belong to the same array: they can be read. What is beyond `count` of the `lanes` is undefined.
    """
    length = (count - 1) * stride + 1
    starts = [min(k * count, length - count) for k in range(stride)]
    chunks = [load_vector(b, place, offset_pointer(b, place, pointer, const(s, "i64")), count, None).re for s in starts]
    result, filled = chunks[0], -(-count // stride)
    first = [stride * k for k in range(filled)]
    result = b.shuffle(result, None, [*first, *range(count - filled)])
    for start, chunk in zip(starts[1:], chunks[1:], strict=True):
        # Lanes so far stay; the next come from this chunk.
        last = min(count, (start + count - 1) // stride + 1)
        taken = [count + stride * k - start for k in range(filled, last)]
        result = b.shuffle(result, chunk, [*range(filled), *taken, *range(last, count)])
        filled = last
    if count < lanes:
        result = b.shuffle(result, None, [*range(count), *[0] * (lanes - count)])
    return ElementValue(place.buffer.dtype, result)


def load_apart(b: IRBuilder, place: BufferPointer, pointers: list[Reg], lanes: int) -> ElementValue:
    """Load one element after another; what is beyond the pointers of the `lanes` is undefined.

    A gather instruction whose addresses are all known takes up to twice as long, above all where they miss the caches: it has
    fewer misses in flight.
    """
    found = [load_scalar(b, place, p) for p in pointers]
    parts = []
    for column in zip(*(v.parts for v in found), strict=True):
        whole = Reg("poison", column[0].elem, lanes, 0)
        for lane, value in enumerate(column):
            whole = b.insert(whole, value, lane)
        parts.append(whole)
    return ElementValue(place.buffer.dtype, *parts)


def store_vector(
    b: IRBuilder, place: BufferPointer, pointer: Reg, value: ElementValue, mask: Reg | None, streamed: str = ""
) -> None:
    """Store neighbouring elements where the mask is on; `streamed`: metadata of a store of a whole, aligned vector."""
    raw = _raw(b, value)
    if place.plane:
        for p, part in zip(_parts(b, place, pointer), raw, strict=True):
            store_raw(b, place, p, part, mask, streamed)
        return
    mask = _doubled(b, mask) if mask is not None and len(raw) > 1 else mask
    store_raw(b, place, pointer, _beside(b, raw), mask, streamed)


def raw_of(b: IRBuilder, value: ElementValue) -> Reg:
    """Return a value of a real type as memory holds it."""
    return _raw(b, value)[0]


def store_raw(
    b: IRBuilder, place: BufferPointer, pointer: Reg, data: Reg, mask: Reg | None, streamed: str = ""
) -> None:
    """Store elements as they are in memory, where the mask is on; see `store_vector`."""
    align = place.align
    lanes = _known_lanes(mask) if mask is not None else []
    if lanes and "i1 true" not in lanes:
        return
    mask = mask if "i1 false" in lanes or not lanes else None
    if mask is None:
        align = data.lanes * align if streamed else align
        b.line(f"  store {data.typed}, {pointer.typed}, align {align}{place.metadata}{streamed}")
        return
    if lanes.count("i1 true") == 1:
        lane = lanes.index("i1 true")
        # LLVM 22 widens a truncating masked store of one constant lane and writes past it: store the lane itself.
        only = b.extract(data, lane)
        address = b.element(place.element, pointer, const(lane, "i64")) if lane else pointer
        b.line(f"  store {only.typed}, {address.typed}, align {align}{place.metadata}")
        return
    if b.avx512 and data.elem in ("i8", "i16", "i32"):
        mask = opaque(b, mask)  # LLVM may find such a constant later on
    name = f"llvm.masked.store.{suffix(data)}.p0"
    b.declare(name, f"declare void @{name}({data.type}, ptr, i32 immarg, {mask.type})")
    call = f"call void @{name}({data.typed}, {pointer.typed}, i32 {align}, {mask.typed}){place.metadata}"
    b.line("  " + call)


def opaque(b: IRBuilder, mask: Reg) -> Reg:
    """Return the mask as one that LLVM does not know: it hangs on an argument, which may lie anywhere for all that it sees."""
    known = b.pure("icmp ne ptr %pointers, inttoptr (i64 -1 to ptr)", "i1", 1, ())
    return b.binary("and", *b.unify(mask, known))


def _reversed(b: IRBuilder, reg: Reg) -> Reg:
    return b.shuffle(reg, None, list(range(reg.lanes - 1, -1, -1)))


def reverse(b: IRBuilder, value: ElementValue) -> ElementValue:
    """Return the value with its lanes in reverse order."""
    return value.each(lambda part: _reversed(b, part))


def reverse_mask(b: IRBuilder, mask: Reg | None) -> Reg | None:
    """Return the mask with its lanes in reverse order; that of a constant is a constant."""
    lanes = _known_lanes(mask) if mask is not None else []
    if mask is None or not lanes:
        return None if mask is None else _reversed(b, mask)
    return mask._replace(text=f"<{', '.join(reversed(lanes))}>")


def _known_lanes(mask: Reg) -> list[str]:
    """Return the lanes of a constant mask, nothing of another."""
    return mask.text[1:-1].split(", ") if mask.text.startswith("<i1 ") else []


def leading_lanes(mask: Reg | None, count: int) -> int | None:
    """Return how many lanes are on where they are the first ones, known when the text is made; else None."""
    if mask is None:
        return count
    lanes = [lane == "i1 true" for lane in _known_lanes(mask)]
    active = sum(lanes)
    return active if lanes and all(lanes[:active]) else None


def picked_mask(b: IRBuilder, mask: Reg | None, lanes: list[int], kept: list[bool]) -> Reg | None:
    """Return the mask whose lane m is lane `lanes[m]` of another one (None: all are on) where `kept`, and off elsewhere."""
    known = ["i1 true"] * len(lanes) if mask is None else _known_lanes(mask)
    if mask is None or known:
        on = [known[lane] if keep else "i1 false" for lane, keep in zip(lanes, kept, strict=True)]
        return None if set(on) == {"i1 true"} else Reg(f"<{', '.join(on)}>", "i1", len(lanes), 0)
    picked = b.shuffle(mask, None, lanes)
    if all(kept):
        return picked
    return b.binary("and", picked, picked_mask(b, None, lanes, kept) or picked)


def _all_lanes(count: int) -> Reg:
    return Reg("splat (i1 true)", "i1", count, 0)


def gather(b: IRBuilder, place: BufferPointer, pointers: Reg, mask: Reg | None) -> ElementValue:
    """Load one element a lane from anywhere."""
    mask = mask if mask is not None else _all_lanes(pointers.lanes)
    raw = []
    for p in _parts(b, place, pointers):
        if by_lane.is_narrow(place.element, p.lanes):
            call = by_lane.gather(b, p, mask, place.element)
            raw.append(_read(b, place, call + place.metadata, p.lanes, (p, mask)))
            continue
        kind = f"<{p.lanes} x {place.element}>"
        name = f"llvm.masked.gather.{suffix(Reg('', place.element, p.lanes, 0))}.{suffix(p)}"
        b.declare(name, f"declare {kind} @{name}({p.type}, i32 immarg, {mask.type}, {kind})")
        call = f"call {kind} @{name}({p.typed}, i32 {place.align}, {mask.typed}, {kind} zeroinitializer)"
        raw.append(_read(b, place, call + place.metadata, p.lanes, (p, mask)))
    return _value(b, place.buffer.dtype, raw)


def scatter(b: IRBuilder, place: BufferPointer, pointers: Reg, value: ElementValue, mask: Reg | None) -> None:
    """Store one element a lane, in the order of the lanes."""
    mask = mask if mask is not None else _all_lanes(pointers.lanes)
    for p, raw in zip(_parts(b, place, pointers), _raw(b, value), strict=True):
        if by_lane.is_narrow(raw.elem, raw.lanes):
            b.line(f"  {by_lane.scatter(b, p, raw, mask)}{place.metadata}")
            continue
        name = f"llvm.masked.scatter.{suffix(raw)}.{suffix(p)}"
        b.declare(name, f"declare void @{name}({raw.type}, {p.type}, i32 immarg, {mask.type})")
        b.line(f"  call void @{name}({raw.typed}, {p.typed}, i32 {place.align}, {mask.typed}){place.metadata}")


def splat_value(b: IRBuilder, value: ElementValue, count: int) -> ElementValue:
    """Return a uniform value repeated over all lanes."""
    im = None if value.im is None else b.splat(value.im, count)
    return ElementValue(value.dtype, b.splat(value.re, count), im)


def select_value(b: IRBuilder, c: Reg, x: ElementValue, y: ElementValue) -> ElementValue:
    """Return `c ? x : y`."""
    im = None
    if x.im is not None and y.im is not None:
        im = b.select(c, x.im, y.im)
    return ElementValue(x.dtype, b.select(c, x.re, y.re), im)


def last_active(b: IRBuilder, value: ElementValue, mask: Reg | None) -> ElementValue:
    """Return the value of the last active lane as a uniform value."""
    count = value.lanes
    value = splat_value(b, value, count)
    if mask is None:
        return value.each(lambda part: b.extract(part, count - 1))
    # The highest lane number among the active ones; 0 where there is none, and then nothing is stored.
    number = b.select(mask, vector(list(range(count)), "i32"), b.splat(const(0, "i32"), count))
    lane = b.call(f"llvm.vector.reduce.umax.v{count}i32", "i32", 1, (number,))
    return value.each(lambda p: b.pure(f"extractelement {p.typed}, {lane.typed}", p.elem, 1, (p, lane)))
