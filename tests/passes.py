"""Parts of the compiler's list of passes, for tests of what stands between them."""

from __future__ import annotations

from collections.abc import Callable

from polyker.codegen.argument_layout import argument_names
from polyker.codegen.ir.kernel import KernelIR
from polyker.codegen.llvm import emit as printer
from polyker.codegen.lowering import lower as lowering
from polyker.codegen.lowering.lower import Lowered
from polyker.ir.layout import DENSE, Layout
from polyker.ir.typed import TypedProgram
from polyker.machine.model import Target
from polyker.options import Options
from polyker.pipeline.compile import started
from polyker.pipeline.driver import Run
from polyker.pipeline.kernel import MACHINE
from polyker.pipeline.passes import At
from polyker.pipeline.schedules import automatic as alternatives
from polyker.pipeline.schedules import scheduled as by_passes
from polyker.pipeline.threads import UNIFORM_INNER_LOOPS, Found
from polyker.poly.scop import Scop
from polyker.schedule.tree.nodes import ScheduleTree
from polyker.structs import replace


def emit(kernel: KernelIR, target: Target) -> str:
    """Return the LLVM IR of a kernel after the passes for its machine."""
    return printer.emit(Run(At(target)).passes(MACHINE, kernel), target)


def lower(
    scop: Scop, schedule: ScheduleTree, layouts: tuple[Layout, ...], code: str, target: Target | None = None
) -> Lowered:
    """Return the kernel of a schedule, its inner loops uniform."""
    found = lowering.lower(scop, schedule, layouts, code)
    kernel = UNIFORM_INNER_LOOPS.run(found.kernel, At(target) if target else None)  # type: ignore[arg-type]
    return Lowered(kernel, found.arguments, found.scratch, found.integers, found.guards)


def scheduled(typed: TypedProgram, layouts: tuple[Layout, ...], target: Target, *, merge: bool = True) -> Found:
    """Return the kernel of the automatic schedule on one thread."""
    return by_passes(typed, started(typed, layouts, target, Options(threads=1)), merge=merge)


def automatic(program: TypedProgram, layouts: tuple[Layout, ...], target: Target) -> tuple[TypedProgram, ScheduleTree]:
    """Return the automatic schedule of a program that is rewritten already, and the program that it orders."""
    at = dict(zip(argument_names(program), layouts, strict=True))
    return auto_schedule(program, target, lambda tensor: at.get(tensor, DENSE))


def auto_schedule(
    program: TypedProgram, target: Target, layout: Callable[[str], Layout], *, plain: bool = False, fuse: bool = True
) -> tuple[TypedProgram, ScheduleTree]:
    """Return the automatic schedule of a program that is rewritten already, and the program that it orders."""
    run = Run(At(target, layouts={t.name: layout(t.name) for t in program.tensors}))
    made = alternatives(program, run, plain=plain, fuse=fuse)
    return made.program, replace(made.schedule, notes=(*run.decisions, *made.schedule.notes))
