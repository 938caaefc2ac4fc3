"""CUDA's driver library by ctypes, beside torch and polyker: what it says of the card, arrays in its memory, a kernel's launch.

Nothing of polyker's run time is used. The context is the device's primary one, which all libraries share.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from math import prod
from typing import Any

import numpy as np

# What `cuDeviceGetAttribute` is asked for: CU_DEVICE_ATTRIBUTE_...
ATTRIBUTES = {
    "major": 75,
    "minor": 76,
    "warp": 10,
    "threads a block": 1,
    "registers a multiprocessor": 82,
    "shared bytes a block": 8,
    "shared bytes a block, asked for": 97,
    "shared bytes a multiprocessor": 81,
    "threads a multiprocessor": 39,
    "multiprocessors": 16,
    "L2 bytes": 38,
    "clock, kHz": 13,
    "memory clock, kHz": 36,
    "memory bus, bits": 37,
    "compute mode": 20,
}
EXCLUSIVE = 3  # a compute mode: one process may have a context at a time


class CudaError(RuntimeError):
    """The driver reports an error."""


class LibCuda:
    """The driver's library in the primary context of device 0; raises OSError or CudaError where there is none."""

    def __init__(self) -> None:
        self._cu = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)
        self._device, self._context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuDeviceGet", ctypes.byref(self._device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), self._device)
        self.call("cuCtxSetCurrent", self._context)

    def call(self, function: str, *arguments: Any) -> None:
        """Call a function of the library; raises CudaError where it reports an error."""
        status = getattr(self._cu, function)(*arguments)
        if status:
            text = ctypes.c_char_p()
            self._cu.cuGetErrorString(status, ctypes.byref(text))
            raise CudaError(f"{function}: {text.value.decode() if text.value else f'error {status}'}")

    def attributes(self) -> dict[str, int]:
        """Return what the driver says of the device; what it does not know is left out."""
        found, number = dict[str, int](), ctypes.c_int()
        for name, attribute in ATTRIBUTES.items():
            try:
                self.call("cuDeviceGetAttribute", ctypes.byref(number), attribute, self._device)
                found[name] = number.value
            except CudaError:
                continue
        return found

    def name(self) -> str:
        """Return the device's name."""
        text = ctypes.create_string_buffer(256)
        self.call("cuDeviceGetName", text, ctypes.c_int(256), self._device)
        return text.value.decode(errors="replace")

    def version(self) -> str:
        """Return the version of CUDA that the driver knows."""
        number = ctypes.c_int()
        self.call("cuDriverGetVersion", ctypes.byref(number))
        return f"{number.value // 1000}.{number.value % 1000 // 10}"

    def allocate(self, size: int) -> int:
        """Return the address of new memory of the device."""
        address = ctypes.c_uint64()
        self.call("cuCtxSetCurrent", self._context)
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(max(1, size)))
        return address.value

    def free(self, address: int) -> None:
        """Give memory back."""
        self.call("cuMemFree_v2", ctypes.c_uint64(address))

    def stream(self) -> int:
        """Return the handle of a new stream, which is never destroyed."""
        handle = ctypes.c_void_p()
        self.call("cuStreamCreate", ctypes.byref(handle), 1)
        return handle.value or 0

    def wait(self) -> None:
        """Wait for all that was queued."""
        self.call("cuCtxSynchronize")

    def function(self, image: bytes, name: str) -> ctypes.c_void_p:
        """Return a kernel of a cubin."""
        module, found = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuModuleLoadData", ctypes.byref(module), image)
        self.call("cuModuleGetFunction", ctypes.byref(found), module, name.encode())
        return found

    def launch(self, function: ctypes.c_void_p, blocks: int, threads: int, arguments: Sequence[Any]) -> None:
        """Launch a kernel on the default stream, with arguments of ctypes' types."""
        places = (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(a) for a in arguments))
        self.call("cuLaunchKernel", function, blocks, 1, 1, threads, 1, 1, 0, None, places, None)


@cache
def library() -> LibCuda:
    """Return the driver's library."""
    return LibCuda()


class _Memory:
    """Memory of the device, freed with the last array that lies in it."""

    def __init__(self, size: int) -> None:
        self.address = library().allocate(size)

    def __del__(self) -> None:
        library().free(self.address)


class Array:
    """An array on the device for whoever reads `__cuda_array_interface__`; parts are views."""

    def __init__(self, memory: _Memory, like: np.ndarray) -> None:
        self._memory, self._like = memory, like
        self.shape, self.dtype = like.shape, like.dtype

    @property
    def __cuda_array_interface__(self) -> Mapping[str, Any]:
        return {**self._like.__array_interface__, "version": 3, "stream": None}

    def __array_namespace__(self) -> Any:
        return sys.modules[__name__]

    def __getitem__(self, key: Any) -> Array:
        keys = key if isinstance(key, tuple) else (key,)
        # With an ellipsis NumPy gives a view in any case: without one an element would be read.
        return Array(self._memory, self._like[keys if ... in keys else (*keys, ...)])

    def numpy(self) -> np.ndarray:
        """Return a copy on the host, of a dense array."""
        found = np.empty(self.shape, self.dtype)
        source = ctypes.c_uint64(self._like.ctypes.data)
        library().call("cuMemcpyDtoH_v2", found.ctypes.data_as(ctypes.c_void_p), source, ctypes.c_size_t(found.nbytes))
        return found


class _Described:
    """Memory as NumPy is told of it, which never touches its elements."""

    def __init__(self, address: int, shape: tuple[int, ...], dtype: np.dtype) -> None:
        self.__array_interface__ = {"data": (address, False), "shape": shape, "typestr": dtype.str, "version": 3}


def empty(shape: tuple[int, ...], dtype: Any) -> Array:
    """Return a new array of the device; polyker calls it for results, by the arrays' `__array_namespace__`."""
    kind = np.dtype(dtype)
    memory = _Memory(prod(shape) * kind.itemsize)
    return Array(memory, np.asarray(_Described(memory.address, tuple(shape), kind)))


def array(values: np.ndarray) -> Array:
    """Return a copy on the device."""
    dense = np.ascontiguousarray(values)
    found = empty(values.shape, values.dtype)
    target = ctypes.c_uint64(found._memory.address)
    library().call("cuMemcpyHtoD_v2", target, dense.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(dense.nbytes))
    return found


def smi(field: str) -> str:
    """Return what nvidia-smi says of the first device, '' without it."""
    command = ["nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.splitlines()[0].strip() if done.returncode == 0 and done.stdout.strip() else ""
