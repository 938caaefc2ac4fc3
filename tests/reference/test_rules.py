"""The rules of the notation's first section, one by one."""

import numpy as np
import pytest

from polyker.errors import DTypeError, GatherError, ShapeError
from polyker.ir import dtypes as dt
from tests.reference.test_examples import coded, run, same

# --- statements -----------------------------------------------------------------------------------------------------


def test_a_term_without_the_reduced_index_is_added_once_for_each():
    A, x, b = coded(3, 4), coded(4), coded(3)
    same(run("O[n] += A[n,k]*x[k] + b[n]", A=A, x=x, b=b), A @ x + 4 * b)


@pytest.mark.parametrize("target", ["s", "s[]"])
def test_a_scalar_target(target):
    x, y = coded(5), coded(5, start=4)
    same(run(f"{target} += x[i]*y[i]", x=x, y=y), np.asarray(x @ y))


@pytest.mark.parametrize(
    ("op", "want"),
    [("+=", np.sum), ("*=", np.prod), ("max=", np.max), ("min=", np.min), ("any=", np.any), ("all=", np.all)],
)
def test_every_update_operator(op, want):
    A = coded(3, 4)
    same(run(f"C[i] {op} A[i,k]", A=A), want(A, axis=1))


@pytest.mark.parametrize(
    ("op", "dtype", "identity"),
    [
        ("+=", "f4", 0), ("*=", "f4", 1), ("max=", "f4", -np.inf), ("min=", "f4", np.inf), ("max=", "i1", -128),
        ("min=", "i1", 127), ("max=", "u2", 0), ("min=", "u2", 65535), ("any=", "f4", False), ("all=", "f4", True),
        ("max=", "?", False), ("min=", "?", True), ("+=", "c8", 0),
    ],
)  # fmt: skip
def test_a_reduction_over_nothing_is_the_identity(op, dtype, identity):
    got = run(f"C[i] {op} A[i,k]", A=np.zeros((2, 0), dtype))
    assert got.tolist() == [identity] * 2


def test_statements_run_in_order_and_accumulate_into_what_is_defined():
    A, b = coded(3, 4), coded(3)
    same(run("C[i] = b[i]; C[i] += A[i,k]", A=A, b=b), b + A.sum(1))
    same(run("C[i] = b[i]; C[i] max= A[i,k]", A=A, b=b), np.maximum(b, A.max(1)))
    same(run("C[i] += A[i,k]; C[i] = relu(C[i])", A=A), np.maximum(A.sum(1), 0))


def test_two_instances_of_one_assignment_may_not_write_one_element():
    with pytest.raises(ShapeError, match="PK805"):
        run("C[i+j] = A[i,j]", A=coded(2, 3))
    same(run("C[i+j] += A[i,j]", A=coded(2, 3)), np.array([sum(coded(2, 3)[::-1].diagonal(d)) for d in range(-1, 3)]))


def test_reading_a_element_that_nothing_wrote_is_an_error():
    with pytest.raises(ShapeError, match="PK804"):
        run("S[t] = S[t-1] + X[t] for t in 1:5; R[t] = S[t] for t in 1:5", X=coded(5))


def test_extents_are_one_more_than_the_largest_subscript():
    same(run("C[i+1] = A[i]; C[0] = 7", A=coded(3)), np.concatenate([[7], coded(3)]))


def test_a_element_that_inference_left_out_is_an_error():
    with pytest.raises(ShapeError, match="PK806"):
        run("O[i] = X[i-1]", X=coded(4))
    with pytest.raises(ShapeError, match="PK806"):
        run("O[i] += X[i-1,k]", X=coded(4, 2))


def test_elements_that_for_left_out_of_a_reduction_hold_the_identity():
    X = coded(6)
    same(run("O[h] += X[h] for h in 2:5", X=X), np.concatenate([[0, 0], X[2:5]]))
    same(run("O[h] max= X[h] for h in 2:5", X=X), np.concatenate([[-np.inf] * 2, X[2:5]]))
    with pytest.raises(ShapeError, match="PK806"):
        run("O[h] = X[h] for h in 2:5", X=X)


def test_neither_for_nor_where_excuses_elements_that_no_subscript_reaches():
    with pytest.raises(ShapeError, match="PK806"):
        run("P[x,2-e] += L[e] for x in 0:2", L=coded(1))
    with pytest.raises(ShapeError, match="PK806"):
        run("S[4-r,i] min= G[r,i] where r < i", G=coded(2, 2))
    G = coded(2, 2)
    same(run("S[r,i] min= G[1-r,i] where r == i", G=G), np.array([[G[1, 0], np.inf], [np.inf, G[0, 1]]]))


def test_in_out_starts_from_the_argument_and_leaves_it_alone():
    A = coded(4)
    kept = A.copy()
    same(run("f(A: f64[N]) -> A:\n    A[i] += 2\n", A=A), kept + 2)
    same(A, kept)


# --- index ranges ---------------------------------------------------------------------------------------------------


def test_bare_subscripts_must_agree():
    with pytest.raises(ShapeError, match="PK802"):
        run("C[i] = A[i] + B[i]", A=coded(4), B=coded(3))
    with pytest.raises(ShapeError, match="PK802"):
        run("C[i] = A[i] + B[i]", A=coded(4), B=coded(1))


def test_a_sum_of_indices_keeps_to_the_valid_part():
    X, K = coded(10), coded(3)
    got = run("O[h] += X[h+r] * K[r]", X=X, K=K)
    assert got.shape == (8,)
    same(got, np.correlate(X, K, "valid"))


def test_rounds_bound_one_index_after_the_other():
    A = coded(3, 10, 2)
    same(run("O[i] += A[j,i+j,k]", A=A), np.array([sum(A[j, i + j].sum() for j in range(3)) for i in range(8)]))


def test_bounds_of_one_round_intersect():
    A, B = coded(7), coded(9)
    same(run("O[i] = A[2*i] + B[3*i+1]", A=A, B=B), A[:6:2] + B[1::3])


def test_bounds_by_offsets_and_strides_cut_what_a_bare_subscript_gives():
    X, Y = coded(6), coded(9)
    same(run("D[i] = X[i+1] - X[i]", X=X), X[1:] - X[:-1])
    same(run("D[i] = X[i] + Y[2*i+1]", X=X, Y=Y), X[:4] + Y[1::2])
    for n in (0, 1):
        assert run("D[i] = X[i+1] - X[i]", X=coded(n)).shape == (0,)
    same(
        run("O[i] = Y[i+1] * sum[r](X[i+r] * K[r])", X=X, Y=Y, K=coded(3)), Y[1:5] * np.correlate(X, coded(3), "valid")
    )


def test_a_tensor_that_is_still_defined_bounds_nothing():
    X = coded(5)
    same(run("S[0] = 0; S[t+1] = S[t] + X[t]", X=X), np.concatenate([[0], np.cumsum(X)]))
    same(
        run("f(X: f64[N]) -> S:\n    S: f64[N+1]\n    S[0] = 0\n    S[t+1] = S[t] + X[t]\n", X=X),
        np.concatenate([[0], np.cumsum(X)]),
    )
    same(run("C[i] += A[i,k]; C[i] = relu(C[i])", A=coded(3, 4)), np.maximum(coded(3, 4).sum(1), 0))
    with pytest.raises(ShapeError, match="PK802"):
        run("H[i] = A[i]; H[i] = sum[j](W[i,j] * H[j])", A=X, W=coded(5, 3))


def test_an_open_index_is_an_error():
    for text in ("O[i] += A[i+j]", "O[i,j] = 3 for i in 0:3"):
        with pytest.raises(ShapeError, match="PK801"):
            run(text, **({"A": coded(5)} if "A" in text else {}))
    same(run("O[i] += A[i+j] for i in 0:3, j in 0:2", A=coded(5)), coded(5)[:3] + coded(5)[1:4])


def test_a_settled_subscript_is_checked():
    A = coded(5)
    with pytest.raises(ShapeError, match="PK803"):
        run("O[i] = A[i] + A[i+1] for i in 0:5", A=A)
    same(run("O[i] = A[i] + A[i+1]", A=A), A[:-1] + A[1:])
    same(run("O[i-1] = A[i-1] + A[i] where i >= 1", A=A), A[1:] + A[:-1])


def test_a_padded_subscript_bounds_only_alone_and_last():
    X, K = coded(5), coded(7)
    same(run("O[i] = X[i; pad=0] * K[i]", X=X, K=K), np.pad(X, (0, 2)) * K)
    same(run("O[i] = X[i; pad=0]", X=X), X)
    with pytest.raises(ShapeError, match="PK801"):
        run("O[i] = X[i+1; pad=0]", X=X)


def test_for_may_be_empty_and_depend_on_other_indices():
    A = coded(4, 4)
    same(run("O[i] += A[i,j] for j in 0:i+1", A=A), np.tril(A).sum(1))
    same(run("O[i] += A[i,j] for j in 3:1", A=A), np.zeros(4))


def test_where_takes_chains_and_quasi_affine_conditions():
    A = coded(6, 6)
    i, j = np.indices((6, 6))
    same(run("O[i] += A[i,j] where 0 < j - i <= 2 and j % 2 != 0", A=A),
         np.where((j - i > 0) & (j - i <= 2) & (j % 2 != 0), A, 0).sum(1))  # fmt: skip
    same(run("O[i] += A[i,j] where i // 2 == j // 3", A=A), np.where(i // 2 == j // 3, A, 0).sum(1))


def test_quasi_affine_subscripts():
    X = coded(4)
    same(run("O[i] = X[i//2]", X=X), np.repeat(X, 2))
    same(run("O[i] = X[i%4] for i in 0:11", X=X), X[np.arange(11) % 4])


def test_sizes_come_from_declared_shapes_and_must_agree():
    text = "f(X: f64[N,M], Y: f64[M]) -> O:\n    O[i] += X[i,k] * Y[k] * M\n"
    same(run(text, X=coded(2, 3), Y=coded(3)), coded(2, 3) @ coded(3) * 3)
    with pytest.raises(ShapeError, match="PK809"):
        run(text, X=coded(2, 3), Y=coded(4))


def test_a_gathered_index_outside_is_an_index_error():
    for bad in (-1, 4):
        with pytest.raises(GatherError):
            run("O[i] = T[idx[i]]", T=coded(4), idx=np.array([0, bad]))
    with pytest.raises(IndexError):
        run("O[i] = T[idx[i]]", T=coded(4), idx=np.array([9]))


def test_a_subscript_outside_beside_a_gathered_one_is_a_matter_of_shapes():
    for bad in (0, 3):
        with pytest.raises(ShapeError, match="PK803"):
            run("O[i] = X[i] * T[idx[i],i//2] for i in 0:3", X=coded(3), T=coded(3, 1), idx=np.array([0, 0, bad]))
    with pytest.raises(GatherError):
        run("O[i] = X[i] * T[idx[i],i//2]", X=coded(3), T=coded(3, 2), idx=np.array([0, 0, 3]))


def test_gathers_nest_and_scatter():
    T, a, b = coded(5), np.array([3, 0, 4]), np.array([1, 1, 2, 0])
    same(run("O[i] = T[a[b[i]]]", T=T, a=a, b=b), T[a[b]])
    w = coded(4)
    text = "f(idx: i64[N], w: f64[N]) -> H:\n    H: f64[5]\n    H[idx[i]] += w[i]\n"
    want = np.zeros(5)
    np.add.at(want, b, w)
    same(run(text, idx=b, w=w), want)


def test_dots_are_batch_dimensions_and_broadcast():
    A, B = coded(2, 1, 3, 4), coded(5, 4, 2)
    same(run("C[...,i,j] += A[...,i,k] * B[...,k,j]", A=A, B=B), A @ B)
    same(run("S[...] += A[...,k]", A=coded(4)), np.asarray(coded(4).sum()))
    with pytest.raises(ShapeError):
        run("C[...,i] = A[...,i] * B[...,i]", A=coded(2, 3), B=coded(3, 3))
    with pytest.raises(ShapeError, match="PK802"):
        run("C[...,i] = A[...,i] * B[...,i]", A=coded(2, 1), B=coded(2, 3))


# --- expressions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "want"),
    [("sum", np.sum), ("prod", np.prod), ("max", np.max), ("min", np.min), ("mean", np.mean), ("argmax", np.argmax),
     ("argmin", np.argmin), ("any", np.any), ("all", np.all)],
)  # fmt: skip
def test_every_inline_reduction(op, want):
    A = coded(3, 5)
    A[1, 2] = 0
    same(run(f"C[i] = {op}[k](A[i,k])", A=A), want(A, axis=1))


def test_logsumexp_is_stable():
    A = np.array([[1000.0, 1001.0], [-1000.0, -1000.0], [-np.inf, -np.inf], [np.inf, 1.0], [np.nan, np.inf]])
    got = run("C[i] = logsumexp[k](A[i,k])", A=A)
    np.testing.assert_allclose(got, np.logaddexp.reduce(A, axis=1), rtol=1e-14)


def test_inline_domains_are_scopes_of_their_own():
    A = coded(4, 4)
    same(run("C[i] = sum[k in 0:i+1](A[i,k]) + max[k](A[k,i])", A=A), np.tril(A).sum(1) + A.max(0))
    same(run("C[i] = sum[k](A[i,k] where k < i)", A=A), np.tril(A, -1).sum(1))
    same(run("C[i] = sum[k](A[i,k] * sum[l](A[k,l]))", A=A), A @ A.sum(1))


def test_argmax_gives_the_indexs_own_value_the_first_on_ties_the_first_nan():
    A = np.array([[1.0, 5, 5, 2], [1, np.nan, 9, np.nan], [7, 7, 7, 7]])
    same(run("C[i] = argmax[k](A[i,k])", A=A), np.array([1, 1, 0]))
    same(run("C[i] = argmin[k](A[i,k])", A=A), np.array([0, 1, 0]))
    same(run("C[i] = argmax[k in 1:3](A[i,k])", A=A), np.array([1, 1, 1]))
    with pytest.raises(ValueError, match="PK813"):
        run("C[i] = argmax[k](A[i,k])", A=np.zeros((2, 0)))


def test_mean_of_nothing_is_nan_and_max_propagates_nan():
    assert np.isnan(run("C[i] = mean[k](A[i,k])", A=np.zeros((2, 0)))).all()
    A = np.array([[1, np.nan, 3]])
    assert np.isnan(run("C[i] max= A[i,k]", A=A)).all()
    assert np.isnan(run("C[i] = min[k](A[i,k])", A=A)).all()


FUNCTIONS = {
    "abs": np.abs, "exp": np.exp, "expm1": np.expm1, "log": np.log, "log1p": np.log1p, "sqrt": np.sqrt,
    "rsqrt": lambda a: 1 / np.sqrt(a), "sin": np.sin, "cos": np.cos, "tan": np.tan, "tanh": np.tanh,
    "sigmoid": lambda a: 1 / (1 + np.exp(-a)), "relu": lambda a: np.maximum(a, 0),
    "silu": lambda a: a / (1 + np.exp(-a)),
    "floor": np.floor, "ceil": np.ceil, "round": np.round, "sign": np.sign, "conj": np.conj, "real": np.real,
    "imag": np.imag,
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "c16"])
def test_functions_are_numpys(name, dtype):
    A = np.array([0.25, 0.5, 1.5, 2.5, 3.0]).astype(dtype)
    if "c" in dtype:
        if name in ("relu", "floor", "ceil"):
            with pytest.raises(DTypeError):
                run(f"O[i] = {name}(A[i])", A=A)
            return
        A = A * np.complex64(1 + 0.5j).astype(dtype)
    want = FUNCTIONS[name](A)
    got = run(f"O[i] = {name}(A[i])", A=A)
    assert got.dtype == want.dtype
    np.testing.assert_allclose(got, want, rtol=4e-7 if dtype in ("f4", "c8") else 1e-15)


def test_erf_and_gelu_are_exact_forms():
    mpmath = pytest.importorskip("mpmath")
    A = np.array([-6.5, -3.2, -2.9, -0.5, 0.0, 1e-5, 0.7, 2.99, 3.01, 5.5, np.inf, -np.inf])
    want = [float(mpmath.erf(float(a))) for a in A]
    np.testing.assert_allclose(run("O[i] = erf(A[i])", A=A), want, rtol=3e-16)
    from polyker.ir.functions.special import error_function

    for a in A[:10]:
        with mpmath.workdps(30):
            exact = mpmath.erf(mpmath.mpf(float(a)))
            got = error_function(np.longdouble(a))
            assert abs(mpmath.mpf(str(got)) - exact) <= abs(exact) * 1e-18
    x = A[:10]
    gelu = [float(mpmath.mpf(float(a)) * mpmath.ncdf(float(a))) for a in x]
    np.testing.assert_allclose(run("O[i] = gelu(A[i])", A=x), gelu, rtol=1e-14, atol=1e-16)


@pytest.mark.parametrize("dtype", ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8"])
def test_floor_division_and_remainder_are_numpys(dtype):
    A = np.array([7, 8, 100, 0, 5, 127]).astype(dtype)
    B = np.array([2, 3, 0, 0, 7, 4]).astype(dtype)
    if dtype[0] != "u":
        A, B = np.concatenate([A, -A, A, -A]), np.concatenate([B, B, -B, -B])
    with np.errstate(all="ignore"):
        same(run("O[i] = A[i] // B[i]", A=A, B=B), A // B)
        same(run("O[i] = A[i] % B[i]", A=A, B=B), A % B)
        same(run("O[i] = A[i] / B[i]", A=A, B=B), A / B)


def test_precedence_is_pythons():
    A = np.array([1.5, 2.0, 3.0])
    same(run("O[i] = -A[i] ** 2 ** 0.5 - 2 * A[i] - 3 - 1", A=A), -(A ** (2**0.5)) - 2 * A - 3 - 1)
    same(run("O[i] = 7 // 2 % 3 * A[i] / 2", A=A), 7 // 2 % 3 * A / 2)
    same(run("O[i] = 1 < A[i] < 3 and not A[i] == 2", A=A), (A > 1) & (A < 3) & ~(A == 2))


def test_where_chooses_and_evaluates_both():
    A, B = coded(5), coded(5, start=9)
    same(run("O[i] = where(A[i] > B[i], A[i], 2)", A=A, B=B), np.where(A > B, A, 2))
    with pytest.raises(ShapeError):
        run("O[i] = where(i > 0, A[i] - A[i-1], A[i])", A=A)


# --- types ----------------------------------------------------------------------------------------------------------

TYPES = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"]


@pytest.mark.parametrize("a", TYPES)
@pytest.mark.parametrize("b", TYPES)
def test_promotion_is_numpys(a, b):
    A, B = np.array([1, 0, 1]).astype(a), np.array([1, 1, 0]).astype(b)
    same(run("O[i] = A[i] + B[i]", A=A, B=B), A + B)
    same(run("O[i] = A[i] * B[i]", A=A, B=B), A * B)
    same(run("O[i] = A[i] == B[i]", A=A, B=B), A == B)


@pytest.mark.parametrize("a", TYPES)
@pytest.mark.parametrize("b", TYPES)
def test_differences_promote_before_they_negate(a, b):
    A, B = np.array([1, 0, 1]).astype(a), np.array([1, 1, 0]).astype(b)
    if a == b == "?":
        with pytest.raises(DTypeError, match="`-` does not take bool and bool"):
            run("O[i] = A[i] - B[i]", A=A, B=B)
    else:
        same(run("O[i] = A[i] - B[i]", A=A, B=B), A - B)
        same(run("O[i] = A[i] + A[i] - B[i]", A=A, B=B), A + A - B if a != "?" else (A | A) - B)


@pytest.mark.parametrize("dtype", TYPES)
def test_literals_sizes_and_python_scalars_are_weak(dtype):
    A = np.array([1, 0, 1]).astype(dtype)
    same(run("O[i] = A[i] + 2", A=A), A + 2)
    same(run("O[i] = A[i] * 0.5", A=A), A * 0.5)
    assert run("O[i] = A[i] + i", A=A).dtype == (A + 2).dtype
    assert run("O[i] = A[i] * x", A=A, x=0.5).dtype == (A * 0.5).dtype
    assert run("O[i] = A[i] * x", A=A, x=np.float64(0.5)).dtype == (A * np.float64(0.5)).dtype
    assert run("O[i] = A[i] + N for i in 0:N", A=A, sizes={"N": 3}).dtype == (A + 2).dtype


def test_weak_results_settle():
    assert run("O[i] = i for i in 0:3").dtype == np.int64
    assert run("O[i] = 0.5 for i in 0:3").dtype == np.float64
    assert run("S[0] = 0; S[t] = S[t-1] + X[t] for t in 1:4", X=coded(4, dtype="f4")).dtype == np.float32


def test_a_weak_temporary_settles_before_others_read_it():
    assert run("P = 3; O = R * P", R=np.int16(2)).dtype == np.int64
    assert run("P = 0.5; O = R * P", R=np.float32(2)).dtype == np.float64


def test_integers_wrap_and_literals_must_fit():
    A = np.array([200, 255], np.uint8)
    same(run("O[i] = A[i] + 100", A=A), A + np.uint8(100))
    same(run("O[i] = A[i] - 1", A=np.array([0, 1], np.uint8)), np.array([255, 0], np.uint8))
    same(run("O[i] = A[i] < 300", A=A), A < 300)
    with pytest.raises(DTypeError):
        run("O[i] = A[i] + 300", A=A)
    same(run("C += A[i]", A=A), np.asarray(np.uint8(199)))


def test_a_difference_promotes_before_it_negates():
    A, B = np.array([5], np.int16), np.array([7], np.uint8)
    same(run("O[i] = A[i] - B[i]", A=A, B=B), A - B)


def test_sums_of_bool_count():
    A = np.array([True, True, False])
    same(run("C += A[i]", A=A), np.asarray(2))
    same(run("C[j] = sum[i](A[i]) for j in 0:1", A=A), np.array([2]))
    assert run("C = mean[i](A[i])", A=A).dtype == np.float64
    assert run("C = mean[i](A[i])", A=np.arange(3, dtype="i1")).dtype == np.float64


def test_halves_compute_in_single_and_round_once():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    for half in (np.float16, ml_dtypes.bfloat16):
        A = np.array([1.0, 2.0**-9, 2.0**-9, 2.0**-9, 2.0**-9]).astype(half)
        want = A.astype(np.float32).sum().astype(half)
        same(run("C += A[i]", A=A), np.asarray(want))
        same(run("O[i] = A[i] * A[i] - A[i]", A=A), (A.astype("f4") * A.astype("f4") - A.astype("f4")).astype(half))


def test_bfloat16_promotes_as_float16_does():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    A = np.ones(2, ml_dtypes.bfloat16)
    for other, want in [("i1", "bfloat16"), ("i2", "f4"), ("i4", "f8"), ("f2", "f4"), ("f4", "f4"), ("c8", "c8")]:
        assert run("O[i] = A[i] + B[i]", A=A, B=np.ones(2, other)).dtype == np.dtype(want)
    assert run("O[i] = A[i] * 0.5", A=A).dtype == ml_dtypes.bfloat16


def test_acc_overrides_what_sums_are_kept_in():
    A = np.array([2.0**24, 1, 1, 1], np.float32)
    assert run("C += A[i]", A=A) == 2.0**24
    assert run("C += A[i]", A=A, acc=dt.f64) == 2.0**24 + 4


def test_casts_convert():
    A = np.array([1.75, -1.75])
    same(run("O[i] = i32(A[i])", A=A), A.astype(np.int32))
    same(run("O[i] = f16(A[i] * 1.001)", A=A), (A * 1.001).astype(np.float16))
    same(run("O[i] = bool(A[i])", A=A), np.array([True, True]))


def test_declared_types_are_checked_and_converted_to():
    text = "f(X: f32[N]) -> O:\n    O: f64[N]\n    O[i] = X[i] * 2\n"
    same(run(text, X=coded(3, dtype="f4")), coded(3) * 2)
    with pytest.raises(DTypeError, match="PK817"):
        run(text, X=coded(3))


def test_widened_evaluation_rounds_nothing():
    from polyker.einsum_frontend import parse
    from polyker.reference import interpret

    A = np.array([2.0**24, 1, 1, 1], np.float32)
    (got,) = interpret(parse("C += A[i]"), {"A": A}, widen=True)
    assert got.dtype == np.longdouble
    assert got == 2.0**24 + 3


def test_where_on_the_targets_indices_decides_extents_on_reduced_ones_not():
    A = coded(4, 4)
    same(run("L[i,j] = A[i,j] where i < 2 and j < 3", A=A), A[:2, :3])
    same(run("L[i,j] += A[i,j] where j < i", A=A), np.tril(A, -1)[:, :3])
    same(run("L[i] += A[i,k] where k < i - 1", A=A), np.tril(A, -2).sum(1))


def test_where_on_known_indices_admits_fewer_values():
    X, K = coded(10), coded(5)
    same(run("O[h] += X[h+r] * K[r] where r < 3", X=X, K=K), np.correlate(X, K[:3], "valid"))
    same(run("O[h] = sum[r](X[h+r] * K[r] where r < 3)", X=X, K=K), np.correlate(X, K[:3], "valid"))


def test_scattering_nothing_leaves_the_identity():
    text = "f(I: i64[N], W: f64[N]) -> H:\n    H: f64[3]\n    H[I[n]] *= W[n]\n"
    same(run(text, I=np.zeros(0, int), W=np.zeros(0)), np.ones(3))
