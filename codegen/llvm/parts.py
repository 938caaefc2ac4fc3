"""The entry of a kernel of parts: it calls these one after another, with pointers and integers from its own.

A part is a function of the same form as the kernel, emitted once. All calls use the same arrays in turn.
"""

from __future__ import annotations

from itertools import count

from polyker.codegen.ir.kernel import Const, KernelIR, KExpr, Op, PartCall, Var
from polyker.codegen.ir.walk import is_parallel
from polyker.errors.base import InternalError
from polyker.record.status import HOST_RETURNED

_OPERATIONS = {"add": "add", "mul": "mul", "sub": "sub"}


def part_symbol(number: int) -> str:
    """Return what the names of a part's functions begin with."""
    return f"part{number}."


def calling_body(kernel: KernelIR) -> list[str]:
    """Return the lines of the function of a kernel of parts, after its first label."""
    lines = [
        f"  %part.pointers = alloca [{max(len(p.buffers) for p in kernel.parts) + 1} x ptr], align 8",
        f"  %part.integers = alloca [{max(len(p.integers) for p in kernel.parts) + 1} x i64], align 8",
    ]
    entry = _Entry(kernel)
    for stmt in kernel.body:
        if not isinstance(stmt, PartCall):
            raise InternalError(f"a kernel of parts runs nothing else: {stmt}")
        entry.call(stmt)
    return [*lines, *entry.lines, "  ret i64 0"]


class _Entry:
    def __init__(self, kernel: KernelIR) -> None:
        self.kernel = kernel
        self.lines: list[str] = []
        self.places = {b.name: k for k, b in enumerate(kernel.buffers)}
        self.numbers = {name: k for k, name in enumerate(kernel.integers)}
        self.fresh = count()

    def call(self, call: PartCall) -> None:
        """Emit a call, and the return where it fails."""
        part = self.kernel.parts[call.part]
        for k, name in enumerate(call.buffers):
            self._store("ptr", self._given("ptr", "%pointers", self.places[name]), "%part.pointers", k)
        integers = [self._value(value) for value in call.integers]
        if is_parallel(part):
            integers.append(self._given("i64", "%integers", len(self.kernel.integers)))
        for k, value in enumerate(integers):
            self._store("i64", value, "%part.integers", k)
        status = self._new(f"call i64 @{part_symbol(call.part)}kernel(ptr %part.pointers, ptr %part.integers)")
        well = self._new(f"icmp eq i64 {status}, 0")
        number = next(self.fresh)
        self.lines += [f"  br i1 {well}, label %after{number}, label %failed{number}", f"failed{number}:"]
        if call.codes:
            # What is no code of a guard says what a host's parallel_for did.
            guard = self._new(f"icmp ult i64 {status}, {HOST_RETURNED}")
            more = self._new(f"select i1 {guard}, i64 {call.codes}, i64 0")
            status = self._new(f"add i64 {status}, {more}")
        self.lines += [f"  ret i64 {status}", f"after{number}:"]

    def _value(self, value: KExpr) -> str:
        match value:
            case Const(value=number):
                return str(int(number.real))
            case Var(name=name):
                return self._given("i64", "%integers", self.numbers[name])
            case Op(op=op, args=(first, *rest)) if op in _OPERATIONS:
                found = self._value(first)
                for other in rest:
                    found = self._new(f"{_OPERATIONS[op]} i64 {found}, {self._value(other)}")
                return found
        raise InternalError(f"no integer of a part: {value}")

    def _given(self, kind: str, array: str, place: int) -> str:
        return self._new(f"load {kind}, ptr {self._at(kind, array, place)}, align {4 if kind == 'ptr' else 8}")

    def _store(self, kind: str, value: str, array: str, place: int) -> None:
        self.lines.append(
            f"  store {kind} {value}, ptr {self._at(kind, array, place)}, align {4 if kind == 'ptr' else 8}"
        )

    def _at(self, kind: str, array: str, place: int) -> str:
        return self._new(f"getelementptr {kind}, ptr {array}, i64 {place}")

    def _new(self, text: str) -> str:
        name = f"%x{next(self.fresh)}"
        self.lines.append(f"  {name} = {text}")
        return name
