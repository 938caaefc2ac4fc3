"""The CUDA devices of this machine, and their contexts.

Arrays of torch, CuPy, Numba and JAX lie in the primary contexts of their devices. PyCUDA makes contexts of its own: with an array
that lies in one, or a call with arrays of the host while one is current, kernels run there.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from ctypes import byref, c_int, c_uint64, c_void_p
from typing import Any

from polyker.errors.base import failure
from polyker.errors.calls import NO_TARGET
from polyker.errors.codegen import CUDA_FAILED, NO_DEVICE
from polyker.process.jobs import once
from polyker.runtime.cuda.context import CudaContext
from polyker.runtime.cuda.device import Device, Driver
from polyker.runtime.cuda.library import DriverLibrary

_POINTER_CONTEXT, _POINTER_DEVICE = 1, 9  # CU_POINTER_ATTRIBUTE_CONTEXT and _DEVICE_ORDINAL


class LibCuda:
    """The devices by the driver's own library."""

    def __init__(self, library: Any) -> None:
        self.library = DriverLibrary(library)
        self._check("cuInit", self.library.cuInit(0))
        count = c_int()
        self._check("cuDeviceGetCount", self.library.cuDeviceGetCount(byref(count)))
        self._count = count.value
        self.primary: dict[int, CudaContext] = {}
        self._contexts: dict[tuple[int, int], CudaContext] = {}
        if not self._count:
            raise failure(CUDA_FAILED, function="cuDeviceGetCount()", reason="no device")

    def _check(self, function: str, status: int) -> None:
        if status:
            raise failure(CUDA_FAILED, function=f"{function}()", reason=self.library.reason(status))

    def count(self) -> int:
        """Return how many devices there are."""
        return self._count

    def device(self, number: int | None = None) -> CudaContext:
        """Return a device in its primary context; None: the calling thread's current context, else device 0's."""
        if number is None:
            current = c_void_p()
            self.library.cuCtxGetCurrent(byref(current))
            return self._of_handle(current.value) if current.value else self.device(0)
        found = self.primary.get(number)
        if found is None:
            if not 0 <= number < self._count:
                raise failure(NO_DEVICE, device=number, count=self._count)
            device, handle = c_int(), c_void_p()
            self._check("cuDeviceGet", self.library.cuDeviceGet(byref(device), number))
            self._check("cuDevicePrimaryCtxRetain", self.library.cuDevicePrimaryCtxRetain(byref(handle), device))
            # Another thread may have come first: nobody waits for a lock, which a fork may leave taken.
            found = self.primary.setdefault(number, CudaContext(self.library, number, handle.value or 0))
        return found

    def _of_handle(self, handle: int) -> CudaContext:
        """Return the context that has a handle, which a later context may have, too, when this one is gone."""
        for found in self.primary.values():
            if found.is_of(handle):
                return found
        return self._contexts.get((handle, self._identity(handle))) or self._known(handle)

    def _identity(self, handle: int) -> int:
        identity = c_uint64()
        ask = getattr(self.library, "cuCtxGetId", None)  # from CUDA 12 on
        return 0 if ask is None or ask(handle, byref(identity)) else identity.value

    def _known(self, handle: int) -> CudaContext:
        number, previous = c_int(), c_void_p()
        self._check("cuCtxPushCurrent", self.library.cuCtxPushCurrent_v2(handle))
        try:
            self._check("cuCtxGetDevice", self.library.cuCtxGetDevice(byref(number)))
        finally:
            self.library.cuCtxPopCurrent_v2(byref(previous))
        primary = self.device(number.value)
        if primary.is_of(handle):
            return primary
        return self._contexts.setdefault(
            (handle, self._identity(handle)), CudaContext(self.library, number.value, handle)
        )

    def device_of(self, address: int) -> CudaContext:
        """Return the device, and of its contexts the one, in whose memory an address lies."""
        handle, number = c_void_p(), c_int(-1)
        if (
            address
            and not self.library.cuPointerGetAttribute(byref(handle), _POINTER_CONTEXT, address)
            and handle.value
        ):
            return self._of_handle(handle.value)
        # Memory of a pool belongs to a device, not to a context.
        if (
            address
            and not self.library.cuPointerGetAttribute(byref(number), _POINTER_DEVICE, address)
            and number.value >= 0
        ):
            return self.device(number.value)
        return self.device()

    def has_several(self) -> bool:
        """Return whether arrays may lie in more than one context."""
        return self._count > 1 or len(self.primary) + len(self._contexts) > 1

    def devices(self) -> Iterator[Device]:
        """Yield the devices, in each context, that calls were made on."""
        yield from list(self.primary.values())
        yield from list(self._contexts.values())


in_use: list[Driver] = []  # one at most, when it was asked for


@once
def found_driver() -> tuple[Driver | None, str]:
    """Return the driver, or None and why there is none."""
    reasons = []
    for name in ("libcuda.so.1", "nvcuda.dll"):
        try:
            in_use.append(LibCuda(ctypes.CDLL(name)))
            return in_use[0], ""
        except Exception as error:  # no library, or one that finds no device
            reasons.append(str(error))
    return None, "; ".join(reasons)


def why_not() -> str:
    """Return why no CUDA device can be used, '' where one can."""
    return found_driver()[1]


def driver() -> Driver:
    """Return the driver; raises BackendUnavailable with the reason where there is none."""
    found, reason = found_driver()
    if found is None:
        raise failure(NO_TARGET, target="cuda", reason=reason)
    return found


def release_device_memory() -> None:
    """Give back the device memory that is kept between calls, and unload what nobody uses any more."""
    for found in in_use:
        for device in found.devices():
            device.release()
