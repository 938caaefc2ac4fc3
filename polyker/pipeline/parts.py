"""Compile a large program in parts: each is scheduled and proven by itself, equal ones once, and one kernel calls them in turn.

A compile takes the longer the more statements share a schedule, and most of what a model repeats are layers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from polyker.codegen.argument_layout import argument_names
from polyker.codegen.artifact import Artifact, ScheduledPart
from polyker.codegen.assemble import PartKernel, PartUse, assembled
from polyker.codegen.llvm.emit import emit
from polyker.codegen.llvm.jit.build import build
from polyker.ir.layout import DENSE, Layout
from polyker.ir.typed import TypedNode, TypedProgram
from polyker.machine.model import Target
from polyker.options import Options
from polyker.pipeline.driver import check
from polyker.pipeline.named import NamedStages
from polyker.pipeline.single import SingleKernel, single_kernel, started
from polyker.pipeline.trace import Again, Watch, stages_of
from polyker.poly.isl import isl_job
from polyker.record.records import Failure
from polyker.rewrite.parts.extract import Part, parts_of, relabelled
from polyker.structs import replace


def compile_parts(
    typed: TypedProgram,
    groups: Sequence[Sequence[TypedNode]],
    layouts: tuple[Layout, ...],
    target: Target,
    options: Options,
    watch: Watch | None,
    again: Again,
) -> Artifact:
    """Return the compiled kernel of a program whose statements are in groups; the rest as of compile_typed."""
    with isl_job("rewrite"):
        parts = parts_of(typed, groups)
    given = dict(zip(argument_names(typed), layouts, strict=True))
    numbers: dict[tuple[TypedProgram, tuple[Layout, ...]], int] = {}
    made: list[SingleKernel] = []
    first: list[Part] = []
    uses: list[PartUse] = []
    for part in parts:
        own = tuple(given.get(part.tensors[name], DENSE) for name in argument_names(part.program))
        key = (part.alike, own)
        if key not in numbers:
            numbers[key] = len(made)
            made.append(single_kernel(part.program, started(part.program, own, target, options, watch), options))
            first.append(part)
        number = numbers[key]
        guards = guards_of(made[number].lowered.guards, first[number], part)
        uses.append(PartUse(number, part.tensors, part.sizes, guards))
    kernels = [PartKernel(replace(m.lowered, kernel=m.kernel), m.program.products) for m in made]
    whole = assembled(typed, layouts, kernels, uses)
    kernel = replace(whole.kernel, fastmath=options.fastmath)
    machine = replace(kernel, parts=tuple(m.machine for m in made))
    loops = replace(kernel, parts=tuple(m.lowered.kernel for m in made))
    check(machine, "the last pass over the kernel")
    text = emit(machine, target)
    code = build(text, target)
    calls = Counter(use.number for use in uses)
    scheduled = [(m.program, m.schedule) for m in made]
    shown = [NamedStages(p.program, *ordered) for p, ordered in zip(first, scheduled, strict=True)]
    stages = stages_of(again, target.name, typed, shown, loops, llvm=lambda: text)
    return Artifact(
        typed, layouts, kernel, whole.arguments, whole.scratch, whole.integers, whole.guards, stages, code,
        loops=loops, steps=tuple(step for m in made for step in m.steps),
        parts=tuple(
            ScheduledPart(
                p.program, scheduled[k], replace(m.kernel, name=f"part{k}"), m.lowered.kernel, calls[k], p.sizes
            )
            for k, (p, m) in enumerate(zip(first, made, strict=True))
        ),
    )  # fmt: skip


def guards_of(guards: Mapping[int, Failure], first: Part, part: Part) -> dict[int, Failure]:
    """Return what the guards of a part's kernel, that was compiled for an equal part, mean of this one."""
    if part is first or not guards:
        return dict(guards)
    labels = dict(zip(_labels(first), _labels(part), strict=True))
    spans = dict(zip(first.spans(), part.spans(), strict=True))
    return {
        code: replace(f, values=relabelled(f.values, labels), span=spans.get(f.span, f.span))
        for code, f in guards.items()
    }


def _labels(part: Part) -> list[str]:
    program = part.program
    return [
        *(t.label for t in program.tensors),
        *(label for pairs in (program.sizes, program.labels) for _, label in pairs),
    ]
