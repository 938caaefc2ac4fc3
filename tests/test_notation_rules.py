"""The rules of the notation, one test each, compiled and interpreted: each fails if its rule is broken."""

import re

import numpy as np
import pytest

import polyker as pk
from polyker.einsum_frontend import parse
from polyker.reference import interpret

rng = np.random.default_rng(5)
NAN, INF = np.nan, np.inf


def compiled(text, *arrays, **sizes):
    return pk.op(text)(*arrays, **sizes)


def interpreted(text, *arrays, **sizes):
    program = parse(text)
    given = dict(zip(program.parameters, arrays, strict=True))
    inputs = {name: value for name, value in given.items() if name in program.inputs}
    result = interpret(program, inputs, sizes | {n: v for n, v in given.items() if n not in inputs})
    return result[0] if len(result) == 1 else result


@pytest.fixture(params=[compiled, interpreted], ids=lambda f: f.__name__)
def call(request):
    return request.param


def same(got, expected):
    got, expected = np.asarray(got), np.asarray(expected)
    assert (got.shape, got.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_array_equal(got, expected)


X = np.array([3.0, -1.0, 4.0, 1.0, -5.0, 9.0])
A = np.arange(12.0).reshape(3, 4) * 7 % 5 - 2


# Statements


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        ("+=", A.sum(1)),
        ("*=", A.prod(1)),
        ("max=", A.max(1)),
        ("min=", A.min(1)),
        ("any=", A.any(1)),
        ("all=", A.all(1)),
    ],
)
def test_every_reduction(call, op, expected):
    same(call(f"O[i] {op} A[i,k]", A), expected)


@pytest.mark.parametrize(
    ("op", "dtype", "identity"),
    [
        ("+=", "f8", 0.0), ("*=", "f8", 1.0), ("max=", "f8", -INF), ("min=", "f8", INF), ("any=", "f8", False),
        ("all=", "f8", True), ("max=", "i4", -(2**31)), ("min=", "i4", 2**31 - 1), ("max=", "u2", 0), ("min=", "u2", 2**16 - 1),
    ],
)  # fmt: skip
def test_a_reduction_over_nothing_is_its_identity(call, op, dtype, identity):
    empty = np.empty((2, 0), dtype=dtype)
    same(call(f"O[i] {op} A[i,k]", empty), np.array([identity] * 2, dtype=bool if op in ("any=", "all=") else dtype))


def test_semicolons_comments_and_newlines_in_brackets(call):
    text = "# first\nT[i] = X[\n  i] * 2; O[i] = (T[i]\n   + 1)  # last\n"
    same(call(text, X), X * 2 + 1)


def test_a_term_without_the_reduced_index_warns():
    with pytest.warns(UserWarning, match="k"):
        pk.op("O[n] += A[n,k] + b[n]")


def test_instances_run_in_the_order_of_the_for_clause(call):
    start = "F[0,j] = X[j]; F[i,5] = 0 for i in 1:3; "
    expected = np.zeros((3, 6))
    expected[0] = X
    for i in (1, 2):
        expected[i, :5] = expected[i - 1, 1:] + 1
    same(call(start + "F[i,j] = F[i-1,j+1] + 1 for i in 1:3, j in 0:5", X), expected)
    with pytest.raises(pk.ShapeError):
        call(start + "F[i,j] = F[i-1,j+1] + 1 for j in 0:5, i in 1:3", X)


def test_two_instances_that_assign_one_element_are_an_error_and_combine_in_a_reduction(call):
    with pytest.raises(pk.ShapeError):
        call("O[i//2] = X[i]", X)
    same(call("O[i//2] += X[i]", X), X.reshape(3, 2).sum(1))


def test_later_statements_overwrite_and_accumulate(call):
    same(call("O[i] = X[i]; O[i] = O[i] * 2; O[i] += X[i] * k for k in 0:3", X), X * 2 + X * 3)


def test_reading_what_nothing_has_written_is_an_error(call):
    with pytest.raises(pk.PolykerError):
        call("S[t] = S[t-1] + X[t] for t in 1:6", X)


def test_the_extent_is_one_more_than_the_largest_subscript_of_all_statements(call):
    same(call("O[0] = 7.0; O[i+1] = X[i]", X), np.concatenate([[7.0], X]))


def test_a_element_that_nothing_writes_is_an_error_that_names_it(call):
    with pytest.raises(pk.ShapeError):
        call("O[2*i] = X[i]", X)


def test_elements_that_inference_left_out_of_a_reduction_are_an_error(call):
    with pytest.raises(pk.ShapeError, match=r"for|pad"):
        call("O[i+1] += A[i,k]", A)


def test_elements_that_a_clause_left_out_of_a_reduction_hold_the_identity(call):
    same(call("O[i] max= A[i,k] where i != 1", A), np.where(np.arange(3) == 1, -INF, A.max(1)))


def test_an_in_out_argument_changes_only_as_out():
    f = pk.op("f(A: f64[N]) -> A:\n    A[i] = A[i] + 1")
    given = X.copy()
    same(f(given), X + 1)
    same(given, X)
    assert f(given, out=given) is given
    same(given, X + 1)


def test_out_is_not_read_otherwise():
    out = np.full(3, NAN)
    pk.op("O[i] += A[i,k]")(A, out=out)
    same(out, A.sum(1))


# Index ranges


@pytest.mark.parametrize("shape", [(5, 4), (1, 4)])
def test_bare_subscripts_have_to_agree_and_1_is_not_stretched(call, shape):
    with pytest.raises(pk.ShapeError) as caught:
        call("O[i] += A[i,k] * B[i,k]", A, np.ones(shape))
    assert "3" in str(caught.value)
    assert str(shape[0]) in str(caught.value)


def test_ranges_are_found_in_rounds(call):
    # k is 0:2 from K; then j + k in 0:6 gives j 0:5; then i + j in 0:9 gives i 0:5.
    got = call("O[i] += Y[i+j] * X[j+k] * K[k]", np.arange(9.0), X, np.ones(2))
    pairs = X[:-1] + X[1:]
    same(got, np.array([np.arange(9.0)[i : i + 5] @ pairs for i in range(5)]))


def test_a_range_that_stays_open_is_an_error_that_names_the_index_and_for_settles_it(call):
    with pytest.raises(pk.ShapeError, match=r"`[ij]`"):
        call("O[i] += X[i+j]", X)
    same(call("O[i] += X[i+j] for j in 0:3", X), np.convolve(X, np.ones(3), "valid"))


def test_a_subscript_without_an_open_index_is_checked(call):
    same(call("O[i] = X[i] + Y[i+1]", X, np.arange(7.0)), X + np.arange(1.0, 7))
    with pytest.raises(pk.ShapeError):
        call("O[i] = X[i] + Y[i+1] for i in 0:6", X, X)


def test_offsets_and_strides_shorten_a_range_and_bounds_intersect(call):
    same(call("D[i] = X[i+1] - X[i]", X), np.diff(X))
    same(call("O[i] = X[i] + Y[i+1]", X, np.arange(9.0)), X + np.arange(1.0, 7))
    same(call("O[i] = X[i] + Y[2*i+1]", X, np.arange(6.0)), X[:3] + np.arange(1.0, 6, 2))
    same(call("O[i,j] = A[i,j+1] - A[i,j] + A[2*i,j]", A), (A[:, 1:] - A[:, :-1])[:2] + A[::2, :-1])
    same(call("O[i] = X[-i+3] + Y[i]", X, np.arange(9.0)), X[3::-1] + np.arange(4.0))
    same(call("D[...,i] = A[...,i+1] - A[...,i]", A), A[:, 1:] - A[:, :-1])


@pytest.mark.parametrize("n", [0, 1, 2])
def test_a_range_that_bounds_shorten_may_be_empty(call, n):
    same(call("D[i] = X[i+1] - X[i]", X[:n]), np.diff(X[:n]))
    same(call("D[i] = X[i+3] - X[i]", X[:n]), np.empty(0))


def test_a_read_of_a_tensor_that_is_still_defined_bounds_nothing(call):
    same(call("S[0] = 0; S[t+1] = S[t] + X[t]", X), np.concatenate([[0], np.cumsum(X)]))
    same(call("S[0] = 1; S[t+1] = S[t] * Y[t+1] - X[2*t]", np.ones(9), X), np.array([1.0, -2, -6, -1]))
    # ... but where nothing else bounds the index.
    same(call("O[i] += A[i,k]; O[i] = relu(O[i])", A), np.maximum(A.sum(1), 0))


@pytest.mark.parametrize("c", [100_000, 2_000_000_000, 2**31])
def test_coefficients_offsets_and_divisors_are_at_most_2_31(call, c):
    i = np.arange(6)
    same(call(f"O[i] = X[i*{c} % 7 % 6] + X[i]", X), X[i * c % 7 % 6] + X)
    same(call(f"O[i] = X[(i*{c} + {c}) // {c} - 1] + X[i]", X), X + X)
    same(call(f"O[i] += X[j] for i in 0:6 where {c}*i <= {c}*j + {c - 1}", X), X[::-1].cumsum()[::-1])
    same(call(f"O[i] = i * {c} + 5 for i in 0:6"), i * c + 5)
    same(call(f"O[i] = X[{c}*i - {c}; pad=0] + X[i]", X), X + X[0] * (i == 1))
    with pytest.raises(pk.ParseError, match=r"2\^31"):
        call(f"O[i] = X[{2**31 + 1}*i] for i in 0:1", X)


def test_a_strided_access_admits_the_values_that_fit(call):
    same(call("O[i] += X[2*i+r] * K[r]", X[:5], np.ones(2)), X[:4].reshape(2, 2).sum(1))


def test_a_padded_subscript_bounds_where_the_index_stands_alone(call):
    same(call("O[i] = X[i; pad=0]", X), X)
    same(call("O[i] = Y[i] + X[i; pad=2.5]", np.zeros(8), X), np.concatenate([X, [2.5, 2.5]]))


@pytest.mark.parametrize("constant", ["-inf", "nan", "7", "-1.5"])
def test_padding_with_a_constant(call, constant):
    same(call(f"O[i] = X[i-1; pad={constant}] for i in 0:3", X), np.array([float(constant), *X[:2]]))


def test_for_is_half_open_and_may_be_empty(call):
    same(call("O[i] = X[i] for i in 0:4", X), X[:4])
    same(call("O[i] = X[i] for i in 0:N", X, N=0), X[:0])


def test_for_takes_bounds_that_depend_on_other_indices(call):
    expected = np.zeros((3, 3))
    for i in range(3):
        for j in range(i, 3):
            expected[i, j] = A[i, j]
    same(call("O[i,j] += A[i,j] for i in 0:3, j in i:3", A[:, :3]), expected)


def test_where_takes_chains_and_inequality(call):
    got = call("O[i] += X[k] for i in 0:6, k in 0:6 where 0 < k <= i and k != 2", X)
    same(got, np.array([sum(X[k] for k in range(1, i + 1) if k != 2) for i in range(6)], dtype=float))


def test_subscripts_take_floor_and_remainder(call):
    same(call("O[i] = A[i//2, i%2] for i in 0:6", A), A[np.arange(6) // 2, np.arange(6) % 2])


def test_gathers_nest(call):
    a, b = np.array([5, 0, 2]), np.array([1, 1, 0, 2])
    same(call("O[i] = X[a[b[i]]]", X, a, b), X[a[b]])


@pytest.mark.parametrize("bad", [-1, 6, 2**40])
def test_a_gathered_index_outside_is_an_index_error(call, bad):
    with pytest.raises(IndexError):
        call("O[i] = X[idx[i]]", X, np.array([0, bad]))


def test_of_what_is_assigned_to_one_gathered_place_the_last_counts(call):
    idx, start = np.array([4, 0, 4, 1, 0, 4]), np.full(5, 7.0)
    expected = start.copy()
    expected[idx] = X
    same(call("f(H: f64[M], X: f64[N], idx: i64[N]) -> H:\n    H[idx[i]] = X[i]", start, X, idx), expected)
    # The order of the text is that of the indices of `for`, then those of the left.
    n = np.arange(6.0).reshape(2, 3)
    text = "f(H: f64[M], n: f64[B,D], p: i64[B,D]) -> H:\n    H[p[b,d]] = n[b,d]"
    same(call(text, np.zeros(1), n, np.zeros((2, 3), int)), n[-1, -1:])
    same(call(text + " for d in 0:2, b in 0:2", np.zeros(1), n, np.zeros((2, 3), int)), n[1, 1:2])


def test_a_fresh_tensor_is_0_where_nothing_is_assigned(call):
    text = "f(p: i64[N]) -> q:\n    q: i64[6]\n    q[p[i]] = i + 1"
    same(call(text, np.array([3, 5, 3])), np.array([0, 0, 0, 3, 0, 2]))
    # Beside the gathered dimension all is as ever.
    with pytest.raises(pk.ShapeError, match=r"no statement writes|is never written"):
        call("f(p: i64[N], w: f64[2]) -> H:\n    H: f64[1,3]\n    H[p[i],j+1] = w[j]", np.array([0]), np.ones(2))


def test_dots_broadcast_1_and_named_indices_do_not(call):
    same(call("O[...,i] = X[...,i] + Y[...,i]", np.ones((4, 1, 3)), np.arange(6.0).reshape(2, 3)),
         np.ones((4, 1, 3)) + np.arange(6.0).reshape(2, 3))  # fmt: skip
    with pytest.raises(pk.ShapeError):
        call("O[...,i] = X[...,i] + Y[...,i]", np.ones((4, 1)), np.ones((4, 3)))


def test_dots_of_the_right_have_to_be_on_the_left():
    with pytest.raises(pk.ShapeError):
        pk.op("O[i] += X[...,i]")


# Expressions


@pytest.mark.parametrize(
    "expression",
    ["-a**2", "2**-a", "a-b-c", "a/b/c", "a-b*c", "a*b%c", "-a//b", "a**b**2", "(a+b)*c", "a+-b", "a//b*c",
     "a < b and not b < c or a == c", "not a == b", "a < c or b < a and b == c"],
)  # fmt: skip
def test_precedence_is_pythons(call, expression):
    values = {"a": np.float64(3), "b": np.float64(2), "c": np.float64(5)}
    names = [name for name in re.findall(r"[a-z]+", expression) if name in values]
    got = call(f"O = {expression}", *(values[name] for name in dict.fromkeys(names)))
    same(got, np.asarray(eval(expression, dict(values))))


def test_comparisons_chain(call):
    same(call("O[i] = -2 < X[i] < 4", X), (-2 < X) & (X < 4))


def test_a_bare_name_is_an_index_then_a_0d_tensor_a_constant_or_a_new_input(call):
    same(call("s += X[i]; O[i] = X[i] * i + s + a", X, 0.5), X * np.arange(6) + X.sum() + 0.5)
    same(call("O[i] = where(X[i] > 0, inf, -pi)", X), np.where(X > 0, INF, -np.pi))


def test_a_declared_size_is_a_value(call):
    same(call("f(X: f64[N]) -> m:\n    m = sum[i](X[i]) / N", X), np.float64(X.sum() / 6))


def test_names_may_be_keywords_of_other_languages(call):
    same(call("int[exists] += while[exists,double] * define[double]", A, np.arange(4.0)), A @ np.arange(4.0))


@pytest.mark.parametrize("name", ["sum", "f32", "inf", "exp", "in", "not", "argmax"])
def test_reserved_names_are_refused(name):
    with pytest.raises(pk.ParseError):
        pk.op(f"O[i] = {name}[i]")


@pytest.mark.parametrize(
    ("reduction", "numpy"),
    [
        ("sum", np.sum), ("prod", np.prod), ("max", np.max), ("min", np.min), ("mean", np.mean), ("any", np.any), ("all", np.all),
        ("argmax", np.argmax), ("argmin", np.argmin),
    ],
)  # fmt: skip
def test_every_inline_reduction(call, reduction, numpy):
    same(call(f"O[i] = {reduction}[k](A[i,k])", A), numpy(A, axis=1))


def test_logsumexp_does_not_overflow(call):
    got = call("O[i] = logsumexp[k](A[i,k])", A + 1000)
    np.testing.assert_allclose(got, np.logaddexp.reduce(A + 1000, axis=1), rtol=1e-14)


def test_siblings_may_share_names_and_an_outer_index_may_not_be_reused(call):
    same(call("O[i] = sum[k](A[i,k]) * max[k](A[i,k])", A), A.sum(1) * A.max(1))
    with pytest.raises(pk.ParseError):
        pk.op("O[i] = sum[i](A[i,i])")


def test_an_inline_reduction_over_two_indices(call):
    same(call("O = sum[i,k](A[i,k] * A[i,k])", A), (A * A).sum())


def test_argmax_is_the_indexs_own_value_the_first_on_ties_or_the_first_nan(call):
    tied = np.array([[1.0, 5.0, 5.0, 0.0], [7.0, NAN, 9.0, NAN]])
    same(call("O[i] = argmax[k](A[i,k])", tied), np.array([1, 1]))
    same(call("O[i] = argmax[k in 2:4](A[i,k])", np.array([[9.0, 9.0, 1.0, 2.0]])), np.array([3]))
    with pytest.raises(ValueError):
        call("O[i] = argmin[k](A[i,k])", np.empty((2, 0)))


def test_mean_over_nothing_is_nan_and_max_keeps_nan(call):
    same(call("O[i] = mean[k](A[i,k])", np.empty((2, 0))), np.array([NAN, NAN]))
    same(call("O[i] max= A[i,k]", np.array([[1.0, NAN, 3.0]])), np.array([NAN]))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("abs", np.abs), ("exp", np.exp), ("expm1", np.expm1), ("log", np.log), ("log1p", np.log1p), ("sqrt", np.sqrt),
        ("sin", np.sin), ("cos", np.cos), ("tan", np.tan), ("tanh", np.tanh), ("floor", np.floor), ("ceil", np.ceil),
        ("round", np.round), ("sign", np.sign), ("rsqrt", lambda x: 1 / np.sqrt(x)), ("sigmoid", lambda x: 1 / (1 + np.exp(-x))),
        ("relu", lambda x: np.maximum(x, 0)), ("silu", lambda x: x / (1 + np.exp(-x))), ("conj", np.conj), ("real", np.real),
        ("imag", np.imag),
    ],
)  # fmt: skip
def test_every_function_of_one_argument(call, text, expected):
    values = np.array([0.25, 0.5, 1.0, 1.5, 2.5, 3.5, 7.0])
    np.testing.assert_allclose(call(f"O[i] = {text}(X[i])", values), expected(values), rtol=1e-14)


def test_erf_and_gelu(call):
    from math import erf, erfc, sqrt

    np.testing.assert_allclose(call("O[i] = erf(X[i])", X), [erf(x) for x in X], rtol=1e-14)
    np.testing.assert_allclose(call("O[i] = gelu(X[i])", X), [x / 2 * erfc(-x / sqrt(2)) for x in X], rtol=1e-13)


def test_minimum_maximum_where_and_casts(call):
    same(call("O[i] = minimum(X[i], 2) + maximum(X[i], 0)", X), np.minimum(X, 2) + np.maximum(X, 0))
    same(call("O[i] = i32(X[i] / 2)", X), (X / 2).astype(np.int32))


def test_max_with_two_arguments_suggests_maximum():
    with pytest.raises(pk.PolykerError, match="maximum"):
        pk.op("O[i] = max(X[i], 0)")


def test_where_guards_no_access_and_the_error_suggests_padding(call):
    with pytest.raises(pk.ShapeError, match="pad" if call is compiled else "X"):
        call("O[i] = where(i > 0, X[i-1], 0) for i in 0:6", X)


def test_integers_floor_wrap_and_divide_as_numpys(call):
    a = np.array([7, -7, 7, -7, 5, -(2**31)], dtype=np.int32)
    b = np.array([2, 2, -2, -2, 0, 3], dtype=np.int32)
    with np.errstate(all="ignore"):
        same(call("O[i] = a[i] // b[i]", a, b), a // b)
        same(call("O[i] = a[i] % b[i]", a, b), a % b)
        same(call("O[i] = a[i] / b[i]", a, b), a / b)
        same(call("O[i] = a[i] * a[i]", a), a * a)


# Types


@pytest.mark.parametrize("a", ["f2", "f4", "f8", "i1", "i4", "i8", "u1", "u8", "?", "c8"])
@pytest.mark.parametrize("b", ["f4", "i2", "u4", "?", "c16"])
def test_promotion_is_numpys(call, a, b):
    x, y = np.ones(3, dtype=a), np.ones(3, dtype=b)
    same(call("O[i] = X[i] * Y[i]", x, y), x * y)


@pytest.mark.parametrize("dtype", ["f2", "f4", "i1", "u1", "c8"])
def test_literals_indices_and_python_scalars_are_weak(call, dtype):
    x = np.array([1, 2, 3], dtype=dtype)
    same(call("O[i] = X[i] * 2 + i", x), (x * 2 + np.arange(3).astype(dtype)).astype(dtype))
    same(call("O[i] = X[i] * a", x, 3), x * 3)


def test_a_fresh_tensor_has_the_promotion_over_its_statements(call):
    same(call("O[0] = a[0]; O[1] = b[0]", np.ones(1, "i2"), np.ones(1, "f4")), np.ones(2, "f4"))


def test_sums_count_bools_in_i64_and_integers_in_their_type(call):
    same(call("O += B[i]", np.ones(300, bool)), np.int64(300))
    same(call("O += B[i]", np.full(300, 100, np.int8)), np.full(300, 100, np.int8).sum(dtype=np.int8))
    same(call("O = mean[i](B[i])", np.array([1, 2], np.int8)), np.float64(1.5))


def test_f16_accumulates_in_f32_and_rounds_once(call):
    same(call("O += B[i]", np.ones(4096, np.float16)), np.float16(4096))


# Declarations


def test_sizes_of_two_arguments_that_disagree_are_an_error_that_names_both(call):
    with pytest.raises(pk.ShapeError) as caught:
        call("f(A: f64[M,K], x: f64[K]) -> y:\n    y[i] += A[i,k] * x[k]", A, np.ones(5))
    if call is compiled:
        assert "`A`" in str(caught.value)
        assert "`x`" in str(caught.value)


def test_a_declared_temporary_has_its_declared_type(call):
    text = "f(X: f64[N]) -> O:\n    T: f32[N]\n    T[i] = X[i] / 3\n    O[i] = f64(T[i])"
    same(call(text, X), (X / 3).astype(np.float32).astype(np.float64))


def test_arguments_of_another_type_than_declared_are_refused(call):
    with pytest.raises(TypeError):
        call("f(X: f32[N]) -> O:\n    O[i] = X[i]", X)


def test_inputs_go_by_their_first_character_and_outputs_by_their_definition():
    program = pk.op("T[i] = X[idx[i]] + b; P[i] = T[i] * Y[i]; Q += X[j]").program
    assert program.inputs == ("X", "idx", "b", "Y")
    assert program.outputs == ("P", "Q")
    assert program.temporaries == ("T",)


def test_several_outputs_are_a_namedtuple():
    result = pk.op("s += X[i]; m max= X[i]")(X)
    assert result._fields == ("s", "m")
    assert (float(result.s), float(result.m)) == (X.sum(), X.max())


def test_an_undeclared_size_is_given_by_keyword(call):
    same(call("O[i] = X[N - 1 - i] for i in 0:N", X, N=6), X[::-1])


def test_a_size_that_is_missing_is_an_error():
    with pytest.raises(pk.PolykerError, match="N"):
        pk.op("O[i] = X[N - 1 - i] for i in 0:N")(X)


@pytest.mark.parametrize(
    ("text", "types", "want"),
    [
        ("X[i,j] = (B[i,j] - sum[k in 0:i](L[i,k] * X[k,j])) / L[i,i]", {"B": pk.f32[5, 3], "L": pk.f32[5, 5]}, pk.f32),
        ("X[i] = b[i] + sum[k in 0:i](sin(X[k]))", {"b": pk.f32[5]}, pk.f32),
        ("X[i] = n[i] / (1 + sum[k in 0:i](X[k]))", {"n": pk.i32[5]}, pk.f64),
        ("X[i] = c[i] + sum[k in 0:i](X[k] * d[k])", {"c": pk.f32[5], "d": pk.f64[5]}, pk.f64),
        ("X[i] = sum[k in 0:i](where(m[k] > 0, X[k], b[k])) for i in 0:5", {"m": pk.i64[5], "b": pk.f32[5]}, pk.f32),
        ("X[i] = sum[k in 0:i](f64(X[k])) + b[i]", {"b": pk.f32[5]}, pk.f64),
    ],
)
def test_a_tensor_that_reads_itself_has_the_type_of_what_else_it_reads(text: str, types, want) -> None:
    assert pk.op(text).infer(**types).dtype == want
