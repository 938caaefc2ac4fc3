"""Statements of the Kernel IR as LLVM IR: buffers, branches and guards; loops as a table says that is handed in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from msgspec import Struct

from polyker.codegen.ir.facts import Facts
from polyker.codegen.ir.kernel import (
    Allocate,
    Buffer,
    Const,
    For,
    Guard,
    If,
    KernelIR,
    KExpr,
    Let,
    LoopKind,
    Op,
    Prefetch,
    Stmt,
    StmtBlock,
    Store,
)
from polyker.codegen.ir.polynomial import Poly, is_index, polynomial
from polyker.codegen.llvm.access import memory
from polyker.codegen.llvm.access.memory import ActiveLanes, BufferPointer
from polyker.codegen.llvm.access.realign import realigned
from polyker.codegen.llvm.access.strided import interleaved
from polyker.codegen.llvm.convert import ElementValue
from polyker.codegen.llvm.expressions import LlvmExpressions
from polyker.codegen.llvm.fold import number
from polyker.codegen.llvm.operations import logical_not
from polyker.codegen.llvm.stack import StackBuffers
from polyker.codegen.llvm.store import one_result, prefetch, store, store_last, store_together
from polyker.codegen.llvm.text import Line, Reg, Region, const
from polyker.codegen.passes.simplify import InCopies
from polyker.ir.dtypes import i64
from polyker.machine.model import Target

# Bytes of a cache line: buffers are aligned to it, and filled with zeros by so many.
_LINE_BYTES = 64


class Loops(Struct, frozen=True):
    """What emits the loops of one kernel.

    `kinds`: by kind; `around`: called before each serial loop, for what is kept from iteration to iteration: return what is
    to be called after it, if anything.
    """

    kinds: Mapping[LoopKind, Callable[[Statements, For], None]]
    around: tuple[Callable[[Statements, For], Callable[[], None] | None], ...]


class Statements:
    """Emits the statements of one kernel through a builder and the expressions `e`, which know its buffers and integers.

    `failures`: the label of each status that a Guard may end the function with; `streams`: whether stores of it went past the
    caches, `streamed_anywhere`: stores of any function; `streamed`: the metadata of such stores. `functions`: the texts of the
    bodies of PARALLEL loops. `symbol`: what the names of its functions begin with; `scopes`: the number of the metadata of its
    first buffer.
    """

    def __init__(
        self, kernel: KernelIR, target: Target, e: LlvmExpressions, loops: Loops, symbol: str, scopes: int
    ) -> None:
        self.target, self.loops = target, loops
        self.b, self.e = e.b, e
        self.in_copies = InCopies()
        self.stack = StackBuffers(kernel, self.in_copies)
        self.facts = Facts(e.poly)
        self.failures: dict[int, str] = {}
        self.streams = self.streamed_anywhere = False
        self.functions: list[str] = []
        # What marks streamed stores comes after the metadata of the buffers.
        self.symbol, self.scopes, self.marks_streams = symbol, scopes, scopes + 3 * len(kernel.buffers)
        self.streamed = f", !nontemporal !{self.marks_streams}"
        self.at: dict[str, KExpr] = {}  # what the variables of UNROLL loops are in the copy that is emitted
        self.kernel = kernel
        self.spares = ""
        e.spare = self._spare

    def arguments(self) -> None:
        """Emit the loads of the kernel's integers and pointers, at the start of a function."""
        b, e = self.b, self.e
        for k, name in enumerate(self.kernel.integers):
            address = f"getelementptr i64, ptr %integers, i64 {k}"
            at = b.pure(address, "ptr", 1, ())
            e.values[name] = ElementValue(
                i64, b.load(f"load i64, {at.typed}, align 8, !invariant.load !0", "i64", 1, (at,))
            )
        for k, buffer in enumerate(self.kernel.buffers):
            at = b.pure(f"getelementptr ptr, ptr %pointers, i64 {k}", "ptr", 1, ())
            pointer = b.load(f"load ptr, {at.typed}, align 8, !invariant.load !0", "ptr", 1, (at,))
            metadata = f", !alias.scope !{self.scopes + 3 * k + 1}, !noalias !{self.scopes + 3 * k + 2}"
            element = memory.element_type(buffer.dtype)
            e.places[buffer.name] = BufferPointer(
                buffer, pointer, element, buffer.dtype.itemsize, not buffer.writable,
                ", !invariant.load !0" + metadata if not buffer.writable else metadata,
            )  # fmt: skip
            e.strides[buffer.name] = tuple(polynomial(s) for s in buffer.strides)

    def function_body(self) -> list[str]:
        """Return the lines of the function that was emitted, after its first label."""
        b = self.b
        # Streamed stores are ordered with no others: who waits for this function may tell another thread that they are there.
        fence: list[str] = []
        if self.streams and self.target.triple.startswith("x86_64"):
            fence = ["  call void @llvm.x86.sse.sfence()"]
            b.declare("llvm.x86.sse.sfence", "declare void @llvm.x86.sse.sfence()")
        body: list[Line] = [
            *b.allocas,
            *self._clears(),
            "  br label %body",
            "body:",
            *b.top.lines,
            *fence,
            "  ret i64 0",
        ]
        for code, label in self.failures.items():
            body += [f"{label}:", *fence, f"  ret i64 {code}"]
        # What comes from memory, and goes there, waits for that and for nothing else.
        realigns = self.target.double_pumped and not self.streams
        return realigned(body, self.target.vector_registers) if realigns else list(map(str, body))

    def _clears(self) -> Iterator[str]:
        """Yield the lines that fill buffers with zeros, once: what they have behind the ends of rows stays as it is."""
        before = "entry"
        for k, (name, lines) in enumerate(self.b.clears.items()):
            yield f"  br label %clear{k}"
            yield f"clear{k}:"
            yield f"  %line{k} = phi i64 [ 0, %{before} ], [ %next{k}, %clear{k} ]"
            yield f"  %place{k} = getelementptr <{_LINE_BYTES} x i8>, ptr {name}, i64 %line{k}"
            yield f"  store <{_LINE_BYTES} x i8> zeroinitializer, ptr %place{k}, align {_LINE_BYTES}"
            yield f"  %next{k} = add nuw i64 %line{k}, 1"
            yield f"  %more{k} = icmp ult i64 %next{k}, {lines}"
            yield f"  br i1 %more{k}, label %clear{k}, label %cleared{k}"
            yield f"cleared{k}:"
            before = f"cleared{k}"

    def _spare(self) -> Reg:
        """Return the place that scalar accesses which must not happen are sent to."""
        if not self.spares:
            self.spares = self.b.name()
            self.b.allocas.append(f"  {self.spares} = alloca [16 x i8], align 16")
        return Reg(self.spares, "ptr", 1, 0)

    def block(self, block: StmtBlock) -> None:
        """Emit a block; what it binds is forgotten after it."""
        if self.e.streamed and self.e.rows_past is None and one_result(block):
            store_last(self.e, block, self.block)
            return
        values, affine = self.e.values, self.e.affine
        self.e.values, self.e.affine = dict(values), dict(affine)
        done = 0
        while done < len(block):
            together = interleaved(self.e, block[done:], masked=self.target.masked) if self.e.lanes.count > 1 else []
            if together:
                store_together(self.e, together)
            else:
                self.statement(block[done])
            done += max(1, len(together))
        self.e.values, self.e.affine = values, affine

    def statement(self, stmt: Stmt) -> None:
        """Emit a statement."""
        match stmt:
            case Store():
                store(self.e, stmt)
            case Prefetch():
                prefetch(self.e, stmt)
            case Let(name=name, value=value):
                self._let(name, value)
            case Guard(condition=condition, code=code):
                self._guard(condition, code)
            case If():
                self._if(stmt)
            case For():
                self.loops.kinds[stmt.kind](self, stmt)
            case Allocate():
                self._scope(stmt)

    def _scope(self, stmt: Allocate) -> None:
        for buffer in stmt.buffers:
            self._allocate(buffer)
        self.block(stmt.body)
        for buffer in stmt.buffers:
            del self.e.places[buffer.name], self.e.strides[buffer.name]

    def _let(self, name: str, value: KExpr) -> None:
        self.e.affine.pop(name, None)
        if is_index(value) and value.dtype == i64:
            self.e.affine[name] = self.e.poly(value)
        else:
            self.e.values[name] = self.e.value(value)

    def _allocate(self, buffer: Buffer) -> None:
        b, layout = self.b, self.stack.layout(buffer)
        name = b.name()
        element = memory.element_type(buffer.dtype)
        parts = 2 if buffer.dtype.is_complex else 1
        elements = layout.elements * parts
        if layout.padded:
            whole = _LINE_BYTES // buffer.dtype.real.itemsize
            elements = -(-elements // whole) * whole
            b.clears[name] = elements // whole
        b.allocas.append(f"  {name} = alloca [{elements} x {element}], align {_LINE_BYTES}")
        # Registers hold real and imaginary parts apart: accumulators are not sorted anew each step.
        plane = layout.elements if parts > 1 and layout.placed else 0
        place = BufferPointer(
            buffer, Reg(name, "ptr", 1, 0), element, buffer.dtype.itemsize, False, "", layout.reassociating, plane
        )
        self.e.places[buffer.name] = place
        self.e.strides[buffer.name] = layout.strides
        self.e.offsets.forget()
        if layout.clear:
            # Without it what a masked store or a cut tile leaves would be carried along in registers to the next iteration.
            lanes = layout.lanes
            for k in range(0, layout.elements * parts, lanes):
                kind = element if lanes == 1 else f"<{lanes} x {element}>"
                at = b.element(element, place.pointer, const(k, "i64"))
                b.line(f"  store {kind} {layout.clear}, {at.typed}, align {buffer.dtype.real.itemsize}")

    def _failure(self, code: int) -> str:
        if code not in self.failures:
            self.failures[code] = self.b.label()
        return self.failures[code]

    def _guard(self, condition: KExpr, code: int) -> None:
        b, lanes = self.b, self.e.lanes
        holds = self._within(condition)
        if holds.lanes > 1:
            wrong = logical_not(b, holds)
            holds = logical_not(b, b.any(wrong if lanes.mask is None else b.binary("and", wrong, lanes.mask)))
        elif lanes.some is not None:
            holds = b.binary("or", holds, logical_not(b, lanes.some))
        if number(holds.text, "i1") == 1:
            return
        after = b.label()
        b.line(f"  br {holds.typed}, label %{after}, label %{self._failure(code)}")
        b.start_block(after)
        for region in b.regions:
            region.blocked = True

    def _within(self, condition: KExpr) -> Reg:
        """Return whether a condition holds; of an index within an extent, which is not negative, by one comparison."""
        match condition:
            case Op(op="and", args=(Op(op="ge", args=(x, Const(value=0))), Op(op="lt", args=(y, extent)))) if (
                x == y and x.dtype == i64
            ):
                return self.b.compare("icmp ult", self.e.value(x).re, self.e.value(extent).re)
        return self.e.value(condition).re

    def _if(self, stmt: If) -> None:
        condition = self.e.value(stmt.condition).re
        if (known := number(condition.text, "i1")) is not None:
            self.block(stmt.body if known else stmt.orelse)
        elif condition.lanes == 1:
            self.branch(condition, stmt.body, stmt.orelse, stmt.condition)
        else:
            self._masked(condition, stmt.body)
            if stmt.orelse:
                self._masked(logical_not(self.b, condition), stmt.orelse)

    def _masked(self, condition: Reg, body: StmtBlock) -> None:
        b, lanes = self.b, self.e.lanes
        mask = condition if lanes.mask is None else b.binary("and", lanes.mask, condition)
        self.e.lanes = ActiveLanes(lanes.count, mask, b.any(mask))
        self.block(body)
        self.e.lanes = lanes

    def branch(self, condition: Reg, body: StmtBlock, orelse: StmtBlock, known: KExpr | None = None) -> None:
        """Emit one block or the other; `known`: what holds in the first."""

        def first() -> None:
            mark = self.facts.mark()
            if known is not None:
                self.facts.holds(known)
            self.block(body)
            self.facts.forget(mark)

        self.either(condition, first, (lambda: self.block(orelse)) if orelse else None)

    def either(self, condition: Reg, yes: Callable[[], None], no: Callable[[], None] | None = None) -> None:
        """Emit a branch: what `yes` emits where a condition holds, what `no` does elsewhere."""
        b = self.b
        branches = [(b.label(), emit) for emit in (yes, no) if emit is not None]
        end = b.label()
        texts: list[list[Line]] = []
        before = b.block
        for label, emit in branches:
            b.regions.append(Region("branch", written=b.top.written))
            b.block = label
            emit()
            texts.append([f"{label}:", *b.regions.pop().lines, f"  br label %{end}"])
        b.block = before
        b.line(f"  br {condition.typed}, label %{branches[0][0]}, label %{branches[1][0] if no else end}")
        for text in texts:
            b.top.lines.extend(text)
        b.start_block(end)

    def bound_block(self, name: str, value: Poly, body: StmtBlock) -> None:
        """Emit a block in which the index `name` is `value`."""
        e = self.e
        values, affine = e.values, e.affine
        e.values, e.affine = dict(values), {**affine, name: value}
        self.block(body)
        e.values, e.affine = values, affine

    def past(self, emit: Callable[[], None]) -> None:
        """Emit what stores whole vectors by streaming stores."""
        self.e.streamed = self.streamed
        emit()
        self.e.streamed = ""
