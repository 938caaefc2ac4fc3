"""Recurrences whose first elements read padding are parted from them; the values stay those of a loop."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polyker as pk
from polyker.einsum_frontend import parse
from polyker.ir.dtypes import f64
from polyker.ir.expr import reads_in
from polyker.poly.binding.bind import bind
from polyker.rewrite.indexing.split_first_elements import part_first_elements

ONE = "f(X: f64[N,T]) -> Y:\n    Y[n,t] = X[n,t] - 0.5*Y[n,t-2; pad=0] for n in 0:N, t in 0:T"


def parts(text, **shapes):
    return list(part_first_elements(bind(parse(text), {n: f64[s] for n, s in shapes.items()}, {})).statements())


def test_what_follows_the_first_elements_has_no_padding():
    first, rest = parts(ONE, X=(9, 20))
    assert any(r.pad is not None for r in reads_in(first.expr))
    assert not any(r.pad is not None for r in reads_in(rest.expr))


@pytest.mark.parametrize("text", [
    # The others need what was there before the first elements.
    "f(X: f64[N,T]) -> X:\n    X[n,t] = X[n,t] + 0.5*X[T-1-n,t-2; pad=0] for n in 0:N, t in 0:T",
    # Nothing is left.
    "f(X: f64[N,T]) -> Y:\n    Y[n,t] = X[n,t] - 0.5*Y[n,t-20; pad=0] for n in 0:N, t in 0:T",
])  # fmt: skip
def test_what_gains_nothing_stays_whole(text):
    assert len(parts(text, X=(20, 20))) == 1


@settings(deadline=None, max_examples=6)
@given(st.sampled_from(["N-1-n", "n-1", "n+1", "n"]), st.integers(-3, 3), st.integers(1, 9), st.integers(1, 9))
def test_elements_of_other_rows_are_read_in_the_order_of_the_text(row, shift, rows, steps):
    text = (
        f"f(X: f64[N,T], w: f64[N,T]) -> X:\n    X[n,t] = w[n,t] + 0.5*X[{row},t-{shift + 4}; pad=0]"
        f" - 0.25*X[n,t-{shift + 3}; pad=1] for n in 0:N, t in 0:T"
    )
    x, w = np.random.default_rng(rows).normal(size=(2, rows, steps))
    want = x.copy()
    for n in range(rows):
        for t in range(steps):
            i, j, k = {"N-1-n": rows - 1 - n, "n-1": n - 1, "n+1": n + 1, "n": n}[row], t - shift - 4, t - shift - 3
            one = want[i, j] if 0 <= i < rows and 0 <= j < steps else 0
            two = want[n, k] if 0 <= k < steps else 1
            want[n, t] = w[n, t] + 0.5 * one - 0.25 * two
    np.testing.assert_allclose(pk.op(text)(x, w), want, rtol=1e-12)


@settings(deadline=None, max_examples=6)
@given(
    st.integers(0, 20), st.integers(0, 40), st.lists(st.integers(1, 6), min_size=1, max_size=3, unique=True), st.booleans(),
    st.booleans(),
)  # fmt: skip
def test_filters_are_those_of_a_loop(rows, steps, taps, across, written):
    rng = np.random.default_rng(rows + steps)
    x, a = rng.normal(size=(rows, steps)), rng.normal(size=7) / 8
    element = "t-k,n" if across else "n,t-k"
    terms = [f"a[{k}]*Y[{element.replace('k', str(k))}; pad=0]" for k in taps]
    total = " + ".join(terms) if written else f"sum[k in 1:{max(taps) + 1}](a[k]*Y[{element}; pad=0])"
    here = "t,n" if across else "n,t"
    order = "t in 0:T, n in 0:N" if across else "n in 0:N, t in 0:T"
    text = (
        f"f(X: f64[{'T,N' if across else 'N,T'}], a: f64[7]) -> Y:\n    Y[{here}] = X[{here}] - ({total}) for {order}"
    )
    want = np.zeros_like(x)
    for t in range(steps):
        used = taps if written else range(1, max(taps) + 1)
        want[:, t] = x[:, t] - sum(a[k] * want[:, t - k] for k in used if t >= k)
    found = pk.op(text)(np.ascontiguousarray(x.T) if across else x, a)
    np.testing.assert_allclose(found.T if across else found, want, rtol=1e-10, atol=1e-12)
