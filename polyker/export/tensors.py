"""Entries that take tensors of DLPack or of tvm-ffi: they check type, rank, shape and strides, and call the C entry."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from polyker.export.entry import EntryLines, Subject, return_unless
from polyker.export.names import shown
from polyker.export.numbers import FIRST_TENSOR
from polyker.record.records import TensorRecord

ABIS = ("c", "dlpack", "tvm-ffi")
# Where the fields of a DLTensor lie on 64-bit machines, and how it numbers kinds of elements.
_DEVICE, _RANK, _TYPE, _SHAPE, _STRIDES, _OFFSET = 8, 16, 20, 24, 32, 40
_KINDS = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
_BFLOAT, _CPU = 4, 1
# Of tvm-ffi: bytes of an argument, where its value lies, the kinds of an integer, of a DLTensor and of a tensor object, and where
# the DLTensor lies in the object.
_ANY_BYTES, _ANY_VALUE, _ANY_INTEGER, _ANY_TENSOR, _ANY_OBJECT, _IN_OBJECT = 16, 8, 1, 7, 70, 24


class TensorEntry(Struct, frozen=True):
    """The names of what an entry by tensors takes beside these: sizes that no tensor's shape gives."""

    subject: Subject

    @property
    def shaped(self) -> dict[str, tuple[str, int]]:
        """Of each size that is a dimension of a tensor the first such: the tensor and the dimension."""
        found: dict[str, tuple[str, int]] = {}
        for tensor in self.subject.given:
            for d, extent in enumerate(tensor.shape):
                if isinstance(extent, str):
                    found.setdefault(extent, (tensor.name, d))
        return found

    @property
    def free(self) -> list[str]:
        """The sizes that no shape gives."""
        return [n for n in self.subject.sizes if n not in self.shaped]


def meanings(subject: Subject) -> dict[int, str]:
    """Return what the numbers mean that entries by tensors return beside those of the C entry."""
    found = {}
    for n, tensor in enumerate(subject.given):
        shape = ", ".join(shown(extent, subject.sizes) for extent in tensor.shape)
        told = f"`{subject.tensors[tensor.name]}` has to be {tensor.dtype.name}[{shape}] in the memory of the CPU, row by row"
        found[FIRST_TENSOR + n] = told
    return found


def tensor_entry(subject: Subject, abi: str) -> str:
    """Return the entries of a binary interface in LLVM IR, nothing for that of C."""
    if abi == "c":
        return ""
    shared = _checked_call(subject)
    return shared + (_dlpack(subject) if abi == "dlpack" else _tvm_ffi(subject))


def _checked_call(subject: Subject) -> str:
    """Return the function that checks tensors, given by an array of pointers, and calls the C entry."""
    entry, lines = TensorEntry(subject), EntryLines()
    places = {t.name: lines.load("ptr", "%tensors", 8 * n) for n, t in enumerate(subject.given)}
    for n, tensor in enumerate(subject.given):
        return_unless(lines, _is_like(lines, places[tensor.name], tensor), FIRST_TENSOR + n)
    for name in subject.sizes:
        if name in entry.shaped:
            tensor_name, d = entry.shaped[name]
            found = lines.load("i64", lines.load("ptr", places[tensor_name], _SHAPE), 8 * d)
        else:
            found = lines.load("i64", "%sizes", 8 * entry.free.index(name))
        lines.text.append(f"  %{name} = add i64 {found}, 0")
    arguments = []
    for n, tensor in enumerate(subject.given):
        return_unless(lines, _has_shape(lines, places[tensor.name], tensor), FIRST_TENSOR + n)
        arguments.append(_argument(lines, subject, places[tensor.name], tensor))
    arguments += [f"i64 %{n}" for n in subject.sizes]
    arguments += ["ptr %scratch"] * subject.takes_scratch + ["ptr %runtime"] * subject.threads
    given = ", ".join(arguments)
    lines.text.append(f"  ret i32 {lines.new(f'call i32 @{subject.name}({given})')}")
    body = "\n".join(lines.text)
    head = "ptr %tensors, ptr %sizes, ptr %scratch, ptr %runtime"
    return f"define internal i32 @{subject.name}_tensors({head}) #0 {{\nentry:\n{body}\n}}\n"


def _is_like(lines: EntryLines, place: str, tensor: TensorRecord) -> str:
    """Return whether a tensor lies on the CPU and has the element type and the rank of another."""
    kind = _BFLOAT if tensor.dtype.name == "bf16" else _KINDS[tensor.dtype.kind]
    wanted = {
        _DEVICE: ("i32", _CPU),
        _RANK: ("i32", len(tensor.shape)),
        _TYPE: ("i32", kind | 8 * tensor.dtype.itemsize << 8 | 1 << 16),
    }
    holds = "true"
    for offset, (width, value) in wanted.items():
        same = lines.new(f"icmp eq {width} {lines.load(width, place, offset)}, {value}")
        holds = lines.new(f"and i1 {holds}, {same}")
    return holds


def _has_shape(lines: EntryLines, place: str, tensor: TensorRecord) -> str:
    """Return whether a tensor has the extents of another, and lies row by row; strides of extents of 1 do not count."""
    if not tensor.shape:
        return "true"
    shape, strides = lines.load("ptr", place, _SHAPE), lines.load("ptr", place, _STRIDES)
    # Without strides it is dense; the shape stands in for what is read then.
    none = lines.new(f"icmp eq ptr {strides}, null")
    strides = lines.new(f"select i1 {none}, ptr {shape}, ptr {strides}")
    holds, dense, empty, step = "true", "true", "false", "1"
    for d in reversed(range(len(tensor.shape))):
        extent = lines.load("i64", shape, 8 * d)
        same = lines.new(f"icmp eq i64 {extent}, {lines.extent(tensor.shape[d])}")
        holds = lines.new(f"and i1 {holds}, {same}")
        empty = lines.new(f"or i1 {empty}, {lines.new(f'icmp eq i64 {extent}, 0')}")
        stride = lines.new(f"icmp eq i64 {lines.load('i64', strides, 8 * d)}, {step}")
        single = lines.new(f"or i1 {stride}, {lines.new(f'icmp eq i64 {extent}, 1')}")
        dense = lines.new(f"and i1 {dense}, {single}")
        step = lines.new(f"mul i64 {step}, {extent}")
    unconstrained = lines.new(f"or i1 {none}, {empty}")
    return lines.new(f"and i1 {holds}, {lines.new(f'or i1 {unconstrained}, {dense}')}")


def _argument(lines: EntryLines, subject: Subject, place: str, tensor: TensorRecord) -> str:
    """Return a tensor as the C entry takes it."""
    data = lines.load("ptr", place, 0)
    first = lines.new(f"getelementptr i8, ptr {data}, i64 {lines.load('i64', place, _OFFSET)}")
    kind = subject.parameter_type(tensor)
    return f"ptr {first}" if kind == "ptr" else f"{kind} {lines.load(kind, first, 0)}"


def _dlpack(subject: Subject) -> str:
    """Return the entry that takes arrays of pointers to DLTensors: inputs that are no outputs, then outputs."""
    lines = EntryLines()
    outputs = [t for t in subject.given if t.name in subject.record.call.outputs]
    count = len(subject.given)
    lines.text.append(f"  %tensors = alloca [{max(1, count)} x ptr], align 16")
    for n in range(count):
        inside = n - (count - len(outputs))
        found = lines.load("ptr", "%ins" if inside < 0 else "%outs", 8 * (n if inside < 0 else inside))
        lines.store("ptr", found, "%tensors", 8 * n)
    runtime = "ptr %runtime" if subject.threads else "ptr null"
    scratch = "ptr %scratch" if subject.takes_scratch else "ptr null"
    call = lines.new(f"call i32 @{subject.name}_tensors(ptr %tensors, ptr %sizes, {scratch}, {runtime})")
    parameters = ", ".join(f"ptr %{name}" for name in dlpack_parameters(subject))
    body = "\n".join((*lines.text, f"  ret i32 {call}"))
    return f"define i32 @{subject.name}_dlpack({parameters}) #0 {{\nentry:\n{body}\n}}\n"


def dlpack_parameters(subject: Subject) -> Iterator[str]:
    """Yield the names of the parameters of the entry by DLPack."""
    yield from ("ins", "outs", "sizes")
    if subject.takes_scratch:
        yield "scratch"
    if subject.threads:
        yield "runtime"


def _tvm_ffi(subject: Subject) -> str:
    """Return the entry of tvm-ffi: tensors, then sizes that no shape gives, then scratch memory as a tensor of bytes."""
    entry, lines = TensorEntry(subject), EntryLines()
    count, free = len(subject.given), entry.free
    every = count + len(free) + subject.takes_scratch
    lines.text.append(f"  %tensors = alloca [{max(1, count)} x ptr], align 16")
    lines.text.append(f"  %sizes = alloca [{max(1, len(free))} x i64], align 16")
    lines.text.append(f"  %right = icmp eq i32 %n, {every}\n  br i1 %right, label %count, label %wrong\ncount:")
    holds, found = "true", []
    for n in range(every):
        kind = lines.load("i32", "%args", _ANY_BYTES * n)
        if count <= n < count + len(free):
            holds = lines.new(f"and i1 {holds}, {lines.new(f'icmp eq i32 {kind}, {_ANY_INTEGER}')}")
        else:
            is_object = lines.new(f"icmp eq i32 {kind}, {_ANY_OBJECT}")
            is_tensor = lines.new(f"or i1 {is_object}, {lines.new(f'icmp eq i32 {kind}, {_ANY_TENSOR}')}")
            holds = lines.new(f"and i1 {holds}, {is_tensor}")
            found.append((n, lines.new(f"select i1 {is_object}, i64 {_IN_OBJECT}, i64 0")))
    lines.text.append(f"  br i1 {holds}, label %typed, label %wrong\ntyped:")
    scratch = "null"
    for n, skip in found:
        value = lines.load("ptr", "%args", _ANY_BYTES * n + _ANY_VALUE)
        tensor = lines.new(f"getelementptr i8, ptr {value}, i64 {skip}")
        if n < count:
            lines.store("ptr", tensor, "%tensors", 8 * n)
        else:
            data, offset = lines.load("ptr", tensor, 0), lines.load("i64", tensor, _OFFSET)
            scratch = lines.new(f"getelementptr i8, ptr {data}, i64 {offset}")
    for k in range(len(free)):
        lines.store("i64", lines.load("i64", "%args", _ANY_BYTES * (count + k) + _ANY_VALUE), "%sizes", 8 * k)
    status = lines.new(f"call i32 @{subject.name}_tensors(ptr %tensors, ptr %sizes, ptr {scratch}, ptr null)")
    text = lines.new(f"call ptr @{subject.name}_error(i32 {status})")
    good = lines.new(f"icmp eq i32 {status}, 0")
    body = "\n".join(lines.text)
    wrong = f"{subject.name} takes {count} tensors" + (f", {len(free)} integers" if free else "")
    wrong += ", and a tensor of bytes as scratch memory" if subject.takes_scratch else ""
    name = subject.name
    return f"""
@{name}_kind = private unnamed_addr constant [11 x i8] c"ValueError\\00"
@{name}_wrong = private unnamed_addr constant [{len(wrong) + 1} x i8] c"{wrong}\\00"
declare extern_weak void @TVMFFIErrorSetRaisedFromCStr(ptr, ptr)
define i32 @__tvm_ffi_{name}(ptr %handle, ptr %args, i32 %n, ptr %result) #0 {{
entry:
  store i64 0, ptr %result
{body}
  br i1 {good}, label %done, label %failed
wrong:
  br label %failed
failed:
  %told = phi ptr [ {text}, %typed ], [ @{name}_wrong, %wrong ]
  %known = icmp ne ptr @TVMFFIErrorSetRaisedFromCStr, null
  br i1 %known, label %raise, label %end
raise:
  call void @TVMFFIErrorSetRaisedFromCStr(ptr @{name}_kind, ptr %told)
  br label %end
end:
  ret i32 -1
done:
  ret i32 0
}}
"""
