"""CUDA's driver through pycuda, where it is installed: modules, memory, and what is queued on the default stream.

pycuda takes no handle of a stream that another library made: what is queued on one goes to the driver's own library, in the same
context. A kernel is known to both, to the latter when it is first launched so.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from polyker.errors.base import failure
from polyker.errors.codegen import CUDA_FAILED, LAUNCH_FAILED
from polyker.runtime.cuda_driver import LibCuda

T = TypeVar("T")


@dataclass(eq=False)
class _Function:
    """A kernel of a cubin as pycuda knows it, and as the driver's own library does, None until it is asked for."""

    image: bytes
    name: str
    own: Any
    foreign: Any = None


class PyCuda:
    """The driver through pycuda's `pycuda.driver`; `library`: the same one, for the streams of others."""

    def __init__(self, driver: Any, library: LibCuda) -> None:
        self._d, self._library = driver, library
        driver.init()
        self._device = driver.Device(0)
        self._context = self._device.retain_primary_context()
        self._memory: dict[int, Any] = {}
        self._pinned: list[Any] = []

    def _done(self, function: str, work: Callable[[], T]) -> T:
        # The context belongs to a thread of the host's: calls may come from any.
        self._context.push()
        try:
            return work()
        except self._d.Error as error:
            raise failure(CUDA_FAILED, function=function, reason=error) from error
        finally:
            self._context.pop()

    def arch(self) -> str:
        """Return the device's architecture, such as `sm_90`."""
        major, minor = self._device.compute_capability()
        return f"sm_{major}{minor}"

    def load(self, image: bytes, names: Sequence[str]) -> dict[str, Any]:
        """Return the kernels of a cubin by name."""
        module = self._done("module_from_buffer", lambda: self._d.module_from_buffer(image))

        def function(name: str) -> _Function:
            return _Function(image, name, self._done(f"get_function({name})", lambda: module.get_function(name)))

        return {name: function(name) for name in names}

    def allocate(self, size: int) -> int:
        """Return the address of new device memory."""
        memory = self._done(f"mem_alloc({size} bytes)", lambda: self._d.mem_alloc(size))
        self._memory[int(memory)] = memory
        return int(memory)

    def free(self, address: int) -> None:
        """Give device memory back."""
        memory = self._memory.pop(address)
        self._done("free", memory.free)

    def pinned(self, size: int) -> int:
        """Return the address of new memory of the host that the device can copy to by itself."""
        memory = self._done("pagelocked_empty", lambda: self._d.pagelocked_empty(max(1, size), np.uint8))
        self._pinned.append(memory)
        return int(memory.ctypes.data)

    def clear(self, address: int, size: int, stream: int) -> None:
        """Set device memory to zero bytes."""
        if stream:
            self._library.clear(address, size, stream)
        else:
            self._done("memset_d8", lambda: self._d.memset_d8(address, 0, size))

    def copy_in(self, address: int, host: int, size: int, stream: int) -> None:
        """Copy from the host's memory to the device's."""
        if stream:
            self._library.copy_in(address, host, size, stream)
        else:
            self._done("memcpy_htod", lambda: self._d.memcpy_htod(address, _bytes_at(host, size)))

    def copy_out(self, host: int, address: int, size: int, stream: int) -> None:
        """Copy from the device's memory to the host's."""
        if stream:
            self._library.copy_out(host, address, size, stream)
        else:
            self._done("memcpy_dtoh", lambda: self._d.memcpy_dtoh(_bytes_at(host, size), address))

    def copy_device(self, target: int, source: int, size: int, stream: int) -> None:
        """Copy within the device's memory."""
        if stream:
            self._library.copy_device(target, source, size, stream)
        else:
            self._done("memcpy_dtod", lambda: self._d.memcpy_dtod(target, source, size))

    def launch(
        self,
        kernel: _Function,
        name: str,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        arguments: Sequence[Any],
        stream: int,
        shared: int = 0,
    ) -> None:
        """Launch a kernel; one that asks for shared memory by the driver's own library, which every version of can."""
        if stream or shared:
            if kernel.foreign is None:
                kernel.foreign = self._library.load(kernel.image, [kernel.name])[kernel.name]
            self._library.launch(kernel.foreign, name, grid, block, arguments, stream, shared)
            return
        values = [np.dtype(type(a)).type(a.value or 0) for a in arguments]
        self._context.push()
        try:
            kernel.own(*values, grid=grid, block=block)
        except self._d.Error as error:
            raise failure(LAUNCH_FAILED, kernel=name, grid=grid, block=block, reason=error) from error
        finally:
            self._context.pop()

    def follow(self, stream: int, earlier: int) -> None:
        """Let a stream wait for what was queued on another one."""
        self._library.follow(stream, earlier)

    def synchronize(self, stream: int, names: str) -> None:
        """Wait for all that was queued on a stream."""
        self._library.synchronize(stream, names)


def _bytes_at(address: int, size: int) -> Any:
    return (ctypes.c_char * size).from_address(address)
