"""Waits for copies that arrive later: each as weak as the dependences allow, none weaker; a missing one is seen everywhere."""

import re

import numpy as np
import pytest

import polyker as pk
from polyker.codegen.cuda.text import cuda_source
from polyker.codegen.ir.kernel import Barrier, Commit, Copy, Wait
from polyker.codegen.ir.walk import statements
from polyker.errors import InternalError, LegalityError
from polyker.ir.expr import IndexExpr
from polyker.poly.scop import build_scop
from polyker.schedule.gpu.barriers import with_barriers
from polyker.schedule.legality.prove import prove
from polyker.schedule.tree.nodes import Band, Filter, Leaf, Member, MemberKind, Promotion, ScheduleTree, Scope, Sequence
from polyker.structs import replace
from tests.artifacts import compiled_to, generated
from tests.codegen.interpret import run
from tests.covering import few
from tests.gpu.sim_check import run_checked
from tests.gpu.support import artifact_of, needs_compiler, needs_nvcc, needs_sanitizer, removed, small

MATMUL = "C[i,j] += A[i,k] * B[k,j]"
FAMILIES = {
    "product": (MATMUL, (16, 33), (33, 16)),
    "transposed product": ("C[j,i] max= A[k,i] + B[j,k]", (33, 17), (16, 33)),
    "convolution": ("O[f,w] += X[c,w+s] * K[f,c,s]", (11, 18), (16, 11, 3)),
}


def interpreted(kernel, arrays):
    given = {b.name: a.copy() for b, a in zip(kernel.buffers, arrays, strict=True)}
    assert run(kernel, given, {}) == 0
    return given[kernel.buffers[-1].name]


@pytest.fixture(params=[2, 3, 4])
def stages(request, monkeypatch):
    """The steps that are on chip."""
    monkeypatch.setattr("polyker.schedule.gpu.contract.MAX_STAGES", request.param)
    pk.clear_cache()
    return request.param


@needs_compiler
def test_a_wait_leaves_the_steps_between_on_their_way(stages):
    a, b = (np.random.default_rng(n).integers(-4, 5, s).astype("f4") for n, s in enumerate(((40, 100), (100, 44))))
    kernel = pk.op(MATMUL).compile(a, b, target="cuda-sim")
    text = kernel.source("cuda").split("// t0:", 1)[1]
    found = int(re.search(r"(\d) steps in turn", generated(kernel, "schedule"))[1])
    assert found <= stages and (stages == 4 or found == stages)
    assert re.findall(r"pk_wait<(\d)>", text) == [str(found - 2)]
    assert text.count("pk_commit();") == text.count("__syncthreads();") == 1
    np.testing.assert_array_equal(kernel(a, b), a @ b)


def test_half_precision_that_changes_its_direction_is_copied_at_once():
    kernel = artifact_of(MATMUL, pk.f16[256, 256], pk.f16[256, 256], target="cuda:sm_90a").kernel
    copies = [s for s in statements(kernel.body) if isinstance(s, Copy)]
    assert copies and all(c.later and c.lanes == 8 for c in copies)
    assert (
        artifact_of(MATMUL, pk.f16[255, 255], pk.f16[255, 255], target="cuda:sm_90a").kernel.buffers[0].alignment == 0
    )


@pytest.mark.parametrize("pad", ["pad=0", "pad=1"])
def test_padding_that_is_not_zero_is_stored(pad):
    text = f"O[n,f,h,w] += X[n,c,h+r-1,w+s-1; {pad}] * K[f,c,r,s] for h in 0:40, w in 0:40"
    artifact = artifact_of(text, pk.f32[2, 16, 40, 40], pk.f32[40, 16, 3, 3], target="cuda:sm_90a")
    copies = [s for s in statements(artifact.kernel.body) if isinstance(s, Copy)]
    assert len({c.buffer for c in copies if c.later}) == 2
    assert ("= 1.0f;" in artifact.stages["cuda"]) == (pad == "pad=1")


def changed(tree, change):
    """Return a tree with the children of the sequence with the wait changed."""
    match tree:
        case Band(child=child) | Scope(child=child):
            return replace(tree, child=changed(child, change))
        case Sequence(children=children):
            if any(f.wait is not None for f in children):
                return Sequence(tuple(change(n, f) for n, f in enumerate(children)))
            return Sequence(tuple(replace(f, child=changed(f.child, change)) for f in children))
        case _:
            return tree


CHANGES = {
    "no wait": lambda n, f: replace(f, wait=None),
    "a weaker wait": lambda n, f: replace(f, wait=None if f.wait is None else f.wait + 1),
    "a wait behind the barrier": lambda n, f: replace(f, wait=None if n != 1 else 0),
    "groups that nobody closes": lambda n, f: replace(f, commit=False),
    "groups closed too soon": lambda n, f: replace(f, commit=n == 0),
}


@pytest.mark.parametrize(("change", "stages"), few([*CHANGES], [2, 3, 4], 2), indirect=["stages"])
def test_what_does_not_wait_for_its_copies_is_refused(change, stages):
    program, schedule = artifact_of(MATMUL, pk.f32[40, 100], pk.f32[100, 44]).scheduled
    scop = build_scop(program)
    prove(scop, schedule)
    assert with_barriers(scop, schedule) == schedule
    tree = changed(schedule.tree, CHANGES[change])
    assert tree != schedule.tree
    with pytest.raises(LegalityError, match="which arrives later, and no wait lets it arrive before") as caught:
        prove(scop, ScheduleTree(tree))
    assert caught.value.code == "PK514"


def test_a_stronger_wait_is_no_error(stages):
    program, schedule = artifact_of(MATMUL, pk.f32[40, 100], pk.f32[100, 44]).scheduled
    strong = changed(schedule.tree, lambda n, f: replace(f, wait=None if f.wait is None else 0))
    late = changed(schedule.tree, lambda n, f: replace(f, commit=n == 2))  # groups are closed behind the sums
    for tree in (strong, late):
        prove(build_scop(program), ScheduleTree(tree))


def shifted(*, used=8):
    """Return a program whose second statement reads `used` elements of the first one's in each block, and a tree for it."""
    text = f"f(X) -> O:\n    T[b,i] = exp(X[b,i])\n    O[b,i] = T[b,7-i] for b in 0:4, i in 0:{used}"
    s = pk.op(text).schedule(pk.f32[4, 8], target="cuda-sim", auto=False)
    program, _ = compiled_to(pk.op(text).compile(pk.f32[4, 8], schedule=s)).scheduled
    (one, other), (b, i), (c, j) = program.statements(), *(s.subscripts for s in program.statements())
    block = Member(((one.name, b), (other.name, c)), "b", MemberKind.BLOCK, 0, "x")
    inner = (Band((Member(((s.name, t),), "i", MemberKind.THREAD, 8, "x"),), Leaf()) for s, t in ((one, i), (other, j)))
    parts = Sequence(tuple(Filter((s.name,), t) for s, t in zip((one, other), inner, strict=True)))
    held = Promotion(one.target, (1, 8), shared=True, later=True)
    return build_scop(program), ScheduleTree(Band((block,), Scope((held,), parts)))


def test_copies_that_nobody_uses_are_refused():
    scop, bare = shifted()
    schedule = with_barriers(scop, bare)
    assert "when all copies are there, after a barrier" in str(schedule)
    prove(scop, schedule)
    scop, bare = shifted(used=5)
    with pytest.raises(LegalityError, match=r"T.* what arrives later, and nothing waits for it") as caught:
        prove(scop, with_barriers(scop, bare))
    assert caught.value.code == "PK515"
    lone = replace(bare.tree.child.promotions[0], shared=False)
    with pytest.raises(LegalityError, match="in shared memory alone"):
        prove(scop, ScheduleTree(replace(bare.tree, child=replace(bare.tree.child, promotions=(lone,)))))


@pytest.mark.parametrize("family", FAMILIES)
def test_without_any_of_its_waits_the_interpreter_names_what_is_missing(family):
    kernel, arrays = small(*FAMILIES[family])
    if family == "product":
        np.testing.assert_array_equal(interpreted(kernel, arrays), arrays[0] @ arrays[1])
    for kind in (Wait, Commit, Barrier):
        assert sum(isinstance(s, kind) for s in statements(kernel.body)) == 1
        absent = r"t\d_p\d\[.*\] in kernel0 is not there when thread \("
        with pytest.raises(InternalError, match=r"race in|undefined element" if kind is Barrier else absent):
            interpreted(replace(kernel, body=removed(kernel.body, 0, kind)[0]), arrays)


@needs_compiler
@pytest.mark.parametrize(
    ("family", "sanitizer"),
    [("product", "none"), *(pytest.param(f, "thread", marks=needs_sanitizer("thread")) for f in FAMILIES)],
)
def test_the_simulator_sees_each_wait_that_is_missing_or_too_weak(family, sanitizer):
    kernel, arrays = small(*FAMILIES[family])
    text = cuda_source(kernel, frozenset(), {})
    pending = int(re.search(r"pk_wait<(\d)>", text)[1])
    right = run_checked(text, arrays, sanitizer=sanitizer)
    assert right.report == ""
    for wrong in ("", f"pk_wait<{pending + 1}>();"):
        found = run_checked(text.replace(f"pk_wait<{pending}>();", wrong), arrays, sanitizer=sanitizer)
        assert "no wait covers them" in found.report
        assert "data race" in found.report or sanitizer == "none" or not wrong


@needs_nvcc
@pytest.mark.parametrize("target", ["cuda:sm_80", "cuda:sm_90a"])
def test_copies_of_16_bytes_arrive_later_in_machine_code(target):
    for dtype in (pk.f32, pk.f64):
        kernel = pk.op(MATMUL).compile(dtype[1024, 1024], dtype[1024, 1024], target=target)
        text = kernel.source("ptx")
        assert text.count("cp.async.cg.shared.global") >= 1 and text.count("cp.async.wait_group") == 1
        assert not re.search(r"ld\.global", text)
        (used,) = kernel.resources().values()
        assert used.spilled == 0 and used.registers <= 128


def overwritten():
    """Return a program that copies a tensor, then changes it, and a tree of one launch whose copies arrive later."""
    text = """
    f(X) -> O, A:
        A[b,i] = X[b,i] + 1
        T[b,i] = A[b,i]
        A[b,i] += X[b,i]
        O[b,i] = T[b,7-i] for b in 0:4, i in 0:8
    """
    s = pk.op(text).schedule(pk.f32[4, 8], target="cuda-sim", auto=False)
    program, _ = compiled_to(pk.op(text).compile(pk.f32[4, 8], schedule=s)).scheduled
    parts = tuple(program.statements())
    own = [[IndexExpr(i) for i in s.iterators] for s in parts]
    (copied,) = (r.tensor for r in parts[-1].reads())
    block = Member(tuple((s.name, b) for s, (b, _) in zip(parts, own, strict=True)), "b", MemberKind.BLOCK, 0, "x")
    threads = [
        Band((Member(((s.name, i),), "i", MemberKind.THREAD, 8, "x"),), Leaf())
        for s, (_, i) in zip(parts, own, strict=True)
    ]
    steps = Sequence(tuple(Filter((s.name,), t) for s, t in zip(parts, threads, strict=True)))
    held = Promotion(copied, (1, 8), shared=True, later=True)
    return build_scop(program), ScheduleTree(Band((block,), Scope((held,), steps)))


def test_what_is_copied_is_not_overwritten_before_it_has_been_read():
    scop, bare = overwritten()
    schedule = with_barriers(scop, bare)
    prove(scop, schedule)
    held = schedule.tree.child
    # Soon enough for what uses the copies, too late for what overwrites A.
    late = (replace(f, barrier=n == 3, wait=0 if n == 3 else None) for n, f in enumerate(held.child.children))
    tree = replace(schedule.tree, child=replace(held, child=Sequence(tuple(late))))
    with pytest.raises(LegalityError, match=r"copies A\[0, 0\].*, and no wait ends the copy before") as caught:
        prove(scop, ScheduleTree(tree))
    assert caught.value.code == "PK519"
