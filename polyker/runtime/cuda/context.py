"""One context of a CUDA device: its modules and memory, and what is queued on its streams.

Addresses and streams are integers, sizes bytes; the stream 0 is the default one. Copies, launches, and taking and giving back
memory are queued on a stream in its order; only `synchronize` waits.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from ctypes import byref, c_int, c_uint64, c_void_p
from typing import Any

from polyker.errors.base import PolykerError, failure
from polyker.errors.codegen import CUDA_FAILED, DEVICE_LOST, LAUNCH_FAILED, OTHER_ARCH
from polyker.machine.device import ATTRIBUTES
from polyker.runtime.cuda.device import DeviceFunction, Flag, Module, QueuedWork
from polyker.runtime.cuda.library import NO_BINARY, OUT_OF_MEMORY, STICKY, DriverLibrary

POOL_BYTES = 1 << 30  # bytes of free memory that the pool keeps for later calls when the device is waited for (chosen)
_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_NO_TIMING = 2  # CU_EVENT_DISABLE_TIMING
_RELEASE_THRESHOLD = 4  # CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
_POOLS_SUPPORTED = 115  # CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED
_RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED
_PORTABLE_MAPPED = 3  # CU_MEMHOSTALLOC_PORTABLE and _DEVICEMAP
_PAGE = 4096  # bytes of flags that are allocated at a time (chosen)
_GONE = (400, 709)  # CUDA_ERROR_INVALID_HANDLE and _CONTEXT_IS_DESTROYED
_PER_THREAD = 2  # CU_STREAM_PER_THREAD
_MAX_NAMED_KERNELS = 8  # kernels that an error names, the last to be queued (chosen)
_MAX_PENDING_KERNELS = 256  # kernels that are known not to have been waited for (chosen)

_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR


class _Location(ctypes.Structure):
    _fields_ = [("type", c_int), ("id", c_int)]


class _PoolProperties(ctypes.Structure):
    """CUmemPoolProps."""

    _fields_ = [
        ("allocation", c_int),
        ("handles", c_int),
        ("location", _Location),
        ("security", c_void_p),
        ("most", ctypes.c_size_t),
        ("usage", ctypes.c_ushort),
        ("reserved", ctypes.c_ubyte * 54),
    ]


class CudaContext:
    """A context through the driver's library; `number`: of its device."""

    def __init__(self, library: DriverLibrary, number: int, handle: int) -> None:
        self.number, self._handle = number, handle
        self._cu, self._launch, self._current = library, library.cuLaunchKernel, library.cuCtxGetCurrent
        self._unfinished: dict[tuple[str, int], None] = {}  # kernels and their streams, not known to be done
        self._lost = ""  # whose error made the context unusable
        self._dropped: list[tuple[Module, Flag | None, QueuedWork]] = []
        self._flags: list[Flag] = []
        self._pool: c_void_p | None = None
        if self.attribute(_POOLS_SUPPORTED):
            pool, threshold = c_void_p(), c_uint64(POOL_BYTES)
            properties = _PoolProperties(allocation=1, location=_Location(1, number))  # pinned memory of that device
            with self._relaxed():
                self._call("cuMemPoolCreate", byref(pool), byref(properties))
            self._call("cuMemPoolSetAttribute", pool, _RELEASE_THRESHOLD, byref(threshold))
            self._pool = pool

    def is_of(self, handle: int) -> bool:
        """Return whether it is the context of a handle."""
        return handle == self._handle

    def is_current(self) -> bool:
        """Return whether it is the calling thread's current context."""
        current = c_void_p()
        self._current(byref(current))
        return current.value == self._handle

    def enter(self) -> bool:
        """Make it the calling thread's current context; return whether `leave` has to undo that."""
        if self.is_current():
            return False
        status = self._cu.cuCtxPushCurrent_v2(self._handle)
        if status:
            raise self._failure("cuCtxPushCurrent", status)
        return True

    def leave(self) -> None:
        """Make the context current again that was so before `enter`."""
        self._cu.cuCtxPopCurrent_v2(byref(c_void_p()))

    def status(self, function: Callable[..., int], *arguments: Any) -> int:
        """Call a function in this context; the caller's thread keeps its own."""
        entered = self.enter()
        try:
            return function(*arguments)
        finally:
            if entered:
                self.leave()

    def _call(self, function: str, *arguments: Any, about: object = "") -> None:
        status = self.status(getattr(self._cu, function), *arguments)
        if status:
            raise self._failure(function, status, about)

    def _failure(self, function: str, status: int, about: object = "") -> PolykerError:
        """Return the error of a function that was called about something."""
        place, reason = f"{function}({about})", self._cu.reason(status)
        if status not in STICKY and not self._lost:
            return failure(CUDA_FAILED, function=place, reason=reason)
        if not self._lost:
            names = list(dict.fromkeys(name for name, _ in reversed(list(self._unfinished))))
            more = f" and {len(names) - _MAX_NAMED_KERNELS} before them" if len(names) > _MAX_NAMED_KERNELS else ""
            self._lost = (
                f"it is the error of one of {', '.join(names[:_MAX_NAMED_KERNELS])}{more}, or of another library's work"
                if names
                else "it is the error of another library's work: all kernels of polyker's are done"
            )
        return failure(DEVICE_LOST, device=self.number, function=place, reason=reason, whose=self._lost)

    @contextmanager
    def _relaxed(self) -> Iterator[None]:
        """Let this thread allocate and load while another one captures a graph; neither becomes part of it."""
        mode = c_int(_RELAXED)
        self._cu.cuThreadExchangeStreamCaptureMode(byref(mode))
        try:
            yield
        finally:
            self._cu.cuThreadExchangeStreamCaptureMode(byref(mode))

    def attribute(self, number: int) -> int:
        """Return an attribute of the device, 0 where it has not this one."""
        found = c_int()
        status = self._cu.cuDeviceGetAttribute(byref(found), number, self.number)
        return 0 if status else found.value

    def arch(self) -> str:
        """Return the device's architecture, such as `sm_90`."""
        return f"sm_{self.attribute(_MAJOR)}{self.attribute(_MINOR)}"

    def attributes(self) -> Mapping[str, int]:
        """Return what the device says of its limits and rates, by CUDA's names."""
        return {name: self.attribute(number) for name, number in ATTRIBUTES.items()}

    def load(self, image: bytes, shared: Mapping[str, int], about: str) -> Module:
        """Return the kernels of a cubin by name, each with the bytes of shared memory that it asks for."""
        self._unload_dropped()
        handle = c_void_p()
        functions: dict[str, DeviceFunction] = {}
        with self._relaxed():
            status = self.status(self._cu.cuModuleLoadData, byref(handle), image)
            if status == NO_BINARY:
                raise failure(OTHER_ARCH, about=about, device=self.number, arch=self.arch())
            if status:
                raise self._failure("cuModuleLoadData", status, about)
            module = Module(handle.value or 0, functions)
            try:
                for name, size in shared.items():
                    function = c_void_p()
                    self._call("cuModuleGetFunction", byref(function), handle, name.encode(), about=name)
                    if size:
                        self._call("cuFuncSetAttribute", function, _SHARED, size, about=f"{name}, {size} bytes")
                    functions[name] = DeviceFunction(function.value or 0, f"{name} of {about}", size)
            except BaseException:
                self.status(self._cu.cuModuleUnload, handle)
                raise
        return module

    def drop(self, module: Module, flag: Flag | None, work: QueuedWork) -> None:
        """Let a module be unloaded, and its flag be another one's, at the next load: nothing waits here, where a collection of
        garbage may have come from anywhere."""
        self._dropped.append((module, flag, work))

    def _unload_dropped(self) -> None:
        if not self._dropped or self._lost:
            return
        found = []  # not what other threads drop from here on
        with suppress(IndexError):
            while True:
                found.append(self._dropped.pop())
        with self._relaxed():
            for module, flag, work in found:
                if not self._is_done(work):
                    self._dropped.append((module, flag, work))  # the next load tries again
                    continue
                self.status(self._cu.cuModuleUnload, module.handle)
                if flag is not None:
                    self._flags.append(flag)

    def _is_done(self, work: QueuedWork) -> bool:
        """Wait for the work of a module; return whether that could be done: not for streams that are being captured."""
        for stream, last in work.pending():
            capturing = c_int()
            if self.status(self._cu.cuStreamIsCapturing, stream, byref(capturing)) or capturing.value:
                return False
            if self._waited(stream):
                return False
            work.done(stream, last)
        return True

    def _waited(self, stream: int) -> int:
        """Wait for a stream; return the status."""
        status = self.status(self._cu.cuStreamSynchronize, stream)
        # Its owner has destroyed it, its work may not be done; or it is another stream in each thread.
        if status in _GONE or (stream == _PER_THREAD and not status):
            status = self.status(self._cu.cuCtxSynchronize)
        return status

    def flag(self) -> Flag:
        """Return 4 bytes of the host, 0, that kernels can write to."""
        if not self._flags:
            host, device = c_void_p(), c_uint64()
            with self._relaxed():
                self._call("cuMemHostAlloc", byref(host), _PAGE, _PORTABLE_MAPPED, about=f"{_PAGE} bytes")
                self._call("cuMemHostGetDevicePointer_v2", byref(device), host, 0)
            start = host.value or 0
            ctypes.memset(start, 0, _PAGE)
            self._flags += [Flag(start + n, device.value + n) for n in range(0, _PAGE, Flag.SIZE)]
        found = self._flags.pop()
        found.take()
        return found

    def allocate(self, size: int, stream: int) -> int:
        """Return the address of new memory for use on a stream; of a graph's own where the stream is being captured.

        For this, `free`, `launch` and `is_capturing` the context has to be entered: a call does so once.
        """
        address = c_uint64()
        for again in (True, False):
            if self._pool is None:
                status = self._cu.cuMemAlloc_v2(byref(address), size)
            else:
                status = self._cu.cuMemAllocFromPoolAsync(byref(address), size, self._pool, stream)
            if status != OUT_OF_MEMORY or not again:
                break
            self.status(self._cu.cuStreamSynchronize, stream)  # what was given back is free when its work is done
            self.trim()
        if status:
            raise self._failure("cuMemAllocFromPoolAsync" if self._pool else "cuMemAlloc", status, f"{size} bytes")
        return address.value

    def free(self, address: int, stream: int) -> None:
        """Give memory back when what was queued on the stream is done."""
        if self._pool is None:
            status, function = self._cu.cuMemFree_v2(address), "cuMemFree"
        else:
            status, function = self._cu.cuMemFreeAsync(address, stream), "cuMemFreeAsync"
        if status:
            raise self._failure(function, status)

    def trim(self) -> None:
        """Give the device the memory that is kept for later calls."""
        if self._pool is not None:
            self._call("cuMemPoolTrimTo", self._pool, 0)

    def release(self) -> None:
        """Unload what nobody uses any more, and give back the memory that is kept."""
        self._unload_dropped()
        with suppress(PolykerError):  # its owner may have destroyed the context
            self.trim()

    def copy_in(self, address: int, host: int, size: int, stream: int) -> None:
        """Copy from the host's memory to the device's; it may change as soon as this returns, unless it is pinned."""
        self._call("cuMemcpyHtoDAsync_v2", address, host, size, stream, about=f"{size} bytes")

    def write(self, address: int, data: bytes, stream: int) -> None:
        """Write a few bytes, which a graph that is being captured keeps."""
        for start in range(0, len(data) - len(data) % 4, 4):
            word = int.from_bytes(data[start : start + 4], sys.byteorder)
            self._call("cuMemsetD32Async", address + start, word, 1, stream)
        for start in range(len(data) - len(data) % 4, len(data)):
            self._call("cuMemsetD8Async", address + start, data[start], 1, stream)

    def copy_out(self, host: int, address: int, size: int, stream: int) -> None:
        """Copy from the device's memory to the host's; it is there when the stream is synchronised."""
        self._call("cuMemcpyDtoHAsync_v2", host, address, size, stream, about=f"{size} bytes")

    def copy_device(self, target: int, source: int, size: int, stream: int) -> None:
        """Copy within the device's memory."""
        self._call("cuMemcpyDtoDAsync_v2", target, source, size, stream, about=f"{size} bytes")

    def launch(
        self,
        function: DeviceFunction,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        places: Any,
        stream: int,
    ) -> None:
        """Launch a kernel on the arguments that an array of ctypes points to."""
        if self._lost:
            raise self._failure("cuLaunchKernel", 700, function.title)
        status = self._launch(function.handle, *grid, *block, function.shared, stream, places, None)
        if status:
            if status in STICKY:
                raise self._failure("cuLaunchKernel", status, function.title)
            reason = self._cu.reason(status)
            raise failure(LAUNCH_FAILED, kernel=function.title, grid=grid, block=block, reason=reason)
        self._unfinished[function.title, stream] = None
        if len(self._unfinished) > _MAX_PENDING_KERNELS:
            self._unfinished.pop(list(self._unfinished)[0], None)  # noqa: RUF015 - other threads add to it meanwhile

    def is_capturing(self, stream: int) -> bool:
        """Return whether what is queued on a stream becomes a graph; the default one's cannot."""
        found = c_int()
        return bool(stream) and not self.status(self._cu.cuStreamIsCapturing, stream, byref(found)) and found.value != 0

    def follow(self, stream: int, earlier: int) -> None:
        """Let what is queued on a stream from now on wait for what was queued on another one."""
        event = c_void_p()
        self._call("cuEventCreate", byref(event), _NO_TIMING)
        try:
            self._call("cuEventRecord", event, earlier)
            self._call("cuStreamWaitEvent", stream, event, 0)
        finally:
            self.status(self._cu.cuEventDestroy_v2, event)  # it lives until both streams have passed it

    def synchronize(self, stream: int) -> None:
        """Wait for all that was queued on a stream."""
        before = list(self._unfinished)
        status = self._waited(stream)
        if status:
            raise self._failure("cuStreamSynchronize", status)
        for key in before:
            if key[1] == stream:
                self._unfinished.pop(key, None)
