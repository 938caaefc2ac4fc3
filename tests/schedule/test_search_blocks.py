"""Places of extrema are searched for in the blocks of terms that have them; places are those of all terms."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polyker as pk
from polyker.codegen.ir.kernel import If
from polyker.codegen.ir.walk import statements
from polyker.codegen.llvm.jit.detect import target
from polyker.ir.layout import DENSE
from polyker.rewrite.searches import search_blocks as module
from polyker.rewrite.searches.match_searches import searches
from polyker.rewrite.searches.search_blocks import search_blocks
from tests.artifacts import compiled_to, generated
from tests.schedule.support import case

V4 = target("cpu:x86-64-v4")


def notes(text, **types):
    flat = case(text, **types).flat
    return search_blocks(flat, searches(flat), V4, lambda tensor: DENSE)[1]


@pytest.mark.parametrize(
    ("text", "shape", "length"),
    [
        ("a[i] = argmax[j](X[i,j])", "f32[64,10000]", 768),
        ("a = argmin[j](X[j])", "i32[100000]", 2560),
        ("a[i] = argmax[j](abs(X[i,j]))", "f64[8,5000]", 384),
        ("a[i] min= where(X[i,j] == max[k](X[i,k]), j, 9223372036854775807)", "u8[8,60000]", 1536),
    ],
)
def test_long_rows_are_searched_by_blocks(text, shape, length):
    (note,) = notes(text, X=shape)
    assert str(note).endswith(f"searches the first block of {length} terms that has the extremum")


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("a[i] = argmax[j](X[i,j])", "f32[64,200]"),  # short
        ("a[j] = argmax[i](X[i,j])", "f32[10000,64]"),  # terms lie apart
        ("a[i] = argmax[j in 1:10000](X[i,j])", "f32[64,10000]"),
        ("a[i] = argmax[j in 0:i+5000](X[i,j])", "f32[64,10000]"),
        ("a[i] = argmax[j in 0:10000](X[i,j;pad=0]) for i in 0:64", "f32[64,9000]"),
        ("a[i] min= where(X[i,j] == max[k](X[i,k]), j, 9223372036854775807)", "f32[64,10000]"),  # a NaN has no place
        ("a[i] min= where(X[i,j] == max[k](X[i,k]), j, 10000)", "i32[64,10000]"),  # 10000 is no identity
        ("a[i] min= where(X[i,j] == max[k](-X[i,k]), j, 9223372036854775807)", "i32[64,10000]"),  # another's extremum
        ("a[i] += where(X[i,j] == max[k](X[i,k]), j, 0)", "i32[64,10000]"),  # of all places
        ("a[i] = where(i == X[i,i], i, X[i,i])", "i32[64,64]"),  # no reduction
        ("a[i] min= where(X[i,j] == max[k](X[i,k]), i, 9223372036854775807)", "i32[64,10000]"),  # not the term's place
        (
            "f(X: i32[64,10000]) -> a:\n  M[i] = 5 for i in 0:64\n  M[i] max= X[i,j]\n"
            "  a[i] min= where(X[i,j] == M[i], j, 9223372036854775807)",
            "i32[64,10000]",
        ),
        (
            "f(X: i32[64,10000]) -> a:\n  a: i8[64]\n  a[i] min= where(X[i,j] == max[k](X[i,k]), i8(j), 127)",
            "i32[64,10000]",
        ),
    ],
)
def test_other_searches_stay(text, shape):
    assert notes(text, X=shape) == ()


def test_terms_that_change_in_between_are_all_looked_at():
    text = """
        f(X: i32[4,9000]) -> X, a:
            M[i] = max[j](X[i,j])
            X[i,j] = X[i,j] + i32(j == 5)
            a[i] min= where(X[i,j] == M[i], j, 9223372036854775807)
    """
    X = np.random.default_rng(0).integers(0, 1000, (4, 9000)).astype("i4")
    X[:, 5], X[:, 8000] = 999, 1000
    assert notes(text, X="i32[4,9000]") == ()
    np.testing.assert_array_equal(pk.op(text)(X=X)[1], [5] * 4)


def test_one_extremum_is_parted_once_whatever_its_statements_call_their_indices():
    hit = "X[q,l] == M[q] or X[q,l] != X[q,l]"
    text = f"""
        f(X: f32[64,10000]) -> a, b:
            M[i] max= X[i,j]
            a[q] min= where({hit}, l, {2**63 - 1})
            b[q] max= where({hit}, l, {-(2**63)})
    """
    X = np.random.default_rng(0).integers(0, 1000, (64, 10000)).astype("f4")
    X[5, 700] = X[5, 9900] = np.nan
    kernel = pk.op(text).compile(X=X, threads=1, target="cpu:x86-64-v3")
    assert generated(kernel, "schedule").count("searches the first block") == 1
    first, last = kernel(X)
    np.testing.assert_array_equal(first, X.argmax(1))
    np.testing.assert_array_equal(last, 9999 - X[:, ::-1].argmax(1))


def test_extrema_of_blocks_take_no_more_memory_than_is_allowed():
    flat = case("a[i] = argmax[j](X[i,j])", X="f32[64,10000]").flat
    found = tuple(searches(flat))
    assert search_blocks(flat, found, V4, lambda tensor: DENSE, 64 * 13 * 4)[1]
    assert search_blocks(flat, found, V4, lambda tensor: DENSE, 64 * 4) == (flat, ())


def test_terms_of_other_blocks_are_not_looked_at():
    kernel = pk.op("a[i] = argmax[j](X[i,j])").compile(X=pk.f32[64, 10000], target="cpu:x86-64-v4", threads=1)
    (branch,) = (s for s in statements(compiled_to(kernel).kernel.body) if isinstance(s, If))
    assert sum(1 for s in statements(branch.body) if hasattr(s, "trip")) == 3


@pytest.fixture
def _short(monkeypatch):
    monkeypatch.setattr(module, "MIN_BLOCK_VECTORS", 1 / 8)
    monkeypatch.setattr(module, "GAIN", -1e9)


@pytest.mark.usefixtures("_short")
@settings(max_examples=7, deadline=None)
@given(data=st.data())
def test_places_are_those_of_numpy(data):
    dtype = data.draw(st.sampled_from(["f4", "f8", "f2", "i1", "u2", "i8"]))
    rows, count = data.draw(st.integers(0, 5)), data.draw(st.integers(1, 70))
    seed, ties = data.draw(st.integers(0, 2**32 - 1)), data.draw(st.booleans())
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 3 if ties else 100, (rows, count)).astype(dtype)
    if X.dtype.kind == "f" and X.size:
        for special in data.draw(st.lists(st.sampled_from([np.nan, np.inf, -np.inf, -0.0]), max_size=6)):
            X[rng.integers(rows), rng.integers(count)] = special
    if data.draw(st.booleans()):
        X = X[:, ::-1]
    for op in ("argmax", "argmin"):
        found = pk.op(f"a[i] = {op}[j](X[i,j])").compile(X=X, threads=1)(X)
        np.testing.assert_array_equal(found, getattr(X, op)(1))
    if X.dtype.kind != "f" and rows:
        last = pk.op(f"a[i] max= where(X[i,j] == min[k](X[i,k]), j, {-(2**63)})")(X)
        np.testing.assert_array_equal(last, count - 1 - X[:, ::-1].argmin(1))
    flat = X[0] if rows else X.ravel()
    if flat.size:
        assert pk.op("a = argmax[j](X[j])")(flat) == flat.argmax()


@pytest.mark.usefixtures("_short")
@pytest.mark.parametrize("threads", [2, 3])
def test_blocks_are_searched_on_threads(threads):
    X = np.random.default_rng(0).normal(size=(40, 20000)).astype("f4")
    op = pk.op("a[i] = argmax[j](X[i,j])")
    np.testing.assert_array_equal(op.compile(X=X, threads=threads)(X), X.argmax(1))
    assert pk.op("a = argmin[j](X[j])").compile(X=X.ravel(), threads=threads)(X.ravel()) == X.argmin()
