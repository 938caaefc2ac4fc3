"""Arrays of other libraries as NumPy's views of their memory: one function a protocol, where what objects raise is caught.

What an object says is checked before its memory is touched; what it raises becomes the cause of an error that names the
parameter. A view for an output has to be the array's own memory, as results are written to it. An address that is made up
cannot be told from a true one.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from operator import index
from typing import Any

import numpy as np
from msgspec import Struct

from polyker.errors.base import PolykerError, failure
from polyker.errors.calls import (
    NOT_AN_ARRAY,
    NOT_READABLE,
    ON_DEVICE,
    OUT_NOT_ARRAY,
    OUT_NOT_IN_PLACE,
    REQUIRES_GRAD,
)
from polyker.errors.given import is_a, shown, type_name
from polyker.ir.dtypes import DTYPES, DType, bf16
from polyker.runtime.dlpack import ArrayMemory, device_of, exported
from polyker.runtime.kinds import Array, check_extent, is_masked, kind_of, masked_array, unknown_type
from polyker.runtime.memory import address, reach

CUDA_INTERFACE, INTERFACE = "__cuda_array_interface__", "__array_interface__"
_CPU_DEVICES = (1, 3, 13)  # DLPack: CPU, pinned by CUDA, managed by CUDA
_DEVICES = {2: "a CUDA device", 4: "an OpenCL device", 7: "a Vulkan device", 8: "Metal", 10: "a ROCm device"}
_ADDRESSES = 1 << 8 * ctypes.sizeof(ctypes.c_void_p)  # bytes that a pointer can address
_TORCH_TYPES = {d.numpy.name: d for d in DTYPES.values() if d is not bf16} | {"bfloat16": bf16}


class Given(Struct, frozen=True):
    """An argument of a call: its value, its name in errors, and the output that is written to it, None of an input."""

    value: Any
    name: str
    output: str | None = None

    def refused(self, reason: object, protocol: str = "") -> PolykerError:
        """Return the error of an array that cannot be read, or not be written; a reason may be what was raised."""
        text = f"`{protocol}`: {shown(reason)}" if protocol else shown(reason)
        code, name = (NOT_READABLE, self.name) if self.output is None else (OUT_NOT_IN_PLACE, self.output)
        return failure(code, name=name, type=type_name(self.value), reason=text)

    def ask(self, attribute: str) -> Any:
        """Return an attribute, None where there is none; raises ArgumentError for whatever it raises."""
        try:
            return getattr(self.value, attribute, None)
        except Exception as error:
            raise self.refused(error, attribute) from error


def foreign_view(value: object, name: str, output: str | None = None) -> tuple[Array, str]:
    """Return (view, kind) of an array of another library; raises ArgumentError, DTypeError, ShapeError.

    `output`: what is written to it, which therefore has to be its own memory.
    """
    given, kind = Given(value, name, output), kind_of(value)
    if is_masked(value):
        raise masked_array(name)
    if is_a(value, type):
        raise failure(NOT_AN_ARRAY, name=name, type=type_name(value))
    if kind == "torch":
        return torch_view(given), kind
    if output is not None and kind == "jax":
        raise given.refused("arrays of jax never change")
    if _quiet(value, "requires_grad") is True:
        raise failure(REQUIRES_GRAD, name=name)
    if cuda_interface(value) is not None:
        raise failure(ON_DEVICE, name=name, device="a CUDA device")
    if given.ask("__dlpack__") is not None:
        return dlpack_view(given), kind
    if given.ask(INTERFACE) is not None:
        return interface_view(given), "numpy"
    method = given.ask("__array__")
    if output is not None:
        # The method alone may give a copy.
        raise failure(OUT_NOT_ARRAY, name=output, type=type_name(value))
    return (buffer_view(given) if method is None else array_view(given)), "numpy"


def _quiet(value: object, attribute: str) -> Any:
    """Return an attribute, None where there is none or it raises."""
    try:
        return getattr(value, attribute, None)
    except Exception:
        return None


def _own_memory(given: Given, view: Callable[[], Array]) -> Array:
    """Return a view; for an output it is made twice, which gives the same memory unless it is a copy."""
    first = view()
    if given.output is not None and first.flags.writeable and first.size:
        second = view()
        if (address(first), first.shape, first.strides) != (address(second), second.shape, second.strides):
            raise given.refused("it gives other memory each time it is asked")
    return first


# DLPack.


def dlpack_view(given: Given) -> Array:
    """Return a view by DLPack's protocol; inputs that have no such view may be copied by their `__array__`."""
    try:
        place = device_of(given.value)
        if place is not None and place[0] not in _CPU_DEVICES:
            raise failure(ON_DEVICE, name=given.name, device=_device(place[0]))
        return _own_memory(given, lambda: _unpacked(given))
    except Exception as error:
        # Types that NumPy has not, arrays in several parts: their libraries convert these by `__array__`.
        if given.output is None and not _lies_elsewhere(error) and _quiet(given.value, "__array__") is not None:
            return array_view(given)
        if isinstance(error, PolykerError):
            raise
        raise given.refused(error, "__dlpack__") from error


def _lies_elsewhere(error: Exception) -> bool:
    return isinstance(error, PolykerError) and error.code == ON_DEVICE


def _device(kind: int) -> str:
    return _DEVICES.get(kind, f"a device of DLPack type {kind}")


def _unpacked(given: Given) -> Array:
    memory = exported(given.value, None, in_place=given.output is not None)
    if memory.device_type not in _CPU_DEVICES:
        raise failure(ON_DEVICE, name=given.name, device=_device(memory.device_type))
    if memory.is_copy and given.output is not None:
        raise given.refused("DLPack gives a copy of it")
    return view_of(memory, given)


def view_of(memory: ArrayMemory, given: Given) -> Array:
    """Return memory as a NumPy array, whose elements are not touched; it keeps what `memory` keeps."""
    shape, strides, dtype = memory.shape, memory.strides, memory.dtype
    if not isinstance(dtype, DType):
        raise unknown_type(given.name, shape, dtype)
    check_extent(given.name, shape, strides, dtype.itemsize, dtype)
    low, high = reach(shape, strides, dtype.itemsize)
    if high > low and not memory.address:
        raise given.refused("its elements have no address")
    if not 0 <= memory.address + low <= memory.address + high <= _ADDRESSES:
        raise given.refused("its elements lie beyond the address space")
    block: Any = (ctypes.c_char * max(1, high - low)).from_address((memory.address or 1) + low)
    block.keep = memory.keep  # lives as long as the view does
    try:
        view: Array = np.ndarray(shape, dtype.numpy, block, -low, strides)
    except Exception as error:  # too many dimensions, or a type for which a package is missing
        raise given.refused(error) from error
    view.flags.writeable = not memory.read_only
    return view


# Interfaces of NumPy and of Numba.


class _Described:
    """What NumPy makes a view of; it keeps the array whose memory that is."""

    def __init__(self, interface: Mapping[str, Any], array: object) -> None:
        self.__array_interface__, self.array = interface, array


def interface_view(given: Given) -> Array:
    """Return a view by `__array_interface__`."""
    return _own_memory(given, lambda: _by_interface(given))


def _by_interface(given: Given) -> Array:
    found = given.ask(INTERFACE)
    if not is_a(found, Mapping):
        raise given.refused(f"a {type_name(found)}, not a dict", INTERFACE)
    try:
        described = dict(found)
        masked, data = described.get("mask") is not None, described.get("data")
        shape = described["shape"] = extents(described["shape"])
        if isinstance(data, tuple):
            start, read_only = data
            start, end = index(start), _ADDRESSES
            if not start and 0 not in shape:
                raise ValueError("its elements have no address")
            described["data"] = start, bool(read_only)
        else:
            block = described["data"] = memoryview(given.value if data is None else data)
            start, end = index(described.get("offset", 0)), block.nbytes
        view = np.asarray(_Described(described, given.value))
        # NumPy does not compare what it reads with the length of a buffer.
        low, high = reach(view.shape, view.strides, view.itemsize)
        if not 0 <= start + low <= start + high <= end:
            raise ValueError(f"its elements take up the bytes from {start + low} to {start + high} of {end}")
    except PolykerError:
        raise
    except Exception as error:
        raise given.refused(error, INTERFACE) from error
    if masked:
        raise masked_array(given.name)
    return view


def extents(shape: Any) -> tuple[int, ...]:
    """Return a shape as integers; raises TypeError, ValueError and what the object raises."""
    if not isinstance(shape, (tuple, list)):
        raise TypeError(f"the shape is a {type_name(shape)}, not a tuple")
    found = tuple(index(extent) for extent in shape)
    if min(found, default=0) < 0:
        raise ValueError(f"an extent is {min(found)}")
    return found


def cuda_interface(value: object) -> Mapping[str, Any] | None:
    """Return what an array on a CUDA device says of itself, None for all else: of some libraries the host's arrays raise."""
    try:
        found = getattr(value, CUDA_INTERFACE, None)
        return dict(found) if isinstance(found, Mapping) else None
    except Exception:
        return None


def cuda_memory(given: Given, interface: Mapping[str, Any]) -> ArrayMemory:
    """Return the memory that an interface describes; raises ArgumentError where it is none."""
    try:
        if interface.get("mask") is not None:
            raise masked_array(given.name)
        shape, dtype = extents(interface["shape"]), np.dtype(interface["typestr"])
        pointer, read_only = interface["data"]
        strides = interface.get("strides")
        steps = None if strides is None else tuple(index(s) for s in strides)
        return ArrayMemory.of(index(pointer or 0), shape, steps, dtype, read_only=bool(read_only), keep=given.value)
    except PolykerError:
        raise
    except Exception as error:
        raise given.refused(error, CUDA_INTERFACE) from error


def array_view(given: Given) -> Array:
    """Return what `__array__` gives."""
    method = given.ask("__array__")
    try:
        found = method()
    except Exception as error:
        raise given.refused(error, "__array__") from error
    if is_masked(found):
        raise masked_array(given.name)
    if not issubclass(type(found), np.ndarray):
        raise given.refused(f"it gives a {type_name(found)}", "__array__")
    return np.asarray(found)


def buffer_view(given: Given) -> Array:
    """Return the memory of what has the buffer protocol, such as array.array; bytes are rather text than numbers."""
    value, cause = given.value, None
    if not is_a(value, (bytes, bytearray)):
        try:
            return np.asarray(memoryview(value))
        except Exception as error:  # ValueError: one that was released
            cause = error
    found = given.ask(CUDA_INTERFACE)
    if found is not None:
        raise given.refused(f"a {type_name(found)}, not a dict", CUDA_INTERFACE) from cause
    raise failure(NOT_AN_ARRAY, name=given.name, type=type_name(value)) from cause


# torch.


def torch_view(given: Given) -> Array:
    """Return a view of a tensor, a subclass's as a plain one's; of an input, lazy conjugates and signs are resolved."""
    torch = sys.modules["torch"]
    try:
        with _without_overrides(torch):
            return _of_torch(torch, given)
    except PolykerError:
        raise
    except Exception as error:
        raise given.refused(error) from error


def _without_overrides(torch: Any) -> Any:
    """Return a context in which the `__torch_function__` of subclasses is not called."""
    return getattr(getattr(torch, "_C", None), "DisableTorchFunctionSubclass", nullcontext)()


def is_cuda_tensor(tensor: Any) -> bool:
    """Whether a tensor lies on a CUDA device, whatever its subclass says."""
    torch = sys.modules["torch"]
    try:
        with _without_overrides(torch):
            return bool(torch.Tensor.is_cuda.__get__(tensor))
    except Exception:  # what is wrong with it is told where it is read
        return False


def torch_device(tensor: Any) -> int:
    """Return the number of the CUDA device that a tensor lies on, whatever its subclass says."""
    torch = sys.modules["torch"]
    with _without_overrides(torch):
        return int(torch.Tensor.device.__get__(tensor).index or 0)


def detached(tensor: Any) -> Any:
    """Return a tensor on the same memory without its derivative, a subclass's as a plain one."""
    torch = sys.modules["torch"]
    with _without_overrides(torch):
        return torch.Tensor.detach(tensor)


def _plain(torch: Any, given: Given) -> Any:
    """Return a tensor on the same memory that is of no subclass; raises ArgumentError where a derivative would be lost."""
    base, tensor = torch.Tensor, given.value
    if base.requires_grad.__get__(tensor) and torch.is_grad_enabled():
        raise failure(REQUIRES_GRAD, name=given.name)
    if torch.autograd.forward_ad.unpack_dual(tensor).tangent is not None:
        raise given.refused("it has a tangent, and polyker carries no derivative on")
    found = base.detach(tensor)
    if type(found) is not base:
        raise given.refused("its class keeps its values elsewhere than a tensor does")
    return found


def torch_memory(given: Given) -> ArrayMemory:
    """Return the memory of a tensor on a CUDA device."""
    torch = sys.modules["torch"]
    try:
        with _without_overrides(torch):
            plain = _plain(torch, given)
            if plain.is_conj() or plain.is_neg():
                raise given.refused("its conjugation or sign is not resolved")
            dtype, size, device = torch_type(plain) or str(plain.dtype), plain.element_size(), plain.device.index or 0
            strides = tuple(size * s for s in plain.stride())
            return ArrayMemory(
                plain.data_ptr(), tuple(plain.shape), strides, dtype, False, device=device, keep=given.value
            )
    except PolykerError:
        raise
    except Exception as error:
        raise given.refused(error) from error


def _of_torch(torch: Any, given: Given) -> Array:
    plain = _plain(torch, given)
    device = plain.device
    if device.type == "meta":
        raise given.refused("it has no values: its device is meta")
    if device.type != "cpu":
        raise failure(ON_DEVICE, name=given.name, device=device)
    if plain.layout is not torch.strided or plain.is_nested:
        raise given.refused(f"it is {'nested' if plain.is_nested else plain.layout}, not strided")
    if torch_type(plain) is None:
        raise unknown_type(given.name, tuple(plain.shape), plain.dtype)
    if given.output is None:
        plain = plain.resolve_conj().resolve_neg()
    elif plain.is_conj() or plain.is_neg():
        raise given.refused(f"its {'conjugation' if plain.is_conj() else 'sign'} is lazy, memory holds other values")
    elif torch.Tensor.is_inference(given.value) and not torch.is_inference_mode_enabled():
        raise given.refused("it was made in inference mode, and is read-only outside of it")
    half = plain.dtype is torch.bfloat16
    view: Array = (plain.view(torch.int16) if half else plain).numpy()
    if is_hollow(view):
        raise given.refused("it has no memory: its storage was freed, or its values are kept elsewhere")
    return view.view(bf16.numpy) if half else view


def is_hollow(view: Array) -> bool:
    """Whether NumPy made memory of its own for a tensor whose elements have no address."""
    return view.flags.owndata and view.size > 0


def torch_type(tensor: Any) -> DType | None:
    """Return the element type of a tensor, None where kernels have it not."""
    return _TORCH_TYPES.get(str(tensor.dtype).removeprefix("torch."))
