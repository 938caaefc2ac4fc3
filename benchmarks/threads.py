"""`python -m benchmarks threads`: what a parallel region costs to start, and how much faster programs run on several cores.

For an idle machine: whatever else runs takes a core away.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import time
from collections.abc import Callable
from typing import Any

from benchmarks import process

HEAT = """heat(A: f64[N,N], steps) -> A:
    for t in 0:steps:
        B[i,j] = 0.2 * (A[i,j] + A[i-1,j] + A[i+1,j] + A[i,j-1] + A[i,j+1])  for i in 1:N-1, j in 1:N-1
        A[i,j] = B[i,j]  for i in 1:N-1, j in 1:N-1"""
ATTENTION = """
    S[b,q,k] = sum[d](Q[b,q,d] * K[b,k,d]) / 8
    P[b,q,k] = exp(S[b,q,k] - max[j](S[b,q,j]))
    O[b,q,d] = sum[k](P[b,q,k] * V[b,k,d]) / sum[k](P[b,q,k])"""
CASES: dict[str, tuple[str, tuple[tuple[int, ...], ...], str, dict[str, int]]] = {
    "matrix product 1024^3": ("C[i,j] += A[i,k] * B[k,j]", ((1024, 1024), (1024, 1024)), "f4", {}),
    "attention 8x384x64": (ATTENTION, ((8, 384, 64),) * 3, "f4", {}),
    "attention 16x1024x64": (ATTENTION, ((16, 1024, 64),) * 3, "f4", {}),
    "convolution 3x3, 8x56^2x64": (
        "O[n,f,h,w] = sum[c,r,s](X[n,c,h+r,w+s] * K[f,c,r,s])", ((8, 64, 58, 58), (64, 64, 3, 3)), "f4", {},
    ),
    "Jacobi 2000^2, 100 steps": (HEAT, ((2000, 2000),), "f8", {"steps": 100}),
    "softmax 3000x1000": (
        "Y[n,j] = exp(X[n,j] - max[k](X[n,k])) / sum[k](exp(X[n,k] - max[m](X[n,m])))", ((3000, 1000),), "f4", {},
    ),
    "sum of 16M": ("s += x[i]", ((1 << 24,),), "f4", {}),
    "triangular product 1000^3": ("L[i,j] += A[i,k] * A[j,k] where j <= i", ((1000, 1000),), "f4", {}),
}  # fmt: skip


def add_parser(commands: Any) -> None:
    """Add the command line of `threads`."""
    found = commands.add_parser("threads", help="what a region costs, and the speed-up on several cores")
    found.add_argument("--threads", type=int, default=2, help="cores to use; default: %(default)s")
    found.add_argument("--rounds", type=int, default=9, help="rounds, of which the median counts; default: %(default)s")
    found.add_argument(
        "--pauses", type=int, default=10, help="pauses of a second before a region; default: %(default)s"
    )
    found.add_argument("--all", action="store_true", help="each case of the benchmark instead of a few programs")
    found.add_argument("--case", default="*", help="with --all, a pattern of names; default: all")
    found.add_argument("--core", type=int, help="the first core to run on; default: the last ones")


def main(options: argparse.Namespace) -> int:
    """Measure and print; return 1 if the results on several threads are not those of one, bit by bit."""
    process.prepare(options.core, options.threads)
    if options.all:
        from benchmarks import threads_all
        from benchmarks.cases import select

        return threads_all.every_case(select((), options.case), options.threads, options.rounds)
    start_of_regions(options.threads, options.pauses)
    return speed(options.threads, options.rounds)


def region(threads: int) -> Callable[[int], float]:
    """Return a function that runs so many regions, with next to nothing in them, and returns the seconds it took."""
    import numpy as np

    from polyker.codegen.ir.kernel import Buffer, Const, For, KernelIR, LoopKind, Space, Store, Var
    from polyker.codegen.llvm.emit import emit
    from polyker.codegen.llvm.jit.build import build
    from polyker.codegen.llvm.jit.detect import host
    from polyker.ir.dtypes import f64
    from polyker.runtime.threads import runtime

    write = (Store("y", (Var("i"),), Const(1.0, f64)),)
    loop = For("i", Const(0), Const(8 * threads), write, 8, LoopKind.PARALLEL, threads)
    y = Buffer("y", f64, (Const(8 * threads),), (Const(1),), Space.ARGUMENT)
    kernel = KernelIR("kernel", (y,), ("R",), (For("r", Const(0), Var("R"), (loop,)),))
    code = build(emit(kernel, host()), host())
    function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)(code.address)
    array = np.zeros(8 * threads)
    pointers = (ctypes.c_void_p * 1)(array.ctypes.data)

    def run(count: int) -> float:
        integers = (ctypes.c_int64 * 2)(count, runtime())
        began = time.perf_counter()
        function(pointers, integers)
        return time.perf_counter() - began

    run.code = code  # type: ignore[attr-defined]  # the function points into it
    return run


def start_of_regions(threads: int, pauses: int) -> None:
    """Print what starting a region costs right after another, and after a second's pause."""
    run = region(threads)
    run(1000)
    empty = statistics.median(run(0) for _ in range(99))
    many = statistics.median((run(10_000) - empty) / 10_000 for _ in range(9))
    print(f"a region on {threads} threads right after another: {1e6 * many:.2f} us")
    rested = []
    for _ in range(pauses):
        time.sleep(1)
        rested.append(run(1) - empty)
    if rested:
        print(
            f"after a pause of a second: {1e6 * statistics.median(rested):.0f} us, at most {1e6 * max(rested):.0f} us"
        )
    time.sleep(0.01)
    before = time.process_time()
    time.sleep(0.5)
    print(f"idle from 10 ms after a region on: {100 * (time.process_time() - before) / 0.5:.2f} % of a core")


def speed(threads: int, rounds: int) -> int:
    """Print the time of each case on one thread and on several, in turns; return 1 if some bits differ."""
    import numpy as np

    from benchmarks.threads_all import alternating

    different = 0
    for name, (text, shapes, dtype, sizes) in CASES.items():
        rng = np.random.default_rng(1)
        inputs = [rng.standard_normal(s).astype(dtype) for s in shapes]
        one, several, same = alternating(text, sizes, inputs, threads, rounds)
        different += not same
        print(
            f"{name:28} {1e3 * one:9.3f} ms on one thread, {1e3 * several:9.3f} ms on {threads}: {one / several:5.2f} x"
            + ("" if same else "  DIFFERENT BITS")
        )
    return min(1, different)
