"""The C entry of a kernel, in LLVM IR: checks its arguments, fills in what the kernel takes, and calls it.

Beside it stand a function that says how many bytes of scratch memory a call needs, and one that says what a number means.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from msgspec import Struct, field

from polyker.errors.base import InternalError
from polyker.export.numbers import FIRST_CHECK, HOST, SCRATCH, SIZE_RANGE, meanings
from polyker.record.forms import SizeForm
from polyker.record.records import KernelRecord, SizeCheck, TensorRecord
from polyker.runtime.memory import arena

# Bits of the bytes of a tensor: what an i64 holds, with room for offsets. Where memory is small, sums of many fit in it, too.
_MOST_BITS, _MOST_NARROW_BITS = 62, 48
_ALIGNMENT = 64  # bytes that scratch memory is a multiple of, and each temporary in it


class Subject(Struct, frozen=True):
    """A kernel that is exported: its name, its record, and the names of its parameters.

    `tensors`: by generated name, `sizes` likewise. `constants`: symbols of the inputs that are part of the module.
    `narrow`: sizes are 32-bit integers, as in WebAssembly. `static_scratch`: scratch memory is part of the module. `threads`: the
    caller gives what runs parallel loops. `abi`: c, dlpack or tvm-ffi, whose entries stand beside that of C.
    """

    name: str
    record: KernelRecord
    tensors: Mapping[str, str]
    sizes: Mapping[str, str]
    constants: Mapping[str, str] = field(default_factory=dict)
    narrow: bool = False
    static_scratch: bool = False
    threads: bool = False
    abi: str = "c"

    @property
    def given(self) -> list[TensorRecord]:
        """The tensors that the caller gives, in order."""
        call = self.record.call
        return [call.tensor(n) for n in self.record.arguments if n not in self.constants]

    @property
    def by_value(self) -> set[str]:
        """The inputs without dimensions, which C gives by value."""
        call = self.record.call
        return {t.name for t in self.given if not t.shape and t.name not in call.outputs and not t.dtype.is_complex}

    def parameter_type(self, tensor: TensorRecord) -> str:
        """Return the type in LLVM IR by which C gives a tensor."""
        if tensor.name not in self.by_value:
            return "ptr"
        plain = {"f32": "float", "f64": "double"}
        return plain.get(tensor.dtype.name, f"i{8 * tensor.dtype.itemsize}")

    @property
    def takes_scratch(self) -> bool:
        """Whether the caller gives scratch memory, which is null where none is needed: a parameter, whatever the schedule."""
        return not self.static_scratch

    @property
    def symbols(self) -> tuple[str, ...]:
        """The functions that it defines for others."""
        own = tuple(f"{self.name}{end}" for end in ("", "_scratch", "_error"))
        return own + {"c": (), "dlpack": (f"{self.name}_dlpack",), "tvm-ffi": (f"__tvm_ffi_{self.name}",)}[self.abi]

    @property
    def meanings(self) -> dict[int, str]:
        """The message of each number that it may return."""
        return meanings(self.record, bits=self.most_bits if self.sizes else 0, parallel=self.threads)

    @property
    def most_bits(self) -> int:
        """The bits that the bytes of a tensor may have."""
        return _MOST_NARROW_BITS if self.narrow else _MOST_BITS


class EntryLines:
    """Straight LLVM IR over i64 values."""

    def __init__(self) -> None:
        self.text: list[str] = []
        self._count = 0

    def new(self, text: str) -> str:
        """Append an instruction and return its value."""
        self._count += 1
        self.text.append(f"  %x{self._count} = {text}")
        return f"%x{self._count}"

    def load(self, kind: str, place: str, offset: int) -> str:
        """Return the value at so many bytes from an address."""
        return self.new(f"load {kind}, ptr {self.new(f'getelementptr i8, ptr {place}, i64 {offset}')}")

    def store(self, kind: str, value: str, place: str, offset: int) -> None:
        """Store a value at so many bytes from an address."""
        self.text.append(f"  store {kind} {value}, ptr {self.new(f'getelementptr i8, ptr {place}, i64 {offset}')}")

    def label(self) -> str:
        """Return a fresh label."""
        self._count += 1
        return f"b{self._count}"

    def form(self, form: SizeForm) -> str:
        """Return the value of a form of sizes."""
        match form:
            case int():
                return str(form)
            case str():
                return f"%{form}"
            case ("linear", int(constant), *pairs):
                total = str(constant)
                for atom, factor in cast("list[tuple[SizeForm, int]]", pairs):
                    total = self.new(f"add i64 {total}, {self.new(f'mul i64 {self.form(atom)}, {factor}')}")
                return total
            case ("floordiv" | "mod" as op, first, int(divisor)):
                return self._divided(op, self.form(first), divisor)
            case (str(op), *rest):
                return self._folded(op, [self.form(f) for f in rest])
        raise InternalError(f"no form of sizes: {form!r}")

    def _folded(self, op: str, values: Sequence[str]) -> str:
        if op == "neg":
            return self.new(f"sub i64 0, {values[0]}")
        first, *rest = values
        for value in rest:
            if op in ("minimum", "maximum"):
                less = self.new(f"icmp {'slt' if op == 'minimum' else 'sgt'} i64 {first}, {value}")
                first = self.new(f"select i1 {less}, i64 {first}, i64 {value}")
            elif op in ("add", "sub", "mul"):
                first = self.new(f"{op} i64 {first}, {value}")
            else:
                raise InternalError(f"no form of sizes: {op}")
        return first

    def _divided(self, op: str, value: str, divisor: int) -> str:
        """Return floor(value / divisor), or what is left; the divisor is positive."""
        rest = self.new(f"srem i64 {value}, {divisor}")
        below = self.new(f"icmp slt i64 {rest}, 0")
        if op == "mod":
            return self.new(f"select i1 {below}, i64 {self.new(f'add i64 {rest}, {divisor}')}, i64 {rest}")
        quotient = self.new(f"sdiv i64 {value}, {divisor}")
        return self.new(f"select i1 {below}, i64 {self.new(f'sub i64 {quotient}, 1')}, i64 {quotient}")

    def bits(self, value: str) -> str:
        """Return how many bits a value that is not negative has."""
        zeros = self.new(f"call i64 @llvm.ctlz.i64(i64 {value}, i1 false)")
        return self.new(f"sub i64 64, {zeros}")

    def extent(self, form: SizeForm) -> str:
        """Return an extent, not below zero."""
        value = self.form(form)
        if isinstance(form, int):
            return str(max(0, form))
        positive = self.new(f"icmp sgt i64 {value}, 0")
        return self.new(f"select i1 {positive}, i64 {value}, i64 0")

    def bytes(self, tensor: TensorRecord) -> str:
        """Return the bytes of a dense tensor, rounded up to scratch memory's alignment."""
        size = str(tensor.dtype.itemsize)
        for n in tensor.shape:
            size = self.new(f"mul i64 {size}, {self.extent(n)}")
        return self.new(f"and i64 {self.new(f'add i64 {size}, {_ALIGNMENT - 1}')}, {-_ALIGNMENT}")


def scratch_bytes(record: KernelRecord) -> tuple[tuple[int, ...], int] | None:
    """Return the offsets of the temporaries and the bytes of all, None where they depend on sizes."""
    sizes = []
    for tensor in record.scratch:
        if not all(isinstance(n, int) for n in tensor.shape):
            return None
        size = tensor.dtype.itemsize
        for n in tensor.shape:
            size *= max(0, cast(int, n))
        sizes.append(size)
    disjoint, in_place = (set(map(frozenset, pairs)) for pairs in (record.disjoint_in_time, record.in_place))
    return arena(sizes, disjoint, in_place, record.lifetimes)


def _offsets(lines: EntryLines, record: KernelRecord) -> tuple[list[str], str]:
    """Return where the temporaries begin in scratch memory, and its bytes; with symbolic sizes one lies after the other."""
    fixed = scratch_bytes(record)
    if fixed is not None:
        return [str(o) for o in fixed[0]], str(fixed[1])
    at, found = "0", []
    for tensor in record.scratch:
        found.append(at)
        at = lines.new(f"add i64 {at}, {lines.bytes(tensor)}")
    return found, at


def _sizes(subject: Subject, lines: EntryLines) -> None:
    """Widen the sizes that came as 32-bit integers, and compute the products of sizes."""
    if subject.narrow:
        lines.text += [f"  %{n} = sext i32 %{n}.narrow to i64" for n in subject.sizes]


def _products(subject: Subject, lines: EntryLines) -> None:
    lines.text += [f"  %{name} = mul i64 %{a}, %{b}" for name, (a, b) in subject.record.products]


def return_unless(lines: EntryLines, holds: str, number: int) -> None:
    """Return a number where a condition does not hold."""
    go, stop = lines.label(), lines.label()
    lines.text += [f"  br i1 {holds}, label %{go}, label %{stop}", f"{stop}:", f"  ret i32 {number}", f"{go}:"]


def _check_ranges(subject: Subject, lines: EntryLines) -> None:
    """Return a number for negative sizes, and for tensors of so many bytes that offsets would not fit."""
    if not subject.sizes:
        return
    holds = "true"
    for name in subject.sizes:
        holds = lines.new(f"and i1 {holds}, {lines.new(f'icmp sge i64 %{name}, 0')}")
    return_unless(lines, holds, SIZE_RANGE)
    for name in subject.sizes:  # what forms are made of: sums of a few of them do not wrap
        holds = lines.new(f"and i1 {holds}, {lines.new(f'icmp slt i64 %{name}, {1 << 48}')}")
    return_unless(lines, holds, SIZE_RANGE)
    holds = "true"
    for tensor in (*subject.record.call.tensors, *subject.record.scratch):
        if all(isinstance(n, int) for n in tensor.shape):
            continue
        total = str(tensor.dtype.itemsize.bit_length())
        for n in tensor.shape:
            total = lines.new(f"add i64 {total}, {lines.bits(lines.extent(n))}")
        holds = lines.new(f"and i1 {holds}, {lines.new(f'icmp sle i64 {total}, {subject.most_bits}')}")
    return_unless(lines, holds, SIZE_RANGE)


def _check(lines: EntryLines, check: SizeCheck, number: int) -> None:
    return_unless(lines, condition(lines, check), number)


def condition(lines: EntryLines, check: SizeCheck) -> str:
    """Return whether a check of sizes holds."""
    any_holds = "false"
    for rows in check.any_of:
        holds = "true"
        for equal, form in rows:
            row = lines.new(f"icmp {'eq' if equal else 'sge'} i64 {lines.form(form)}, 0")
            holds = lines.new(f"and i1 {holds}, {row}")
        any_holds = lines.new(f"or i1 {any_holds}, {holds}")
    return any_holds


def entry(subject: Subject) -> str:
    """Return the functions of a kernel that C calls, but for `told`, in LLVM IR.

    The kernel is `NAME_kernel`, internal to the module.
    """
    return "\n".join((_call(subject), _scratch(subject)))


def _size_parameters(subject: Subject) -> list[str]:
    return [f"i32 %{n}.narrow" if subject.narrow else f"i64 %{n}" for n in subject.sizes]


def _call(subject: Subject) -> str:
    record, lines = subject.record, EntryLines()
    parameters = [f"{subject.parameter_type(t)} %{t.name}" for t in subject.given]
    parameters += _size_parameters(subject)
    parameters += ["ptr %scratch"] * subject.takes_scratch + ["ptr %runtime"] * subject.threads
    count = len(record.arguments) + len(record.scratch)
    integers = len(record.integers) + record.parallel
    lines.text += [f"  %pointers = alloca [{max(1, count)} x ptr], align 16"]
    lines.text += [f"  %integers = alloca [{max(1, integers)} x i64], align 16"]
    _sizes(subject, lines)
    _check_ranges(subject, lines)
    for n, check in enumerate(record.call.checks):
        _check(lines, check, FIRST_CHECK + n)
    _products(subject, lines)
    if subject.takes_scratch and record.scratch:
        place = lines.new("ptrtoint ptr %scratch to i64")
        aligned = lines.new(f"icmp eq i64 {lines.new(f'and i64 {place}, {_ALIGNMENT - 1}')}, 0")
        given = lines.new("icmp ne ptr %scratch, null")
        return_unless(lines, lines.new(f"and i1 {aligned}, {given}"), SCRATCH)
    pointers = [_pointer(subject, lines, name) for name in record.arguments]
    memory = f"@{subject.name}_memory" if subject.static_scratch else "%scratch"
    pointers += [lines.new(f"getelementptr i8, ptr {memory}, i64 {o}") for o in _offsets(lines, record)[0]]
    for n, pointer in enumerate(pointers):
        lines.text.append(f"  store ptr {pointer}, ptr {lines.new(f'getelementptr ptr, ptr %pointers, i64 {n}')}")
    values = [f"%{i.name}" for i in record.integers]
    if record.parallel:
        values.append(_runtime(subject, lines))
    for n, value in enumerate(values):
        lines.text.append(f"  store i64 {value}, ptr {lines.new(f'getelementptr i64, ptr %integers, i64 {n}')}")
    status = lines.new(f"call i64 @{subject.name}_kernel(ptr %pointers, ptr %integers)")
    if record.parallel:
        wide = lines.new(f"icmp ugt i64 {status}, {(1 << 31) - 1}")
        status = lines.new(f"select i1 {wide}, i64 {HOST}, i64 {status}")
    lines.text.append(f"  ret i32 {lines.new(f'trunc i64 {status} to i32')}")
    body = "\n".join(lines.text)
    return f"define i32 @{subject.name}({', '.join(parameters)}) #0 {{\nentry:\n{body}\n}}"


def _pointer(subject: Subject, lines: EntryLines, name: str) -> str:
    """Return the address of an argument: the caller's, a constant's, or where a number is put."""
    if name in subject.constants:
        return f"@{subject.constants[name]}"
    if name not in subject.by_value:
        return f"%{name}"
    kind = subject.parameter_type(subject.record.call.tensor(name))
    lines.text.append(f"  %{name}.place = alloca {kind}, align 16")
    lines.text.append(f"  store {kind} %{name}, ptr %{name}.place")
    return f"%{name}.place"


def _runtime(subject: Subject, lines: EntryLines) -> str:
    """Return the address of the host's functions: the caller's, or where that is null those that run all on this thread."""
    none = lines.new("icmp eq ptr %runtime, null")
    found = lines.new(f"select i1 {none}, ptr %own, ptr %runtime")
    at = lines.text.index(f"  %integers = alloca [{len(subject.record.integers) + 1} x i64], align 16") + 1
    lines.text[at:at] = [
        "  %own = alloca [5 x i64], align 16",
        "  store [5 x i64] zeroinitializer, ptr %own",
        "  %own.for = getelementptr ptr, ptr %own, i64 3",
        f"  store ptr @{subject.name}_in_order, ptr %own.for",
    ]
    return lines.new(f"ptrtoint ptr {found} to i64")


def _scratch(subject: Subject) -> str:
    """Return the function that says how many bytes of scratch memory a call needs, and what runs a loop on this thread."""
    lines = EntryLines()
    _sizes(subject, lines)
    total = _offsets(lines, subject.record)[1] if subject.takes_scratch else "0"
    kind = "i32" if subject.narrow else "i64"
    if subject.narrow and not total.isdecimal():
        lines.text.append(f"  %fits = icmp ult i64 {total}, {0xFFFFFFFF}")  # else more than there can be
        total = lines.new(f"trunc i64 {lines.new(f'select i1 %fits, i64 {total}, i64 {0xFFFFFFFF}')} to i32")
    body = "\n".join((*lines.text, f"  ret {kind} {total}"))
    parameters = ", ".join(_size_parameters(subject))
    found = f"define {kind} @{subject.name}_scratch({parameters}) #0 {{\nentry:\n{body}\n}}"
    if subject.static_scratch and subject.record.scratch:
        fixed = scratch_bytes(subject.record)
        assert fixed is not None, "checked before"
        found += f"\n@{subject.name}_memory = internal global [{fixed[1]} x i8] zeroinitializer, align {_ALIGNMENT}"
    return found + (_IN_ORDER.replace("NAME", subject.name) if subject.record.parallel else "")


_IN_ORDER = """
define internal i32 @NAME_in_order(ptr %function, ptr %context, i64 %begin, i64 %end, ptr %user) #0 {
entry:
  br label %next
next:
  %i = phi i64 [ %begin, %entry ], [ %i.next, %run ]
  %more = icmp slt i64 %i, %end
  br i1 %more, label %run, label %done
run:
  %status = call i32 %function(ptr %context, i64 %i)
  %i.next = add i64 %i, 1
  %good = icmp eq i32 %status, 0
  br i1 %good, label %next, label %failed
failed:
  ret i32 %status
done:
  ret i32 0
}"""


def told(subject: Subject, others: Mapping[int, str]) -> str:
    """Return the function that says what a number means: a place in one text, so that no table needs relocating."""
    texts = {0: "no error", **subject.meanings, **others}
    unknown = "unknown number"
    blob, places = b"", {}
    for number, text in (*texts.items(), (None, unknown)):
        places[number] = len(blob)
        blob += text.encode("ascii", "backslashreplace") + b"\0"
    escaped = "".join(f"\\{byte:02X}" for byte in blob)
    lines = EntryLines()
    place = str(places[None])
    for number in texts:
        same = lines.new(f"icmp eq i32 %number, {number}")
        place = lines.new(f"select i1 {same}, i64 {places[number]}, i64 {place}")
    found = lines.new(f"getelementptr i8, ptr @{subject.name}_texts, i64 {place}")
    body = "\n".join((*lines.text, f"  ret ptr {found}"))
    return (
        f'@{subject.name}_texts = private unnamed_addr constant [{len(blob)} x i8] c"{escaped}"\n'
        f"define ptr @{subject.name}_error(i32 %number) #0 {{\nentry:\n{body}\n}}"
    )
