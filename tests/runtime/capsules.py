"""DLPack capsules made by hand, with whatever they say of an array; the layout is that of dlpack.h."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("offset", ctypes.c_uint64),
    ]


class Managed(ctypes.Structure):
    _fields_ = [("tensor", Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class Versioned(ctypes.Structure):
    _fields_ = [
        ("version", ctypes.c_uint32 * 2),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", Tensor),
    ]


READ_ONLY, COPIED = 1, 2  # flags
_made: list[object] = []  # capsules have a name and a pointer, which nothing else keeps


def capsule(
    *,
    array: np.ndarray | None = None,
    data: int | None = None,
    shape: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
    device: tuple[int, int] = (1, 0),
    ndim: int | None = None,
    type: tuple[int, int, int] = (2, 32, 1),
    version: int | None = 1,
    flags: int = 0,
    name: bytes | None = None,
) -> Any:
    """Return a capsule of an f32 array, with what is given in place of the truth; `strides` count elements."""
    array = np.arange(4, dtype=np.float32) if array is None else array
    shape = array.shape if shape is None else shape
    words = (ctypes.c_int64 * max(1, len(shape)))(*shape)
    steps = None if strides is None else (ctypes.c_int64 * max(1, len(strides)))(*strides)
    tensor = Tensor(
        array.ctypes.data if data is None else data,
        device,
        len(shape) if ndim is None else ndim,
        *type,
        ctypes.addressof(words),
        None if steps is None else ctypes.addressof(steps),
        0,
    )
    made: Any = Managed(tensor) if version is None else Versioned((version, 0), None, None, flags, tensor)
    name = (b"dltensor" if version is None else b"dltensor_versioned") if name is None else name
    kept = ctypes.create_string_buffer(name)
    _made.append((array, words, steps, made, kept))
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
    return new(ctypes.addressof(made), ctypes.addressof(kept), None)
