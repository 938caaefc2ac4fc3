"""Backward passes beside torch's alone: `python -m benchmarks.gradients [--core 1] [--case 'conv*']`. One core, f32.

polyker's is of `op.vjp_with_residuals()`, which reads what its forward pass has kept, as torch's does; with `--again` it is
`op.vjp()`, which computes again what it needs. Every gradient is compared with torch's before anything is timed.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from typing import Any

from msgspec import Struct

from benchmarks import process

SOFTMAX = "P[i,j] = exp(X[i,j] - max[k](X[i,k])) / sum[l](exp(X[i,l] - max[k](X[i,k])))"
ATTENTION = """S[h,i,j] = sum[d](Q[h,i,d] * K[h,j,d]) * 0.125
P[h,i,j] = exp(S[h,i,j] - max[k](S[h,i,k]))
Z[h,i] = sum[j](P[h,i,j])
A[h,i,j] = P[h,i,j] / Z[h,i]
O[h,i,d] += A[h,i,j] * V[h,j,d]"""
LAYER_NORM = """M[i] = mean[j](X[i,j])
D[i,j] = X[i,j] - M[i]
R[i] = rsqrt(mean[j](D[i,j]**2) + 1e-5)
Y[i,j] = D[i,j] * R[i] * g[j] + b[j]"""
# A tolerance of f32: relative to the largest element of a gradient.
ALLOWED = 1e-3


class Backward(Struct, frozen=True):
    """An operator with the shapes of its inputs, and the same in torch: from torch, its functions and the inputs."""

    name: str
    text: str
    shapes: dict[str, tuple[int, ...]]
    forward: Callable[..., Any]


CASES = (
    Backward("product/512", "C[i,j] += A[i,k] * B[k,j]", {"A": (512, 512), "B": (512, 512)}, lambda t, f, A, B: A @ B),
    Backward("product/tall", "C[i,j] += A[i,k] * B[k,j]", {"A": (4096, 64), "B": (64, 128)}, lambda t, f, A, B: A @ B),
    Backward(
        "product/batched", "C[b,i,j] += A[b,i,k] * B[b,k,j]", {"A": (32, 96, 64), "B": (32, 64, 80)}, lambda t, f, A, B: A @ B
    ),
    Backward(
        "linear/gelu", "Y[b,o] = gelu(sum[i](X[b,i] * W[o,i]) + p[o])", {"X": (256, 256), "W": (512, 256), "p": (512,)},
        lambda t, f, X, W, p: f.gelu(f.linear(X, W, p)),
    ),
    Backward(
        "conv/3x3", "O[n,f,i,j] += X[n,c,i+r,j+s] * W[f,c,r,s]", {"X": (4, 32, 30, 30), "W": (64, 32, 3, 3)},
        lambda t, f, X, W: f.conv2d(X, W),
    ),
    Backward(
        "conv/strided", "O[n,f,i,j] += X[n,c,2*i+r,2*j+s] * W[f,c,r,s]", {"X": (4, 32, 33, 33), "W": (64, 32, 3, 3)},
        lambda t, f, X, W: f.conv2d(X, W, stride=2),
    ),
    Backward(
        "conv/1x1", "O[n,f,i,j] += X[n,c,i,j] * W[f,c]", {"X": (4, 64, 28, 28), "W": (128, 64)},
        lambda t, f, X, W: f.conv2d(X, W[:, :, None, None]),
    ),
    Backward(
        "conv/depthwise", "O[n,c,i,j] += X[n,c,i+r,j+s] * W[c,r,s]", {"X": (4, 64, 30, 30), "W": (64, 3, 3)},
        lambda t, f, X, W: f.conv2d(X, W[:, None], groups=64),
    ),
    Backward("softmax/rows", SOFTMAX, {"X": (1024, 1024)}, lambda t, f, X: t.softmax(X, 1)),
    Backward("softmax/short", SOFTMAX, {"X": (8192, 64)}, lambda t, f, X: t.softmax(X, 1)),
    Backward(
        "layer norm/768", LAYER_NORM, {"X": (1024, 768), "g": (768,), "b": (768,)},
        lambda t, f, X, g, b: f.layer_norm(X, (768,), g, b),
    ),
    Backward(
        "attention/128", ATTENTION, {"Q": (8, 128, 64), "K": (8, 128, 64), "V": (8, 128, 64)},
        lambda t, f, Q, K, V: t.softmax(Q @ K.mT * 0.125, 2) @ V,
    ),
)  # fmt: skip


def prepared(case: Backward, *, again: bool) -> dict[str, Callable[[], Any]]:
    """Return the calls of a case, `again`: without residuals; raises AssertionError where polyker's gradients are not torch's."""
    import numpy as np
    import torch

    import polyker as pk

    rng = np.random.default_rng(0)
    x = {n: rng.standard_normal(s, dtype=np.float32) for n, s in case.shapes.items()}
    if "W" in x:  # such that results are about 1: far from it derivatives are 0 or denormal
        x["W"] /= np.float32(math.sqrt(math.prod(case.shapes["W"][1:])))
    given = [torch.tensor(a, requires_grad=True) for a in x.values()]
    result = case.forward(torch, torch.nn.functional, *given)
    weight = rng.standard_normal(tuple(result.shape), dtype=np.float32)
    weights = torch.tensor(weight)

    def by_torch() -> Any:
        return torch.autograd.grad(result, given, weights, retain_graph=True)

    op = pk.op(case.text)
    forward, backward = (op, op.vjp()) if again else op.vjp_with_residuals()
    kept = forward(**{n: x[n] for n in forward.signature.inputs})
    several = kept if len(forward.signature.outputs) > 1 else (kept,)
    every = {**x, **dict(zip(forward.signature.outputs, several, strict=True)), backward.signature.inputs[-1]: weight}
    kernel = backward.compile(**{n: every[n] for n in backward.signature.inputs})
    arguments = [every[n] for n in backward.signature.inputs]
    found = kernel(*arguments)
    for one, other in zip(found if len(given) > 1 else (found,), by_torch(), strict=True):
        assert abs(one - other.numpy()).max() <= ALLOWED * abs(one).max(), case.name
    return {"polyker": lambda: kernel(*arguments), "torch": by_torch}


def rows(cases: list[Backward], rounds: int, *, again: bool) -> Iterator[tuple[str, float, float]]:
    """Yield the name of each case with the seconds of polyker and of torch, medians of rounds taken in turns."""
    from benchmarks.timing import in_turns

    for case in cases:
        times = in_turns(prepared(case, again=again), rounds, keep="polyker", enough=0.25)
        yield case.name, times["polyker"].median, times["torch"].median


def main() -> None:
    """Print a row a case, and the geometric mean of the ratios."""
    found = argparse.ArgumentParser(prog="python -m benchmarks.gradients", description=__doc__)
    found.add_argument("--core", type=int, help="the core to run on; default: the last")
    found.add_argument("--case", default="*", metavar="GLOB", help="only cases whose name matches")
    found.add_argument("--rounds", type=int, default=7, help="rounds, of which the median counts; default: %(default)s")
    found.add_argument("--again", action="store_true", help="backward passes that compute again what they need")
    options = found.parse_args()
    process.prepare(options.core)
    ratios = []
    print(f"{'backward':<20}{'polyker ms':>12}{'torch ms':>12}{'torch / polyker':>18}")
    chosen = [c for c in CASES if fnmatch(c.name, options.case)]
    for name, ours, theirs in rows(chosen, options.rounds, again=options.again):
        ratios.append(theirs / ours)
        print(f"{name:<20}{ours * 1e3:12.3f}{theirs * 1e3:12.3f}{ratios[-1]:18.2f}", flush=True)
    if ratios:
        print(f"geometric mean {math.exp(sum(map(math.log, ratios)) / len(ratios)):.2f}, least {min(ratios):.2f}")


if __name__ == "__main__":
    main()
