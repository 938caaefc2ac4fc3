"""The handler of a kernel for XLA's foreign function interface, in LLVM IR: it reads XLA's call frame and calls the kernel.

It takes the inputs, then the outputs, and behind these one buffer of bytes where the kernel has temporaries. Sizes are read from
the buffers' dimensions. Addresses of this process stand in a table that is filled when the code is loaded, so that the code is
the same in all processes.
"""

from __future__ import annotations

from enum import IntEnum

from polyker.errors.base import PolykerError
from polyker.export.entry import EntryLines, condition, scratch_bytes
from polyker.export.numbers import FIRST_CHECK
from polyker.record.checks import error_of
from polyker.record.records import Failure, KernelRecord, TensorRecord

# What the handler is written for: version 0.3 of xla/ffi/api/c_api.h. Fields are only added behind others while the major
# version stays, so that it says to be of the minor version that asks.
MAJOR, MINOR = 0, 3
# Bytes of scratch memory that a call has besides: XLA's buffers may begin anywhere.
SCRATCH_ALIGNMENT = 64
# Codes of XLA's errors.
_INVALID_ARGUMENT, _OUT_OF_RANGE, _INTERNAL = 3, 11, 13


class HandlerWord(IntEnum):
    """Words of the table that the loaded code's one function returns."""

    HANDLER = 0
    KERNEL = 1
    RUNTIME = 2


class _Frame(IntEnum):
    """Offsets in bytes in XLA_FFI_CallFrame."""

    EXTENSION = 8
    API = 16
    ARGUMENTS = 72
    RESULTS = 112
    ATTRIBUTES = 160


class _Buffer(IntEnum):
    """Offsets in bytes in XLA_FFI_Buffer."""

    DATA = 24
    DIMENSIONS = 40


_ERROR_CREATE = 48  # in XLA_FFI_Api
_ARRAY_DATA = 16  # in XLA_FFI_Array

_TEXT = """\
target triple = "{triple}"
@words = internal global [3 x ptr] [ptr @handler, ptr null, ptr null], align 8
@texts = private unnamed_addr constant [{size} x i8] c"{texts}"
declare ptr @memcpy(ptr, ptr, i64)
define ptr @table() {{
  ret ptr @words
}}
define internal ptr @handler(ptr %frame) {{
entry:
  %pointers = alloca [{pointers} x ptr], align 16
  %integers = alloca [{integers} x i64], align 16
  %error = alloca [4 x i64], align 8
  %api.at = getelementptr i8, ptr %frame, i64 {api}
  %api = load ptr, ptr %api.at
  %extension.at = getelementptr i8, ptr %frame, i64 {extension}
  %extension = load ptr, ptr %extension.at
  %asked = icmp ne ptr %extension, null
  br i1 %asked, label %about, label %call
about: ; XLA asks which version this is written for
  %kind.at = getelementptr i8, ptr %extension, i64 8
  %kind = load i32, ptr %kind.at
  %is.metadata = icmp eq i32 %kind, 1
  br i1 %is.metadata, label %tell, label %done
tell:
  %metadata.at = getelementptr i8, ptr %extension, i64 24
  %metadata = load ptr, ptr %metadata.at
  %its.major.at = getelementptr i8, ptr %api, i64 32
  %its.major = load i32, ptr %its.major.at
  %its.minor.at = getelementptr i8, ptr %api, i64 36
  %its.minor = load i32, ptr %its.minor.at
  %same = icmp eq i32 %its.major, {major}
  %minor = select i1 %same, i32 %its.minor, i32 {minor}
  %major.at = getelementptr i8, ptr %metadata, i64 24
  store i32 {major}, ptr %major.at
  %minor.at = getelementptr i8, ptr %metadata, i64 28
  store i32 %minor, ptr %minor.at
  %traits.at = getelementptr i8, ptr %metadata, i64 32
  store i32 0, ptr %traits.at
  %state.at = getelementptr i8, ptr %metadata, i64 40
  store i64 0, ptr %state.at
  br label %done
done:
  ret ptr null
call:
  %arguments.at = getelementptr i8, ptr %frame, i64 {arguments}
  %arguments = load ptr, ptr %arguments.at
  %results.at = getelementptr i8, ptr %frame, i64 {results}
  %results = load ptr, ptr %results.at
{body}
  %kernel.at = getelementptr ptr, ptr @words, i64 {kernel}
  %kernel = load ptr, ptr %kernel.at
  %status = call i64 %kernel(ptr %pointers, ptr %integers)
  br label %judge
judge:
  %number = phi i64 [ %status, %{last} ], [ {refused}, %refused ]
  %good = icmp eq i64 %number, 0
  br i1 %good, label %done, label %failed
refused:
  br label %judge
failed:
{choice}
  store i64 32, ptr %error
  %error.extension = getelementptr i8, ptr %error, i64 8
  store ptr null, ptr %error.extension
  %error.message = getelementptr i8, ptr %error, i64 16
  store ptr %message, ptr %error.message
  %error.code = getelementptr i8, ptr %error, i64 24
  store i32 %code, ptr %error.code
  %create.at = getelementptr i8, ptr %api, i64 {create}
  %create = load ptr, ptr %create.at
  %made = call ptr %create(ptr %error)
  ret ptr %made
}}
"""

_MISALIGNED = -1  # no kernel returns it
_UNKNOWN = "the kernel returned a status that stands for nothing, or its threads did not run all parts"


class _Handler(EntryLines):
    """The lines that fill in what the kernel takes."""

    def __init__(self, record: KernelRecord, *, checks: bool) -> None:
        super().__init__()
        self.record, self.call = record, record.call
        self.checks = record.call.checks if checks else ()
        self.block = "call"

    def begin(self, label: str) -> None:
        """Begin a block."""
        self.text.append(f"{label}:")
        self.block = label

    def buffers(self) -> dict[str, str]:
        """Load the addresses of all arrays; return them by the tensors' names, those of in-out ones as they are given apart."""
        found: dict[str, str] = {}
        for place, names in (("arguments", self.call.inputs), ("results", self.call.outputs)):
            for n, name in enumerate(names):
                buffer = self.load("ptr", f"%{place}", 8 * n)
                if place == "arguments":
                    self.text.append(f"  %{name}.dims = {self._field(buffer, _Buffer.DIMENSIONS)}")
                data = self.load("ptr", buffer, _Buffer.DATA)
                if place == "results" and name in self.call.inputs:
                    self._start(name, found[name], data)
                found[name] = data
        return found

    def _field(self, buffer: str, offset: int) -> str:
        return f"load ptr, ptr {self.new(f'getelementptr i8, ptr {buffer}, i64 {offset}')}"

    def _start(self, name: str, given: str, result: str) -> None:
        """Have an in-out tensor's result begin with the argument, where that lies elsewhere."""
        tensor = self.call.tensor(name)
        size = str(tensor.dtype.itemsize)
        for d in range(len(tensor.shape)):
            size = self.new(f"mul i64 {size}, {self.dimension(name, d)}")
        apart, copy, copied = self.new(f"icmp ne ptr {given}, {result}"), self.label(), self.label()
        self.text.append(f"  br i1 {apart}, label %{copy}, label %{copied}")
        self.begin(copy)
        self.new(f"call ptr @memcpy(ptr {result}, ptr {given}, i64 {size})")
        self.text.append(f"  br label %{copied}")
        self.begin(copied)

    def dimension(self, name: str, d: int) -> str:
        """Return an extent of an input."""
        return self.load("i64", f"%{name}.dims", 8 * d)

    def sizes(self) -> None:
        """Read the sizes from the dimensions of the inputs, and compute their products."""
        for size, _ in self.call.sizes:
            name, d = place_of(self.record, size)
            at = self.new(f"getelementptr i8, ptr %{name}.dims, i64 {8 * d}")
            self.text.append(f"  %{size} = load i64, ptr {at}")
        self.text += [f"  %{name} = mul i64 %{a}, %{b}" for name, (a, b) in self.record.products]

    def temporaries(self, *, in_order: bool) -> list[str]:
        """Return the addresses of the temporaries, in the last result; `in_order`: one after the other, whatever the sizes."""
        if not self.record.scratch:
            return []
        buffer = self.load("ptr", "%results", 8 * len(self.call.outputs))
        place = self.new(f"ptrtoint ptr {self.load('ptr', buffer, _Buffer.DATA)} to i64")
        raised = self.new(f"add i64 {place}, {SCRATCH_ALIGNMENT - 1}")
        base = self.new(f"inttoptr i64 {self.new(f'and i64 {raised}, {-SCRATCH_ALIGNMENT}')} to ptr")
        fixed = scratch_bytes(self.record)
        if fixed is not None:
            return [self.new(f"getelementptr i8, ptr {base}, i64 {offset}") for offset in fixed[0]]
        if in_order:
            return self._in_order(base)
        array = self.load("ptr", self.load("ptr", "%frame", _Frame.ATTRIBUTES), 0)
        offsets = self.load("ptr", array, _ARRAY_DATA)
        return [
            self.new(f"getelementptr i8, ptr {base}, i64 {self.load('i64', offsets, 8 * n)}")
            for n in range(len(self.record.scratch))
        ]

    def _in_order(self, base: str) -> list[str]:
        at, found = "0", []
        for tensor in self.record.scratch:
            found.append(self.new(f"getelementptr i8, ptr {base}, i64 {at}"))
            at = self.new(f"add i64 {at}, {self.bytes(tensor)}")
        return found

    def check(self, arrays: dict[str, str]) -> str:
        """Leave for an error where an array is not aligned or sizes are not as the kernel takes them; return its number."""
        bits = "0"
        for name, alignment in zip(self.record.arguments, self.record.alignments, strict=True):
            need = max(alignment, self.call.tensor(name).dtype.numpy.alignment)
            place = self.new(f"ptrtoint ptr {arrays[name]} to i64")
            bits = self.new(f"or i64 {bits}, {self.new(f'and i64 {place}, {need - 1}')}")
        number = self.new(f"select i1 {self.new(f'icmp eq i64 {bits}, 0')}, i64 0, i64 {_MISALIGNED}")
        for n, check in enumerate(self.checks):
            holds = condition(self, check)
            number = self.new(f"select i1 {holds}, i64 {number}, i64 {FIRST_CHECK + n}")
        good, go = self.new(f"icmp eq i64 {number}, 0"), self.label()
        self.text.append(f"  br i1 {good}, label %{go}, label %refused")
        self.begin(go)
        return number

    def choose(self) -> bytes:
        """Choose the message and the code of a status; return all messages."""
        said = {status: _said(failure) for status, failure in self.record.guards}
        said |= {FIRST_CHECK + n: _said(check.failure) for n, check in enumerate(self.checks)}
        said[_MISALIGNED] = ("an array of XLA's is not aligned as the kernel takes it", _INTERNAL)
        texts, offset, code = _text(_UNKNOWN), "0", str(_INTERNAL)
        for status, (text, number) in said.items():
            same = self.new(f"icmp eq i64 %number, {status}")
            offset = self.new(f"select i1 {same}, i64 {len(texts)}, i64 {offset}")
            code = self.new(f"select i1 {same}, i32 {number}, i32 {code}")
            texts += _text(text)
        self.text.append(f"  %message = getelementptr i8, ptr @texts, i64 {offset}")
        self.text.append(f"  %code = add i32 {code}, 0")
        return texts


def handler_text(record: KernelRecord, triple: str, *, checks: bool) -> str:
    """Return the LLVM IR module of a kernel's handler; its function `table` returns the words of HandlerWord.

    `checks`: it is for any sizes, which it checks, and puts one temporary after the other.
    """
    lines = _Handler(record, checks=checks)
    arrays = lines.buffers()
    lines.sizes()
    refused = lines.check(arrays)
    pointers = [arrays[name] for name in record.arguments] + lines.temporaries(in_order=checks)
    for n, pointer in enumerate(pointers):
        lines.store("ptr", pointer, "%pointers", 8 * n)
    integers = [f"%{i.name}" for i in record.integers]
    if record.parallel:
        at = lines.new(f"getelementptr ptr, ptr @words, i64 {HandlerWord.RUNTIME.value}")
        integers.append(lines.new(f"ptrtoint ptr {lines.new(f'load ptr, ptr {at}')} to i64"))
    for n, integer in enumerate(integers):
        lines.store("i64", integer, "%integers", 8 * n)
    body, block = "\n".join(lines.text), lines.block
    lines.text.clear()
    texts = lines.choose()
    return _TEXT.format(
        triple=triple,
        size=len(texts),
        texts="".join(f"\\{byte:02X}" for byte in texts),
        pointers=max(1, len(pointers)),
        integers=max(1, len(integers)),
        api=_Frame.API.value,
        extension=_Frame.EXTENSION.value,
        arguments=_Frame.ARGUMENTS.value,
        results=_Frame.RESULTS.value,
        major=MAJOR,
        minor=MINOR,
        body=body,
        kernel=HandlerWord.KERNEL.value,
        last=block,
        refused=refused,
        choice="\n".join(lines.text),
        create=_ERROR_CREATE,
    )


def _said(failure: Failure) -> tuple[str, int]:
    """Return what a guard says, and the code of XLA's error for it."""
    error = error_of(failure, **({} if "sizes" in dict(failure.values) else {"sizes": ""}))
    text = str(error) if isinstance(error, PolykerError) else repr(error)
    return text, _OUT_OF_RANGE if isinstance(error, IndexError) else _INVALID_ARGUMENT


def _text(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace").replace(b"\0", b"?") + b"\0"


def place_of(record: KernelRecord, size: str) -> tuple[str, int]:
    """Return the input and the dimension that has a size as its extent."""
    tensors: list[TensorRecord] = [record.call.tensor(name) for name in record.call.inputs]
    return next((t.name, d) for t in tensors for d, extent in enumerate(t.shape) if extent == size)
