"""Calls with arrays on a GPU: streams, what is raised when, DLPack, calls of operators, memory kept between calls."""

import ctypes
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

import polyker as pk
from polyker.errors import ArgumentError, BackendUnavailable, GatherError
from polyker.runtime.cuda import bound
from polyker.runtime.cuda import driver as cuda_driver
from polyker.runtime.cuda.streams import stream_handle
from polyker.runtime.dlpack import exported
from tests.gpu.device import OnDevice
from tests.gpu.support import needs_compiler

GATHER = "E[b] = T[idx[b]] + 0.5"


@needs_compiler
def test_a_call_only_queues_its_work_on_the_stream_that_is_given(device, library):
    kernel = pk.op("Y[i] = X[i] * 2").compile(pk.f64[8], target="cuda:sm_90a")
    x, y = OnDevice(np.arange(8.0)), OnDevice(np.zeros(8))
    assert kernel(x, out=y, stream=77) is y
    assert len(device.queues[77]) == 1 and not device.synchronised and not y.array.any()
    kernel.sync()
    assert device.synchronised == [77]
    np.testing.assert_array_equal(y.array, 2 * x.array)
    kernel.sync()
    assert len(device.synchronised) == 1  # nothing is left to wait for


@needs_compiler
def test_arrays_of_the_host_take_the_stream_and_are_waited_for(device):
    kernel = pk.op("Y[i] = X[i] * 2").compile(pk.f64[8], target="cuda:sm_90a")
    for _ in range(4):
        np.testing.assert_array_equal(kernel(np.arange(8.0), stream=5), 2 * np.arange(8.0))
    assert set(device.synchronised) == {5}
    assert device.taken == 4  # one block for both arrays of a call


@needs_compiler
def test_the_stream_of_an_array_is_waited_for_on_the_device(device, library):
    kernel = pk.op("Z[i] = X[i] + Y[i]").compile(pk.f64[4], pk.f64[4], target="cuda:sm_90a")
    x, late = OnDevice(np.ones(4), stream=9), np.zeros(4)
    device.queue(9, lambda: late.fill(3.0))
    z = kernel(x, OnDevice(late, stream=9), stream=3)
    assert device.followed == [(3, 9), (3, 9)]
    kernel.sync()
    np.testing.assert_array_equal(z.array, np.full(4, 4.0))
    kernel(OnDevice(np.ones(4), stream=3), OnDevice(late), stream=3)
    assert len(device.followed) == 2


@needs_compiler
def test_a_gathered_index_outside_is_raised_when_the_kernel_is_waited_for(device, library):
    kernel = pk.op(GATHER).compile(pk.f64[4], pk.i64[3], target="cuda:sm_90a")
    table, good, bad = (OnDevice(np.asarray(v)) for v in (np.arange(4.0), [3, 0, 1], [3, 4, 1]))
    kernel(table, bad, stream=4)
    kernel(table, good, stream=6)
    with pytest.raises(GatherError, match="T"):
        kernel.sync()
    kernel.sync()
    found = kernel(table, good, stream=4)
    kernel.sync()
    np.testing.assert_array_equal(found.array, [3.5, 0.5, 1.5])


@needs_compiler
def test_a_gathered_index_outside_is_raised_by_the_next_call_that_sees_it(device, library):
    kernel = pk.op(GATHER).compile(pk.f64[4], pk.i64[3], target="cuda:sm_90a")
    table, good, bad = (OnDevice(np.asarray(v)) for v in (np.arange(4.0), [3, 0, 1], [3, 4, 1]))
    kernel(table, bad)
    kernel(table, good)  # the device has not come so far
    device.drain(0)
    launched = len(device.launches)
    with pytest.raises(GatherError):
        kernel(table, good)
    assert len(device.launches) == launched
    kernel(table, bad)
    with pytest.raises(GatherError):  # a call with arrays of the host waits for what was queued
        kernel(np.arange(4.0), np.array([3, 0, 1]))
    np.testing.assert_array_equal(kernel(np.arange(4.0), np.array([3, 0, 1])), [3.5, 0.5, 1.5])


@needs_compiler
def test_an_operator_runs_where_its_arrays_lie(device, library):
    product = pk.op("C[i,j] += A[i,k] * B[k,j]")
    a, b = np.arange(12.0).reshape(3, 4), np.arange(20.0).reshape(4, 5)
    found = product(OnDevice(a), OnDevice(b))
    assert isinstance(found, OnDevice) and device.launches
    product.sync()
    np.testing.assert_array_equal(found.array, a @ b)
    out = OnDevice(np.zeros((3, 5)))
    assert product(OnDevice(a), B=OnDevice(b), out=out, stream=8) is out
    product.sync()
    assert 8 in device.synchronised
    np.testing.assert_array_equal(out.array, a @ b)
    np.testing.assert_array_equal(product(a, b), a @ b)  # on the CPU
    gather = pk.op(GATHER)
    gather(OnDevice(np.arange(4.0)), OnDevice(np.array([0, 9])))
    with pytest.raises(GatherError):
        gather.sync()


@needs_compiler
def test_an_operator_refuses_arrays_of_host_and_device_together(device, library, monkeypatch):
    product = pk.op("C[i,j] += A[i,k] * B[k,j]")
    with pytest.raises(ArgumentError, match="`B` lies in the memory of the host") as caught:
        product(OnDevice(np.ones((2, 2))), np.ones((2, 2)))
    assert caught.value.code == "PK609"
    with pytest.raises(ArgumentError, match="`A` lies in the memory of the host"):
        product(np.ones((2, 2)), np.ones((2, 2)), out=OnDevice(np.ones((2, 2))))
    with pytest.raises(ArgumentError, match="none of these lies there") as caught:
        product(np.ones((2, 2)), np.ones((2, 2)), stream=0)
    assert caught.value.code == "PK625"
    monkeypatch.setenv("POLYKER_TARGET", "cuda-sim")
    with pytest.raises(ArgumentError, match="`A` lies in the memory of a CUDA device") as caught:
        product(OnDevice(np.ones((2, 2))), OnDevice(np.ones((2, 2))))
    assert caught.value.code == "PK707"


@needs_compiler
def test_einsum_runs_where_its_arrays_lie(device, library):
    a, b = np.arange(12.0).reshape(3, 4), np.arange(20, dtype=np.float32).reshape(4, 5)
    found = pk.einsum("ij,jk", OnDevice(a), OnDevice(b))
    assert isinstance(found, OnDevice) and device.launches
    device.drain(0)
    np.testing.assert_array_equal(found.array, a @ b)
    out = OnDevice(np.zeros((5, 3)))
    assert pk.einsum("ij,jk->ki", OnDevice(a), OnDevice(b), out=out) is out
    device.drain(0)
    np.testing.assert_array_equal(out.array, (a @ b).T)
    with pytest.raises(ArgumentError, match="operand 1"):
        pk.einsum("ij,jk", OnDevice(a), b)
    with pytest.raises(ValueError, match="on a GPU order"):
        pk.einsum("ij,jk", OnDevice(a), OnDevice(b), order="F")


def test_where_nothing_was_queued_there_is_nothing_to_wait_for():
    operator = pk.op("Y[i] = X[i] * 2")
    operator.sync()
    operator.compile(pk.f64[2]).sync()
    operator.compile(pk.f64[2], target="cuda:sm_90a").sync()


def test_without_a_driver_an_operator_says_why_it_cannot_run_where_its_arrays_lie(library, monkeypatch):
    monkeypatch.setattr(cuda_driver, "found_driver", lambda: (None, "libcuda: not there"))
    with pytest.raises(BackendUnavailable, match="libcuda: not there"):
        pk.op("Y[i] = X[i] * 2")(OnDevice(np.ones(2)))


@needs_compiler
@pytest.mark.parametrize("compiled", [True, False])
def test_calls_with_arrays_that_lie_alike_repeat_the_plan_and_others_do_not(device, library, compiled, monkeypatch):
    long = []
    plain = bound.bound_call
    monkeypatch.setattr(bound, "bound_call", lambda *a: long.append(1) or plain(*a))
    call = pk.op("Z[i] = X[i] * 2 + Y[i]")
    call = call.compile(pk.f64[6], pk.f64[6], target="cuda:sm_90a") if compiled else call

    def check(x, y, out=None):
        found = call(OnDevice(x), OnDevice(y), **({} if out is None else {"out": OnDevice(out)}))
        call.sync()
        np.testing.assert_array_equal(found.array, 2 * x + y)

    for n in range(4):
        check(np.arange(6.0) + n, np.ones(6))
    assert len(long) == 1
    for n in range(4):
        check(np.arange(6.0) + n, np.ones(6), np.zeros(6))
    assert len(long) == 2
    for n in range(3):
        check(np.arange(12.0)[::2] + n, np.ones(6))  # of other strides: `+ n` makes it dense
        check(np.arange(12.0)[::-2], np.ones(6))
    assert len(long) == 3
    whole = np.zeros(9)
    with pytest.raises(ArgumentError, match="overlaps"):
        check(whole[:6], np.ones(6), whole[3:])
    frozen = np.zeros(6)
    frozen.flags.writeable = False
    with pytest.raises(ArgumentError, match="read-only"):
        check(np.ones(6), np.ones(6), frozen)
    odd = np.zeros(50, np.int8)[1:49].view(np.float64)
    with pytest.raises(ArgumentError, match="cannot address"):
        check(odd, np.ones(6))


class Packed:
    """An array of a library that has DLPack's protocol alone; its capsules say that they lie on a device."""

    def __init__(self, array, number=0, versioned=True):
        self.array, self.number, self.versioned, self.streams = array, number, versioned, []

    def __dlpack_device__(self):
        return 2, self.number

    def __dlpack__(self, *, stream=None, **version):
        if version and not self.versioned:
            raise TypeError("no versions")
        self.streams.append(stream)
        capsule = self.array.__dlpack__(**version)
        name = b"dltensor_versioned" if version else b"dltensor"
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.argtypes, pointer.restype = (ctypes.py_object, ctypes.c_char_p), ctypes.c_void_p
        start = pointer(capsule, name) + (32 if version else 0)
        ctypes.c_int32.from_address(start + 8).value = 2
        ctypes.c_int32.from_address(start + 12).value = self.number
        return capsule


@needs_compiler
@pytest.mark.parametrize("versioned", [True, False])
def test_arrays_by_dlpack_are_used_where_they_lie(device, library, versioned):
    x = np.arange(24.0, dtype=np.float32).reshape(4, 6)[::2, 1::2]
    given, out = Packed(x, versioned=versioned), OnDevice(np.zeros((3, 2), np.float32))
    kernel = pk.op("T[j,i] = X[i,j]").compile(pk.f32[2, 3], target="cuda:sm_90a")
    kernel(given, out=out, stream=12)
    assert given.streams == [12]
    kernel.sync()
    np.testing.assert_array_equal(out.array, x.T)
    kernel(given, out=out)
    assert given.streams[-1] == 1  # the default stream; 0 is not allowed
    kernel.sync()
    with pytest.raises(BackendUnavailable, match="no CUDA device 1") as caught:
        kernel(Packed(x, number=1), out=out)
    assert caught.value.code == "PK629"


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i1", "i8", "u2", "c8", "c16", "?"])
def test_dlpack_tells_shape_strides_and_type(dtype):
    array = np.zeros((3, 4, 2), dtype)[::-1, 1:]
    found = exported(Packed(array), 0)
    assert (found.shape, found.strides, found.dtype.numpy) == (array.shape, array.strides, array.dtype)
    assert found.address == array.ctypes.data and not found.read_only
    array.flags.writeable = False
    assert exported(Packed(array), 0).read_only


@needs_compiler
def test_an_array_library_that_makes_no_arrays_asks_for_out(device, monkeypatch):
    monkeypatch.setattr(Packed, "__module__", "makes_none")
    monkeypatch.setitem(sys.modules, "makes_none", ModuleType("makes_none"))
    kernel = pk.op("Y[i] = X[i] * 2").compile(pk.f64[3], target="cuda:sm_90a")
    with pytest.raises(ArgumentError, match="`out`") as caught:
        kernel(Packed(np.ones(3)))
    assert caught.value.code == "PK622"


@pytest.mark.parametrize(
    ("stream", "handle"),
    [(0, 0), (1, 0), (2, 2), (99, 99), (SimpleNamespace(cuda_stream=5), 5), (SimpleNamespace(ptr=6), 6),
     (SimpleNamespace(handle=7), 7), (SimpleNamespace(handle=ctypes.c_void_p(8)), 8),
     (SimpleNamespace(handle=ctypes.c_void_p()), 0), (SimpleNamespace(__cuda_stream__=lambda: (0, 9)), 9)],
)  # fmt: skip
def test_streams_of_every_library_have_a_handle(stream, handle):
    assert stream_handle(stream) == handle


def test_what_is_no_stream_is_refused():
    for wrong in ("0", 1.5, True, -1, object()):
        with pytest.raises(ArgumentError, match="`stream` is a") as caught:
            stream_handle(wrong)
        assert caught.value.code == "PK621"


class Torch(OnDevice):
    """What a tensor of torch's on a device looks like."""

    dtype, records = "torch.float64", False
    device = property(lambda self: SimpleNamespace(index=0))
    is_cuda, requires_grad = property(lambda self: True), property(lambda self: self.records)

    def detach(self):
        self.plain = self if type(self) is Torch else Torch(self.array)
        return self.plain

    def is_conj(self):
        return False

    is_neg = is_conj

    def record_stream(self, stream):
        self.recorded = [*getattr(self, "recorded", []), stream.cuda_stream]

    def data_ptr(self):
        return self.array.ctypes.data

    @property
    def shape(self):
        return self.array.shape

    def stride(self):
        return tuple(s // 8 for s in self.array.strides)

    def element_size(self):
        return 8


@needs_compiler
def test_tensors_of_torch_run_on_its_current_stream_and_results_belong_to_the_calls(device, monkeypatch):
    used = []

    class Within:
        def __init__(self, stream):
            self.stream = stream

        def __enter__(self):
            used.append(self.stream.cuda_stream)

        def __exit__(self, *_):
            pass

    torch = ModuleType("torch")
    torch.Tensor, torch.float64 = Torch, "float64"
    forward = SimpleNamespace(_current_level=-1, unpack_dual=lambda tensor: SimpleNamespace(tangent=None))
    torch.autograd = SimpleNamespace(forward_ad=forward)
    torch.is_grad_enabled = lambda: True
    torch.empty = lambda shape, dtype, device: Torch(np.empty(shape, dtype))
    torch.cuda = SimpleNamespace(
        current_stream=lambda device: SimpleNamespace(cuda_stream=21),
        default_stream=lambda device: SimpleNamespace(cuda_stream=0),
        ExternalStream=lambda handle, device: SimpleNamespace(cuda_stream=handle),
        stream=Within,
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    kernel = pk.op("Y[i] = X[i] * 2").compile(pk.f64[4], target="cuda:sm_90a")
    x = Torch(np.arange(8.0)[::2])
    found = kernel(x)
    assert list(device.queues) == [21] and used == []
    kernel.sync()
    np.testing.assert_array_equal(found.array, 2 * x.array)
    kernel(x, stream=30)
    kernel(x, stream=0)
    assert list(device.queues) == [21, 30, 0] and used == [30, 0]
    assert x.recorded == [30, 0]  # torch keeps its memory until what these streams do now is done
    kernel.sync()
    parameter = type("Parameter", (Torch,), {})(np.arange(4.0))
    kernel(parameter, stream=30)
    assert parameter.plain.recorded == [30]
    kernel.sync()
    x.records = True
    with pytest.raises(ArgumentError, match="requires grad"):
        kernel(x)
