"""`=` at gathered places, against NumPy: of the instances that write one element the last in the order of the text counts."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polyker as pk
from polyker.einsum_frontend import parse
from polyker.errors import LegalityError
from polyker.reference import interpret
from tests.gpu.support import needs_compiler

BATCHED = "f(C: f64[B,P,D], p: i64[B], n: f64[B,D]) -> C:\n    C[b,p[b],d] = n[b,d]"
ROWS = "f(C: f64[P,D], p: i64[B], n: f64[B,D]) -> C:\n    C[p[b],d] = n[b,d]"
ALL = "f(C: f64[P], p: i64[B,D], n: f64[B,D]) -> C:\n    C[p[b,d]] = n[b,d]"
COLUMNS = ALL + " for d in 0:D, b in 0:B"
PAIRS = "f(C: f64[P,Q], p: i64[B], q: i64[B], n: f64[B]) -> C:\n    C[q[b]//2,p[b]] = n[b]"
SHIFTED = "f(C: f64[D,P], p: i64[B], n: f64[B,D]) -> C:\n    C[d,p[b]+1] = n[b,d] + 1"
SHAPES = st.tuples(st.integers(0, 20), st.integers(1, 5), st.integers(0, 19))


def strided(rng, shape, draw):
    """Return an array with steps of 1, 2 or -1 between its elements."""
    steps = [draw(st.sampled_from([1, 1, 2, -1])) for _ in shape]
    whole = rng.random([n * abs(s) for n, s in zip(shape, steps, strict=True)])
    return whole[tuple(slice(None, None, s) for s in steps)]


def numpy_of(text, c, p, n):
    c = c.copy()
    if text == BATCHED:
        c[np.arange(len(p)), p] = n
    elif text == ROWS:
        c[p] = n.copy()
    elif text == ALL:  # NumPy may walk arrays of more dimensions in the order of their memory
        c[p.ravel()] = n.ravel()
    elif text == COLUMNS:
        c[p.T.ravel()] = n.T.ravel()
    else:
        for place, row in zip(p, n, strict=True):
            c[:, place + 1] = row + 1
    return c


@st.composite
def calls(draw):
    text = draw(st.sampled_from([BATCHED, ROWS, ALL, COLUMNS, SHIFTED]))
    b, places, d = draw(SHAPES)
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    p = rng.integers(0, places, (b, d) if text in (ALL, COLUMNS) else b)
    n = strided(rng, (b, d), draw)
    shapes = {BATCHED: (b, places, d), ROWS: (places, d), ALL: (places,), COLUMNS: (places,), SHIFTED: (d, places + 1)}
    return text, strided(rng, shapes[text], draw), p, n


@given(calls(), st.sampled_from(["fixed", "symbolic", "interpreter"]))
@settings(max_examples=90, deadline=None)
def test_the_last_counts(call, way):
    text, c, p, n = call
    if way == "interpreter":
        (got,) = interpret(parse(text), {"C": c, "p": p, "n": n}, {})
    elif way == "fixed":
        got = pk.op(text).compile(c, p, n)(c, p, n)
    else:
        got = pk.op(text)(c, p, n)
    np.testing.assert_array_equal(got, numpy_of(text, c, p, n))


@needs_compiler
@given(calls())
@settings(max_examples=6, deadline=None)
def test_the_last_counts_on_a_gpu(call):
    text, c, p, n = call
    np.testing.assert_array_equal(pk.op(text).compile(c, p, n, target="cuda-sim")(c, p, n), numpy_of(text, c, p, n))


@pytest.mark.parametrize("text", [BATCHED, ROWS, ALL, COLUMNS, SHIFTED])
def test_one_symbolic_kernel_on_several_threads(text):
    c_type = {BATCHED: pk.f64["B", "P", "D"], ROWS: pk.f64["P", "D"], SHIFTED: pk.f64["D", "P"]}.get(text, pk.f64["P"])
    p_type = pk.i64["B", "D"] if text in (ALL, COLUMNS) else pk.i64["B"]
    kernel = pk.op(text).compile(c_type, p_type, pk.f64["B", "D"], threads=2)
    rng = np.random.default_rng(3)
    for b, places, d in ((0, 1, 3), (400, 7, 301), (33, 40, 17)):
        shape = {BATCHED: (b, places, d), ROWS: (places, d), SHIFTED: (d, places + 1)}.get(text, (places,))
        c, n = rng.random(shape), rng.random((b, d))
        p = rng.integers(0, places, (b, d) if text in (ALL, COLUMNS) else b)
        np.testing.assert_array_equal(kernel(c, p, n), numpy_of(text, c, p, n))


def test_two_gathers_on_the_left():
    rng = np.random.default_rng(4)
    c, p, q, n = rng.random((3, 4)), rng.integers(0, 4, 50), rng.integers(0, 6, 50), rng.random(50)
    expected = c.copy()
    expected[q // 2, p] = n
    np.testing.assert_array_equal(pk.op(PAIRS)(c, p, q, n), expected)


def test_the_inverse_of_a_permutation():
    p = np.random.default_rng(5).permutation(1000)
    q = pk.op("f(p: i64[N]) -> q:\n    q: i64[N]\n    q[p[i]] = i")(p)
    np.testing.assert_array_equal(q, np.argsort(p))


def test_a_value_that_is_a_reduction_is_assigned_not_added():
    x, p = np.arange(12.0).reshape(4, 3), np.array([1, 0, 1, 1])
    got = pk.op("f(p: i64[N], X: f64[N,K]) -> H:\n    H: f64[2]\n    H[p[i]] = sum[k](X[i,k])")(p, x)
    np.testing.assert_array_equal(got, [x[1].sum(), x[3].sum()])


def test_what_is_assigned_in_a_time_loop_stays():
    text = "f(p: i64[T,N], w: f64[T,N]) -> S:\n    H: f64[4]\n    S: f64[T,4]\n    for t in 0:T:\n"
    text += "        H[p[t,i]] = w[t,i]\n        S[t,j] = H[j] for j in 0:4"
    rng = np.random.default_rng(6)
    p, w = rng.integers(0, 4, (5, 3)), rng.random((5, 3))
    h, s = np.zeros(4), []
    for t in range(5):
        h[p[t]] = w[t]
        s.append(h.copy())
    np.testing.assert_array_equal(pk.op(text)(p, w), s)


def test_instances_see_what_those_before_wrote():
    text = "f(q: f64[N], p: i64[M]) -> q:\n    q[p[i]] = q[i] + 1 for i in 0:M"
    rng = np.random.default_rng(7)
    q, p = rng.integers(0, 9, 40).astype(float), rng.integers(0, 40, 30)
    expected = q.copy()
    for i in range(30):
        expected[p[i]] = expected[i] + 1
    np.testing.assert_array_equal(pk.op(text)(q, p), expected)


@pytest.mark.parametrize("bad", [-1, 4, 2**40, -(2**62)])
@pytest.mark.parametrize("target", ["cpu", pytest.param("cuda-sim", marks=needs_compiler)])
def test_a_place_outside_is_an_index_error_and_nothing_is_written_there(bad, target):
    memory = np.zeros((3, 4, 8))
    c, n = memory[1], np.ones((20, 8))
    p = np.arange(20) % 4
    p[13] = bad
    kernel = pk.op(ROWS).compile(c, p, n, target=target)
    with pytest.raises(IndexError):
        kernel(c, p, n, out=c)
    assert not memory[0].any()
    assert not memory[2].any()


def test_loops_that_say_which_is_the_last_keep_their_order():
    s = pk.op(ALL).schedule(pk.f64[5], pk.i64[6, 7], pk.f64[6, 7], auto=False)
    for edit in (lambda: s.interchange("d", "b"), lambda: s.vectorise(d=4), lambda: s.parallel("b")):
        with pytest.raises(LegalityError, match="through C"):
            edit()
    s = pk.op(ROWS).schedule(pk.f64[5, 7], pk.i64[6], pk.f64[6, 7], auto=False)
    with pytest.raises(LegalityError, match="through C"):
        s.parallel("b")
    c, p, n = np.zeros((5, 7)), np.array([0, 4, 4, 0, 2, 1]), np.random.default_rng(8).random((6, 7))
    kernel = pk.op(ROWS).compile(c, p, n, schedule=s.interchange("d", "b").vectorise(d=4))
    np.testing.assert_array_equal(kernel(c, p, n), numpy_of(ROWS, c, p, n))
