"""Write reductions along dimensions, softmax and running sums."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import torch

from polyker.bridge.torch.indices import Extent, Subscript, Term, Unsupported
from polyker.bridge.torch.kinds import converted, literal, wide
from polyker.bridge.torch.loops import StatementLoops
from polyker.bridge.torch.rules.elementwise import computed
from polyker.bridge.torch.rules.table import RULES, ResultMeta, Rule, rule
from polyker.bridge.torch.writer import TensorValue, Writer

# Reductions of the notation by those of torch; the type of the terms is the result's, but for truth values.
REDUCTIONS = {
    "sum": "sum",
    "mean": "mean",
    "amax": "max",
    "amin": "min",
    "max": "max",
    "min": "min",
    "prod": "prod",
    "logsumexp": "logsumexp",
}
TRUTHS = {"any": "any", "all": "all"}


def dims_of(given: Any, rank: int) -> list[int]:
    """Return the reduced dimensions; none are all."""
    if given is None or (isinstance(given, Sequence) and not given):
        return list(range(rank))
    return sorted(d % rank if rank else 0 for d in ([given] if isinstance(given, int) else given))


def reduced(
    w: Writer,
    out: ResultMeta,
    x: TensorValue,
    dims: Sequence[int],
    name: str,
    *,
    keep: bool,
    where: Callable[[list[Subscript]], str | None] | None = None,
) -> TensorValue:
    """Return a stored reduction of a value along dimensions, of elements for which a condition holds; `out` has its type."""
    if not x.shape:
        return x.cast(out.dtype)
    rank = len(x.shape)
    outer = [d for d in range(rank) if d not in dims]

    def read(loops: StatementLoops, index: list[Subscript]) -> str:
        kept = [index[d] for d in outer] if keep else index

        def place(ks: list[Subscript]) -> list[Subscript]:
            inner, rest = iter(ks), iter(kept)
            return [next(inner) if d in dims else next(rest) for d in range(rank)]

        def body(ks: list[Subscript]) -> str:
            return converted(x.read(loops, place(ks)), x.dtype, out.dtype)

        chosen = None if where is None else lambda ks: where(place(ks))
        return loops.reduction(name, [x.shape[d] for d in dims], body, chosen)

    return w.assign(w.tensor(out.shape, out.dtype), read)


def along(x: TensorValue, dims: Sequence[int], dtype: Any) -> ResultMeta:
    """Return shape and type of a reduction that keeps its dimensions."""
    return ResultMeta([1 if d in dims else n for d, n in enumerate(x.shape)], dtype)


def _reduction(name: str) -> Rule:
    def write(w: Writer, a: SimpleNamespace, out: ResultMeta) -> TensorValue:
        if isinstance(out, list):
            raise Unsupported("values with their indices")
        dims = dims_of(getattr(a, "dim", None), len(a.self.shape))
        keep = bool(getattr(a, "keepdim", False))
        within = ResultMeta(out.shape, torch.bool if name in TRUTHS else wide(out.dtype))
        return reduced(w, within, a.self, dims, name, keep=keep).cast(out.dtype)

    return write


RULES |= {name: _reduction(form) for name, form in (REDUCTIONS | TRUTHS).items()}


def _extremum(name: str) -> Rule:
    def write(w: Writer, a: SimpleNamespace, out: ResultMeta) -> TensorValue:
        x = a.self
        if a.dim is None:
            count: Extent = 1
            for n in x.shape:
                count = count * n
            x = x.reshaped([count])
        rank = len(x.shape)
        dim = (a.dim or 0) % max(rank, 1)
        outer = [d for d in range(rank) if d != dim]

        def read(loops: StatementLoops, index: list[Subscript]) -> str:
            kept = [index[d] for d in outer] if a.keepdim and a.dim is not None else index
            (k,), ranges = loops.reduced([x.shape[dim]])
            if not ranges:
                return "i64(0)"
            # The index is the result, and has to stay one.
            whole = Subscript(tuple(Term(t.atom, t.factor, t.extent) for t in k.terms))
            return f"{name}[{ranges[0]}]({x.read(loops, [*kept[:dim], whole, *kept[dim:]])})"

        return w.assign(w.tensor(out.shape, out.dtype), read)

    return write


RULES |= {"argmax": _extremum("argmax"), "argmin": _extremum("argmin")}


@rule("linalg_vector_norm")
def _vector_norm(w: Writer, a: SimpleNamespace, out: ResultMeta) -> TensorValue:
    if a.ord not in (1, 2):
        raise Unsupported(f"the norm of order {a.ord}")
    dims = dims_of(a.dim, len(a.self.shape))
    full = ResultMeta(a.self.shape, wide(out.dtype))
    terms = computed(w, full, "abs({x})" if a.ord == 1 else "{x} * {x}", x=a.self)
    total = reduced(w, ResultMeta(out.shape, full.dtype), terms, dims, "sum", keep=a.keepdim)
    return computed(w, out, "{x}" if a.ord == 1 else "sqrt({x})", x=total)


def squares(w: Writer, x: TensorValue, dims: Sequence[int], mean: TensorValue) -> TensorValue:
    """Return the mean of the squared distances from a mean, dimensions kept, in the type of the mean."""
    shape = ResultMeta(x.shape, mean.dtype)
    return reduced(
        w,
        along(x, dims, mean.dtype),
        computed(w, shape, "({x} - {m}) * ({x} - {m})", x=x, m=mean),
        dims,
        "mean",
        keep=True,
    )


@rule("var", "var_mean")
def _var(w: Writer, a: SimpleNamespace, out: Any) -> TensorValue | tuple[TensorValue, ...]:
    first = out[0] if isinstance(out, list) else out
    x, within = w.cheap(a.self, 1), wide(first.dtype)
    dims = dims_of(a.dim, len(x.shape))
    count = 1
    for d in dims:
        if not isinstance(x.shape[d], int):
            raise Unsupported("a variance along a symbol")
        count *= x.shape[d]
    less = getattr(a, "correction", None)
    less = 1 if less is None else less
    if count <= less:
        raise Unsupported("a variance of too few elements")
    mean = reduced(w, along(x, dims, within), x, dims, "mean", keep=True)
    value = squares(w, x, dims, mean).reshaped(first.shape)
    scaled = computed(w, first, "{v}" if not less else f"{{v}} * {count / (count - less)!r}", v=value)
    return (scaled, mean.reshaped(first.shape).cast(first.dtype)) if isinstance(out, list) else scaled


def _softmax(w: Writer, a: SimpleNamespace, out: ResultMeta, *, log: bool) -> TensorValue:
    within = wide(out.dtype)
    if not a.self.shape:
        raise Unsupported("a softmax of a number")
    x, dims = w.cheap(a.self), [a.dim % len(a.self.shape)]
    row, full = along(x, dims, within), ResultMeta(x.shape, within)
    top = reduced(w, row, x, dims, "max", keep=True)
    if log:
        terms = computed(w, full, "exp({x} - {m})", x=x, m=top)
        total = reduced(w, row, terms, dims, "sum", keep=True)
        return computed(w, out, "{x} - {m} - log({s})", x=x, m=top, s=total)
    terms = w.stored(computed(w, full, "exp({x} - {m})", x=x, m=top))
    total = reduced(w, row, terms, dims, "sum", keep=True)
    return computed(w, out, "{e} / {s}", e=terms, s=total)


RULES |= {
    "_softmax": lambda w, a, out: _softmax(w, a, out, log=False),
    "_log_softmax": lambda w, a, out: _softmax(w, a, out, log=True),
}


@rule("_softmax_backward_data")
def _softmax_backward(w: Writer, a: SimpleNamespace, out: ResultMeta) -> TensorValue:
    within, dims = wide(out.dtype), [a.dim % len(out.shape)]
    g, y = w.cheap(a.grad_output, 1), w.cheap(a.output, 1)
    both = computed(w, ResultMeta(out.shape, within), "{g} * {y}", g=g, y=y)
    total = reduced(w, along(y, dims, within), both, dims, "sum", keep=True)
    return computed(w, out, "{y} * ({g} - {s})", g=g, y=y, s=total)


@rule("_log_softmax_backward_data")
def _log_softmax_backward(w: Writer, a: SimpleNamespace, out: ResultMeta) -> TensorValue:
    within, dims = wide(out.dtype), [a.dim % len(out.shape)]
    g = w.cheap(a.grad_output, 1)
    total = reduced(w, along(g, dims, within), g, dims, "sum", keep=True)
    return computed(w, out, "{g} - exp({y}) * {s}", g=g, y=a.output, s=total)


@rule("cumsum")
def _cumsum(w: Writer, a: SimpleNamespace, out: ResultMeta) -> TensorValue:
    x: TensorValue = a.self
    dim, within = a.dim % max(len(out.shape), 1), wide(out.dtype)
    if not out.shape or out.shape[dim] == 1:
        return x.cast(out.dtype)
    target = w.tensor(out.shape, within)
    zero = literal(0, within)

    def read(loops: StatementLoops, index: list[Subscript]) -> str:
        before = [*index[:dim], index[dim].plus(-1), *index[dim + 1 :]]
        term = converted(x.read(loops, index), x.dtype, within)
        return f"{target.name}[{w.subscripts(before)}; pad={zero}] + {term}"

    return w.assign(target, read).cast(out.dtype)
