"""vmap: by one more index in the program, or one after another where a text cannot say that."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import polyker as pk
from polyker.bridge.batched import batched

jax = pytest.importorskip("jax", reason="jax is an extra, and not installed")
jnp = jax.numpy
from tests.bridge.jax.operators import OPERATORS  # noqa: E402

PRODUCT = pk.jax.op("C[i,j] += A[i,k] * B[k,j]")


def normal(*shape: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(len(shape)).standard_normal(shape), "float32")


def near(found: Any, wanted: Any) -> None:
    np.testing.assert_allclose(np.asarray(found), np.asarray(wanted), rtol=1e-5, atol=1e-5)


def calls(f: Any, *args: Any) -> list[str]:
    """Return the operators that a function calls, and the loops that it has."""
    return re.findall(r"call=(\w+)\(|\b(?:scan|while)\[", str(jax.make_jaxpr(f)(*args)))


@pytest.mark.parametrize("name", ["recurrence", "gather"])
def test_a_batched_program_computes_what_each_call_does(name: str) -> None:
    text, make, sizes = OPERATORS[name]
    operator = pk.op(text)
    one, other = make(), {n: a if a.dtype.kind == "i" else a + 1 for n, a in make().items()}
    for batch in [list(one), list(one)[:1]]:
        made = batched(operator.program, {n: one[n].ndim for n in batch})  # behind the other dimensions
        assert made is not None
        arrays = {n: np.stack([one[n], other[n]], -1) if n in batch else one[n] for n in one}
        found = pk.op(made.text)(**arrays, **sizes)
        for k, each in enumerate((one, other)):
            near(found[k], operator(**{n: each[n] if n in batch else one[n] for n in one}, **sizes))


def test_vmap_is_one_call_over_any_axes() -> None:
    a, b = normal(5, 2, 3), normal(3, 4)
    f = jax.vmap(PRODUCT, (0, None))
    near(f(a, b), a @ b)
    assert calls(f, a, b) == ["op_batch"]
    near(jax.vmap(PRODUCT, (2, None), 1)(jnp.moveaxis(a, 0, 2), b), jnp.moveaxis(a @ b, 0, 1))
    nested = jax.vmap(jax.vmap(PRODUCT, (0, None)), (None, 0))
    assert calls(nested, a, normal(2, 3, 4)) == ["op_batch_batch"]


def test_gradients_are_batched_and_batches_have_gradients() -> None:
    a, b = normal(5, 2, 3), normal(3, 4)
    loss, plain = (lambda a, b, f=f: (f(a, b) ** 2).sum() for f in (PRODUCT, jnp.matmul))
    one = jax.vmap(jax.grad(loss), (0, None))
    assert "op_vjp_batch" in calls(one, a, b)
    whole, other = (jax.grad(lambda a, b, f=f: jax.vmap(f, (0, None))(a, b).sum(), 1) for f in (loss, plain))
    near(whole(a, b), other(a, b))


def test_arguments_that_are_results_too() -> None:
    histogram = pk.jax.op("hist(H: f32[N], I, W) -> H:\n    H[I[i]] += W[i]")
    places = jnp.array([[0, 1, 1], [3, 3, 3]])
    found = jax.vmap(histogram, (None, 0, None))(jnp.ones(4), places, jnp.ones(3))
    assert found.tolist() == [[2, 3, 1, 1], [1, 1, 1, 4]]
    add = pk.jax.op("add(A: f32[N], B: f32[N]) -> A:\n    A[i] = A[i] + B[i]")
    near(jax.vmap(add, (1, None))(normal(3, 2), jnp.ones(3)), normal(3, 2).T + 1)


def test_what_depends_on_no_batch_has_none() -> None:
    f = pk.jax.op("S = sum[i](X[i]); Y[i] = W[i] + 1")
    found = jax.vmap(f, (0, None), f(normal(3), normal(3))._replace(S=0, Y=None))(normal(2, 3), normal(3))
    assert found.S.shape == (2,)
    assert found.Y.shape == (3,)


def test_programs_with_dots_run_one_after_another() -> None:
    f = pk.jax.op("Y[...,i] = X[...,i] * W[i]")
    x = normal(2, 3, 4)
    near(jax.vmap(f, (1, None))(x, jnp.arange(4.0)), jnp.moveaxis(x, 1, 0) * jnp.arange(4.0))
    assert batched(pk.op("Y[...,i] = X[...,i]").program, {"X": 0}) is None
