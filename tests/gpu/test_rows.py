"""Statements that share a row: one launch, its threads meeting where one needs what others have."""

import numpy as np
import pytest

import polyker as pk
from polyker.codegen.cuda.build import cubin
from polyker.codegen.ir.kernel import Barrier, Space
from polyker.codegen.llvm.jit.detect import target
from polyker.errors import InternalError
from polyker.structs import replace
from tests.artifacts import compiled_to, generated
from tests.codegen.interpret import run
from tests.covering import few
from tests.gpu.sim_check import run_checked
from tests.gpu.support import needs_compiler, needs_nvcc
from tests.gpu.test_across import without
from tests.gpu.test_sanitizers import SANITIZERS

SOFTMAX = "P[i,j] = exp(X[i,j] - max[k](X[i,k])) / sum[l](exp(X[i,l] - max[k](X[i,k])))"
STORED = """f(X) -> P:
    m[i] max= X[i,k]
    E[i,j] = exp(X[i,j] - m[i])
    s[i] += E[i,k]
    P[i,j] = E[i,j] / s[i]"""
LOG_SOFTMAX = "f(X) -> L:\n    m[i] max= X[i,k]\n    s[i] += exp(X[i,k] - m[i])\n    L[i,j] = X[i,j] - m[i] - log(s[i])"
LOGSUMEXP = "f(X) -> L:\n    m[i] max= X[i,k]\n    s[i] += exp(X[i,k] - m[i])\n    L[i] = log(s[i]) + m[i]"
LAYER_NORM = """f(X, g, b, N) -> O:
    m[i] += X[i,k] / N
    C[i,j] = X[i,j] - m[i]
    v[i] += C[i,k] * C[i,k] / N
    O[i,j] = C[i,j] / sqrt(v[i] + 0.00001) * g[j] + b[j]"""
RMS_NORM = """f(X, g, N) -> O:
    v[i] += X[i,k] * X[i,k] / N
    r[i] = rsqrt(v[i] + 0.00001)
    O[i,j] = X[i,j] * r[i] * g[j]"""


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def log_softmax(x):
    return np.log(softmax(x))


def logsumexp(x):
    return np.log(np.exp(x).sum(-1))


def layer_norm(x, g, b):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * g + b


def rms_norm(x, g):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * g


FAMILIES = {
    "softmax": (SOFTMAX, softmax, 0),
    "softmax by steps": (STORED, softmax, 0),
    "log softmax": (LOG_SOFTMAX, log_softmax, 0),
    "logsumexp": (LOGSUMEXP, logsumexp, 0),
    "layer norm": (LAYER_NORM, layer_norm, 2),
    "RMS norm": (RMS_NORM, rms_norm, 1),
}


def arguments(family, rows, columns, dtype=np.float64):
    rng = np.random.default_rng(rows + columns)
    shapes = [(rows, columns)] + [(columns,)] * FAMILIES[family][2]
    return [rng.normal(size=s).astype(dtype) for s in shapes]


def compiled(family, arrays, name="cuda-sim"):
    sizes = {"N": arrays[0].shape[1]} if FAMILIES[family][2] else {}
    return pk.op(FAMILIES[family][0]).compile(*arrays, **sizes, target=name), sizes


def launches(kernel):
    return kernel.source("cuda").count("PK_LAUNCH(kernel")


@needs_compiler
@pytest.mark.parametrize(("family", "shape"), few([*FAMILIES], [(5, 700), (13, 65), (1, 64), (30, 129)], 2))
def test_statements_that_share_a_row_are_one_launch(family, shape):
    arrays = arguments(family, *shape)
    kernel, sizes = compiled(family, arrays)
    assert launches(kernel) == 1
    np.testing.assert_allclose(kernel(*arrays, **sizes), FAMILIES[family][1](*arrays), rtol=1e-10, atol=1e-12)


@needs_compiler
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("rows, columns", [(3, 1), (4, 7), (40, 20)])
def test_short_rows_are_right(family, rows, columns):
    arrays = arguments(family, rows, columns)
    kernel, sizes = compiled(family, arrays)
    np.testing.assert_allclose(kernel(*arrays, **sizes), FAMILIES[family][1](*arrays), rtol=1e-10, atol=1e-12)


@needs_compiler
def test_one_symbolic_softmax_takes_rows_of_all_lengths():
    kernel = pk.op(SOFTMAX).compile(pk.f64["M", "N"], target="cuda-sim")
    for m, n in ((1, 1), (0, 5), (3, 0), (2, 31), (5, 700), (9, 64)):
        x = np.random.default_rng(n).normal(size=(m, n))
        np.testing.assert_allclose(kernel(x), softmax(x) if n else x, rtol=1e-12)


@needs_compiler
@pytest.mark.parametrize("dtype", ["f2", "f4"])
def test_rows_of_smaller_floats_and_of_any_strides_are_right(dtype):
    x = np.random.default_rng(0).normal(size=(12, 700)).astype(dtype)[::-2, ::2]
    np.testing.assert_allclose(
        pk.op(SOFTMAX).compile(x, target="cuda-sim")(x), softmax(x.astype("f8")), rtol=1e-2 if dtype == "f2" else 1e-5
    )


@needs_compiler
def test_rows_in_loops_of_the_text_are_right():
    text = """f(X: f64[4,300], steps) -> X:
    for t in 0:steps:
        s[i] = sum[k](X[i,k] * X[i,k])
        X[i,j] = X[i,j] / sqrt(s[i]) + 1"""
    x = np.random.default_rng(0).normal(size=(4, 300))
    want = x.copy()
    for _ in range(3):
        want = want / np.sqrt((want * want).sum(1, keepdims=True)) + 1
    kernel = pk.op(text).compile(pk.f64[4, 300], steps=3, target="cuda-sim")
    np.testing.assert_allclose(kernel(x.copy(), 3), want, rtol=1e-12)


def buffers(family, rows, columns):
    kernel, _ = compiled(family, arguments(family, rows, columns, "f4"), "cuda:sm_90a")
    assert launches(kernel) == 1
    return generated(kernel, "schedule"), {b.space for b in compiled_to(kernel).kernel.buffers}


def test_few_rows_of_some_length_are_one_launch_too():
    schedule, _ = buffers("softmax", 100, 4096)
    assert "512 threads along" in schedule


def test_what_a_row_needs_between_its_statements_stays_in_registers():
    schedule, spaces = buffers("softmax by steps", 4096, 1024)
    assert spaces == {Space.ARGUMENT} and "in shared [1, 1024]" not in schedule
    assert schedule.count("in [1, 1, 4, 4]") == 2  # of X and of E


def loads(kernel, tensor="t0"):
    """Return how often the text of a kernel reads an argument, by 16 bytes and by elements."""
    text = kernel.source("cuda").split("// t0:")[1]
    return text.count(f"pk_get<4>(&{tensor}["), text.count(f" {tensor}[")


@needs_compiler
@pytest.mark.parametrize("family", ["softmax", "layer norm", "log softmax"])
def test_a_row_in_registers_is_read_once_from_memory(family):
    kernel, _ = compiled(family, arguments(family, 4096, 2048, "f4"), "cuda:sm_90a")
    assert loads(kernel) == (4, 0) and "thread.x(128)" in generated(kernel, "schedule")
    assert "pk_put(&t" in kernel.source("cuda").split("// t0:")[1]


def test_rows_that_begin_at_no_multiple_of_16_bytes_are_read_element_by_element():
    kernel, _ = compiled("softmax", arguments("softmax", 4096, 2047, "f4"), "cuda:sm_90a")
    assert loads(kernel) == (0, 16)


def test_rows_of_too_many_elements_for_registers_are_read_again():
    kernel, _ = compiled("softmax", arguments("softmax", 3, 40000, "f4"), "cuda:sm_90a")
    assert "unroll" not in generated(kernel, "schedule")
    kernel = pk.op(SOFTMAX).compile(pk.f32["M", "N"], target="cuda:sm_90a")
    assert "unroll" not in generated(kernel, "schedule")


@needs_compiler
def test_rows_that_are_read_in_part_are_held_in_registers():
    x = np.random.default_rng(0).normal(size=(70, 70))
    text = """f(X) -> P:
    m[i] max= X[i,k] where k <= i
    s[i] += exp(X[i,k] - m[i]) where k <= i
    P[i,j] = exp(X[i,j] - m[i]) / s[i]"""
    kernel = pk.op(text).compile(x, target="cuda-sim")
    assert launches(kernel) == 1 and "unroll" in generated(kernel, "schedule")
    e = np.exp(x - np.where(np.tri(70), x, -np.inf).max(1, keepdims=True))
    np.testing.assert_allclose(kernel(x), e / np.tril(e).sum(1, keepdims=True), rtol=1e-12)


@needs_compiler
def test_what_other_threads_have_of_a_row_goes_through_shared_memory():
    x = np.random.default_rng(0).normal(size=(5, 300))
    text = "f(X) -> P:\n    s[i] += X[i,k]\n    E[i,j] = exp(X[i,j] - s[i])\n    P[i,j] = E[i,j] + 2 * E[i,299-j]"
    kernel = pk.op(text).compile(x, target="cuda-sim")
    e = np.exp(x - x.sum(1, keepdims=True))
    np.testing.assert_allclose(kernel(x), e + 2 * e[:, ::-1], rtol=1e-12)


@needs_compiler
def test_a_row_that_the_launch_overwrites_is_read_where_it_lies():
    x = np.random.default_rng(0).normal(size=(5, 300))
    text = """f(X: f64[5,300]) -> X:
    s[i] = sum[k](X[i,k])
    X[i,j] = X[i,j] - s[i]
    q[i] = sum[k](X[i,k])
    X[i,j] = X[i,j] * q[i]"""
    kernel = pk.op(text).compile(x, target="cuda-sim")
    want = x - x.sum(1, keepdims=True)
    np.testing.assert_allclose(kernel(x.copy()), want * want.sum(1, keepdims=True), rtol=1e-10)


def test_rows_that_shared_memory_has_no_room_for_go_through_memory():
    schedule, spaces = buffers("softmax by steps", 200, 60000)
    assert spaces == {Space.ARGUMENT, Space.SCRATCH} and "60000]" not in schedule


@needs_compiler
def test_the_interpreter_finds_each_barrier_that_is_left_out():
    (x,) = arguments("softmax", 2, 700)
    kernel = compiled_to(compiled("softmax", [x])[0]).kernel

    def interpreted(changed):
        arrays = {b.name: np.zeros([s.value for s in b.shape], b.dtype.numpy) for b in kernel.buffers}
        arrays[kernel.buffers[0].name] = x
        assert run(changed, arrays, {}) == 0
        return arrays[kernel.buffers[1].name]

    np.testing.assert_allclose(interpreted(kernel), softmax(x), rtol=1e-12)
    left, number = 0, 0
    while left >= 0:
        body, left = without(kernel.body, Barrier, number)
        if left < 0:
            with pytest.raises(InternalError, match=r"race|undefined"):
                interpreted(replace(kernel, body=body))
            number += 1
            left = 0
        else:
            break
    assert number >= 4


@needs_compiler
@pytest.mark.parametrize("sanitizer", SANITIZERS)
@pytest.mark.parametrize("family", ["softmax", "softmax by steps"])
def test_rows_are_clean_under_the_sanitizers(family, sanitizer):
    arrays = arguments(family, 5, 200, "f4")
    kernel, sizes = compiled(family, arrays)
    rest = compiled_to(kernel).kernel.buffers[len(arrays) :]
    memory = arrays + [np.full([s.value for s in b.shape], np.nan, b.dtype.numpy) for b in rest]
    found = run_checked(kernel.source("cuda"), memory, sanitizer=sanitizer)
    assert (found.report, found.status) == ("", 0)
    np.testing.assert_array_equal(found.arrays[len(arrays)], kernel(*arrays, **sizes))


@needs_nvcc
@pytest.mark.parametrize(("family", "arch"), few([*FAMILIES], ["cuda:sm_80", "cuda:sm_90a"], 1))
def test_nvcc_compiles_rows_without_spills(family, arch):
    kernel, _ = compiled(family, arguments(family, 4096, 1024, "f4"), arch)
    _, used = cubin(kernel.source("cuda"), target(arch))
    assert all(r.spilled == 0 for r in used.values()), used
