"""jax.export of functions with operators in them, for known and for symbolic shapes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import polyker as pk
from polyker.errors import ShapeError

jax = pytest.importorskip("jax", reason="jax is an extra, and not installed")
jnp = jax.numpy

PRODUCT = pk.jax.op("C[i,j] += A[i,k] * B[k,j]")


def exported(f: Callable[..., Any], *types: Any) -> Callable[..., Any]:
    checks = pk.jax.safety_checks(f, *types)
    return jax.export.export(jax.jit(f), disabled_checks=checks)(*types).call


def shaped(*shape: Any) -> Any:
    return jax.ShapeDtypeStruct(shape, "float32")


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


def test_an_exported_function_runs() -> None:
    a, b = normal(2, 3), normal(3, 4)

    def f(a: Any, b: Any) -> Any:
        return jax.grad(lambda a: (PRODUCT(a, b) ** 2).sum())(a)

    assert len(pk.jax.safety_checks(f, a, b)) == 2
    np.testing.assert_allclose(exported(f, a, b)(a, b), f(a, b), rtol=1e-5)


def test_symbolic_shapes_are_exported_once() -> None:
    m, k, n = jax.export.symbolic_shape("m, k, n")
    call = exported(PRODUCT, shaped(m, k), shaped(k, n))
    for shape in ((2, 3, 4), (5, 7, 1), (33, 20, 40)):
        a, b = normal(*shape[:2]), normal(*shape[1:])
        np.testing.assert_allclose(call(a, b), a @ b, rtol=1e-4, atol=1e-4)


def test_sizes_that_have_to_agree_are_checked_by_the_handler() -> None:
    m, k, n, other = jax.export.symbolic_shape("m, k, n, other")
    call = exported(PRODUCT, shaped(m, k), shaped(other, n))
    np.testing.assert_allclose(call(normal(2, 3), normal(3, 2)), normal(2, 3) @ normal(3, 2), rtol=1e-4)
    with pytest.raises(Exception, match=r"index `k` has (.|\n)*\^"):
        jax.block_until_ready(call(normal(2, 3), normal(4, 2)))


def test_extents_that_depend_on_symbols() -> None:
    windows = pk.jax.op("O[n,i] += X[n,i+r] * W[r]")
    n, m = jax.export.symbolic_shape("n, m")
    with pytest.raises(ShapeError, match="an extent of `O` cannot be told"):
        jax.eval_shape(windows, shaped(n, m), shaped(3))
    n, m = jax.export.symbolic_shape("n, m", constraints=["m >= 3"])
    found = exported(windows, shaped(n, m), shaped(3))(np.ones((2, 6), np.float32), np.ones(3, np.float32))
    assert found.tolist() == [[3.0] * 4] * 2


def test_temporaries_and_derivatives_of_symbolic_shapes() -> None:
    (n,) = jax.export.symbolic_shape("n")
    smooth = pk.jax.op("""smooth(A: f32[N], steps) -> A:
        for t in 0:steps:
            B[i] = A[i-1] + A[i+1] for i in 1:N-1
            A[i] = B[i] for i in 1:N-1""")
    x = normal(7)
    np.testing.assert_allclose(exported(lambda a: smooth(a, 2), shaped(n))(x), smooth(x, 2), rtol=1e-5)
    cube = pk.jax.op("Y[i] = X[i] ** 3")
    found = exported(jax.grad(lambda x: cube(x).sum()), shaped(n))(x)
    np.testing.assert_allclose(found, 3 * x**2, rtol=1e-5)
