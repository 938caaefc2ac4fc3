"""From a typed program to the kernels of a GPU, or of the simulator of one: what is other than for a processor."""

from __future__ import annotations

import logging

from polyker.codegen.artifact import Artifact
from polyker.codegen.cuda.build import CudaCode, ptx
from polyker.codegen.cuda.sim_build import build_sim
from polyker.codegen.cuda.text import cuda_source
from polyker.codegen.ir.meetings import check_meetings
from polyker.codegen.passes.gpu.combine import write_out
from polyker.codegen.passes.gpu.launch import check_shared, launches
from polyker.codegen.passes.gpu.vectors import widen
from polyker.errors import CompileError, LegalityError
from polyker.ir.decision import Decision
from polyker.ir.typed import TypedProgram
from polyker.machine.model import Gpu
from polyker.options import Options
from polyker.pipeline import program as programs
from polyker.pipeline.driver import Run, check
from polyker.pipeline.kernel import SCALAR_REPLACEMENT, SIMPLIFY, UNROLL_ALL, kernel_pass
from polyker.pipeline.named import NamedStages
from polyker.pipeline.passes import At, KernelPass, Ordered, Pass, PassLevel, SchedulePass
from polyker.pipeline.schedules import (
    GIVEN_SCHEDULE_ISL_OPERATIONS,
    SCHEDULE_ISL_OPERATIONS,
    automatic,
    noted,
    unordered,
)
from polyker.pipeline.threads import Found, proven_kernel
from polyker.pipeline.trace import Again, stages_of
from polyker.poly.isl import isl_job
from polyker.poly.scop import build_scop
from polyker.schedule.gpu.auto import gpu_schedule, lanes_unrolled
from polyker.schedule.gpu.barriers import with_barriers
from polyker.schedule.tree.nodes import ScheduleTree
from polyker.structs import replace

# Of a GPU's kernels, where one thread would be a hundred times slower.
GPU_SCHEDULE_ISL_OPERATIONS = 2 * SCHEDULE_ISL_OPERATIONS

LAUNCHES = kernel_pass(
    "launches", lambda k, _: launches(k), ("simplify",), "numbers of blocks are expressions of sizes"
)
COMBINE = kernel_pass(
    "combine", lambda k, _: write_out(k), ("launches",), "how many threads combine is the launch's to say"
)
WIDE_ACCESSES = kernel_pass(
    "wide_accesses", lambda k, _: widen(k), ("combine",), "what threads combine is stored by one of them"
)

KERNEL: tuple[KernelPass, ...] = (UNROLL_ALL, SCALAR_REPLACEMENT, SIMPLIFY, LAUNCHES, COMBINE, WIDE_ACCESSES)


def _gpu(gpu: Gpu) -> SchedulePass:
    def run(unit: Ordered, at: At) -> Ordered:
        return Ordered(*gpu_schedule(unit.program, gpu, at.layout, reassociating=at.reassociating))

    return Pass(
        "gpu_schedule",
        run,
        PassLevel.SCHEDULE,
        ("collapse_dims",),
        "blocks and threads are dealt whole loops",
        machine=True,
    )


BARRIERS: SchedulePass = Pass(
    "barriers",
    lambda unit, _: Ordered(unit.program, with_barriers(build_scop(unit.program), unit.schedule)),
    PassLevel.SCHEDULE,
    ("gpu_schedule",),
    "which threads run what decides where they meet",
)


def scheduled_gpu(typed: TypedProgram, run: Run, gpu: Gpu, *, plain: bool = False, merge: bool = True) -> Found:
    """Return the kernels of the automatic schedule for a GPU; of one thread each where isl finds that illegal or too hard.

    `plain`: of one thread each, in the order of the text. `merge`: as of `scheduled`.
    """
    with isl_job("rewrite"):
        flat = run.passes((p for p in programs.GPU if merge or p.keeps_loops), typed)
    try:
        if not plain:
            with isl_job("schedule", GPU_SCHEDULE_ISL_OPERATIONS):
                made = run.passes((_gpu(gpu), BARRIERS), unordered(flat))
                return proven_kernel(noted(made, run), run)
    except (LegalityError, CompileError) as error:
        logging.getLogger("polyker").info(
            "each statement is run by one thread: %s", error.message, extra={"reason": error}
        )
        run.decisions.append(Decision("", refused=f"each statement is run by one thread: {error.message}"))
    with isl_job("schedule"):
        made = automatic(flat, run, plain=True)
        schedule = replace(made.schedule, notes=tuple(run.decisions))
        return proven_kernel(replace(made, schedule=schedule), run)


def compile_gpu(
    typed: TypedProgram,
    run: Run,
    gpu: Gpu,
    options: Options,
    given: tuple[TypedProgram, ScheduleTree] | None,
    again: Again,
) -> Artifact:
    """Return the kernels of a typed program for a GPU, or for the simulator of one; arguments as of `compile_typed`."""
    target = run.at.target
    if given is None:
        program, schedule, lowered = scheduled_gpu(typed, run, gpu)
    else:
        with isl_job("schedule", GIVEN_SCHEDULE_ISL_OPERATIONS):
            program, schedule = given
            ordered = Ordered(program, replace(schedule, tree=lanes_unrolled(schedule.tree)))
            program, schedule, lowered = proven_kernel(ordered, run)
    check(program, "the last rewrite", typed)
    kernel = replace(run.passes(KERNEL, lowered.kernel), fastmath=options.fastmath)
    check(kernel, "the last pass over the kernel")
    check_meetings(kernel)
    check_shared(kernel, gpu, target.name)
    sizes = frozenset(n for n, _ in program.sizes)
    text = cuda_source(kernel, sizes, {t.name: t.label for t in program.tensors})
    assembly = {} if gpu.simulated else {"ptx": lambda: ptx(text, target)}
    shown = [NamedStages(typed, program, schedule)]
    stages = stages_of(again, target.name, typed, shown, kernel, cuda=lambda: text, **assembly)
    code = build_sim(text) if gpu.simulated else CudaCode(text, target)
    return Artifact(
        typed, run.at.given, kernel, lowered.arguments, lowered.scratch, lowered.integers, lowered.guards, stages, code,
        (program, schedule), steps=tuple(run.steps),
    )  # fmt: skip
