"""Barriers: as few as the dependences ask for, each needed, none missing; and shared memory in schedules of people."""

from functools import cache

import numpy as np
import pytest

import polyker as pk
from polyker.codegen.cuda.text import cuda_source
from polyker.codegen.ir.kernel import Barrier, Const
from polyker.codegen.ir.walk import statements
from polyker.codegen.passes.gpu.launch import end_together
from polyker.errors import InternalError, LegalityError
from polyker.poly.scop import build_scop
from polyker.schedule.gpu.barriers import chosen, with_barriers
from polyker.schedule.legality.prove import prove
from polyker.schedule.tree.nodes import Band, Filter, ScheduleTree, Scope, Sequence
from polyker.structs import replace
from tests.artifacts import compiled_to
from tests.codegen.interpret import run
from tests.gpu.sim_check import run_checked
from tests.gpu.support import artifact_of, needs_compiler, removed, small

MATMUL = "C[i,j] += A[i,k] * B[k,j]"


def sequences(tree, around=()):
    """Yield the path of indices to each filter with a barrier."""
    match tree:
        case Band(child=child) | Scope(child=child):
            yield from sequences(child, (*around, None))
        case Sequence(children=children):
            for n, f in enumerate(children):
                if f.barrier:
                    yield (*around, n)
                yield from sequences(f.child, (*around, n))


def without(tree, path):
    """Return a tree without one barrier."""
    match tree:
        case Band(child=child) | Scope(child=child):
            return replace(tree, child=without(child, path[1:]))
        case Sequence(children=children):
            f = children[path[0]]
            f = replace(f, barrier=False) if len(path) == 1 else replace(f, child=without(f.child, path[1:]))
            return Sequence((*children[: path[0]], f, *children[path[0] + 1 :]))


def barriers_in(tree):
    return list(sequences(tree))


def test_the_cheapest_points_that_meet_every_need_are_chosen():
    weights = {(1, n): w for n, w in enumerate((1, 1, 64, 64))}

    def needs(*wanted):
        return tuple(frozenset((1, n) for n in w) for w in wanted)

    assert chosen(needs(), weights) == frozenset()
    assert chosen(needs({0, 1}, {1, 2}), weights) == {(1, 1)}
    assert chosen(needs({0, 2}, {1, 2}), weights) == {(1, 0), (1, 1)}  # twice outside a loop costs less than once in it
    assert chosen(needs({2, 3}, {3}), weights) == {(1, 3)}
    many = {(1, n): 1 for n in range(40)}
    assert len(chosen(needs(*({n, n + 1} for n in range(0, 40, 2))), many)) == 20


def stages(monkeypatch, most):
    """Let products have so many steps' operands on chip at most."""
    monkeypatch.setattr("polyker.schedule.gpu.contract.MAX_STAGES", most)
    pk.clear_cache()


@pytest.mark.parametrize("most, barriers", [(1, 2), (2, 1), (3, 1)])
def test_a_product_meets_once_in_each_step_where_the_next_ones_operands_have_room_beside(monkeypatch, most, barriers):
    stages(monkeypatch, most)
    artifact = artifact_of(MATMUL, pk.f32[40, 65], pk.f32[65, 37])
    program, schedule = artifact.scheduled
    found = barriers_in(schedule.tree)
    assert len(found) == barriers
    assert with_barriers(build_scop(program), schedule) == schedule
    assert sum(isinstance(s, Barrier) for s in statements(artifact.kernel.body)) == barriers
    assert (f"{most} steps in turn" in "".join(map(str, schedule.notes))) == (most > 1)


def test_without_any_of_its_barriers_a_schedule_is_refused(monkeypatch):
    stages(monkeypatch, 1)
    program, schedule = artifact_of(MATMUL, pk.f32[40, 35], pk.f32[35, 37]).scheduled
    scop = build_scop(program)
    prove(scop, schedule)
    kinds = set()
    for path in barriers_in(schedule.tree):
        with pytest.raises(LegalityError, match="no barrier between") as caught:
            prove(scop, ScheduleTree(without(schedule.tree, path)))
        assert caught.value.code == "PK509"
        kinds.add(caught.value.values["kind"])
    assert len(kinds) == 2  # a tile that is read before it is filled, and one that is filled before it was read


def interpreted(kernel, arrays):
    given = {b.name: a.copy() for b, a in zip(kernel.buffers, arrays, strict=True)}
    assert run(kernel, given, {}) == 0
    return given


@cache
def a_product():
    return small(MATMUL, (16, 17), (17, 16))


def test_the_interpreter_finds_no_race_in_a_product():
    kernel, arrays = a_product()
    found = interpreted(kernel, arrays)
    np.testing.assert_array_equal(found[kernel.buffers[2].name], arrays[0] @ arrays[1])


FAMILIES = {
    "product": (MATMUL, (16, 17), (17, 16)),
    "transposed product": ("C[j,i] max= A[k,i] + B[j,k]", (17, 16), (16, 17)),
    "convolution": ("O[f,w] += X[c,w+s] * K[f,c,s]", (10, 18), (16, 10, 3)),
}


@pytest.mark.parametrize("most", [1, 3])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_barrier_of_a_kernel_is_needed(family, most, monkeypatch):
    stages(monkeypatch, most)
    kernel, arrays = small(*FAMILIES[family])
    count = sum(isinstance(s, Barrier) for s in statements(kernel.body))
    assert count == (2 if most == 1 else 1)
    for n in range(count):
        with pytest.raises(InternalError, match=r"race in kernel0 on|undefined element"):
            interpreted(replace(kernel, body=removed(kernel.body, n)[0]), arrays)


@needs_compiler
def test_threads_race_without_any_of_the_barriers():
    kernel, arrays = a_product()
    for n in (0, None):
        changed = kernel if n is None else replace(kernel, body=removed(kernel.body, n)[0])
        found = run_checked(cuda_source(changed, frozenset(), {}), arrays, sanitizer="thread")
        assert ("data race" in found.report) == (n is not None)


ONE = (Const(1), Const(1), Const(1))


def in_turn(kernel):
    """Return the kernel with one block, which takes all tiles in turn."""
    (launch,) = kernel.body
    loop = end_together(launch.body[0], dict(zip("xyz", ONE, strict=True)))
    return replace(kernel, body=(replace(launch, grid=ONE, body=(loop,)),))


def test_a_block_that_takes_several_tiles_in_turn_meets_between_them_where_none_begins_so():
    kernel, _ = small(MATMUL, (150, 17), (17, 16))
    assert in_turn(kernel).body[0].body == kernel.body[0].body  # each step of the product begins with a barrier
    kernel = compiled_to(pk.op(MATMUL).compile(pk.f64[9, 5], pk.f64[5, 17], schedule=shared_operands())).kernel
    a, b = np.ones((9, 5)), np.ones((5, 17))
    met = in_turn(kernel)
    assert [sum(isinstance(s, Barrier) for s in statements(k.body)) for k in (kernel, met)] == [1, 2]
    found = interpreted(met, [a, b, np.zeros((9, 17))])
    np.testing.assert_array_equal(found[kernel.buffers[2].name], a @ b)
    for n in range(2):
        with pytest.raises(InternalError, match=r"race in|undefined element"):
            interpreted(replace(met, body=removed(met.body, n)[0]), [a, b, np.zeros((9, 17))])


def fused(text, depth=1):
    return pk.op(text).schedule(pk.f64[8, 64], target="cuda-sim", auto=False).fuse("T", "O", depth=depth)


SHIFT = "T[i,j] = exp(X[i,j]); O[i,j] = T[i,j] + T[i,j+1] for i in 0:8, j in 0:63"


@needs_compiler
def test_threads_that_read_each_others_values_meet_before():
    s = fused(SHIFT)["T"].map(i="block.x")
    s = s["T"].map(j="thread.x(64)")["O"].map(j="thread.x(64)")
    assert str(s).count("barrier") == 1
    x = np.linspace(-1, 1, 512).reshape(8, 64)
    kernel = pk.op(SHIFT).compile(pk.f64[8, 64], schedule=s)
    assert kernel.source("cuda").count("__syncthreads();") == 1
    want = np.exp(x)
    np.testing.assert_allclose(kernel(x)[:, :63], want[:, :-1] + want[:, 1:], rtol=1e-14)


def shared_operands():
    s = pk.op(MATMUL).schedule(pk.f64[9, 5], pk.f64[5, 17], target="cuda-sim", auto=False)["C"].tile(i=4, j=8)
    s = s["C"].map({"i.tile": "block.y", "j.tile": "block.x", "i.point": "thread.y", "j.point": "thread.x"})
    assert "barrier" not in str(s)
    return s["C"].promote("A", at="j.tile", memory="shared")["C"].promote("B", at="j.tile", memory="shared")


@needs_compiler
def test_operands_promoted_to_shared_memory_are_copied_by_all_threads():
    s = shared_operands()
    assert str(s).count("barrier") == 1 and str(s).count("in shared") == 2
    kernel = pk.op(MATMUL).compile(pk.f64[9, 5], pk.f64[5, 17], schedule=s)
    assert kernel.source("cuda").count("alignas(16) __shared__") == 2
    a, b = np.random.default_rng(0).normal(size=(9, 5)), np.random.default_rng(1).normal(size=(5, 17))
    np.testing.assert_allclose(kernel(a, b), a @ b, rtol=1e-12)


def test_shared_memory_inside_the_loops_over_threads_is_refused():
    s = pk.op(MATMUL).schedule(pk.f64[21, 19], pk.f64[19, 37], target="cuda-sim", auto=False)["C"].tile(i=8, j=16)
    s = s["C"].map({"i.tile": "block.y", "j.tile": "block.x", "i.point": "thread.y", "j.point": "thread.x"})
    with pytest.raises(LegalityError, match="not all threads of a block come"):
        s["C"].promote("A", at="j.point", memory="shared")
    with pytest.raises(pk.PolykerError, match="more than 232448"):
        pk.op(MATMUL).schedule(pk.f64[64, 900], pk.f64[900, 64], target="cuda-sim", auto=False)["C"].tile(
            i=64, j=16
        ).map({"i.tile": "block.y", "j.tile": "block.x"}).promote("A", at="j.tile", memory="shared")


def test_a_thread_for_every_instance_is_demanded():
    shifted = pk.op("f(X) -> T, O:\n    T[i,j] = exp(X[i,j])\n    O[i,j-64] = T[i,j-64] for i in 0:8, j in 64:128")
    s = shifted.schedule(pk.f64[8, 64], target="cuda-sim", auto=False).fuse("T", "O", depth=1)["T"].map(i="block.x")
    s = s["T"].map(j="thread.x(64)")
    with pytest.raises(LegalityError, match=r"no thread of its block runs .* along x is not in 0:64") as caught:
        s["O"].map(j="thread.x(64)")
    assert caught.value.code == "PK511"


def test_a_barrier_stands_between_blocks_and_threads():
    program, schedule = artifact_of("T[i,j] = exp(X[i,j])", pk.f32[30, 40]).scheduled
    names = tuple(s.name for s in program.statements())
    wrapped = Sequence((Filter(names, schedule.tree, (), True),))
    with pytest.raises(LegalityError, match="where not all threads of a block come") as caught:
        prove(build_scop(program), ScheduleTree(wrapped))
    assert caught.value.code == "PK512"
