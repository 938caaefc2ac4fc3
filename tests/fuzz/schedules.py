"""What the schedule of a kernel did, and random legal steps on it (oracle O3).

`fired` names what a compile used, from the printed schedule and loops, so that the share of cases is known in which
tiling, vector code and so on ran. `check` compiles a case again with random steps on its schedule, each proven legal, and
compares.
"""

from __future__ import annotations

import random
import re
from typing import Any

from polyker.codegen.argument_layout import argument_names
from polyker.codegen.artifact import Artifact
from polyker.codegen.ir.verify import verify
from polyker.codegen.llvm.jit.build import build
from polyker.codegen.llvm.jit.detect import host
from polyker.codegen.passes.parallel_profitability import settle
from polyker.codegen.passes.simplify import unroll
from polyker.errors import CompileError
from polyker.errors.schedules import GATHERED
from polyker.errors.shapes import ISL_QUOTA
from polyker.ir.dtypes import DTYPES
from polyker.ir.layout import DENSE, Layout
from polyker.ir.typed import TypedProgram
from polyker.machine.model import Target
from polyker.pipeline.record import record_of
from polyker.poly.binding.bind import bind
from polyker.poly.checks import call_record
from polyker.poly.isl import isl_job
from polyker.poly.scop import build_scop
from polyker.rewrite.normalise.extract_reductions import extract_reductions
from polyker.rewrite.normalise.start_reductions import start_reductions
from polyker.rewrite.normalise.widen_reductions import widen_reductions
from polyker.rewrite.reductions.contraction_order import contract
from polyker.runtime.arrays import operand
from polyker.runtime.compiled import Compiled
from polyker.runtime.executable import Executable
from polyker.schedule.nests.text_order import default_schedule
from tests.fuzz.case import Case
from tests.fuzz.data import arrays_of
from tests.fuzz.oracles import judge, parsed
from tests.passes import automatic, emit, lower
from tests.schedule.random_steps import random_legal_steps
from tests.schedule.tree_steps import TreeStep, is_legal

# isl operations for the steps and the loops of one case; where they do not do, the case is left as it is.
QUOTA = 8_000_000

_SIGNS = {
    "vector": r"\bvector",
    "unrolled": r"\bunroll",
    "tile": r"\btile",
    "promoted": r"\bwith t\d+ in \[",
    "in steps": r"is taken in steps",
    "computed once": r"is computed once",
    "alike": r"has the values of|in place of computing it again",
    "sunk": r"are applied to the result",
    "fused": r"\bfor \S+  \{S\d+: [^}]*, S\d+: ",
}


def fired(kernel: Any) -> set[str]:
    """Return the features of a compile."""
    try:
        text = "\n".join(str(kernel.source(stage)) for stage in ("schedule", "loops"))
    except NotImplementedError:
        return set()
    return {f"compiled:{name}" for name, sign in _SIGNS.items() if re.search(sign, text)}


def check(case: Case, got: tuple[Any, ...], rng: random.Random) -> tuple[str, list[str]]:
    """Return (problem, names of the steps tried)."""
    arrays = arrays_of(case)
    operands = [operand(arrays[i.name], i.name) for i in case.inputs]
    acc = DTYPES[case.acc] if case.acc else None
    types = {i.name: o.type for i, o in zip(case.inputs, operands, strict=True)}
    typed = bind(parsed(case.text), types, dict(case.sizes), acc=acc)
    steps: list[TreeStep] = []

    def build(layouts: tuple[Layout, ...], likely: object) -> Executable:
        artifact = stepped(typed, layouts, host(), rng, steps)
        return Executable(record_of(artifact), artifact.code.address, artifact.code, artifact)

    compiled = Compiled(call_record(typed), build, lambda: typed)
    try:
        results, _ = compiled.run(operands, {}, [None] * len(typed.outputs))
    except CompileError as error:
        # Only isl's quota may end it here.
        return ("" if error.code == ISL_QUOTA else str(error)), []
    verdict = judge(case, tuple(results))
    problem = verdict.problem and f"{verdict.problem}\nsteps: {'; '.join(map(str, steps))}"
    return problem, sorted({s.name for s in steps})


def stepped(
    typed: TypedProgram, layouts: tuple[Layout, ...], target: Target, rng: random.Random, done: list[TreeStep]
) -> Artifact:
    """Return the compiled kernel of a typed program with random legal steps on a schedule of it; `done` collects them."""
    with isl_job("steps", QUOTA):
        names = dict(zip(argument_names(typed), layouts, strict=True))
        found = contract(extract_reductions(typed), target, lambda tensor: names.get(tensor, DENSE))
        program = widen_reductions(start_reductions(found.program))
        scop, schedule = build_scop(program), default_schedule(program)
        # Without accumulators a sum in half precision would be rounded at each term.
        rounds = any(s.op != "set" and s.acc != program.tensor(s.target).dtype for s in program.statements())
        if rounds or rng.random() < 0.6:
            made, proposed = automatic(program, layouts, target)
            if is_legal(build_scop(made), proposed):
                scop, schedule = build_scop(made), proposed
        schedule, steps = random_legal_steps(rng, scop, schedule, rng.randint(2, 6))
        done += steps
        lowered = lower(scop, schedule, layouts, GATHERED)
    verify(lowered.kernel)
    kernel = settle(unroll(lowered.kernel), least=0)
    verify(kernel)
    text = emit(kernel, target)
    stages = {"schedule": str(schedule)}
    return Artifact(
        typed, layouts, kernel, lowered.arguments, lowered.scratch, lowered.integers, lowered.guards, stages,
        build(text, target),
    )  # fmt: skip
