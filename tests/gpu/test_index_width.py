"""Indices of 32 bits where every intermediate result is proven to fit, else of 64."""

import re
from itertools import product

import numpy as np
import pytest

import polyker as pk
from polyker.codegen.cuda.expressions import I32_LIMIT, CudaExpressions, magnitude
from polyker.codegen.ir.kernel import Const, Op, Var
from polyker.codegen.ir.polynomial import evaluate
from tests.gpu.support import needs_compiler

X, Y = Var("x"), Var("y")
RANGES = {"x": (-3, 5), "y": (0, 7), "n": (0, None)}


def op(name, *args):
    return Op(name, tuple(a if not isinstance(a, int) else Const(a) for a in args))


def parts(expr):
    yield expr
    for arg in getattr(expr, "args", ()):
        yield from parts(arg)


@pytest.mark.parametrize(
    "expr",
    [X, op("add", X, Y, -40), op("sub", X, op("mul", 9, Y)), op("neg", op("mul", X, Y)), op("floordiv", X, 2),
     op("mod", op("sub", X, 30), 7), op("minimum", X, op("mul", Y, -9)), op("maximum", Y, op("floordiv", op("mul", X, 11), 3))],
)  # fmt: skip
def test_the_magnitude_bounds_all_that_is_computed(expr):
    bound = magnitude(expr, RANGES, {"x", "y"})
    for x, y in product(range(-3, 6), range(8)):
        assert all(abs(evaluate(e, {"x": x, "y": y})) <= bound for e in parts(expr))


def test_what_may_not_fit_or_is_not_known_has_no_magnitude():
    for expr in (Var("n"), op("mul", X, I32_LIMIT // 3), op("sub", op("mul", X, I32_LIMIT // 5), op("mul", X, I32_LIMIT // 5)),
                 Const(I32_LIMIT), op("floordiv", X, Y), op("where", X, X, Y)):  # fmt: skip
        assert magnitude(expr, RANGES, {"x", "y"}) is None
    assert magnitude(X, RANGES, set()) is None
    assert magnitude(Const(-I32_LIMIT + 1), RANGES, set()) == I32_LIMIT - 1


def test_a_variable_has_32_bits_where_it_has_them_after_its_last_step():
    e = CudaExpressions(ranges={"a": (0, I32_LIMIT - 9), "b": (0, I32_LIMIT - 8), "c": (0, None), "d": (0, 5)})
    assert [e.declare("a", step=8), e.declare("b", step=8), e.declare("c"), e.declare("d", most=I32_LIMIT)] == [
        "i32", "i64", "i64", "i64",
    ]  # fmt: skip
    assert e.narrow == {"a"}
    assert e.index(op("add", Var("a"), Var("b"))) == "i64(a) + b"


@pytest.mark.parametrize(("size", "wide"), [(40000, False), (50000, True)])
def test_arrays_beyond_two_thousand_million_elements_have_indices_of_64_bits(size, wide):
    kernel = pk.op("T[j,i] = X[i,j]").compile(pk.i8[size, size], target="cuda:sm_90a")
    body = kernel.source("cuda").split("__global__ void __launch_bounds__")[1].split("#ifndef")[0]
    assert "const i32 v0 = blockIdx" in body and ("i64(v0)" in body) is wide
    widened = re.sub(r"i64\(\w+\)|\d+LL", "", body)
    assert not wide or not re.search(r"\bv\d+ \*|\* v\d+\b", widened.split("t1[")[1])


def test_sizes_that_are_not_known_have_64_bits():
    kernel = pk.op("T[j,i] = X[i,j]").compile(pk.i8["M", "N"], target="cuda:sm_90a")
    assert "i32 v" not in kernel.source("cuda").replace("i32 v2 = threadIdx", "").replace("i32 v3 = threadIdx", "")


@needs_compiler
def test_an_index_that_is_a_value_has_64_bits():
    text = "Y[i,j] = i * 100000 * j + X[j] // (i + 1) for i in 0:33"
    x = np.arange(40) + 10**12
    want = np.arange(33)[:, None] * 100000 * np.arange(40) + x // (np.arange(33)[:, None] + 1)
    np.testing.assert_array_equal(pk.op(text).compile(x, target="cuda-sim")(x), want)


def test_blocks_whose_number_the_host_cannot_know_are_few_along_all_axes_together():
    text = "L[r,t,z] = t * K[r,t,z]\nS[a,n,w] += L[n,w,a]\nS[a,x,j] min= Z[a,x,j]"
    kernel = pk.op(text).compile(pk.f64["A", "B", "C"], pk.f64["D", "E", "F"], target="cuda:sm_80")
    assert "1024, 1024" not in kernel.source("cuda")


@needs_compiler
def test_threads_whose_first_iteration_moves_have_no_range_of_the_first_block_alone():
    text = "f(X: f32[N], Y: f32[M]) -> O:\n    O[i,j-i] = X[i] + Y[j // 32]  for i in 0:N, j in i:i+32"
    types = {"X": pk.f32["N"], "Y": pk.f32["M"]}
    s = pk.op(text).schedule(**types, target="cuda-sim", auto=False).map({"i": "block.x", "j": "thread.x(32)"})
    x, y, i = np.arange(100.0, dtype="f4"), np.arange(5.0, dtype="f4") * 1000, np.arange(100)[:, None]
    np.testing.assert_array_equal(
        pk.op(text).compile(**types, schedule=s)(x, y), x[:, None] + y[(i + np.arange(32)) // 32]
    )


@needs_compiler
@pytest.mark.parametrize("c", [100_000, 2_000_000_000, 2**31])
def test_large_coefficients_have_64_bits(c):
    i, x, y = np.arange(200), np.arange(97.0), np.arange(200.0)
    for text, want in (
        (f"O[i] = X[i*{c} % 97] + Y[i]", x[i * c % 97] + y),
        (
            f"O[i] = X[i*{c} // {c + 7 if c < 2**31 else c} % 97] + Y[i]",
            x[i * c // (c + 7 if c < 2**31 else c) % 97] + y,
        ),
        (f"O[i] = i*{c} + 5 + 0*i64(X[0]) + i64(Y[i])", i * c + 5 + i),
    ):
        np.testing.assert_array_equal(pk.op(text).compile(x, y, target="cuda-sim")(x, y), want)
    k = pk.op(f"O[j] += X[i] * Y[j] where {c}*i <= {c // 50}*j").compile(x, y, target="cuda-sim")
    want = [x[: min(97, c // 50 * j // c + 1)].sum() * y[j] for j in range(200)]
    np.testing.assert_allclose(k(x, y), want)
