"""A compile that is cancelled ends at its next step, whichever that is, and not with a failure of isl.

What cancels a compile (a signal, the end of the process) tells isl to give up what it does.
"""

from __future__ import annotations

from typing import Any

import pytest

import polyker as pk
from polyker.codegen.artifact import Artifact
from polyker.ir.decision import PassRun
from polyker.machine.known import gpus, known
from polyker.machine.model import Target
from polyker.options import Options
from polyker.pipeline.compile import compile_typed
from polyker.process.jobs import Cancelled, current_job, uninterrupted
from tests.artifacts import compiled_to

SOFTMAX = "P[i,j] = exp(X[i,j] - max[k](X[i,k])) / sum[l](exp(X[i,l] - max[k](X[i,k])))"


def cancelled_at(last: int, artifact: Artifact, target: Target) -> bool:
    """Compile again, cancelled at one of the steps; whether the compile took that many."""
    seen = 0

    def watch(step: PassRun, unit: Any) -> None:
        nonlocal seen
        seen += 1
        job = current_job()
        if seen == last and job is not None:
            job.cancel()

    def work() -> None:
        compile_typed(artifact.typed, artifact.layouts, target, Options(threads=1), watch=watch)

    try:
        uninterrupted(work)
    except Cancelled:
        return True
    return False


@pytest.mark.parametrize("target", [known()["cpu:x86-64-v3"], gpus()["cuda:sm_80"]], ids=lambda t: t.name)
def test_a_compile_cancelled_at_any_step_of_the_passes_is_cancelled(target: Target) -> None:
    artifact = compiled_to(pk.op(SOFTMAX).compile(X=pk.f32[7, 9], threads=1))
    count = next(n for n in range(1, 1000) if not cancelled_at(n, artifact, target)) - 1
    assert count > 10
