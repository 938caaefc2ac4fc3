"""Loops on several threads: which are legal, what memory threads share, and that the results are the same."""

from __future__ import annotations

import pytest

from polyker.codegen.ir.kernel import Allocate, For, LoopKind, Space, Store
from polyker.codegen.ir.walk import statements
from polyker.errors import LegalityError, ScheduleError
from polyker.errors.schedules import GATHERED
from polyker.ir.dtypes import i64
from polyker.ir.expr import IndexExpr
from polyker.ir.layout import DENSE
from polyker.ir.quasi_affine import lit
from polyker.schedule.legality.prove import prove
from polyker.schedule.steps.basic import parallel
from polyker.schedule.tree.nodes import Band, Filter, Leaf, Member, MemberKind, Promotion, ScheduleTree, Scope, Sequence
from tests.passes import lower
from tests.schedule.programs import PROGRAMS
from tests.schedule.support import Case, assert_same, case, lowered
from tests.schedule.tree_steps import TreeStep, apply, step

KINDS = (LoopKind.PARALLEL, LoopKind.BLOCK)

LEGAL: dict[str, tuple[str, list[TreeStep]]] = {
    "rows": ("matmul", [TreeStep("parallel", ("S0", "i0", 3))]),
    "tiles": ("matmul", [TreeStep("tile", ("S0", (("i1", 4),))), TreeStep("parallel", ("S0", "i1.tile", 2))]),
    "inside the terms": ("matmul", [TreeStep("interchange", ("S0", ("i2", "i0"))), TreeStep("parallel", ("S0", "i0", 3))]),
    "rows of a triangle": ("triangle", [TreeStep("parallel", ("S0", "i0", 4))]),
    "producer and consumer": ("chain", [TreeStep("fuse", ("S0", "S1")), TreeStep("parallel", ("S0", "i0", 2))]),
    "a row for each thread": (
        "chain",
        [TreeStep("fuse", ("S0", "S1")), TreeStep("promote", ("T", "S1", "i0")), TreeStep("parallel", ("S0", "i0", 3))],
    ),
    "a row that threads share": (
        "chain",
        [TreeStep("fuse", ("S0", "S1")), TreeStep("promote", ("T", "S1", "i0")), TreeStep("parallel", ("S0", "i1", 3)),
         TreeStep("parallel", ("S1", "i3", 3))],
    ),
    "rows of a softmax": (
        "normalise",
        [TreeStep("fuse", ("S1", "S2")), TreeStep("fuse", ("S1", "S0")), TreeStep("promote", ("max", "S1", "i0")),
         TreeStep("parallel", ("S1", "i0", 2))],
    ),
    "rows between time steps": ("heat", [TreeStep("parallel", ("S0", "i1", 3)), TreeStep("parallel", ("S1", "i3", 3))]),
    "beside a scan": ("scan", [TreeStep("interchange", ("S1", ("i2", "i1"))), TreeStep("parallel", ("S1", "i2", 3))]),
    "vectors": ("chain", [TreeStep("vectorise", ("S0", "i1", 4)), TreeStep("parallel", ("S0", "i1.tile", 3))]),
    "padded rows": (
        "padded rows",
        [TreeStep("fuse", ("S0", "S1")), TreeStep("promote", ("T", "S0", "i0")), TreeStep("parallel", ("S0", "i0", 3))],
    ),
}  # fmt: skip

ILLEGAL: dict[str, tuple[str, list[TreeStep]]] = {
    "terms of a sum": ("matmul", [TreeStep("parallel", ("S0", "i2", 2))]),
    "all terms": ("dot", [TreeStep("parallel", ("S0", "i0", 2))]),
    "a scan": ("scan", [TreeStep("parallel", ("S1", "i1", 2))]),
    "time": ("heat", [TreeStep("parallel", ("S0", "i0", 2))]),
    "a histogram": ("histogram", [TreeStep("parallel", ("S0", "i0", 2))]),
    "in place": ("backwards", [TreeStep("parallel", ("S0", "i0", 2))]),
}  # fmt: skip


def stepped(found: Case, steps: list[TreeStep]) -> ScheduleTree:
    schedule = found.start
    for s in steps:
        schedule = apply(found.scop, schedule, s)
    return schedule


@pytest.mark.parametrize("name", LEGAL)
@pytest.mark.parametrize("native", [False, True])
def test_iterations_on_several_threads_compute_the_same(name: str, native: bool) -> None:
    program, steps = LEGAL[name]
    found = PROGRAMS[program]
    schedule = stepped(found, steps)
    assert "parallel(" in str(schedule)
    assert_same(found, found.scop, schedule, native=native)


@pytest.mark.parametrize("name", ILLEGAL)
def test_iterations_that_depend_on_each_other_are_refused_with_two_instances(name: str) -> None:
    program, steps = ILLEGAL[name]
    found = PROGRAMS[program]
    with pytest.raises(LegalityError) as caught:
        stepped(found, steps)
    assert caught.value.code == "PK508"
    assert "at the same time" in caught.value.message


def test_a_gathered_target_is_one_element_for_all_that_is_known() -> None:
    found = PROGRAMS["indirect"]
    with pytest.raises(LegalityError) as caught:
        stepped(found, [TreeStep("parallel", ("S1", "i1", 2))])
    assert caught.value.code == "PK508"


def test_a_value_may_not_go_from_thread_to_thread_through_a_buffer_of_one() -> None:
    found = case("T[i] = X[i] * 2;  O[i] = T[i] + T[i+1] for i in 0:N", X="f64[9]", N=8)
    shifted = [TreeStep("fuse", ("S0", "S1"))]
    with pytest.raises((LegalityError, ScheduleError)):
        stepped(found, [*shifted, TreeStep("promote", ("T", "S0", "i0")), TreeStep("parallel", ("S0", "i0", 2))])


def test_no_parallel_loop_stands_in_a_parallel_or_vector_loop() -> None:
    found = PROGRAMS["matmul"]
    rows = stepped(found, [TreeStep("parallel", ("S0", "i0", 2))])
    with pytest.raises(LegalityError) as caught:
        apply(found.scop, rows, TreeStep("parallel", ("S0", "i1", 2)))
    assert caught.value.code == "PK506"
    lanes = stepped(found, [TreeStep("interchange", ("S0", ("i1", "i0"))), TreeStep("vectorise", ("S0", "i1", 8))])
    with pytest.raises(LegalityError) as caught:
        apply(found.scop, lanes, TreeStep("parallel", ("S0", "i0", 2)))
    assert caught.value.code == "PK506"


def test_only_serial_loops_become_parallel_by_at_most_256_threads() -> None:
    found = PROGRAMS["chain"]
    with pytest.raises(ScheduleError):
        step(found.scop, found.start, TreeStep("parallel", ("S0", "i0", 257)))
    lanes = step(found.scop, found.start, TreeStep("vectorise", ("S0", "i1", 4)))
    with pytest.raises(ScheduleError):
        parallel(lanes, "S0", "i1.point", 2)


def test_buffers_inside_are_each_threads_own_and_those_around_are_in_memory() -> None:
    found = PROGRAMS["chain"]
    own = lowered(found.scop, stepped(found, LEGAL["a row for each thread"][1]))
    (loop,) = (s for s in statements(own.kernel.body) if isinstance(s, For) and s.kind is LoopKind.PARALLEL)
    assert isinstance(loop.body[0], Allocate)
    shared = lowered(found.scop, stepped(found, LEGAL["a row that threads share"][1]))
    assert [b.space for b in shared.kernel.buffers if b.space is not Space.ARGUMENT] == [Space.SCRATCH]
    large = case("T[i,j] = X[i,j] + 1;  O[i,j] = T[i,j] * 2", X="f64[3,5000]")
    copies = lowered(large.scop, stepped(large, LEGAL["a row for each thread"][1]))
    (memory,) = copies.scratch
    assert [int(e.value.real) for e in memory.shape] == [3, 1, 5000]
    assert_same(large, large.scop, stepped(large, LEGAL["a row for each thread"][1]), native=True)


def test_threads_buffers_share_no_memory() -> None:
    """One thread may be at the first statement while another is at the last."""
    text = "A[i,j] = X[i,j] + 1;  B[i,j] = A[i,j] * 2;  C[i,j] = B[i,j] + X[i,0];  O[i,j] = C[i,j] * B[i,0]"
    found = case(text, X="f64[6,5000]")
    steps = [TreeStep("fuse", ("S2", "S3")), TreeStep("fuse", ("S1", "S2")), TreeStep("fuse", ("S0", "S1"))]
    steps += [TreeStep("promote", (t.name, "S0", "i0")) for t in found.scop.program.tensors if t.label in "ABC"]
    serial = stepped(found, steps)
    assert lowered(found.scop, serial).kernel.disjoint
    threads = apply(found.scop, serial, TreeStep("parallel", ("S0", "i0", 3)))
    assert not lowered(found.scop, threads).kernel.disjoint


@pytest.mark.parametrize("shape", ["1,5", "1,1", "2,1"])
@pytest.mark.parametrize("native", [False, True])
def test_buffers_of_a_loop_that_isl_drops_keep_their_values(shape: str, native: bool) -> None:
    found = case("T[i,j] = X[i,j] + 1;  U[i,j] = T[i,j] * 3;  O[i,j] = U[i,j] * 2", X=f"f64[{shape}]")
    steps = [TreeStep("fuse", ("S1", "S2")), TreeStep("fuse", ("S0", "S1"))]
    steps += [TreeStep("promote", (t.name, "S0", "i0")) for t in found.scop.program.tensors if t.label in "TU"]
    steps += [TreeStep("parallel", ("S0", "i0", 3))]
    assert_same(found, found.scop, stepped(found, steps), native=native)


def first_and_last(width: int, kind: MemberKind, *, threads: bool = False) -> tuple[Case, ScheduleTree]:
    """Return rows of which the first is read once more at the first iteration, and the last at the last."""
    found = case("T[i,j] = X[i,j] + 1;  O[j] = T[5,j] * 2;  F[j] = T[0,j] * 3", X=f"f64[6,{width}]")
    first, last, again = found.scop.program.statements()

    def inner(name: str, iterator: str, *, barrier: bool) -> Filter:
        own = (MemberKind.THREAD, width, "x") if threads else (MemberKind.SERIAL, 0, "")
        return Filter(
            (name,), Band((Member(((name, IndexExpr(iterator, i64)),), iterator, *own),), Leaf()), barrier=barrier
        )

    times = ((first.name, IndexExpr(first.iterators[0], i64)), (last.name, lit(5)), (again.name, lit(0)))
    parts = (
        inner(first.name, first.iterators[1], barrier=False),
        inner(last.name, last.iterators[0], barrier=threads),
        inner(again.name, again.iterators[0], barrier=False),
    )
    rows = Scope((Promotion(first.target, (1, width), shared=threads),), Sequence(parts))
    on = Member(times, "rows", kind, *((3,) if kind is MemberKind.PARALLEL else (0, "x")))
    return found, ScheduleTree(Band((on,), rows))


@pytest.mark.parametrize("width", [8, 5000])
@pytest.mark.parametrize("native", [False, True])
def test_what_the_first_or_the_last_iteration_has_alone_stays_in_it(width: int, native: bool) -> None:
    """isl would run it before or after the loop, where the row of the thread that computed it is gone."""
    found, schedule = first_and_last(width, MemberKind.PARALLEL)
    prove(found.scop, schedule)
    assert_same(found, found.scop, schedule, native=native)
    (loop,) = (s for s in statements(lowered(found.scop, schedule).kernel.body) if getattr(s, "kind", 0) in KINDS)
    assert sum(isinstance(s, Store) for s in statements(loop.body)) == 3


@pytest.mark.parametrize("threads", [False, True])
def test_what_the_first_or_the_last_block_has_alone_stays_in_it(threads: bool) -> None:
    found, schedule = first_and_last(8, MemberKind.BLOCK, threads=threads)
    prove(found.scop, schedule)
    kernel = lower(found.scop, schedule, (DENSE,) * 3, GATHERED).kernel
    (loop,) = (s for s in statements(kernel.body) if getattr(s, "kind", 0) in KINDS)
    assert sum(isinstance(s, Store) for s in statements(loop.body)) == 3
