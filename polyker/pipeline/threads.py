"""The kernel of a schedule, proven legal first; with loops on several threads where that is worth it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from math import prod

from msgspec import Struct

from polyker.codegen.ir.walk import is_parallel
from polyker.codegen.ir.work import exceeds
from polyker.codegen.lowering.lower import Lowered, lower
from polyker.codegen.passes.parallel_profitability import MIN_PARALLEL_OPERATIONS, settle
from polyker.codegen.passes.uniform_inner_loops import uniform_inner_loops
from polyker.errors import CompileError, LegalityError
from polyker.errors.schedules import GATHERED
from polyker.ir.expr import Literal
from polyker.ir.typed import TypedProgram
from polyker.pipeline.driver import Run
from polyker.pipeline.passes import KernelPass, Ordered, Pass, PassLevel
from polyker.poly.isl import isl_job
from polyker.poly.scop import build_scop
from polyker.schedule.legality.prove import prove
from polyker.schedule.threads.parallel import MAX_PRIVATE_BYTES, parallel_schedule
from polyker.schedule.tree.nodes import ScheduleTree
from polyker.structs import replace

# Budget of isl operations for the search for parallel loops, and for row blocks with the schedule of their program: about a
# second.
THREADS_ISL_OPERATIONS = 4_000_000
# Row blocks are tried where the parallel loops take more than this share of one thread's time: 1.5 times what two threads would
# (experience value).
MAX_TIME_SHARE_OF_THREADS = 0.75
# Share of one thread's time by which row blocks may exceed strips of inner loops, whose rows of memory are short (experience
# value).
ROW_BLOCKS_MARGIN = 0.1
# Row blocks for each thread, so that an uneven load evens out (experience value).
ROW_BLOCKS_PER_THREAD = 2

# A program, its schedule, and their kernel.
Found = tuple[TypedProgram, ScheduleTree, Lowered]

UNIFORM_INNER_LOOPS: KernelPass = Pass(
    "uniform_inner_loops",
    lambda kernel, _: uniform_inner_loops(kernel),
    PassLevel.KERNEL,
    why="lanes of a vector loop have one trip count each of the loops inside it",
)


def proven_kernel(made: Ordered, run: Run) -> Found:
    """Return the kernel of a schedule that is proven legal; raises LegalityError where it is not."""
    scop = build_scop(made.program)
    with run.timing("prove", PassLevel.SCHEDULE):
        prove(scop, made.schedule)
    with run.timing("lower", PassLevel.KERNEL):
        lowered = lower(scop, made.schedule, tuple(run.at.layouts.values()), GATHERED)
    kernel = run.one(UNIFORM_INNER_LOOPS, lowered.kernel)
    return made.program, made.schedule, replace(lowered, kernel=kernel)


def on_threads(
    made: Ordered, run: Run, quota: int | None = None, again: Callable[[int], Ordered | None] | None = None
) -> Found:
    """Return the kernel of a schedule with loops that run on several threads; where that is not worth it of the schedule itself.

    `quota`: isl's operations for the schedule itself. `again`: gives the program by so many blocks of rows with its schedule, if
    it can be cut so.
    """
    threads = run.at.threads
    shared = _shared(made, run, "parallel loops") if threads > 1 else None
    if (
        again is not None
        and threads > 1
        and (shared is None or shared.share > MAX_TIME_SHARE_OF_THREADS or shared.cuts)
    ):
        with isl_job("threads", THREADS_ISL_OPERATIONS), run.trying("blocks of rows"):
            blocked = again(ROW_BLOCKS_PER_THREAD * threads)
        other = _shared(blocked, run, "blocks of rows") if blocked is not None else None
        if other is not None and (shared is None or other.share < shared.share + ROW_BLOCKS_MARGIN):
            shared = other
    if shared is not None:
        return shared.kernel
    with isl_job("schedule", quota):
        return proven_kernel(made, run)


class _Shared(Struct, frozen=True):
    """A kernel with loops on threads, the part of one thread's time that it is thought to take, and whether loops were cut."""

    kernel: Found
    share: float
    cuts: bool


def _shared(made: Ordered, run: Run, alternative: str) -> _Shared | None:
    """Return the kernel with loops on threads, None where there are none, or they are too short, or take too much memory."""
    budget = run.at.scratch_bytes
    with run.trying(alternative) as give_up:
        try:
            with isl_job("threads", THREADS_ISL_OPERATIONS):
                with run.timing("parallel_loops", PassLevel.SCHEDULE):
                    private = MAX_PRIVATE_BYTES if budget is None else budget // 2
                    found = parallel_schedule(build_scop(made.program), made.schedule, run.at.threads, private)
                if found.schedule == made.schedule:
                    return None
                _, _, lowered = kernel = proven_kernel(replace(made, schedule=found.schedule), run)
        except (LegalityError, CompileError) as error:
            logging.getLogger("polyker").info("one thread runs the kernel: %s", error.message, extra={"reason": error})
            give_up()
            return None
        fits = budget is None or temporary_bytes(lowered) <= budget
        is_long = exceeds(lowered.kernel.body, {}, MIN_PARALLEL_OPERATIONS) and is_parallel(settle(lowered.kernel))
        if not (fits and is_long):
            give_up()
            return None
        return _Shared(kernel, found.share, found.cuts)


def temporary_bytes(lowered: Lowered) -> int:
    """Return the bytes of the temporaries of constant shape, as if none shared its memory with another."""
    shapes = ((t, [e for e in t.shape if isinstance(e, Literal)]) for t in lowered.scratch)
    known = ((t, fixed) for t, fixed in shapes if len(fixed) == len(t.shape))
    return sum(prod(int(e.value.real) for e in fixed) * t.dtype.itemsize for t, fixed in known)
