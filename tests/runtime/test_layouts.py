"""Any layout of operands and results: strides of any sign, gaps untouched, nothing read or written outside."""

from __future__ import annotations

import numpy as np
import pytest

import polyker as pk
from tests.runtime.support import LAYOUTS, Guarded, coded, laid_out, outside

# text, shapes, NumPy's spelling
OPERATORS = {
    "matmul": ("C[i,j] += A[i,k] * B[k,j]", ((5, 7), (7, 9)), lambda a, b: a @ b),
    "transposed": ("C[i,j] += A[k,i] * B[j,k]", ((7, 5), (9, 7)), lambda a, b: a.T @ b.T),
    "batched": ("C[b,i,j] += A[b,i,k] * B[b,k,j]", ((2, 3, 4), (2, 4, 17)), lambda a, b: a @ b),
    "matvec": ("y[i] += A[i,j] * x[j]", ((19, 8), (8,)), lambda a, x: a @ x),
    "outer": ("C[i,j] = x[i] * y[j]", ((5,), (18,)), np.multiply.outer),
    "copy": ("C[j,i] = A[i,j]", ((4, 17),), lambda a: a.T.copy()),
    "diagonal": ("d[i] = A[i,i]", ((8, 8),), lambda a: np.diagonal(a).copy()),
    "relu": ("C[i,j] = relu(A[i,j] + b[j])", ((6, 17), (17,)), lambda a, b: np.maximum(a + b, 0)),
    "max": ("m[i] max= A[i,j]", ((9, 17),), lambda a: a.max(1)),
    "conv": ("O[h] += X[h+r] * K[r]", ((21,), (4,)), lambda x, k: np.correlate(x, k)),
    "padded": ("O[h] += X[h+r-1; pad=0] * K[r] for h in 0:21", ((21,), (3,)), lambda x, k: np.correlate(x, k, "same")),
    "triangle": ("T[i,j] = A[i,j] where j <= i; T[i,j] = 0 * A[i,j] where j > i", ((7, 7),), np.tril),
    "scan": ("S[0] = X[0]; S[t] = S[t-1] + X[t] for t in 1:17", ((17,),), np.cumsum),
    "colsum": ("s[j] += A[i,j]", ((9, 17),), lambda a: a.sum(0)),
    "total": ("s += A[i,j]", ((9, 17),), np.sum),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", OPERATORS)
def test_every_layout_of_the_operands_gives_the_values_of_row_major_ones(name: str, layout: str) -> None:
    text, shapes, spelled = OPERATORS[name]
    operands, memories = zip(*(laid_out(coded(s, salt=k), layout) for k, s in enumerate(shapes)), strict=True)
    before = [m.copy() for m in memories]
    result = pk.op(text)(*operands)
    np.testing.assert_array_equal(result, spelled(*(np.array(a) for a in operands)), strict=False)
    for memory, copy in zip(memories, before, strict=True):
        np.testing.assert_array_equal(memory, copy)


@pytest.mark.parametrize("layout", [name for name in LAYOUTS if name != "broadcast"])
@pytest.mark.parametrize("name", [n for n in OPERATORS if n != "total"])
def test_every_layout_of_out_is_filled_and_its_gaps_keep_their_bytes(name: str, layout: str) -> None:
    text, shapes, spelled = OPERATORS[name]
    operands = [coded(s, salt=k) for k, s in enumerate(shapes)]
    expected = np.asarray(spelled(*operands), np.float32)
    out, memory = laid_out(np.full(expected.shape, np.nan, np.float32), layout)
    before = outside(out, memory)
    assert pk.op(text)(*operands, out=out) is out
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(outside(out, memory), before)


@pytest.mark.parametrize("at_end", [True, False])
@pytest.mark.parametrize("name", OPERATORS)
def test_nothing_outside_the_arrays_is_touched_even_if_pages_around_them_are_forbidden(name: str, at_end: bool) -> None:
    text, shapes, spelled = OPERATORS[name]
    values = [coded(s, salt=k) for k, s in enumerate(shapes)]
    guards = [Guarded(v, at_end) for v in values]
    expected = np.asarray(spelled(*values), np.float32)
    out = Guarded(np.zeros_like(expected), at_end)
    try:
        pk.op(text)(*(g.array for g in guards), out=out.array)
        np.testing.assert_array_equal(out.array, expected)
    finally:
        for guard in (*guards, out):
            guard.release()


def test_many_layouts_of_one_operator_are_served_by_few_kernels() -> None:
    from polyker.api.compiling import kernels

    matmul = pk.op("C[i,j] += A[i,k] * B[k,j] + 0 * A[i,k]")
    for one in LAYOUTS:
        for two in LAYOUTS:
            a, b = laid_out(coded((5, 7)), one)[0], laid_out(coded((7, 9), salt=2), two)[0]
            np.testing.assert_array_equal(matmul(a, b), np.array(a) @ np.array(b))
    made = [c for _, c in kernels.ready() if c.typed.tensors[0].label == "A"]
    assert made
    assert all(len(c.executables) <= 9 for c in made)


def test_overlapping_windows_are_read_as_they_are() -> None:
    x = np.arange(12.0)
    windows = np.lib.stride_tricks.sliding_window_view(x, 5)
    np.testing.assert_array_equal(pk.op("s[i] += W[i,j] * W[i,j]")(windows), (windows * windows).sum(1))


@pytest.mark.parametrize("offset", range(1, 9))
def test_misaligned_operands_and_results_are_right(offset: int) -> None:
    def placed(values: np.ndarray) -> np.ndarray:
        block = np.zeros(values.nbytes + 16, np.uint8)
        array = block[offset : offset + values.nbytes].view(values.dtype).reshape(values.shape)
        array[...] = values
        return array

    for dtype in (np.float32, np.float64, np.int16, np.complex64):
        a, b = placed(coded((3, 5), dtype)), placed(coded((5, 4), dtype, 2))
        out = placed(np.zeros((3, 4), dtype))
        assert pk.op("C[i,j] += A[i,k] * B[k,j]")(a, b, out=out) is out
        np.testing.assert_array_equal(out, np.array(a) @ np.array(b))


def test_foreign_byte_order_and_odd_strides_are_right_for_operands_and_results() -> None:
    a = coded((4, 6), np.float32).astype(">f4")
    out = np.zeros((6, 4), ">f4")
    double = pk.op("C[j,i] = 2 * A[i,j]")
    assert double(a, out=out) is out
    np.testing.assert_array_equal(out, 2 * a.T)
    records = np.zeros(6, np.dtype([("pad", "u1"), ("x", "f4")]))
    records["x"] = np.arange(6)
    twice = pk.op("y[i] = 2 * x[i]")
    np.testing.assert_array_equal(twice(records["x"]), 2 * np.arange(6))
    twice(np.arange(6, dtype="f4"), out=records["x"])
    np.testing.assert_array_equal(records["x"], 2 * np.arange(6))
    assert (records["pad"] == 0).all()


@pytest.mark.parametrize("shape", [(1 << 20,), (1 << 33,)])
def test_strides_of_zero_reach_extents_without_their_memory(shape: tuple[int, ...]) -> None:
    ones = np.broadcast_to(np.int8(3), shape)
    first = pk.op("s = x[N-1] - x[0] + x[N//2]", N=shape[0])
    assert first(ones) == 3


def test_offsets_beyond_two_to_the_33_are_reached() -> None:
    block = mmap_of(1 << 34)
    block[0], block[(1 << 33) + 5] = 7, 9
    view = np.lib.stride_tricks.as_strided(block, (2,), ((1 << 33) + 5,))
    np.testing.assert_array_equal(pk.op("y[i] = x[i] + x[i]")(view), [14, 18])
    out = np.lib.stride_tricks.as_strided(block, (2,), ((1 << 33) + 5,))
    pk.op("y[i] = 1 + x[i]")(np.array([1, 2], np.int8), out=out)
    assert (block[0], block[(1 << 33) + 5]) == (2, 3)


def mmap_of(size: int) -> np.ndarray:
    """Return that many bytes of address space; pages take memory only where they are touched."""
    import mmap

    try:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
        return np.frombuffer(mmap.mmap(-1, size, flags=flags), np.int8)
    except (OSError, ValueError) as error:
        pytest.skip(f"no address space of {size} bytes: {error}")


def test_a_result_along_which_nothing_lies_together_copies_each_operand_once() -> None:
    """Whichever index the vector goes along, some operand strides: its copy is no reason to choose another index."""
    L, Q, F = (np.arange(np.prod(s), dtype="f4").reshape(s) for s in ((5, 5), (6, 5), (6, 5, 5)))
    Y, out = np.arange(5).astype("f2"), np.empty((6, 5, 10), "c16")[:, :, ::-2]
    op = pk.op("O[a,i,d] += L[d,i] * X[0] * Q[a,i] * F[a,i,d] * Y[d]")
    op(L=L, X=np.ones(1, "f4"), Q=Q, F=F.astype("c16"), Y=Y, out=out)
    np.testing.assert_array_equal(out, np.einsum("di,ai,aid,d->aid", L, Q, F, Y))
