"""Arrays of any library as numpy views without copies, and results in the library of the first argument."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from polyker.errors.base import failure
from polyker.errors.calls import (
    BAD_SCALAR,
    MIXED_KINDS,
    NO_RESULT_KIND,
    NOT_READABLE,
)
from polyker.errors.given import is_a, shown, type_name
from polyker.ir.dtypes import DType, TensorType, bf16, bool_, c128, f64, from_numpy, i64, u64
from polyker.process.jobs import load
from polyker.runtime.kinds import Array, check_extent, is_masked, kind_of, masked_array, short, unknown_type

# Types of numpy's scalars, whose objects end with their value.
NUMBERS: frozenset[type] = frozenset((
    np.bool_, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64,
    np.float16, np.float32, np.float64, np.complex64, np.complex128,
))  # fmt: skip


class Operand(Struct, frozen=True):
    """One argument: its native, aligned view, its type, and the kind of array it came as (None for numbers and lists).

    `original` is the view before any repair of byte order or alignment; results are written back to it.
    """

    array: Array
    type: TensorType
    kind: str | None
    original: Array


def operand(value: object, name: str, output: str | None = None) -> Operand:
    """Return an argument as an operand; `name` stands in errors. Raises ArgumentError, DTypeError, ShapeError.

    `output`: what is written to it, None for an input; only an array's own memory will do then.
    """
    if issubclass(type(value), np.ndarray):
        if is_masked(value):
            raise masked_array(name)
        return _checked(value if type(value) is np.ndarray else np.asarray(value), name, "numpy")
    if issubclass(type(value), np.generic):
        return _checked(np.asarray(value), name, None)
    if is_a(value, (bool, int, float, complex)):
        return _number(value, name)
    if issubclass(type(value), (list, tuple)):
        return _checked(_converted(value, name), name, None)
    load("polyker.runtime.foreign")
    from polyker.runtime.foreign import foreign_view  # for those only who have such arrays

    view, kind = foreign_view(value, name, output)
    return _checked(view, name, kind)


def _number(value: Any, name: str) -> Operand:
    """Return a Python number as a weak scalar (NEP 50); a bool is a plain one, as numpy's."""
    dtype: DType
    kind = bool if type(value) is bool else next((k for k in (int, float) if is_a(value, k)), complex)
    try:
        value = kind(value)
    except Exception as error:
        raise failure(NOT_READABLE, name=name, type=type_name(value), reason=shown(error)) from error
    if kind is bool:
        dtype = bool_
    elif kind is int:
        if not -(1 << 63) <= value < 1 << 64:
            raise failure(BAD_SCALAR, name=name, value=short(value), dtype="i64")
        dtype = i64 if value < 1 << 63 else u64
    else:
        dtype = f64 if kind is float else c128
    array = np.array(value, dtype.numpy)
    return Operand(array, TensorType(dtype, (), weak=dtype is not bool_), None, array)


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
        raise failure(NOT_READABLE, name=name, type=type_name(value), reason=shown(error)) from error


def is_usable(array: Array) -> bool:
    """Whether a kernel can address the array: aligned, and each stride a multiple of the element."""
    size = array.itemsize
    return array.flags.aligned and all(s % size == 0 for s in array.strides)


def native_of(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return an element type in this machine's byte order; one that has none, such as NumPy's StringDType, as it is."""
    try:
        return dtype.newbyteorder("=") if dtype.fields is None else dtype
    except TypeError:
        return dtype


def _checked(array: Array, name: str, kind: str | None) -> Operand:
    """Return the operand of a view, copied where its byte order, alignment or strides are of no use to a kernel."""
    original = array
    dtype = from_numpy(array.dtype)
    if dtype is None:
        native = native_of(array.dtype)
        dtype = from_numpy(native)
        if dtype is None:
            raise unknown_type(name, array.shape, array.dtype)
        check_extent(name, array.shape, array.strides, array.itemsize, dtype)
        array = array.astype(native)
    check_extent(name, array.shape, array.strides, array.itemsize, dtype)
    if not is_usable(array):
        array = array.copy(order="K")
    return Operand(array, TensorType(dtype, array.shape), kind, original)


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
    """Return a fresh result as an array of `kind`, that of the argument `like`; a 0-d numpy result is a scalar.

    It is of the library's own class, where `like` may be of a subclass. Raises ArgumentError where the library makes none.
    """
    if kind == "numpy":
        return array if array.ndim else array[()]
    try:
        return _wrapped(array, kind, like)
    except Exception as error:
        raise failure(NO_RESULT_KIND, library=kind, type=type_name(like), reason=shown(error)) from error


def _wrapped(array: Array, kind: str, like: object) -> Any:
    match kind:
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
            found = _exchanged_copy(array, like)
            if found is not None:
                return found
            namespace = getattr(like, "__array_namespace__", None)
            if namespace is None:
                return array if array.ndim else array[()]
            module = namespace()
            return module.from_dlpack(array) if hasattr(module, "from_dlpack") else module.asarray(array)


def _exchanged_copy(array: Array, like: object) -> Any:
    """Return an array as a new tensor of the library of `like` by its C exchange API, None where it has none."""
    if getattr(type(like), "__dlpack_c_exchange_api__", None) is None:
        return None
    load("polyker.runtime.exchange.classes")
    from polyker.runtime.exchange.classes import exchange_class

    found, dtype = exchange_class(type(like)), from_numpy(array.dtype)
    return None if found is None or dtype is None else found.copied(array, dtype)


class Views(Struct, frozen=True):
    """NumPy's views of the tensors of a call, with the numbers among them, and of its `out`; `like`: the first tensor."""

    inputs: list[Any]
    out: Any
    kind: str
    like: object


def views_of(inputs: Sequence[Any], out: Any) -> Views | None:
    """Return plain tensors of torch, or of a library with the C exchange API of DLPack, as NumPy's views of them.

    None where there is no tensor among the inputs, or anything else: what is to be refused is refused elsewhere.
    """
    like = next((v for v in inputs if type(v) not in _NO_TENSORS and type(v) not in NUMBERS), None)
    if like is None:
        return None
    torch: Any = sys.modules.get("torch")
    classes = () if torch is None or not hasattr(torch, "nn") else (torch.Tensor, torch.nn.Parameter)
    views: dict[int, Array] = {}  # one argument given twice is one array
    several = type(out) is tuple
    given = out if several else () if out is None else (out,)
    try:
        is_torch = type(like) in classes
        if not is_torch and getattr(type(like), "__dlpack_c_exchange_api__", None) is None:
            return None
        if is_torch and torch.autograd.forward_ad._current_level >= 0:
            return None
        if is_torch and any(type(v) in classes and v.is_inference() for v in given):
            return None
        for k, value in enumerate((*inputs, *given)):
            if type(value) in classes if is_torch else type(value) is type(like):
                view = _torch_view(torch, value) if is_torch else _exchange_view(value, is_out=k >= len(inputs))
                if view is None:
                    return None
                views[id(value)] = view
            elif type(value) not in (int, float, complex) and type(value) not in NUMBERS:
                return None
        kind = kind_of(like)
    except Exception:  # it requires grad, lies on a device, has a lazy sign, or a type that numpy has not
        return None
    outs = tuple(views.get(id(v)) for v in given)
    if any(v is None for v in outs):
        return None
    return Views([views.get(id(v), v) for v in inputs], outs if several else outs[0] if given else None, kind, like)


_NO_TENSORS = frozenset((np.ndarray, bool, int, float, complex, list, tuple))


def _torch_view(torch: Any, value: Any) -> Array | None:
    """Return a view of a plain tensor of torch, None where it is to be looked at more closely; raises what torch raises."""
    if value.requires_grad:
        if torch.is_grad_enabled():
            return None
        value = value.detach()
    if value.dtype is torch.bfloat16:
        view: Array | None = None if value.is_neg() else value.view(torch.int16).numpy()
    else:
        view = value.numpy()
    if view is None or (view.flags.owndata and view.size):  # numpy's own memory, where a tensor has none
        return None
    return view.view(bf16.numpy) if value.dtype is torch.bfloat16 else view


def _exchange_view(value: Any, *, is_out: bool) -> Array | None:
    """Return a view of another library's tensor, None where a kernel would read a copy."""
    found = operand(value, "", "out" if is_out else None)
    return found.array if found.array is found.original else None


def note_written(outs: Sequence[Any]) -> None:
    """Tell torch that tensors among these were written to, so that a derivative which needs what they held is refused."""
    torch: Any = sys.modules.get("torch")
    tensors = [out for out in outs if kind_of(out) == "torch"]
    if tensors:
        torch.autograd.graph.increment_version(tensors)


def on_views(
    call: Callable[..., Any], labels: Sequence[str], given: Mapping[str, int], views: Views, out: Any, result_tuple: Any
) -> Any:
    """Return what a call on such views comes to as the caller of the tensors gets it; no `labels`: they go by position."""
    named = dict(zip(labels, views.inputs, strict=True)) if labels else {}
    result = call(*(() if labels else views.inputs), **named, **given, out=views.out)
    if out is not None and views.kind == "torch":
        note_written(out if type(out) is tuple else (out,))
    if result_tuple is None:
        given = out[0] if type(out) is tuple else out
        return wrap(np.asarray(result), views.kind, views.like) if given is None else given
    return result_tuple(*((wrap(np.asarray(r), views.kind, views.like) for r in result) if out is None else out))
