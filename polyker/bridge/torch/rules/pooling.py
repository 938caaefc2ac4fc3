"""Write pooling, and its gradients."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from polyker.bridge.torch.indices import Subscript, Unsupported
from polyker.bridge.torch.kinds import converted, literal, wide
from polyker.bridge.torch.loops import Loops
from polyker.bridge.torch.rules.table import Result, rule
from polyker.bridge.torch.writer import Value, Writer


def _each(values: Any, count: int, default: Sequence[int] = ()) -> list[int]:
    found = list(values) or list(default)
    return found * count if len(found) == 1 else found


def window(w: Writer, out: Result, x: Value, a: SimpleNamespace, name: str, outside: str) -> Value:
    """Return a reduction over windows of the last dimensions; `outside`: what is read out of bounds."""
    kernel = list(a.kernel_size)
    space = len(kernel)
    stride, pad = _each(a.stride, space, kernel), _each(a.padding, space)
    dilation = _each(getattr(a, "dilation", [1]), space)
    within = wide(out.dtype)
    padded = any(pad) or a.ceil_mode
    x = w.stored(x.cast(within) if x.dtype != within else x) if padded else w.cheap(x)

    def read(loops: Loops, index: list[Subscript]) -> str:
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


@rule("max_pool2d_with_indices", "max_pool3d_with_indices")
def _max_pool(w: Writer, a: SimpleNamespace, out: Sequence[Result]) -> tuple[Value | None, ...]:
    if not out[0].dtype.is_floating_point:
        raise Unsupported("pooling of integers")
    return window(w, out[0], a.self, a, "max", "-inf"), None


@rule("avg_pool1d", "avg_pool2d", "avg_pool3d")
def _avg_pool(w: Writer, a: SimpleNamespace, out: Result) -> Value:
    if a.ceil_mode or (any(a.padding) and not a.count_include_pad):
        raise Unsupported("averages of windows that are cut off")
    if not out.dtype.is_floating_point:
        raise Unsupported("pooling of integers")
    count = 1
    for n in a.kernel_size:
        count *= n
    divisor = getattr(a, "divisor_override", None) or count
    total = window(w, Result(out.shape, wide(out.dtype)), a.self, a, "sum", literal(0, out.dtype))
    return Value(
        out.shape,
        out.dtype,
        lambda loops, index: converted(f"({total.read(loops, index)} / {divisor})", wide(out.dtype), out.dtype),
        1,
    )
