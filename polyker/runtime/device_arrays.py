"""Calls of a kernel on a GPU with arrays that lie there already, by `__cuda_array_interface__`: nothing is copied.

The arrays are looked at as NumPy ones of the same addresses, shapes and strides, whose elements nothing here touches.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from polyker.errors.base import failure
from polyker.errors.calls import NOT_READABLE
from polyker.errors.codegen import ON_HOST, OVERLAPS
from polyker.ir.dtypes import TensorType, from_numpy
from polyker.runtime.arguments import check_apart, check_out
from polyker.runtime.arrays import Array, Operand, check_extent, is_usable, kind_of, operand
from polyker.runtime.calls import meaning
from polyker.runtime.compiled import Compiled
from polyker.runtime.cuda_driver import driver
from polyker.runtime.memory import address, overlap, reach

INTERFACE = "__cuda_array_interface__"


def lies_on_device(values: Sequence[Any]) -> bool:
    """Return whether some of the values are arrays on a CUDA device."""
    return any(
        hasattr(type(v), INTERFACE) and not isinstance(v, np.ndarray) and _interface(v) is not None for v in values
    )


def _interface(value: Any) -> Mapping[str, Any] | None:
    try:
        found: Mapping[str, Any] | None = getattr(value, INTERFACE, None)
    except Exception:  # torch: no tensor of the CPU has one
        return None
    return found


def device_operand(value: Any, name: str) -> Operand:
    """Return an array on the device as an operand; numbers stay where they are.

    Raises ArgumentError for an array of the host, and for one that no kernel can address.
    """
    if isinstance(value, (bool, int, float, complex, np.generic)):
        return operand(value, name)
    interface = _interface(value)
    if interface is None:
        raise failure(ON_HOST, name=name)
    shape, dtype = tuple(interface["shape"]), np.dtype(interface["typestr"])
    pointer, read_only = interface["data"]
    strides = interface.get("strides") or tuple(
        dtype.itemsize * int(np.prod(shape[d + 1 :])) for d in range(len(shape))
    )
    low, high = reach(shape, strides, dtype.itemsize)
    block: Any = (ctypes.c_char * max(1, high - low)).from_address((pointer or 1) + low)
    view: Array = np.ndarray(shape, dtype, block, -low, strides)
    view.flags.writeable = not read_only
    kind = from_numpy(dtype)
    if kind is None or interface.get("mask") is not None or not is_usable(view):
        raise failure(NOT_READABLE, name=name, type=type(value).__name__, reason="a kernel cannot address it")
    check_extent(name, shape, strides, dtype.itemsize, kind)
    return Operand(view, TensorType(kind, shape), kind_of(value), view)


def call_on_device(
    compiled: Compiled,
    labels: tuple[Sequence[str], Sequence[str]],
    inputs: Sequence[Any],
    given: Mapping[str, int],
    outs: Sequence[Any],
    scratch_limit: int | None,
) -> list[Any]:
    """Run a kernel on arrays of the device and return the outputs: those of `outs`, else new ones of the first array's library.

    `labels`: the names of inputs and outputs. Raises as a call on the host does.
    """
    operands = [device_operand(v, n) for n, v in zip(labels[0], inputs, strict=True)]
    first = next(v for v in (*inputs, *outs) if _interface(v) is not None)
    typed, values = compiled.typed, compiled.sizes(operands, given)
    compiled.check(values)
    arrays, results = compiled.converted(operands), compiled.results(values)
    found = [
        _empty(first, shape, dtype) if out is None else out for out, (shape, dtype) in zip(outs, results, strict=True)
    ]
    places = [device_operand(v, n) for n, v in zip(labels[1], found, strict=True)]
    own = {k: typed.inputs.index(n) for k, n in enumerate(typed.outputs) if n in typed.inputs}
    for k, (name, place, tensor) in enumerate(zip(labels[1], places, typed.outputs, strict=True)):
        check_out(name, place, results[k][0], typed.tensor(tensor).dtype)
        for i, array in enumerate(arrays):
            same = i == own.get(k) and address(array) == address(place.array) and array.strides == place.array.strides
            if overlap(place.array, array) and not same:
                raise failure(OVERLAPS, name=name, other=labels[0][i])
    targets = [p.array for p in places]
    check_apart(labels[1], targets)
    plan = compiled.plan(values, arrays, results, targets, scratch_limit)
    for k, i in plan.copies:
        _copy(targets[k], arrays[i], labels[1][k])
    pointers = [address(arrays[i]) for i in plan.inputs] + [address(t) for t in targets]
    resident = [not operands[i].type.weak and operands[i].kind is not None for i in plan.inputs] + [True] * len(targets)
    status = plan.function.on_device(pointers, plan.integers, resident)  # type: ignore[attr-defined]
    if status:
        raise meaning(plan.artifact.guards, status)
    return found


def _copy(target: Array, source: Array, name: str) -> None:
    """Let an in-out tensor start from its argument."""
    if address(target) == address(source):
        return
    if not (target.flags.c_contiguous and source.flags.c_contiguous):
        raise failure(
            NOT_READABLE, name=name, type="array", reason="an in-out array that is copied on a device has to be dense"
        )
    driver().copy_device(address(target), address(source), source.nbytes)


def _empty(like: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    """Return a new array of the library, and on the device, of another."""
    module = sys.modules[kind_of(like)]
    if module.__name__ == "torch":
        return module.empty(shape, dtype=getattr(module, dtype.name), device=like.device)
    return module.empty(shape, dtype)
