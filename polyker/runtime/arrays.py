"""Arrays of any library as numpy views without copies, and results in the library of the first argument."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from polyker.errors.base import failure
from polyker.errors.calls import (
    BAD_DTYPE,
    BAD_SCALAR,
    MASKED,
    MIXED_KINDS,
    NOT_AN_ARRAY,
    NOT_READABLE,
    ON_DEVICE,
    REQUIRES_GRAD,
    TOO_LARGE,
)
from polyker.ir.dtypes import DType, TensorType, bool_, c128, f64, from_numpy, i64, u64

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

LIMIT = 1 << 62  # extents, element counts and byte offsets stay below it, so that no 64-bit product of the kernel wraps
_CPU_DEVICES = (1, 3, 13)  # DLPack: CPU, pinned by CUDA, managed by CUDA
_DEVICES = {2: "a CUDA device", 4: "an OpenCL device", 7: "a Vulkan device", 8: "Metal", 10: "a ROCm device"}
# Types of numpy's scalars, whose objects end with their value.
NUMBERS: frozenset[type] = frozenset((
    np.bool_, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64,
    np.float16, np.float32, np.float64, np.complex64, np.complex128,
))  # fmt: skip


@dataclass(frozen=True, slots=True)
class Operand:
    """One argument: its native, aligned view, its type, and the kind of array it came as (None for numbers and lists).

    `original` is the view before any repair of byte order or alignment; results are written back to it.
    """

    array: Array
    type: TensorType
    kind: str | None
    original: Array


def operand(value: object, name: str) -> Operand:
    """Return an argument as an operand; `name` stands in errors. Raises ArgumentError, DTypeError, ShapeError."""
    if isinstance(value, np.ndarray):
        if "numpy.ma" in sys.modules and isinstance(value, np.ma.MaskedArray):
            raise failure(MASKED, name=name)
        return _checked(value if type(value) is np.ndarray else np.asarray(value), name, "numpy")
    if isinstance(value, np.generic):
        return _checked(np.asarray(value), name, None)
    if isinstance(value, (bool, int, float, complex)):
        return _number(value, name)
    if isinstance(value, (list, tuple)):
        return _checked(_converted(value, name), name, None)
    return _checked(*_foreign(value, name))


def _number(value: complex, name: str) -> Operand:
    """Return a Python number as a weak scalar (NEP 50); a bool is a plain one, as numpy's."""
    dtype: DType
    if isinstance(value, bool):
        dtype = bool_
    elif isinstance(value, int):
        if not -(1 << 63) <= value < 1 << 64:
            raise failure(BAD_SCALAR, name=name, value=_short(value), dtype="i64")
        dtype = i64 if value < 1 << 63 else u64
    else:
        dtype = f64 if isinstance(value, float) else c128
    array = np.array(value, dtype.numpy)
    return Operand(array, TensorType(dtype, (), weak=dtype is not bool_), None, array)


def _short(value: int) -> str:
    # The decimal digits of a huge int take quadratic time, and more than 4300 are refused.
    return str(value) if abs(value) < 1 << 128 else f"an integer of {value.bit_length()} bits"


def scalar_as(value: Operand, dtype: DType, name: str) -> Array:
    """Return a weak scalar in the type that the program gave it; raises DTypeError where the value does not fit."""
    if value.type.dtype == dtype:
        return value.array
    number = value.array.item()
    if dtype.is_integer and not isinstance(number, (bool, int)):
        raise failure(BAD_SCALAR, name=name, value=number, dtype=dtype)
    try:
        with np.errstate(over="ignore"):
            return np.array(number, dtype.numpy)
    except (OverflowError, TypeError) as error:
        raise failure(BAD_SCALAR, name=name, value=number, dtype=dtype) from error


def _converted(value: object, name: str) -> Array:
    try:
        return np.asarray(value)
    except Exception as error:
        raise failure(NOT_READABLE, name=name, type=type(value).__name__, reason=error) from error


def kind_of(value: object) -> str:
    """Return the library that a foreign array belongs to."""
    root = type(value).__module__.partition(".")[0]
    return "jax" if root == "jaxlib" else root


def _foreign(value: object, name: str) -> tuple[Array, str, str | None]:
    """Return (numpy view, name, kind) of an array of another library."""
    kind = kind_of(value)
    if kind == "torch" and hasattr(value, "requires_grad"):
        return _torch_view(value, name), name, kind
    if getattr(value, "__cuda_array_interface__", None) is not None:
        raise failure(ON_DEVICE, name=name, device="a CUDA device")
    if hasattr(value, "__dlpack__"):
        return _dlpack_view(value, name), name, kind
    if hasattr(value, "__array_interface__") or hasattr(value, "__array__"):
        return _converted(value, name), name, "numpy"
    return _converted(_buffer(value, name), name), name, "numpy"


def _buffer(value: Any, name: str) -> memoryview:
    """Return the memory of what has the buffer protocol, such as array.array; bytes are rather text than numbers."""
    if not isinstance(value, (bytes, bytearray)):
        try:
            return memoryview(value)
        except (TypeError, ValueError):  # ValueError: one that was released
            pass
    raise failure(NOT_AN_ARRAY, name=name, type=type(value).__name__)


def _torch_view(tensor: Any, name: str) -> Array:
    if tensor.requires_grad:
        raise failure(REQUIRES_GRAD, name=name)
    if tensor.device.type != "cpu":
        raise failure(ON_DEVICE, name=name, device=tensor.device)
    torch = sys.modules["torch"]
    try:
        plain = tensor.resolve_conj().resolve_neg()
        if plain.dtype is torch.bfloat16:
            import ml_dtypes

            view: Array = plain.view(torch.int16).numpy()
            return view.view(ml_dtypes.bfloat16)
        return plain.numpy()  # type: ignore[no-any-return]
    except (RuntimeError, TypeError) as error:
        raise failure(NOT_READABLE, name=name, type="torch tensor", reason=error) from error


def _dlpack_view(value: Any, name: str) -> Array:
    device = getattr(value, "__dlpack_device__", None)
    number = int(device()[0]) if device is not None else 1
    if number not in _CPU_DEVICES:
        raise failure(ON_DEVICE, name=name, device=_DEVICES.get(number, f"a device of DLPack type {number}"))
    try:
        return np.from_dlpack(value)
    except Exception as error:
        # DLPack knows types that numpy has not (bfloat16); libraries that have __array__ bring their own for these.
        if hasattr(value, "__array__"):
            return _converted(value, name)
        raise failure(NOT_READABLE, name=name, type=type(value).__name__, reason=error) from error


def is_usable(array: Array) -> bool:
    """Whether a kernel can address the array: aligned, and each stride a multiple of the element."""
    size = array.itemsize
    return array.flags.aligned and all(s % size == 0 for s in array.strides)


def _checked(array: Array, name: str, kind: str | None) -> Operand:
    """Return the operand of a view, copied where its byte order, alignment or strides are of no use to a kernel."""
    original = array
    dtype = from_numpy(array.dtype)
    if dtype is None:
        native = array.dtype.newbyteorder("=") if array.dtype.fields is None else array.dtype
        dtype = from_numpy(native)
        if dtype is None:
            raise failure(BAD_DTYPE, name=name, shape=array.shape, dtype=array.dtype)
        check_extent(name, array.shape, array.strides, array.itemsize, dtype)
        array = array.astype(native)
    check_extent(name, array.shape, array.strides, array.itemsize, dtype)
    if not is_usable(array):
        array = array.copy(order="K")
    return Operand(array, TensorType(dtype, array.shape), kind, original)


def check_extent(name: str, shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int, dtype: DType) -> None:
    """Refuse what an index of 64 bits might not address; shapes, strides and products are Python ints."""
    elements, reach = 1, itemsize
    for extent, stride in zip(shape, strides, strict=True):
        elements *= extent
        reach += max(extent - 1, 0) * abs(stride)
    total = max(elements * itemsize, reach)
    if total >= LIMIT or any(extent >= LIMIT for extent in shape):
        raise failure(TOO_LARGE, name=name, shape=shape, dtype=dtype, bytes=_short(total))


def common_kind(operands: list[tuple[str, Operand]]) -> str:
    """Return the one kind of the arrays, numpy if there is none; raises ArgumentError where kinds are mixed."""
    found: tuple[str, str] | None = None
    for name, value in operands:
        if value.kind is None:
            continue
        if found is None:
            found = name, value.kind
        elif found[1] != value.kind:
            raise failure(MIXED_KINDS, first=found[0], first_kind=found[1], second=name, second_kind=value.kind)
    return found[1] if found else "numpy"


def wrap(array: Array, kind: str, like: object) -> Any:
    """Return a fresh result as an array of `kind`, that of the argument `like`; a 0-d numpy result is a scalar."""
    match kind:
        case "numpy":
            return array if array.ndim else array[()]
        case "torch":
            torch = sys.modules["torch"]
            if array.dtype.name == "bfloat16":
                return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
            return torch.from_numpy(array)
        case "jax":
            # Not jnp.asarray: it turns 64-bit types into 32-bit ones unless told otherwise.
            jax = sys.modules["jax"]
            if array.dtype.name == "bfloat16":
                return jax.numpy.asarray(array)
            return jax.dlpack.from_dlpack(array)
        case _:
            namespace = getattr(like, "__array_namespace__", None)
            if namespace is None:
                return array if array.ndim else array[()]
            module = namespace()
            return module.from_dlpack(array) if hasattr(module, "from_dlpack") else module.asarray(array)


def torch_views(inputs: Sequence[Any], out: Any) -> tuple[list[Any], Any] | None:
    """Return plain tensors of torch as numpy's views of them, with the numbers among them, and `out`.

    None where there is no tensor among the inputs, or anything else: what is to be refused is refused elsewhere.
    """
    torch = sys.modules.get("torch")
    tensor = getattr(torch, "Tensor", None)
    if tensor is None or not any(type(v) is tensor for v in inputs):
        return None
    views: dict[int, Array] = {}  # one argument given twice is one array
    several = type(out) is tuple
    given = out if several else () if out is None else (out,)
    for value in (*inputs, *given):
        if type(value) is tensor:
            try:
                views[id(value)] = value.numpy()
            except (RuntimeError, TypeError):  # it requires grad, lies on a device, or has a type that numpy has not
                return None
        elif type(value) not in (int, float, complex) and type(value) not in NUMBERS:
            return None
    outs = tuple(views.get(id(v)) for v in given)
    if any(v is None for v in outs):
        return None
    return [views.get(id(v), v) for v in inputs], outs if several else outs[0] if given else None


def on_torch(
    call: Callable[..., Any],
    labels: Sequence[str],
    given: Mapping[str, int],
    views: tuple[list[Any], Any],
    out: Any,
    result_tuple: Any,
) -> Any:
    """Return what a call on such views comes to as the caller of the tensors gets it; no `labels`: they go by position."""
    inputs, named = views[0], dict(zip(labels, views[0], strict=True)) if labels else {}
    result = call(*(() if labels else inputs), **named, **given, out=views[1])
    if result_tuple is None:
        return wrap(np.asarray(result), "torch", None) if out is None else out
    return result_tuple(*((wrap(np.asarray(r), "torch", None) for r in result) if out is None else out))
