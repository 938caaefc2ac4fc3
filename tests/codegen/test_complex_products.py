"""Sums of complex products: four multiply-adds each, accumulators with real and imaginary parts apart; values as NumPy's."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polyker as pk


def steps(kernel):
    """Return (multiply-adds, shuffles, accesses to the stack) of the loop of the assembly that multiplies most."""
    loops, lines, labels = [], kernel.source("asm").split("\n"), {}
    for n, line in enumerate(lines):
        if found := re.match(r"(\.L\w+):", line):
            labels[found[1]] = n
        if (found := re.search(r"\tj\w+\s+(\.L\w+)", line)) and found[1] in labels:
            body = lines[labels[found[1]] + 1 : n]
            if not any(re.match(r"\.L\w+:", x) for x in body):
                products = sum("fmadd" in x or "fnmadd" in x for x in body)
                loops.append((products, sum("perm" in x for x in body), sum("(%rsp)" in x for x in body)))
    return max(loops)


@pytest.mark.parametrize("text", ["C[i,j] += A[i,k] * B[k,j]", "C[i,j] += A[k,i] * B[j,k]"])
def test_accumulators_are_not_sorted_anew_each_step(text):
    types = dict.fromkeys("AB", pk.c64[96, 96])
    products, shuffles, spilled = steps(pk.op(text).compile(**types, target="cpu:x86-64-v4"))
    assert products >= 32
    assert shuffles <= products // 4
    assert not spilled


def test_special_values_are_those_of_a_product_and_a_sum():
    a = np.array([[1 + 2j, np.inf + 0j], [np.nan + 1j, 0 - 0j]], "c8")
    found = pk.op("C[i,j] += A[i,k] * B[k,j]")(a, np.eye(2, dtype="c8"))
    with np.errstate(invalid="ignore"):
        want = (a[:, :, None] * np.eye(2, dtype="c8")).sum(1)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(want))
    assert found[0, 0] != found[0, 0] or found[0, 0] == 1 + 2j


@settings(deadline=None, max_examples=10)
@given(
    st.tuples(*[st.integers(0, 40)] * 3), st.sampled_from(["c8", "c16"]), st.sampled_from(["c", "f"]), st.booleans(),
    st.sampled_from([1, -1, 2]),
)  # fmt: skip
def test_values_are_those_of_numpy(shape, dtype, other, turned, step):
    m, n, k = shape
    rng = np.random.default_rng(m + 41 * n)

    def array(kind, *extents):
        real = rng.normal(size=extents)
        return (real + 1j * rng.normal(size=extents) if kind == "c" else real).astype(
            dtype if kind == "c" else {"c8": "f4", "c16": "f8"}[dtype]
        )

    a, b = array("c", m, k * abs(step))[:, ::step][:, :k], array(other, k, n)
    b = np.asfortranarray(b) if turned else b
    found = pk.op("C[i,j] += A[i,k] * B[k,j]")(a, b)
    np.testing.assert_allclose(found, a.astype("c16") @ b, rtol=1e-4 if dtype == "c8" else 1e-10, atol=1e-4)
    adjoint = pk.op("C[i,j] += conj(A[k,i]) * B[k,j]")(np.ascontiguousarray(a.T), b)
    np.testing.assert_allclose(adjoint, a.astype("c16").conj() @ b, rtol=1e-4 if dtype == "c8" else 1e-10, atol=1e-4)
