"""Write pooling, and its gradients."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch

from polyker.bridge.torch.indices import Subscript, Term, Unsupported
from polyker.bridge.torch.kinds import converted, literal, wide
from polyker.bridge.torch.loops import StatementLoops
from polyker.bridge.torch.rules.table import ResultMeta, rule
from polyker.bridge.torch.writer import TensorValue, Writer


def _each(values: Any, count: int, default: Sequence[int] = ()) -> list[int]:
    found = list(values) or list(default)
    return found * count if len(found) == 1 else found


def window(w: Writer, out: ResultMeta, x: TensorValue, a: SimpleNamespace, name: str, outside: str) -> TensorValue:
    """Return a reduction over windows of the last dimensions; `outside`: what is read out of bounds."""
    kernel = list(a.kernel_size)
    space = len(kernel)
    stride, pad = _each(a.stride, space, kernel), _each(a.padding, space)
    dilation = _each(getattr(a, "dilation", [1]), space)
    within = wide(out.dtype)
    padded = any(pad) or a.ceil_mode
    x = w.stored(x.cast(within) if x.dtype != within else x) if padded else w.cheap(x)

    def read(loops: StatementLoops, index: list[Subscript]) -> str:
        def body(ks: list[Subscript]) -> str:
            place = index[len(index) - space :]
            at = [
                i.times(s).plus(k.times(d)).plus(-p)
                for i, k, s, d, p in zip(place, ks, stride, dilation, pad, strict=True)
            ]
            where = [*index[: len(index) - space], *at]
            if padded:
                return f"{x.name}[{w.subscripts(where)}; pad={outside}]"
            return converted(x.read(loops, where), x.dtype, within)

        return loops.reduction(name, kernel, body)

    return w.assign(w.tensor(out.shape, within), read).cast(out.dtype)


@rule("max_pool2d_with_indices")
def _max_pool(w: Writer, a: SimpleNamespace, out: Sequence[ResultMeta]) -> tuple[TensorValue | None, ...]:
    if not out[0].dtype.is_floating_point:
        raise Unsupported("pooling of integers")
    return window(w, out[0], a.self, a, "max", "-inf"), _places(w, out[1], a)


def _in_window(number: str, kernel: Sequence[int]) -> list[Subscript]:
    """Return row and column in a window of its element of this number."""
    row, column = Term(f"({number}//{kernel[1]})", 1, kernel[0]), Term(f"({number}%{kernel[1]})", 1, kernel[1])
    return [Subscript((row,)), Subscript((column,))]


def _places(w: Writer, out: ResultMeta, a: SimpleNamespace) -> TensorValue:
    """Return where in its plane each window has its maximum: a row-major number."""
    width, kernel = a.self.shape[-1], list(a.kernel_size) * (2 // len(a.kernel_size))
    if not isinstance(width, int):
        raise Unsupported("places in planes whose width is a symbol")
    stride, pad, dilation = _each(a.stride, 2, kernel), _each(a.padding, 2), _each(a.dilation, 2)
    x = w.stored(a.self)

    def at(index: list[Subscript], inner: list[Subscript]) -> list[Subscript]:
        both = zip(index[-2:], inner, stride, dilation, pad, strict=True)
        return [i.times(s).plus(k.times(d)).plus(-p) for i, k, s, d, p in both]

    def chosen(loops: StatementLoops, index: list[Subscript]) -> str:
        (k,), ranges = loops.reduced([kernel[0] * kernel[1]])
        if not ranges:
            return "i64(0)"
        inner = _in_window(k.text(), kernel)
        return f"argmax[{ranges[0]}]({x.name}[{w.subscripts([*index[:-2], *at(index, inner)])}; pad=-inf])"

    number = w.assign(w.tensor(out.shape, torch.int64), chosen)

    def read(loops: StatementLoops, index: list[Subscript]) -> str:
        k = number.read(loops, index)
        row, column = at(index, _in_window(k, kernel))
        return f"(({row.text()}) * {width} + {column.text()})"

    return TensorValue(out.shape, out.dtype, read, 6)


@rule("max_pool2d_with_indices_backward")
def _max_pool_backward(w: Writer, a: SimpleNamespace, out: ResultMeta) -> TensorValue:
    within, g, places = wide(out.dtype), w.cheap(a.grad_output, 1), w.stored(a.indices)
    flat = w.tensor([*out.shape[:-2], out.shape[-2] * out.shape[-1]], within)
    w.assign(flat, lambda loops, index: converted(literal(0, within), None, within))

    def place(index: list[Subscript]) -> list[Subscript]:
        return [*index[:-2], Subscript((Term(f"{places.name}[{w.subscripts(index)}]", 1, flat.shape[-1]),))]

    w.assign(flat, g.cast(within).read, "+=", shape=g.shape, place=place)
    return flat.reshaped(out.shape).cast(out.dtype)


@rule("avg_pool1d", "avg_pool2d", "avg_pool3d")
def _avg_pool(w: Writer, a: SimpleNamespace, out: ResultMeta) -> TensorValue:
    if a.ceil_mode or (any(a.padding) and not a.count_include_pad):
        raise Unsupported("averages of windows that are cut off")
    if not out.dtype.is_floating_point:
        raise Unsupported("pooling of integers")
    count = 1
    for n in a.kernel_size:
        count *= n
    divisor = getattr(a, "divisor_override", None) or count
    total = window(w, ResultMeta(out.shape, wide(out.dtype)), a.self, a, "sum", literal(0, out.dtype))
    return TensorValue(
        out.shape,
        out.dtype,
        lambda loops, index: converted(f"({total.read(loops, index)} / {divisor})", wide(out.dtype), out.dtype),
        1,
    )
