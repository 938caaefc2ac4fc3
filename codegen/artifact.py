"""What a compile yields: everything the run time needs to call the kernel, and a bug report needs to explain it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Protocol

from msgspec import Struct

from polyker.codegen.ir.kernel import KernelIR
from polyker.ir.decision import PassRun
from polyker.ir.layout import Layout
from polyker.ir.typed import TypedProgram, TypedTensor
from polyker.record.records import Failure, Integer
from polyker.schedule.tree.nodes import ScheduleTree
from polyker.structs import PartlyCompared


class Code(Protocol):
    """Loaded machine code; holds on to the memory that `address` points into. `imports`: what it calls of the C library."""

    address: int
    imports: tuple[str, ...]

    def assembly(self) -> str:
        """Return the assembly text."""
        ...


class ScheduledPart(Struct, frozen=True, eq=False):
    """A part of a program that is compiled in parts, by its first use: fields as of an Artifact, and how often it is called.

    `sizes`: the program's names of its sizes, by its own.
    """

    typed: TypedProgram
    scheduled: tuple[TypedProgram, ScheduleTree]
    kernel: KernelIR
    loops: KernelIR
    calls: int
    sizes: Mapping[str, str]


class Artifact(PartlyCompared, frozen=True):
    """A compiled kernel for one typed program and one layout an argument.

    `arguments`: the typed names of the tensors whose data pointers are passed first, inputs before outputs; an in-out tensor
    stands once, among the outputs (the run time copies the argument's values into the output before the call).
    `scratch`: temporaries whose memory the run time lends (64-byte aligned, dense), passed after the arguments.
    `layouts`: one an argument. `integers`: the i64 arguments; after them goes the address of the run time's functions where
    a loop is PARALLEL. `guards`: status -> meaning.
    `stages`: the printed form of each stage so far (program, isl, schedule, loops, llvm). `scheduled`: the program with all
    that its schedule added to it, and the schedule. `loops`: the kernel before its loops were unrolled. `steps`: the
    passes that ran, with what each took. `parts`: in place of `scheduled` those of each part of a kernel
    of parts (see polyker.codegen.assemble).
    """

    UNCOMPARED: ClassVar = frozenset({"scheduled", "loops", "steps", "parts"})

    typed: TypedProgram
    layouts: tuple[Layout, ...]
    kernel: KernelIR
    arguments: tuple[str, ...]
    scratch: tuple[TypedTensor, ...]
    integers: tuple[Integer, ...]
    guards: Mapping[int, Failure]
    stages: Mapping[str, str]
    code: Code
    scheduled: tuple[TypedProgram, ScheduleTree] | None = None
    loops: KernelIR | None = None
    steps: tuple[PassRun, ...] = ()
    parts: tuple[ScheduledPart, ...] = ()

    @property
    def products(self) -> tuple[tuple[str, tuple[str, str]], ...]:
        """The integers that are products of two sizes, in the order in which they are to be computed."""
        return self.scheduled[0].products if self.scheduled is not None else ()
