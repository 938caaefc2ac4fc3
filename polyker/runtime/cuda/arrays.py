"""Calls of a kernel on a GPU with arrays that lie there already: nothing is copied.

They are torch's tensors, or have `__cuda_array_interface__` (version 3) or DLPack's protocol. They are looked at as NumPy ones of
the same addresses, shapes and strides, whose elements nothing here touches.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np

from polyker.errors.base import PolykerError, failure
from polyker.errors.calls import NO_RESULT_KIND
from polyker.errors.codegen import NO_RESULT_ARRAY, ON_HOST, OTHER_DEVICE
from polyker.errors.given import is_a, shown, type_name
from polyker.ir.dtypes import DType, TensorType
from polyker.runtime.arrays import Operand, is_usable, operand
from polyker.runtime.cuda.call import CallPlace, place_of_call
from polyker.runtime.cuda.device import Device
from polyker.runtime.cuda.driver import driver
from polyker.runtime.cuda.streams import as_current, current_stream, stream_handle
from polyker.runtime.dlpack import ArrayMemory, cuda_device_of, exported
from polyker.runtime.foreign import (
    CUDA_INTERFACE,
    Given,
    cuda_interface,
    cuda_memory,
    is_cuda_tensor,
    torch_device,
    torch_memory,
    view_of,
)
from polyker.runtime.kinds import kind_of


def lies_on_device(value: Any) -> bool:
    """Return whether a value is an array on a CUDA device; what is wrong with one is told where it is read."""
    if value is None or is_a(value, (np.ndarray, np.generic, bool, int, float, complex, list, tuple)):
        return False
    if kind_of(value) == "torch":
        return is_cuda_tensor(value)
    return cuda_interface(value) is not None or cuda_device_of(value) is not None


def first_on_device(values: Sequence[Any]) -> Any:
    """Return the first of the values that is an array on a CUDA device, None where none is."""
    return next((v for v in values if lies_on_device(v)), None)


@contextmanager
def on_stream(values: Sequence[Any], stream: object, home: int | None = None) -> Iterator[CallPlace]:
    """Let calls within be queued on a stream, where the first device array among the values lies: on the one given, else the
    current one of that array's library. `home`: the number of the device for arrays of the host, None for the current one."""
    first = first_on_device(values)
    device = None if first is None else device_of(first)
    if stream is not None:
        handle = stream_handle(stream)
    else:
        handle = 0 if first is None else current_stream(kind_of(first), first)
    before = place_of_call.get()
    place = CallPlace(device, handle, None if home is None or first is not None else driver().device(home))
    try:  # from before the change on: a signal handler may raise right after it
        place_of_call.set(place)
        yield place
    finally:
        place_of_call.set(before)


def device_of(value: Any) -> Device:
    """Return the device, and the context, that an array lies in."""
    if kind_of(value) == "torch":
        return driver().device(torch_device(value))
    interface = cuda_interface(value)
    if interface is None:
        return driver().device(cuda_device_of(value) or 0)
    try:
        address = int(interface["data"][0] or 0)
    except Exception:  # what is wrong with it is told where it is read
        address = 0
    return driver().device_of(address)


def device_type(value: Any, name: str) -> TensorType:
    """Return the type of an array on a device; raises ArgumentError, DTypeError."""
    given = Given(value, name)
    interface = cuda_interface(value)
    if kind_of(value) == "torch":
        found = torch_memory(given)
    elif interface is not None:
        found = cuda_memory(given, interface)
    else:
        found = _described(given, CallPlace(None, 0))
    if not isinstance(found.dtype, DType):
        raise given.refused("kernels have not its element type")
    return TensorType(found.dtype, found.shape)


def device_operands(labels: Sequence[str], values: Sequence[Any]) -> list[Operand]:
    """Return the inputs of a call, as `device_operand` does."""
    return [device_operand(value, name) for name, value in zip(labels, values, strict=True)]


def device_operand(value: Any, name: str, output: str | None = None) -> Operand:
    """Return an array on the device, ready for use on the call's stream, as an operand; numbers stay where they are.

    `output`: what is written to it, None for an input. Raises ArgumentError for an array of the host, and for one that no
    kernel can address.
    """
    if is_a(value, (bool, int, float, complex, np.generic)):
        return operand(value, name)
    if not lies_on_device(value):
        if output is None:
            operand(value, name)  # which tells what is no array at all
        raise failure(ON_HOST, name=name)
    given = Given(value, name, output)
    if output is not None and kind_of(value) == "jax":
        raise given.refused("arrays of jax never change")
    place = place_of_call.get()
    found = _described(given, place)
    if place.device is not None and 0 not in found.shape:  # without elements there may be no address
        device = device_of(value)
        if device.number != place.device.number:
            raise failure(OTHER_DEVICE, name=name, device=device.number, other=place.device.number)
        if device is not place.device:
            raise given.refused(f"it lies in another context of CUDA device {device.number} than the first array")
    if not isinstance(found.dtype, DType):
        raise given.refused("kernels have not its element type")
    if output is not None and found.is_copy:
        raise given.refused("DLPack gives a copy of it")
    view = view_of(found, given)
    if not is_usable(view):
        raise given.refused("a kernel cannot address it")
    return Operand(view, TensorType(found.dtype, found.shape), kind_of(value), view)


def _described(given: Given, place: CallPlace) -> ArrayMemory:
    """Return what a library says of an array."""
    stream = place.stream
    if kind_of(given.value) == "torch":
        return torch_memory(given)
    interface = cuda_interface(given.value)
    if interface is None:
        try:
            return exported(given.value, stream, in_place=given.output is not None)
        except Exception as error:
            raise given.refused(error, "__dlpack__") from error
    found = cuda_memory(given, interface)
    earlier = interface.get("stream")
    if earlier is not None:
        try:
            handle = stream_handle(earlier)
        except Exception as error:
            raise given.refused(f"its stream is a {type_name(earlier)}", CUDA_INTERFACE) from error
        if handle != stream:
            (place.device or driver().device()).follow(stream, handle)
    return found


Maker: TypeAlias = "Callable[[tuple[int, ...], np.dtype[Any]], Any]"


def new_arrays(like: Any) -> Maker:
    """Return what makes arrays, by shape and type, of another one's library and device, for use on the call's stream."""
    make = maker_of(like)

    def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        with as_current(kind_of(like), like, place_of_call.get().stream):
            return make(shape, dtype)

    return empty


def maker_of(like: Any) -> Maker:
    """Return what makes arrays of another one's library and device, for its current stream; it does not keep the other one."""
    library = kind_of(like)

    def made(make: Callable[[], Any]) -> Any:
        try:
            return make()
        except PolykerError:
            raise
        except Exception as error:
            raise failure(NO_RESULT_KIND, library=library, type=type_name(like_type), reason=shown(error)) from error

    like_type, make = type(like), made(lambda: _maker(library, like))
    return lambda shape, dtype: made(lambda: make(shape, dtype))


def _maker(library: str, like: Any) -> Maker:
    module: Any = sys.modules.get(library)
    if library == "torch":
        empty, device = module.empty, like.device
        return lambda shape, dtype: empty(shape, dtype=getattr(module, dtype.name), device=device)
    if library == "numba":
        return lambda shape, dtype: module.cuda.device_array(shape, dtype)
    if library == "pycuda":
        from pycuda import gpuarray  # of which the array is

        return lambda shape, dtype: gpuarray.empty(shape, dtype)
    namespace = getattr(like, "__array_namespace__", None)
    if namespace is not None and library != "jax":
        found = namespace()
        return lambda shape, dtype: found.empty(shape, dtype=dtype)
    if library == "jax" or not hasattr(module, "empty"):
        raise failure(NO_RESULT_ARRAY, library=library)
    return lambda shape, dtype: module.empty(shape, dtype)
