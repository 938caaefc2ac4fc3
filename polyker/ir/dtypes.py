"""Element types, what other libraries call them, and tensor types such as `f32[64, 32]` or `f32["M", "K"]`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, ClassVar

import numpy as np
from msgspec import Struct

from polyker.errors.base import failure
from polyker.errors.calls import BAD_ARGUMENT, BAD_DIMENSION
from polyker.errors.given import exact_text, integer, is_a, printed, type_name
from polyker.errors.tracebacks import api_boundary
from polyker.process.jobs import load
from polyker.structs import PartlyCompared


class DType(Struct, frozen=True, eq=False):
    """An element type: its name in the notation, its kind (b, i, u, f or c, as numpy's) and its size in bytes.

    There is one of each: they are compared, and hashed, by identity, which a compiler does at every node of every expression.
    """

    name: str
    kind: str
    itemsize: int

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Callable[[str], DType], tuple[str]]:
        return _named, (self.name,)

    def __copy__(self) -> DType:
        return self

    def __deepcopy__(self, memo: object) -> DType:
        return self

    @api_boundary
    def __getitem__(self, shape: object) -> TensorType:
        """`f32[8, 4]`, `f32["M", 4]`, `f32[()]`: a tensor type of this element type; sizes are ints or names."""
        dims = shape if isinstance(shape, tuple) else (shape,)
        return TensorType(self, tuple(_dimension(d) for d in dims))

    @api_boundary
    def __call__(self, value: Any) -> Any:
        """`f32(x)`: a cast of an expression of the builder; raises ArgumentError for anything else."""
        if not (hasattr(type(value), "expr") and hasattr(type(value), "astype")):
            wanted = "an expression of the builder"
            raise failure(BAD_ARGUMENT, name=f"{self.name}(...)", type=type(value).__name__, wanted=wanted)
        return value.astype(self)

    @property
    def numpy(self) -> np.dtype[Any]:
        """The numpy dtype; bf16 needs the package ml_dtypes."""
        return _numpy_dtype(self.name)

    @property
    def is_float(self) -> bool:
        """Whether it is a real floating-point type."""
        return self.kind == "f"

    @property
    def is_integer(self) -> bool:
        """Whether it is a signed or unsigned integer type (bool is not)."""
        return self.kind in "iu"

    @property
    def is_complex(self) -> bool:
        """Whether it is complex."""
        return self.kind == "c"

    @property
    def real(self) -> DType:
        """The type of the real part: itself unless complex."""
        return {"c64": f32, "c128": f64}.get(self.name, self)


_MOST_BITS = 128  # of an extent that is worth an error of its own, with the tensor's name
_NAME = re.compile("[A-Za-z_][A-Za-z_0-9]*")  # of a size


def _dimension(size: object) -> int | str:
    text, number = exact_text(size), integer(size)
    if text is not None and _NAME.fullmatch(text):
        return text
    if number is not None and number.bit_length() <= _MOST_BITS:
        return number
    raise failure(BAD_DIMENSION, value=printed(size)[:64])


class TensorType(PartlyCompared, frozen=True):
    """Element type and shape of a tensor; a dimension is an int or the name of a symbolic size.

    `weak` marks a 0-d tensor that a Python scalar gives: it takes part in promotion as NEP 50's weak scalars do. `ranges` are
    of an inferred output: a line for each index of the program, with its values and what bounded it.
    """

    UNCOMPARED: ClassVar = frozenset({"ranges"})

    dtype: DType
    shape: tuple[int | str, ...]
    weak: bool = False
    ranges: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"{self.dtype.name}[{', '.join(map(str, self.shape))}]"

    def to_json(self) -> str:
        """Return the type as JSON, which is taken wherever a type is, as text or parsed: element type, shape, and `weak` if so.

        >>> f32[8, "N"].to_json()
        '{"dtype":"f32","shape":[8,"N"]}'
        """
        weak = {"weak": True} if self.weak else {}
        return json.dumps({"dtype": self.dtype.name, "shape": self.shape, **weak}, separators=(",", ":"))


bool_ = DType("bool", "b", 1)
i8, i16, i32, i64 = (DType(f"i{8 * n}", "i", n) for n in (1, 2, 4, 8))
u8, u16, u32, u64 = (DType(f"u{8 * n}", "u", n) for n in (1, 2, 4, 8))
f16, f32, f64 = (DType(f"f{8 * n}", "f", n) for n in (2, 4, 8))
bf16 = DType("bf16", "f", 2)
c64, c128 = DType("c64", "c", 8), DType("c128", "c", 16)

DTYPES: dict[str, DType] = {
    d.name: d for d in (f16, bf16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, bool_, c64, c128)
}


def _named(name: str) -> DType:
    return DTYPES[name]


_NUMPY_NAMES = {
    "f16": "float16", "f32": "float32", "f64": "float64", "bool": "bool", "c64": "complex64", "c128": "complex128",
    **{f"i{b}": f"int{b}" for b in (8, 16, 32, 64)}, **{f"u{b}": f"uint{b}" for b in (8, 16, 32, 64)},
}  # fmt: skip
_FROM_NUMPY = {v: k for k, v in _NUMPY_NAMES.items()} | {"bfloat16": "bf16"}


@cache
def _numpy_dtype(name: str) -> np.dtype[Any]:
    if name == "bf16":
        found: np.dtype[Any] = np.dtype(load("ml_dtypes").bfloat16)
        return found
    return np.dtype(_NUMPY_NAMES[name])


def from_numpy(dtype: np.dtype[Any]) -> DType | None:
    """Return the element type of a native-endian numpy dtype, or None where polyker has none for it."""
    if dtype.byteorder not in "=|" or dtype.fields is not None:
        return None
    name = _FROM_NUMPY.get(dtype.name)
    return DTYPES[name] if name else None


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
    if is_a(value, DType):
        return value
    text = exact_text(value)
    if text is not None:
        return DTYPES.get(TYPE_NAMES.get(text, text) if _FULL.match(text) else text)
    try:
        if is_a(value, np.dtype) or (is_a(value, type) and _is_number(value)):
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


def type_of_json(text: str | Mapping[str, object]) -> TensorType:
    """Return the type that `TensorType.to_json` wrote, from its text or the dict in it; raises ValueError for anything else.

    >>> type_of_json({"dtype": "f32", "shape": [8, "N"]})
    f32[8, N]
    """
    try:
        said = dict(json.loads(text) if isinstance(text, str) else text)
        dtype, shape, weak = DTYPES[said.pop("dtype")], tuple(said.pop("shape")), said.pop("weak", False)
        if said or type(weak) is not bool or not all(_is_extent(d) for d in shape):
            raise ValueError("another field, or another kind of value")
    except Exception as error:  # of whatever a mapping does
        raise ValueError(f"not the JSON of a tensor type: {error}") from None
    return TensorType(dtype, shape, weak)


def _is_extent(dimension: object) -> bool:
    """Whether JSON has a whole number or the name of a size."""
    if type(dimension) is str:
        return _NAME.fullmatch(dimension) is not None
    return type(dimension) is int and dimension >= 0 and dimension.bit_length() <= _MOST_BITS


def parse_type(text: str) -> TensorType:
    """Read `f32[64,32]`, `f32[M,K]` or `f32[]`, or JSON of these; raises ValueError on anything else.

    >>> parse_type("f32[64,K]")
    f32[64, K]
    """
    if text.lstrip().startswith("{"):
        return type_of_json(text)
    head, bracket, rest = text.strip().partition("[")
    if head not in DTYPES or not bracket or not rest.endswith("]"):
        raise ValueError(f"not a tensor type: {text!r}; write for example f32[64,32]")
    parts: Sequence[str] = [p.strip() for p in rest[:-1].split(",")] if rest[:-1].strip() else []
    if not all(p.isdigit() or _NAME.fullmatch(p) for p in parts):
        raise ValueError(f"not a tensor type: {text!r}; an extent is a whole number or a name")
    return TensorType(DTYPES[head], tuple(int(p) if p.isdigit() else p for p in parts))
