"""What other libraries call the element types, and the objects by which they name them."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from polyker.errors.given import exact_text, type_name
from polyker.ir.dtypes import DTYPES, DType, from_numpy

# Names of NumPy, torch, JAX and C; `float` is C's and torch's, `int` Python's.
TYPE_NAMES = {
    **{f"{kind}{bits}": f"{kind[0]}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)},
    **{f"{kind}{bits}": f"f{bits}" for kind in ("float", "fp") for bits in (16, 32, 64)},
    "half": "f16", "bfloat16": "bf16", "float": "f32", "single": "f32", "double": "f64", "int": "i64", "long": "i64",
    "uint": "u64", "byte": "i8", "ubyte": "u8", "short": "i16", "ushort": "u16", "intc": "i32", "uintc": "u32",
    "bool_": "bool", "boolean": "bool", "complex64": "c64", "complex128": "c128", "cfloat": "c64", "cdouble": "c128",
    "complex": "c128",
}  # fmt: skip
# NumPy's codes, which count bytes where the notation's names count bits.
_CODES = {
    **{f"{kind}{size}": f"{kind}{8 * size}" for kind in "iu" for size in (1, 2, 4, 8)},
    "f2": "f16", "f4": "f32", "f8": "f64", "c8": "c64", "c16": "c128", "b1": "bool", "?": "bool",
}  # fmt: skip
_FULL = re.compile(r"(?:bool|bfloat16|(?:u?int|float|complex)\d+)\Z")


def dtype_of(value: object) -> DType | None:
    """Return the element type that an object stands for, None for one of none.

    That is one of polyker's or its name, one of NumPy's, torch's or JAX's or its full name, or a Python type of numbers.
    """
    if isinstance(value, DType):
        return value
    text = exact_text(value)
    if text is not None:
        return DTYPES.get(TYPE_NAMES.get(text, text) if _FULL.match(text) else text)
    try:
        if isinstance(value, np.dtype) or (isinstance(value, type) and _is_number(value)):
            found: Any = value
            return from_numpy(np.dtype(found))
        module, _, name = str(value).rpartition(".") if type_name(value) == "dtype" else ("", "", "")
    except Exception:  # of a class whose methods raise
        return None
    return DTYPES.get(TYPE_NAMES.get(name, name)) if module == "torch" else None


def _is_number(cls: type) -> bool:
    """Whether a class is one of numbers: Python's, NumPy's, or JAX's, which has a dtype."""
    known = cls in (bool, int, float, complex) or issubclass(cls, np.generic)
    return known or isinstance(getattr(cls, "dtype", None), np.dtype)


def meant_type(text: str) -> str | None:
    """Return the element type that a text of another library names, such as "np.float32", "<f4" or "'u8'"; None for any other.

    A code such as `u8` that is a name of the notation, too, is NumPy's only in quotes or with a byte order.

    >>> meant_type("float32"), meant_type("f4"), meant_type("u8"), meant_type("'u8'")
    ('f32', 'f32', None, 'u64')
    """
    bare = text.strip().strip("'\"")
    code = re.fullmatch(r"([<>=|]?)(\w+|\?)", bare.rpartition(".")[2])
    if code is None:
        return None
    marked, name = bare != text.strip() or bool(code.group(1)), code.group(2)
    if name in _CODES and (marked or name not in DTYPES):
        return _CODES[name]
    return TYPE_NAMES.get(name) or (name if marked and name in DTYPES else None)
