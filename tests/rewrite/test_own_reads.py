"""Reductions whose terms read the result itself: instances run in the order of the text, whatever passes want."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import polyker as pk

# Bodies of `own(…) -> T`, what an instance adds to which element (of i and j), the extents of i and j, and T's.
SUMS = {
    "one term an element": ("T[i] += T[9-i] + V[i]", lambda T, V, i, j: (i, T[9 - i] + V[i]), (10, 1), 10),
    "running": ("T[i] += V[j] + T[0] where j <= i", lambda T, V, i, j: (i, V[j] + T[0]) if j <= i else None, (50, 50), 50),
    "short rows": ("T[i] += T[0] * V[i] + V[j]", lambda T, V, i, j: (i, T[0] * V[i] + V[j]), (64, 3), 64),
    "scattered": ("T[2*i+j] += V[i] + T[2*i]", lambda T, V, i, j: (2 * i + j, V[i] + T[2 * i]), (20, 7), 45),
    "shared elements": ("T[i//2] += V[i] + T[0]", lambda T, V, i, j: (i // 2, V[i] + T[0]), (8, 1), 4),
    "an inline sum": ("T[i] += V[i] + sum[k](T[k]) / 8", lambda T, V, i, j: (i, V[i] + T.sum() / 8), (6, 1), 6),
    "an inline maximum": ("T[i//2] += V[i] + max[k](T[k])", lambda T, V, i, j: (i // 2, V[i] + T.max()), (6, 1), 3),
    "some terms": ("T[i] += V[j] * T[i] where j != i", lambda T, V, i, j: (i, V[j] * T[i]) if i != j else None, (2, 6), 2),
}  # fmt: skip


# How exact a type holds the sums; f16 holds those that scatter grows to not at all.
EXACT = {"f16": 1e-3, "f32": 1e-6, "f64": 1e-12}
TYPED = [(name, dtype) for name in SUMS for dtype in EXACT if (name, dtype) != ("scattered", "f16")]


@pytest.mark.parametrize(("name", "dtype"), TYPED)
@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize("specialize", ["always", "never"])
def test_terms_read_what_instances_before_them_left(name: str, dtype: str, given: bool, specialize: str) -> None:
    text, instance, extents, elements = SUMS[name]
    long = max(extents)
    V = (np.ones(long) if dtype == "f16" else np.arange(long) % 3 / 2).astype(getattr(pk, dtype).numpy)
    T = np.full(elements, 1.0 if given else 0.0)
    for i, j in product(*map(range, extents)):
        if (found := instance(T, V, i, j)) is not None:
            T[found[0]] += found[1]
    body, where, condition = text.partition(" where ")
    ranges = f" for i in 0:{extents[0]}" + (f", j in 0:{extents[1]}" if "j" in text else "")
    head = f"own(V: {dtype}[{long}]{f', T: {dtype}[{elements}]' if given else ''}) -> T:\n"
    declared = "" if given else f"    T: {dtype}[{elements}]\n"
    op = pk.op(f"{head}{declared}    {body}{ranges}{where}{condition}")
    operands = {"V": V, **({"T": np.ones(elements, V.dtype)} if given else {})}
    with pk.options(specialize=specialize):
        np.testing.assert_allclose(op(**operands), T, rtol=EXACT[dtype])


def test_a_product_with_the_sum_itself() -> None:
    M = np.full((40, 40), 0.01)
    t = 0.0
    for _ in range(1600):
        t += 1e-4 * t + 1
    np.testing.assert_allclose(pk.op("own(M: f64[40,40]) -> t:\n    t: f64\n    t += M[i,j]*M[j,i]*t + 1")(M=M), t)


@pytest.mark.parametrize("op", ["max", "min"])
def test_an_extremum_of_what_came_before(op: str) -> None:
    rng = np.random.default_rng(5)
    S, M = rng.standard_normal(5), rng.standard_normal((5, 5))
    want, best = S.copy(), {"max": max, "min": min}[op]
    for i in range(5):
        want[i] = best(want[i], best(want * M[i]))
    got = pk.op(f"own(S: f64[5], M: f64[5,5]) -> S:\n    S[i] {op}= {op}[k](S[k]*M[i,k])")(S=S, M=M)
    np.testing.assert_array_equal(got, want)
