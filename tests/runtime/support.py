"""Arrays for the run time's tests: index-coded values, layouts with canaries, pages that must not be touched."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import numpy as np

CANARY = 0x5A


def coded(shape: tuple[int, ...], dtype: Any = np.float32, salt: int = 1) -> np.ndarray:
    """Return an array whose elements encode their place, small enough that sums of products are exact."""
    count = int(np.prod(shape, dtype=np.int64))
    dtype = np.dtype(dtype)
    values = (np.arange(count, dtype=np.int64) * 7 + 3 * salt) % 11 - (4 if dtype.kind not in "ub" else 0)
    if dtype.kind == "b":
        values = values % 2
    array = values.astype(dtype)
    if dtype.kind == "c":
        array = (array + 1j * ((np.arange(count) * 5 + salt) % 7 - 3)).astype(dtype)
    return array.reshape(shape)


LAYOUTS = ("dense", "fortran", "reversed", "stepped", "offset", "broadcast", "gaps", "swapped")


def laid_out(values: np.ndarray, layout: str) -> tuple[np.ndarray, np.ndarray]:
    """Return (an array with these values in that layout, the memory around it, canaries in the gaps)."""
    shape, ndim = values.shape, values.ndim
    if ndim == 0 or layout == "dense":
        array = np.array(values, order="C")
        return array, array.reshape(-1).view(np.uint8)
    match layout:
        case "fortran":
            block = np.empty(shape[::-1], values.dtype)
            array = block.T
        case "reversed":
            block = np.empty(shape, values.dtype)
            array = block[(slice(None, None, -1),) * ndim]
        case "stepped":
            block = _filled(tuple(2 * n + 1 for n in shape), values.dtype)
            array = block[tuple(slice(1, 2 * n, 2) for n in shape)]
        case "offset":
            block = _filled((*shape[:-1], shape[-1] + 3), values.dtype)
            array = block[..., 1 : 1 + shape[-1]]
        case "gaps":
            block = _filled((*shape, 2), values.dtype)
            array = block[..., 0]
        case "swapped":
            block = np.empty((*shape[:-2], *shape[-2:][::-1]), values.dtype)
            array = np.swapaxes(block, -1, -2) if ndim > 1 else block
        case "broadcast":
            array = np.broadcast_to(values[:1], shape) if shape[0] else values.copy()
            return array, np.zeros(0, np.uint8)
        case _:
            raise ValueError(layout)
    array[...] = values
    return array, block.reshape(-1).view(np.uint8)


def _filled(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    block = np.empty(shape, dtype)
    block.reshape(-1).view(np.uint8)[...] = CANARY
    return block


def outside(array: np.ndarray, memory: np.ndarray) -> np.ndarray:
    """Return a copy of the bytes of `memory` that are none of the array's elements."""
    mask = np.ones(memory.size, bool)
    base = memory.__array_interface__["data"][0]
    start = array.__array_interface__["data"][0] - base
    offsets = np.zeros((), np.int64)
    for n, s in zip(array.shape, array.strides):
        offsets = np.add.outer(offsets, np.arange(n) * s)
    for byte in range(array.itemsize):
        mask[start + offsets.reshape(-1) + byte] = False
    return memory[mask].copy()


class Guarded:
    """Memory between two pages whose access ends the process; `array` lies flush against one of them."""

    def __init__(self, values: np.ndarray, at_end: bool) -> None:
        page = mmap.PAGESIZE
        size = -(-max(values.nbytes, 1) // page) * page
        self._map = mmap.mmap(-1, size + 2 * page)
        self._base = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._size, self._page = size, page
        start = page + (size - values.nbytes if at_end else 0)
        self.array = np.frombuffer(self._map, values.dtype, values.size, start).reshape(values.shape)
        self.array[...] = values
        self._protect(0)

    def _protect(self, flags: int) -> None:
        for start in (self._base, self._base + self._page + self._size):
            assert self._libc.mprotect(ctypes.c_void_p(start), self._page, flags) == 0

    def release(self) -> None:
        """Make the pages accessible again, so that the memory can be returned."""
        self._protect(3)
