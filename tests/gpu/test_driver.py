"""Kernels through the driver's interface: a driver of memory of the host, whose launches run in the simulator."""

import ctypes
import os
import sys
from types import ModuleType

import numpy as np
import pytest

import polyker as pk
from polyker.codegen.host import evaluate
from polyker.codegen.kernel import Const, Op, Var
from polyker.codegen.sim_build import compile_cxx, run_time, sim_text
from polyker.compiling import target_named
from polyker.errors import ArgumentError, BackendUnavailable, GatherError, InternalError
from polyker.ir.dtypes import bool_
from polyker.runtime import cuda_driver, gpu_call
from polyker.runtime.cuda_driver import LibCuda
from tests.gpu.support import needs_compiler


class Dim(ctypes.Structure):
    _fields_ = [(a, ctypes.c_uint) for a in "xyz"]


class SimulatedDriver:
    """Device memory is the host's; `launches` notes what was launched; everything allocated has to be freed."""

    def __init__(self, folder):
        self.folder, self.memory, self.launches, self.taken = folder, {}, [], 0

    def arch(self):
        return "sm_90"

    def load(self, image, names):
        output = self.folder / f"kernels{len(os.listdir(self.folder))}.so"
        text = sim_text(image.decode())
        compile_cxx(text, output, "-O1", "-DPK_SIM", "-fvisibility=default", "-shared", str(run_time()))
        self.library = ctypes.CDLL(str(output))
        # The run time's own names are hidden: this one is called through the text's.
        return {name: getattr(self.library, name) for name in names}

    def allocate(self, size):
        block = ctypes.create_string_buffer(size)
        ctypes.memset(block, 0xFF, size)
        self.memory[ctypes.addressof(block)] = block
        self.taken += 1
        return ctypes.addressof(block)

    def free(self, address):
        del self.memory[address]

    def clear(self, address, size):
        ctypes.memset(address, 0, size)

    def copy_in(self, address, host, size):
        assert len(self.memory[address]) >= size
        ctypes.memmove(address, host, size)

    def copy_out(self, host, address, size):
        ctypes.memmove(host, address, size)

    def copy_device(self, target, source, size):
        ctypes.memmove(target, source, size)

    def launch(self, kernel, name, grid, block, arguments):
        self.launches.append((name, grid, block))
        body = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: kernel(*arguments))
        start = self.library.pk_start_for_tests
        start(name.encode(), Dim(*grid), Dim(*block), body)


@pytest.fixture
def device(tmp_path, monkeypatch):
    """A driver; the text takes the way of the cubin."""
    found = SimulatedDriver(tmp_path)
    monkeypatch.setattr(cuda_driver, "_found", lambda: (found, ""))
    hook = """#ifdef PK_SIM
extern "C" __attribute__((visibility("default")))
void pk_start_for_tests(const char *name, pk_dim grid, pk_dim block, void (*body)(void *)) {
  pk_launch(name, grid, block, 0, body, nullptr);
}
#endif
"""
    monkeypatch.setattr(gpu_call, "cubin", lambda text, target: ((text + hook).encode(), {}))
    target_named.cache_clear()
    yield found
    target_named.cache_clear()
    assert not found.memory


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
    device.arch = lambda: "sm_86"
    target_named.cache_clear()
    assert target_named("cuda").name == "cuda:sm_80"
    device.arch = lambda: "sm_70"
    target_named.cache_clear()
    with pytest.raises(BackendUnavailable, match="sm_70") as caught:
        target_named("cuda")
    assert caught.value.code == "PK602"


def test_without_a_driver_the_reasons_are_said(monkeypatch):
    monkeypatch.setattr(cuda_driver, "_found", lambda: (None, "libcuda: not there"))
    with pytest.raises(BackendUnavailable, match="libcuda: not there"):
        cuda_driver.driver()


def test_an_error_of_cuda_is_raised_with_the_functions_name():
    class Library:
        def __getattr__(self, name):
            return lambda *arguments: 0

        def cuModuleLoadData(self, *arguments):
            return 209

        def cuGetErrorString(self, status, text):
            ctypes.cast(text, ctypes.POINTER(ctypes.c_char_p))[0] = b"no kernel image"
            return 0

    with pytest.raises(InternalError, match=r"cuModuleLoadData.*no kernel image") as caught:
        LibCuda(Library()).load(b"", [])
    assert caught.value.code == "PK608"


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


class OnDevice:
    """An array on the simulated device, whose memory is the host's."""

    def __init__(self, array):
        self.array = array

    @property
    def __cuda_array_interface__(self):
        return {**self.array.__array_interface__, "version": 3}


@pytest.fixture
def library(monkeypatch):
    """A library of such arrays."""
    module = ModuleType("arrays_on_a_device")
    module.empty = lambda shape, dtype: OnDevice(np.empty(shape, dtype))
    monkeypatch.setattr(OnDevice, "__module__", module.__name__)
    monkeypatch.setitem(sys.modules, module.__name__, module)


@needs_compiler
def test_arrays_on_the_device_are_used_where_they_lie(device, library):
    a, b = np.arange(24.0).reshape(4, 6)[:, ::-2], np.arange(15.0).reshape(5, 3).T
    kernel = pk.op("C[i,j] += A[i,k] * B[k,j] * x").compile(a, b, 2.0, target="cuda:sm_90a")
    found = kernel(OnDevice(a), OnDevice(b), 2.0)
    assert isinstance(found, OnDevice)
    np.testing.assert_array_equal(found.array, a @ b * 2)
    out = OnDevice(np.zeros((4, 10))[:, ::2])
    assert kernel(OnDevice(a), OnDevice(b), 3.0, out=out) is out
    np.testing.assert_array_equal(out.array, a @ b * 3)
    assert device.taken <= 4  # two numbers and two flags: no array is copied
    with pytest.raises(ArgumentError, match="`B` lies in the memory of the host") as caught:
        kernel(OnDevice(a), b, 2.0)
    assert caught.value.code == "PK609"


@needs_compiler
def test_an_in_out_array_on_the_device_starts_from_its_argument(device, library):
    kernel = pk.op("inc(A: f64[N]) -> A:\n    A[i] = A[i] + 1.5").compile(pk.f64[7], target="cuda:sm_90a")
    a = np.arange(7.0)
    np.testing.assert_array_equal(kernel(OnDevice(a)).array, a + 1.5)
    given = OnDevice(a.copy())
    assert kernel(given, out=given) is given
    np.testing.assert_array_equal(given.array, a + 1.5)
    whole = np.zeros(8)
    with pytest.raises(ArgumentError, match="overlaps `A`") as caught:
        kernel(OnDevice(whole[:-1]), out=OnDevice(whole[1:]))
    assert caught.value.code == "PK610"
