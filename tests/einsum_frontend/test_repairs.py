"""Hints for the spellings of other languages and libraries: each can be typed as it stands."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import polyker as pk
from polyker.einsum_frontend import parse
from polyker.einsum_frontend.elsewhere import MODULES, RENAMED, WRITTEN
from polyker.einsum_frontend.hints.repairs import MAX_HINT_CHARACTERS, repaired
from polyker.einsum_frontend.hints.spellings import is_einsum
from polyker.errors import ParseError, PolykerError, ShapeError
from polyker.ir.expr import FUNCTIONS, REDUCTIONS

# What is typed, and what the hint writes.
TYPED = {
    "Y[i] = np.exp(X[i])": "Y[i] = exp(X[i])",
    "Y[i] = 2 * torch.nn.functional.relu(X[i]) + math.pow(X[i]+1, 3)": "Y[i] = 2 * relu(X[i]) + ((X[i]+1) ** 3)",
    "Y[i] = X[i].sqrt()": "Y[i] = sqrt(X[i])",
    "Y[i,j] = softmax[j](X[i,j])": "Y[i,j] = exp(X[i,j] - max[k](X[i,k])) / sum[k](exp(X[i,k] - max[l](X[i,l])))",
    "Y[i,j] = log_softmax[j](X[i,j])": "Y[i,j] = X[i,j] - logsumexp[k](X[i,k])",
    "s[i] = std[j](X[i,j])": "s[i] = sqrt(mean[j]((X[i,j] - mean[k](X[i,k])) ** 2))",
    "Y[i,j] = A[j,i].T": "Y[i,j] = A[i,j]",
    "Y[i] = X[i] for i in 0..3": "Y[i] = X[i] for i in 0:3",
    "Y[i] = X[i] for i in 0..=3": "Y[i] = X[i] for i in 0:4",
    "Y[i] = X[i] for i in range(3)": "Y[i] = X[i] for i in 0:3",
    "Y[i] = X[i] for i in range(1, N)": "Y[i] = X[i] for i in 1:N",
    "Y[i] = X[i] for i in 0:4:2": "Y[i] = X[2*i] for i in 0:2",
    "Y[i] = X[i] for i in range(1, 10, 3)": "Y[i] = X[3*i + 1] for i in 0:3",
    "Y[i] = sum[k](X[i:i+2])": "Y[i] = sum[k in 0:2](X[i+k])",
    "Y[i] = sum(X[i:i+3])": "Y[i] = sum[k in 0:3](X[i+k])",
    "Y[i] = pow(X[i], 2)": "Y[i] = X[i] ** 2",
    "Y[i] = max(X[i], 0)": "Y[i] = maximum(X[i], 0)",
    "Y[i] = np.clip(X[i], 0, 1)": "Y[i] = clip(X[i], 0, 1)",
    "Y[i] = torch.clamp(X[i], 0, 1)": "Y[i] = clip(X[i], 0, 1)",
    "Y[i] = np.arctan2(X[i], Z[i])": "Y[i] = atan2(X[i], Z[i])",
    "Y[i] = scipy.special.gammaln(X[i])": "Y[i] = lgamma(X[i])",
    "Y[i] = math.gamma(X[i])": "Y[i] = exp(lgamma(X[i]))",
    "Y[i] = np.bitwise_count(X[i])": "Y[i] = popcount(X[i])",
    "Y[i] = torch.logaddexp(X[i], Z[i])": "Y[i] = X[i] + softplus(Z[i] - X[i])",
    "O[i] /= X[i]": "f(O, X) -> O:\n    O[i] = O[i] / X[i]",
    "Y[i] = X[minimum(i,2)] for i in 0:4": "k[i] = minimum(i,2) for i in 0:4; Y[i] = X[k[i]] for i in 0:4",
    "Y[i,j] = P[i*(i+1)//2+j] for i in 0:3, j in 0:3":
        "k[i,j] = i*(i+1)//2+j for i in 0:3, j in 0:3; Y[i,j] = P[k[i,j]] for i in 0:3, j in 0:3",
    "y[i] = sum[p in ptr[i]:ptr[i+1]](A[p] * x[col[p]])":
        "f(A, x, col, row, N) -> y: f64[N]:\n    y[row[p]] += A[p] * x[col[p]]",
    "Y[i] = X[i] for i in 0:N:2": "Y[i] = X[2*i] for i in 0:(N + 1)//2",
    # NumPy, torch, Triton.
    "Y[i] = np.where(X[i] > 0, X[i], 0)": "Y[i] = where(X[i] > 0, X[i], 0)",
    "Y[i] = torch.sum(X[i,k], dim=1)": "Y[i] = sum[k](X[i,k])",
    "Y[i] = X[i,j].mean(axis=1, keepdims=True)": "Y[i] = mean[j](X[i,j])",
    "Y[i] = X[i] * np.pi": "Y[i] = X[i] * pi",
    "Y[i] = X[i].astype(np.float32)": "Y[i] = f32(X[i])",
    "Y[i,j] = A[i][j]": "Y[i,j] = A[i,j]",
    "Y[i,j] = A[i,:]": "Y[i,j] = A[i,j]",
    "Y[i] = A[i,:] * 2": "Y[i,j] = A[i,j] * 2",
    "Y[i,j,] = X[i,j,]": "Y[i,j] = X[i,j]",
    "Y[i] = X[i:i+2]": "Y[i,k] = X[i+k] for k in 0:2",
    "Y[i] = 2 * X[3:N]": "Y[i,k] = 2 * X[3+k] for k in 0:N - 3",
    "Y[i] = sum(k, A[i,k])": "Y[i] = sum[k](A[i,k])",
    "Y[i] = mean(X[i,k], k)": "Y[i] = mean[k](X[i,k])",
    "Y[i] = max(X[i,k])": "Y[i] = max[k](X[i,k])",
    "Y[i] = max(X[i], Z[i], 0)": "Y[i] = maximum(maximum(X[i], Z[i]), 0)",
    "Y[i] = X[i] if X[i] > 0 else 0": "Y[i] = where(X[i] > 0, X[i], 0)",
    "C[i,j] = A.T[i,j]": "C[i,j] = A[j,i]",
    "ij,jk->ik": "C[i,k] += A[i,j] * B[j,k]",
    "ij , jk": "C[i,k] += A[i,j] * B[j,k]",
    "ii->": "C += A[i,i]",
    "AB,BC->AC": "D[A,C] += E[A,B] * F[B,C]",
    "...ij,...jk->...ik": "C[...,i,k] += A[...,i,j] * B[...,j,k]",
    ",ij->ij": "C[i,j] = A * B[i,j]",
    "batch i, i -> batch": "C[batch] += A[batch,i] * B[i]",
    "ij->ji": "C[j,i] = A[i,j]",
    # Types, by their bytes and in quotes.
    "f(X: 'u8'[N]) -> Y:\n    Y[i] = X[i]": "f(X: u64[N]) -> Y:\n    Y[i] = X[i]",
    "f(X: <f4[N]) -> Y:\n    Y[i] = X[i]": "f(X: f32[N]) -> Y:\n    Y[i] = X[i]",
    "f(X: np.single[N], y: 'float64') -> Y:\n    Y[i] = X[i] * y": "f(X: f32[N], y: f64) -> Y:\n    Y[i] = X[i] * y",
    "Y[i] = float32(X[i]) + np.int8(X[i])": "Y[i] = f32(X[i]) + i8(X[i])",
    "Y[i] = X[i].astype('u1')": "Y[i] = u8(X[i])",
    # Extents.
    "Y[i] = X[i] for i in 0:len(X)": "f(X: [N]) -> Y:\n    Y[i] = X[i] for i in 0:N",
    "Y[i] += X[i,j] for i in 0:X.shape[0], j in 0:1": "f(X: [N,M]) -> Y:\n    Y[i] += X[i,j] for i in 0:N, j in 0:1",
    "m[j] = sum[i](A[i,j]) / np.shape(A)[0]": "f(A: [N,M]) -> m:\n    m[j] = sum[i](A[i,j]) / N",
    "m[j] = sum[i](A[i,j] * B[j]) / A.size(0) + B.shape[0]":
        "f(A: [N,K], B: [M]) -> m:\n    m[j] = sum[i](A[i,j] * B[j]) / N + M",
    "T[i] = X[i] * 2; Y[i] = T[i] / len(X)": "f(X: [N]) -> Y:\n    T[i] = X[i] * 2\n    Y[i] = T[i] / N",
    "f(X: f32[N]): Y[i] = X[i]": "f(X: f32[N]) -> Y: Y[i] = X[i]",
    "Y[i] = X[i] for i < N": "Y[i] = X[i] for i in 0:N",
    "Y[i] = sum[k < i](X[k])": "Y[i] = sum[k in 0:i](X[k])",
    "Y[i] = sum[1 <= k < i](X[k])": "Y[i] = sum[k in 1:i](X[k])",
    "Y[i] = sum[k = 0:i+1](X[k])": "Y[i] = sum[k in 0:i+1](X[k])",
    "Y[i] = max[k]X[i,k]": "Y[i] = max[k](X[i,k])",
    "Y[i] = avg[k](X[i,k])": "Y[i] = mean[k](X[i,k])",
    "Y[i] = |X[i] - 1| * |Z[i]|": "Y[i] = abs(X[i] - 1) * abs(Z[i])",
    "Y[i] |= X[i,k] > 0": "Y[i] any= X[i,k] > 0",
    "Y[i] = exp X[i]": "Y[i] = exp(X[i])",
    "let Y[i] = X[i]": "Y[i] = X[i]",
    "Y[i] = X[i] /* all */ * 2": "Y[i] = X[i]   * 2",
    "Y[i] = X[i-1, pad=0] for i in 0:4": "Y[i] = X[i-1; pad=0] for i in 0:4",
    # C, Julia, Tensor Comprehensions, Halide, TVM.
    "Y[i] = X[i] > 0 ? X[i] : 0": "Y[i] = where(X[i] > 0, X[i], 0)",
    "Y[i] = X[i] && Z[i] || !X[i]": "Y[i] = X[i] and Z[i] or not X[i]",
    "Y[i] = X[i mod 3] for i in 0:4": "Y[i] = X[i % 3] for i in 0:4",
    "Y[i] = X[i] <> 3": "Y[i] = X[i] != 3",
    "Y[i] === X[i]": "Y[i] = X[i]",
    "Y[i] <- X[i]": "Y[i] = X[i]",
    "@tullio C[i,j] := A[i,k] * B[k,j]": "C[i,j] += A[i,k] * B[k,j]",
    "C[i,j] := A[i,j]'": "C[i,j] = A[j,i]",
    "C(i,j) +=! A(i,k)*B(k,j)": "C[i,j] += A[i,k]*B[k,j]",
    "C(i)(j) += A(i)(k) * B[k](j)": "C[i,j] += A[i,k] * B[k,j]",
    "C{i,j} = A{i} * B{j}": "C[i,j] = A[i] * B[j]",
    "E (b, d) += T (I(b, l), d)": "E[b, d] += T[I[b, l], d]",
    "m(i) max=! A(i,k)": "m[i] max= A[i,k]",
    "Y(x, y) = X(x, y) + 1": "Y[x, y] = X[x, y] + 1",
    "Y[i] = te.sum(X[i,k], axis=k)": "Y[i] = sum[k](X[i,k])",
    "def mv(float(M,K) A, double(K) x) -> (C) { C(i) +=! A(i,k) * x(k) }":
        "mv(A: f32[M,K], x: f64[K]) -> C:\n    C[i] += A[i,k] * x[k]",
    "f(X: float32[N], Z: Tensor[N]) -> Y:\n    Y[i] = X[i] + Z[i]": "f(X: f32[N], Z: [N]) -> Y:\n    Y[i] = X[i] + Z[i]",
    "f(X: f32(N)) -> Y\n    Y[i] = X[i]": "f(X: f32[N]) -> Y:\n    Y[i] = X[i]",
    # Formulas.
    "α[i] = β[i] × 2": "alpha[i] = beta[i] * 2",
    "Y[i] = √X[i] ≤ ∞": "Y[i] = sqrt(X[i]) <= inf",
    "Y[i] = X[i]²": "Y[i] = X[i] ** 2",
    "Y[i] = Σ_k X[i,k]": "Y[i] = sum[k](X[i,k])",
    "Y[i] = sum_{j,k}(X[i,j,k])": "Y[i] = sum[j,k](X[i,j,k])",
    "Y[i] = sum[k] X[i,k] where k <= i": "Y[i] = sum[k](X[i,k] where k <= i)",
    "Y[i] = sum[k]{X[i,k]}": "Y[i] = sum[k](X[i,k])",
    "Y[i] = X[i], i in 0:4": "Y[i] = X[i] for i in 0:4",
    "Y[i] = X[i] for i = 0:4": "Y[i] = X[i] for i in 0:4",
    "Y[i] = X[i] for i in [0, 4)": "Y[i] = X[i] for i in 0:4",
    "Y[i] = X[i] for 0 <= i < 4": "Y[i] = X[i] for i in 0:4",
    "Y[i] = X[i] where i in 0:4": "Y[i] = X[i] for i in 0:4",
    "Y[i] += X[i] for k in K": "Y[i] += X[i] for k in 0:K",
}  # fmt: skip


def hint_of(text):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(ParseError) as caught:
            pk.op(text)
    return caught.value.hint


@pytest.mark.parametrize("typed", TYPED)
def test_a_hint_writes_what_was_meant_and_is_accepted_as_it_stands(typed):
    hint, _, einsum = hint_of(typed).partition(", or call ")
    assert hint == f"write `{TYPED[typed]}`"
    assert einsum == (f"pk.einsum({typed!r}, ...)" if is_einsum(typed) and " i" not in typed else "")
    parse(TYPED[typed])


def test_what_was_meant_computes_what_it_should():
    x, a = np.random.default_rng(0).normal(size=(4, 5)), np.random.default_rng(1).uniform(0.1, 1, size=9)
    softmax = pk.op(TYPED["Y[i,j] = softmax[j](X[i,j])"])
    np.testing.assert_allclose(softmax(x), np.exp(x) / np.exp(x).sum(1, keepdims=True))
    np.testing.assert_allclose(pk.op(TYPED["s[i] = std[j](X[i,j])"])(x), x.std(1))
    np.testing.assert_array_equal(pk.op(TYPED["Y[i] = X[i] for i in range(1, 10, 3)"])(np.arange(10.0)), [1, 4, 7])
    np.testing.assert_allclose(pk.op(TYPED["O[i] /= X[i]"])(a, a), np.ones(9))
    np.testing.assert_array_equal(pk.op(TYPED["Y[i] = X[minimum(i,2)] for i in 0:4"])(np.arange(4.0)), [0, 1, 2, 2])
    packed = pk.op(TYPED["Y[i,j] = P[i*(i+1)//2+j] for i in 0:3, j in 0:3"])(np.arange(6.0))
    np.testing.assert_array_equal(packed, [[0, 1, 2], [1, 2, 3], [3, 4, 5]])


@pytest.mark.parametrize("module", MODULES)
def test_modules_of_other_libraries_are_known(module):
    assert hint_of(f"Y[i] = {module}.tanh(X[i])") == "write `Y[i] = tanh(X[i])`"


NUMPY = {
    "fabs": np.fabs, "square": np.square, "reciprocal": np.reciprocal, "rint": np.rint, "sgn": np.sign,
    "radians": np.radians, "degrees": np.degrees, "negative": np.negative, "signbit": np.signbit, "isposinf": np.isposinf,
    "nan_to_num": np.nan_to_num,
}  # fmt: skip


@pytest.mark.parametrize("name", NUMPY)
def test_functions_of_other_names_compute_the_same(name):
    x = np.random.default_rng(0).uniform(0.1, 2.0, size=20)
    written = hint_of(f"Y[i] = {name}(X[i])").removeprefix("write `").removesuffix("`")
    np.testing.assert_allclose(pk.op(written)(x), NUMPY[name](x), rtol=1e-12)


def test_where_nothing_helps_the_first_hint_stays():
    assert hint_of("C[i] = 2 A[i]") == "write a product with `*`"
    assert repaired("Y[i] = " + "X[i] + " * 2000 + "np.exp(X[i])", lambda _: None) is None


def test_names_of_other_libraries_are_written_by_functions_that_exist_and_name_none():
    written = {name for name, _ in WRITTEN}
    assert not set(RENAMED) & written
    assert set(RENAMED.values()) <= {*FUNCTIONS, *REDUCTIONS}
    assert not set(FUNCTIONS) & {*RENAMED, *written}


PIECES = st.sampled_from(
    ["np.exp(", "X[i]", ")", "Y[i] = ", ".T", "0..3", "range(", "for i in ", "0:4:2", "sum[k](", "X[i:i+2]", ",", "softmax[j](",
     "A[i,j]", "/= ", " ; ", "\n", "(", "]", "[", "pow(", "2", "where ", "minimum(i,2)", ".exp()", "f(O) -> O:", " ",
     "A(i,j)", ":=", "+=!", "max(", "A[i,:]", "{", "}", "α", "√", "²", " if ", " else ", " ? ", " : ", "&&", "!", "'", "sum_k ",
     "->", "ij,jk", "def ", "float(N) x", "@tullio ", " for i = 0:4", "i in [0, 4)", ".sum(axis=1)", ".T[i,j]", "<-"]
)  # fmt: skip


@given(st.lists(PIECES, max_size=12).map("".join))
def test_whatever_is_typed_gives_an_operator_or_an_error_at_its_place(text):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            parse(text)
        except (ParseError, ShapeError) as error:
            assert (error.code.startswith("PK1") and error.span is not None) or error.code == "PK119"


A34 = np.ones((3, 4))

# What the run time refuses: the call, what the message says, and what the hint says.
CALLS = {
    "an extent of 1": (lambda: pk.op("Y[i,j] = X[i,j] + b[i,j]")(A34, A34[:1]), "1 in `b[i,j]`", "write `b[0,j]`"),
    "no range": (lambda: pk.op("a[i] += 1")(), "index `i` has no range", "`for i in 0:N`"),
    "complex numbers": (lambda: pk.op("Y[i] = where(X[i] < 2, 1, 0)")(np.ones(3) * 1j), "`<` does not take c128", "`abs(...)`"),
    "batches": (lambda: pk.einsum("...ij,...jk", np.ones((2, 3, 4)), np.ones((5, 4, 3))), "broadcast: (2,), (5,)", ""),
    "batches of an operator": (lambda: pk.op("O[...,i] = X[...,i] + Y[...,i]")(A34[:2], A34), "2 values in `X[...,i]` but 3",
                               "each pair is equal"),
    "strings": (lambda: pk.einsum("i,i", np.ones(2), np.array(["a", "b"])), "`operand 1` of shape (2,)", "accepted are"),
    "objects": (lambda: pk.einsum("i->i", np.array([1, None], object)), "`operand 0` of shape (2,)", "accepted are"),
    "NumPy's strings": (lambda: pk.op("Y[i] = x[i]")(np.array(["a"], np.dtypes.StringDType())), "`x` of shape (1,)", "accepted"),
    "a masked array": (lambda: pk.einsum("i->i", np.ma.array([1.0], mask=[1])), "masked", "`x.filled(0)`"),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_a_call_is_refused_with_what_to_do(name):
    call, message, hint = CALLS[name]
    with pytest.raises(PolykerError) as caught:
        call()
    assert message in str(caught.value) and hint in (caught.value.hint or "")


def test_rules_that_feed_each_other_do_not_make_a_text_longer_and_longer():
    text, tried = "for i in 2.sum(axis=1)for i in np.exp(np.exp(0:4:2", []

    def refused(candidate):
        tried.append(candidate)
        raise PolykerError("not accepted")

    assert repaired(text, refused) is None
    assert tried and max(map(len, tried)) < 2 * len(text) + MAX_HINT_CHARACTERS
