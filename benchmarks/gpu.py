"""`python -m benchmarks.gpu`: polyker on a CUDA device beside torch (cuBLAS, cuDNN), every result checked first.

Needs a GPU, nvcc and torch with CUDA; says so where something is missing. Random data; buffers are rotated so that more than
the L2 cache lies between two uses; times by CUDA events. Percentages are of the better of two floors: arithmetic at the
GPU's rate, and the bytes that must move at the bandwidth of a copy measured in the same run.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import polyker as pk
from polyker.compiling import target_named
from polyker.demo_cases import read_data

L2_BYTES = 64 << 20


@dataclass(frozen=True)
class Case:
    """One measurement: the text, its inputs' shapes, what torch computes, and operations (2 a multiply-add)."""

    name: str
    text: str
    shapes: tuple[tuple[int, ...], ...]
    torch: Callable[..., Any]
    flop: float


def cases(torch: Any) -> list[Case]:
    """Return all cases; all f32."""
    n = 4096
    softmax = "P[i,j] = exp(X[i,j] - max[k](X[i,k])) / sum[l](exp(X[i,l] - max[k](X[i,k])))"
    found = [
        Case("matmul-4096", "C[i,j] += A[i,k] * B[k,j]", ((n, n), (n, n)), torch.matmul, 2.0 * n**3),
        Case("matmul-at-4096", "C[i,j] += A[k,i] * B[k,j]", ((n, n), (n, n)), lambda a, b: a.T @ b, 2.0 * n**3),
        Case("sum-2^28", "s += X[i]", ((1 << 28,),), torch.sum, 2.0**28),
        Case("row-sums", "s[i] += X[i,j]", ((16384, 4096),), lambda x: x.sum(1), 16384.0 * 4096),
        Case("column-sums", "s[j] += X[i,j]", ((16384, 4096),), lambda x: x.sum(0), 16384.0 * 4096),
        Case("softmax", softmax, ((16384, 4096),), lambda x: torch.softmax(x, 1), 4 * 16384.0 * 4096),
        Case("transpose", "T[j,i] = X[i,j]", ((16384, 16384),), lambda x: x.T.contiguous(), 0.0),
        Case("axpy-2^28", "Z[i] = 2.5 * X[i] + Y[i]", ((1 << 28,), (1 << 28,)), lambda x, y: 2.5 * x + y, 2.0**29),
    ]
    for row in read_data("contractions.json")["contractions"]:
        sizes = row["f32"]
        inputs, output = row["einsum"].split("->")
        a, b = inputs.split(",")
        target, left, right = (",".join(labels) for labels in (output, a, b))
        found.append(
            Case(
                row["id"], f"C[{target}] += A[{left}] * B[{right}]", (tuple(sizes[x] for x in a), tuple(sizes[x] for x in b)),
                lambda x, y, e=row["einsum"]: torch.einsum(e, x, y), 2.0 * prod(sizes.values()),
            )
        )  # fmt: skip
    return found


def timed(torch: Any, work: Callable[[int], Any], rounds: int) -> float:
    """Return the median seconds of one run; `work` is told the number of the run, to rotate its buffers."""
    for n in range(3):
        work(n)
    spans = []
    for n in range(rounds):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        work(n)
        end.record()
        end.synchronize()
        spans.append(begin.elapsed_time(end) / 1e3)
    return statistics.median(spans)


def bandwidth(torch: Any, rounds: int) -> float:
    """Return the bytes a second that a copy of 1 GiB reads and writes."""
    source, sink = torch.empty(1 << 28, device="cuda"), torch.empty(1 << 28, device="cuda")
    return 2 * 4 * source.numel() / timed(torch, lambda _: sink.copy_(source), rounds)


def measured(torch: Any, case: Case, rounds: int, copy: float, flops: float) -> dict[str, Any]:
    """Return the figures of one case; raises AssertionError where the result is wrong."""
    size = 4 * sum(map(prod, case.shapes))
    copies = min(8, max(1, -(-2 * L2_BYTES // size)))
    inputs = [[torch.randn(shape, device="cuda") for shape in case.shapes] for _ in range(copies)]
    want = case.torch(*[x.double() for x in inputs[0]]) if size < 2 << 30 else case.torch(*inputs[0])
    kernel = pk.op(case.text).compile(*(pk.f32[shape] for shape in case.shapes), target="cuda")
    out = torch.empty(want.shape, device="cuda")
    kernel(*inputs[0], out=out)
    error = float((out.double() - want.double()).abs().max() / want.double().abs().max())
    assert error < 1e-4, f"{case.name}: the largest error is {error:.2g} of the largest value"
    ours = timed(torch, lambda n: kernel(*inputs[n % copies], out=out), rounds)
    theirs = timed(torch, lambda n: case.torch(*inputs[n % copies]), rounds)
    floor = max((size + 4 * want.numel()) / copy, case.flop / flops)
    return {"case": case.name, "polyker": ours, "torch": theirs, "floor": floor, "error": error}


def main(argv: list[str] | None = None) -> int:
    """Measure and print; returns 2 where there is no device, 1 where a result is wrong."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("--case", default="*", metavar="GLOB", help="only cases whose name matches")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--json", metavar="FILE", help="write all figures")
    options = parser.parse_args(argv)
    try:
        import torch

        if not torch.cuda.is_available():
            raise ImportError("torch finds no CUDA device")
        target = target_named("cuda")
    except (ImportError, pk.PolykerError) as error:
        print(f"nothing is measured: {error}")
        return 2
    torch.backends.cuda.matmul.allow_tf32 = False
    copy = bandwidth(torch, options.rounds)
    assert target.gpu is not None
    print(f"{torch.cuda.get_device_name()}, {target.name}; a copy moves {copy / 1e12:.2f} TB/s")
    print(f"{'case':20} {'polyker ms':>11} {'torch ms':>10} {'of floor':>9} {'x torch':>8}")
    figures, wrong = [], 0
    for case in cases(torch):
        if not fnmatch.fnmatch(case.name, options.case):
            continue
        try:
            f = measured(torch, case, options.rounds, copy, target.gpu.flops)
        except (AssertionError, pk.PolykerError) as error:
            print(f"{case.name:20} {error}")
            wrong += 1
            continue
        figures.append(f)
        share, ratio = f["floor"] / f["polyker"], f["torch"] / f["polyker"]
        print(
            f"{case.name:20} {1e3 * f['polyker']:11.3f} {1e3 * f['torch']:10.3f} {share:9.1%} {ratio:8.2f}", flush=True
        )
    if figures:
        print(
            f"geometric mean against torch: {statistics.geometric_mean(f['torch'] / f['polyker'] for f in figures):.2f}"
        )
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(figures, file, indent=1)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
