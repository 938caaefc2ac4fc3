"""Statements that share a launch: each thread runs one after the other on its own elements."""

import numpy as np
import pytest

import polyker as pk
from tests.gpu.support import needs_compiler


def launches(kernel):
    return kernel.source("cuda").count("PK_LAUNCH(kernel")


def on_sim(text, *arrays, **sizes):
    kernel = pk.op(text, **sizes).compile(*arrays, target="cuda-sim")
    return launches(kernel), kernel(*arrays)


def random(*shape):
    return np.random.default_rng(len(shape)).normal(size=shape)


@needs_compiler
@pytest.mark.parametrize("shape", [(37, 70), (1, 1), (0, 5), (3, 300)])
def test_a_chain_of_elementwise_statements_is_one_launch(shape):
    x, b = random(*shape), random(shape[1])
    text = "f(X, b) -> A, B, C:\n    A[i,j] = exp(X[i,j])\n    B[i,j] = A[i,j] * b[j]\n    C[i,j] = B[i,j] + A[i,j]"
    count, found = on_sim(text, x, b)
    assert count == (x.size > 0)
    np.testing.assert_allclose(found.C, np.exp(x) * b + np.exp(x), rtol=1e-14)


@needs_compiler
def test_a_temporary_that_only_one_thread_uses_lies_in_its_registers():
    text = "f(X, W, b) -> O:\n    T[n,o] += X[n,i] * W[o,i]\n    O[n,o] = maximum(T[n,o] + b[o], 0) * T[n,o]"
    x, w, b = random(12, 50), random(30, 50), random(30)
    kernel = pk.op(text).compile(x, w, b, target="cuda-sim")
    assert launches(kernel) == 1 and "T on the chip" in kernel.source("schedule")
    assert "T, f64" not in kernel.source("cuda")
    t = x @ w.T
    np.testing.assert_allclose(kernel(x, w, b), np.maximum(t + b, 0) * t, rtol=1e-12)


@needs_compiler
def test_results_of_which_a_thread_takes_several_stay_with_it():
    text = "T[n,o] += X[n,i] * W[i,o];  O[n,o] = T[n,o] * T[n,o] + b[o]"
    types = (pk.f32[5000, 6], pk.f32[6, 256], pk.f32[256])
    kernel = pk.op(f"f(X, W, b) -> O:\n    {text.replace(';  ', chr(10) + '    ')}").compile(*types, target="cuda-sim")
    assert launches(kernel) == 1 and "t3_p0[8]" in kernel.source("cuda")
    x, w, b = random(5000, 6).astype("f4"), random(6, 256).astype("f4"), random(256).astype("f4")
    np.testing.assert_allclose(kernel(x, w, b), (x @ w) ** 2 + b, rtol=1e-3, atol=1e-4)


@needs_compiler
def test_one_thread_folds_a_sum_and_goes_on_with_it():
    x = random(3000)
    kernel = pk.op("f(X) -> m, y:\n    s += X[i] * X[i]\n    m = s / 3000\n    y = sqrt(m) + m").compile(
        x, target="cuda-sim"
    )
    assert "s on the chip" in kernel.source("schedule")
    found = kernel(x)
    np.testing.assert_allclose(found, [(x * x).mean(), np.sqrt((x * x).mean()) + (x * x).mean()], rtol=1e-12)


@needs_compiler
def test_two_statements_that_read_the_same_share_a_launch():
    x = random(40, 30)
    count, found = on_sim("Y[i,j] = exp(X[i,j]);  Z[i,j] = X[i,j] * 2", x)
    assert count == (x.size > 0)
    np.testing.assert_allclose(found.Y, np.exp(x))
    np.testing.assert_array_equal(found.Z, 2 * x)


@needs_compiler
@pytest.mark.parametrize(
    "text, want",
    [
        (
            "Y[i,j] = 2 * X[i,j]\n    Z[i,j] = Y[i,j] + Y[i,j+1] for i in 0:40, j in 0:39",
            lambda x: 2 * (x[:, :-1] + x[:, 1:]),
        ),
        ("Y[i,j] = 2 * X[i,j]\n    Z[i,j] = Y[j,i] + Y[i,j]", lambda x: 2 * (x + x.T)),
    ],
)
def test_elements_of_other_threads_are_read_in_a_launch_of_their_own(text, want):
    x = random(40, 40)
    count, found = on_sim(f"f(X) -> Y, Z:\n    {text}", x)
    assert count == 2
    np.testing.assert_allclose(found.Z, want(x), rtol=1e-14)


@needs_compiler
def test_a_element_that_is_read_before_another_thread_overwrites_it_is_kept_apart():
    text = "f(A: f64[50]) -> A, B:\n    B[i] = A[i] * A[i]\n    A[i] = B[49-i]"
    a = random(50)
    count, found = on_sim(text, a.copy())
    assert count == 2
    np.testing.assert_allclose(found.A, (a * a)[::-1])


@needs_compiler
def test_parts_of_a_tensor_go_to_the_threads_of_their_elements():
    text = "f(X) -> B, C:\n    B[i] = X[i] * 2 for i in 0:40\n    B[i] = X[i] * 3 for i in 40:90\n    C[i] = B[i] + 1"
    x = random(90)
    _, found = on_sim(text, x)
    np.testing.assert_allclose(found.C, np.r_[x[:40] * 2, x[40:] * 3] + 1)


def test_statements_whose_neighbours_lie_along_other_indices_stay_apart():
    kernel = pk.op("f(X) -> Y, Z:\n    Y[i,j] = exp(X[i,j])\n    Z[j,i] = Y[i,j]").compile(
        pk.f32[640, 640], target="cuda:sm_80"
    )
    assert launches(kernel) == 2


@needs_compiler
def test_a_part_of_the_elements_is_updated_by_the_threads_that_have_them():
    n = np.array([3, 99, 7], "u1")
    _, found = on_sim("O[a] *= -(N[a]) where a >= 1", n)
    np.testing.assert_array_equal(found, [1, 157, 249])


@needs_compiler
def test_a_temporary_without_elements_is_held_nowhere():
    text = "D[a,b] += X[b,b+1] * R[n,c] for a in 0:n;  O[d,y] = sin(N[d] - D[y,d])"
    kernel = pk.op(text).compile(random(17, 19), random(1, 1), random(17), target="cuda-sim")
    assert "one thread" not in kernel.source("schedule")
    assert kernel(random(17, 19), random(1, 1), random(17)).shape == (17, 0)
