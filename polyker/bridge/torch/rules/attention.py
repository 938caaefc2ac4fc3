"""Write attention, and its gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from polyker.bridge.torch.indices import Extent, Subscript, Unsupported
from polyker.bridge.torch.kinds import converted, wide
from polyker.bridge.torch.loops import StatementLoops
from polyker.bridge.torch.rules.elementwise import computed
from polyker.bridge.torch.rules.products import summed
from polyker.bridge.torch.rules.reductions import along, reduced
from polyker.bridge.torch.rules.table import ResultMeta, rule
from polyker.bridge.torch.writer import TensorValue, Writer


def scores(w: Writer, a: SimpleNamespace, within: Any) -> TensorValue:
    """Return the scaled products of queries and keys, -inf where a query does not see a key."""
    q, k = w.cheap(a.query), w.cheap(a.key)
    if a.dropout_p:
        raise Unsupported("attention with dropout")
    if q.shape[:2] != k.shape[:2] or not isinstance(q.shape[-1], int):
        raise Unsupported("attention whose queries and keys have other heads")
    scale = 1 / math.sqrt(q.shape[-1]) if a.scale is None else a.scale
    full = ResultMeta([*q.shape[:3], k.shape[2]], within)
    raw = contracted(w, full, (q, "bhid"), (k, "bhjd"), "bhij")
    if a.attn_mask is not None:
        return w.stored(computed(w, full, "{s} * {scale} + {mask_}", s=raw, scale=scale, mask_=a.attn_mask))
    if not a.is_causal:
        return w.stored(computed(w, full, "{s} * {scale}", s=raw, scale=scale))
    scaled = computed(w, full, "{s} * {scale}", s=raw, scale=scale)

    def read(loops: StatementLoops, index: list[Subscript]) -> str:
        row, column = (i.text(w.sizes.text) for i in index[-2:])
        return f"where({column} <= {row}, {scaled.read(loops, index)}, -inf)"

    return w.stored(TensorValue(full.shape, within, read, 3))


def contracted(
    w: Writer, out: ResultMeta, left: tuple[TensorValue, str], right: tuple[TensorValue, str], labels: str
) -> TensorValue:
    """Return the stored contraction of two tensors, their dimensions given by letters."""
    (a, of_a), (b, of_b) = left, right
    within = wide(out.dtype)
    extents: dict[str, Extent] = dict(zip(of_a, a.shape, strict=True)) | dict(zip(of_b, b.shape, strict=True))
    inner = [label for label in extents if label not in labels]

    def term(loops: StatementLoops, index: list[Subscript], ks: list[Subscript]) -> str:
        at = dict(zip(labels, index, strict=True)) | dict(zip(inner, ks, strict=True))
        x = converted(a.read(loops, [at[label] for label in of_a]), a.dtype, within)
        y = converted(b.read(loops, [at[label] for label in of_b]), b.dtype, within)
        return f"{x} * {y}"

    return summed(w, out, [extents[label] for label in inner], term)


@rule("_scaled_dot_product_flash_attention_for_cpu")
def _attention(w: Writer, a: SimpleNamespace, out: Sequence[ResultMeta]) -> tuple[TensorValue | None, ...]:
    within = wide(out[0].dtype)
    s = scores(w, a, within)
    row, full = along(s, [3], within), ResultMeta(s.shape, within)
    top = reduced(w, row, s, [3], "max", keep=True)
    terms = w.stored(computed(w, full, "exp({s} - {m})", s=s, m=top))
    total = reduced(w, row, terms, [3], "sum", keep=True)
    raw = contracted(w, ResultMeta(out[0].shape, within), (terms, "bhij"), (w.cheap(a.value), "bhjd"), "bhid")
    y = computed(w, out[0], "{x} / {l}", x=raw, l=total)
    flat = [t.reshaped(out[1].shape) for t in (top, total)]
    return y, computed(w, out[1], "{m} + log({l})", m=flat[0], l=flat[1])


@rule("_scaled_dot_product_flash_attention_for_cpu_backward")
def _attention_backward(w: Writer, a: SimpleNamespace, out: Sequence[ResultMeta]) -> tuple[TensorValue | None, ...]:
    within = wide(out[0].dtype)
    s, g, y = scores(w, a, within), w.cheap(a.grad_out), w.cheap(a.out)
    q, k, v = w.cheap(a.query), w.cheap(a.key), w.cheap(a.value)
    full, row = ResultMeta(s.shape, within), along(s, [3], within)
    logs = a.logsumexp.reshaped(row.shape)
    p = w.stored(computed(w, full, "exp({s} - {l})", s=s, l=logs))
    both = computed(w, ResultMeta(g.shape, within), "{g} * {y}", g=g, y=y)
    dot = reduced(w, row, both, [3], "sum", keep=True)
    dp = contracted(w, full, (g, "bhid"), (v, "bhjd"), "bhij")
    scale = 1 / math.sqrt(q.shape[-1]) if a.scale is None else a.scale
    ds = w.stored(computed(w, full, "{p} * ({dp} - {d}) * {scale}", p=p, dp=dp, d=dot, scale=scale))
    return (
        contracted(w, out[0], (ds, "bhij"), (k, "bhjd"), "bhid"),
        contracted(w, out[1], (ds, "bhij"), (q, "bhid"), "bhjd"),
        contracted(w, out[2], (p, "bhij"), (g, "bhid"), "bhjd"),
    )
