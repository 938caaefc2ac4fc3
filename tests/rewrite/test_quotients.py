"""Indices of which quotients and remainders are read are split into both; the values stay."""

import numpy as np
import pytest

import polyker as pk
from polyker.einsum_frontend import parse
from polyker.ir.dtypes import f32
from polyker.ir.expr import Call, walk
from polyker.poly.binding.bind import bind
from polyker.rewrite.indexing.split_quotients import split_quotients
from tests.covering import few


def split(text, **shapes):
    """Return (iterators, quotients and remainders left) of the only statement."""
    (statement,) = split_quotients(bind(parse(text), {n: f32[s] for n, s in shapes.items()}, {})).statements()
    left = sum(isinstance(e, Call) and e.op in ("floordiv", "mod") for e in walk(statement.expr))
    return len(statement.iterators), left


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("O[i] = X[i // 2] for i in 0:18", (2, 0)),
        ("O[i] = X[(i + 3) // 2] for i in 0:14", (2, 0)),
        ("O[i] = X[i // 2] + X[(i + 2) // 2] for i in 0:14", (2, 0)),
        ("O[i] = X[i // 2] + X[(i + 1) // 2] for i in 0:14", (1, 2)),  # other pairs
        ("O[i] = X[i // 2] + X[i // 3] for i in 0:14", (1, 2)),
        ("O[i,j] = X[(i + j) // 2] for i in 0:9, j in 0:9", (2, 1)),
        ("O[i] = X[i % 3] for i in 0:30", (2, 0)),
        ("O[i,j] = Y[j // 2, i // 3] for i in 0:12, j in 0:7", (4, 0)),
        ("O[i] += X[(i + k) // 2] for i in 0:4, k in 0:4", (2, 1)),  # a sum
    ],
)
def test_indices_are_split_by_one_divisor(text, found):
    assert split(text, **({"Y": (5, 5)} if "Y" in text else {"X": (9,)})) == found


@pytest.mark.parametrize(("n", "dtype"), few([1, 2, 5, 33, 64], ["f4", "f8", "u1", "i2"], 2))
def test_values_are_those_of_numpy(n, dtype):
    x = (np.arange(3 * n) * 7 % 31).reshape(3, n).astype(dtype)
    for m in (2, 3, 4, 5):
        np.testing.assert_array_equal(pk.op("O[i,j] = X[i,j//m] for j in 0:m*n", m=m, n=n)(x), x.repeat(m, 1))
        np.testing.assert_array_equal(pk.op("O[i,j] = X[i//m,j] for i in 0:3*m", m=m)(x), x.repeat(m, 0))
        np.testing.assert_array_equal(pk.op("O[i,j] = X[i,j%n] for j in 0:m*n", m=m, n=n)(x), np.tile(x, (1, m)))
        odd = pk.op("O[i,j] = X[i,(j+1)//m] for j in 0:m*n-1", m=m, n=n)(x)
        np.testing.assert_array_equal(odd, x.repeat(m, 1)[:, 1:])


def test_pixels_are_shuffled():
    x = np.random.default_rng(0).normal(size=(12, 5, 20)).astype("f4")
    text = "O[c,h,w] = X[c*4 + (h%2)*2 + w%2, h//2, w//2] for c in 0:3, h in 0:10, w in 0:40"
    want = x.reshape(3, 2, 2, 5, 20).transpose(0, 3, 1, 4, 2).reshape(3, 10, 40)
    np.testing.assert_array_equal(pk.op(text)(x), want)


OTHERS = {
    "O[i] = X[i//2] + i//3": lambda X, i: (i, X[i // 2] + i // 3),
    "O[i] = where(i//3 < 5, X[i//2], 0)": lambda X, i: (i, X[i // 2] if i // 3 < 5 else 0),
    "O[i] = X[i//2] + P[i//3 + p[i]]": lambda X, i: (i, X[i // 2] + 7 * (i // 3 + i % 2)),
    "O[(i+3)%100] = X[(i+7)%100]": lambda X, i: ((i + 3) % 100, X[(i + 7) % 100]),
}


@pytest.mark.parametrize("text", OTHERS)
@pytest.mark.parametrize("specialize", ["always", "never"])
def test_quotients_by_other_numbers_stay_wherever_they_stand(text, specialize):
    X, P, p = np.arange(100.0) ** 2, 7 * np.arange(100.0), np.arange(100) % 2
    want = np.zeros(100)
    for i in range(100):
        place, value = OTHERS[text](X, i)
        want[place] = value
    with pk.options(specialize=specialize):
        given = {"X": X, "P": P, "p": p} if "P" in text else {"X": X}
        np.testing.assert_array_equal(pk.op(text + " for i in 0:100")(**given), want)


def test_elements_of_a_target_by_another_quotient_lie_in_it():
    memory = np.full(5000, -1, "f4")
    X = np.arange(100, dtype="f4")
    pk.op("O[i//50,i%50] = X[i//2] for i in 0:100")(X=X, out=memory[:100].reshape(2, 50))
    np.testing.assert_array_equal(memory[:100], np.repeat(X[:50], 2))
    assert (memory[100:] == -1).all()
