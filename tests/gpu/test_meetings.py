"""Each barrier of kernels that are no contractions is needed (of those see test_waits): the interpreter says what goes wrong."""

from dataclasses import replace

import numpy as np
import pytest

import polyker as pk
from polyker.codegen.interp import run
from polyker.codegen.kernel import Barrier, Commit, Wait
from polyker.codegen.walk import statements
from polyker.errors import InternalError
from tests.gpu.support import removed

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
    artifact = pk.op(text).compile(*arrays, target="cuda:sm_90a")._compiled.artifact()
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
