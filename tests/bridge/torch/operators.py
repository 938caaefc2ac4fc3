"""Operators of different families, and all that torch checks of them: `python -m tests.bridge.torch.operators`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import torch

import polyker as pk

ROOTS = torch.Generator().manual_seed(0)


def r(*shape: int) -> Any:
    return torch.randn(shape, generator=ROOTS, dtype=torch.float64)


HEAT = """heat(A: f64[N,N], steps) -> A:
    for t in 0:steps:
        B[i,j] = 0.25 * (A[i-1,j] + A[i+1,j]) for i in 1:N-1, j in 0:N
        A[i,j] = B[i,j] for i in 1:N-1, j in 0:N"""
EXP = "exp(X[i,j] - max[k](X[i,k]))"
CASES: dict[str, tuple[str, tuple[Any, ...], dict[str, int]]] = {
    "product": ("C[i,j] += A[i,k] * B[k,j]", (r(3, 4), r(4, 2)), {}),
    "conv": ("O[n,f,h] += X[n,c,2*h+r] * K[f,c,r]", (r(2, 3, 7), r(2, 3, 3)), {}),
    "softmax": (f"P[i,j] = {EXP} / sum[l](exp(X[i,l] - max[k](X[i,k])))", (r(3, 4),), {}),
    "attention": (
        "S[i,j] = sum[d](Q[i,d]*K[j,d]) * 0.5; P[i,j] = exp(S[i,j] - max[k](S[i,k]))\n"
        "O[i,d] = sum[j](P[i,j]*V[j,d]) / sum[l](P[i,l])",
        (r(2, 2), r(3, 2), r(3, 2)),
        {},
    ),
    "layer_norm": (
        "m[i] = mean[k](X[i,k]); v[i] = mean[k]((X[i,k] - m[i])**2); Y[i,j] = (X[i,j] - m[i]) * rsqrt(v[i] + 1e-5) * w[j] + b[j]",
        (r(2, 4), r(4), r(4)),
        {},
    ),
    "pool": ("O[i] max= X[2*i+k] for i in 0:3, k in 0:2", (r(6),), {}),
    "embedding": ("E[b,d] = T[I[b],d]", (r(5, 3), torch.tensor([1, 4, 1])), {}),
    "logsumexp": ("L[i] = logsumexp[k](X[i,k])", (r(3, 4),), {}),
    "stencil": ("O[h] = 0.5*X[h; pad=0] + X[h+1; pad=0] - X[h-1; pad=0] for h in 0:H", (r(5),), {"H": 5}),
    "recurrence": ("S[t] = a * S[t-1; pad=0] + X[t]", (r(), r(6)), {}),
    "triangular": ("L[i,j] += A[i,k] * A[j,k] where j <= i", (r(4, 3),), {}),
    "in_out": (HEAT, (r(4, 4),), {"steps": 2}),
}


def check_operator(name: str, *, twice: bool = True) -> None:
    """Check an operator: opcheck's tests, gradients (`twice`: gradients of these, too), and vmap."""
    text, args, sizes = CASES[name]
    made = pk.torch.op(text, name)
    given = [a.clone().requires_grad_() if a.is_floating_point() else a for a in args]
    found = torch.library.opcheck(made.custom, (*given, *sizes.values()))
    assert set(found.values()) == {"SUCCESS"}

    def call(*tensors: Any) -> Any:
        return made(*tensors, **sizes)

    want = pk.op(text)(*(a.numpy() for a in args), **sizes)
    for a, b in zip(several(call(*given)), several(want), strict=True):
        torch.testing.assert_close(a.detach(), torch.as_tensor(b))
    assert torch.autograd.gradcheck(call, given)
    if twice:
        assert torch.autograd.gradgradcheck(call, given)
    stacked = [torch.stack([a, a * 2 if a.is_floating_point() else a]) for a in args]
    rows = [several(call(*(a[k] for a in stacked))) for k in range(2)]
    for k, batch in enumerate(several(torch.vmap(call)(*stacked))):
        torch.testing.assert_close(batch, torch.stack([row[k] for row in rows]))


def several(result: Any) -> Sequence[Any]:
    return result if isinstance(result, tuple) else (result,)


if __name__ == "__main__":
    for name in sys.argv[1:] or CASES:
        torch._dynamo.reset()
        check_operator(name)
        print(name, "is right")
