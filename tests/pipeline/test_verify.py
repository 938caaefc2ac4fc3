"""Each IR's verifier names the pass after which a rule is broken."""

import pytest

import polyker as pk
from polyker.codegen.ir.kernel import For, KernelIR, Store, Var
from polyker.codegen.llvm.jit.detect import target
from polyker.errors import InternalError
from polyker.ir.dtypes import f32
from polyker.ir.expr import IndexExpr
from polyker.ir.quasi_affine import add, lit
from polyker.ir.typed import TypedProgram, replaced
from polyker.pipeline import kernel as kernels
from polyker.pipeline import program as programs
from polyker.pipeline.driver import Run
from polyker.pipeline.passes import At, Pass, PassLevel
from polyker.structs import replace
from tests.artifacts import compiled_to
from tests.schedule.support import case

TEXT = "P[i,j] = exp(X[i,j] - max[k](X[i,k]))"


def typed() -> TypedProgram:
    return case(TEXT, X="f32[5,7]").typed


def shifted(program: TypedProgram) -> TypedProgram:
    """Return the program with one read a row further than the tensor goes."""

    def change(s):
        if not s.reduced:
            return [s]
        (read,) = s.reads()
        far = replace(read, subscripts=(add(read.subscripts[0], lit(1)), *read.subscripts[1:]))
        return [replace(s, expr=far)]

    return replace(program, body=replaced(program.body, change))


def renamed(program: TypedProgram) -> TypedProgram:
    first = next(program.statements()).name
    return replace(program, body=replaced(program.body, lambda s: [replace(s, name=first)]))


def reordered(program: TypedProgram) -> TypedProgram:
    return replace(program, body=program.body[::-1])


def without_tensor(program: TypedProgram) -> TypedProgram:
    return replace(program, tensors=tuple(t for t in program.tensors if t.label != "max"))


def of_another_type(program: TypedProgram) -> TypedProgram:
    tensors = tuple(replace(t, dtype=pk.f64) if t.label == "X" else t for t in program.tensors)
    return replace(program, tensors=tensors)


def unknown_index(program: TypedProgram) -> TypedProgram:
    def change(s):
        return [replace(s, subscripts=(IndexExpr("i99", pk.i64), *s.subscripts[1:]))]

    return replace(program, body=replaced(program.body, change))


def without_instances(program: TypedProgram) -> TypedProgram:
    """Return the program with the condition of a part and its opposite on one statement."""
    last = list(program.statements())[-1].name

    def change(s):
        return [replace(s, domain=f"{{ {s.name}[{', '.join(s.iterators)}] : 1 = 0 }}") if s.name == last else s]

    return replace(program, body=replaced(program.body, change))


@pytest.mark.parametrize(
    ("breaks", "message"),
    [
        (shifted, "leaves"),
        (renamed, "is defined twice"),
        (reordered, "before anything writes it"),
        (without_tensor, "unknown tensor|writes t"),
        (of_another_type, "reads t0 as"),
        (unknown_index, "unknown index i99"),
        (without_instances, r"S\d+ has no instance"),
    ],
)
def test_a_pass_that_breaks_a_program_is_named(breaks, message):
    broken = Pass("broken_pass", lambda p, _: breaks(p), PassLevel.PROGRAM)
    run = Run(At(target("cpu")), everywhere=True)
    program = run.passes([programs.EXTRACT_REDUCTIONS, programs.START_REDUCTIONS], typed())
    with pytest.raises(InternalError, match=f"after the pass broken_pass: .*({message})"):
        run.one(broken, program)


def limited(program: TypedProgram, condition: str) -> TypedProgram:
    """Return what a pass makes that leaves to all statements the points that a condition on their first iterator admits."""

    def change(s):
        return [replace(s, domain=s.domain.replace(":", f": ({condition.format(s.iterators[0])}) and ", 1))]

    limiting = Pass("limit", lambda p, _: replace(p, body=replaced(p.body, change)), PassLevel.PROGRAM)
    return Run(At(target("cpu")), everywhere=True).one(limiting, program)


def test_a_domain_that_a_pass_leaves_without_instances_is_a_breach():
    with pytest.raises(InternalError, match=r"after the pass limit: S\d+ has no instance"):
        limited(case("P[i] = X[i]", X="f32[4]").typed, "{} >= 4")


@pytest.mark.parametrize(
    ("text", "rows"),
    [("P[i] = X[i]", "N"), ("P[i] = X[i]; P[i] = 2 * X[i] for i in 3:3", "4"), ("P[i] = X[i] + sum[k in 2:2](X[k])", "4")],
)  # fmt: skip
def test_a_domain_may_be_empty_for_some_sizes_or_where_one_of_the_text_is(text, rows):
    made = limited(case(text, X=f"f32[{rows}]").typed, "{} >= 4")
    assert all(">= 4" in s.domain for s in made.statements())


def test_a_pass_that_breaks_a_kernel_is_named():
    def breaks(kernel: KernelIR, _: At) -> KernelIR:
        def change(block):
            return tuple(
                replace(s, body=change(s.body))
                if isinstance(s, For)
                else replace(s, indices=(Var("nowhere"),) * len(s.indices))
                if isinstance(s, Store)
                else s
                for s in block
            )

        return replace(kernel, body=change(kernel.body))

    made = pk.op("O[i] = X[i] + 1").compile(X=f32[100], threads=1)
    kernel = compiled_to(made).loops
    run = Run(At(target("cpu")), everywhere=True)
    with pytest.raises(InternalError, match="after the pass broken_pass: "):
        run.passes([kernels.UNSWITCH, Pass("broken_pass", breaks, PassLevel.KERNEL)], kernel)


def test_a_pass_that_breaks_a_schedule_is_found_by_the_proof():
    """The order of a recurrence turned round is no schedule of it."""
    schedule = pk.op("S[0] = X[0]; S[t] = S[t-1] + X[t] for t in 1:50").schedule(X=f32[50], auto=False)
    with pytest.raises(pk.ScheduleError):
        schedule.reverse("t")
