"""Sums of products of narrow integers, several terms at a time: the results are numpy's modulo 2^32, whatever the layout."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polyker as pk
from polyker.codegen.llvm.jit.detect import target
from polyker.structs import replace
from tests.covering import each, few

NARROW = [np.int8, np.uint8, np.int16, np.bool_]
WIDE = {"i16": np.int16, "u16": np.uint16, "i32": np.int32, "u32": np.uint32, "i64": np.int64}
# The processor's own instructions, those of half its vectors, and pairs alone.
TARGETS = ["cpu", "cpu:x86-64-v3"]


def extreme(rng: np.random.Generator, dtype: type, *shape: int) -> np.ndarray:
    """Random values, two fifths of them the least and the greatest."""
    if dtype == np.bool_:
        return rng.integers(0, 2, shape).astype(bool)
    info = np.iinfo(dtype)
    values = rng.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)
    values[rng.random(shape) < 0.2] = info.min
    values[rng.random(shape) < 0.2] = info.max
    return values


def exact(text: str, *arrays: np.ndarray) -> np.ndarray:
    return np.einsum(text, *(a.astype(np.int64) for a in arrays))


def is_taken(kernel: pk.Kernel) -> bool:
    return "side by side" in kernel.source("schedule")


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("acc", WIDE)
@given(
    m=st.integers(1, 40), n=st.integers(1, 40), k=st.integers(0, 40), left=st.sampled_from(NARROW),
    right=st.sampled_from(NARROW), order=st.integers(0, 15), seed=st.integers(0, 99),
)  # fmt: skip
@settings(max_examples=3, deadline=None)
def test_products_of_matrices_are_numpys(name, acc, m, n, k, left, right, order, seed):
    rng = np.random.default_rng(seed)
    a, b = extreme(rng, left, m, k), extreme(rng, right, k, n)
    wanted = exact("ik,kj->ij", a, b).astype(WIDE[acc])
    x, y = ("A[k,i]", a.T) if order & 1 else ("A[i,k]", a), ("B[j,k]", b.T) if order & 2 else ("B[k,j]", b)
    a, b = (v[::-1, ::-1].copy()[::-1, ::-1] if order & 4 else np.ascontiguousarray(v) for v in (x[1], y[1]))
    a = np.repeat(a, 3, axis=1)[:, ::3] if order & 8 else a
    op = pk.op(f"C[i,j] += {acc}({x[0]}) * {acc}({y[0]})")
    np.testing.assert_array_equal(op.compile(A=a, B=b, target=name)(A=a, B=b), wanted)


def test_large_products_are_taken_four_terms_at_a_time_where_the_processor_can():
    kernel = pk.op("C[i,j] += i32(A[i,k]) * i32(B[k,j])").compile(A=pk.u8[64, 65], B=pk.i8[65, 64])
    assert is_taken(kernel) == (target("cpu").dot > 1)
    v3 = pk.op("C[i,j] += i32(A[i,k]) * i32(B[k,j])").compile(A=pk.u8[64, 65], B=pk.i8[65, 64], target="cpu:x86-64-v3")
    assert is_taken(v3)
    assert "vpmaddwd" in v3.source("asm")
    if target("cpu").dot == 4:
        assert "vpdpbusd" in kernel.source("asm")


@pytest.mark.parametrize("left", [np.int8, np.uint8])
@pytest.mark.parametrize("right", [np.int8, np.uint8])
@pytest.mark.parametrize("channels", [1, 6])
@given(h=st.integers(3, 12), w=st.integers(3, 20), f=st.integers(1, 18), stride=st.integers(1, 2), pad=st.booleans())
@settings(max_examples=2, deadline=None)
def test_convolutions_are_numpys(left, right, channels, h, w, f, stride, pad):
    rng = np.random.default_rng(h + 50 * w + f)
    x, kernel = extreme(rng, left, 1, channels, h, w), extreme(rng, right, f, channels, 3, 3)
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))) if pad else x
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))[:, :, ::stride, ::stride]
    wanted = np.maximum(exact("nchwrs,fcrs->nfhw", windows, kernel).astype(np.int32), 0)
    p = int(pad)
    place = f"X[n,c,{stride}*h+r-{p},{stride}*w+s-{p}; pad=0]" if pad else f"X[n,c,{stride}*h+r,{stride}*w+s]"
    rows, columns = wanted.shape[2:]
    op = pk.op(f"O[n,f,h,w] = relu(sum[c,r,s](i32({place}) * i32(K[f,c,r,s])))  for h in 0:{rows}, w in 0:{columns}")
    np.testing.assert_array_equal(op(X=x, K=kernel), wanted)


FORMS = {
    "O[f,i] += i32(A[f,i+r]) * i32(B[f,r])": (
        lambda a, b: exact("fir,fr->fi", np.lib.stride_tricks.sliding_window_view(a, b.shape[1], axis=1), b),
        (6, 70), (6, 13),
    ),
    "C[i] += i32(A[i,k]) * i32(B[k])": (lambda a, b: exact("ik,k->i", a, b), (37, 131), (131,)),
    "C[i] += i32(A[k,i]) * i32(B[k])": (lambda a, b: exact("ki,k->i", a, b), (131, 37), (131,)),
    "s += i32(A[k]) * i32(B[k])": (lambda a, b: exact("k,k->", a, b), (1003,), (1003,)),
    "s += i32(A[k]) ** 2 * i32(B[0]) ** 0": (lambda a, b: exact("k,k->", a, a), (1003,), (1,)),
    "C[i,j] += i32(A[i,k]) * i32(B[j,k])": (lambda a, b: exact("ik,jk->ij", a, b), (3, 131), (37, 131)),
    "C[i,j] += i32(A[i,k]) * i32(B[k,j])": (lambda a, b: exact("ik,kj->ij", a, b), (200, 67), (67, 16)),
    "C[i,j] += i64(A[i,k]) * i64(B[j,k])": (lambda a, b: exact("ik,jk->ij", a, b), (3, 130), (37, 130)),
    "C[b,i,j] += i32(A[b,i,k]) * i32(B[b,k,j])": (lambda a, b: exact("bik,bkj->bij", a, b), (3, 17, 21), (3, 21, 19)),
    "C[i,j] += i32(A[i,k,l]) * i32(B[l,j,k])": (lambda a, b: exact("ikl,ljk->ij", a, b), (20, 5, 6), (6, 30, 5)),
    "C[i,j] += i32(A[i,k]) * i32(B[k,j]) where k >= 3 and k < 20": (
        lambda a, b: exact("ik,kj->ij", a[:, 3:20], b[3:20]), (20, 23), (23, 30),
    ),
    "C[i,j] += i32(A[i,k]) * i32(B[k,j]) where k <= i": (
        lambda a, b: exact("ik,kj,ik->ij", a, b, np.tri(*a.shape)), (20, 20), (20, 30),
    ),
    "C[i,j] += (i32(A[i,k]) - 3) * (i32(B[k,j]) + i32(B[k,0]))": (
        lambda a, b: exact("ik,kj->ij", a.astype(int) - 3, b.astype(int) + b[:, :1]), (20, 31), (31, 40),
    ),
    "C[i,j] += i32(A[i,2*k]) * i32(B[k,j])": (lambda a, b: exact("ik,kj->ij", a[:, ::2], b), (20, 61), (31, 40)),
    "C[i,j] += i32(A[i,i+k]) * i32(B[k,j])": (
        lambda a, b: exact("ik,kj->ij", np.stack([a[i, i : i + 15] for i in range(20)]), b), (20, 40), (15, 40),
    ),
}  # fmt: skip


KINDS = [(np.int8, np.int8), (np.uint8, np.int8), (np.int16, np.int16), (np.bool_, np.bool_)]


@pytest.mark.parametrize(("text", "kinds"), few([*FORMS], KINDS, 2))
def test_other_sums_of_products_are_numpys(text, kinds):
    wanted, *shapes = FORMS[text]
    rng = np.random.default_rng(1)
    a, b = (extreme(rng, kind, *shape) for kind, shape in zip(kinds, shapes, strict=True))
    found = pk.op(text)(A=a, B=b)
    np.testing.assert_array_equal(found, wanted(a, b).astype(found.dtype))


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("kinds", [(np.int8, np.int8), (np.uint8, np.int8), (np.uint8, np.uint8), (np.int16, np.int8)])
@given(m=st.integers(1, 30), k=st.integers(1, 150), turned=st.booleans(), apart=st.booleans(), seed=st.integers(0, 99))
@settings(max_examples=2, deadline=None)
def test_products_with_a_vector_are_numpys(name, kinds, m, k, turned, apart, seed):
    rng = np.random.default_rng(seed)
    a, x = extreme(rng, kinds[0], m, k), extreme(rng, kinds[1], k)
    wanted = exact("ik,k->i", a, x).astype(np.int32)
    a = np.asfortranarray(a) if turned else a
    x = np.repeat(x, 2)[::2] if apart else x
    kernel = pk.op("y[i] += i32(A[i,k]) * i32(x[k])").compile(A=a, x=x, target=name)
    np.testing.assert_array_equal(kernel(A=a, x=x), wanted)


def test_what_is_read_once_is_multiplied_where_it_lies():
    kernel = pk.op("y[i] += i32(A[i,k]) * i32(x[k])").compile(A=pk.u8[512, 512], x=pk.i8[512], target="cpu:x86-64-v3")
    assert is_taken(kernel)
    assert "scratch" not in kernel.source("loops").replace("512], strides (1", "")


def test_sums_go_on_from_what_a_element_holds():
    rng = np.random.default_rng(2)
    a, b, c = extreme(rng, np.int8, 30, 29), extreme(rng, np.int8, 29, 40), extreme(rng, np.int32, 30, 40)
    op = pk.op("f(A, B, C) -> C:\n    C[i,j] += i32(A[i,k]) * i32(B[k,j])")
    kernel = op.compile(A=a, B=b, C=c)
    assert is_taken(kernel) == (target("cpu").dot > 1)
    np.testing.assert_array_equal(kernel(A=a, B=b, C=c), (c + exact("ik,kj->ij", a, b)).astype(np.int32))


@pytest.mark.parametrize("kind", [pk.i8, pk.i16], ids=str)
def test_one_kernel_serves_all_sizes(kind):
    op = pk.op("C[i,j] += i32(A[i,k]) * i32(B[k,j])")
    kernel = op.compile(A=kind["M", "K"], B=kind["K", "N"])
    rng = np.random.default_rng(3)
    for m, k, n in ((1, 1, 1), (5, 3, 7), (33, 34, 35), (16, 66, 48), (7, 0, 3)):
        a, b = extreme(rng, kind.numpy.type, m, k), extreme(rng, kind.numpy.type, k, n)
        np.testing.assert_array_equal(kernel(A=a, B=b), exact("ik,kj->ij", a, b).astype(np.int32))


@pytest.mark.parametrize(("kind", "acc"), each([pk.i8, pk.u8, pk.i16, pk.u16, pk.i8, pk.u16], ["u16", "i32", "u64"]))
def test_sums_of_few_terms_are_right_in_a_kernel_for_all_sizes(kind, acc):
    rng = np.random.default_rng(5)
    dot = pk.op(f"s += {acc}(A[k]) * {acc}(B[k])").compile(A=kind["K"], B=kind["K"], specialize="never")
    rows = pk.op(f"s[i] += {acc}(A[i,k]) * {acc}(B[k])").compile(A=kind["M", "K"], B=kind["K"], specialize="never")
    # What the first call leaves in the temporaries is not to be found again.
    for k in (70, 1, 5, 2, 0, 3, 1, 16):
        a, b = extreme(rng, kind.numpy.type, 7, k), extreme(rng, kind.numpy.type, k)
        wanted = exact("ik,k->i", a, b).astype(getattr(pk, acc).numpy)
        np.testing.assert_array_equal(rows(A=a, B=b), wanted)
        np.testing.assert_array_equal(dot(A=a[3], B=b), wanted[3])


def test_a_gathered_operand_and_an_epilogue_keep_their_meaning():
    rng = np.random.default_rng(4)
    a, b, rows = extreme(rng, np.int8, 30, 29), extreme(rng, np.int8, 29, 40), rng.integers(0, 30, 50)
    op = pk.op("C[i,j] += i32(A[g[i],k]) * i32(B[k,j]);  D[i,j] = f64(C[i,j]) * 0.5 + j")
    wanted = exact("ik,kj->ij", a[rows], b) * 0.5 + np.arange(40)
    np.testing.assert_array_equal(op(A=a, B=b, g=rows), wanted)
    with pytest.raises(IndexError):
        op(A=a, B=b, g=np.where(rows == rows[7], 30, rows))


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("C[i,j] += i32(A[i,k]) * i32(B[k,j])", (pk.i32, pk.i8)),  # too wide
        ("C[i,j] += i64(A[i,k]) * i64(B[k,j])", (pk.i16, pk.i16)),  # sums beyond 2^31
        ("C[i,j] max= i32(A[i,k]) * i32(B[k,j])", (pk.i8, pk.i8)),
        ("C[i,j] += i32(A[i,k]) * i32(B[k,j]) where k <= i", (pk.i8, pk.i8)),  # other terms for each row
        ("C[i,j] += f32(A[i,k]) * f32(B[k,j])", (pk.i8, pk.i8)),
    ],
)
def test_where_the_pattern_does_not_hold_nothing_changes(text, kinds):
    assert not is_taken(pk.op(text).compile(A=kinds[0][64, 64], B=kinds[1][64, 64]))


def test_nothing_changes_on_a_processor_without_such_instructions():
    plain = replace(target("cpu"), dot=1)
    kernel = pk.op("C[i,j] += i32(A[i,k]) * i32(B[k,j])").compile(A=pk.i8[64, 64], B=pk.i8[64, 64], target=plain)
    assert not is_taken(kernel)


def test_temporaries_keep_to_the_bytes_that_they_may_take():
    op = pk.op("C[i,j] += i32(A[i,k]) * i32(B[k,j])")
    with pk.options(scratch_bytes=1000):
        assert not is_taken(op.compile(A=pk.i8[64, 64], B=pk.i8[64, 64]))
