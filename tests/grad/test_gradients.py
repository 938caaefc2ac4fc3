"""Derivatives against finite differences, and against each other: reverse mode, forward mode, and both after one another."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import polyker as pk
from polyker.errors import ArgumentError, GradientError
from tests.grad.operators import FUNCTIONS, OPERATORS, SEQUENTIAL

STEP = 1e-6


def arrays(shapes: dict[str, tuple[int, ...]], seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {n: rng.integers(0, 5, s) if n == "I" else rng.standard_normal(s) for n, s in shapes.items()}


def called(op: pk.Operator, given: dict[str, Any]) -> dict[str, np.ndarray]:
    """Return the results by name; of what is given it is called with what it takes."""
    taken = {*op.signature.parameters, *op.signature.sizes} - {*op.fixed}
    found = op(**{n: v for n, v in given.items() if n in taken})
    outputs = op.signature.outputs
    return dict(zip(outputs, found if len(outputs) > 1 else (found,), strict=True))


def compare(text: str, shapes: dict[str, tuple[int, ...]], sizes: dict[str, int]) -> None:
    op, x = pk.op(text), arrays(shapes)
    reverse, forward = op.vjp(), op.jvp()
    results = called(op, {**x, **sizes})
    wrt = [name for name in op.signature.inputs if name != "I"]
    changes = arrays({n: x[n].shape for n in wrt}, 1)
    weights = arrays({n: np.shape(a) for n, a in results.items()}, 2)

    def near(step: float) -> dict[str, np.ndarray]:
        return called(op, {**x, **{n: x[n] + step * changes[n] for n in wrt}, **sizes})

    above, below = near(STEP), near(-STEP)
    wanted = [(above[n] - below[n]) / (2 * STEP) for n in results]
    moved = list(called(forward, {**x, **{f"d{n}": changes[n] for n in wrt}, **sizes}).values())
    for one, other in zip(moved, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)
    gradients = list(called(reverse, {**x, **{f"d{n}": weights[n] for n in results}, **sizes}).values())
    assert [g.shape for g in gradients] == [x[n].shape for n in wrt]
    along = sum(float(np.sum(m * weights[n])) for m, n in zip(moved, results, strict=True))
    back = sum(float(np.sum(g * changes[n])) for g, n in zip(gradients, wrt, strict=True))
    np.testing.assert_allclose(along, back, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", SEQUENTIAL)
def test_what_runs_step_by_step_has_the_derivatives_of_finite_differences(name: str) -> None:
    compare(*SEQUENTIAL[name])


@pytest.mark.parametrize("name", OPERATORS)
def test_derivatives_are_those_of_finite_differences(name: str) -> None:
    compare(*OPERATORS[name])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_have_the_derivatives_of_finite_differences(name: str) -> None:
    compare(FUNCTIONS[name], {"X": (9,)}, {})


def test_a_gradient_is_an_operator_with_a_text() -> None:
    product = pk.op("C[i,j] += A[i,k] * B[k,j]").vjp("A")
    assert product.signature.outputs == ("dA",) and product.signature.inputs == ("A", "B", "dC")
    assert "dA[i, k] += dC[i, j] * B[k, j]" in product.source()
    again = pk.op(product.source())
    a, b, c = (np.random.default_rng(n).standard_normal((4, 4)).astype(np.float32) for n in range(3))
    np.testing.assert_array_equal(product(a, b, c), again(a, b, c))
    assert product(a, b, c).dtype == np.float32
    np.testing.assert_allclose(product(a, b, c), c @ b.T, rtol=1e-5)


def test_the_gradient_of_a_number_takes_no_weight() -> None:
    loss = pk.op("s = sum[i](w[i] * x[i]**2)")
    x, w = np.arange(4.0), np.array([1.0, 2.0, 3.0, 4.0])
    np.testing.assert_allclose(loss.grad(wrt="x", of="s")(w=w, x=x), 2 * w * x)
    with pytest.raises(ArgumentError, match="PK205"):
        pk.op("y[i] = x[i]**2").grad()


def test_derivatives_go_after_one_another() -> None:
    loss = pk.op("s = sum[i](exp(x[i]) * x[i]**3)")
    x, v = np.array([0.5, -1.0, 2.0]), np.array([1.0, 2.0, -3.0])
    second = np.exp(x) * (x**3 + 6 * x**2 + 6 * x)
    hvp = loss.grad(wrt="x").jvp(wrt="x")
    np.testing.assert_allclose(
        called(hvp, {"x": x, "dx_1": v, "dx": v})[hvp.signature.outputs[0]], second * v, rtol=1e-12
    )


def test_terms_that_tie_share_an_extremum_equally() -> None:
    largest = pk.op("m = max[i](x[i])").grad()
    np.testing.assert_allclose(largest(np.array([1.0, 3.0, 3.0, 2.0])), [0, 0.5, 0.5, 0])
    of_two = pk.op("y[i] = maximum(x[i], z[i])").vjp()
    found = of_two(np.array([1.0, 2.0]), np.array([1.0, 3.0]), np.ones(2))
    np.testing.assert_allclose(found, [[0.5, 0], [0.5, 1]])


def test_a_product_with_zeros_has_a_gradient() -> None:
    product = pk.op("p = prod[i](x[i])").grad()
    np.testing.assert_allclose(product(np.array([2.0, 0.0, 3.0])), [0, 6, 0])
    np.testing.assert_allclose(product(np.array([2.0, 0.0, 0.0])), [0, 0, 0])
    np.testing.assert_allclose(product(np.array([2.0, 4.0, 3.0])), [12, 6, 8])


def test_what_is_not_chosen_makes_no_nan() -> None:
    root = pk.op("y[i] = where(x[i] > 0, sqrt(x[i]), 0)").vjp()
    np.testing.assert_allclose(root(np.array([4.0, 0.0, -1.0]), np.ones(3)), [0.25, 0, 0])


def test_a_gradient_by_a_convolutions_input_is_a_convolution() -> None:
    op = pk.op("O[i] += X[i+r] * W[r]").vjp("X")
    kernel = op.compile(X=pk.f64[40], W=pk.f64[5], dO=pk.f64[36])
    assert re.search(r"dX\[\w+\] \+= dO\[\w+ - \w+\]\*W\[\w+\]", kernel.source("after:gather_form"))


@pytest.mark.parametrize(
    ("text", "kwargs", "error", "code"),
    [
        ("Y[i] = X[i]", {"wrt": "Z"}, ArgumentError, "PK203"),
        ("Y[i] = X[I[i]]", {"wrt": "I"}, ArgumentError, "PK203"),
        ("Y[i] = X[i]", {"of": "Z"}, ArgumentError, "PK204"),
        ("Y[i] = X[i]", {"wrt": 3}, ArgumentError, "PK7"),
        ("Y[i] = X[i]; Z[i] = W[i]", {"wrt": "W", "of": "Y"}, GradientError, "PK206"),
        ("Y[i] = floor(X[i])", {}, GradientError, "PK206"),
        ("Y[i] = digamma(X[i])", {}, GradientError, "PK201"),
        ("Y[...] = X[...]", {}, GradientError, "PK202"),
        ("f(X: f64[N], I: i64[N]) -> Y: f64[N]:\n    Y[I[i]] = X[i]", {}, GradientError, "PK202"),
        (
            "f(X: f64[N]) -> A:\n    A[i] = X[i]\n    for t in 0:3:\n        for s in 0:2:\n            A[i] = A[i] * X[i]",
            {},
            GradientError,
            "PK202",
        ),
        ("f(X: c64[N]) -> Y: c64[N]:\n    Y[i] = X[i] * 2", {}, GradientError, "PK207"),
        ("A[i] = argmax[j](X[i,j])", {}, GradientError, "PK207"),
    ],
)
def test_what_has_no_gradient_says_so(text: str, kwargs: dict[str, Any], error: type[Exception], code: str) -> None:
    with pytest.raises(error, match=code):
        pk.op(text).vjp(**kwargs)


@pytest.mark.parametrize(
    "name",
    ["layer norm", "mean", "softmax", "max pool", "attention", "smallest", "cross entropy", "product", "gelu network"],
)
def test_gradients_of_f32_are_f32(name: str) -> None:
    text, shapes, sizes = OPERATORS[name]
    op, x = pk.op(text), {n: a if n == "I" else a.astype("f4") for n, a in arrays(shapes).items()}
    weights = {f"d{n}": a for n, a in called(op, {**x, **sizes}).items()}
    assert {g.dtype for g in called(op.vjp(), {**x, **weights, **sizes}).values()} == {np.dtype("f4")}


@pytest.mark.parametrize("text", ["m[i] max= x[i,j] * y[j] + y[j]", "m[i] = min[j](x[i,j] * 0.3)", "m[i] max= x[i,j]"])
def test_an_extremum_that_was_rounded_is_one_of_its_terms(text: str) -> None:
    x, y = (a.astype("f2") for a in arrays({"x": (20, 9), "y": (9,)}).values())
    op = pk.op(text).vjp("x")
    gradient = called(op, {"x": x, "y": y, "dm": np.ones(20, "f2")})["dx"]
    assert (np.count_nonzero(gradient, axis=1) >= 1).all()
