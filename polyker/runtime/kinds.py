"""Which library an array is of, and why one cannot be used."""

from __future__ import annotations

import sys
from typing import Any, TypeAlias

import numpy as np

from polyker.errors.base import failure
from polyker.errors.calls import ACCEPTED_TYPES, BAD_DTYPE, MASKED, TOO_LARGE
from polyker.errors.given import is_a, of_class
from polyker.ir.dtypes import DType

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

# Extents, element counts and byte offsets stay below it, so that no 64-bit product of the kernel wraps.
EXTENT_LIMIT = 1 << 62
# The class of each library's arrays. Where the library is not loaded there is none, and nothing here loads it.
_CLASSES = {"torch": "Tensor", "jax": "Array", "cupy": "ndarray"}
_PROTOCOLS = ("__dlpack__", "__cuda_array_interface__")


def kind_of(value: object) -> str:
    """Return the library that an array belongs to.

    A subclass belongs to its base's library, wherever it is defined. What only says that it is of a known library is of one
    of its own.
    """
    if is_a(value, (np.ndarray, np.generic)):
        return "numpy"
    for library, name in _CLASSES.items():
        found = getattr(sys.modules.get(library), name, None)
        if isinstance(found, type) and is_a(value, found):
            return library
    bases = of_class(type(value), "__mro__")
    owner = next((c for c in bases if any(p in of_class(c, "__dict__") for p in _PROTOCOLS)), bases[0])
    module = of_class(owner, "__module__")
    root = module.partition(".")[0] if isinstance(module, str) else ""
    return f"{root}.{of_class(owner, '__name__')}" if root in (*_CLASSES, "jaxlib", "numpy") else root


def is_masked(value: object) -> bool:
    """Whether a value is one of NumPy's masked arrays."""
    return "numpy.ma" in sys.modules and is_a(value, np.ma.MaskedArray)


def short(value: int) -> str:
    """Return an integer as errors show it."""
    # The decimal digits of a huge int take quadratic time, and more than 4300 are refused.
    return str(value) if abs(value) < 1 << 128 else f"an integer of {value.bit_length()} bits"


def _variable(name: str) -> str:
    """Return what hints call an argument."""
    return name if name.isidentifier() else "x"


def masked_array(name: str) -> Exception:
    """Return the error of one of NumPy's masked arrays."""
    return failure(MASKED, name=name, array=_variable(name))


def unknown_type(name: str, shape: object, dtype: object) -> Exception:
    """Return the error of an array of an element type that polyker does not have, with what to give in its place."""
    x, hint = _variable(name), None
    if isinstance(dtype, np.dtype):
        if dtype.kind in "mM":
            hint = (
                f"compute with its integers, `{x}.view('i8')`; a result that holds times is `.view('{dtype.str[1:]}')`"
            )
        elif dtype.fields:
            hint = f"give one of its fields: `{x}[{next(iter(dtype.fields))!r}]`"
        elif dtype.kind in "USTO":
            hint = f"if its elements are numbers, give `{x}.astype('f8')`"
        elif dtype.kind in "fc":
            hint = f"round it: `{x}.astype('{'f8' if dtype.kind == 'f' else 'c16'}')`"
    hint = hint and f"{hint}; accepted are {ACCEPTED_TYPES}"
    return failure(BAD_DTYPE, hint=hint, name=name, shape=shape, dtype=dtype)


def check_extent(name: str, shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int, dtype: DType) -> None:
    """Refuse what an index of 64 bits might not address; shapes, strides and products are Python ints."""
    elements, reach = 1, itemsize
    for extent, stride in zip(shape, strides, strict=True):
        elements *= extent
        reach += max(extent - 1, 0) * abs(stride)
    total = max(elements * itemsize, reach)
    if total >= EXTENT_LIMIT or any(extent >= EXTENT_LIMIT for extent in shape):
        raise failure(TOO_LARGE, name=name, shape=shape, dtype=dtype, bytes=short(total))
