"""Every example of the notation's documentation gives NumPy's result, compiled, on the simulator of a GPU, and interpreted."""

import re
from pathlib import Path

import numpy as np
import pytest

import polyker as pk
from polyker.einsum_frontend import parse
from polyker.reference import interpret
from tests.gpu.support import needs_compiler

DOCUMENT = Path(__file__).parents[1] / "docs" / "notation.md"


def compiled(text, *arrays, **sizes):
    return pk.op(text)(*arrays, **sizes)


def simulated(text, *arrays, **sizes):
    return pk.op(text).compile(*arrays, **sizes, target="cuda-sim")(*arrays, **sizes)


def interpreted(text, *arrays, **sizes):
    program = parse(text)
    given = dict(zip(program.parameters, arrays, strict=True))
    arrays = {name: value for name, value in given.items() if name in program.inputs}
    sizes |= {name: value for name, value in given.items() if name not in program.inputs}
    result = interpret(program, arrays, sizes)
    return result[0] if len(result) == 1 else result


CALLS = [compiled, pytest.param(simulated, marks=needs_compiler), interpreted]


@pytest.fixture(params=CALLS, ids=lambda f: f.__name__)
def call(request):
    return request.param


def coded(*shape, dtype=np.float64, modulus=11, start=0):
    """Return small integers that code their position, so that sums are exact."""
    return (
        ((np.arange(start, start + np.prod(shape, dtype=int)) * 7 + 3) % modulus - modulus // 2)
        .astype(dtype)
        .reshape(shape)
    )


def windows(x, *sizes):
    axes = tuple(range(x.ndim - len(sizes), x.ndim))
    return np.lib.stride_tricks.sliding_window_view(x, sizes, axis=axes)


def same(got, expected):
    got, expected = np.asarray(got), np.asarray(expected)
    assert (got.shape, got.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_array_equal(got, expected)


def near(got, expected):
    assert np.asarray(got).dtype == expected.dtype
    np.testing.assert_allclose(got, expected, rtol=4 * np.finfo(expected.dtype).eps * 10)


A, B = coded(5, 7), coded(7, 4, start=9)


def test_matrix_product(call):
    same(call("C[i,j] += A[i,k] * B[k,j]", A, B), A @ B)


def test_pairwise_l1_distance(call):
    B = coded(3, 7, start=5)
    same(call("D[i,j] += abs(A[i,k] - B[j,k])", A, B), np.abs(A[:, None] - B[None]).sum(2))


def test_max_plus_product(call):
    same(call("C[i,j] max= A[i,k] + B[k,j]", A, B), (A[:, :, None] + B[None]).max(1))


def test_inline_reduction_with_a_fused_epilogue(call):
    X, W, bias = coded(4, 6), coded(3, 6, start=2), coded(3, start=1)
    got = call("O[b,n]  = relu(sum[m](I[b,m] * W[n,m]) + bias[n])", X, W, bias)
    same(got, np.maximum(X @ W.T + bias, 0))


def test_strided_convolution(call):
    X, K = coded(2, 3, 9, 11), coded(4, 3, 3, 2, start=4)
    got = call("O[n,f,h,w] += X[n,c,2*h+r,2*w+s] * K[f,c,r,s]", X, K)
    same(got, np.einsum("nchwrs,fcrs->nfhw", windows(X, 3, 2)[:, :, ::2, ::2], K))


@pytest.mark.parametrize("extent", [1, 9, 10])
def test_padding_and_a_size_given_by_keyword(call, extent):
    X, K = coded(10), coded(3, start=5)
    got = call("O[h] += X[h+r-1; pad=0] * K[r]  for h in 0:H", X, K, H=extent)
    same(got, np.correlate(np.pad(X, 1), K, mode="valid")[:extent])


def test_a_triangular_domain_leaves_the_identity_elsewhere(call):
    same(call("L[i,j] += A[i,k] * A[j,k]  where j <= i", A), np.tril(A @ A.T))


def test_gather(call):
    T, idx = coded(9, 4), np.array([[8, 0, 3], [3, 3, 1]])
    same(call("E[b,d] += T[idx[b,l], d]", T, idx), T[idx].sum(1))


def test_recurrence(call):
    X = coded(3, 8)
    got = call("S[b,0] = X[b,0];  S[b,t] = S[b,t-1] + X[b,t] for t in 1:N", X, N=8)
    same(got, np.cumsum(X, axis=1))


def test_softmax(call):
    X = coded(4, 6) / 3
    got = call("P[i,j] = exp(X[i,j] - max[k](X[i,k])) / sum[l](exp(X[i,l] - max[k](X[i,k])))", X)
    e = np.exp(X - X.max(1, keepdims=True))
    near(got, e / e.sum(1, keepdims=True))


CONV = """
conv(X: f32[N,C,H,W], K: f32[F,C,3,3]) -> O:               # declared
    O[n,f,h,w] += X[n,c,h+r-1,w+s-1; pad=0] * K[f,c,r,s]  for h in 0:H, w in 0:W
"""


def test_declared_convolution(call):
    X, K = coded(2, 3, 5, 6, dtype=np.float32), coded(4, 3, 3, 3, dtype=np.float32, start=6)
    padded = np.pad(X, ((0, 0), (0, 0), (1, 1), (1, 1)))
    same(call(CONV, X, K), np.einsum("nchwrs,fcrs->nfhw", windows(padded, 3, 3), K))


HEAT = """
heat(A: f64[N,N], steps) -> A:                             # in-out, and a time loop
    for t in 0:steps:
        B[i,j] = 0.25 * (A[i-1,j] + A[i+1,j] + A[i,j-1] + A[i,j+1])  for i in 1:N-1, j in 1:N-1
        A[i,j] = B[i,j]                                              for i in 1:N-1, j in 1:N-1
"""


@pytest.mark.parametrize("steps", [0, 1, 5])
def test_in_out_with_a_time_loop(call, steps):
    A = coded(7, 7)
    given, expected = A.copy(), A.copy()
    for _ in range(steps):
        around = expected[:-2, 1:-1] + expected[2:, 1:-1] + expected[1:-1, :-2] + expected[1:-1, 2:]
        expected[1:-1, 1:-1] = 0.25 * around
    same(call(HEAT, A, steps), expected)
    same(A, given)


@pytest.mark.filterwarnings("ignore:.*reduc.*")
def test_a_reduction_covers_the_whole_right_side(call):
    x, b = coded(7, start=3), coded(5, start=8)
    same(call("O[n] += A[n,k]*x[k] + b[n]", A, x, b), A @ x + 7 * b)


@pytest.mark.parametrize("target", ["s", "s[]"])
def test_a_0d_target(call, target):
    x, y = coded(6), coded(6, start=4)
    same(call(f"{target} += x[i]*y[i]", x, y), x @ y)


def test_10_elements_and_3_offsets_give_8(call):
    same(call("O[h] += X[h+r] * K[r]", coded(10), coded(3)), np.correlate(coded(10), coded(3), mode="valid"))


@pytest.mark.parametrize(
    ("mode", "numpy"), [("edge", "edge"), ("wrap", "wrap"), ("reflect", "reflect"), ("-inf", "constant")]
)
def test_every_form_of_padding(call, mode, numpy):
    X = coded(6)
    padded = np.pad(X, 2, mode=numpy, **({"constant_values": -np.inf} if numpy == "constant" else {}))
    got = call(f"O[h] max= X[h+r-2; pad={mode}]  for h in 0:6, r in 0:5", X)
    same(got, windows(padded, 5).max(1))


def test_a_scatter_into_a_declared_extent(call):
    idx, w = np.array([0, 2, 2, 4]), coded(4)
    text = "hist(idx: i64[n], w: f64[n]) -> H:\n    H: f64[5]\n    H[idx[i]] += w[i]"
    expected = np.zeros(5)
    np.add.at(expected, idx, w)
    same(call(text, idx, w), expected)


@pytest.mark.parametrize("reduction", ["sum[k in 0:i+1](X[b,k])", "sum[k](X[b,k] where k <= i)"])
def test_an_inline_reduction_over_its_own_domain(call, reduction):
    X = coded(3, 6)
    same(call(f"S[b,i] = {reduction}  for i in 0:6", X), np.cumsum(X, axis=1))


def test_the_argument_of_the_greatest(call):
    same(call("m[i] = argmax[k](A[i,k])", A), A.argmax(1))


def test_a_batch_of_matrix_products(call):
    X, Y = coded(2, 3, 4, 5), coded(3, 5, 2, start=3)
    same(call("Z[...,i,j] += X[...,i,k] * Y[...,k,j]", X, Y), X @ Y)


def test_an_unreduced_index_on_the_right_is_an_error_with_a_caret():
    with pytest.raises(pk.ShapeError) as caught:
        pk.op("C[i,j] = A[i,k] * B[k,j]")
    text = str(caught.value)
    assert "index `k` is only on the right of `=`" in text
    assert text.splitlines()[1:3] == ["  C[i,j] = A[i,k] * B[k,j]", "               ^"]
    assert "sum[k](" in text


def test_a_size_fixed_when_the_operator_is_made():
    X, W = coded(12), coded(3, start=2)
    same(pk.op("O[i] += X[s*i+r] * W[r]", s=2)(X, W), windows(X, 3)[::2] @ W)


def blocks():
    """Yield the operators of the documentation's code blocks: single lines, or whole declarations."""
    for block in re.findall(r"```\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL):
        yield from [block] if ":\n" in block else [line for line in block.splitlines() if line.strip()]


@pytest.mark.parametrize("text", list(blocks()))
def test_every_operator_of_the_documentation_is_accepted(text):
    assert parse(str(parse(text))) == parse(text)


def test_a_triangular_system_is_solved_as_it_is_written() -> None:
    rng = np.random.default_rng(1)
    L, B = np.tril(rng.standard_normal((20, 20))) / 9 + np.eye(20), rng.standard_normal((20, 3))
    X = pk.op("X[i,j] = (B[i,j] - sum[k in 0:i](L[i,k] * X[k,j])) / L[i,i]")(B, L)
    np.testing.assert_allclose(L @ X, B, atol=1e-12)
