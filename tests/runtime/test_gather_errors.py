"""An index that is out of range: the error says which one it is, where it was read, and what it is."""

import re
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polyker as pk
from tests.gpu.support import HAS_COMPILER

X, XX = np.zeros(9), np.zeros((9, 5))
P = np.array([1, 20, 3, 4, -7, 0])


def errors(call, times=4):
    """Return what calls say; the first ones go through Python, later ones straight to the kernel."""
    found = []
    for _ in range(times):
        with pytest.raises(IndexError) as caught:
            call()
        found.append(caught.value)
    assert len({str(e) for e in found}) == 1
    return found[0]


CASES = [
    ("O[i] = X[p[i]]", (X, P), "`p[i]` is 20 at `p[1]`", "p[i]", "dimension 0 of `X` has 9"),
    ("O[i] += X[p[i],j] where i % 2 == 0", (XX, P), "`p[i]` is -7 at `p[4]`", "p[i]", ""),
    ("O[i] = X[p[2*i]]", (X, P), "`p[2*i]` is -7 at `p[4]`", "p[2*i]", ""),
    ("O[i] = X[p[i]+1]", (X, P * 0 + 8), "`p[i]+1` is 9 where `p[0]` is 8", "p[i]+1", ""),
    ("O[i] = X[a[i] + b[i]]", (X, np.array([3, 5], "u1"), np.array([5, 6])),
     "`a[i] + b[i]` is 11 where `a[1]` is 5 and `b[1]` is 6", "a[i] + b[i]", ""),
    ("O[i] = X[p[q[i]]]", (X, np.array([1, 2, 12]), np.array([0, 2])), "`p[q[i]]` is 12 at `p[2]`", "p[q[i]]", ""),
    ("O[i] = X[p[q[i]]]", (X, np.array([1, 2, 12]), np.array([0, 3])), "`q[i]` is 3 at `q[1]`", "q[i]",
     "dimension 0 of `p` has 3"),
    ("O[i] = X[j[i], p[i]]", (XX, np.array([8]), np.array([5])), "`p[i]` is 5 at `p[0]`", "p[i]", "dimension 1 of `X` has 5"),
    ("O[i] = sum[k](X[p[k,i]])", (X, np.array([[1, 2], [0, 9]])), "`p[k,i]` is 9 at `p[1, 1]`", "p[k,i]", ""),
    ("O[i,j] = X[p[i,j]]", (X, np.array([[1, 2], [10, 99]])), "`p[i,j]` is 10 at `p[1, 0]`", "p[i,j]", ""),
    ("o = X[p[]]", (X, np.array(-1)), "`p[]` is -1 at `p`", "p[]", ""),
    ("O[i] = X[p[i]] + X[q[i]]", (X, P * 0, P), "`q[i]` is 20 at `q[1]`", "q[i]", ""),
    ("f(H: f64[M], p: i64[N], w: f64[N]) -> H:\n    H[p[i]] = w[i]", (X, P[::-1], np.zeros(6)), "`p[i]` is -7 at `p[1]`",
     "p[i]", ""),
    ("f(H: f64[M], p: i64[N], w: f64[N]) -> H:\n    H[p[i]] += w[i]", (X, P[::-2], np.zeros(3)), "`p[i]` is 20 at `p[2]`",
     "p[i]", ""),
    ("f(X: f64[N], p: i64[T,M]) -> O:\n    O: f64[T,M]\n    for t in 0:T:\n        O[t,i] = X[p[t,i]]", (X, P.reshape(3, 2)),
     "`p[t,i]` is 20 at `p[0, 1]`", "p[t,i]", ""),
    # What is gathered by a temporary is not looked for: the access is named.
    ("f(p: i64[N], w: f64[N]) -> H:\n    H: f64[5]\n    Q[i] = p[i] * 2\n    H[Q[i]] += w[i]", (P, np.zeros(6)),
     "`Q[i]` is out of range", "Q[i]", "dimension 0 of `H` has 5"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "arrays", "says", "under", "extent"), CASES, ids=[c[2] for c in CASES])
@pytest.mark.parametrize("way", ["calls", "symbolic", "cuda-sim"])
def test_the_index_its_place_and_its_value(text, arrays, says, under, extent, way):
    op = pk.op(text)
    if way == "calls":
        call = partial(op, *arrays)
    elif way == "symbolic":
        names = iter("ABCDEFGH")
        kinds = [getattr(pk, {"f": "f64", "i": "i64", "u": "u8"}[a.dtype.kind]) for a in arrays]
        types = [k[tuple(next(names) for _ in a.shape)] for k, a in zip(kinds, arrays, strict=True)]
        if "q[i]]" in text or text.startswith("f("):
            types = arrays  # some extents have to agree
        call = partial(op.compile(*types), *arrays)
    else:
        call = partial(op.compile(*arrays, target="cuda-sim"), *arrays)
    if way == "cuda-sim" and not HAS_COMPILER:
        pytest.skip("no C++ compiler")
    error = errors(call)
    assert says in error.message
    assert extent in error.message
    assert error.span is not None
    assert error.span.source.text[error.span.start : error.span.end] == under


def test_the_builder_has_no_text_to_point_at():
    i, j = pk.indices("i j")
    X, p, out = pk.tensors("X p O")
    error = errors(partial(pk.op(out[i, j].set(X[p[i, j] + 1])), np.zeros(4), np.array([[0, 3]])))
    assert "`p[i, j] + 1` is 4 where `p[0, 1]` is 3, out of range" in error.message


def test_a_copy_of_the_error_says_the_same():
    import pickle

    error = errors(partial(pk.op("O[i] = X[p[i]]"), X, P))
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


@given(st.data())
@settings(max_examples=8, deadline=None)
def test_of_several_the_first_in_the_order_of_the_text(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    shape = data.draw(st.tuples(st.integers(1, 30), st.integers(1, 30)))
    steps = [data.draw(st.sampled_from([1, 2, -1])) for _ in shape]
    whole = rng.integers(0, 9, [n * abs(s) for n, s in zip(shape, steps, strict=True)])
    p = whole[tuple(slice(None, None, s) for s in steps)]
    for _ in range(data.draw(st.integers(1, 4))):
        p[tuple(rng.integers(0, n) for n in shape)] = data.draw(st.sampled_from([-1, 9, 2**40]))
    i, j = (int(k) for k in np.argwhere((p < 0) | (p >= 9))[0])
    text = data.draw(
        st.sampled_from(["O[a,b,c] = X[p[a,b], c]", "O[c,b] += X[p[a,b], c]", "O[b,a] = sum[c](X[p[a,b], c])"])
    )
    error = errors(partial(pk.op(text), XX, p), 2)
    if text.startswith("O[c,b]"):  # the reduced index comes last
        j, i = (int(k) for k in np.argwhere((p.T < 0) | (p.T >= 9))[0])
    found = re.search(r"is (\S+) at `p\[(\d+), (\d+)\]`", error.message)
    assert (int(found[1]), p[int(found[2]), int(found[3])]) == (p[int(found[2]), int(found[3])],) * 2
    if not text.startswith("O[b,a]"):
        assert found.groups() == (str(p[i, j]), str(i), str(j))


def test_many_indices_are_looked_through_in_parts():
    p = np.zeros((3000, 1000), np.int8)
    p[2999, 998] = 77
    error = errors(partial(pk.op("O[i] += X[p[i,j]]"), X, p), 2)
    assert "is 77 at `p[2999, 998]`" in error.message
