"""What is written of a program's expressions, ranges and types."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal as OneOf
from typing import assert_never

from msgspec import json

from polyker.ir.document.nodes import (
    EXACT,
    BoolJson,
    CallJson,
    CastJson,
    ComplexJson,
    DotsJson,
    ExprJson,
    FloatJson,
    IndexJson,
    IntJson,
    Json,
    NumberJson,
    PadJson,
    RangeJson,
    ReadJson,
    ReduceJson,
    SizeJson,
    TypeJson,
)
from polyker.ir.dtypes import DType, bool_
from polyker.ir.expr import Call, Cast, Dots, Expr, IndexExpr, Literal, Pad, Range, Read, Reduce, SizeExpr


def json_text(document: Json) -> str:
    """Return a document as JSON text, without spaces."""
    return json.encode(document).decode()


def expr_json(expr: Expr) -> ExprJson:
    """Return the node of an expression.

    >>> json_text(expr_json(Call("add", (IndexExpr("i"), Literal(1)))))
    '{"kind":"call","op":"add","args":[{"kind":"index","name":"i"},{"kind":"int","value":1}]}'
    """
    match expr:
        case Literal(value=value):
            return _number(value)
        case IndexExpr(name=name):
            return IndexJson(name)
        case SizeExpr(name=name):
            return SizeJson(name)
        case Dots():
            return DotsJson()
        case Read(tensor=tensor, subscripts=subscripts, pad=pad):
            return ReadJson(tensor, exprs_json(subscripts), None if pad is None else _pad(pad))
        case Call(op=op, args=args):
            return CallJson(op, exprs_json(args))
        case Cast(to=to, arg=Literal(value=int(value))) if to == bool_ and value in (0, 1):
            return BoolJson(bool(value))
        case Cast(to=to, arg=arg):
            return CastJson(to.name, expr_json(arg))
        case Reduce(op=op, ranges=ranges, body=body, conditions=conditions):
            return ReduceJson(op, ranges_json(ranges), expr_json(body), exprs_json(conditions))
        case _:
            assert_never(expr)


def exprs_json(exprs: tuple[Expr, ...]) -> tuple[ExprJson, ...]:
    """Return the nodes of expressions."""
    return tuple(map(expr_json, exprs))


def ranges_json(ranges: tuple[Range, ...]) -> tuple[RangeJson, ...]:
    """Return what is written of ranges."""
    return tuple(RangeJson(r.index, *(None if e is None else expr_json(e) for e in (r.lo, r.hi))) for r in ranges)


def type_json(dtype: DType | None, shape: tuple[Expr, ...] | None) -> TypeJson | None:
    """Return what is written of a declared type, None where neither part is declared."""
    if dtype is None and shape is None:
        return None
    return TypeJson(None if dtype is None else dtype.name, None if shape is None else tuple(map(_extent, shape)))


def sizes_json(sizes: Mapping[str, int]) -> dict[str, int | str]:
    """Return what is written of sizes with one value."""
    return {name: _integer(value) for name, value in sizes.items()}


def _extent(extent: Expr) -> int | str | ExprJson:
    match extent:
        case Literal(value=int(value)) if not isinstance(value, bool) and abs(value) <= EXACT:
            return value
        case SizeExpr(name=name):
            return name
        case _:
            return expr_json(extent)


def _integer(value: int) -> int | str:
    return value if abs(value) <= EXACT else str(value)


def _number(value: bool | int | float | complex) -> NumberJson:
    match value:
        case bool():
            return BoolJson(value)
        case int():
            return IntJson(_integer(value))
        case float():
            return FloatJson(value if math.isfinite(value) else _not_finite(value))
        case complex(real=real, imag=imag):
            return ComplexJson(real, imag)


def _not_finite(value: float) -> OneOf["inf", "-inf", "nan"]:
    return "nan" if value != value else "inf" if value > 0 else "-inf"


def _pad(pad: Pad) -> PadJson:
    value = None if pad.value is None else _number(pad.value.value)
    return PadJson(pad.mode, value)  # type: ignore[arg-type]
