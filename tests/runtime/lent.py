"""A library of tensors with the C exchange API of DLPack, made of NumPy's arrays and functions of ctypes."""

from __future__ import annotations

import ctypes
import weakref
from typing import Any

import numpy as np

from polyker.codegen.llvm.jit.own import host_triple, own_library
from polyker.ir.dtypes import from_numpy
from polyker.runtime.dlpack import DlTensor, Managed, element_code, memory_of

POINTER, INT = ctypes.c_void_p, ctypes.c_int
_made: list[Any] = []  # what C points to, for the process


class Lent:
    """A tensor: an array, and the address that it says it begins at."""

    def __init__(self, array: Any, offset: int = 0, device: int = 1) -> None:
        self.array, self.offset, self.device = array, offset, device

    def __dlpack__(self, **named: Any) -> Any:
        return self.array.__dlpack__(**named)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device, 0


def filled(value: Any, tensor: Any) -> None:
    """Say where a tensor lies."""
    array = value.array
    dimensions = (ctypes.c_int64 * (2 * array.ndim + 1))(*array.shape, *(s // array.itemsize for s in array.strides))
    value.dimensions = dimensions
    place, dtype = ctypes.addressof(dimensions), from_numpy(array.dtype)
    code = 0 if dtype is None else element_code(dtype)
    tensor.data, tensor.byte_offset = array.ctypes.data - value.offset, value.offset
    tensor.device_type, tensor.device_id, tensor.ndim = value.device, 0, array.ndim
    tensor.code, tensor.bits, tensor.lanes = code & 255, code >> 8 & 255, code >> 16
    tensor.shape = ctypes.cast(place, ctypes.POINTER(ctypes.c_int64))
    tensor.strides = ctypes.cast(place + 8 * array.ndim, ctypes.POINTER(ctypes.c_int64))


def view(value: Any, tensor: int) -> int:
    """Stand for dltensor_from_py_object_no_sync."""
    filled(value, DlTensor.from_address(tensor))
    return 0


def allocated(like: int, place: int, _: Any, __: Any) -> int:
    """Stand for managed_tensor_allocator."""
    memory = memory_of(DlTensor.from_address(like), read_only=False, is_copy=False, keep=None)
    value = Lent(np.zeros(memory.shape, memory.dtype.numpy))  # type: ignore[union-attr]
    block = Managed(major=1, minor=3, deleter=ctypes.cast(_dropped, POINTER).value)
    filled(value, block.tensor)
    _blocks[ctypes.addressof(block)] = block, value
    POINTER.from_address(place).value = ctypes.addressof(block)
    return 0


_blocks: dict[int, Any] = {}
_dropped = ctypes.PYFUNCTYPE(None, POINTER)(lambda place: _blocks.pop(place) and None)


def made(block: int, place: int) -> int:
    """Stand for managed_tensor_to_py_object_no_sync."""
    managed = Managed.from_address(block)
    memory = memory_of(managed.tensor, read_only=False, is_copy=False, keep=None)
    size = int(np.prod(memory.shape)) * memory.dtype.itemsize  # type: ignore[union-attr]
    held = (ctypes.c_char * max(size, 1)).from_address(memory.address)
    value = Lent(np.ndarray(memory.shape, memory.dtype.numpy, held))  # type: ignore[union-attr]
    weakref.finalize(held, ctypes.CFUNCTYPE(None, POINTER)(managed.deleter), block)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))
    POINTER.from_address(place).value = id(value)
    return 0


def raising(error: type[BaseException]) -> int:
    """Return the address of a function of C that raises an error."""
    place = ctypes.cast(ctypes.pythonapi.PyErr_SetNone, POINTER).value
    text = (
        f'target triple = "{host_triple()}"\ndefine i32 @raising(ptr %a, ptr %b) {{\n  %set = inttoptr i64 {place} to ptr\n'
        f"  %error = inttoptr i64 {id(error)} to ptr\n  call void %set(ptr %error)\n  ret i32 -1\n}}"
    )
    code = own_library(text, "raising", 0)
    _made.append(code)
    return code.address


ALLOCATE = ctypes.PYFUNCTYPE(INT, POINTER, POINTER, POINTER, POINTER)(allocated)
MAKE = ctypes.PYFUNCTYPE(INT, POINTER, POINTER)(made)
VIEW = ctypes.PYFUNCTYPE(INT, ctypes.py_object, POINTER)(view)


def address_of(function: Any) -> int:
    return ctypes.cast(function, POINTER).value or 0


def functions(*, make: int | None = None, show: int | None = None, major: int = 1, older: int = 0) -> int:
    """Return the address of a DLPackExchangeAPI."""
    words = np.array(
        [
            major | 3 << 32, older, address_of(ALLOCATE), 0,
            address_of(MAKE) if make is None else make, address_of(VIEW) if show is None else show, 0,
        ],
        np.int64,
    )  # fmt: skip
    _made.append(words)
    return int(words.ctypes.data)


def lending(place: int, base: type = Lent) -> Any:
    """Return a class of tensors whose exchange API lies at an address."""
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, (POINTER, ctypes.c_char_p, POINTER)
    return type("Lending", (base,), {"__dlpack_c_exchange_api__": new(place, b"dlpack_exchange_api", None)})
