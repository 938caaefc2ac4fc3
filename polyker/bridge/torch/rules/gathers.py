"""Write gathers: subscripts that read tensors of integers, and what adds to gathered places."""

from __future__ import annotations

from types import SimpleNamespace

import torch

from polyker.bridge.torch.indices import Extent, Subscript, Term, Unsupported
from polyker.bridge.torch.kinds import converted, literal, wide
from polyker.bridge.torch.loops import StatementLoops
from polyker.bridge.torch.rules.table import RULES, ResultMeta, rule
from polyker.bridge.torch.writer import TensorValue, Writer


def _index(w: Writer, value: TensorValue, extent: Extent, *, wraps: bool) -> TensorValue:
    """Return a stored tensor of subscripts; `wraps`: negative ones count from the end."""
    if value.dtype not in (torch.int64, torch.int32):
        raise Unsupported("subscripts that are no i32 or i64")
    if not wraps:
        return w.stored(value)
    value = w.stored(value)
    shown = w.sizes.text(extent)

    def read(loops: StatementLoops, index: list[Subscript]) -> str:
        text = value.read(loops, index)
        return f"where({text} < 0, {text} + {shown}, {text})"

    return w.stored(TensorValue(value.shape, value.dtype, read, 2))


def _gathered(at: TensorValue, extent: Extent, loops: StatementLoops, index: list[Subscript]) -> Subscript:
    return Subscript((Term(at.read(loops, index), 1, extent),))


@rule("embedding")
def _embedding(w: Writer, a: SimpleNamespace, out: ResultMeta) -> TensorValue:
    at, table = _index(w, a.indices, a.weight.shape[0], wraps=False), w.stored(a.weight)

    def read(loops: StatementLoops, index: list[Subscript]) -> str:
        return table.read(loops, [_gathered(at, table.shape[0], loops, index[:-1]), index[-1]])

    return w.assign(w.tensor(out.shape, out.dtype), read)


@rule("embedding_dense_backward")
def _embedding_backward(w: Writer, a: SimpleNamespace, out: ResultMeta) -> TensorValue:
    if a.scale_grad_by_freq:
        raise Unsupported("gradients scaled by frequencies")
    at, g, within = w.stored(a.indices), w.cheap(a.grad_output, 1), wide(out.dtype)
    target = w.tensor(out.shape, within)

    def read(loops: StatementLoops, index: list[Subscript]) -> str:
        value = converted(g.read(loops, index), g.dtype, within)
        if a.padding_idx < 0:
            return value
        return f"where({at.read(loops, index[:-1])} == {a.padding_idx}, 0, {value})"

    w.assign(target, lambda loops, index: f"{'f64' if within == torch.float64 else 'f32'}(0.0)")
    place_loops = StatementLoops(w.sizes)

    def place(index: list[Subscript]) -> list[Subscript]:
        return [_gathered(at, out.shape[0], place_loops, index[:-1]), index[-1]]

    w.assign(target, read, "+=", shape=g.shape, place=place)
    return target.cast(out.dtype)


@rule("gather")
def _gather(w: Writer, a: SimpleNamespace, out: ResultMeta) -> TensorValue:
    if not out.shape:
        raise Unsupported("a gather of a number")
    dim = a.dim % len(out.shape)
    at, base = _index(w, a.index, a.self.shape[dim], wraps=False), w.stored(a.self)

    def read(loops: StatementLoops, index: list[Subscript]) -> str:
        return base.read(loops, [*index[:dim], _gathered(at, base.shape[dim], loops, index), *index[dim + 1 :]])

    return w.assign(w.tensor(out.shape, out.dtype), read)


@rule("index_select")
def _index_select(w: Writer, a: SimpleNamespace, out: ResultMeta) -> TensorValue:
    if not out.shape:
        raise Unsupported("a selection of a number")
    dim = a.dim % len(out.shape)
    at, base = _index(w, a.index, a.self.shape[dim], wraps=False), w.stored(a.self)

    def read(loops: StatementLoops, index: list[Subscript]) -> str:
        place = _gathered(at, base.shape[dim], loops, [index[dim]] if at.shape else [])
        return base.read(loops, [*index[:dim], place, *index[dim + 1 :]])

    return w.assign(w.tensor(out.shape, out.dtype), read)


@rule("index.Tensor")
def _advanced_index(w: Writer, a: SimpleNamespace, out: ResultMeta) -> TensorValue:
    given = [*a.indices, *(None for _ in range(len(a.self.shape) - len(a.indices)))]
    dims = [d for d, v in enumerate(given) if v is not None]
    if dims != list(range(dims[0], dims[-1] + 1)):
        raise Unsupported("subscripts that are not side by side")
    base = w.stored(a.self)
    places = [_index(w, given[d], base.shape[d], wraps=True) for d in dims]
    rank = max(len(p.shape) for p in places)
    first = dims[0]

    def read(loops: StatementLoops, index: list[Subscript]) -> str:
        inner = index[first : first + rank]
        gathered = [_gathered(p, base.shape[d], loops, p.aligned(inner)) for p, d in zip(places, dims, strict=True)]
        return base.read(loops, [*index[:first], *gathered, *index[first + rank :]])

    return w.assign(w.tensor(out.shape, out.dtype), read)


def _scatter(w: Writer, a: SimpleNamespace, out: ResultMeta, op: str) -> TensorValue:
    if not out.shape:
        raise Unsupported("a scatter to a number")
    within, dim = wide(out.dtype) if op == "+=" else out.dtype, a.dim % len(out.shape)
    at, target = _index(w, a.index, out.shape[dim], wraps=False), w.tensor(out.shape, within)
    source = None if hasattr(a, "value") else a.src.cast(within)
    w.assign(target, a.self.cast(within).read)
    number = "" if source is not None else converted(literal(a.value, within), None, within)
    place_loops = StatementLoops(w.sizes)

    def place(index: list[Subscript]) -> list[Subscript]:
        return [*index[:dim], _gathered(at, out.shape[dim], place_loops, index), *index[dim + 1 :]]

    def read(loops: StatementLoops, index: list[Subscript]) -> str:
        return number if source is None else source.read(loops, index)

    return w.assign(target, read, op, shape=at.shape, place=place).cast(out.dtype)


RULES |= {
    "scatter.src": lambda w, a, out: _scatter(w, a, out, "="),
    "scatter.value": lambda w, a, out: _scatter(w, a, out, "="),
    "scatter_add": lambda w, a, out: _scatter(w, a, out, "+="),
}
