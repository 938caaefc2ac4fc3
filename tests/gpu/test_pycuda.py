"""The driver through pycuda, with a stand-in for pycuda whose device memory is the host's."""

import ctypes
from types import SimpleNamespace

import numpy as np
import pytest

from polyker.errors import InternalError
from polyker.runtime.pycuda_driver import PyCuda


class Error(Exception):
    """pycuda's own error."""


class Allocation:
    def __init__(self, size):
        self.memory = ctypes.create_string_buffer(size)
        self.freed = False

    def __int__(self):
        return ctypes.addressof(self.memory)

    def free(self):
        self.freed = True


class Context:
    def __init__(self):
        self.depth = 0

    def push(self):
        self.depth += 1

    def pop(self):
        self.depth -= 1


class Pycuda:
    """What the project uses of `pycuda.driver`; calls outside a context are errors there, too."""

    Error = Error

    def __init__(self):
        self.context, self.launched, self.allocations = Context(), [], []

    def init(self):
        pass

    def Device(self, number):
        assert number == 0
        return SimpleNamespace(compute_capability=lambda: (9, 0), retain_primary_context=lambda: self.context)

    def module_from_buffer(self, image):
        assert self.context.depth == 1
        if image == b"bad":
            raise Error("no kernel image")
        return SimpleNamespace(get_function=lambda name: lambda *a, **k: self.launch(name, a, k))

    def launch(self, name, values, shape):
        assert self.context.depth == 1
        if shape["block"][0] > 1024:
            raise Error("too many threads")
        self.launched.append((name, [(type(v), int(v)) for v in values], shape))

    def mem_alloc(self, size):
        assert self.context.depth == 1
        self.allocations.append(Allocation(size))
        return self.allocations[-1]

    def pagelocked_empty(self, shape, dtype):
        return np.empty(shape, dtype)

    def memset_d8(self, address, value, size):
        ctypes.memset(address, value, size)

    def memcpy_htod(self, address, source):
        ctypes.memmove(address, source, len(source))

    def memcpy_dtoh(self, target, address):
        ctypes.memmove(target, address, len(target))

    def memcpy_dtod(self, target, source, size):
        ctypes.memmove(target, source, size)


class Library:
    """Notes what goes to libcuda."""

    def __init__(self):
        self.calls = []

    def __getattr__(self, name):
        def call(*arguments):
            self.calls.append((name, arguments))
            return {arguments[1][0]: "handle"} if name == "load" else None

        return call


@pytest.fixture
def cuda():
    return PyCuda(Pycuda(), Library())


def test_memory_is_copied_over_within_and_back(cuda):
    a, b = cuda.allocate(8), cuda.allocate(8)
    source, target = np.arange(8, dtype=np.uint8), np.zeros(8, np.uint8)
    cuda.copy_in(a, source.ctypes.data, 8, 0)
    cuda.copy_device(b, a, 8, 0)
    cuda.clear(b, 3, 0)
    cuda.copy_out(target.ctypes.data, b, 8, 0)
    np.testing.assert_array_equal(target, [0, 0, 0, 3, 4, 5, 6, 7])
    cuda.free(a)
    assert [m.freed for m in cuda._d.allocations] == [True, False]
    assert not cuda._library.calls
    assert cuda._context.depth == 0
    assert cuda.arch() == "sm_90"
    assert cuda.pinned(4)


def test_kernels_are_launched_on_values_of_the_arguments_sizes(cuda):
    kernel = cuda.load(b"image", ["kernel0"])["kernel0"]
    arguments = [ctypes.c_void_p(64), ctypes.c_void_p(None), ctypes.c_int64(-3)]
    cuda.launch(kernel, "kernel0", (2, 1, 1), (32, 1, 1), arguments, 0)
    values = [(np.uint64, 64), (np.uint64, 0), (np.int64, -3)]
    assert cuda._d.launched == [("kernel0", values, {"grid": (2, 1, 1), "block": (32, 1, 1)})]


def test_what_is_queued_on_the_stream_of_another_library_goes_to_the_drivers_own(cuda):
    kernel = cuda.load(b"image", ["kernel0"])["kernel0"]
    for _ in range(2):
        cuda.launch(kernel, "kernel0", (1, 1, 1), (32, 1, 1), [], 7)
    cuda.clear(0, 1, 7)
    cuda.copy_in(0, 0, 1, 7)
    cuda.copy_out(0, 0, 1, 7)
    cuda.copy_device(0, 0, 1, 7)
    cuda.follow(7, 8)
    cuda.synchronize(7, "kernel0")
    names = [name for name, _ in cuda._library.calls]
    assert names == [
        "load", "launch", "launch", "clear", "copy_in", "copy_out", "copy_device", "follow", "synchronize",
    ]  # fmt: skip
    assert cuda._library.calls[1] == ("launch", ("handle", "kernel0", (1, 1, 1), (32, 1, 1), [], 7, 0))
    assert not cuda._d.launched


def test_errors_of_pycuda_are_raised_with_the_function_and_leave_the_context(cuda):
    with pytest.raises(InternalError, match=r"module_from_buffer.*no kernel image") as caught:
        cuda.load(b"bad", ["kernel0"])
    assert caught.value.code == "PK608"
    kernel = cuda.load(b"image", ["kernel3"])["kernel3"]
    with pytest.raises(InternalError, match=r"kernel3 of grid.*too many threads") as caught:
        cuda.launch(kernel, "kernel3", (1, 1, 1), (2048, 1, 1), [], 0)
    assert caught.value.code == "PK620"
    assert cuda._context.depth == 0
