"""Write operators that move elements: views are subscripts, copies of several tensors statements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import torch

from polyker.bridge.torch.indices import Extent, Subscript, Unsupported
from polyker.bridge.torch.kinds import converted, literal
from polyker.bridge.torch.loops import StatementLoops
from polyker.bridge.torch.rules.table import ResultMeta, rule
from polyker.bridge.torch.writer import TensorValue, Writer

# Operators whose results are views: a part of nothing else stays torch's.
VIEWS = (
    "_unsafe_view", "alias", "as_strided", "detach", "diagonal", "expand", "permute", "reshape", "select", "slice", "split",
    "split_with_sizes", "squeeze", "t", "transpose", "unbind", "unsqueeze", "view",
)  # fmt: skip
# Operators whose results are known without computing: each part has its own.
CONSTANTS = (
    "arange", "full", "full_like", "new_full", "new_ones", "new_zeros", "ones", "ones_like", "scalar_tensor",
    "zeros", "zeros_like",
)  # fmt: skip


def positive(dim: int, rank: int) -> int:
    """Return a dimension counted from the first."""
    return dim % rank if rank else 0


@rule("view", "_unsafe_view", "reshape", "unsqueeze", "squeeze")
def _reshape(w: Writer, a: SimpleNamespace, out: ResultMeta) -> TensorValue:
    if hasattr(a, "dtype"):
        raise Unsupported("a view of the bits as another type")
    x: TensorValue = a.self
    return x.reshaped(out.shape)


@rule("expand")
def _expand(w: Writer, a: SimpleNamespace, out: ResultMeta) -> TensorValue:
    return w.cheap(a.self).broadcast(out.shape)


@rule("permute")
def _permute(w: Writer, a: SimpleNamespace, out: ResultMeta) -> TensorValue:
    order = [positive(d, len(out.shape)) for d in a.dims]
    x: TensorValue = a.self
    return x.view(out.shape, lambda index: [index[order.index(d)] for d in range(len(order))])


@rule("t", "transpose")
def _transpose(w: Writer, a: SimpleNamespace, out: ResultMeta) -> TensorValue:
    rank = len(out.shape)
    order = list(range(rank))
    if rank > 1:
        i, j = (positive(getattr(a, n, k), rank) for k, n in enumerate(("dim0", "dim1")))
        order[i], order[j] = order[j], order[i]
    x: TensorValue = a.self
    return x.view(out.shape, lambda index: [index[d] for d in order])


def at_dim(dim: int, change: Callable[[Subscript], Subscript]) -> Callable[[list[Subscript]], list[Subscript]]:
    """Return what changes the subscript of one dimension."""
    return lambda index: [*index[:dim], change(index[dim]), *index[dim + 1 :]]


def _bound(value: Any, extent: Extent, default: Extent) -> Extent:
    """Return a bound of a slice counted from 0."""
    if value is None:
        return default
    if not isinstance(value, int) or not isinstance(extent, int):
        if isinstance(value, int) and value >= 0:
            return value
        raise Unsupported("a slice whose bound is a symbol")
    return min(max(value + extent if value < 0 else value, 0), extent)


@rule("slice")
def _slice(w: Writer, a: SimpleNamespace, out: ResultMeta) -> TensorValue:
    dim = positive(a.dim, len(out.shape))
    start = _bound(a.start, a.self.shape[dim], 0)
    x: TensorValue = a.self
    return x.view(out.shape, at_dim(dim, lambda i: i.times(a.step).plus(start)))


@rule("select")
def _select(w: Writer, a: SimpleNamespace, out: ResultMeta) -> TensorValue:
    dim = positive(a.dim, len(a.self.shape))
    if not isinstance(a.index, int):
        raise Unsupported("a selection at a symbol")
    at: Extent = a.index if a.index >= 0 else a.index + a.self.shape[dim]
    x: TensorValue = a.self
    return x.view(out.shape, lambda index: [*index[:dim], Subscript((), at), *index[dim:]])


def _pieces(value: TensorValue, dim: int, outs: Sequence[ResultMeta]) -> tuple[TensorValue, ...]:
    found, start = [], 0
    for out in outs:
        found.append(value.view(out.shape, at_dim(dim, lambda i, start=start: i.plus(start))))  # type: ignore[misc]
        start += out.shape[dim]
    return tuple(found)


@rule("split", "split_with_sizes")
def _split(w: Writer, a: SimpleNamespace, out: Sequence[ResultMeta]) -> tuple[TensorValue, ...]:
    return _pieces(w.cheap(a.self), positive(a.dim, len(a.self.shape)), out)


@rule("unbind")
def _unbind(w: Writer, a: SimpleNamespace, out: Sequence[ResultMeta]) -> tuple[TensorValue, ...]:
    base, dim = w.cheap(a.self), positive(a.dim, len(a.self.shape))
    return tuple(
        base.view(o.shape, lambda index, k=k: [*index[:dim], Subscript((), k), *index[dim:]])  # type: ignore[misc]
        for k, o in enumerate(out)
    )


@rule("repeat")
def _repeat(w: Writer, a: SimpleNamespace, out: ResultMeta) -> TensorValue:
    base = w.cheap(a.self)
    shape = [*(1 for _ in range(len(out.shape) - len(base.shape))), *base.shape]
    if not all(isinstance(n, int) for n in shape):
        raise Unsupported("a repetition of a symbol")
    return base.reshaped(shape).view(
        out.shape, lambda index: [i.divided(n)[1] for i, n in zip(index, shape, strict=True)]
    )


@rule("diagonal")
def _diagonal(w: Writer, a: SimpleNamespace, out: ResultMeta) -> TensorValue:
    rank = len(a.self.shape)
    first, second = positive(a.dim1, rank), positive(a.dim2, rank)

    def at(index: list[Subscript]) -> list[Subscript]:
        rest = iter(index[:-1])
        places = {first: index[-1].plus(max(-a.offset, 0)), second: index[-1].plus(max(a.offset, 0))}
        return [places[d] if d in places else next(rest) for d in range(rank)]

    x: TensorValue = a.self

    return x.view(out.shape, at)


@rule("flip")
def _flip(w: Writer, a: SimpleNamespace, out: ResultMeta) -> TensorValue:
    dims = {positive(d, len(out.shape)) for d in a.dims}

    def at(index: list[Subscript]) -> list[Subscript]:
        return [
            i.times(-1).plus(n - 1) if d in dims else i for d, (i, n) in enumerate(zip(index, out.shape, strict=True))
        ]

    x: TensorValue = a.self

    return x.view(out.shape, at)


@rule("roll")
def _roll(w: Writer, a: SimpleNamespace, out: ResultMeta) -> TensorValue:
    if len(a.dims) != 1:
        raise Unsupported("roll over several dimensions")
    base, dim, target = w.cheap(a.self), positive(a.dims[0], len(out.shape)), w.tensor(out.shape, out.dtype)
    extent = out.shape[dim]
    if not isinstance(extent, int):
        raise Unsupported("roll of a symbol")
    shift = a.shifts[0] % extent
    for length, source, place in ((extent - shift, 0, shift), (shift, extent - shift, 0)):
        if length:
            _move(w, target, base, dim, length, source, place)
    return target


def _move(
    w: Writer, target: TensorValue, base: TensorValue, dim: int, length: Extent, source: Extent, place: Extent
) -> None:
    """Write `length` elements of a dimension, from `source` to `place`."""
    shape = [*target.shape[:dim], length, *target.shape[dim + 1 :]]
    here, there = at_dim(dim, lambda i: i.plus(source)), at_dim(dim, lambda i: i.plus(place))
    w.assign(target, lambda loops, index: base.read(loops, here(index)), shape=shape, place=there)


@rule("slice_scatter", "select_scatter")
def _slice_scatter(w: Writer, a: SimpleNamespace, out: ResultMeta) -> TensorValue:
    dim, target = positive(a.dim, len(out.shape)), w.tensor(out.shape, out.dtype)
    w.assign(target, a.self.read)
    part = a.src.cast(out.dtype)
    if hasattr(a, "index"):
        if not isinstance(a.index, int):
            raise Unsupported("a selection at a symbol")
        part = part.reshaped([*part.shape[:dim], 1, *part.shape[dim:]])
        start, step = (a.index if a.index >= 0 else a.index + out.shape[dim]), 1
    else:
        start, step = _bound(a.start, out.shape[dim], 0), a.step
    place = at_dim(dim, lambda i: i.times(step).plus(start))
    return w.assign(target, part.read, shape=part.shape, place=place)


@rule("copy")
def _copy(w: Writer, a: SimpleNamespace, out: ResultMeta) -> TensorValue:
    return w.cheap(a.src).broadcast(out.shape).cast(out.dtype)


@rule("cat")
def _cat(w: Writer, a: SimpleNamespace, out: ResultMeta) -> TensorValue:
    dim, target, place = positive(a.dim, len(out.shape)), w.tensor(out.shape, out.dtype), 0
    for value in a.tensors:
        if len(value.shape) != len(out.shape):
            raise Unsupported("cat of an empty vector")
        _move(w, target, value.cast(out.dtype), dim, value.shape[dim], 0, place)
        place += value.shape[dim]
    return target


@rule("stack")
def _stack(w: Writer, a: SimpleNamespace, out: ResultMeta) -> TensorValue:
    dim, target = positive(a.dim, len(out.shape)), w.tensor(out.shape, out.dtype)
    for k, value in enumerate(a.tensors):
        one = value.cast(out.dtype).reshaped([*value.shape[:dim], 1, *value.shape[dim:]])
        _move(w, target, one, dim, 1, 0, k)
    return target


@rule("constant_pad_nd")
def _pad(w: Writer, a: SimpleNamespace, out: ResultMeta) -> TensorValue:
    base, rank = a.self if a.self.name else w.stored(a.self), len(out.shape)
    before = [0] * rank
    for k, amount in enumerate(a.pad[::2]):
        before[rank - 1 - k] = amount
    value = literal(a.value, out.dtype).strip("()")

    def read(loops: StatementLoops, index: list[Subscript]) -> str:
        return f"{base.name}[{w.subscripts([i.plus(-p) for i, p in zip(index, before, strict=True)])}; pad={value}]"

    return TensorValue(out.shape, out.dtype, read, 1)


@rule("full", "full_like", "scalar_tensor", "new_full")
def _full(w: Writer, a: SimpleNamespace, out: ResultMeta) -> TensorValue:
    return _constant(out, a.s if hasattr(a, "s") else a.fill_value)


@rule("zeros", "zeros_like", "new_zeros")
def _zeros(w: Writer, a: SimpleNamespace, out: ResultMeta) -> TensorValue:
    return _constant(out, 0)


@rule("ones", "ones_like", "new_ones")
def _ones(w: Writer, a: SimpleNamespace, out: ResultMeta) -> TensorValue:
    return _constant(out, 1)


def _constant(out: ResultMeta, number: Any) -> TensorValue:
    if not isinstance(number, (bool, int, float)):
        raise Unsupported("a constant that is a symbol")
    # A bare literal makes a tensor of f64 or i64.
    plain = literal(number, out.dtype)
    text = plain if out.dtype == torch.bool else converted(plain, None, out.dtype)
    return TensorValue(out.shape, out.dtype, lambda loops, index: text)


@rule("arange")
def _arange(w: Writer, a: SimpleNamespace, out: ResultMeta) -> TensorValue:
    start, step = getattr(a, "start", 0), getattr(a, "step", 1)
    if not all(isinstance(n, (int, float)) for n in (start, step)):
        raise Unsupported("a range that starts at a symbol")
    first, by = literal(start, out.dtype), literal(step, out.dtype)

    def read(loops: StatementLoops, index: list[Subscript]) -> str:
        at = converted(index[0].text(w.sizes.text), None, out.dtype)
        text = at if step == 1 else f"{by} * {at}"
        return f"({text})" if start == 0 else f"({first} + {text})"

    return TensorValue(out.shape, out.dtype, read)


def _triangular(comparison: str) -> Callable[[Writer, SimpleNamespace, ResultMeta], TensorValue]:
    def write(w: Writer, a: SimpleNamespace, out: ResultMeta) -> TensorValue:
        zero = literal(0, out.dtype)

        def read(loops: StatementLoops, index: list[Subscript]) -> str:
            row, column = (i.text(w.sizes.text) for i in (index[-2].plus(a.diagonal), index[-1]))
            return f"where({column} {comparison} {row}, {a.self.read(loops, index)}, {zero})"

        return TensorValue(out.shape, out.dtype, read, a.self.work + 1)

    return write


rule("tril")(_triangular("<="))
rule("triu")(_triangular(">="))
