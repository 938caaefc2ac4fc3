"""Derivatives under JAX's transformations; all operators at both orders are in `python -m tests.bridge.jax.gradients`."""

from __future__ import annotations

import numpy as np
import pytest

import polyker as pk
from polyker.errors import GradientError

jax = pytest.importorskip("jax", reason="jax is an extra, and not installed")
jnp = jax.numpy
from tests.bridge.jax.gradients import check  # noqa: E402

PRODUCT = pk.jax.op("C[i,j] += A[i,k] * B[k,j]")
CUBE = pk.jax.op("Y[i] = X[i] ** 3")
TAKE = pk.jax.op("O[i] = X[I[i]] ** 2")
FIRST = ("softmax", "padded stencil", "recurrence")
SECOND = ("triangular",)  # of which second derivatives compile quickly


@pytest.mark.parametrize("name", FIRST)
def test_gradients_are_those_of_numerical_differences(name: str) -> None:
    check(name, 1, ("rev",))


@pytest.mark.parametrize("name", SECOND)
def test_second_derivatives_are_those_of_numerical_differences(name: str) -> None:
    check(name, 2, ("rev",))


def test_forward_mode_and_both_after_one_another() -> None:
    x = jnp.arange(3.0)
    assert jax.jvp(CUBE, (x,), (jnp.ones(3),))[1].tolist() == [0, 3, 12]
    hessian = jax.hessian(lambda x: CUBE(x).sum())(x)
    assert hessian.tolist() == np.diag([0.0, 6.0, 12.0]).tolist()
    assert jax.grad(lambda x: jax.checkpoint(CUBE)(x).sum())(x).tolist() == [0, 3, 12]


def test_an_operator_that_is_linear_in_an_argument_is_transposed() -> None:
    a, b = jnp.ones((2, 3)), jnp.arange(12.0).reshape(3, 4)
    (found,) = jax.linear_transpose(lambda a: PRODUCT(a, b), a)(jnp.ones((2, 4)))
    assert (found == jnp.ones((2, 4)) @ b.T).all()
    assert (jax.linearize(lambda a: PRODUCT(a, b), a)[1](2 * a) == 2 * a @ b).all()


def test_integers_have_gradients_of_float0() -> None:
    x, i = jnp.arange(3.0), jnp.array([2, 2])
    by_x, by_i = jax.vjp(TAKE, x, i)[1](jnp.ones(2))
    assert by_x.tolist() == [0, 0, 8]
    assert by_i.dtype == jax.dtypes.float0


def test_what_changes_with_no_input_has_the_gradient_0() -> None:
    f = pk.jax.op("S = sum[i](X[i]**2); N[i] = floor(X[i]); Q[i] = i32(X[i])")
    x = jnp.arange(3.0)
    assert jax.grad(lambda x: f(x).S + f(x).N.sum())(x).tolist() == [0, 2, 4]
    assert jax.grad(lambda x: f(x).N.sum())(x).tolist() == [0, 0, 0]


def test_an_argument_that_is_a_result_too_has_a_gradient() -> None:
    add = pk.jax.op("add(A: f32[N], B: f32[N]) -> A:\n    A[i] = A[i] + B[i]**2")
    x = jnp.arange(3.0)
    by_a, by_b = jax.grad(lambda a, b: (add(a, b) ** 2).sum(), (0, 1))(x, x)
    assert by_a.tolist() == [0, 4, 12]
    assert by_b.tolist() == [0, 8, 48]


def test_what_has_no_gradient_says_where() -> None:
    x = jnp.ones(3)
    digamma = pk.jax.op("Y[i] = digamma(X[i])")
    assert jax.jit(digamma)(x).shape == (3,)
    with pytest.raises(GradientError, match=r"`digamma` has no derivative(.|\n)*\^\^\^"):
        jax.grad(lambda x: digamma(x).sum())(x)
    square = pk.jax.op("Y[i] = X[i] * X[i]")
    with pytest.raises(GradientError, match="`X` is c64"):
        jax.grad(lambda x: square(x).real.sum())(x + 0j)
