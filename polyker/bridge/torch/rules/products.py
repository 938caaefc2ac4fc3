"""Write products of matrices and vectors, and convolutions."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from polyker.bridge.torch.indices import Extent, Subscript, Unsupported
from polyker.bridge.torch.kinds import converted, literal, wide
from polyker.bridge.torch.loops import StatementLoops
from polyker.bridge.torch.rules.elementwise import computed
from polyker.bridge.torch.rules.table import ResultMeta, rule
from polyker.bridge.torch.writer import TensorValue, Writer


def summed(
    w: Writer,
    out: ResultMeta,
    extents: list[Extent],
    body: Callable[[StatementLoops, list[Subscript], list[Subscript]], str],
    *,
    stored: Callable[[list[Subscript]], str | None] | None = None,
    where: Callable[[list[Subscript], list[Subscript]], str | None] | None = None,
) -> TensorValue:
    """Return a stored sum: `body` gives a term at the result's and the reduced subscripts; of 16 bits it is made in f32.

    `stored` is the condition for an element to be computed, `where` that for a term to be summed.
    """
    within = wide(out.dtype)

    def read(loops: StatementLoops, index: list[Subscript]) -> str:
        chosen = None if where is None else lambda ks: where(index, ks)
        return loops.reduction("sum", extents, lambda ks: body(loops, index, ks), chosen)

    total = w.assign(w.tensor(out.shape, within), read, where=stored)
    return total.cast(out.dtype)


def product(w: Writer, out: ResultMeta, a: TensorValue, b: TensorValue) -> TensorValue:
    """Return the product of two matrices, or of batches of them; what is a vector has no row, or no column."""
    a, b = w.cheap(a), w.cheap(b)
    within = wide(out.dtype)
    batch = max(len(a.shape), len(b.shape)) - 2
    row, column = len(a.shape) > 1, len(b.shape) > 1

    def term(loops: StatementLoops, index: list[Subscript], ks: list[Subscript]) -> str:
        lead = index[: max(batch, 0)]
        left = [*lead, *index[len(lead) : len(lead) + row], *ks]
        right = [*lead, *ks, *index[len(index) - column :]] if column else [*lead, *ks]
        x, y = converted(a.read(loops, left), a.dtype, within), converted(b.read(loops, right), b.dtype, within)
        return f"{x} * {y}"

    return summed(w, out, [a.shape[-1]], term)


@rule("mm")
def _mm(w: Writer, a: SimpleNamespace, out: ResultMeta) -> TensorValue:
    return product(w, out, a.self, a.mat2)


@rule("bmm")
def _bmm(w: Writer, a: SimpleNamespace, out: ResultMeta) -> TensorValue:
    return product(w, out, a.self, a.mat2)


@rule("mv")
def _mv(w: Writer, a: SimpleNamespace, out: ResultMeta) -> TensorValue:
    return product(w, out, a.self, a.vec)


@rule("dot", "vdot")
def _dot(w: Writer, a: SimpleNamespace, out: ResultMeta) -> TensorValue:
    return product(w, out, a.self, a.tensor if hasattr(a, "tensor") else a.other)


@rule("addmm", "baddbmm", "addmv", "addbmm")
def _added(w: Writer, a: SimpleNamespace, out: ResultMeta) -> TensorValue:
    names = [n for n in ("mat1", "mat2", "batch1", "batch2", "mat", "vec") if hasattr(a, n)]
    left, right = (getattr(a, n) for n in names)
    if len(left.shape) == 3 and len(out.shape) == 2:
        raise Unsupported("a sum of products of matrices")
    total = product(w, ResultMeta(out.shape, wide(out.dtype)), left, right)
    form = "{p}" if a.alpha == 1 else "{alpha} * {p}"
    if a.beta != 0:
        form += " + {c}" if a.beta == 1 else " + {beta} * {c}"
    return computed(w, out, form, p=total, c=a.self, alpha=a.alpha, beta=a.beta)


@rule("convolution")
def _convolution(w: Writer, a: SimpleNamespace, out: ResultMeta) -> TensorValue:
    if a.transposed:
        value = _transposed_convolution(w, a, out)
    else:
        value = convolved(w, out, a.input, a.weight, a)
    if a.bias is None:
        return value
    bias = a.bias.reshaped([*a.bias.shape, *(1 for _ in a.stride)])
    return computed(w, out, "{x} + {bias}", x=value, bias=bias)


def _each(values: Any, count: int) -> list[int]:
    """Return one number a dimension of the space."""
    found = list(values)
    return found * count if len(found) == 1 else found


def convolved(w: Writer, out: ResultMeta, x: TensorValue, k: TensorValue, a: SimpleNamespace) -> TensorValue:
    """Return a convolution in groups."""
    space = len(out.shape) - 2
    stride, pad, dilation = (_each(v, space) for v in (a.stride, a.padding, a.dilation))
    x, k = w.cheap(x), w.cheap(k)
    padded = any(pad)
    if padded:
        x = w.stored(x)
    each, within = k.shape[1], wide(out.dtype)
    filters = k.shape[0] // a.groups
    zero = literal(0, x.dtype)

    def term(loops: StatementLoops, index: list[Subscript], ks: list[Subscript]) -> str:
        n, f, *place = index
        at = [
            i.times(s).plus(r.times(d)).plus(-p)
            for i, r, s, d, p in zip(place, ks[1:], stride, dilation, pad, strict=True)
        ]
        channel = ks[0] if a.groups == 1 else f.divided(filters)[0].times(each).plus(ks[0])
        read = (
            f"{x.name}[{w.subscripts([n, channel, *at])}; pad={zero}]" if padded else x.read(loops, [n, channel, *at])
        )
        weight = k.read(loops, [f, ks[0], *ks[1:]])
        return f"{converted(read, x.dtype, within)} * {converted(weight, k.dtype, within)}"

    return summed(w, out, k.shape[1:], term)


def _transposed_convolution(w: Writer, a: SimpleNamespace, out: ResultMeta) -> TensorValue:
    space = len(out.shape) - 2
    stride, pad, dilation = (_each(v, space) for v in (a.stride, a.padding, a.dilation))
    return input_gradient(w, out, a.input, a.weight, (stride, pad, dilation), a.groups)


def input_gradient(
    w: Writer, out: ResultMeta, g: TensorValue, k: TensorValue, how: tuple[list[int], list[int], list[int]], groups: int
) -> TensorValue:
    """Return the gradient of a convolution by its input, which is a transposed convolution.

    With stride 1 it is a convolution with the flipped kernel; else each term is added where it belongs.
    """
    stride, pad, dilation = how
    within, each = wide(out.dtype), k.shape[1]
    g, k = w.stored(g), w.cheap(k)
    filters = k.shape[0] // groups
    zero = literal(0, g.dtype)

    def times(loops: StatementLoops, read: str, weight: list[Subscript]) -> str:
        return f"{converted(read, g.dtype, within)} * {converted(k.read(loops, weight), k.dtype, within)}"

    if all(s == 1 for s in stride):

        def term(loops: StatementLoops, index: list[Subscript], ks: list[Subscript]) -> str:
            n, c, *place = index
            group, inner = (Subscript(), c) if groups == 1 else c.divided(each)
            f = group.times(filters).plus(ks[0])
            at = [i.plus(r.times(-d)).plus(p) for i, r, d, p in zip(place, ks[1:], dilation, pad, strict=True)]
            return times(loops, f"{g.name}[{w.subscripts([n, f, *at])}; pad={zero}]", [f, inner, *ks[1:]])

        return summed(w, out, [filters, *k.shape[2:]], term)
    if not all(isinstance(n, int) for n in out.shape[2:]):
        raise Unsupported("a transposed convolution with strides over a symbol")
    # Places that the kernel reaches outside are part of the sum, and are not read after it.
    reach = [
        s * (n - 1) + d * (r - 1) + 1 for n, r, s, d in zip(g.shape[2:], k.shape[2:], stride, dilation, strict=True)
    ]
    whole = [max(r, n + p) for r, n, p in zip(reach, out.shape[2:], pad, strict=True)]
    target = w.tensor([out.shape[0], out.shape[1], *whole], within)
    w.assign(target, lambda loops, index: converted(literal(0, within), None, within))
    space = len(stride)

    def place(index: list[Subscript]) -> list[Subscript]:
        n, f, inner = index[:3]
        group = Subscript() if groups == 1 else f.divided(filters)[0]
        at = [
            i.times(s).plus(r.times(d))
            for i, r, s, d in zip(index[3 : 3 + space], index[3 + space :], stride, dilation, strict=True)
        ]
        return [n, group.times(each).plus(inner), *at]

    def added(loops: StatementLoops, index: list[Subscript]) -> str:
        n, f, inner = index[:3]
        return times(loops, g.read(loops, [n, f, *index[3 : 3 + space]]), [f, inner, *index[3 + space :]])

    w.assign(target, added, "+=", shape=[*g.shape[:2], each, *g.shape[2:], *k.shape[2:]], place=place)
    cut = target.view(out.shape, lambda index: [*index[:2], *(i.plus(p) for i, p in zip(index[2:], pad, strict=True))])
    return cut.cast(out.dtype)


@rule("convolution_backward")
def _convolution_backward(w: Writer, a: SimpleNamespace, out: Any) -> tuple[TensorValue | None, ...]:
    if a.transposed:
        raise Unsupported("gradients of a transposed convolution")
    space = len(a.weight.shape) - 2
    how = _each(a.stride, space), _each(a.padding, space), _each(a.dilation, space)
    found: list[TensorValue | None] = [None, None, None]
    if a.output_mask[0]:
        found[0] = input_gradient(w, out[0], a.grad_output, a.weight, how, a.groups)
    if a.output_mask[1]:
        found[1] = _by_weight(w, out[1], a, how)
    if a.output_mask[2]:
        g = w.cheap(a.grad_output, 1)
        extents = [g.shape[0], *g.shape[2:]]
        found[2] = summed(w, out[2], extents, lambda loops, index, ks: g.read(loops, [ks[0], index[0], *ks[1:]]))
    return tuple(found)


def _by_weight(
    w: Writer, out: ResultMeta, a: SimpleNamespace, how: tuple[list[int], list[int], list[int]]
) -> TensorValue:
    stride, pad, dilation = how
    g, x, within = w.cheap(a.grad_output), w.stored(a.input) if any(pad) else w.cheap(a.input), wide(out.dtype)
    zero = literal(0, x.dtype)
    filters, each = g.shape[1] // a.groups, a.weight.shape[1]

    def term(loops: StatementLoops, index: list[Subscript], ks: list[Subscript]) -> str:
        f, c, *kernel = index
        if a.groups != 1:
            c = f.divided(filters)[0].times(each).plus(c)
        at = [
            i.times(s).plus(r.times(d)).plus(-p)
            for i, r, s, d, p in zip(ks[1:], kernel, stride, dilation, pad, strict=True)
        ]
        where = [ks[0], c, *at]
        read = f"{x.name}[{w.subscripts(where)}; pad={zero}]" if any(pad) else x.read(loops, where)
        grad = g.read(loops, [ks[0], f, *ks[1:]])
        return f"{converted(read, x.dtype, within)} * {converted(grad, g.dtype, within)}"

    return summed(w, out, [g.shape[0], *g.shape[2:]], term)
