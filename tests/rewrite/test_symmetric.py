"""Results that are symmetric are computed on one side of the diagonal; the values stay, others are left alone."""

import numpy as np
import pytest

import polyker as pk
from polyker.einsum_frontend import parse
from polyker.ir.dtypes import f32
from polyker.poly.binding.bind import bind
from polyker.poly.isl import read_set
from polyker.rewrite.indexing.halve_symmetric import (
    MIN_SYMMETRIC_ROWS,
    MIN_TERMS_PER_RESULT,
    MIN_TOTAL_TERMS,
    halve_symmetric,
)
from polyker.rewrite.normalise.start_reductions import start_reductions

N, K = MIN_SYMMETRIC_ROWS, MIN_TOTAL_TERMS // MIN_SYMMETRIC_ROWS**2 + 1


def halves(text, **shapes):
    flat = start_reductions(bind(parse(text), {n: f32[s] for n, s in shapes.items() if f"{n}[" in text}, {}))
    return len(list(halve_symmetric(flat)[0].statements())) - len(list(flat.statements()))


@pytest.mark.parametrize(
    "text",
    [
        "C[i,j] += A[i,k] * A[j,k]",
        "C[j,i] += A[i,k] * A[j,k]",
        "C[i,j] += A[j,k] * A[i,k] * w[k]",
        "C[i,j] += abs(A[i,k] - A[j,k])",
        "C[i,j] += (A[i,k] - A[j,k])**2",
        "C[i,j] max= A[i,k] + A[j,k]",
        "C[i,j] min= abs(A[i,k] + A[j,k])",
    ],
)
def test_a_half_is_copied(text):
    assert halves(text, A=(N, K), w=(K,)) == 1
    a, w = np.random.default_rng(0).normal(size=(N + 5, K + 3)).astype("f4"), np.ones(K + 3, "f4")
    found = pk.op(text)(*((a, w) if "w[" in text else (a,)))
    wide = a.astype("f8")
    x, y = wide[:, None], wide[None]
    each = x * y if "*" in text and "**" not in text else (x - y) ** 2 if "**" in text else x + y
    each = abs(x - y) if "abs(A[i,k] - " in text else abs(each) if "abs" in text else each
    want = each.max(2) if "max" in text else each.min(2) if "min" in text else each.sum(2)
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(found, found.T)


@pytest.mark.parametrize(
    "text",
    [
        "C[i,j] += A[i,k] * B[j,k]",
        "C[i,j] += A[i,k] - A[j,k]",
        "C[i,j] += A[i,k] * A[j,k] * k * j",
        "C[i,j] += A[i,k] * A[j,k] where j <= i + 3",
        "C[i,j] += (A[i,k] - A[j,k]) * A[i,k]",
        f"C[i,j] += w[k] for i in 0:{N}, j in 0:{N}",  # all elements are the same
    ],
)
def test_what_is_not_symmetric_stays_whole(text):
    assert halves(text, A=(N, K), B=(N, K), w=(K,)) == 0


def test_small_results_stay_whole():
    assert halves("C[i,j] += A[i,k] * A[j,k]", A=(N - 1, K)) == 0
    assert halves("C[i,j] += A[i,k] * A[j,k]", A=(N, K - 1)) == 0
    assert halves("C[i,j] += A[i,k] * A[j,k]", A=(1000, MIN_TERMS_PER_RESULT - 1)) == 0


@pytest.mark.parametrize("text", ["C[i,j] += A[i,k] * A[j,k]", "C[j,i] += A[i,k] * A[j,k]"])
def test_only_the_half_that_is_computed_is_started(text):
    flat = start_reductions(bind(parse(text), {"A": f32[N, K]}, {}))
    start, half, copy = halve_symmetric(flat)[0].statements()
    counts = [int(read_set(s.domain).count_val().to_str()) for s in (start, half, copy)]
    assert counts == [N * (N + 1) // 2, N * (N + 1) // 2 * K, N * (N - 1) // 2]


def test_the_copy_goes_by_tiles_that_lie_across():
    notes = pk.op("C[i,j] += A[i,k] * A[j,k]").compile(A=pk.f32[N, K], threads=1).source("schedule")
    assert sum("transposed in registers" in line for line in notes.splitlines()) == 1


@pytest.mark.parametrize("shape", [(2, 211, 70), (1, N, K)])
def test_batches_and_what_follows(shape):
    a = np.random.default_rng(2).normal(size=shape).astype("f4")
    gram = np.einsum("bik,bjk->bij", a.astype("f8"), a.astype("f8"))
    found = pk.op("D[b,i,j] = sqrt(abs(sum[k](A[b,i,k] * A[b,j,k])))")(a)
    np.testing.assert_allclose(found, np.sqrt(abs(gram)), rtol=1e-2, atol=1e-2)
    view = a[:, ::-1, ::2]
    strided = pk.op("D[b,i,j] += A[b,i,k] * A[b,j,k]")(view)
    np.testing.assert_allclose(strided, np.einsum("bik,bjk->bij", view, view), rtol=1e-3, atol=1e-3)
