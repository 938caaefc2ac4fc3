"""JAX as it is installed: load it, or say how to install it; its element types, and those that it has not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from polyker.errors.base import failure
from polyker.errors.calls import BAD_DTYPE
from polyker.errors.jax import NO_JAX, WIDE_TYPE
from polyker.ir.dtypes import DType, TensorType, from_numpy
from polyker.process.jobs import load


def load_jax() -> Any:
    """Return the module jax; raises BackendUnavailable, an ImportError, where it is not installed."""
    try:
        load("jax.export")
        load("jax.extend")
        load("jax.experimental.custom_partitioning")
        return load("jax")
    except ImportError as error:
        raise failure(NO_JAX, reason=error) from error


def has_wide_types() -> bool:
    """Whether JAX has 64-bit types now."""
    return bool(load("jax").dtypes.canonicalize_dtype(np.float64) == np.float64)


def is_wide(dtype: DType) -> bool:
    """Whether JAX has an element type only with jax_enable_x64."""
    return dtype.itemsize == (16 if dtype.is_complex else 8)


def check_width(name: str, found: TensorType) -> None:
    """Raise DTypeError for a type that JAX has not now."""
    if is_wide(found.dtype) and not has_wide_types():
        raise failure(WIDE_TYPE, name=name, type=found)


def array_type(array: Any, name: str, named: Callable[[Any], str]) -> TensorType:
    """Return the type of an array or a tracer of JAX's; raises DTypeError for element types that polyker has not.

    `named`: returns the name of an extent that is not known.
    """
    shape = tuple(n if isinstance(n, int) else named(n) for n in array.shape)
    dtype = from_numpy(array.dtype) if isinstance(array.dtype, np.dtype) else None
    if dtype is None:
        raise failure(BAD_DTYPE, name=name, shape=shape, dtype=array.dtype)
    weak = bool(getattr(array, "weak_type", False)) and not shape and dtype.kind != "b"
    return TensorType(dtype, shape, weak)
