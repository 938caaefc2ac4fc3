"""What a DLPack capsule says of an array on a device; the memory itself is never touched.

The capsule is read and left as it is: when it is dropped, it tells its producer that the array is no longer used. Source of the
layout: dlpack.h, versions 0 and 1.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np

from polyker.ir.dtypes import DType, bf16, from_numpy

CUDA, CUDA_MANAGED = 2, 13  # device types
_READ_ONLY = 1  # bit of the flags
_KINDS = {0: "i", 1: "u", 2: "f", 5: "c", 6: "b"}
_BFLOAT = 4


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Versioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    ]


@dataclass(frozen=True, slots=True)
class DeviceArray:
    """An array on a device: address, shape, strides in bytes, element type (None: one that kernels have not), device.

    `keep`: what has to live while the array is used.
    """

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: DType | None
    read_only: bool
    device: int
    keep: object = None


def dense(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Return the strides of a row-major array, in bytes.

    >>> dense((2, 3, 4), 8)
    (96, 32, 8)
    """
    strides = []
    for extent in reversed(shape):
        strides.append(itemsize)
        itemsize *= extent
    return tuple(reversed(strides))


def device_of(value: Any) -> int | None:
    """Return the number of the CUDA device that an array with the protocol lies on, None where it lies on no such device."""
    place = getattr(value, "__dlpack_device__", None)
    if place is None or not hasattr(value, "__dlpack__"):
        return None
    kind, number = place()
    return int(number) if int(kind) in (CUDA, CUDA_MANAGED) else None


def exported(value: Any, stream: int) -> DeviceArray:
    """Return what the producer says of an array, which it makes ready for use on a stream.

    Raises what the producer raises; ValueError for a capsule that is not understood.
    """
    where = stream or 1  # 1: the default stream; 0 is not allowed
    try:
        capsule = value.__dlpack__(stream=where, max_version=(1, 0))
    except TypeError:  # a producer from before versions
        capsule = value.__dlpack__(stream=where)
    tensor, flags = _read(capsule)
    shape = tuple(tensor.shape[d] for d in range(tensor.ndim))
    size = tensor.bits * tensor.lanes // 8
    if tensor.strides:
        strides = tuple(size * tensor.strides[d] for d in range(tensor.ndim))
    else:
        strides = dense(shape, size)
    address = (tensor.data or 0) + tensor.byte_offset
    return DeviceArray(
        address, shape, strides, _dtype(tensor), bool(flags & _READ_ONLY), tensor.device_id, capsule
    )  # fmt: skip


def _read(capsule: Any) -> tuple[_Tensor, int]:
    api = ctypes.pythonapi
    is_valid, pointer = api.PyCapsule_IsValid, api.PyCapsule_GetPointer
    is_valid.argtypes, is_valid.restype = (ctypes.py_object, ctypes.c_char_p), ctypes.c_int
    pointer.argtypes, pointer.restype = (ctypes.py_object, ctypes.c_char_p), ctypes.c_void_p
    if is_valid(capsule, b"dltensor_versioned"):
        found = _Versioned.from_address(pointer(capsule, b"dltensor_versioned"))
        if found.major > 1:
            raise ValueError(f"a capsule of version {found.major}")
        return found.tensor, int(found.flags)
    if is_valid(capsule, b"dltensor"):
        return _Tensor.from_address(pointer(capsule, b"dltensor")), 0
    raise ValueError("not a capsule of DLPack")


def _dtype(tensor: _Tensor) -> DType | None:
    if tensor.lanes != 1:
        return None
    if tensor.code == _BFLOAT:
        return bf16 if tensor.bits == 16 else None
    kind = _KINDS.get(tensor.code)
    try:
        return None if kind is None else from_numpy(np.dtype(f"{kind}{tensor.bits // 8}"))
    except TypeError:
        return None
