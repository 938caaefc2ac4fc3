"""Extents of a call: the values of a kernel's sizes, and results whose extents are expressions of JAX's, not known numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from polyker.errors.base import failure
from polyker.errors.jax import UNKNOWN_EXTENT
from polyker.ir.dtypes import TensorType
from polyker.record.forms import value
from polyker.record.records import CallRecord, KernelRecord

_ALIGNMENT = 64  # of each temporary, in bytes


def sizes_of(record: CallRecord, shapes: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """Return the values of symbolic sizes, which extents of the inputs are."""
    found: dict[str, Any] = {}
    for name, shape in zip(record.inputs, shapes, strict=True):
        for extent, actual in zip(record.tensor(name).shape, shape, strict=True):
            if isinstance(extent, str):
                found.setdefault(extent, actual)
    return found


def results_of(record: CallRecord, shapes: Sequence[Sequence[Any]]) -> tuple[TensorType, ...]:
    """Return the types of the outputs for inputs of such shapes, whose extents may be expressions of JAX's.

    Raises ShapeError where an extent of an output is no expression of these.
    """
    sizes, found = sizes_of(record, shapes), []
    for tensor in map(record.tensor, record.outputs):
        try:
            shape = tuple(value(extent, sizes) for extent in tensor.shape)
        except Exception as error:  # of a comparison that JAX cannot decide
            given = ", ".join(
                f"{record.tensor(n).label}: {tuple(s)}" for n, s in zip(record.inputs, shapes, strict=True)
            )
            raise failure(UNKNOWN_EXTENT, name=tensor.label, shapes=given, reason=error) from error
        found.append(TensorType(tensor.dtype, shape))
    return tuple(found)


def bytes_in_order(record: KernelRecord, sizes: Mapping[str, Any]) -> Any:
    """Return the bytes of the temporaries where one lies after the other, as the handler of any sizes puts them."""
    total: Any = 0
    for tensor in record.scratch:
        size = prod(value(extent, sizes) for extent in tensor.shape) * tensor.dtype.itemsize
        total = total + (size + _ALIGNMENT - 1) // _ALIGNMENT * _ALIGNMENT
    return total
