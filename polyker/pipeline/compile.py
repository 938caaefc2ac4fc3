"""The way from a typed program to machine code, level by level; the passes of each level are in the files beside this one.

    text    -> einsum_frontend.parse   -> Program          names, ranks, spans
    Program -> poly.binding.bind       -> TypedProgram     element types, sizes, exact domains
            -> pipeline.program        -> TypedProgram     rewrites
            -> pipeline.schedules      -> Ordered          the automatic schedule
            -> schedule.legality.prove                     every dependence is kept, proven on every compile
            -> pipeline.threads        -> Ordered          loops that run on several threads, proven too
            -> codegen.lowering.lower  -> Kernel           isl's loops, promoted buffers, guards
            -> pipeline.kernel         -> Kernel           passes over the loops
            -> codegen.llvm.emit       -> LLVM IR          or codegen.cuda.text -> CUDA C
            -> codegen.llvm.jit.build  -> Artifact         machine code in memory

Each level prints (`Artifact.stages`, `kernel.source(stage)`, `kernel.source("after:NAME")` of a pass) and is verified: after
every pass under POLYKER_VERIFY=1, once a level otherwise.
"""

from __future__ import annotations

from polyker.codegen.argument_layout import argument_names
from polyker.codegen.artifact import Artifact
from polyker.codegen.llvm.emit import emit
from polyker.codegen.llvm.jit.build import build
from polyker.ir.layout import DENSE, Layout
from polyker.ir.typed import TypedProgram
from polyker.machine.model import Target
from polyker.options import Options
from polyker.pipeline import program as programs
from polyker.pipeline.named import NamedStages
from polyker.pipeline.parts import compile_parts
from polyker.pipeline.schedules import automatic, in_text_order, scheduled
from polyker.pipeline.single import single_kernel, started
from polyker.pipeline.threads import Found
from polyker.pipeline.trace import Watch, stages_of
from polyker.poly.isl import isl_job
from polyker.rewrite.normalise.argument_order import orders_of, strided
from polyker.rewrite.parts.groups import groups_of
from polyker.schedule.tree.nodes import ScheduleTree
from polyker.structs import replace


@isl_job("compile")  # what no stage of its own holds: the verifier, and what an ending process tells isl to give up
def compile_typed(
    typed: TypedProgram,
    layouts: tuple[Layout, ...],
    target: Target,
    options: Options,
    given: tuple[TypedProgram, ScheduleTree] | None = None,
    watch: Watch | None = None,
) -> Artifact:
    """Return the compiled kernel of a typed program; `layouts` are one an argument (see polyker.codegen.artifact).

    `given`: a schedule of the user's, and the program that it orders, instead of the automatic one. `watch`: is called with each
    step of the passes and what it made.
    Raises CompileError, CompileTimeout, InternalError, LegalityError.
    """
    layouts = tuple(map(strided, layouts)) if given else orders_of(typed, argument_names(typed), layouts)
    run = started(typed, layouts, target, options, watch)

    def again(watch: Watch) -> Artifact:
        return compile_typed(typed, layouts, target, options, given, watch)

    if target.gpu is not None:
        from polyker.pipeline.gpu import compile_gpu

        return compile_gpu(typed, run, target.gpu, options, given, again)
    if given is None:
        groups = groups_of(typed, target)
        if len(groups) > 1:
            return compile_parts(typed, groups, layouts, target, options, watch, again)
    made = single_kernel(typed, run, options, given)
    lowered = made.lowered
    text = emit(made.machine, target)
    code = build(text, target)
    ordered = (made.program, made.schedule)
    stages = stages_of(again, target.name, typed, [NamedStages(typed, *ordered)], lowered.kernel, llvm=lambda: text)
    return Artifact(
        typed, layouts, made.kernel, lowered.arguments, lowered.scratch, lowered.integers, lowered.guards, stages, code,
        ordered, lowered.kernel, made.steps,
    )  # fmt: skip


def start_to_edit(
    typed: TypedProgram, target: Target, options: Options, *, auto: bool
) -> tuple[TypedProgram, ScheduleTree]:
    """Return what a user's schedule starts from, and the program that it orders: the automatic schedule of dense arrays, in
    which each index keeps its own loop; or the order of the text, each statement its own nest.

    In the order of the text, too, what is accumulated in a wider type than its tensor's has accumulators.
    """
    run = started(typed, (DENSE,) * len(argument_names(typed)), target, replace(options, threads=1))
    found: Found
    if target.gpu is not None:
        from polyker.pipeline.gpu import scheduled_gpu

        found = scheduled_gpu(typed, run, target.gpu, plain=not auto, merge=False)
        return found[:2]
    if auto:
        found = scheduled(typed, run, merge=False)
        return found[:2]
    with isl_job("schedule"):
        flat = run.passes(programs.TEXT, typed)
        if any(s.op != "set" and s.acc != flat.tensor(s.target).dtype for s in flat.statements()):
            made = automatic(flat, run, plain=True)
        else:
            made = in_text_order(flat)
        return made.program, made.schedule
