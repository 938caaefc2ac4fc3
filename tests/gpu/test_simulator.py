"""Programs on the target `cuda-sim`: CUDA text that a C++ compiler compiles and this machine's processor runs."""

import numpy as np
import pytest

import polyker as pk
from polyker.codegen.cuda.sim_build import build_sim, header, sim_text
from polyker.codegen.cuda.text import data_file
from polyker.errors import GatherError, InternalError
from tests.artifacts import generated
from tests.gpu.support import needs_compiler

pytestmark = needs_compiler


def coded(*shape, dtype=np.float64, modulus=11, start=0):
    """Return small integers that code their position, so that sums are exact."""
    values = (np.arange(start, start + int(np.prod(shape))) * 7 + 3) % modulus - modulus // 2
    return values.astype(dtype).reshape(shape)


def on_sim(text, *arrays, **sizes):
    return pk.op(text, **sizes).compile(*arrays, target="cuda-sim")(*arrays)


def test_a_matrix_product_of_partial_blocks_is_right():
    a, b = coded(37, 29, dtype=np.float32), coded(29, 41, dtype=np.float32, start=5)
    np.testing.assert_array_equal(on_sim("C[i,j] += A[i,k] * B[k,j]", a, b), a @ b)


def test_one_symbolic_kernel_runs_for_all_sizes():
    kernel = pk.op("C[i,j] += A[i,k] * B[k,j]").compile(pk.f64["M", "K"], pk.f64["K", "N"], target="cuda-sim")
    for m, k, n in ((1, 1, 1), (9, 0, 40), (0, 3, 2), (33, 5, 65)):
        a, b = coded(m, k), coded(k, n, start=2)
        np.testing.assert_array_equal(kernel(a, b), a @ b)


def test_arrays_of_any_strides_are_read_and_written_in_place():
    a, b = coded(20, 12)[::-1, ::2], coded(12, 6).T
    out = np.full((20, 24), 9.0)[:, 1::2]
    whole = out.base
    kernel = pk.op("C[i,j] += A[i,k] * B[k,j]").compile(a, b, target="cuda-sim")
    assert kernel(a, b, out=out) is out
    np.testing.assert_array_equal(out, a @ b)
    assert (whole[:, ::2] == 9).all()


def test_time_loops_run_on_the_host_and_recurrences_in_a_thread():
    text = """heat(A: f64[N,N], steps) -> A:
    for t in 0:steps:
        B[i,j] = 0.25 * (A[i-1,j] + A[i+1,j] + A[i,j-1] + A[i,j+1])  for i in 1:N-1, j in 1:N-1
        A[i,j] = B[i,j]                                              for i in 1:N-1, j in 1:N-1"""
    a, want = coded(9, 9), coded(9, 9)
    for _ in range(3):
        want[1:-1, 1:-1] = 0.25 * (want[:-2, 1:-1] + want[2:, 1:-1] + want[1:-1, :-2] + want[1:-1, 2:])
    kernel = pk.op(text).compile(pk.f64[9, 9], steps=3, target="cuda-sim")
    np.testing.assert_allclose(kernel(a, 3), want, rtol=1e-15)
    host = kernel.source("cuda").split("void launch")[1]
    assert host.count("PK_LAUNCH") == 2 and "for (i64" in host
    x = coded(40, 6)
    text = "S[b,0] = X[b,0];  S[b,t] = S[b,t-1] + X[b,t] for t in 1:6"
    np.testing.assert_array_equal(on_sim(text, x), np.cumsum(x, 1))


def test_a_gathered_index_outside_is_flagged_and_never_followed():
    t, idx = coded(10, 4), np.array([[3, 9], [0, 1]])
    kernel = pk.op("E[b,d] += T[idx[b,l], d]").compile(t, idx, target="cuda-sim")
    np.testing.assert_array_equal(kernel(t, idx), t[idx].sum(1))
    for wrong in (10, -1):
        with pytest.raises(GatherError, match="T"):
            kernel(t, np.array([[3, wrong], [0, 1]]))
    np.testing.assert_array_equal(kernel(t, idx), t[idx].sum(1))


@pytest.mark.parametrize(
    "dtype", ["f16", "f32", "f64", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "c64", "c128"]
)
def test_every_type_multiplies_and_adds_as_numpy_does(dtype):
    kind = pk.ir.dtypes.DTYPES[dtype].numpy
    x, y = coded(50).astype(kind), coded(50, start=3).astype(kind)
    if kind.kind == "c":
        y = y + kind.type(2j)
    np.testing.assert_array_equal(on_sim("Z[i] = X[i] * Y[i] + X[i] - Y[i]", x, y), x * y + x - y)


@pytest.mark.parametrize("dtype", ["i8", "i32", "i64", "u8", "u64", "f32", "f64"])
def test_quotients_and_remainders_round_down_and_take_zero(dtype):
    kind = pk.ir.dtypes.DTYPES[dtype].numpy
    least = np.iinfo(kind).min if kind.kind in "iu" else -7.5
    x = np.array([7, 8, 0, least, least, 3, 5], kind)
    y = np.array([2, 3, 5, 2, 1, 0, 4] if kind.kind == "u" else [-2, 3, -5, -1, 3, 0, -4], kind)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(on_sim("Z[i] = X[i] // Y[i]", x, y), x // y)
        np.testing.assert_array_equal(on_sim("Z[i] = X[i] % Y[i]", x, y), x % y)


def test_extrema_take_nan_with_them():
    x, y = np.array([1, np.nan, 3, np.nan]), np.array([2, 1, np.nan, np.nan])
    np.testing.assert_array_equal(on_sim("Z[i] = minimum(X[i], Y[i])", x, y), np.minimum(x, y))
    np.testing.assert_array_equal(on_sim("m max= X[i]", x), np.nan)


def test_a_softmax_of_rows_is_right_in_four_launches_or_fewer():
    x = np.random.default_rng(0).normal(size=(13, 21))
    text = "P[i,j] = exp(X[i,j] - max[k](X[i,k])) / sum[l](exp(X[i,l] - max[k](X[i,k])))"
    e = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(on_sim(text, x), e / e.sum(1, keepdims=True), rtol=1e-14)


COMPLEX = (
    "exp",
    "expm1",
    "log",
    "log1p",
    "sqrt",
    "sin",
    "cos",
    "tan",
    "sinh",
    "cosh",
    "tanh",
    "abs",
    "sign",
    "exp2",
    "log2",
    "log10",
)


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_functions_of_complex_numbers_are_near_numpys(dtype):
    rng = np.random.default_rng(2)
    x = (rng.normal(size=60) + 1j * rng.normal(size=60)).astype(dtype)
    text = "; ".join(f"Y{n}[i] = {f}(X[i])" for n, f in enumerate(COMPLEX)) + "; Z[i] = X[i] ** X[i]; W[i] = X[i] ** 3"
    found = on_sim(text, x)
    wide = x.astype(np.complex128)
    wants = [getattr(np, f)(wide) for f in COMPLEX] + [wide**wide, wide**3]
    for name, got, want in zip((*COMPLEX, "power", "cube"), found, wants, strict=True):
        np.testing.assert_allclose(got, want, rtol=40 * np.finfo(dtype).eps, err_msg=name)


def test_threads_with_several_elements_leave_no_element_out():
    a, b = coded(150, 19, dtype=np.float32), coded(19, 12, dtype=np.float32, start=5)
    kernel = pk.op("C[i,j] += A[i,k] * B[k,j]").compile(a, b, target="cuda-sim")
    assert "4 x i0 in registers" in generated(kernel, "schedule")
    np.testing.assert_array_equal(kernel(a, b), a @ b)


def test_partial_sums_of_a_thread_take_in_the_last_terms():
    a = coded(77, 9)
    kernel = pk.op("s[j] += A[i,j]").compile(a, target="cuda-sim")
    assert "8 partial sums" in generated(kernel, "schedule")
    np.testing.assert_array_equal(kernel(a), a.sum(0))
    a = coded(9, 77)
    symbolic = pk.op("s[i] += A[i,k]").compile(pk.f64["N", "K"], target="cuda-sim")
    for k in (0, 1, 7, 8, 9, 33):
        np.testing.assert_array_equal(symbolic(a[:, :k]), a[:, :k].sum(1))


def test_long_sums_of_few_columns_are_cut_for_many_threads():
    a = coded(3000, 4)
    kernel = pk.op("s[j] += A[i,j]").compile(a, target="cuda-sim")
    assert "partial results in memory for each element" in generated(kernel, "schedule")
    np.testing.assert_array_equal(kernel(a), a.sum(0))


def test_a_sum_or_a_maximum_of_any_length_is_right():
    x = coded(3000)
    symbolic = pk.op("m max= X[i]").compile(pk.f64["N"], target="cuda-sim")
    for n in (1, 31, 700, 3000):
        assert symbolic(x[:n]) == x[:n].max()


def test_the_kernels_header_is_compiled_once_and_lines_are_those_of_the_whole_text():
    text = data_file("pk_cuda.h") + "\n// a comment\nnonsense;\n"
    with pytest.raises(InternalError, match=rf":{text.count(chr(10))}:1: error"):
        build_sim(text)
    before = header().stat().st_mtime_ns
    header.cache_clear()
    assert header().stat().st_mtime_ns == before
    assert header().read_text() == sim_text(data_file("pk_cuda.h"))


@pytest.mark.parametrize("rows", [2, 4, 7])
def test_elements_that_threads_of_one_launch_start_differently_keep_their_starts(rows):
    """isl then tests the threads' numbers before it comes to the loops over blocks."""
    head = "f(I: i64[N], W: f64[N,M]) -> H:\n    H: f64[8,M]\n"
    text = f"{head}    H[b,j] = 1 for b in 0:{rows}, j in 0:M\n    H[I[n],j] min= W[n,j]"
    at, w = np.array([0, 3, 3, 7]), coded(4, 3)
    np.testing.assert_array_equal(on_sim(text, at, w), pk.op(text)(at, w))
