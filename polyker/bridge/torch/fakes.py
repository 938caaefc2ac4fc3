"""Infer shapes of results for tensors with symbolic extents."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from polyker.api.operator import Operator
from polyker.ir.dtypes import DTYPES, TensorType

_KINDS: dict[str, Any] = {
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f32": torch.float32,
    "f64": torch.float64,
    "i8": torch.int8,
    "i16": torch.int16,
    "i32": torch.int32,
    "i64": torch.int64,
    "u8": torch.uint8,
    "u16": torch.uint16,
    "u32": torch.uint32,
    "u64": torch.uint64,
    "bool": torch.bool,
    "c64": torch.complex64,
    "c128": torch.complex128,
}
_OPERATIONS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_CALLS: dict[str, Callable[[Any, Any], Any]] = {"max": torch.sym_max, "min": torch.sym_min}
_CALLS |= {"maximum": torch.sym_max, "minimum": torch.sym_min}
_NAMES = {kind: name for name, kind in _KINDS.items()}


def fake_types(op: Operator, tensors: Sequence[Any], sizes: Mapping[str, Any]) -> list[tuple[list[Any], Any]]:
    """Return shape and type of each result for traced tensors, whose extents may be symbols."""
    values: dict[str, Any] = {}
    known: dict[str, str] = {}

    def named(size: Any) -> int | str:
        if isinstance(size, int):
            return size
        shown = str(size)
        if shown not in known:
            known[shown] = f"size_{len(known)}"
            values[known[shown]] = size
        return known[shown]

    for group in op.signature.agreeing:
        places = [(op.signature.inputs.index(name), d) for name, d in group if name in op.signature.inputs]
        extents = [tensors[k].shape[d] for k, d in places if d < tensors[k].ndim]
        for extent in extents[1:]:
            torch._check(extent == extents[0], lambda: f"extents {extent} and {extents[0]} do not agree")  # noqa: B023
    types = [TensorType(DTYPES[_NAMES[t.dtype]], tuple(named(n) for n in t.shape)) for t in tensors]
    free = {name: named(size) for name, size in sizes.items()}
    given = {name: size for name, size in free.items() if isinstance(size, int)}
    # A size that is a symbol stays one, under its own name.
    values |= {name: sizes[name] for name, size in free.items() if not isinstance(size, int)}
    found = op.infer(**dict(zip(op.signature.inputs, types, strict=True)), **given)
    outs = found if len(op.signature.outputs) > 1 else (found,)
    return [([_extent(n, values) for n in t.shape], _KINDS[t.dtype.name]) for t in outs]


def _extent(form: int | str, values: Mapping[str, Any]) -> Any:
    """Return the value of an extent in the notation."""
    return form if isinstance(form, int) else _value(ast.parse(form.strip(), mode="eval").body, values)


def _value(node: ast.expr, values: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return values[name]
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return -_value(inner, values)
        case ast.BinOp(left=left, op=op, right=right):
            return _OPERATIONS[type(op)](_value(left, values), _value(right, values))
        case ast.Call(func=ast.Name(id=name), args=[first, *rest]):
            found = _value(first, values)
            for other in rest:
                found = _CALLS[name](found, _value(other, values))
            return found
    raise NotImplementedError(f"an extent of the form {ast.unparse(node)}")
