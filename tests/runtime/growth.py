"""`python -m tests.runtime.growth --cycles 10000`: compile, call and drop kernels, and print how the process grew."""

from __future__ import annotations

import argparse
import gc

import numpy as np
import psutil

import polyker as pk
from polyker.api import compiling

LIMIT = 64 << 20  # bytes


def grown(cycles: int, warm: int = 100) -> int:
    """Return by how many bytes the process grows over `cycles` compiled and dropped kernels, each of another program."""
    process = psutil.Process()
    before = 0
    x = np.arange(6.0)
    for n in range(-warm, cycles):
        if n == 0:
            gc.collect()
            before = process.memory_info().rss
        operator = pk.op(f"y[i] = x[i] * {n + warm} + sum[k](x[k])")
        kernel = operator.compile(x)
        for _ in range(4):  # the later calls go through the emitted entry
            assert (operator(x) == x * (n + warm) + 15).all()
            kernel(x)
        compiling.kernels.clear()
    gc.collect()
    return process.memory_info().rss - before


def main() -> None:
    """Run the cycles, print the growth, and fail over the limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cycles", type=int, default=10_000)
    cycles = parser.parse_args().cycles
    bytes_ = grown(cycles)
    print(f"{cycles} cycles: {bytes_ / 2**20:.1f} MiB, {bytes_ / max(cycles, 1) / 1024:.2f} KiB each")
    if bytes_ > LIMIT:
        raise SystemExit(f"more than {LIMIT >> 20} MiB")


if __name__ == "__main__":
    main()
