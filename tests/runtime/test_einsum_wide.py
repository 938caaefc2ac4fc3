"""`pk.einsum` with more labels than a statement may have indices, against numpy's."""

import string

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polyker as pk

LETTERS = string.ascii_letters


def chain(count):
    return ",".join(LETTERS[k] + LETTERS[k + 1] for k in range(count)) + "->" + LETTERS[0] + LETTERS[count]


@pytest.mark.parametrize("optimize", [False, True, "optimal", "greedy"])
@pytest.mark.parametrize("count", [32, 40, 51])
def test_a_chain_of_products(count, optimize):
    if optimize == "optimal" and count > 32:
        pytest.skip("numpy would look for the best of all orders")
    if optimize == "optimal":
        optimize = ("greedy", 100)
    rng = np.random.default_rng(count)
    factors = [rng.integers(-1, 2, (2 + k % 2, 2 + (k + 1) % 2)).astype(float) for k in range(count)]
    np.testing.assert_array_equal(pk.einsum(chain(count), *factors, optimize=optimize), np.linalg.multi_dot(factors))


def test_numbers_for_labels_and_an_output_given():
    rng = np.random.default_rng(1)
    factors = [rng.integers(-1, 2, (2, 2)) for _ in range(40)]
    parts = [x for k, f in enumerate(factors) for x in (f, [k, k + 1])]
    out = np.zeros((2, 2), np.int64).T
    assert pk.einsum(*parts, [0, 40], out=out) is out
    np.testing.assert_array_equal(out, np.linalg.multi_dot(factors))
    with pytest.raises(pk.DTypeError):
        pk.einsum(*parts, [0, 40], out=np.zeros((2, 2), np.int32))


def test_all_are_converted_first():
    small = [np.full((1, 1), 100, np.int8) for _ in range(39)]
    got = pk.einsum(chain(40), *small[:2], np.full((1, 1), 1.0), *[np.ones((1, 1), np.int8)] * 37)
    assert got.dtype == np.float64
    assert got.item() == 10_000.0


def test_truths():
    rng = np.random.default_rng(2)
    factors = [rng.random((2, 2)) < 0.7 for _ in range(40)]
    whole = factors[0]
    for f in factors[1:]:
        whole = (whole[:, :, None] & f[None]).any(1)
    np.testing.assert_array_equal(pk.einsum(chain(40), *factors), whole)


@pytest.mark.parametrize(
    "text",
    [
        LETTERS[:40] + "->" + LETTERS[:40],
        LETTERS[:40] + "->" + LETTERS[:40][::-1],
        LETTERS[:40] + "->",
        "...->...",
        "...,...->...",
        LETTERS[:38] + "aa->" + LETTERS[10:30],
    ],
)
@pytest.mark.parametrize("ones", [40, 30, 20])
def test_arrays_of_many_dimensions(text, ones):
    shape = [1 if k * 7 % 40 < ones else 2 for k in range(40)]
    shape = [n if shape[:k].count(2) < 16 else 1 for k, n in enumerate(shape)]
    if "aa" in text:
        shape[0] = shape[38] = shape[39] = 2
    rng = np.random.default_rng(ones)
    array = rng.integers(0, 9, shape)
    arrays = [array] * (text.count(",") + 1)
    got, wanted = pk.einsum(text, *arrays), np.einsum(text, *arrays)
    np.testing.assert_array_equal(got, wanted)
    assert got.dtype == wanted.dtype


def test_labels_of_the_same_operands_are_one():
    # 26 labels on one side, 18 on the other, 8 of them common: 36 labels of extent 2.
    rng = np.random.default_rng(3)
    a, b = rng.integers(-2, 3, (2,) * 18), rng.integers(-2, 3, (2,) * 18)
    left, right = LETTERS[:18], LETTERS[35:25:-1] + LETTERS[:8][::-1]
    x = np.lib.stride_tricks.as_strided(a, a.shape + (2,) * 8, a.strides + (0,) * 8)
    text = f"{left}{LETTERS[18:26]},{right}->{LETTERS[3:9]}{LETTERS[30:34]}"
    wanted = np.einsum(f"{left},{right}->{LETTERS[3:9]}{LETTERS[30:34]}", a, b) * 2**8
    np.testing.assert_array_equal(pk.einsum(text, x, b), wanted)


@given(st.data())
@settings(max_examples=6, deadline=None)
def test_like_numpy(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    labels = list(LETTERS[:36])
    extents = {label: data.draw(st.sampled_from([1, 1, 1, 2])) for label in labels}
    terms = []
    rng.shuffle(labels)
    cut = sorted(int(c) for c in rng.integers(0, 37, data.draw(st.integers(0, 5))))
    for lo, hi in zip([0, *cut], [*cut, 36], strict=True):
        term = labels[lo:hi] + [str(x) for x in rng.choice(labels, data.draw(st.integers(0, 3)))]
        rng.shuffle(term)
        terms.append("".join(term))
    used = sorted({label for term in terms for label in term})
    output = "".join(str(x) for x in rng.permutation(used)[: data.draw(st.integers(0, len(used)))])
    arrays = []
    for term in terms:
        shape = [1 if extents[label] > 1 and rng.random() < 0.1 else extents[label] for label in term]
        for k, label in enumerate(term):  # one extent for each label of an operand
            shape[k] = shape[term.index(label)]
        arrays.append(rng.integers(-3, 4, shape))
    text = ",".join(terms) + "->" + output
    optimize = data.draw(st.sampled_from([False, True]))
    order = data.draw(st.sampled_from("KCFA"))
    wanted = np.einsum(text, *arrays, optimize="greedy")
    got = pk.einsum(text, *arrays, optimize=optimize, order=order)
    np.testing.assert_array_equal(got, wanted)
    if not optimize and got.ndim > 1:
        assert {"C": got.flags.c_contiguous, "F": got.flags.f_contiguous}.get(order, True)


def test_too_many_at_a_time_is_an_error():
    with pytest.raises(pk.ParseError, match="limit is 64"):
        pk.einsum(",".join("a" * 65) + "->", *[np.ones(2)] * 65)
