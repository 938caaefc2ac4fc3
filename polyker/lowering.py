"""The kernel of a schedule, proven legal first; with loops on several threads where that is worth it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from polyker.codegen.ir.walk import is_parallel
from polyker.codegen.ir.work import exceeds
from polyker.codegen.lowering.lower import Lowered, lower
from polyker.codegen.passes.parallel_profitability import LEAST, settle
from polyker.errors import CompileError, LegalityError
from polyker.errors.schedules import GATHERED
from polyker.ir.expr import Literal
from polyker.ir.layout import Layout
from polyker.ir.typed import TypedProgram
from polyker.poly.isl import isl_job
from polyker.poly.scop import build_scop
from polyker.schedule.legality.prove import prove
from polyker.schedule.threads.parallel import PRIVATE, parallel_schedule
from polyker.schedule.tree.nodes import Schedule

# isl operations that the search for parallel loops may take, and the blocks of rows with the schedule of their program.
QUOTA = 4_000_000
# The part of one thread's time from which on blocks of rows are looked for: half as much again as two threads would take.
MUCH = 0.75
# How much more of it they may take than strips of loops further in, whose pieces of memory are short.
SLACK = 0.1
# Blocks of rows for each thread.
BLOCKS = 2

# A program, its schedule, and their kernel.
Found = tuple[TypedProgram, Schedule, Lowered]


def proven_kernel(
    program: TypedProgram, schedule: Schedule, layouts: tuple[Layout, ...]
) -> tuple[TypedProgram, Schedule, Lowered]:
    """Return the kernel of a schedule that is proven legal; raises LegalityError where it is not."""
    scop = build_scop(program)
    prove(scop, schedule)
    return program, schedule, lower(scop, schedule, layouts, GATHERED)


def on_threads(
    program: TypedProgram,
    schedule: Schedule,
    layouts: tuple[Layout, ...],
    threads: int,
    most: int | None,
    quota: int | None = None,
    again: Callable[[int], tuple[TypedProgram, Schedule] | None] | None = None,
) -> Found:
    """Return the kernel of a schedule with loops that run on several threads; where that is not worth it of the schedule itself.

    `most`: bytes that temporaries may take, of all threads together. `quota`: isl's operations for the schedule itself. `again`:
    gives the program by so many blocks of rows with its schedule, if it can be cut so.
    """
    shared = _shared(program, schedule, layouts, threads, most) if threads > 1 else None
    if again is not None and threads > 1 and (shared is None or shared.share > MUCH or shared.cuts):
        with isl_job("threads", QUOTA):
            blocked = again(BLOCKS * threads)
        other = _shared(*blocked, layouts, threads, most) if blocked is not None else None
        if other is not None and (shared is None or other.share < shared.share + SLACK):
            shared = other
    if shared is not None:
        return shared.kernel
    with isl_job("schedule", quota):
        return proven_kernel(program, schedule, layouts)


@dataclass(frozen=True)
class _Shared:
    """A kernel with loops on threads, the part of one thread's time that it is thought to take, and whether loops were cut."""

    kernel: Found
    share: float
    cuts: bool


def _shared(
    program: TypedProgram, schedule: Schedule, layouts: tuple[Layout, ...], threads: int, most: int | None
) -> _Shared | None:
    """Return the kernel with loops on threads, None where there are none, or they are too short, or take too much memory."""
    try:
        with isl_job("threads", QUOTA):
            found = parallel_schedule(build_scop(program), schedule, threads, PRIVATE if most is None else most // 2)
            if found.schedule == schedule:
                return None
            _, _, lowered = kernel = proven_kernel(program, found.schedule, layouts)
    except (LegalityError, CompileError) as error:
        logging.getLogger("polyker").info("one thread runs the kernel: %s", error.message, extra={"reason": error})
        return None
    fits = most is None or temporary_bytes(lowered) <= most
    is_long = exceeds(lowered.kernel.body, {}, LEAST) and is_parallel(settle(lowered.kernel))
    return _Shared(kernel, found.share, found.cuts) if fits and is_long else None


def temporary_bytes(lowered: Lowered) -> int:
    """Return the bytes of the temporaries of constant shape, as if none shared its memory with another."""
    shapes = ((t, [e for e in t.shape if isinstance(e, Literal)]) for t in lowered.scratch)
    known = ((t, fixed) for t, fixed in shapes if len(fixed) == len(t.shape))
    return sum(prod(int(e.value.real) for e in fixed) * t.dtype.itemsize for t, fixed in known)
