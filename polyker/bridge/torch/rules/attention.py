"""Write attention, and its gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from msgspec import Struct

from polyker.bridge.torch.indices import Extent, Subscript, Unsupported
from polyker.bridge.torch.kinds import converted, wide
from polyker.bridge.torch.loops import StatementLoops
from polyker.bridge.torch.rules.elementwise import computed
from polyker.bridge.torch.rules.products import summed
from polyker.bridge.torch.rules.reductions import along, reduced
from polyker.bridge.torch.rules.table import ResultMeta, rule
from polyker.bridge.torch.writer import TensorValue, Writer


class SeenPairs(Struct, frozen=True):
    """The pairs of queries i and keys j that see each other: all, or `causal`, keys up to the query's own place."""

    causal: bool

    def condition(self, query: Subscript, key: Subscript) -> str | None:
        """Return the condition for a pair to be one, None where all are."""
        return f"{key.text()} <= {query.text()}" if self.causal else None

    def of_rows(self, index: list[Subscript]) -> str | None:
        """Return the condition at subscripts whose last two are those of the query and the key."""
        return self.condition(*index[-2:])

    def stored(self, w: Writer, value: TensorValue) -> TensorValue:
        """Return a value of each pair, stored."""
        return w.assign(w.tensor(value.shape, value.dtype), value.read, where=self.of_rows)


def scores(w: Writer, a: SimpleNamespace, within: Any) -> tuple[TensorValue, SeenPairs]:
    """Return the scaled products of queries and keys, and the pairs that have one."""
    q, k = w.cheap(a.query), w.cheap(a.key)
    if a.dropout_p:
        raise Unsupported("attention with dropout")
    if q.shape[:2] != k.shape[:2] or not isinstance(q.shape[-1], int):
        raise Unsupported("attention whose queries and keys have other heads")
    scale = 1 / math.sqrt(q.shape[-1]) if a.scale is None else a.scale
    full, pairs = ResultMeta([*q.shape[:3], k.shape[2]], within), SeenPairs(a.is_causal)
    raw = contracted(w, full, (q, "bhid"), (k, "bhjd"), "bhij", pairs)
    if a.attn_mask is not None:
        return pairs.stored(
            w, computed(w, full, "{s} * {scale} + {mask_}", s=raw, scale=scale, mask_=a.attn_mask)
        ), pairs
    return pairs.stored(w, computed(w, full, "{s} * {scale}", s=raw, scale=scale)), pairs


def contracted(
    w: Writer,
    out: ResultMeta,
    left: tuple[TensorValue, str],
    right: tuple[TensorValue, str],
    labels: str,
    pairs: SeenPairs,
) -> TensorValue:
    """Return the stored contraction of two tensors, their dimensions given by letters, over pairs i, j or for each pair."""
    (a, of_a), (b, of_b) = left, right
    within = wide(out.dtype)
    extents: dict[str, Extent] = dict(zip(of_a, a.shape, strict=True)) | dict(zip(of_b, b.shape, strict=True))
    inner = [label for label in extents if label not in labels]

    def by_label(index: list[Subscript], ks: list[Subscript]) -> dict[str, Subscript]:
        return dict(zip(labels, index, strict=True)) | dict(zip(inner, ks, strict=True))

    def term(loops: StatementLoops, index: list[Subscript], ks: list[Subscript]) -> str:
        at = by_label(index, ks)
        x = converted(a.read(loops, [at[label] for label in of_a]), a.dtype, within)
        y = converted(b.read(loops, [at[label] for label in of_b]), b.dtype, within)
        return f"{x} * {y}"

    def of_terms(index: list[Subscript], ks: list[Subscript]) -> str | None:
        at = by_label(index, ks)
        return pairs.condition(at["i"], at["j"])

    summed_extents = [extents[label] for label in inner]
    if {"i", "j"} <= {*labels}:
        return summed(w, out, summed_extents, term, stored=pairs.of_rows)
    return summed(w, out, summed_extents, term, where=of_terms)


@rule("_scaled_dot_product_flash_attention_for_cpu")
def _attention(w: Writer, a: SimpleNamespace, out: Sequence[ResultMeta]) -> tuple[TensorValue | None, ...]:
    within = wide(out[0].dtype)
    s, pairs = scores(w, a, within)
    row, full = along(s, [3], within), ResultMeta(s.shape, within)
    top = reduced(w, row, s, [3], "max", keep=True, where=pairs.of_rows)
    terms = pairs.stored(w, computed(w, full, "exp({s} - {m})", s=s, m=top))
    total = reduced(w, row, terms, [3], "sum", keep=True, where=pairs.of_rows)
    raw = contracted(w, ResultMeta(out[0].shape, within), (terms, "bhij"), (w.cheap(a.value), "bhjd"), "bhid", pairs)
    y = computed(w, out[0], "{x} / {l}", x=raw, l=total)
    flat = [t.reshaped(out[1].shape) for t in (top, total)]
    return y, computed(w, out[1], "{m} + log({l})", m=flat[0], l=flat[1])


@rule("_scaled_dot_product_flash_attention_for_cpu_backward")
def _attention_backward(w: Writer, a: SimpleNamespace, out: Sequence[ResultMeta]) -> tuple[TensorValue | None, ...]:
    within = wide(out[0].dtype)
    s, pairs = scores(w, a, within)
    g, y = w.cheap(a.grad_out), w.cheap(a.out)
    q, k, v = w.cheap(a.query), w.cheap(a.key), w.cheap(a.value)
    full, row = ResultMeta(s.shape, within), along(s, [3], within)
    logs = a.logsumexp.reshaped(row.shape)
    p = pairs.stored(w, computed(w, full, "exp({s} - {l})", s=s, l=logs))
    both = computed(w, ResultMeta(g.shape, within), "{g} * {y}", g=g, y=y)
    dot = reduced(w, row, both, [3], "sum", keep=True)
    dp = contracted(w, full, (g, "bhid"), (v, "bhjd"), "bhij", pairs)
    scale = 1 / math.sqrt(q.shape[-1]) if a.scale is None else a.scale
    ds = pairs.stored(w, computed(w, full, "{p} * ({dp} - {d}) * {scale}", p=p, dp=dp, d=dot, scale=scale))
    return (
        contracted(w, out[0], (ds, "bhij"), (k, "bhjd"), "bhid", pairs),
        contracted(w, out[1], (ds, "bhij"), (q, "bhid"), "bhjd", pairs),
        contracted(w, out[2], (p, "bhij"), (g, "bhid"), "bhjd", pairs),
    )
