"""What a compile yields: everything the run time needs to call the kernel, and a bug report needs to explain it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Protocol

from polyker.codegen.ir.kernel import KernelIR
from polyker.errors.base import Span
from polyker.ir.decision import PassRun
from polyker.ir.layout import Layout
from polyker.ir.typed import TypedProgram, TypedTensor
from polyker.schedule.tree.nodes import ScheduleTree


class Code(Protocol):
    """Loaded machine code; holds on to the memory that `address` points into."""

    address: int

    def assembly(self) -> str:
        """Return the assembly text."""
        ...


class Runtime(IntEnum):
    """Words of the struct that the kernel finds the run time's functions in (`pk_rt`)."""

    ABI = 0
    ALLOC = 1
    FREE = 2
    PARALLEL_FOR = 3
    USER = 4


# Statuses of a kernel whose host's parallel_for broke its contract; those of guards are small numbers.
# HOST_RAN: with them calls that were none of the region's << 32, participants that had left << 16, participants.
# HOST_RETURNED: with it 32 bits that the host returned, where all participants ran.
HOST_RAN, HOST_RETURNED = 1 << 62, 1 << 61


@dataclass(frozen=True, slots=True)
class HostStatus:
    """What a kernel's status says of a host's parallel_for: what it returned, or who had left, of whom, and calls beyond."""

    returned: int | None
    left: int = 0
    participants: int = 0
    more: int = 0


def host_status(status: int) -> HostStatus | None:
    """Return what a status says of a host's parallel_for, None where it is a guard's."""
    if status & HOST_RAN:
        return HostStatus(None, status >> 16 & 0xFFFF, status & 0xFFFF, (status & ~HOST_RAN) >> 32)
    if status & HOST_RETURNED:
        low = status & 0xFFFF_FFFF
        return HostStatus(low - (1 << 32) if low >> 31 else low)
    return None


@dataclass(frozen=True, slots=True)
class Integer:
    """One i64 argument: the size `name` where `dimension` is None, else the stride (in elements) of tensor `name`."""

    name: str
    dimension: int | None = None


@dataclass(frozen=True, slots=True)
class GuardInfo:
    """What a non-zero status of the kernel means: a row of the error catalogue, with its values."""

    code: str
    values: tuple[tuple[str, str], ...] = ()
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Artifact:
    """A compiled kernel for one typed program and one layout an argument.

    `arguments`: the typed names of the tensors whose data pointers are passed first, inputs before outputs; an in-out tensor
    stands once, among the outputs (the run time copies the argument's values into the output before the call).
    `scratch`: temporaries whose memory the run time lends (64-byte aligned, dense), passed after the arguments.
    `layouts`: one an argument. `integers`: the i64 arguments; after them goes the address of the run time's functions where
    a loop is PARALLEL. `guards`: status -> meaning.
    `stages`: the printed form of each stage so far (program, isl, schedule, loops, llvm). `scheduled`: the program with all
    that its schedule added to it, and the schedule. `loops`: the kernel before its loops were unrolled. `steps`: the
    passes that ran, with what each took.
    """

    typed: TypedProgram
    layouts: tuple[Layout, ...]
    kernel: KernelIR
    arguments: tuple[str, ...]
    scratch: tuple[TypedTensor, ...]
    integers: tuple[Integer, ...]
    guards: Mapping[int, GuardInfo]
    stages: Mapping[str, str]
    code: Code
    scheduled: tuple[TypedProgram, ScheduleTree] | None = field(default=None, compare=False, repr=False)
    loops: KernelIR | None = field(default=None, compare=False, repr=False)
    steps: tuple[PassRun, ...] = field(default=(), compare=False, repr=False)

    @property
    def products(self) -> tuple[tuple[str, tuple[str, str]], ...]:
        """The integers that are products of two sizes, in the order in which they are to be computed."""
        return self.scheduled[0].products if self.scheduled is not None else ()
