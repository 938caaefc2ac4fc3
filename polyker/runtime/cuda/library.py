"""CUDA's driver library (libcuda) by ctypes: the functions that are called, and what their status codes say."""

from __future__ import annotations

import ctypes
from typing import Any

# The functions with the types of their arguments: p a pointer or a handle, i and u 32 bits, b 8 bits, s a size, a an address.
_SIGNATURES = {
    "cuInit": "u",
    "cuDeviceGetCount": "p",
    "cuDeviceGet": "pi",
    "cuDeviceGetAttribute": "pii",
    "cuDevicePrimaryCtxRetain": "pi",
    "cuCtxGetCurrent": "p",
    "cuCtxGetDevice": "p",
    "cuCtxPushCurrent_v2": "p",
    "cuCtxPopCurrent_v2": "p",
    "cuCtxSynchronize": "",
    "cuCtxGetId": "pp",
    "cuPointerGetAttribute": "pia",
    "cuModuleLoadData": "pp",
    "cuModuleUnload": "p",
    "cuModuleGetFunction": "ppp",
    "cuFuncSetAttribute": "pii",
    "cuMemAlloc_v2": "ps",
    "cuMemFree_v2": "a",
    "cuMemPoolCreate": "pp",
    "cuMemPoolSetAttribute": "pip",
    "cuMemPoolTrimTo": "ps",
    "cuMemAllocFromPoolAsync": "pspp",
    "cuMemFreeAsync": "ap",
    "cuMemHostAlloc": "psu",
    "cuMemHostGetDevicePointer_v2": "ppu",
    "cuMemsetD8Async": "absp",
    "cuMemsetD32Async": "ausp",
    "cuMemcpyHtoDAsync_v2": "apsp",
    "cuMemcpyDtoHAsync_v2": "pasp",
    "cuMemcpyDtoDAsync_v2": "aasp",
    "cuEventCreate": "pu",
    "cuEventRecord": "pp",
    "cuEventDestroy_v2": "p",
    "cuStreamWaitEvent": "ppu",
    "cuStreamSynchronize": "p",
    "cuStreamIsCapturing": "pp",
    "cuThreadExchangeStreamCaptureMode": "p",
    "cuLaunchKernel": "puuuuuuuppp",
    "cuGetErrorString": "ip",
}
_TYPES = {
    "p": ctypes.c_void_p, "i": ctypes.c_int, "u": ctypes.c_uint, "b": ctypes.c_ubyte, "s": ctypes.c_size_t, "a": ctypes.c_uint64,
}  # fmt: skip

# Errors after which a context stays unusable, whatever is called (CUDA driver API, CUresult): an ECC error, an illegal address, a
# launch that took too long, a failed assertion, a stack error, an illegal instruction, a misaligned address, an address of the
# wrong space, an invalid program counter, any other failed launch.
STICKY = frozenset((214, 700, 702, 710, 714, 715, 716, 717, 718, 719))
OUT_OF_MEMORY, NO_BINARY = 2, 209  # CUDA_ERROR_OUT_OF_MEMORY and _NO_BINARY_FOR_GPU


class DriverLibrary:
    """The library's functions by name, each of which returns a status."""

    def __init__(self, library: Any) -> None:
        for name, signature in _SIGNATURES.items():
            try:
                function = getattr(library, name)
            except AttributeError:  # a driver from before it: whoever needs it asks whether it is there
                continue
            function.argtypes = tuple(_TYPES[letter] for letter in signature)
            function.restype = ctypes.c_int
            setattr(self, name, function)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"this driver has no {name}")

    def reason(self, status: int) -> str:
        """Return what a status says."""
        text = ctypes.c_char_p()
        self.cuGetErrorString(status, ctypes.byref(text))
        return text.value.decode() if text.value else f"error {status}"
