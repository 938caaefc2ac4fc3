"""Reductions whose terms are dealt out to the threads of a block, which combine what each has."""

import numpy as np
import pytest

import polyker as pk
from polyker.codegen.ir.kernel import Barrier, Shuffle
from polyker.errors import InternalError, LegalityError
from polyker.ir.dtypes import DTYPES
from polyker.structs import replace
from tests.artifacts import compiled_to
from tests.codegen.interpret import run
from tests.gpu.support import needs_compiler


def coded(*shape, dtype=np.float64, modulus=11):
    """Return small integers that code their position, so that sums are exact."""
    values = (np.arange(int(np.prod(shape))) * 7 + 3) % modulus - modulus // 2
    return values.astype(dtype).reshape(shape)


def compiled(text, *types, **sizes):
    return pk.op(text, **sizes).compile(*types, target="cuda-sim")


def launches(kernel):
    return kernel.source("cuda").count("PK_LAUNCH(kernel")


@needs_compiler
@pytest.mark.parametrize("elements, terms", [(5, 700), (9, 333), (1, 64), (40, 513), (3, 2049)])
def test_the_threads_of_a_row_sum_it(elements, terms):
    a = coded(elements, terms)
    kernel = compiled("s[i] += A[i,k]", a)
    assert "threads along" in kernel.source("schedule") and "pk_shfl_xor" in kernel.source("cuda")
    np.testing.assert_array_equal(kernel(a), a.sum(1))


@needs_compiler
@pytest.mark.parametrize("length", [300, 4000, 65536])
def test_a_sum_of_everything_takes_two_launches_at_most(length):
    x, y = coded(length), coded(length, modulus=7)
    kernel = compiled("s += X[i] * Y[i]", x, y)
    assert launches(kernel) <= 2
    assert kernel(x, y) == x @ y


@needs_compiler
@pytest.mark.parametrize("op, fold", [("max=", np.max), ("min=", np.min), ("*=", np.prod), ("+=", np.sum)])
@pytest.mark.parametrize("dtype", ["f16", "f32", "i32", "u8", "c64"])
def test_threads_combine_by_every_operator_in_every_type(op, fold, dtype):
    kind = DTYPES[dtype].numpy
    a = np.ones((6, 400), kind)
    a[:, 7::50] = 2 if dtype != "f16" else 1.5
    if dtype == "c64" and op in ("max=", "min="):
        pytest.skip("complex numbers have no order")
    kernel = compiled(f"s[i] {op} A[i,k]", a)
    assert "threads along" in kernel.source("schedule")
    found = kernel(a)
    np.testing.assert_allclose(found, fold(a, axis=1).astype(found.dtype), rtol=1e-3)


@needs_compiler
@pytest.mark.parametrize("op, fold", [("any=", np.any), ("all=", np.all)])
def test_threads_combine_truth(op, fold):
    a = np.zeros((4, 500), bool) if op == "any=" else np.ones((4, 500), bool)
    a[2, 481] ^= True
    np.testing.assert_array_equal(compiled(f"s[i] {op} A[i,k]", a)(a), fold(a, axis=1))


@needs_compiler
def test_nan_and_infinity_pass_through_the_threads():
    a = np.zeros((3, 400), "f4")
    a[0, 399], a[1, 77] = np.nan, -np.inf
    kernel = compiled("m[i] max= A[i,k]", a)
    np.testing.assert_array_equal(kernel(a), a.max(1))
    low = np.full((2, 400), -np.inf, "f4")
    np.testing.assert_array_equal(compiled("m[i] max= A[i,k]", low)(low), low.max(1))


@needs_compiler
def test_rows_of_any_strides_and_a_triangle_are_summed():
    a = coded(11, 900)[::-1, 5::2]
    kernel = compiled("s[i] += A[i,k]", a)
    np.testing.assert_array_equal(kernel(a), a.sum(1))
    b, x = coded(70, 700), coded(700)
    kernel = compiled("y[i] += A[i,k] * x[k] where k >= i", b, x)
    assert "threads along" in kernel.source("schedule")
    np.testing.assert_array_equal(kernel(b, x), np.triu(b) @ x)


@needs_compiler
def test_one_symbolic_kernel_sums_rows_of_all_lengths():
    kernel = compiled("s[i] += A[i,k]", pk.f64["M", "N"])
    for m, n in ((1, 1), (3, 0), (0, 4), (2, 31), (5, 700), (9, 64)):
        a = coded(m, n)
        np.testing.assert_array_equal(kernel(a), a.sum(1))


def test_a_sum_of_unknown_length_takes_the_whole_gpu_and_rows_of_unknown_length_stay_one_launch():
    kernel = pk.op("s += A[i] * A[i]").compile(pk.f32["N"], target="cuda:sm_90a")
    assert "1024 partial results in memory" in kernel.source("schedule")
    text = "P[i,j] = exp(X[i,j] - max[k](X[i,k])) / sum[l](exp(X[i,l] - max[k](X[i,k])))"
    kernel = pk.op(text).compile(pk.f32[64, "N"], target="cuda:sm_90a")
    assert launches(kernel) == 1


@needs_compiler
def test_sums_over_the_same_rows_and_what_follows_share_a_launch():
    x = np.random.default_rng(0).normal(size=(7, 600))
    text = """f(X) -> m, v:
    s[i] += X[i,k]
    q[i] += X[i,k] * X[i,k]
    m[i] = s[i] / 600
    v[i] = q[i] / 600 - m[i] * m[i]"""
    kernel = compiled(text, x)
    assert launches(kernel) == 1
    found = kernel(x)
    np.testing.assert_allclose(found.m, x.mean(1), rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(found.v, x.var(1), rtol=1e-12)


@needs_compiler
def test_blocks_that_share_a_element_read_once_what_two_sums_read():
    x = coded(2, 40000)
    kernel = compiled("f(X) -> s, q:\n    s[i] += X[i,k]\n    q[i] += X[i,k] * X[i,k]", x)
    assert launches(kernel) <= 3
    found = kernel(x)
    np.testing.assert_array_equal(found.s, x.sum(1))
    np.testing.assert_array_equal(found.q, (x * x).sum(1))


def test_partial_sums_of_one_tensor_share_a_launch():
    text = "f(X) -> s, q:\n    s[i] += X[i,k]\n    q[i] += X[i,k] * X[i,k]"
    kernel = pk.op(text).compile(pk.f32[4, 1 << 20], target="cuda:sm_90a")
    assert "partial results in memory" in kernel.source("schedule") and launches(kernel) == 3


@needs_compiler
def test_sums_have_the_same_bits_in_each_run_and_in_any_order_of_the_threads(monkeypatch):
    x = np.random.default_rng(1).normal(size=(3, 5000)).astype("f4")
    kernel = compiled("s[i] += X[i,k]", x)
    want = kernel(x)
    for _ in range(3):
        np.testing.assert_array_equal(kernel(x), want)
    monkeypatch.setenv("POLYKER_SIM_SEED", "7")
    np.testing.assert_array_equal(compiled("s[i] += 1 * X[i,k]", x)(x), want)


def artifact(text, *arrays):
    return compiled_to(pk.op(text).compile(*arrays, target="cuda-sim"))


def interpreted(kernel, a):
    buffers = {b.name: np.zeros([s.value for s in b.shape], b.dtype.numpy) for b in kernel.buffers}
    buffers[kernel.buffers[0].name] = a
    assert run(kernel, buffers, {}) == 0
    return buffers[kernel.buffers[1].name]


@needs_compiler
def test_the_interpreter_finds_no_race():
    a = coded(3, 300)
    np.testing.assert_array_equal(interpreted(artifact("s[i] += A[i,k]", a).kernel, a), a.sum(1))


def without(block, kind, number):
    """Return a block without one of its statements of a kind, and how many of them are left to count."""
    found = []
    for stmt in block:
        if hasattr(stmt, "body"):
            body, number = without(stmt.body, kind, number)
            stmt = replace(stmt, body=body)
        if isinstance(stmt, kind):
            number -= 1
            if number == -1:
                continue
        found.append(stmt)
    return tuple(found), number


@needs_compiler
def test_a_barrier_or_a_shuffle_that_is_left_out_is_noticed():
    a = coded(2, 600)
    kernel = artifact("s[i] += A[i,k]", a).kernel
    body, rest = without(kernel.body, Barrier, 0)
    assert rest < 0
    with pytest.raises(InternalError, match=r"race|undefined"):
        interpreted(replace(kernel, body=body), a)
    body, rest = without(kernel.body, Shuffle, 2)
    assert rest < 0
    with pytest.raises((InternalError, KeyError)):
        interpreted(replace(kernel, body=body), a)


def test_threads_that_fold_what_is_no_term_of_each_are_refused():
    s = pk.op("s[i] += A[i,k]").schedule(pk.f64[4, 50], target="cuda-sim", auto=False)
    s = s["s"].map(i="block.x")
    with pytest.raises(LegalityError):
        s["s"].map(k="thread.x(64)")
