"""Calls of the driver's functions from tests: numbers are passed in 64 bits, errors are raised."""

from __future__ import annotations

import ctypes
from typing import Any

from tests.gpu.stub.control import Stub

IMAGE = b"""PKSTUB arch=90
kernel add params=8,8,4 shared=0 maxthreads=256 regs=32
kernel none params= shared=1024 maxthreads=1024 regs=16
kernel wide params=1,16,8 regs=128
"""


class CudaError(Exception):
    """A status other than 0."""

    def __init__(self, function: str, status: int) -> None:
        super().__init__(f"{function}: {status}")
        self.status = status


WORD = ctypes.c_uint64
# What functions store by their first argument, and by their last.
RESULTS = {
    "DriverGetVersion": ctypes.c_int, "DeviceGetCount": ctypes.c_int, "DeviceGet": ctypes.c_int,
    "DeviceGetAttribute": ctypes.c_int, "DeviceTotalMem_v2": WORD, "DevicePrimaryCtxRetain": WORD, "CtxCreate_v2": WORD,
    "CtxGetCurrent": WORD, "CtxPopCurrent_v2": WORD, "CtxGetDevice": ctypes.c_int, "ModuleLoadData": WORD,
    "ModuleGetFunction": WORD, "FuncGetAttribute": ctypes.c_int, "MemAlloc_v2": WORD, "MemAllocHost_v2": WORD,
    "MemHostAlloc": WORD, "MemHostGetDevicePointer_v2": WORD, "DeviceGetDefaultMemPool": WORD, "MemAllocAsync": WORD,
    "MemAllocFromPoolAsync": WORD, "StreamCreate": WORD, "EventCreate": WORD, "GraphInstantiateWithFlags": WORD,
    "EventElapsedTime": ctypes.c_float,
}  # fmt: skip
LAST = {"StreamIsCapturing": ctypes.c_int, "StreamEndCapture": WORD, "StreamGetCtx": WORD}


class Cuda:
    """A stub's functions by name, without `cu`: `cuda.MemAlloc_v2(size)` returns what it stores, or raises CudaError."""

    def __init__(self, stub: Stub, start: bool = True) -> None:
        self.stub = stub
        if start:
            self.Init(0)
            self.context = self.DevicePrimaryCtxRetain(0)
            self.CtxSetCurrent(self.context)

    def status(self, name: str, *arguments: Any) -> int:
        """Return the status of a call."""
        wide = [ctypes.c_uint64(a & (1 << 64) - 1) if isinstance(a, int) else a for a in arguments]
        return getattr(self.stub.cuda, f"cu{name}")(*wide)

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> Any:
            first, last = RESULTS.get(name), LAST.get(name)
            found = (first or last or ctypes.c_int)()
            given = [ctypes.byref(found)] * bool(first) + [*arguments] + [ctypes.byref(found)] * bool(last)
            status = self.status(name, *given)
            if status:
                raise CudaError(name, status)
            return found.value if first or last else None

        return call

    def function(self, name: str = "add", image: bytes = IMAGE) -> int:
        """Return a function of a module that is loaded for it."""
        return self.ModuleGetFunction(self.ModuleLoadData(image), name.encode())

    def launch_status(self, function: int, *values: Any, grid=(1, 1, 1), block=(32, 1, 1), shared=0, stream=0) -> int:
        """Launch on values, integers of 8 bytes or ctypes' numbers; return the status."""
        held = [ctypes.c_uint64(v) if isinstance(v, int) else v for v in values]
        places = (ctypes.c_void_p * max(1, len(held)))(*map(ctypes.addressof, held))
        return self.status("LaunchKernel", function, *grid, *block, shared, stream, places, None)

    def launch(self, function: int, *values: Any, **how: Any) -> None:
        """Launch; an error is raised."""
        if status := self.launch_status(function, *values, **how):
            raise CudaError("LaunchKernel", status)


def bytes_at(address: int, size: int) -> bytes:
    """Return what lies in memory, the device's or the host's."""
    return ctypes.string_at(address, size)
