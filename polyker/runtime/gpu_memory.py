"""Device memory that is kept between calls, and the flags by which kernels tell of a guard that did not hold."""

from __future__ import annotations

import ctypes
import threading
from collections import OrderedDict
from weakref import WeakKeyDictionary

from polyker.errors.base import PolykerError
from polyker.runtime.cuda_driver import Driver

KEPT = 1 << 30  # bytes that are kept for later calls, at most
_LEAST = 512
FLAG = 4  # bytes of a flag
_FLAGS = 1024  # that are allocated together


class DeviceMemory:
    """Blocks given back are kept by stream: what is queued on one stream is done in order, so nothing has to be waited for."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._lock = threading.Lock()
        self._free: OrderedDict[tuple[int, int], list[int]] = (
            OrderedDict()
        )  # by stream and size, the longest unused first
        self._kept = 0
        self._flags: list[tuple[int, int]] = []

    def take(self, size: int, stream: int) -> int:
        """Return the address of a block of at least so many bytes, for use on a stream."""
        key = stream, rounded(size)
        with self._lock:
            found = self._free.get(key)
            if found:
                self._kept -= key[1]
                return found.pop()
        try:
            return self._driver.allocate(key[1])
        except PolykerError:
            if not self._kept:
                raise
            self.clear()
            return self._driver.allocate(key[1])

    def give(self, address: int, size: int, stream: int) -> None:
        """Take a block back: later calls on the stream may have it, even if what is queued still uses it."""
        key = stream, rounded(size)
        with self._lock:
            self._free.setdefault(key, []).append(address)
            self._free.move_to_end(key)
            self._kept += key[1]
            excess = []
            while self._kept > KEPT:
                oldest, blocks = next(iter(self._free.items()))
                if blocks:
                    excess.append(blocks.pop())
                    self._kept -= oldest[1]
                else:
                    del self._free[oldest]
        for block in excess:
            self._driver.free(block)

    def clear(self) -> None:
        """Free what is kept."""
        with self._lock:
            blocks = [block for found in self._free.values() for block in found]
            self._free.clear()
            self._kept = 0
        for block in blocks:
            self._driver.free(block)

    def flag(self, stream: int) -> tuple[int, int]:
        """Return the addresses of 4 bytes on the device and of 4 pinned ones of the host, all 0, for good."""
        with self._lock:
            if not self._flags:
                device, host = self._driver.allocate(_FLAGS * FLAG), self._driver.pinned(_FLAGS * FLAG)
                ctypes.memset(host, 0, _FLAGS * FLAG)
                self._driver.clear(device, _FLAGS * FLAG, stream)
                self._driver.synchronize(stream, "")  # whatever stream uses them
                self._flags = [(device + n * FLAG, host + n * FLAG) for n in range(_FLAGS)]
            return self._flags.pop()


def rounded(size: int) -> int:
    """Return the size of the block for so many bytes: at most an eighth more, so that few sizes serve all.

    >>> rounded(1), rounded(4097), rounded(1 << 20)
    (512, 4608, 1048576)
    """
    step = max(_LEAST, 1 << max(0, size.bit_length() - 4))
    return max(_LEAST, -(-size // step) * step)


_memories: WeakKeyDictionary[Driver, DeviceMemory] = WeakKeyDictionary()
_lock = threading.RLock()  # a WeakKeyDictionary that one thread changes cannot be read by another


def memory_of(driver: Driver) -> DeviceMemory:
    """Return the memory that is kept for a driver."""
    with _lock:
        return _memories.setdefault(driver, DeviceMemory(driver))


def release_device_memory() -> None:
    """Free the device memory that is kept between calls."""
    with _lock:
        memories = list(_memories.values())
    for memory in memories:
        memory.clear()
