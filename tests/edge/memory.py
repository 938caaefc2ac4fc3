"""Memory with guard pages and canaries, and arrays of any layout in it."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np
from msgspec import Struct

from tests.runtime.support import CANARY

_LIBC = ctypes.CDLL(None, use_errno=True)
_PAGE = mmap.PAGESIZE


class Arena:
    """Bytes between two pages whose access ends the process, flush against one of them, full of canaries."""

    def __init__(self, size: int, *, at_end: bool) -> None:
        room = -(-max(size, 1) // _PAGE) * _PAGE
        self._map = mmap.mmap(-1, room + 2 * _PAGE)
        base = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        start = _PAGE + (room - size if at_end else 0)
        self.bytes = np.frombuffer(self._map, np.uint8, size, start)
        np.frombuffer(self._map, np.uint8, room, _PAGE)[...] = CANARY
        for page in (base, base + _PAGE + room):
            if _LIBC.mprotect(ctypes.c_void_p(page), _PAGE, 0):
                raise OSError(ctypes.get_errno(), "mprotect")

    @property
    def address(self) -> int:
        """Where the bytes begin."""
        return int(self.bytes.__array_interface__["data"][0])


class Place(Struct, frozen=True):
    """Where an array lies in an arena: the byte of its first element, and its strides in bytes."""

    offset: int
    strides: tuple[int, ...]


def view(arena: Arena, place: Place, shape: Sequence[int], dtype: np.dtype[Any]) -> np.ndarray:
    """Return the array at a place of an arena."""
    return np.ndarray(tuple(shape), dtype, arena.bytes, place.offset, place.strides)


def reach(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> tuple[int, int]:
    """Return the bytes before and after its first byte that an array covers."""
    if 0 in shape:
        return 0, 0
    steps = [(n - 1) * s for n, s in zip(shape, strides, strict=True)]
    return -sum(min(s, 0) for s in steps), sum(max(s, 0) for s in steps) + itemsize


OUTPUT_LAYOUTS = ("dense", "dense", "permuted", "padded", "reversed", "stepped", "odd strides")
INPUT_LAYOUTS = (*OUTPUT_LAYOUTS, "zero", "window")


def strides_of(random: Random, layout: str, shape: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """Return strides of a layout; two elements share memory only where it is `zero` or `window`."""
    order = list(range(len(shape)))
    if layout in ("permuted", "stepped") and random.random() < 0.7:
        random.shuffle(order)
    strides = [0] * len(shape)
    step = itemsize
    for k, d in enumerate(reversed(order)):
        if layout == "stepped" and random.random() < 0.6:
            step *= random.choice((2, 3))
        if layout == "odd strides" and random.random() < 0.6:
            step += random.randrange(1, itemsize + 1)
        strides[d] = step
        pad = itemsize * random.randrange(1, 5) if layout == "padded" and k == 0 else 0
        step = step * max(shape[d], 1) + pad
    if layout == "reversed":
        strides = [-s if random.random() < 0.6 else s for s in strides]
    if layout == "zero":
        strides = [0 if random.random() < 0.6 else s for s in strides]
    if layout == "window" and len(shape) > 1:
        strides[0] = strides[1]
    return tuple(strides)


def placed(
    shape: Sequence[int], dtype: np.dtype[Any], strides: tuple[int, ...], *, shift: int, at_end: bool
) -> tuple[Arena, Place]:
    """Return an arena that an array with these strides just fills, and its place there, `shift` bytes from the page."""
    before, after = reach(shape, strides, dtype.itemsize)
    arena = Arena(before + after + shift, at_end=at_end)
    return arena, Place(before + (0 if at_end else shift), strides)


def overlaps_itself(array: np.ndarray) -> bool:
    """Whether two elements share a byte."""
    if array.size < 2:
        return False
    offsets = np.zeros((), np.int64)
    for n, s in zip(array.shape, array.strides, strict=True):
        offsets = np.add.outer(offsets, np.arange(n) * s)
    return bool((np.diff(np.sort(offsets, axis=None)) < array.itemsize).any())


def outside(arena: Arena, arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Return a mask of the bytes of the arena that belong to none of the arrays."""
    mask = np.ones(arena.bytes.size, bool)
    for array in arrays:
        if array.size == 0:
            continue
        start = array.__array_interface__["data"][0] - arena.address
        offsets = np.zeros((), np.int64)
        for n, s in zip(array.shape, array.strides, strict=True):
            offsets = np.add.outer(offsets, np.arange(n) * s)
        for byte in range(array.itemsize):
            at = start + offsets.reshape(-1) + byte
            mask[at[(at >= 0) & (at < mask.size)]] = False
    return mask
