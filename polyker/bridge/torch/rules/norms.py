"""Write normalisations: of layers, groups and batches, and their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from polyker.bridge.torch.indices import Extent, Unsupported
from polyker.bridge.torch.kinds import wide
from polyker.bridge.torch.rules.elementwise import computed
from polyker.bridge.torch.rules.reductions import along, reduced, squares
from polyker.bridge.torch.rules.table import RULES, ResultMeta, rule
from polyker.bridge.torch.writer import TensorValue, Writer


def moments(w: Writer, x: TensorValue, dims: Sequence[int], eps: float, within: Any) -> tuple[TensorValue, TensorValue]:
    """Return the mean along dimensions, which are kept, and the reciprocal of the standard deviation."""
    row = along(x, dims, within)
    mean = reduced(w, row, x, dims, "mean", keep=True)
    spread = squares(w, x, dims, mean)
    return mean, w.stored(computed(w, row, "1 / sqrt({v} + {eps})", v=spread, eps=eps))


def scaled(
    w: Writer,
    out: ResultMeta,
    x: TensorValue,
    mean: TensorValue,
    scale: TensorValue,
    weight: TensorValue | None,
    bias: TensorValue | None,
) -> TensorValue:
    """Return the normalised value, times a weight and plus a bias where there are such."""
    form = "({x} - {mean}) * {scale}"
    form += " * {weight}" if weight is not None else ""
    form += " + {bias}" if bias is not None else ""
    return computed(w, out, form, x=x, mean=mean, scale=scale, weight=weight, bias=bias)


@rule("native_layer_norm")
def _layer_norm(w: Writer, a: SimpleNamespace, out: Sequence[ResultMeta]) -> tuple[TensorValue, ...]:
    x, within = w.cheap(a.input), wide(out[0].dtype)
    dims = list(range(len(x.shape) - len(a.normalized_shape), len(x.shape)))
    mean, scale = moments(w, x, dims, a.eps, within)
    y = scaled(w, out[0], x, mean, scale, a.weight, a.bias)
    return y, mean.cast(out[1].dtype), scale.cast(out[2].dtype)


@rule("native_layer_norm_backward")
def _layer_norm_backward(w: Writer, a: SimpleNamespace, out: Sequence[ResultMeta]) -> tuple[TensorValue | None, ...]:
    x, g = w.cheap(a.input), w.cheap(a.grad_out)
    first = next(o for o in out if o is not None)
    within, rank = wide(first.dtype), len(x.shape)
    outer = list(range(rank - len(a.normalized_shape)))
    dims = list(range(len(outer), rank))
    full, row = ResultMeta(x.shape, within), along(x, dims, within)
    unit = computed(w, full, "({x} - {m}) * {s}", x=x, m=a.mean, s=a.rstd)
    found: list[TensorValue | None] = [None, None, None]
    if a.output_mask[0]:
        gw = g if a.weight is None else computed(w, full, "{g} * {weight}", g=g, weight=a.weight)
        total = reduced(w, row, gw, dims, "mean", keep=True)
        both = computed(w, full, "{gw} * {unit}", gw=gw, unit=unit)
        dot = reduced(w, row, both, dims, "mean", keep=True)
        form = "{s} * ({gw} - {total} - {unit} * {dot})"
        found[0] = computed(w, out[0], form, s=a.rstd, gw=gw, total=total, unit=unit, dot=dot)
    if a.output_mask[1]:
        both = computed(w, full, "{g} * {unit}", g=g, unit=unit)
        found[1] = reduced(w, ResultMeta(out[1].shape, within), both, outer, "sum", keep=False).cast(out[1].dtype)
    if a.output_mask[2]:
        found[2] = reduced(w, ResultMeta(out[2].shape, within), g, outer, "sum", keep=False).cast(out[2].dtype)
    return tuple(found)


def _by_channel(value: TensorValue | None, rank: int) -> TensorValue | None:
    """Return what has an element a channel so that it is broadcast to a batch."""
    return None if value is None else value.reshaped([*value.shape, *(1 for _ in range(rank - 2))])


@rule("native_group_norm")
def _group_norm(w: Writer, a: SimpleNamespace, out: Sequence[ResultMeta]) -> tuple[TensorValue, ...]:
    within, rank = wide(out[0].dtype), len(a.input.shape)
    each = a.input.shape[1] // a.group
    shape: list[Extent] = [a.input.shape[0], a.group, each, *a.input.shape[2:]]
    x = w.cheap(a.input).reshaped(shape)
    mean, scale = moments(w, x, list(range(2, rank + 1)), a.eps, within)

    def split(value: TensorValue | None) -> TensorValue | None:
        return None if value is None else value.reshaped([a.group, each, *(1 for _ in range(rank - 2))])

    y = w.stored(scaled(w, ResultMeta(shape, out[0].dtype), x, mean, scale, split(a.weight), split(a.bias)))
    return (
        y.reshaped(out[0].shape),
        mean.reshaped(out[1].shape).cast(out[1].dtype),
        scale.reshaped(out[2].shape).cast(out[2].dtype),
    )


def _batch_norm_inference(w: Writer, a: SimpleNamespace, out: Sequence[ResultMeta]) -> tuple[TensorValue | None, ...]:
    rank = len(a.input.shape)
    if rank < 2:
        raise Unsupported("batch norm of less than two dimensions")
    mean, var, weight, bias = (_by_channel(v, rank) for v in (a.running_mean, a.running_var, a.weight, a.bias))
    form = "({x} - {mean}) / sqrt({var} + {eps})"
    form += " * {weight}" if weight is not None else ""
    form += " + {bias}" if bias is not None else ""
    y = computed(w, out[0], form, x=a.input, mean=mean, var=var, eps=a.eps, weight=weight, bias=bias)
    return y, None, None


@rule("native_batch_norm")
def _batch_norm(w: Writer, a: SimpleNamespace, out: Sequence[ResultMeta]) -> tuple[TensorValue | None, ...]:
    if a.training and a.running_mean is not None:
        raise Unsupported("batch norm that changes its argument")
    if a.training:
        return _batch_norm_training(w, a, out)
    return _batch_norm_inference(w, a, out)


def _batch_norm_training(w: Writer, a: SimpleNamespace, out: Sequence[ResultMeta]) -> tuple[TensorValue | None, ...]:
    x, within, rank = w.cheap(a.input), wide(out[0].dtype), len(a.input.shape)
    if not a.training or rank < 2:
        raise Unsupported("batch norm that does not train")
    dims = [d for d in range(rank) if d != 1]
    count = _count(x, dims)
    if not isinstance(count, int):
        raise Unsupported("batch norm along a symbol")
    row = along(x, dims, within)
    mean = reduced(w, row, x, dims, "mean", keep=True)
    var = squares(w, x, dims, mean)
    scale = w.stored(computed(w, row, "1 / sqrt({v} + {eps})", v=var, eps=a.eps))
    y = scaled(w, out[0], x, mean, scale, _by_channel(a.weight, rank), _by_channel(a.bias, rank))
    flat = [x.shape[1]]
    found: list[TensorValue | None] = [y, mean.reshaped(flat), scale.reshaped(flat)]
    if len(out) > 3:
        unbiased = count / max(count - 1, 1)
        for old, new, factor, to in (
            (a.running_mean, found[1], 1.0, out[3]),
            (a.running_var, var.reshaped(flat), unbiased, out[4]),
        ):
            form = f"(1 - {{momentum}}) * {{old}} + {{momentum}} * {factor!r} * {{new}}"
            found.append(computed(w, to, form, old=old, new=new, momentum=a.momentum))
    return tuple(found)


@rule("native_batch_norm_backward")
def _batch_norm_backward(w: Writer, a: SimpleNamespace, out: Sequence[ResultMeta]) -> tuple[TensorValue | None, ...]:
    x, g = w.cheap(a.input), w.cheap(a.grad_out)
    rank, within = len(x.shape), wide(x.dtype)
    dims = [d for d in range(rank) if d != 1]
    full, row = ResultMeta(x.shape, within), along(x, dims, within)
    if a.train:
        mean, scale = _by_channel(a.save_mean, rank), _by_channel(a.save_invstd, rank)
    else:
        mean, var = _by_channel(a.running_mean, rank), _by_channel(a.running_var, rank)
        scale = w.stored(computed(w, row, "1 / sqrt({v} + {eps})", v=var, eps=a.eps))
    weight = _by_channel(a.weight, rank)
    unit = computed(w, full, "({x} - {m}) * {s}", x=x, m=mean, s=scale)
    total = reduced(w, row, g, dims, "sum", keep=True)
    dot = reduced(w, row, computed(w, full, "{g} * {unit}", g=g, unit=unit), dims, "sum", keep=True)
    found: list[TensorValue | None] = [None, None, None]
    if a.output_mask[0]:
        form = "{s} * {g}"
        if a.train:
            form = "{s} * ({g} - {total} / {n} - ({x} - {m}) * {s} * {dot} / {n})"
        form += " * {weight}" if weight is not None else ""
        operands = {"s": scale, "g": g, "total": total, "x": x, "m": mean, "dot": dot, "weight": weight}
        found[0] = computed(w, out[0], form, n=_count(x, dims) if a.train else 1, **operands)
    if a.output_mask[1]:
        found[1] = dot.reshaped(out[1].shape).cast(out[1].dtype)
    if a.output_mask[2]:
        found[2] = total.reshaped(out[2].shape).cast(out[2].dtype)
    return tuple(found)


def _count(x: TensorValue, dims: Sequence[int]) -> Extent:
    """Return how many elements dimensions have."""
    found: Extent = 1
    for d in dims:
        found = found * x.shape[d]
    return found


RULES |= {
    "_native_batch_norm_legit_no_training": _batch_norm_inference,
    "_native_batch_norm_legit_functional": _batch_norm_training,
    "_native_batch_norm_legit.no_stats": _batch_norm_training,
}
