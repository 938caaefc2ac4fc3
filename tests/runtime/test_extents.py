"""Zero extents, single elements, scalars, and contents of `out` that must not matter."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest

import polyker as pk
from polyker.errors import PolykerError, ShapeError
from tests.runtime.support import coded

EXTENTS = (0, 1, 2, 3, 5, 8, 17)


@pytest.mark.parametrize("specialize", ["always", "never"])
def test_all_extents_of_a_contraction_give_numpy_s_values(specialize: str) -> None:
    matmul = pk.op("C[i,j] += A[i,k] * B[k,j]")
    extents = EXTENTS if specialize == "never" else (0, 1, 3, 17)
    with pk.options(specialize=specialize):
        for m, n, k in itertools.product(extents, repeat=3):
            a, b = coded((m, k)), coded((k, n), salt=2)
            np.testing.assert_array_equal(matmul(a, b), a @ b, err_msg=str((m, n, k)))


@pytest.mark.parametrize("text", ["C[i,j,l] += A[i,k] * B[k,j] * D[l]", "C[l,i,j] max= A[i,k] + B[k,j] - D[l]"])
def test_all_extents_of_four_indices_give_numpy_s_values(text: str) -> None:
    operator = pk.op(text)
    with pk.options(specialize="never"):
        for i, j, k, m in itertools.product((0, 1, 2, 5, 17), repeat=4):
            a, b, d = coded((i, k)), coded((k, j), salt=2), coded((m,), salt=3)
            if "max" in text:
                terms = a[None, :, :, None] + b[None, None] - d[:, None, None, None]
                expected = terms.max(2, initial=-np.inf)
            else:
                expected = np.einsum("ik,kj,l->ijl", a, b, d)
            np.testing.assert_array_equal(operator(a, b, d), expected, err_msg=str((i, j, k, m)))


IDENTITIES = {
    "+=": 0.0,
    "*=": 1.0,
    "max=": -np.inf,
    "min=": np.inf,
}


@pytest.mark.parametrize("update", IDENTITIES)
def test_a_reduction_over_nothing_gives_its_identity(update: str) -> None:
    out = np.full(3, np.nan, np.float32)
    pk.op(f"s[i] {update} A[i,k]")(np.empty((3, 0), np.float32), out=out)
    np.testing.assert_array_equal(out, np.full(3, IDENTITIES[update]))


def test_reductions_of_integers_and_bools_over_nothing_give_their_identities() -> None:
    empty = np.empty((2, 0), np.int16)
    assert pk.op("s[i] max= A[i,k]")(empty).tolist() == [-32768, -32768]
    assert pk.op("s[i] min= A[i,k]")(empty).tolist() == [32767, 32767]
    assert pk.op("s[i] any= A[i,k] > 0")(empty).tolist() == [False, False]
    assert pk.op("s[i] all= A[i,k] > 0")(empty).tolist() == [True, True]


def test_argmax_over_nothing_is_a_value_error() -> None:
    with pytest.raises(ValueError):
        pk.op("s[i] = argmax[k](A[i,k])")(np.empty((2, 0)))


def test_scalars_go_in_and_come_out_as_numpy_s() -> None:
    scaled = pk.op("y[i] = a * x[i]")
    x = np.arange(4, dtype=np.float32)
    for a in (2, 2.0, np.float32(2), np.array(2, np.float32), True):
        result = scaled(a, x)
        assert result.dtype == np.result_type(np.float32, 2.0 if not isinstance(a, bool) else np.bool_)
        np.testing.assert_array_equal(result, np.float32(a) * x)
    assert scaled(np.float64(2), x).dtype == np.float64
    assert scaled(2.5, np.arange(3)).dtype == np.float64
    for a in (3, 5.5, 1e30, 1e300, -(1 << 62), 7, np.inf):  # the later ones take the quick way, where they fit
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("error")
            np.testing.assert_array_equal(scaled(a, x), np.array(a).astype(np.float32) * x)
    total = pk.op("s += x[i]")(x)
    assert isinstance(total, np.float32) and total == 6
    out = np.array(np.nan, np.float32)
    assert pk.op("s += x[i]")(x, out=out) is out and out == 6


@pytest.mark.parametrize("value", [np.nan, -np.inf, "signalling"])
@pytest.mark.parametrize(
    "text",
    ["C[i,j] += A[i,k] * B[k,j]", "C[i,j] = A[i,j] - B[i,j]", "C[i] max= A[i,k]", "T[i] += A[i,k]; C[i] = T[i] * 2"],
)
def test_what_out_held_before_does_not_matter(text: str, value: object) -> None:
    operator = pk.op(text)
    operands = [coded((17, 17), salt=k) for k in range(len(operator.program.inputs))]
    fresh = operator(*operands)
    out = np.empty_like(fresh)
    if value == "signalling":
        out.view(np.uint32)[...] = 0x7FA00001
    else:
        out[...] = value
    operator(*operands, out=out)
    np.testing.assert_array_equal(out, fresh)


HUGE = [2**31, 2**32 + 1, 2**53, 2**62 - 1, 2**62, 2**62 + 1, 2**63 - 1]


@pytest.mark.parametrize("extent", [n + d for n in HUGE for d in (-1, 0, 1)])
def test_huge_extents_are_refused_before_anything_is_allocated(extent: int) -> None:
    psutil = pytest.importorskip("psutil")
    process = psutil.Process()
    before = process.memory_info().rss
    fill = pk.op("C[i,j] = x for i in 0:N, j in 0:N")
    with pytest.raises((ShapeError, PolykerError, MemoryError)) as caught:
        fill(1.0, N=extent)
    if extent >= 2**31:
        assert isinstance(caught.value, (ShapeError, PolykerError))
    assert process.memory_info().rss - before < 10 << 20


@pytest.mark.parametrize("shape", [(2**31, 2**31), (2**62,), (2**20, 2**20, 2**22)])
def test_types_of_huge_extents_are_refused(shape: tuple[int, ...]) -> None:
    text = "y[] max= A[" + ",".join("ijk"[: len(shape)]) + "]"
    with pytest.raises(ShapeError):
        pk.op(text).compile(pk.i8[shape])


def test_temporaries_over_the_limit_are_refused() -> None:
    # The scan needs a column of S at a time in memory.
    scan = pk.op("S[0,j] = A[j]; S[t,j] = S[t-1,j] + A[j] for t in 1:50; y[j] += S[t,N-1-j] for j in 0:N")
    a = np.arange(1000.0)
    with pk.options(scratch_bytes=1 << 10):
        with pytest.raises(ShapeError, match="temporaries `S` need"):
            scan(a, N=1000)
    assert scan(a, N=1000).shape == (1000,)
