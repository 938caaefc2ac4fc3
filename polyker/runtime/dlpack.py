"""What a DLPack capsule says of an array; the memory itself is never touched.

The capsule is read and left as it is: when it is dropped, it tells its producer that the array is no longer used. Source of the
layout: dlpack.h, versions 0 and 1.
"""

from __future__ import annotations

import ctypes
from operator import index
from typing import Any

import numpy as np
from msgspec import Struct

from polyker.ir.dtypes import DType, bf16, from_numpy

CUDA, CUDA_MANAGED = 2, 13  # device types (dlpack.h)
_READ_ONLY, _IS_COPY = 1, 2  # bits of the flags
_MAX_DIMENSIONS = 64  # as NumPy's
_KINDS = {0: "i", 1: "u", 2: "f", 5: "c", 6: "b"}
_BFLOAT = 4  # kDLBfloat


class DlTensor(ctypes.Structure):
    """DLTensor of dlpack.h."""

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


class Managed(ctypes.Structure):
    """DLManagedTensorVersioned of dlpack.h."""

    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", DlTensor),
    ]


class ArrayMemory(Struct, frozen=True):
    """Where an array lies: address, shape, strides in bytes, element type (a text: one that kernels have not), device.

    `is_copy`: of what was asked, made for the asking. `keep`: what has to live while the memory is used.
    """

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: DType | str
    read_only: bool
    device_type: int = CUDA
    device: int = 0
    is_copy: bool = False
    keep: object = None

    @staticmethod
    def of(
        address: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...] | None,
        dtype: np.dtype[Any],
        *,
        read_only: bool,
        keep: object,
    ) -> ArrayMemory:
        """Return the memory of an array on the CUDA device 0; without strides it is row-major. Raises ValueError."""
        steps = dense(shape, dtype.itemsize) if strides is None else strides
        if len(steps) != len(shape):
            raise ValueError(f"{len(shape)} extents and {len(steps)} strides")
        return ArrayMemory(address, shape, steps, from_numpy(dtype) or str(dtype), read_only, keep=keep)


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


def device_of(value: Any) -> tuple[int, int] | None:
    """Return (type, number) of the device that an array lies on, None where it does not say; raises what it raises."""
    place = getattr(value, "__dlpack_device__", None)
    if place is None:
        return None
    kind, number = place()
    return index(kind), index(number)


def cuda_device_of(value: Any) -> int | None:
    """Return the number of the CUDA device that an array with the protocol lies on, None for all else."""
    try:
        place = device_of(value) if getattr(value, "__dlpack__", None) is not None else None
    except Exception:  # what is wrong with it is told where it is read
        return None
    return place[1] if place is not None and place[0] in (CUDA, CUDA_MANAGED) else None


def exported(value: Any, stream: int | None, *, in_place: bool = False) -> ArrayMemory:
    """Return what the producer says of an array, which it makes ready for use on a stream (None: by the host).

    `in_place`: a copy is of no use. Raises what the producer raises; ValueError for a capsule that is not understood.
    """
    # Of streams 1 is the default one; 0 is not allowed.
    options: dict[str, Any] = {} if stream is None else {"stream": stream or 1}
    versions: list[dict[str, Any]] = [{"max_version": (1, 0)}, {}]
    if in_place:
        versions.insert(0, {"max_version": (1, 0), "copy": False})
    for version in versions:
        try:
            capsule = value.__dlpack__(**options, **version)
            break
        except TypeError:  # a producer from before versions, or before copies
            if not version:
                raise
    tensor, flags = _read(capsule)
    # Before versions no capsule said whether it can be written: NumPy takes such arrays as read-only.
    read_only = stream is None if flags is None else bool(flags & _READ_ONLY)
    return memory_of(tensor, read_only=read_only, is_copy=bool((flags or 0) & _IS_COPY), keep=capsule)


def memory_of(tensor: DlTensor, *, read_only: bool, is_copy: bool, keep: object) -> ArrayMemory:
    """Return the memory that a struct of DLPack describes; raises ValueError for what is no shape."""
    if not 0 <= tensor.ndim <= _MAX_DIMENSIONS:
        raise ValueError(f"an array of {tensor.ndim} dimensions")
    shape = tuple(tensor.shape[d] for d in range(tensor.ndim))
    if min(shape, default=0) < 0:
        raise ValueError(f"an extent is {min(shape)}")
    size = tensor.bits * tensor.lanes // 8
    if tensor.strides:
        strides = tuple(size * tensor.strides[d] for d in range(tensor.ndim))
    else:
        strides = dense(shape, size)
    return ArrayMemory(
        (tensor.data or 0) + tensor.byte_offset, shape, strides, _dtype(tensor), read_only,
        tensor.device_type, tensor.device_id, is_copy, keep,
    )  # fmt: skip


def _read(capsule: Any) -> tuple[DlTensor, int | None]:
    api = ctypes.pythonapi
    is_valid, pointer = api.PyCapsule_IsValid, api.PyCapsule_GetPointer
    is_valid.argtypes, is_valid.restype = (ctypes.py_object, ctypes.c_char_p), ctypes.c_int
    pointer.argtypes, pointer.restype = (ctypes.py_object, ctypes.c_char_p), ctypes.c_void_p
    if is_valid(capsule, b"dltensor_versioned"):
        found = Managed.from_address(pointer(capsule, b"dltensor_versioned"))
        if found.major > 1:
            raise ValueError(f"a capsule of version {found.major}")
        return found.tensor, int(found.flags)
    if is_valid(capsule, b"dltensor"):
        return DlTensor.from_address(pointer(capsule, b"dltensor")), None
    raise ValueError("not a capsule of DLPack, or one that is used already")


def _dtype(tensor: DlTensor) -> DType | str:
    found = None
    if tensor.lanes == 1:
        kind = _KINDS.get(tensor.code)
        if tensor.code == _BFLOAT:
            found = bf16 if tensor.bits == 16 else None
        elif kind is not None and tensor.bits % 8 == 0:
            try:
                found = from_numpy(np.dtype(f"{kind}{tensor.bits // 8}"))
            except TypeError:
                found = None
    return found or f"of DLPack code {tensor.code}, {tensor.bits} bits and {tensor.lanes} lanes"


def element_code(dtype: DType) -> int:
    """Return an element type as a DLDataType: code, bits and lanes from the low bits on.

    >>> from polyker.ir.dtypes import f32
    >>> hex(element_code(f32))
    '0x12002'
    """
    kind = _BFLOAT if dtype is bf16 else next(code for code, letter in _KINDS.items() if letter == dtype.numpy.kind)
    return kind | dtype.itemsize * 8 << 8 | 1 << 16
