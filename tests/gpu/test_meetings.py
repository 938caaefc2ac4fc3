"""Where threads meet: each barrier of kernels that are no contractions is needed (of those see test_waits); tests around them."""

import numpy as np
import pytest

import polyker as pk
from polyker.codegen.ir.kernel import Barrier, Commit, Const, If, Op, Var, Wait
from polyker.codegen.ir.walk import statements
from polyker.codegen.lowering.by_threads import dealt_to_threads
from polyker.errors import InternalError
from polyker.ir.dtypes import bool_
from polyker.schedule.tree.to_isl import Threads
from polyker.structs import replace
from tests.artifacts import compiled_to
from tests.codegen.interpret import run
from tests.gpu.support import needs_compiler, removed

SOFTMAX = "P[i,j] = exp(X[i,j] - max[k](X[i,k])) / sum[l](exp(X[i,l] - max[k](X[i,k])))"
FAMILIES = {
    "softmax": (SOFTMAX, (1, 1500)),
    "sum of columns": ("s[j] += X[i,j]", (70, 40)),
    "transpose": ("T[j,i] = X[i,j]", (40, 37)),
}
KINDS = (Barrier, Wait, Commit)


def kernel_of(family):
    """Return the kernel of a family, and its arrays."""
    text, *shapes = FAMILIES[family]
    arrays = [np.random.default_rng(n).integers(-4, 5, s).astype("f4") for n, s in enumerate(shapes)]
    artifact = compiled_to(pk.op(text).compile(*arrays, target="cuda:sm_90a"))
    given = dict(zip(artifact.arguments, arrays, strict=False))
    for b in artifact.kernel.buffers:
        given.setdefault(b.name, np.zeros([s.value for s in b.shape], b.dtype.numpy))
    return artifact.kernel, given


@pytest.mark.parametrize("family", FAMILIES)
def test_nothing_at_which_threads_meet_or_wait_can_be_left_out(family):
    kernel, given = kernel_of(family)
    assert run(kernel, {n: a.copy() for n, a in given.items()}, {}) == 0
    found = [(k, n) for k in KINDS for n in range(sum(isinstance(s, k) for s in statements(kernel.body)))]
    assert found
    for kind, number in found:
        changed = replace(kernel, body=removed(kernel.body, number, kind)[0])
        with pytest.raises(InternalError, match=r"race in|undefined element|is not there when|never arrive"):
            assert run(changed, {n: a.copy() for n, a in given.items()}, {}) == 0


@needs_compiler
def test_threads_meet_inside_what_isl_tests_of_their_numbers():
    # That threads have elements of the triangle is known of each statement of the product, so isl tests it around all of them.
    text = (
        "f(Q: [B,S,D]) -> m:\n    A[b,q,k] += Q[b,q,d] * Q[b,k,d] for q in 0:S, k in 0:S where k <= q\n"
        "    m[b,q] max= A[b,q,k] for q in 0:S, k in 0:S where k <= q"
    )
    kernel = pk.op(text).compile(pk.f32["B", "S", "D"], target="cuda-sim")
    assert "operands shared" in kernel.source("schedule")
    for shape in ((2, 19, 8), (1, 140, 17), (3, 1, 5), (1, 20, 0)):
        q = np.random.default_rng(0).integers(-4, 5, shape).astype("f4")
        scores = np.where(np.tri(shape[1], dtype=bool), np.einsum("bqd,bkd->bqk", q, q), -np.inf)
        np.testing.assert_array_equal(kernel(q), scores.max(2))


def test_threads_that_would_meet_on_both_sides_of_a_test_are_refused():
    number = Threads("x", "thread", 32)
    test = Op("lt", (Var("thread"), Const(3)), bool_)
    assert dealt_to_threads((If(test, (Barrier(),)),), (number,)) == (Barrier(),)
    with pytest.raises(InternalError, match="both sides"):
        dealt_to_threads((If(test, (Commit(),), (Commit(),)),), (number,))
