"""Loops mapped to blocks and threads by people: what is legal, and what a program without any becomes."""

import re

import numpy as np
import pytest

import polyker as pk
from polyker.errors import LegalityError, ScheduleError
from tests.artifacts import generated
from tests.gpu.support import needs_compiler

MATMUL = "C[i,j] += A[i,k] * B[k,j]"


def tiled(text=MATMUL, *types):
    types = types or (pk.f64[21, 9], pk.f64[9, 70])
    return pk.op(text).schedule(*types, target="cuda-sim", auto=False)


@needs_compiler
def test_a_schedule_of_ones_own_is_proven_and_run():
    s = pk.op("C[i,j] = A[i] * B[j]").schedule(pk.f64[21], pk.f64[70], target="cuda-sim", auto=False).tile(i=8, j=32)
    s = s.map({"i.tile": "block.y", "j.tile": "block.x", "i.point": "thread.y", "j.point": "thread.x"})
    kernel = pk.op("C[i,j] = A[i] * B[j]").compile(pk.f64[21], pk.f64[70], schedule=s)
    assert "(3, 3, 1), (32, 8, 1)" in kernel.source("cuda")
    a, b = np.arange(21.0), np.arange(70.0)
    np.testing.assert_array_equal(kernel(a, b), np.outer(a, b))


@needs_compiler
def test_what_is_mapped_to_no_block_runs_in_one_thread():
    kernel = pk.op(MATMUL).compile(pk.f64[4, 5], pk.f64[5, 6], schedule=tiled(MATMUL, pk.f64[4, 5], pk.f64[5, 6]))
    assert "PK_LAUNCH(kernel0, (1, 1, 1), (1, 1, 1)" in kernel.source("cuda")
    a, b = np.arange(20.0).reshape(4, 5), np.arange(30.0).reshape(5, 6)
    np.testing.assert_array_equal(kernel(a, b), a @ b)


@needs_compiler
def test_a_recurrence_of_one_thread_beside_a_launch_in_a_loop_of_the_host():
    first, rest = "S[0] = X[0,0];  R[0,i] = X[0,i]", "S[t] = S[t-1] + X[t,0];  R[t,j] = S[t] * X[t,j]"
    text, x = f"f(X: f64[T,N]) -> S, R:\n    {first}\n    for t in 1:T:\n        {rest}", np.arange(30.0).reshape(6, 5)
    s = pk.op(text).schedule(X=x, target="cuda-sim", auto=False).map(j="block.x")
    kernel = pk.op(text).compile(X=x, schedule=s)
    assert "for (i64 v" in kernel.source("cuda").split("void launch(")[1]
    sums, scaled = kernel(x)
    np.testing.assert_array_equal(sums, x[:, 0].cumsum())
    np.testing.assert_array_equal(scaled[1:], sums[1:, None] * x[1:])


@pytest.mark.parametrize("role", ["block.x", "thread.x(64)"])
def test_loops_that_carry_a_dependence_are_refused_with_both_instances(role):
    s = pk.op("S[0] = X[0];  S[t] = S[t-1] + X[t] for t in 1:60").schedule(pk.f64[60], target="cuda-sim", auto=False)
    with pytest.raises(
        LegalityError, match=r"`t` runs .* at the same time, and a read-after-write dependence through S"
    ):
        s.map({"t": role})


def test_two_loops_on_one_axis_and_blocks_inside_threads_are_refused():
    s = pk.op("C[i,j] = A[i] * B[j]").schedule(pk.f64[21], pk.f64[70], target="cuda-sim", auto=False)
    with pytest.raises(LegalityError, match=r"block\.x loop"):
        s.map(i="block.x", j="block.x")
    with pytest.raises(LegalityError, match=r"block\.x loop"):
        s.map(i="thread.x(32)", j="block.x")


@pytest.mark.parametrize("role", ["block.w", "thread", "thread.x(0)", "thread.x(2000)", "thread.x"])
def test_roles_that_there_are_not_are_refused(role):
    s = pk.op("B[i] = A[i]").schedule(pk.f64[21], target="cuda-sim", auto=False)
    with pytest.raises(ScheduleError, match="cannot be carried out") as caught:
        s.map(i=role)
    assert caught.value.code == "PK548"


def test_more_iterations_than_threads_are_refused():
    s = pk.op("B[i] = A[i]").schedule(pk.f64[64], target="cuda-sim", auto=False)
    with pytest.raises(LegalityError, match="64 iterations"):
        s.map(i="thread.x(32)")


def fused(text: str, depth: int):
    return pk.op(text).schedule(pk.f64[8, 64], target="cuda-sim", auto=False).fuse("T", "O", depth=depth)


@needs_compiler
def test_one_thread_may_run_one_statement_after_the_other():
    text = "f(X: f64[8,64]) -> T, O:\n    T[i,j] = exp(X[i,j])\n    O[i,j] = T[i,j] * 2"
    s = fused(text, 2)["T"].map(i="block.x", j="thread.x(64)")
    x = np.linspace(-1, 1, 512).reshape(8, 64)
    np.testing.assert_allclose(pk.op(text).compile(pk.f64[8, 64], schedule=s)(x).O, 2 * np.exp(x), rtol=1e-14)


@needs_compiler
def test_partial_sums_that_begin_between_two_blocks_lie_in_registers():
    text = "f(C: [K], J: [L], X: [B]) -> O:\n    O[b] += X[b] * C[k] * J[k//3; pad=1] for b in 0:B where b <= k"
    kernel = pk.op(text).compile(pk.f64["K"], pk.f64["L"], pk.f64["B"], target="cuda-sim")
    assert "8 partial sums" in generated(kernel, "schedule")
    places = re.findall(r"t\d+_p\d+\[(.*?)\] [+=]", kernel.source("cuda").split("// t0:")[1])
    assert places and all(p.isdigit() for p in places)
    for terms, elements in ((40, 30), (7, 7), (16, 3), (5, 9)):
        c, j, x = (np.arange(n) % 7 - 3.0 for n in (terms, 4, elements))
        wide = np.concatenate([np.repeat(j, 3), np.ones(terms)])[:terms] * c
        np.testing.assert_array_equal(kernel(c, j, x), [v * wide[b:].sum() for b, v in enumerate(x)])
