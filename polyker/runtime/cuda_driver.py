"""CUDA's driver behind one small interface: through pycuda where it is installed, else through libcuda itself.

The device's primary context is used, which torch and CuPy share. Addresses are integers, sizes bytes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any, Protocol

from polyker.errors.base import failure
from polyker.errors.calls import NO_TARGET
from polyker.errors.codegen import CUDA_FAILED

_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR


class Driver(Protocol):
    """What the run time asks of CUDA. Every method raises BackendUnavailable or InternalError where CUDA reports an error."""

    def arch(self) -> str:
        """Return the device's architecture, such as `sm_90`."""
        ...

    def load(self, image: bytes, names: Sequence[str]) -> dict[str, Any]:
        """Return the kernels of a cubin by name."""
        ...

    def allocate(self, size: int) -> int:
        """Return the address of new device memory."""
        ...

    def free(self, address: int) -> None:
        """Give device memory back."""
        ...

    def clear(self, address: int, size: int) -> None:
        """Set device memory to zero bytes."""
        ...

    def copy_in(self, address: int, host: int, size: int) -> None:
        """Copy from the host's memory to the device's."""
        ...

    def copy_out(self, host: int, address: int, size: int) -> None:
        """Copy from the device's memory to the host's, after what was launched before."""
        ...

    def copy_device(self, target: int, source: int, size: int) -> None:
        """Copy within the device's memory."""
        ...

    def launch(
        self, kernel: Any, name: str, grid: tuple[int, int, int], block: tuple[int, int, int], arguments: Sequence[Any]
    ) -> None:
        """Launch a kernel on arguments of ctypes' types; `name` is for errors."""
        ...


class LibCuda:
    """The driver's own library by ctypes."""

    def __init__(self, library: Any) -> None:
        self._cu = library
        self._call("cuInit", 0)
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self._call("cuDeviceGet", ctypes.byref(device), 0)
        self._device = device
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._context = context

    def _call(self, function: str, *arguments: Any, name: str = "") -> None:
        status = getattr(self._cu, function)(*arguments)
        if status:
            text = ctypes.c_char_p()
            self._cu.cuGetErrorString(status, ctypes.byref(text))
            reason = text.value.decode() if text.value else f"error {status}"
            raise failure(CUDA_FAILED, function=f"{function}({name})", reason=reason)

    def _in_context(self) -> None:
        # The context belongs to a thread of the host's: calls may come from any.
        self._call("cuCtxSetCurrent", self._context)

    def arch(self) -> str:
        """Return the device's architecture."""
        found = []
        for attribute in (_MAJOR, _MINOR):
            number = ctypes.c_int()
            self._call("cuDeviceGetAttribute", ctypes.byref(number), attribute, self._device)
            found.append(number.value)
        return f"sm_{found[0]}{found[1]}"

    def load(self, image: bytes, names: Sequence[str]) -> dict[str, Any]:
        """Return the kernels of a cubin by name."""
        self._in_context()
        module = ctypes.c_void_p()
        self._call("cuModuleLoadData", ctypes.byref(module), image)
        found = {}
        for name in names:
            function = ctypes.c_void_p()
            self._call("cuModuleGetFunction", ctypes.byref(function), module, name.encode(), name=name)
            found[name] = function
        return found

    def allocate(self, size: int) -> int:
        """Return the address of new device memory."""
        self._in_context()
        address = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        return address.value

    def free(self, address: int) -> None:
        """Give device memory back."""
        self._in_context()
        self._call("cuMemFree_v2", ctypes.c_uint64(address))

    def clear(self, address: int, size: int) -> None:
        """Set device memory to zero bytes."""
        self._in_context()
        self._call("cuMemsetD8_v2", ctypes.c_uint64(address), ctypes.c_ubyte(0), ctypes.c_size_t(size))

    def copy_in(self, address: int, host: int, size: int) -> None:
        """Copy from the host's memory to the device's."""
        self._in_context()
        self._call("cuMemcpyHtoD_v2", ctypes.c_uint64(address), ctypes.c_void_p(host), ctypes.c_size_t(size))

    def copy_out(self, host: int, address: int, size: int) -> None:
        """Copy from the device's memory to the host's."""
        self._in_context()
        self._call("cuMemcpyDtoH_v2", ctypes.c_void_p(host), ctypes.c_uint64(address), ctypes.c_size_t(size))

    def copy_device(self, target: int, source: int, size: int) -> None:
        """Copy within the device's memory."""
        self._in_context()
        self._call("cuMemcpyDtoD_v2", ctypes.c_uint64(target), ctypes.c_uint64(source), ctypes.c_size_t(size))

    def launch(
        self, kernel: Any, name: str, grid: tuple[int, int, int], block: tuple[int, int, int], arguments: Sequence[Any]
    ) -> None:
        """Launch a kernel."""
        self._in_context()
        places = (ctypes.c_void_p * max(1, len(arguments)))(*(ctypes.addressof(a) for a in arguments))
        self._call("cuLaunchKernel", kernel, *grid, *block, 0, None, places, None, name=name)


class PyCuda:
    """The driver through pycuda."""

    def __init__(self, driver: Any) -> None:
        self._d = driver
        driver.init()
        self._device = driver.Device(0)
        self._context = self._device.retain_primary_context()
        self._held: dict[int, Any] = {}

    def _done(self, function: str, work: Any) -> Any:
        self._context.push()
        try:
            return work()
        except self._d.Error as error:
            raise failure(CUDA_FAILED, function=function, reason=error) from error
        finally:
            self._context.pop()

    def arch(self) -> str:
        """Return the device's architecture."""
        return "sm_{}{}".format(*self._device.compute_capability())

    def load(self, image: bytes, names: Sequence[str]) -> dict[str, Any]:
        """Return the kernels of a cubin by name."""
        module = self._done("module_from_buffer", lambda: self._d.module_from_buffer(image))
        return {name: self._done(name, lambda name=name: module.get_function(name)) for name in names}

    def allocate(self, size: int) -> int:
        """Return the address of new device memory."""
        memory = self._done("mem_alloc", lambda: self._d.mem_alloc(size))
        self._held[int(memory)] = memory
        return int(memory)

    def free(self, address: int) -> None:
        """Give device memory back."""
        memory = self._held.pop(address)
        self._done("free", memory.free)

    def clear(self, address: int, size: int) -> None:
        """Set device memory to zero bytes."""
        self._done("memset_d8", lambda: self._d.memset_d8(address, 0, size))

    def copy_in(self, address: int, host: int, size: int) -> None:
        """Copy from the host's memory to the device's."""
        self._done("memcpy_htod", lambda: self._d.memcpy_htod(address, _bytes_at(host, size)))

    def copy_out(self, host: int, address: int, size: int) -> None:
        """Copy from the device's memory to the host's."""
        self._done("memcpy_dtoh", lambda: self._d.memcpy_dtoh(_bytes_at(host, size), address))

    def copy_device(self, target: int, source: int, size: int) -> None:
        """Copy within the device's memory."""
        self._done("memcpy_dtod", lambda: self._d.memcpy_dtod(target, source, size))

    def launch(
        self, kernel: Any, name: str, grid: tuple[int, int, int], block: tuple[int, int, int], arguments: Sequence[Any]
    ) -> None:
        """Launch a kernel."""
        import numpy as np

        values = [np.int64(a.value) if isinstance(a, ctypes.c_int64) else np.uint64(a.value or 0) for a in arguments]
        self._done(name, lambda: kernel(*values, grid=grid, block=block))


def _bytes_at(address: int, size: int) -> Any:
    return (ctypes.c_char * size).from_address(address)


@cache
def _found() -> tuple[Driver | None, str]:
    """Return the driver, or None and why there is none."""
    reasons = []
    try:
        import pycuda.driver

        return PyCuda(pycuda.driver), ""
    except Exception as error:  # pycuda raises its own errors, and ImportError without a driver
        reasons.append(f"pycuda: {error}")
    try:
        return LibCuda(ctypes.CDLL("libcuda.so.1")), ""
    except Exception as error:
        reasons.append(f"libcuda: {error}")
    return None, "; ".join(reasons)


def why_not() -> str:
    """Return why no CUDA device can be used, '' where one can."""
    return _found()[1]


def driver() -> Driver:
    """Return the driver; raises BackendUnavailable with the reason where there is none."""
    found, reason = _found()
    if found is None:
        raise failure(NO_TARGET, target="cuda", reason=reason)
    return found
