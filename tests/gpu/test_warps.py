"""Barriers of warps: where all that meet in memory are of one warp, and nowhere else."""

from functools import cache

import numpy as np
import pytest

import polyker as pk
from polyker.codegen.cuda.text import cuda_source
from polyker.codegen.ir.kernel import Barrier
from polyker.codegen.ir.verify import verify
from polyker.errors import InternalError, LegalityError
from polyker.poly.scop import build_scop
from polyker.schedule.gpu.barriers import with_barriers
from polyker.schedule.legality.prove import prove
from polyker.schedule.tree.nodes import Band, ScheduleTree, Sequence
from polyker.structs import replace
from tests.artifacts import compiled_to
from tests.codegen.interpret import run
from tests.gpu.sim_check import run_checked
from tests.gpu.support import needs_compiler, needs_sanitizer, removed, reversing


@cache
def exchange(width, height):
    """Return a schedule in which the threads of a row exchange values through memory, `height` rows to a block, and its text."""
    text = f"T[i,j] = exp(X[i,j]); O[i,j] = T[i,{width - 1}-j] + T[i,j]"
    s = pk.op(text).schedule(pk.f64[8, width], target="cuda-sim", auto=False)
    s = s["T"].tile(i=height)["O"].tile(i=height).fuse("T", "O", depth=1)["T"].map({"i.tile": "block.x"})
    for name in "TO":
        s = s[name].map(j=f"thread.x({width})")[name].map({"i.point": f"thread.y({height})"})
    return text, s


def compiled(width, height):
    text, s = exchange(width, height)
    return pk.op(text).compile(pk.f64[8, width], schedule=s)


CASES = [(32, 4, True), (16, 4, True), (8, 4, True), (64, 2, False), (24, 4, False), (20, 2, False)]


@needs_compiler
@pytest.mark.parametrize("width, height, warps", CASES)
def test_threads_of_a_warp_meet_alone_where_no_others_are_concerned(width, height, warps):
    kernel = compiled(width, height)
    assert ("barrier of each warp" in str(kernel.schedule)) == warps
    text = kernel.source("cuda").split("// t0:", 1)[1]
    assert (text.count("__syncwarp();"), text.count("__syncthreads();")) == ((1, 0) if warps else (0, 1))
    x = np.linspace(-1, 1, 8 * width).reshape(8, width)
    np.testing.assert_allclose(kernel(x), np.exp(x) + np.exp(x)[:, ::-1], rtol=1e-14)


def changed(tree, **fields):
    """Return a tree with the child of the sequence that has a barrier changed."""
    match tree:
        case Band(child=child):
            return replace(tree, child=changed(child, **fields))
        case Sequence(children=children):
            return Sequence(tuple(replace(f, **fields) if f.barrier else f for f in children))


@pytest.mark.parametrize("width, height, warps", CASES)
def test_a_barrier_of_a_warp_is_not_enough_for_several_and_none_for_none(width, height, warps):
    program, schedule = compiled_to(compiled(width, height)).scheduled
    scop = build_scop(program)
    assert with_barriers(scop, schedule) == schedule
    prove(scop, ScheduleTree(changed(schedule.tree, warps=False)))
    for fields in ({"barrier": False, "warps": False}, *([] if warps else [{"warps": True}])):
        with pytest.raises(LegalityError, match="no barrier between") as caught:
            prove(scop, ScheduleTree(changed(schedule.tree, **fields)))
        assert caught.value.code == "PK509"


def interpreted(kernel, x):
    given = {b.name: np.zeros([s.value for s in b.shape], b.dtype.numpy) for b in kernel.buffers}
    given[kernel.buffers[0].name][:] = x
    assert run(kernel, given, {}) == 0
    return given


def test_the_interpreter_sees_that_a_warp_does_not_meet():
    x = np.linspace(-1, 1, 256).reshape(8, 32)
    kernel = compiled_to(compiled(32, 4)).kernel
    out = next(b.name for b in kernel.buffers if b.writable and b.space.value == "argument")
    np.testing.assert_allclose(interpreted(kernel, x)[out], np.exp(x) + np.exp(x)[:, ::-1], rtol=1e-14)
    with pytest.raises(InternalError, match=r"race in|undefined element"):
        interpreted(replace(kernel, body=removed(kernel.body, 0)[0]), x)


def weaker(block):
    """Return a block whose barriers are those of warps."""
    found = []
    for s in block:
        if isinstance(s, Barrier):
            s = Barrier(warps=True)
        elif hasattr(s, "body"):
            s = replace(s, body=weaker(s.body))
        found.append(s)
    return tuple(found)


def test_the_interpreter_sees_that_a_barrier_of_a_warp_is_too_weak():
    x = np.linspace(-1, 1, 512).reshape(8, 64)
    kernel = compiled_to(compiled(64, 2)).kernel
    interpreted(kernel, x)
    with pytest.raises(InternalError, match=r"race in|undefined element"):
        interpreted(replace(kernel, body=weaker(kernel.body)), x)


@needs_sanitizer("thread")
@pytest.mark.parametrize("seed", [0, 1])
def test_threads_race_without_the_barrier_of_their_warp(seed):
    x = np.linspace(-1, 1, 256).reshape(8, 32)
    kernel = compiled_to(compiled(32, 4)).kernel
    arrays = [x, *(np.zeros([s.value for s in b.shape], b.dtype.numpy) for b in kernel.buffers[1:])]
    for one, race in ((kernel, False), (replace(kernel, body=removed(kernel.body, 0)[0]), True)):
        found = run_checked(cuda_source(one, frozenset(), {}), arrays, sanitizer="thread", seed=seed)
        assert ("data race" in found.report) == race


def test_a_block_of_half_a_warp_has_no_barrier_of_warps():
    kernel = reversing()
    (launch,) = kernel.body
    body = removed(launch.body, 0)[0]
    (allocated,) = body
    inside = (allocated.body[0], Barrier(warps=True), allocated.body[1])
    broken = replace(kernel, body=(replace(launch, body=(replace(allocated, body=inside),)),))
    with pytest.raises(InternalError, match="Barrier of warps outside a Launch by whole warps"):
        verify(broken)
