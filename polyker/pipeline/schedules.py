"""From a program to the kernel of a proven schedule: alternatives in order of ambition, until one is legal."""

from __future__ import annotations

import logging
from functools import partial

from polyker.codegen.argument_layout import argument_names
from polyker.errors import CompileError, LegalityError
from polyker.ir.decision import Decision
from polyker.ir.layout import Layout
from polyker.ir.typed import TypedProgram
from polyker.machine.model import Target
from polyker.pipeline import program as programs
from polyker.pipeline.driver import Run
from polyker.pipeline.passes import At, Ordered, Pass, PassLevel, ProgramPass, SchedulePass
from polyker.pipeline.threads import Found, on_threads, proven_kernel
from polyker.poly.isl import isl_job
from polyker.rewrite.normalise.argument_order import dense_orders
from polyker.rewrite.time.row_blocks import row_blocks
from polyker.schedule.auto import auto_schedule
from polyker.schedule.nests.text_order import default_schedule
from polyker.schedule.tree.nodes import Leaf, ScheduleTree, promoted_tensors
from polyker.structs import replace

# isl operations that the automatic schedule may take, from choosing it to its loops: a second or so. What is not done by then
# is compiled in the order of the text, which isl turns into loops quickly.
SCHEDULE_ISL_OPERATIONS = 4_000_000
# isl operations that a schedule which a user gave may take: it has none to fall back on.
GIVEN_SCHEDULE_ISL_OPERATIONS = 16_000_000


def _auto(*, plain: bool = False, fuse: bool = True) -> SchedulePass:
    """Return the pass that makes the automatic schedule; arguments as of `auto_schedule`."""

    def run(unit: Ordered, at: At) -> Ordered:
        return Ordered(*auto_schedule(unit.program, at.target, at.layout, plain=plain, fuse=fuse))

    why = "nests, register tiles and common loops are chosen for the program as the rewrites left it"
    return Pass("auto_schedule", run, PassLevel.SCHEDULE, ("collapse_dims",), why, machine=True)


def automatic(flat: TypedProgram, run: Run, *, plain: bool = False, fuse: bool = True) -> Ordered:
    """Return the automatic schedule of a program that is rewritten, and what it orders; arguments as of `auto_schedule`.

    Statements that may share loops are first rewritten for that; what only common loops make worth its memory is tried, and kept
    where these hold it in buffers.
    """
    if plain or not fuse:
        return run.one(_auto(plain=plain, fuse=fuse), unordered(flat))
    flat = run.passes(programs.TIME, flat)
    for one in programs.FOR_COMMON_LOOPS:
        with run.trying(one.name) as give_up:
            changed, kept = _tried(one, flat, run)
            if not kept:
                continue
            made = run.one(_auto(), unordered(changed))
            if kept <= promoted_tensors(made.schedule.tree):
                return made
            give_up()
    return run.one(_auto(), unordered(flat))


def _tried(one: ProgramPass, flat: TypedProgram, run: Run) -> tuple[TypedProgram, frozenset[str]]:
    """Return what a pass makes of a program, and the temporaries that buffers have to hold parts of for it to pay."""
    known = set(run.at.held)
    changed = run.one(one, flat)
    kept = frozenset(run.at.held) if changed is not flat else frozenset[str]()
    run.at.held.clear()
    run.at.held.update(known)
    return changed, kept


def unordered(program: TypedProgram) -> Ordered:
    """Return a program whose schedule is yet to be made."""
    return Ordered(program, ScheduleTree(Leaf()))


def in_text_order(program: TypedProgram) -> Ordered:
    """Return a program in the order of its text."""
    return Ordered(program, default_schedule(program))


def place(program: TypedProgram, layouts: tuple[Layout, ...], target: Target) -> At:
    """Return what passes may ask of a program that is called with arguments of some layouts."""
    names = argument_names(program)
    return At(target, layouts, dict(zip(names, dense_orders(layouts), strict=True)))


def scheduled(typed: TypedProgram, run: Run, *, merge: bool = True) -> Found:
    """Return the kernel of the automatic schedule for a processor, large temporaries only where a part of each is enough.

    `merge`: indices need not keep loops of their own.
    """
    with isl_job("rewrite"):
        first = run.passes(programs.FIRST, typed)
    given = run.at
    for large in (True, False):
        run.at = replace(given, large=large)
        with run.trying("" if large else "no large temporaries") as give_up:
            with isl_job("rewrite"):
                flat = run.passes((p for p in programs.CPU if merge or p.keeps_loops), first)
            result = lowered_kernel(flat, run)
            if not run.at.held & {t.name for t in result[2].scratch}:
                return result
            give_up()
    return result


def lowered_kernel(flat: TypedProgram, run: Run) -> Found:
    """Return the kernel of the automatic schedule; of plainer ones where isl finds that illegal or too hard.

    The second gives each statement a nest of its own, the third has accumulators alone; the last is the order of the text,
    each instance by itself.
    """
    tried = []
    for plain, fuse, name in (
        (False, True, ""),
        (False, False, "each its own nest"),
        (True, False, "accumulators alone"),
    ):
        with run.trying(name or run.alternative) as give_up:
            try:
                with isl_job("schedule", SCHEDULE_ISL_OPERATIONS):
                    made = automatic(flat, run, plain=plain, fuse=fuse)
                    if made.schedule in tried:
                        continue
                    tried.append(made.schedule)
                    made = noted(made, run)
                    if run.at.threads < 2:
                        return proven_kernel(made, run)
                again = partial(_by_rows, flat, run) if fuse else None
                return on_threads(made, run, SCHEDULE_ISL_OPERATIONS, again)
            except (LegalityError, CompileError) as error:
                logging.getLogger("polyker").info(
                    "a plainer schedule is taken: %s", error.message, extra={"reason": error}
                )
                give_up()
                run.decisions.append(Decision("", refused=f"a plainer schedule is taken: {error.message}"))
    return on_threads(noted(in_text_order(flat), run), run)


def noted(made: Ordered, run: Run) -> Ordered:
    """Return a schedule with the decisions of the passes before it in front of its own, each once."""
    own = tuple(replace(d, made_by=d.made_by or "auto_schedule") for d in made.schedule.notes)
    return replace(made, schedule=replace(made.schedule, notes=tuple(dict.fromkeys((*run.decisions, *own)))))


def _by_rows(flat: TypedProgram, run: Run, blocks: int) -> Ordered | None:
    """Return the program by blocks of rows, with its automatic schedule; None where it is not cut so."""
    found = row_blocks(flat, blocks)
    if found is None:
        return None
    made = automatic(found, run)
    chosen = Decision(
        "", f"{blocks} blocks of rows, which compute again what they read of each other's", made_by="row_blocks"
    )
    return noted(replace(made, schedule=replace(made.schedule, notes=(chosen, *made.schedule.notes))), run)
