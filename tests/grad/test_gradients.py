"""Derivatives against finite differences, and against each other: reverse mode, forward mode, and both after one another."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import polyker as pk
from polyker.errors import ArgumentError, GradientError
from polyker.reference import interpret
from polyker.reference.interpreter import bind
from tests.grad.operators import FUNCTIONS, OPERATORS, SEQUENTIAL
from tests.grad.torch_operators import IN_TORCH

STEP = 1e-6


def arrays(shapes: dict[str, tuple[int, ...]], seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {n: rng.integers(0, 5, s) if n == "I" else rng.standard_normal(s) for n, s in shapes.items()}


def called(op: pk.Operator, given: dict[str, Any], *, compiled: bool = True) -> dict[str, np.ndarray]:
    """Return the results by name; of what is given it is called with what it takes. The interpreter compiles nothing."""
    taken = {n: v for n, v in given.items() if n in {*op.signature.parameters, *op.signature.sizes} - {*op.fixed}}
    outputs = op.signature.outputs
    if not compiled:
        inputs = {n: taken.pop(n) for n in op.signature.inputs}
        return dict(zip(outputs, interpret(op.program, inputs, {**taken, **op.fixed}), strict=True))
    found = op(**taken)
    return dict(zip(outputs, found if len(outputs) > 1 else (found,), strict=True))


ALL = {**OPERATORS, **SEQUENTIAL, "functions": (FUNCTIONS, {"X": (9,)}, {})}


@pytest.mark.parametrize("name", ALL)
def test_derivatives_are_those_of_differences_and_of_torch(name: str) -> None:
    text, shapes, sizes = ALL[name]
    op, x = pk.op(text), arrays(shapes)
    wrt = [n for n in op.signature.inputs if n != "I"]
    changes = arrays({n: x[n].shape for n in wrt}, 1)

    def near(step: float) -> dict[str, np.ndarray]:
        return called(op, {**x, **{n: x[n] + step * changes[n] for n in wrt}, **sizes}, compiled=False)

    above, below = near(STEP), near(-STEP)
    wanted = {n: (above[n] - below[n]) / (2 * STEP) for n in above}
    given = {**x, **{f"d{n}": changes[n] for n in wrt}, **sizes}
    moved = dict(zip(above, called(op.jvp(), given, compiled=False).values(), strict=True))
    for n in above:
        np.testing.assert_allclose(moved[n], wanted[n], rtol=1e-6, atol=1e-6)
    weights = arrays({n: np.shape(a) for n, a in above.items()}, 2)
    given = {**x, **{f"d{n}": weights[n] for n in above}, **sizes}
    gradients = dict(zip(wrt, called(op.vjp(), given, compiled=False).values(), strict=True))
    assert [g.shape for g in gradients.values()] == [x[n].shape for n in wrt]
    forward, backward = op.vjp_with_residuals()
    kept = called(forward, {**x, **sizes}, compiled=False)
    read = {n: a for n, a in kept.items() if n not in x}
    for n, gradient in zip(wrt, called(backward, {**given, **read}, compiled=False).values(), strict=True):
        np.testing.assert_allclose(gradient, gradients[n], rtol=1e-9, atol=1e-12)
    along = sum(float(np.sum(moved[n] * weights[n])) for n in above)
    back = sum(float(np.sum(gradients[n] * changes[n])) for n in wrt)
    np.testing.assert_allclose(along, back, rtol=1e-10, atol=1e-10)
    if name in IN_TORCH:
        by_torch = torch_gradients(name, x, list(weights.values()), wrt)
        for n in wrt:
            np.testing.assert_allclose(gradients[n], by_torch[n], rtol=1e-6, atol=1e-7)


def torch_gradients(
    name: str, x: dict[str, np.ndarray], weights: list[np.ndarray], wrt: list[str]
) -> dict[str, np.ndarray]:
    torch = pytest.importorskip("torch")
    given = {n: torch.tensor(a).requires_grad_(n in wrt) for n, a in x.items()}
    found = IN_TORCH[name](torch, torch.nn.functional, *given.values())
    results = found if isinstance(found, tuple) else (found,)
    made = torch.autograd.grad(results, [given[n] for n in wrt], [torch.tensor(w) for w in weights])
    return {n: g.numpy() for n, g in zip(wrt, made, strict=True)}


def test_torch_says_the_operators_of_all_families() -> None:
    assert len(OPERATORS) >= 60
    assert IN_TORCH.keys() <= ALL.keys()
    assert len(IN_TORCH) >= 60


@pytest.mark.parametrize("name", ["convolution", "smallest", "cross entropy", "paddings", "heat"])
def test_derivatives_compile(name: str) -> None:
    text, shapes, sizes = ALL[name]
    op, x = pk.op(text), arrays(shapes)
    weights = {f"d{n}": a for n, a in called(op, {**x, **sizes}, compiled=False).items()}
    given = {**x, **weights, **sizes}
    compiled, wanted = (called(op.vjp(), given, compiled=c) for c in (True, False))
    for n, gradient in wanted.items():
        np.testing.assert_allclose(compiled[n], gradient, rtol=1e-9, atol=1e-12)


def test_a_gradient_is_an_operator_with_a_text() -> None:
    product = pk.op("C[i,j] += A[i,k] * B[k,j]").vjp("A")
    assert product.signature.outputs == ("dA",) and product.signature.inputs == ("A", "B", "dC")
    assert "dA[i, k] += dC[i, j] * B[k, j]" in product.source()
    again = pk.op(product.source())
    a, b, c = (np.random.default_rng(n).standard_normal((4, 4)).astype(np.float32) for n in range(3))
    np.testing.assert_array_equal(product(a, b, c), again(a, b, c))
    assert product(a, b, c).dtype == np.float32
    np.testing.assert_allclose(product(a, b, c), c @ b.T, rtol=1e-5)


def test_residuals_are_results_and_reductions() -> None:
    def names(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        forward, backward = pk.op(text).vjp_with_residuals()
        return forward.signature.outputs, backward.signature.inputs

    softmax = "m[i] max= X[i,j]\ne[i,j] = exp(X[i,j] - m[i])\ns[i] += e[i,j]\nY[i,j] = e[i,j] / s[i]"
    assert names(softmax) == (("Y", "m", "s"), ("X", "m", "s", "dY"))
    assert names("Y[i] = exp(sum[k](A[i,k] * x[k]))") == (("Y", "sum_1"), ("A", "x", "sum_1", "dY"))
    assert names("S[t] = a * S[t-1; pad=0] * X[t]") == (("S",), ("a", "X", "S", "dS"))
    # Which terms a maximum is can be told only of terms that are computed along with it.
    assert names("m[i] max= X[i,j] * y[j]") == (("m",), ("X", "y", "dm"))
    assert names("C[i,j] += A[i,k] * B[k,j]") == (("C",), ("A", "B", "dC"))
    loop = "f(X: f64[N], T) -> A:\n  A[i] = X[i]\n  for t in 0:T:\n    A[i] = A[i] - 0.1 * A[i]"
    assert names(loop) == (("A",), ("X", "dA"))
    states = "\n  h[0] = X[0]\n  for t in 0:T:\n    r[t] = exp(h[t]) * W[t]\n    h[t+1] = r[t] * r[t]"
    assert names("f(X: [1], W: [T]) -> h: [T+1]:" + states) == (("h", "r"), ("W", "h", "r", "dh"))


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
        ("f(X: c64[N]) -> Y: c64[N]:\n    Y[i] = X[i] * 2", {}, GradientError, "PK202"),
        ("f(X: f64[N], Z: c64[N]) -> Y:\n    Y[i] = abs(Z[i] * X[i])", {}, GradientError, "complex numbers"),
        ("Y[i] = X[i]", {"memory": 3}, ArgumentError, "PK7"),
        ("T[i] = X[i]; T[i] += X[s] * T[i]", {}, GradientError, "PK202"),
        ("A[i] = argmax[j](X[i,j])", {}, GradientError, "PK207"),
    ],
)
def test_what_has_no_gradient_says_so(text: str, kwargs: dict[str, Any], error: type[Exception], code: str) -> None:
    with pytest.raises(error, match=code):
        pk.op(text).vjp(**kwargs)


@pytest.mark.parametrize(
    "name",
    [
        "layer norm",
        "mean",
        "mean of some",
        "triangular means",
        "softmax",
        "max pool",
        "attention",
        "smallest",
        "cross entropy",
        "product",
        "gelu network",
    ],
)
def test_gradients_of_f32_are_f32(name: str) -> None:
    text, shapes, sizes = OPERATORS[name]
    op, x = pk.op(text), {n: a if n == "I" else a.astype("f4") for n, a in arrays(shapes).items()}
    weights = {f"d{n}": a for n, a in called(op, {**x, **sizes}, compiled=False).items()}
    assert {g.dtype for g in called(op.vjp(), {**x, **weights, **sizes}, compiled=False).values()} == {np.dtype("f4")}


def temporaries(op: pk.Operator, sizes: dict[str, int]) -> dict[str, int]:
    """Return how many elements each temporary of an operator has."""
    shapes = bind(
        op.program,
        {n: np.empty([sizes[e.name] for e in op.program.declaration(n).shape or ()]) for n in op.program.inputs},
        sizes,
    ).shapes
    return {n: int(np.prod(shapes[n])) for n in op.program.temporaries}


WAVES = SEQUENTIAL["waves that are not linear"][0]


def test_a_loop_keeps_the_values_of_as_many_steps_as_it_may() -> None:
    count, steps = 50, 1000
    for memory in (100, 70):
        for derived in (
            pk.op(WAVES).vjp(memory=memory),
            pk.op(WAVES).jvp(memory=memory),
            pk.op(WAVES, T=steps).vjp(memory=memory),
        ):
            sizes = {"N": count, "T": steps}
            assert all(n <= memory * count for n in temporaries(derived, sizes).values())
    kept = temporaries(pk.op(WAVES).vjp(memory=None), {"N": count, "T": steps})
    assert max(kept.values()) == (steps + 1) * count


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 5, 11, 12])
def test_values_that_are_computed_again_are_the_same(steps: int) -> None:
    op, x = pk.op(WAVES), arrays({"X": (6,), "c": (6,), "dA": (6,)})
    every, some, few = (
        list(called(o.vjp(memory=m), {**x, "T": steps}, compiled=False).values())
        for o, m in ((op, None), (op, 8), (pk.op(WAVES, T=steps), 5))
    )
    np.testing.assert_array_equal(every, some)
    np.testing.assert_array_equal(every, few)


def test_a_product_of_the_second_derivative_through_a_loop() -> None:
    text = "f(X: f64[N], T) -> s:\n    A[i] = X[i]\n    for t in 0:T:\n        A[i] = sin(A[i]) * A[i]\n    s = sum[i](A[i])"
    op, x, v = pk.op(text), arrays({"X": (4,)})["X"], arrays({"X": (4,)}, 1)["X"]
    gradient = op.grad("X", memory=None)
    above, below = (called(gradient, {"X": x + s * v, "T": 3}, compiled=False)["dX"] for s in (STEP, -STEP))
    product = gradient.jvp("X", memory=None)
    (found,) = called(product, {"X": x, "dX_1": v, "T": 3}, compiled=False).values()
    np.testing.assert_allclose(found, (above - below) / (2 * STEP), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    "text",
    [
        "P[i,j] = exp(X[i,j] - max[k](X[i,k])) / sum[l](exp(X[i,l] - max[k](X[i,k])))",
        "L[i] = logsumexp[k](X[i,k])",
        "L[i] logsumexp= X[i,k]",
    ],
)
def test_no_gradient_goes_through_a_shift(text: str) -> None:
    assert "dmax" not in pk.op(text).vjp().source() and "ties" not in pk.op(text).vjp().source()


@pytest.mark.parametrize(
    "text",
    [
        "Y[i] = exp(X[i] - max[k](X[k]))",
        "Y[i] = exp(X[i] - max[k](X[k])) / sum[l](exp(X[l]))",
        "Y = max[k](X[k]) + log(sum[l](exp(X[l] - 2 * max[k](X[k]))))",
        "Y[i] = max[k](X[k] * i) + log(sum[l](exp(X[l] * i - max[k](X[k] * 2)))) for i in 0:3",
    ],
)
def test_a_gradient_goes_through_what_is_no_shift(text: str) -> None:
    assert "ties" in pk.op(text).vjp().source()


def test_ellipses_are_derived_where_shapes_are_declared() -> None:
    op = pk.op("f(A: f64[B,N,K], C: f64[1,K,M]) -> D:\n    D[...,i,j] += A[...,i,k] * C[...,k,j]")
    x = arrays({"A": (2, 3, 4), "C": (1, 4, 5), "dD": (2, 3, 5)})
    found = called(op.vjp(), x, compiled=False)
    np.testing.assert_allclose(found["dA"], x["dD"] @ x["C"].swapaxes(1, 2), rtol=1e-12)
    np.testing.assert_allclose(found["dC"], (x["A"].swapaxes(1, 2) @ x["dD"]).sum(0, keepdims=True), rtol=1e-12)


def test_cases_of_padding_that_never_occur_are_left_out() -> None:
    op = pk.op("f(X: f64[5], Y: f64[N]) -> Z:\n    Z[i] = Y[i] * X[i%2; pad=reflect]").vjp("X")
    assert op.source().count("dX[") == 1  # what lies inside
    any_size = pk.op("Z[i] = Y[i] * X[i%2; pad=reflect]").vjp("X")
    np.testing.assert_allclose(any_size(Y=np.ones(4), X=np.ones(3), dZ=np.ones(4)), [2, 2, 0])


def test_integers_do_not_change() -> None:
    with pytest.raises(GradientError, match="PK206"):
        pk.op("Y[i] = f64(i64(X[i]))").vjp()
    np.testing.assert_allclose(pk.op("Y[i] = X[i] + f64(i64(3 * X[i]))").vjp()(X=np.ones(3), dY=np.ones(3)), np.ones(3))


@pytest.mark.parametrize("text", ["m[i] max= x[i,j] * y[j] + y[j]", "m[i] = min[j](x[i,j] * 0.3)", "m[i] max= x[i,j]"])
def test_an_extremum_that_was_rounded_is_one_of_its_terms(text: str) -> None:
    x, y = (a.astype("f2") for a in arrays({"x": (20, 9), "y": (9,)}).values())
    op = pk.op(text).vjp("x")
    gradient = called(op, {"x": x, "y": y, "dm": np.ones(20, "f2")})["dx"]
    assert (np.count_nonzero(gradient, axis=1) >= 1).all()
