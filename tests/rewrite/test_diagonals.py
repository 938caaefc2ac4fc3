"""Reductions along narrow bands are numbered by their diagonals; the values stay."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polyker as pk
from polyker.einsum_frontend import parse
from polyker.ir.dtypes import f64
from polyker.poly.binding.bind import bind
from polyker.poly.boxes import ends
from polyker.poly.isl import read_set
from polyker.rewrite.indexing.diagonals import number_diagonals

PRODUCT = "A[j,i] += Z[k,i]*Y[j,k] where "
WINDOW = "Y[j,i] max= X[j,k] for i in 0:300 where "


def ranges(text, shapes):
    """Return the (least, greatest) value of each reduction index after the pass."""
    program = number_diagonals(bind(parse(text), {n: f64[s] for n, s in shapes.items()}, {}))
    (statement,) = program.statements()
    places = [statement.iterators.index(i) for i in statement.reduced]
    return [ends(read_set(statement.domain), d) for d in places]


@pytest.mark.parametrize(
    ("text", "shapes", "found"),
    [
        (PRODUCT + "i-8<=k<=i+8", {"Z": (300, 300), "Y": (40, 300)}, (-8, 8)),
        (PRODUCT + "i<=k<i+5", {"Z": (300, 300), "Y": (40, 300)}, (0, 4)),
        (PRODUCT + "20-i<=k<24-i", {"Z": (300, 300), "Y": (40, 300)}, (20, 23)),  # along the other diagonal
        (PRODUCT + "i<=k", {"Z": (300, 300), "Y": (40, 300)}, (0, 299)),  # no band
        (PRODUCT + "i-100<=k<=i+100", {"Z": (300, 300), "Y": (40, 300)}, (0, 299)),  # a tile of i shares Y[j,k]
        ("A[i,j] += Z[i,k]*Y[k,j] where i-8<=k<=i+8", {"Z": (300, 300), "Y": (300, 40)}, (0, 299)),  # so does one of j
        ("A[i,j] += Z[i,k]*Y[k,j] where i-2<=k<=i+2", {"Z": (300, 300), "Y": (300, 40)}, (-2, 2)),
        (WINDOW + "i-100<=k<=i+100", {"X": (9, 300)}, (-100, 100)),  # no operand that a tile shares
        ("Y[i] += X[k] for i in 0:75 where 4*i<=k<4*i+6", {"X": (300,)}, (0, 5)),
        ("Y[i] += X[k] for i in 0:75 where i<=2*k<i+6", {"X": (300,)}, (0, 39)),  # k is no integer multiple of i
    ],
)
def test_bands_are_numbered_by_diagonals(text, shapes, found):
    assert ranges(text, shapes) == [found]


def test_the_order_of_ordered_terms_stays():
    x = np.array([3, 1, 2, 2, 3, 0, 3, 1], "f8")
    found = pk.op("I[i] = argmax[k](X[k] where i-1<=k<=i+1) for i in 0:8")(x)
    want = [max(range(max(0, i - 1), min(8, i + 2)), key=lambda k: x[k]) for i in range(8)]
    np.testing.assert_array_equal(found, want)


@settings(max_examples=6, deadline=None)
@given(st.data())
def test_values_are_those_of_numpy(data):
    """Of random bands, with slopes and ends of either sign, bands that leave the matrix, of fixed and symbolic sizes."""
    n, m, rows = (data.draw(st.integers(1, 40)) for _ in range(3))
    slope, low, width = data.draw(st.integers(-3, 3)), data.draw(st.integers(-9, 30)), data.draw(st.integers(1, 9))
    band = f"{low}+{slope}*i <= k < {low + width}+{slope}*i"
    rng = np.random.default_rng(n)
    z, y = rng.normal(size=(m, n)), rng.normal(size=(rows, m))[:, :: data.draw(st.sampled_from((1, -1)))]
    i, k = np.arange(n), np.arange(m)[:, None]
    inside = (low + slope * i <= k) & (k < low + width + slope * i)
    for specialize in ("always", "never"):
        with pk.options(specialize=specialize):
            found = pk.op(f"A[j,i] += Z[k,i]*Y[j,k] where {band}")(z, y)
            np.testing.assert_allclose(found, y @ (z * inside), rtol=1e-12, atol=1e-12)
            sums = pk.op(f"A[j,i] += Y[j,k] for i in 0:N where {band}")(y, N=n)
            np.testing.assert_allclose(sums, y @ (inside + 0.0), rtol=1e-12, atol=1e-12)
