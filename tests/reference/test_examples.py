"""Every example of the notation, interpreted, against NumPy spelled out."""

import numpy as np
import pytest

from polyker.einsum_frontend import parse
from polyker.reference import interpret


def coded(*shape, dtype="f8", start=1):
    """Values that encode their position, with signs, small enough to be exact."""
    n = int(np.prod(shape))
    return ((np.arange(n) * 7 + start) % 23 - 11).reshape(shape).astype(dtype)


def run(text, /, sizes=None, acc=None, **arrays):
    out = interpret(parse(text), arrays, sizes or {}, acc)
    return out[0] if len(out) == 1 else out


def same(got, wanted, dtype=None):
    wanted = np.asarray(wanted)
    assert got.shape == wanted.shape
    assert got.dtype == (dtype or wanted.dtype)
    np.testing.assert_array_equal(got, wanted)


def test_a_matrix_product():
    A, B = coded(3, 4, dtype="f4"), coded(4, 5, dtype="f4")
    same(run("C[i,j] += A[i,k] * B[k,j]", A=A, B=B), A @ B)


def test_pairwise_l1_distance():
    A, B = coded(3, 4), coded(5, 4)
    same(run("D[i,j] += abs(A[i,k] - B[j,k])", A=A, B=B), np.abs(A[:, None] - B[None]).sum(-1))


def test_a_max_plus_product():
    A, B = coded(3, 4), coded(4, 5)
    same(run("C[i,j] max= A[i,k] + B[k,j]", A=A, B=B), (A[:, :, None] + B[None]).max(1))


def test_an_inline_reduction_with_an_epilogue():
    X, W, bias = coded(3, 4), coded(5, 4), coded(5)
    same(run("O[b,n] = relu(sum[m](I[b,m] * W[n,m]) + bias[n])", I=X, W=W, bias=bias), np.maximum(X @ W.T + bias, 0))


def test_a_strided_convolution():
    X, K = coded(2, 3, 9, 8), coded(4, 3, 3, 2)
    windows = np.lib.stride_tricks.sliding_window_view(X, (3, 2), (2, 3))[:, :, ::2, ::2]
    same(
        run("O[n,f,h,w] += X[n,c,2*h+r,2*w+s] * K[f,c,r,s]", X=X, K=K),
        np.einsum("nchwrs,fcrs->nfhw", windows, K),
    )


@pytest.mark.parametrize(
    ("pad", "mode"),
    [("0", {"constant_values": 0}), ("-inf", {"constant_values": -np.inf}), ("edge", "edge"), ("wrap", "wrap")]
    + [("reflect", "reflect")],
)
def test_padding_in_all_its_forms(pad, mode):
    X, K = coded(7), np.abs(coded(5)) + 1
    wide = np.pad(X, 4, **mode) if isinstance(mode, dict) else np.pad(X, 4, mode=mode)
    want = [sum(wide[h + r - 2 + 4] * K[r] for r in range(5)) for h in range(9)]
    same(run(f"O[h] += X[h+r-2; pad={pad}] * K[r] for h in 0:H", X=X, K=K, sizes={"H": 9}), np.array(want))


def test_padding_far_outside_repeats():
    X = coded(3)
    same(run("O[i] = X[i-8; pad=wrap] for i in 0:20", X=X), np.pad(X, 17, mode="wrap")[9:29])
    same(run("O[i] = X[i-8; pad=reflect] for i in 0:20", X=X), np.pad(X, 17, mode="reflect")[9:29])
    same(run("O[i] = X[i-8; pad=reflect] for i in 0:20", X=X[:1]), np.full(20, X[0]))


def test_a_triangular_domain():
    A = coded(4, 3)
    same(run("L[i,j] += A[i,k] * A[j,k]  where j <= i", A=A), np.tril(A @ A.T))


def test_a_gather():
    T, idx = coded(6, 3), np.array([[0, 5, 2], [5, 5, 1]])
    same(run("E[b,d] += T[idx[b,l], d]", T=T, idx=idx), T[idx].sum(1))


def test_a_recurrence():
    X = coded(3, 6)
    text = "S[b,0] = X[b,0];  S[b,t] = S[b,t-1] + X[b,t] for t in 1:N"
    same(run(text, X=X, sizes={"N": 6}), X.cumsum(1))


def test_softmax():
    X = coded(3, 5)
    text = "P[i,j] = exp(X[i,j] - max[k](X[i,k])) / sum[l](exp(X[i,l] - max[k](X[i,k])))"
    e = np.exp(X - X.max(1, keepdims=True))
    np.testing.assert_allclose(run(text, X=X), e / e.sum(1, keepdims=True), rtol=1e-14)


def test_a_declared_convolution():
    X, K = coded(2, 3, 5, 4, dtype="f4"), coded(4, 3, 3, 3, dtype="f4")
    text = """conv(X: f32[N,C,H,W], K: f32[F,C,3,3]) -> O:
        O[n,f,h,w] += X[n,c,h+r-1,w+s-1; pad=0] * K[f,c,r,s]  for h in 0:H, w in 0:W
    """
    wide = np.pad(X, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(wide, (3, 3), (2, 3))
    same(run(text, X=X, K=K), np.einsum("nchwrs,fcrs->nfhw", windows, K))


def test_a_time_loop_in_place():
    A = coded(6, 6)
    text = """heat(A: f64[N,N], steps) -> A:
        for t in 0:steps:
            B[i,j] = 0.25 * (A[i-1,j] + A[i+1,j] + A[i,j-1] + A[i,j+1])  for i in 1:N-1, j in 1:N-1
            A[i,j] = B[i,j]                                              for i in 1:N-1, j in 1:N-1
    """
    want = A.copy()
    for _ in range(3):
        want[1:-1, 1:-1] = 0.25 * (want[:-2, 1:-1] + want[2:, 1:-1] + want[1:-1, :-2] + want[1:-1, 2:])
    kept = A.copy()
    same(run(text, A=A, sizes={"steps": 3}), want)
    same(run(text, A=A, sizes={"steps": 0}), kept)
    same(A, kept)
