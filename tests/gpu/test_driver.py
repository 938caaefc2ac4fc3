"""Kernels through the driver's interface: a driver of memory of the host, whose launches run in the simulator."""

import numpy as np
import pytest

import polyker as pk
from polyker.api.targets import target_named
from polyker.codegen.ir.kernel import Const, Op, Var
from polyker.codegen.ir.polynomial import evaluate
from polyker.errors import ArgumentError, BackendUnavailable, GatherError
from polyker.ir.dtypes import bool_
from polyker.runtime.cuda import driver as cuda_driver
from tests.gpu.device import OnDevice
from tests.gpu.support import needs_compiler


@needs_compiler
def test_arrays_are_copied_over_and_results_back_whatever_their_strides(device):
    a, b = np.arange(33.0 * 8).reshape(33, 8)[::-1, ::2], np.arange(28.0).reshape(7, 4).T
    kernel = pk.op("C[i,j] += A[i,k] * B[k,j] * 1.0").compile(a, b, target="cuda:sm_90a")
    np.testing.assert_array_equal(kernel(a, b), a @ b)
    whole = np.full((33, 14), 5.0)
    for _ in range(5):
        kernel(a, b, out=whole[:, ::2])
        np.testing.assert_array_equal(whole[:, ::2], a @ b)
        assert (whole[:, 1::2] == 5).all()
    assert device.launches and all(name == "kernel0" for name, _, _ in device.launches)


@needs_compiler
def test_time_loops_launch_in_order_with_temporaries_on_the_device(device):
    text = """heat(A: f64[N], steps) -> A:
    for t in 0:steps:
        B[i] = A[i-1] + 2*A[i+1] for i in 1:N-1
        A[i] = B[i] for i in 1:N-1"""
    a, want = np.arange(9.0), np.arange(9.0)
    for _ in range(4):
        want[1:-1] = want[:-2] + 2 * want[2:]
    kernel = pk.op(text).compile(pk.f64["N"], target="cuda:sm_80")
    np.testing.assert_array_equal(kernel(a, 4), want)
    assert [name for name, _, _ in device.launches] == ["kernel0", "kernel1"] * 4


@needs_compiler
def test_a_gathered_index_outside_is_raised_after_the_launches(device):
    kernel = pk.op("E[b] = T[idx[b]] + 0.5").compile(pk.f64[4], pk.i64[3], target="cuda:sm_90a")
    np.testing.assert_array_equal(kernel(np.arange(4.0), np.array([3, 0, 1])), [3.5, 0.5, 1.5])
    with pytest.raises(GatherError):
        kernel(np.arange(4.0), np.array([3, 4, 1]))


def test_the_gpu_of_this_machine_is_asked_what_it_is(device):
    assert target_named("cuda").name == "cuda:sm_90a"
    for arch, name in ("sm_86", "cuda:sm_86"), ("sm_87", "cuda:sm_80"):
        device.arch = lambda arch=arch: arch
        target_named.cache_clear()
        assert target_named("cuda").name == name
    device.arch = lambda: "sm_70"
    target_named.cache_clear()
    with pytest.raises(BackendUnavailable, match="sm_70") as caught:
        target_named("cuda")
    assert caught.value.code == "PK602"


def test_without_a_driver_the_reasons_are_said(monkeypatch):
    monkeypatch.setattr(cuda_driver, "found_driver", lambda: (None, "libcuda: not there"))
    with pytest.raises(BackendUnavailable, match="libcuda: not there"):
        cuda_driver.driver()


@pytest.mark.parametrize(
    ("op", "values", "want"),
    [("add", (2, 3, 4), 9), ("sub", (2, 5), -3), ("mul", (2, 3), 6), ("neg", (4,), -4), ("floordiv", (-7, 2), -4),
     ("mod", (-7, 4), 1), ("mod", (5, 0), 0), ("minimum", (3, 1), 1), ("maximum", (3, 1), 3), ("lt", (1, 2), 1),
     ("ge", (1, 2), 0), ("and", (1, 0), 0), ("or", (1, 0), 1), ("not", (0,), 1), ("where", (0, 7, 8), 8)],
)  # fmt: skip
def test_sizes_are_computed_on_the_host(op, values, want):
    kind = {} if op not in ("lt", "ge", "and", "or", "not") else {"dtype": bool_}
    assert evaluate(Op(op, tuple(Const(v) for v in values), **kind), {}) == want
    assert evaluate(Var("n"), {"n": 3}) == 3


@needs_compiler
def test_arrays_on_the_device_are_used_where_they_lie(device, library):
    a, b = np.arange(24.0).reshape(4, 6)[:, ::-2], np.arange(15.0).reshape(5, 3).T
    kernel = pk.op("C[i,j] += A[i,k] * B[k,j] * x").compile(a, b, 2.0, target="cuda:sm_90a")
    found = kernel(OnDevice(a), OnDevice(b), 2.0)
    assert isinstance(found, OnDevice)
    kernel.sync()
    np.testing.assert_array_equal(found.array, a @ b * 2)
    out = OnDevice(np.zeros((4, 10))[:, ::2])
    assert kernel(OnDevice(a), OnDevice(b), 3.0, out=out) is out
    kernel.sync()
    np.testing.assert_array_equal(out.array, a @ b * 3)
    assert device.taken == 2  # the number's memory in each call: no array is copied
    with pytest.raises(ArgumentError, match="`B` lies in the memory of the host") as caught:
        kernel(OnDevice(a), b, 2.0)
    assert caught.value.code == "PK609"


@needs_compiler
def test_an_in_out_array_on_the_device_starts_from_its_argument(device, library):
    kernel = pk.op("inc(A: f64[N]) -> A:\n    A[i] = A[i] + 1.5").compile(pk.f64[7], target="cuda:sm_90a")
    a = np.arange(7.0)
    found = kernel(OnDevice(a))
    kernel.sync()
    np.testing.assert_array_equal(found.array, a + 1.5)
    given = OnDevice(a.copy())
    assert kernel(given, out=given) is given
    kernel.sync()
    np.testing.assert_array_equal(given.array, a + 1.5)
    whole = np.zeros(8)
    with pytest.raises(ArgumentError, match="overlaps `A`") as caught:
        kernel(OnDevice(whole[:-1]), out=OnDevice(whole[1:]))
    assert caught.value.code == "PK610"
