"""Match what a caller gives to the parameters and outputs of a program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from polyker.errors.base import PolykerError, failure
from polyker.errors.calls import (
    BAD_SIZE,
    GIVEN_TWICE,
    MISSING,
    NOT_READABLE,
    OUT_COUNT,
    OUT_DTYPE,
    OUT_NOT_ARRAY,
    OUT_OVERLAPS_ITSELF,
    OUT_READ_ONLY,
    OUT_SHAPE,
    OUTS_OVERLAP,
    TOO_MANY,
    UNKNOWN_NAME,
)
from polyker.errors.given import integer, is_a, printed, shown, type_name
from polyker.errors.spelling import suggestion
from polyker.ir.dtypes import DType, from_numpy
from polyker.options import NAMES
from polyker.record.records import Signature
from polyker.runtime.arrays import Operand, common_kind, operand
from polyker.runtime.kinds import EXTENT_LIMIT, Array
from polyker.runtime.memory import overlap, overlaps_itself

_KEYWORDS = ("out", "stream", "target", "schedule", "auto", "seconds")  # of calls and compiles, beside the options


def names(items: Sequence[str]) -> str:
    """Return names for a message."""
    return ", ".join(f"`{item}`" for item in items) or "none"


def matched(
    signature: Signature, args: Sequence[object], named: Mapping[str, object]
) -> tuple[list[object], dict[str, object]]:
    """Return (one value an input, in order; the sizes given) of a call; raises ArgumentError on what does not fit."""
    if len(args) > len(signature.parameters):
        raise failure(
            TOO_MANY, given=len(args), count=len(signature.parameters), parameters=names(signature.parameters)
        )
    values = dict(zip(signature.parameters, args, strict=False))
    for name, value in named.items():
        if name in values:
            raise failure(GIVEN_TWICE, name=name)
        if name not in signature.parameters and name not in signature.sizes:
            raise _unknown(signature, name)
        values[name] = value
    for name in signature.parameters:
        if name not in values:
            raise failure(MISSING, name=name, parameters=names(signature.parameters))
    inputs = [values.pop(name) for name in signature.inputs]
    return inputs, values


def _unknown(signature: Signature, name: str) -> PolykerError:
    """Return the error for a keyword that is neither the program's nor an option here."""
    known, sizes = names(signature.parameters), names(signature.sizes)
    meant = suggestion(name, (*signature.parameters, *signature.sizes, *_KEYWORDS, *NAMES))
    return failure(UNKNOWN_NAME, name=name, meant=meant, parameters=known, sizes=sizes, options=", ".join(NAMES))


def size_value(name: str, value: object) -> int:
    """Return a size as an int from 0 up to 2^62; raises ArgumentError."""
    number = integer(value)
    if number is not None and 0 <= number < EXTENT_LIMIT:
        return number
    raise failure(BAD_SIZE, size=name, value=printed(value if number is None else number))


def given_outs(outputs: Sequence[str], out: object) -> list[object]:
    """Return one array or None for each output, from `out` as an array, a tuple or list, or a dict.

    Raises ArgumentError where it is not of so many outputs.
    """
    if out is None:
        return [None] * len(outputs)
    several = issubclass(type(out), (tuple, list))
    found: dict[object, object] | list[object]
    try:
        if issubclass(type(out), Mapping):
            found = dict(cast(Mapping[object, object], out))
        else:
            found = list(cast(Sequence[object], out)) if several else [out]
    except Exception as error:
        raise failure(NOT_READABLE, name="out", type=type_name(out), reason=shown(error)) from error
    if isinstance(found, dict):
        if all(name in outputs for name in found):
            return [found.get(name) for name in outputs]
        raise failure(OUT_COUNT, given="a dict of " + names([shown(n) for n in found]), outputs=names(outputs))
    if len(found) == len(outputs) and (several or len(outputs) == 1):
        return found
    if len(outputs) > 1:
        raise failure(OUT_COUNT, given=f"a {type_name(out)}" + f" of {len(found)}" * several, outputs=names(outputs))
    return [out]


def out_operand(value: object, name: str) -> Operand:
    """Return an array to write into as an operand; `original` is the view that the result has to reach.

    Raises ArgumentError for what is no array or is not its own memory, DTypeError for other element types.
    """
    number = is_a(value, (np.generic, bool, int, float, complex))
    if value is None or number or is_a(value, (str, bytes, bytearray, memoryview, list, tuple)):
        raise failure(OUT_NOT_ARRAY, name=name, type=type_name(value))
    return operand(value, "out", name)


def operands_of(
    signature: Signature, inputs: Sequence[object], out: object
) -> tuple[list[Operand], list[Operand | None], list[object], str]:
    """Return inputs and outputs as operands, the outputs as they were given, and the kind of array that comes back."""
    operands = [operand(value, name) for name, value in zip(signature.inputs, inputs, strict=True)]
    wanted = given_outs(signature.outputs, out)
    outs = [None if v is None else out_operand(v, n) for n, v in zip(signature.outputs, wanted, strict=True)]
    named = [*zip(signature.inputs, operands, strict=True), *(("out", o) for o in outs if o)]
    return operands, outs, wanted, common_kind(named)


def check_out(name: str, out: Operand, shape: tuple[int, ...], dtype: DType) -> None:
    """Raise ShapeError, DTypeError or ArgumentError for an `out` that the result does not fit, or that cannot be written."""
    array = out.original
    if array.shape != shape:
        raise failure(OUT_SHAPE, name=name, shape=array.shape, wanted=shape)
    if out.type.dtype != dtype:
        raise failure(OUT_DTYPE, name=name, dtype=from_numpy(out.array.dtype) or out.array.dtype, wanted=dtype)
    if not array.flags.writeable:
        raise failure(OUT_READ_ONLY, name=name)
    if overlaps_itself(array):
        raise failure(OUT_OVERLAPS_ITSELF, name=name, shape=array.shape, strides=array.strides)


def check_apart(names_: Sequence[str], arrays: Sequence[Array | None]) -> None:
    """Raise ArgumentError for two outputs that share memory."""
    for k, second in enumerate(arrays):
        for j, first in enumerate(arrays[:k]):
            if first is not None and second is not None and overlap(first, second):
                raise failure(OUTS_OVERLAP, first=names_[j], second=names_[k])


def result_tuple(outputs: Sequence[str]) -> Any:
    """Return the namedtuple class of several outputs; a name that cannot be a field gets underscores behind it."""
    from collections import namedtuple
    from keyword import iskeyword

    fields: list[str] = []
    for output in outputs:
        field = output.lstrip("_") or "result"
        field = field if field.isidentifier() else "result"
        while iskeyword(field) or field in fields or field in ("count", "index"):
            field += "_"
        fields.append(field)

    def reduced(results: tuple[Any, ...]) -> tuple[Any, ...]:
        return _results, (tuple(outputs), tuple(results))

    make: Any = namedtuple  # a class that is known only when it is made
    made = make("Results", fields)
    made.__reduce__ = reduced  # pickle finds no class that was made here
    return made


def _results(outputs: Sequence[str], values: Sequence[Any]) -> Any:
    """Return the results of several outputs that were pickled."""
    return result_tuple(outputs)(*values)
