"""What is measured on a GPU of neural networks and of counting: attention, linear layers, norms, losses, histograms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.gpu.case import Case

_HEADS, _LONG, _WIDE = 16, 1024, 64
_SHARED = 4  # heads that have their keys and values in common
_SCALE = 0.125
_ATTENTION = """S[h,i,j] = 0.125 * sum[d](Q[h,i,d] * K[{h},j,d])
P[h,i,j] = exp(S[h,i,j] - max[k](S[h,i,k])) / sum[l](exp(S[h,i,l] - max[k](S[h,i,k])))
O[h,i,d] += P[h,i,j] * V[{h},j,d]"""
_CAUSAL = """S[h,i,j] = 0.125 * sum[d](Q[h,i,d] * K[h,j,d]) where j <= i
m[h,i] max= S[h,i,j] where j <= i
E[h,i,j] = exp(S[h,i,j] - m[h,i]) where j <= i
O[h,i,d] = sum[j](E[h,i,j] * V[h,j,d] where j <= i) / sum[j](E[h,i,j] where j <= i)"""
_RMS = "O[n,c] = X[n,c] * rsqrt(mean[k](X[n,k] * X[n,k]) + 1e-6) * g[c]"
_BINS = 1024


def _attention() -> list[Case]:
    whole, few = (_HEADS, _LONG, _WIDE), (_HEADS // _SHARED, _LONG, _WIDE)
    flop = 4.0 * _HEADS * _LONG * _LONG * _WIDE

    def peer(**options: bool) -> Callable[..., Any]:
        # Scaled dot products want a dimension of the batch before that of the heads.
        return lambda torch, *xs: torch.nn.functional.scaled_dot_product_attention(
            *(x[None] for x in xs), scale=_SCALE, **options
        )[0]

    found = []
    for dtype in ("f32", "bf16"):
        for name, text, keys, work, options in (
            ("attention", _ATTENTION.format(h="h"), whole, flop, {}),
            ("attention-causal", _CAUSAL, whole, flop / 2, {"is_causal": True}),
            ("attention-grouped", _ATTENTION.format(h=f"h//{_SHARED}"), few, flop, {"enable_gqa": True}),
        ):
            tiny = ((4, 12, 8), (4 * keys[0] // _HEADS, 12, 8), (4 * keys[0] // _HEADS, 12, 8))
            found.append(
                Case(
                    f"{name}-{dtype}", "attention", text, (whole, keys, keys), peer(**options), work, (dtype,) * 3,
                    linear=False, unit=dtype, tiny=tiny,
                )
            )  # fmt: skip
    return found


def _layers() -> list[Case]:
    rows, width, more = 8192, 1024, 4096
    found = []
    for dtype in ("f32", "bf16"):
        found += [
            Case(
                f"linear-gelu-{dtype}", "linear", "O[n,m] = gelu(sum[k](X[n,k] * W[m,k]) + b[m])",
                ((rows, width), (more, width), (more,)),
                lambda torch, x, w, b: torch.nn.functional.gelu(torch.nn.functional.linear(x, w, b)),
                2.0 * rows * width * more, (dtype,) * 3, linear=False, unit=dtype,
            ),
            Case(
                f"rms-norm-{dtype}", "row-wise" if dtype == "f32" else "row-wise-half", _RMS, ((16384, 4096), (4096,)),
                lambda torch, x, g: torch.nn.functional.rms_norm(x, x.shape[1:], g, 1e-6), 4.0 * 16384 * 4096,
                (dtype,) * 2, linear=False,
            ),
        ]  # fmt: skip
    found.append(
        Case(
            "cross-entropy", "loss", "L[n] = logsumexp[v](X[n,v]) - X[n, t[n]]", ((8192, 32000), (8192,)),
            lambda torch, x, t: torch.nn.functional.cross_entropy(x, t, reduction="none"), 4.0 * 8192 * 32000,
            indices=(1,), bound=(0, 1), linear=False,
        )
    )  # fmt: skip
    return found


def _counts() -> list[Case]:
    """Return sums into places that indices say."""
    n = 1 << 22
    return [
        Case(
            "histogram-2^22", "scatter", f"f(idx: i64[N]) -> H:\n    H: i64[{_BINS}]\n    H[idx[i]] += 1", ((n,),),
            lambda torch, i: torch.bincount(i, minlength=_BINS), 0.0, indices=(0,), bound=_BINS,
        ),
        Case(
            "scatter-add", "scatter", f"f(idx: i64[N], X: [N,D]) -> H:\n    H: [{_BINS},D]\n    H[idx[i],d] += X[i,d]",
            ((65536,), (65536, 64)),
            lambda torch, i, x: torch.zeros(_BINS, x.shape[1], dtype=x.dtype, device=x.device).index_add_(0, i, x),
            65536.0 * 64, indices=(0,), bound=_BINS,
        ),
    ]  # fmt: skip


def networks() -> list[Case]:
    """Return attention, linear layers, norms, cross-entropy and histograms."""
    return [*_attention(), *_layers(), *_counts()]
