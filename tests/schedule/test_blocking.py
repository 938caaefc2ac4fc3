"""Reductions by cache blocks: on a target of tiny caches small programs take every way that large ones take."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polyker as pk
from polyker.codegen.llvm.jit.detect import target
from polyker.machine.model import Cache
from polyker.structs import replace
from tests.artifacts import generated

TINY = (Cache(1 << 10), Cache(4 << 10), Cache(16 << 10))
SPECS = (
    "ik,kj->ij", "ki,kj->ij", "ik,jk->ij", "ki,jk->ij", "ik,kj->ji", "bik,bkj->bij", "bik,kj->bij", "ikl,klj->ij",
    "acd,db->cba", "fcea,edfb->dcba", "aebd,ce->dcba", "dac,bcd->ba", "bged,cafg->fedcba", "ijk,jr,kr->ir",
)  # fmt: skip


MACHINE = replace(target("cpu"), caches=TINY)


def compiled(text: str, *args: object, **named: object) -> pk.Kernel:
    """Compile for caches of a few kilobytes."""
    return pk.op(text).compile(*args, **{"target": MACHINE, **named})


def in_blocks(kernel: pk.Kernel) -> bool:
    """Whether a reduction was cut into blocks."""
    return ".block" in generated(kernel, "schedule")


def contraction(spec: str) -> str:
    inputs, out = spec.split("->")
    reads = " * ".join(f"{name}[{','.join(i)}]" for name, i in zip("ABD", inputs.split(","), strict=False))
    return f"C[{','.join(out)}] += {reads}"


def operands(spec: str, sizes: dict[str, int], dtype: type) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.integers(-4, 5, [sizes[i] for i in term]).astype(dtype) for term in spec.split("->")[0].split(",")]


@given(st.data())
@settings(max_examples=6, deadline=None)
def test_blocked_contractions_give_numpys_values(data: st.DataObject) -> None:
    spec = data.draw(st.sampled_from(SPECS))
    labels = sorted(set(spec) - set(",->"))
    most = 60 if len(labels) <= 3 else 20 if len(labels) <= 4 else 7
    sizes = {i: data.draw(st.integers(1, most)) for i in labels}
    arrays = operands(spec, sizes, data.draw(st.sampled_from((np.float32, np.float64, np.int32, np.complex64))))
    if data.draw(st.booleans()):
        arrays = [np.asfortranarray(a) for a in arrays]
    options = data.draw(st.sampled_from(({}, {}, {"specialize": "never"})))
    kernel = compiled(contraction(spec), *arrays, **options)
    np.testing.assert_array_equal(kernel(*arrays), np.einsum(spec, *arrays))


@pytest.mark.parametrize("spec", SPECS[:5])
def test_large_products_are_cut_into_blocks(spec: str) -> None:
    arrays = operands(spec, {"i": 70, "j": 65, "k": 67}, np.float32)
    kernel = compiled(contraction(spec), *arrays)
    np.testing.assert_array_equal(kernel(*arrays), np.einsum(spec, *arrays))
    assert in_blocks(kernel)


def test_the_next_rows_are_not_asked_for_through_a_gather() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.integers(-3, 4, (40, 50)).astype("f4"), rng.integers(-3, 4, (50, 60)).astype("f4")
    index = rng.integers(0, 40, 45)
    got = compiled("f(A, V, B) -> C:\n    C[i,j] += A[V[i],k] * B[k,j]", a, index, b)(a, index, b)
    np.testing.assert_array_equal(got, a[index] @ b)


@pytest.mark.parametrize("triangle", ["k >= i", "k <= i"])
def test_elements_that_the_first_block_of_terms_does_not_reach_start_at_zero(triangle: str) -> None:
    a, b = operands("ik,kj->ij", {"i": 200, "j": 65, "k": 200}, np.float32)
    kernel = compiled(f"C[i,j] += A[i,k] * B[k,j] where {triangle}", a, b)
    np.testing.assert_array_equal(kernel(a, b), (np.triu(a) if triangle == "k >= i" else np.tril(a)) @ b)
    assert in_blocks(kernel)


def test_tiles_of_a_packed_block_divide_it() -> None:
    types = pk.f32[200, 200], pk.f32[200, 200]
    machine = replace(target("cpu:x86-64-v4"), caches=TINY)
    shown = generated(compiled("C[i,j] += A[i,k] * B[j,k]", *types, target=machine), "schedule")
    found = re.findall(r"transpose\((\d+)\) \w+\.columns  {\w+: \(\(\w+ mod (\d+)\) mod (\d+)\)", shown)
    assert found
    assert all(columns == size and int(block) % int(size) == 0 for columns, block, size in found)


def test_one_kernel_for_all_sizes_starts_its_elements_with_any_number_of_terms() -> None:
    kernel = compiled("C[i,j] += A[i,k] * B[k,j]", pk.f32["I", "K"], pk.f32["K", "J"])
    for i, j, k in ((3, 5, 0), (3, 5, 1), (70, 9, 160), (17, 33, 65), (0, 5, 4), (5, 0, 4)):
        a, b = operands("ik,kj->ij", {"i": i, "j": j, "k": k}, np.float32)
        out = np.full((i, j), 7, np.float32)
        kernel(a, b, out=out)
        np.testing.assert_array_equal(out, a @ b)
    assert generated(kernel, "schedule").count(".block") >= 1
    assert "S1:" not in generated(kernel, "schedule")  # the statement that set the result to 0


def test_a_block_has_room_for_several_indices_of_unknown_extent() -> None:
    kernel = compiled("C[a,b,i] += X[a,k,b,l] * Y[l,i,k]", pk.f64["A", "K", "B", "L"], pk.f64["L", "I", "K"])
    for sizes in ({"a": 3, "b": 5, "i": 9, "k": 4, "l": 6}, {"a": 9, "b": 2, "i": 21, "k": 70, "l": 3}):
        x, y = operands("akbl,lik->abi", sizes, np.float64)
        np.testing.assert_array_equal(kernel(x, y), np.einsum("akbl,lik->abi", x, y))


@pytest.mark.parametrize("where", ["j <= i", "k > i", "k >= j", "k <= i and j <= k"])
def test_triangles_are_cut_into_blocks_and_give_numpys_values(where: str) -> None:
    rng = np.random.default_rng(0)
    n = 75
    A, B = rng.integers(-4, 5, (n, n)).astype("f4"), rng.integers(-4, 5, (n, n)).astype("f4")
    kernel = compiled(f"C[i,j] += A[k,i] * B[k,j] for i in 0:{n}, j in 0:{n} where {where}", A, B)
    at = dict(zip("ijk", np.ogrid[:n, :n, :n], strict=True))
    points = eval(where.replace("and", ") & (").join("()"), {}, at) & (at["i"] == at["i"])
    want = np.einsum("ijk,ki,kj->ij", np.broadcast_to(points, (n, n, n)).astype("f4"), A, B)
    np.testing.assert_array_equal(kernel(A, B), want)
    assert in_blocks(kernel)


def test_terms_without_values_make_no_blocks_of_none() -> None:
    """With fewer than 25 columns O has rows of no elements, so the sum over them has no terms."""
    text = "O[c,h] += (E[c,3*h+2*x]*Q[x] + K[a-x+16,a])\nL[d,n] += (X[n] + O[d,y])*n"
    E, Q, K, X = np.ones((3, 20), "f4"), np.ones(13, "f4"), np.ones((20, 2), "f4"), np.ones(2, "f4")
    kernel = compiled(text, E=pk.f32[3, "N"], Q=pk.f32[13], K=pk.f32["N", 2], X=pk.f32[2])
    assert np.array_equal(kernel(E=E, Q=Q, K=K, X=X), np.zeros((3, 2)))
