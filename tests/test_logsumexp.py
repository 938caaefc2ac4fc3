"""`logsumexp=` as a reduction of a statement: from -inf, into what is defined before, by the running maximum."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polyker as pk
from polyker.einsum_frontend import parse
from polyker.errors import DTypeError, GatherError
from tests import ways
from tests.ways import compiled, interpreted

rng = np.random.default_rng(3)
INF, NAN = np.inf, np.nan
call = ways.call  # the fixture


def close(found, want):
    want = np.asarray(want)
    assert (found.dtype, found.shape) == (want.dtype, want.shape)
    np.testing.assert_allclose(found, want, rtol={2: 2e-3, 4: 1e-5}.get(want.dtype.itemsize, 1e-13))


def total(x, axis):
    with np.errstate(all="ignore"):
        return np.logaddexp.reduce(x, axis=axis, initial=-INF)


X = rng.normal(size=(6, 37)) * 40
B = rng.normal(size=6) * 90


def test_it_is_the_log_of_the_sum(call):
    close(call("L[i] logsumexp= X[i,j]", X), total(X, 1))
    close(call("L[j] logsumexp= X[i,j]", X), total(X, 0))
    close(call("L logsumexp= X[i,j]", X), total(X, (0, 1)))


def test_it_is_stable(call):
    close(call("L[i] logsumexp= X[i,j]", X * 1e4), total(X * 1e4, 1))


def test_it_accumulates_into_what_is_defined_before(call):
    close(call("L[i] = B[i]; L[i] logsumexp= X[i,j]", B, X), np.logaddexp(B, total(X, 1)))
    close(call("L[i] logsumexp= X[i,j]; L[i] logsumexp= 2.0*X[i,j]", X), np.logaddexp(total(X, 1), total(2 * X, 1)))
    close(call("L[i] += B[i]; L[i] logsumexp= X[i,j]", B, X), np.logaddexp(B, total(X, 1)))
    close(call("L[i] logsumexp= X[i,j]; L[i] += B[i]", X, B), total(X, 1) + B)


def test_it_accumulates_into_an_argument(call):
    text = "f(L: f64[N], X: f64[N,M]) -> L:\n  L[i] logsumexp= X[i,j]"
    close(call(text, B, X), np.logaddexp(B, total(X, 1)))


def test_in_a_time_loop_it_goes_on(call):
    text = "f(X: f64[N,M]) -> L:\n  for t in 0:M:\n    L[i] logsumexp= X[i,t]"
    close(call(text, X), total(X, 1))
    text = (
        "f(X: f64[N,M]) -> O:\n  for t in 0:M:\n    L[i] = 0 for i in 0:N\n    L[i] logsumexp= X[i,t]\n    O[i] += L[i]"
    )
    close(call(text, X), np.logaddexp(0, X).sum(1))


def test_elements_left_out_hold_the_identity(call):
    close(call("L[i] logsumexp= X[i,j] where j < i", X), [total(X[i, :i], 0) for i in range(6)])
    close(call("L[i] logsumexp= X[i,j] for i in 2:5", X), [-INF, -INF, *total(X[2:5], 1)])
    close(call("L[i] logsumexp= X[i,j]", X[:, :0]), np.full(6, -INF))


def test_any_elements_of_the_target(call):
    want = np.full(42, -INF)
    for i in range(6):
        want[i : i + 37] = np.logaddexp(want[i : i + 37], X[i])
    close(call("L[i+j] logsumexp= X[i,j]", X), want)
    place = np.array([1, 3, 3, 0, 1, 1])
    want = np.full(5, -INF)
    np.logaddexp.at(want, place, total(X, 1))
    text = "f(X: f64[N,M], I: i64[N]) -> H:\n  H: f64[5]\n  H[I[i]] logsumexp= X[i,j]"
    close(call(text, X, place), want)
    with pytest.raises(GatherError, match="`H`"):
        call(text, X, place + 2)


def test_a_statement_that_reads_its_target_runs_in_order(call):
    text = "L[0] = X[0]; L[i] logsumexp= L[i-1] + X[j] for i in 1:N where j < i"
    x = X[0, :9]
    want = np.full(5, -INF)
    want[0] = x[0]
    for i in range(1, 5):
        want[i] = total(want[i - 1] + x[:i], 0)
    close(call(text, x, N=5), want)


@pytest.mark.parametrize(
    ("dtype", "result"), [("f4", "f4"), ("f2", "f2"), ("i4", "f8"), ("u1", "f8"), ("?", "f8"), ("f8", "f8")]
)
def test_types_are_those_of_the_inline_one(dtype, result):
    x = (rng.normal(size=(5, 40)) * 10).astype(dtype)
    for run in (compiled, interpreted):
        close(run("L[i] logsumexp= X[i,j]", x), total(x.astype("f8"), 1).astype(result))
    assert pk.op("L[i] logsumexp= X[i,j]").infer(x) == pk.op("L[i] = logsumexp[j](X[i,j])").infer(x)
    assert pk.op("L[i] logsumexp= X[i,j]").check(x)


def test_infinities_and_nan_are_those_of_the_inline_one(call):
    x = np.array([[INF, 1, 2], [NAN, INF, -INF], [-INF] * 3, [INF, -INF, 0], [-INF, 3, 3]])
    want = pk.op("L[i] = logsumexp[j](X[i,j])")(x)
    close(call("L[i] logsumexp= X[i,j]", x), want)
    start = np.array([-INF, 0, INF, NAN, 3.0])
    np.testing.assert_allclose(
        call("L[i] = B[i]; L[i] logsumexp= X[i,j]", start, x), [INF, NAN, INF, NAN, np.log(3) + 3], rtol=1e-14
    )


def test_it_is_scheduled_as_the_inline_one():
    text = [pk.op(t).compile(pk.f32[64, 4000]).source("schedule") for t in
            ("L[i] logsumexp= X[i,j]", "L[i] = logsumexp[j](X[i,j])")]  # fmt: skip
    shapes = [[line.split("S")[0] for line in t.splitlines()] for t in text]
    assert len(shapes[0]) == len(shapes[1])


def test_what_it_does_not_take():
    with pytest.raises(DTypeError, match="logsumexp"):
        pk.op("L[i] logsumexp= X[i,j]")(X.astype("c16"))
    with pytest.raises(DTypeError, match="cannot be stored"):
        pk.op("f(X: f64[N,M]) -> L:\n  L: i64[N]\n  L[i] logsumexp= X[i,j]")(X)


def test_the_builder_and_the_printer_say_it():
    (i, j), (x, out) = pk.indices("i j"), pk.tensors("X L")
    text = "L[i] logsumexp= X[i, j] where j <= i"
    assert pk.op(out[i].logsumexp(x[i, j]).where(j <= i)).program == parse(text)
    assert str(parse(text)) == text
    assert "logsumexp=" in str(pk.op(text))
    assert "exp" in str(pk.op(text).compile(X).explain())


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 9), st.integers(0, 40), st.integers(-2, 2).filter(bool), st.booleans())
def test_random_shapes_and_strides(n, m, step, turned):
    x = rng.normal(size=(n, m)) * 30
    x = (x.T if turned else x)[::step, ::step]
    close(compiled("L[i] logsumexp= X[i,j]", x), total(x, 1))
