"""Arrays of element types that polyker does not have: each is refused with what can be given in its place."""

import numpy as np
import pytest

import polyker as pk

COPY = pk.op("O[i] = X[i]")
TIMES = [np.arange(6).astype("m8[s]"), np.arange(6).astype("M8[D]"), np.arange(6).astype(">m8[ms]")[::-2]]
OTHERS = [
    (np.array(["1", "2"]), "astype('f8')"),
    (np.array([b"1", b"2"]), "astype('f8')"),
    (np.array([1, 2.5], object), "astype('f8')"),
    (np.array(["1", "2"], np.dtypes.StringDType()), "astype('f8')"),
    (np.zeros(2, [("a", "f4"), ("b", "i8")]), "['a']"),
    *[(t, "view('i8')") for t in TIMES],
]
OTHERS += [(np.zeros(2, t), f"astype('{to}')") for t, to in ((np.longdouble, "f8"), (np.clongdouble, "c16"))
           if np.dtype(t).itemsize > np.dtype(to).itemsize]  # fmt: skip


@pytest.mark.parametrize(("array", "hint"), OTHERS, ids=[str(a.dtype) for a, _ in OTHERS])
def test_what_the_hint_says_is_accepted(array, hint):
    for call, name in ((COPY, "X"), (lambda x: pk.einsum("i,i->i", x, np.ones(len(x), "i1")), "operand 0")):
        with pytest.raises(pk.DTypeError, match="element type") as caught:
            call(array)
        assert f"`{name}`" in caught.value.message
        assert str(array.dtype) in caught.value.message
        assert f"{'X' if name == 'X' else 'x'}{'' if hint[0] == '[' else '.'}{hint}" in caught.value.hint
    X = array
    given = eval(f"X{'' if hint[0] == '[' else '.'}{hint}", {"X": X})
    np.testing.assert_array_equal(COPY(given), given)


def test_a_masked_array_is_refused_with_what_fills_it():
    masked = np.ma.array([1.0, 2.0], mask=[False, True])
    for call, name in ((COPY, "X"), (lambda x: pk.einsum("i->", x), "x")):
        with pytest.raises(pk.ArgumentError, match="masked array") as caught:
            call(masked)
        assert f"`{name}.filled(0)`" in caught.value.hint


@pytest.mark.parametrize("times", TIMES, ids=lambda t: t.dtype.str)
def test_einsum_rearranges_times_as_numpy_does(times):
    square = np.stack([times] * len(times))
    for text, array in (("i", times), ("i->i", times), ("ij->ji", square), ("ii->i", square), ("...->...", square)):
        got, wanted = pk.einsum(text, array), np.einsum(text, array)
        np.testing.assert_array_equal(got, wanted)
        assert got.dtype == wanted.dtype.newbyteorder("=")
    for call in (
        lambda: pk.einsum("i->", times),
        lambda: pk.einsum("i,i->i", times, times),
        lambda: pk.einsum("i,i->i", np.arange(len(times)), times),
        lambda: pk.einsum("i->i", np.zeros(len(times)), out=times.copy()),
    ):
        with pytest.raises(pk.DTypeError, match=r"view\('i8'\)"):
            call()
