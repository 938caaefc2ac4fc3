"""What no GPU can run is refused where a person's schedule says it, by an error that names it."""

import numpy as np
import pytest

import polyker as pk
from polyker.errors import LegalityError
from tests.gpu.support import needs_compiler

MATMUL = "C[i,j] += A[i,k] * B[k,j]"


def plain(text, *types, auto=False):
    return pk.op(text).schedule(*types, target="cuda-sim", auto=auto)


def refusal(change):
    with pytest.raises(LegalityError) as caught:
        change()
    return caught.value


def test_what_stands_beside_a_loop_over_blocks_would_be_run_by_all_of_them():
    text = "f(X: f32[4,8]) -> S, R:\n    for i in 0:4:\n        S[i] = X[i,0]\n        R[i,j] = X[i,j] * 2"
    s = plain(text, pk.f32[4, 8]).map(i="block.x")
    error = refusal(lambda: s.map(j="block.y"))
    assert error.code == "PK516"
    assert "the loop over blocks `j` stands inside `sequence` of its launch" in str(error)
    assert "block.x i" in str(s.map(j="thread.x(8)"))


def test_blocks_of_a_launch_wait_neither_for_each_other_nor_for_a_loop_around_them():
    s = plain("S[n,m] += prod[q](G[n+t] + L[q]) * K[n,t,m]", pk.f32[20], pk.f32[3], pk.f32[9, 12, 5], auto=True)
    with pytest.raises(LegalityError, match="stands inside `sequence`"):
        s.fuse("S.prod", "S.start", depth=1)
    text = "f(X: f32[4,6,8]) -> X:\n    for b in 0:4:\n        for k in 1:6:\n            X[b,k,j] = X[b,k-1,7-j]"
    s = plain(text, pk.f32[4, 6, 8]).map(b="block.y")
    error = refusal(lambda: s.map(j="block.x"))
    assert error.code == "PK516"
    assert "the loop over blocks `j` stands inside `k` of its launch" in str(error)


@pytest.mark.parametrize("roles", [("thread.y", "thread.x", 64), ("block.x", "thread.z", 128)])
def test_more_threads_than_a_block_has_are_refused(roles):
    *kinds, size = roles
    s = plain("C[i,j] = A[i] * B[j]", pk.f32[256], pk.f32[256]).tile(i=size, j=size)
    s = s.map({"i.tile": "block.y", "j.tile": "block.x"} if kinds[0] != "block.x" else {"i.tile": "block.y"})
    first = {} if kinds[0] == "block.x" else {"i.point": kinds[0]}
    error = refusal(lambda: s.map({**first, "j.point": kinds[1]}))
    assert error.code == "PK517"


@pytest.mark.parametrize("extent", [8, 32, 64])
def test_threads_that_combine_are_whole_warps_of_a_launch(extent):
    s = plain("S[i] max= X[i,k]", pk.f32[33, extent])
    error = refusal(lambda: s.map(k=f"thread.x({extent})"))
    assert error.code == "PK518"
    assert "in blocks of 1 x 1 x 1 threads" in str(error)


@pytest.mark.parametrize("tensor, at", [("A", "i"), ("C", "i")])
def test_a_shared_buffer_stands_inside_all_loops_over_blocks(tensor, at):
    s = plain(MATMUL, pk.f32[7, 9], pk.f32[9, 6]).map(i="block.x", j="block.z")
    error = refusal(lambda: s.promote(tensor, at=at, memory="shared"))
    assert error.code == "PK507"
    assert "blocks begin inside its scope" in str(error)


@pytest.mark.parametrize("role", ["block.x", "thread.x(64)"])
def test_a_thread_has_no_part_of_the_memory_that_a_call_brings(role):
    s = plain("C[i] = A[i] * 2", pk.f32[64]).map(i=role)
    error = refusal(lambda: s.promote("A", at="i", memory="scratch"))
    assert error.code == "PK507"
    assert "no part for each thread of a GPU" in str(error)


def test_an_automatic_schedule_says_where_a_shared_buffer_may_stand():
    s = plain("L[i,j] += A[i,k] * A[j,k] where j <= i", pk.f32[9, 5], auto=True)
    error = refusal(lambda: s.promote("A", at="i.block", memory="shared"))
    assert 's.promote("A", at="j.block", memory="shared")' in str(error)


@needs_compiler
def test_accumulators_of_one_thread_stand_beside_launches():
    text = "P[i,j] = exp(X[i,j] - max[k](X[i,k])) / sum[l](exp(X[i,l] - max[k](X[i,k])))"
    x = np.random.default_rng(0).normal(size=(5, 40))
    kernel = pk.op(text).compile(x, schedule=plain(text, x).map(j="block.y"))
    assert kernel.source("cuda").count("__global__ void") == 2  # what one thread runs, then the quotients
    e = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(kernel(x), e / e.sum(1, keepdims=True))


def test_a_loop_over_blocks_behind_a_barrier_is_refused():
    text = "D[i,0] = X[i,0]\nD[0,j] = X[0,j] for j in 1:5\nD[i,j] = maximum(D[i-1,j], D[i,j-1]) + X[i,j] for i in 1:5, j in 1:5"
    s = pk.op(text).schedule(pk.f32[5, 5], target="cuda-sim", auto=True).fuse("D#2", "D#3", depth=1)
    assert "barrier" in str(s)
    assert refusal(lambda: s["D#3"].map({"j": "block.y"})).code == "PK508"


def test_threads_without_a_term_of_a_sum_are_refused_where_each_element_has_one_term():
    s = plain("P[i%3] any= U[i,j,k]", pk.f32[4, 5, 1], auto=True)["P"]
    error = refusal(lambda: s.map({"k": "thread.x(32)"}))
    assert error.code == "PK513"
    assert "the 32 threads of `k` combine" in str(error)
