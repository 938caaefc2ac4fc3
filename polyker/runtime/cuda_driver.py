"""CUDA's driver behind one small interface: through pycuda where it is installed, else through libcuda itself.

The device's primary context is used, which torch, CuPy and Numba share. Addresses and streams are integers, sizes bytes; the
stream 0 is the default one. Copies and launches are queued on a stream; only `synchronize` and `free` wait.
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Sequence
from typing import Any, Protocol

from polyker.errors.base import failure
from polyker.errors.calls import NO_TARGET
from polyker.errors.codegen import CUDA_FAILED, LAUNCH_FAILED
from polyker.process.jobs import once

_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR
_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_NO_TIMING = 2  # CU_EVENT_DISABLE_TIMING


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
        """Give device memory back, when the device has done what was queued."""
        ...

    def pinned(self, size: int) -> int:
        """Return the address of new memory of the host that the device copies to while the host goes on; it is never freed."""
        ...

    def clear(self, address: int, size: int, stream: int) -> None:
        """Set device memory to zero bytes."""
        ...

    def copy_in(self, address: int, host: int, size: int, stream: int) -> None:
        """Copy from the host's memory, which may change as soon as this returns unless it is pinned, to the device's."""
        ...

    def copy_out(self, host: int, address: int, size: int, stream: int) -> None:
        """Copy from the device's memory to the host's; it is there when the stream is synchronised."""
        ...

    def copy_device(self, target: int, source: int, size: int, stream: int) -> None:
        """Copy within the device's memory."""
        ...

    def launch(
        self,
        kernel: Any,
        name: str,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        arguments: Sequence[Any],
        stream: int,
        shared: int = 0,
    ) -> None:
        """Launch a kernel on arguments of ctypes' types; `name` is for errors, `shared` the bytes of shared memory asked for."""
        ...

    def follow(self, stream: int, earlier: int) -> None:
        """Let what is queued on a stream from now on wait for what was queued on another one."""
        ...

    def synchronize(self, stream: int, names: str) -> None:
        """Wait for all that was queued on a stream; `names`: of the kernels launched on it, for errors."""
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

    def _status(self, function: str, *arguments: Any) -> str:
        """Return what CUDA says is wrong, '' where nothing is."""
        status = getattr(self._cu, function)(*arguments)
        if not status:
            return ""
        text = ctypes.c_char_p()
        self._cu.cuGetErrorString(status, ctypes.byref(text))
        return text.value.decode() if text.value else f"error {status}"

    def _call(self, function: str, *arguments: Any, name: str = "") -> None:
        reason = self._status(function, *arguments)
        if reason:
            raise failure(CUDA_FAILED, function=f"{function}({name})", reason=reason)

    def _queue(self, function: str, *arguments: Any, name: str = "") -> None:
        # The context belongs to a thread of the host's: calls may come from any.
        self._call("cuCtxSetCurrent", self._context)
        self._call(function, *arguments, name=name)

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
        module = ctypes.c_void_p()
        self._queue("cuModuleLoadData", ctypes.byref(module), image)
        found = {}
        for name in names:
            function = ctypes.c_void_p()
            self._call("cuModuleGetFunction", ctypes.byref(function), module, name.encode(), name=name)
            found[name] = function
        return found

    def allocate(self, size: int) -> int:
        """Return the address of new device memory."""
        address = ctypes.c_uint64()
        self._queue("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size), name=f"{size} bytes")
        return address.value

    def free(self, address: int) -> None:
        """Give device memory back."""
        self._queue("cuMemFree_v2", ctypes.c_uint64(address))

    def pinned(self, size: int) -> int:
        """Return the address of new memory of the host that the device can copy to by itself."""
        address = ctypes.c_void_p()
        self._queue("cuMemAllocHost_v2", ctypes.byref(address), ctypes.c_size_t(size))
        return address.value or 0

    def clear(self, address: int, size: int, stream: int) -> None:
        """Set device memory to zero bytes."""
        where = ctypes.c_uint64(address)
        self._queue("cuMemsetD8Async", where, ctypes.c_ubyte(0), ctypes.c_size_t(size), ctypes.c_void_p(stream))

    def copy_in(self, address: int, host: int, size: int, stream: int) -> None:
        """Copy from the host's memory to the device's."""
        where, source = ctypes.c_uint64(address), ctypes.c_void_p(host)
        self._queue("cuMemcpyHtoDAsync_v2", where, source, ctypes.c_size_t(size), ctypes.c_void_p(stream))

    def copy_out(self, host: int, address: int, size: int, stream: int) -> None:
        """Copy from the device's memory to the host's."""
        where, source = ctypes.c_void_p(host), ctypes.c_uint64(address)
        self._queue("cuMemcpyDtoHAsync_v2", where, source, ctypes.c_size_t(size), ctypes.c_void_p(stream))

    def copy_device(self, target: int, source: int, size: int, stream: int) -> None:
        """Copy within the device's memory."""
        where, start = ctypes.c_uint64(target), ctypes.c_uint64(source)
        self._queue("cuMemcpyDtoDAsync_v2", where, start, ctypes.c_size_t(size), ctypes.c_void_p(stream))

    def launch(
        self,
        kernel: Any,
        name: str,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        arguments: Sequence[Any],
        stream: int,
        shared: int = 0,
    ) -> None:
        """Launch a kernel."""
        self._call("cuCtxSetCurrent", self._context)
        places = (ctypes.c_void_p * max(1, len(arguments)))(*(ctypes.addressof(a) for a in arguments))
        reason = self._status("cuFuncSetAttribute", kernel, _SHARED, ctypes.c_int(shared)) if shared else ""
        reason = reason or self._status(
            "cuLaunchKernel", kernel, *grid, *block, shared, ctypes.c_void_p(stream), places, None
        )
        if reason:
            raise failure(LAUNCH_FAILED, kernel=name, grid=grid, block=block, reason=reason)

    def follow(self, stream: int, earlier: int) -> None:
        """Let a stream wait for what was queued on another one."""
        event = ctypes.c_void_p()
        self._queue("cuEventCreate", ctypes.byref(event), _NO_TIMING)
        try:
            self._call("cuEventRecord", event, ctypes.c_void_p(earlier))
            self._call("cuStreamWaitEvent", ctypes.c_void_p(stream), event, 0)
        finally:
            self._call("cuEventDestroy_v2", event)  # it lives until both streams have passed it

    def synchronize(self, stream: int, names: str) -> None:
        """Wait for all that was queued on a stream."""
        self._queue("cuStreamSynchronize", ctypes.c_void_p(stream), name=f"after {names}" if names else "")


@once
def _found() -> tuple[Driver | None, str]:
    """Return the driver, or None and why there is none."""
    reasons = []
    for name in ("libcuda.so.1", "nvcuda.dll"):
        try:
            return _with_pycuda(LibCuda(ctypes.CDLL(name))), ""
        except Exception as error:  # no library, or one that finds no device
            reasons.append(str(error))
    return None, "; ".join(reasons)


def _with_pycuda(library: LibCuda) -> Driver:
    """Return the driver through pycuda where that works here, else the library itself."""
    try:
        import pycuda.driver

        from polyker.runtime.pycuda_driver import PyCuda

        return PyCuda(pycuda.driver, library)
    except Exception as error:  # not installed, or built for another CUDA: pycuda raises its own errors
        logging.getLogger("polyker").info("libcuda is called without pycuda: %s", error)
        return library


def why_not() -> str:
    """Return why no CUDA device can be used, '' where one can."""
    return _found()[1]


def driver() -> Driver:
    """Return the driver; raises BackendUnavailable with the reason where there is none."""
    found, reason = _found()
    if found is None:
        raise failure(NO_TARGET, target="cuda", reason=reason)
    return found
