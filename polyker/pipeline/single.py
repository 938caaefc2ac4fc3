"""The kernel of one schedule for a processor: of a small program, or of a part of a large one."""

from __future__ import annotations

from msgspec import Struct

from polyker.codegen.ir.kernel import KernelIR
from polyker.codegen.lowering.lower import Lowered
from polyker.ir.decision import PassRun
from polyker.ir.layout import Layout
from polyker.ir.typed import TypedProgram
from polyker.machine.model import Target
from polyker.options import Options
from polyker.pipeline import kernel as kernels
from polyker.pipeline.driver import Run, check
from polyker.pipeline.passes import Ordered
from polyker.pipeline.schedules import GIVEN_SCHEDULE_ISL_OPERATIONS, place, scheduled
from polyker.pipeline.threads import proven_kernel
from polyker.pipeline.trace import Watch
from polyker.poly.isl import isl_job
from polyker.schedule.tree.nodes import ScheduleTree
from polyker.structs import replace


class SingleKernel(Struct, frozen=True, eq=False):
    """A program with all that its schedule added to it, and its kernel: as lowered, after the passes, and for the machine."""

    program: TypedProgram
    schedule: ScheduleTree
    lowered: Lowered
    kernel: KernelIR
    machine: KernelIR
    steps: tuple[PassRun, ...]


def single_kernel(
    typed: TypedProgram, run: Run, options: Options, given: tuple[TypedProgram, ScheduleTree] | None = None
) -> SingleKernel:
    """Return the kernel of the automatic schedule, or of a `given` one; raises as a compile does."""
    if given is None:
        program, schedule, lowered = scheduled(typed, run)
    else:
        with isl_job("schedule", GIVEN_SCHEDULE_ISL_OPERATIONS):
            program, schedule, lowered = proven_kernel(Ordered(*given), run)
    check(program, "the last rewrite", typed)
    check(lowered.kernel, "lower")
    kernel = replace(run.passes(kernels.CPU, lowered.kernel), fastmath=options.fastmath)
    machine = run.passes(kernels.MACHINE, kernel)
    check(machine, "the last pass over the kernel")
    return SingleKernel(program, schedule, lowered, kernel, machine, tuple(run.steps))


def started(
    typed: TypedProgram,
    layouts: tuple[Layout, ...],
    target: Target,
    options: Options,
    watch: Watch | None = None,
) -> Run:
    """Return the passes of a compile that is about to begin."""
    at = replace(
        place(typed, layouts, target),
        scratch_bytes=options.scratch_bytes,
        reassociating=may_reassociate(options),
        threads=threads_for(target, options),
    )
    return Run(at, watch)


def may_reassociate(options: Options) -> bool:
    """Whether the user lets sums of floats be rounded otherwise than the text says."""
    return not {"reassoc", "fast"}.isdisjoint(options.fastmath)


def threads_for(target: Target, options: Options) -> int:
    """Return the number of threads of a kernel: one where no run time brings others."""
    return 1 if target.triple.startswith("wasm") else options.thread_count
