"""Loops that isl made are held against what they are to run."""

from __future__ import annotations

import subprocess
import sys

import islpy as isl
import numpy as np
import pytest

import polyker as pk
from polyker.codegen.lowering.isl_ast import some_lost
from polyker.errors import CompileError
from polyker.poly.isl import read_set


def test_loops_that_miss_instances_are_refused() -> None:
    """isl 0.27 loses every second instance of the copy here."""
    operator = pk.op("Q[k] = J[k%4,k]")
    J = np.arange(5 * 33, dtype="f4").reshape(5, 33)
    s = operator.schedule(J, auto=False).vectorise(k=2)["Q"].promote("J", at="k.tile")["J.packed"].unroll(k=8)
    assert np.array_equal(operator.compile(J, schedule=s)(J), operator(J))
    s = s["J.packed"].skew(3, **{"k.tile": "k.point"})
    with pytest.raises(CompileError) as caught:
        operator.compile(J, schedule=s)
    assert caught.value.code == "PK611"


@pytest.mark.parametrize(
    ("leaves", "runs", "lost"),
    [
        (["{ A[i] : 0 <= i < 4 }", "{ A[i] : 4 <= i < 8 }"], ["{ A[i] : 0 <= i < 4 }", "{ A[i] : 4 <= i < 8 }"], False),
        (["{ A[i] : 0 <= i < 8 }"], ["{ A[i] : 0 <= i < 4 }", "{ A[i] : 4 <= i < 8 }"], False),
        (["{ A[i] : 0 <= i < 8 }"], ["{ A[i] : 0 <= i < 4 }", "{ A[i] : 5 <= i < 8 }"], True),
        (
            ["{ A[i] : i < 0 and i > 0 }", "{ B[i] : 0 <= i < 8 }"],
            ["{ B[i] : 0 <= i < 7 }"],
            True,
        ),  # an empty leaf first
        (["{ A[i] : 0 <= i < 4 }"], [], True),
    ],
)
def test_instances_in_no_run_are_missed(leaves: list[str], runs: list[str], lost: bool) -> None:
    found, ran = ([isl.UnionSet.from_set(read_set(t)) for t in texts] for texts in (leaves, runs))
    assert some_lost(found, ran) is lost


QUOTAS = """
from polyker.errors import CompileError
from polyker.poly.isl import isl_job
from tests.schedule.programs import PROGRAMS
from tests.schedule.support import lowered

scop, start, ended = PROGRAMS["heat"].scop, PROGRAMS["heat"].start, 0
for quota in range(200, 9000, 40):
    try:
        with isl_job("loops", quota):
            lowered(scop, start)
    except CompileError:
        ended += 1
assert 0 < ended < 220
"""


def test_a_quota_that_ends_in_a_call_back_of_isls_is_an_error_like_any_other() -> None:
    """isl's memory is not sound after an exception in a call back: the process may end at its exit."""
    done = subprocess.run([sys.executable, "-c", QUOTAS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "call back" not in done.stderr
