"""Addresses, overlap and layouts of numpy arrays, scratch memory, and the machine's memory."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable, Sequence, Set
from functools import cache

import numpy as np

from polyker.ir.layout import DENSE, Layout
from polyker.runtime.kinds import Array

_OVERLAP_WORK = 10_000  # steps that an exact overlap question may take; beyond it arrays count as overlapping (chosen)
_DISTINCT_ELEMENTS = 1 << 16  # elements up to which the addresses of a strange layout are compared one by one (chosen)


def _slow_address(array: Array) -> int:
    return int(array.ctypes.data)


def _find_data_offset() -> int | None:
    """Return where a PyArrayObject keeps its data pointer, checked on arrays of several kinds, or None."""
    offset = object.__basicsize__
    probes: list[Array] = [np.zeros(3), np.zeros((4, 5), np.int8)[1:, 2:], np.zeros(()), np.arange(6)[::-1]]
    try:
        for probe in probes:
            if ctypes.c_size_t.from_address(id(probe) + offset).value != _slow_address(probe):
                return None
    except (ValueError, TypeError):
        return None
    return offset


_OFFSET = _find_data_offset()
_read = ctypes.c_size_t.from_address


def _fast_address(array: Array) -> int:
    return _read(id(array) + _OFFSET).value  # type: ignore[operator]


# `array.ctypes` costs a microsecond, so the pointer is read from the object itself, where that was found to work.
address = _slow_address if _OFFSET is None else _fast_address


def reach(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> tuple[int, int]:
    """Return the bytes [lo, hi) around the data pointer that an array covers; (0, 0) for an empty one."""
    lo = hi = 0
    for extent, stride in zip(shape, strides, strict=True):
        if extent == 0:
            return 0, 0
        if stride < 0:
            lo += (extent - 1) * stride
        else:
            hi += (extent - 1) * stride
    return lo, hi + itemsize


def overlap(a: Array, b: Array) -> bool:
    """Whether two arrays share an element's memory; True where that takes too long to find out."""
    if not np.may_share_memory(a, b):
        return False
    try:
        return np.shares_memory(a, b, max_work=_OVERLAP_WORK)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


def overlaps_itself(array: Array) -> bool:
    """Whether two elements of the array share memory; True where that takes too long to find out."""
    dims = sorted((abs(s), n) for s, n in zip(array.strides, array.shape, strict=True) if n > 1)
    if array.size <= 1 or not dims:
        return False
    covered = array.itemsize
    for stride, extent in dims:
        if stride < covered:
            break
        covered += stride * (extent - 1)
    else:
        return False
    if dims[0][0] == 0 or array.size > _DISTINCT_ELEMENTS:
        return True
    offsets = np.zeros((), np.int64)
    for stride, extent in dims:
        offsets = np.add.outer(offsets, np.arange(extent, dtype=np.int64) * stride)
    ordered = np.sort(offsets, axis=None)
    return bool((np.diff(ordered) < array.itemsize).any())


def _is_dense(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> bool:
    """Whether an array's elements follow each other in the order of its dimensions."""
    expected = itemsize
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent != 1 and stride != expected:
            return False
        expected *= extent
    return True


def layout_of(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> Layout:
    """Return the layout class of an array: dense in some order of its dimensions, or strided with its innermost unit one."""
    if 0 in shape or _is_dense(shape, strides, itemsize):
        return DENSE
    order = sorted(range(len(shape)), key=lambda d: (shape[d] > 1, -strides[d], d))
    if _is_dense([shape[d] for d in order], [strides[d] for d in order], itemsize):
        return Layout(order=tuple(order))
    units = [d for d, (n, s) in enumerate(zip(shape, strides, strict=True)) if n > 1 and s == itemsize]
    return Layout(dense=False, unit=units[-1] if units else None)


def aligned_block(size: int) -> tuple[Array, int]:
    """Return memory of `size` bytes and its first address that is a multiple of 64; the array keeps it alive."""
    block = np.empty(size + 63, np.uint8)
    return block, (address(block) + 63) & -64


def arena(
    sizes: Sequence[int],
    disjoint: Set[frozenset[int]],
    in_place: Set[frozenset[int]] = frozenset(),
    lifetimes: Sequence[tuple[int, int]] = (),
) -> tuple[tuple[int, ...], int]:
    """Return offsets of blocks of so many bytes, multiples of 64, and the bytes of all.

    Pairs in `disjoint` may overlap, and those whose `lifetimes`, if there are some, have no step in common; those `in_place` may
    if they begin at the same offset. The largest first, each at the least offset where it meets none that it must not overlap.

    >>> arena([100, 300, 60], {frozenset((0, 1))})
    ((0, 0, 320), 384)
    >>> arena([64, 64, 64], set(), lifetimes=[(0, 1), (1, 2), (2, 3)])
    ((0, 64, 0), 128)
    """
    placed: dict[int, tuple[int, int]] = {}
    during: dict[int, list[int]] = {}  # the blocks at each step
    for n in sorted(range(len(sizes)), key=lambda n: -sizes[n]):
        size = (sizes[n] + 63) & -64
        others: Iterable[int] = placed
        if lifetimes:
            steps = range(lifetimes[n][0], lifetimes[n][1] + 1)
            others = {m for step in steps for m in during.get(step, ())}
            for step in steps:
                during.setdefault(step, []).append(n)
        near = {m: placed[m] for m in others if frozenset((m, n)) not in disjoint}
        for start in sorted({0, *(p for low, high in near.values() for p in (low, high))}):
            if all(
                start + size <= low or high <= start or (start == low and frozenset((m, n)) in in_place)
                for m, (low, high) in near.items()
            ):
                break
        placed[n] = start, start + size
    return tuple(placed[n][0] for n in range(len(sizes))), max((high for _, high in placed.values()), default=0)


@cache
def physical_memory() -> int:
    """Return the machine's memory in bytes, 8 GiB where it cannot be asked."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return 8 << 30
