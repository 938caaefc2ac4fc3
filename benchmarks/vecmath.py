"""Throughput of the vector functions beside numpy's and torch's: `python -m benchmarks.vecmath [function ...]`.

Nanoseconds an element for arrays in L1, on one core (pin it: `taskset -c 1`): the difference between 4096 and 1024 elements,
so that nobody's cost of a call counts. polyker's column is the better of one and of four vectors at a time, as a kernel may
choose. torch is used if it is installed; its gelu in f32 is not an equal, see docs/accuracy.md.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from polyker.ir.dtypes import DType, f32, f64
from tests.codegen.vecmath_harness import Compiled
from tests.codegen.vecmath_reference import REAL_OPS

try:
    import torch
except ImportError:
    torch = None

LARGE, SMALL = 4096, 1024


def seconds(call: Callable[[], object], repeats: int = 30) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - start) / repeats


def slope(large: Callable[[], object], small: Callable[[], object], rounds: int = 30) -> float:
    """Return the time an element in ns, from the best of `rounds` alternating runs of each."""
    times = [(seconds(large), seconds(small)) for _ in range(rounds)]
    return (min(t[0] for t in times) - min(t[1] for t in times)) / (LARGE - SMALL) * 1e9


def ours(op: str, dtype: DType, lanes: int, inputs: list[np.ndarray], out: np.ndarray) -> float:
    function = Compiled(op, dtype, lanes)
    pointers = [a.ctypes.data for a in [*inputs, out]]
    return slope(lambda: function.run(*pointers, LARGE), lambda: function.run(*pointers, SMALL))


def numpys(op: str, inputs: list[np.ndarray], out: np.ndarray) -> float | None:
    function = {"pow": np.power}.get(op) or getattr(np, op, None)
    if function is None:
        return None
    few, short = [a[:SMALL] for a in inputs], out[:SMALL]
    return slope(lambda: function(*inputs, out=out), lambda: function(*few, out=short))


def torchs(op: str, inputs: list[np.ndarray], out: np.ndarray) -> float | None:
    if torch is None:
        return None
    torch.set_num_threads(1)
    tensors = [torch.from_numpy(a) for a in inputs]
    few = [t[:SMALL] for t in tensors]
    function: Any = getattr(torch, op, None)
    if function is None or op == "relu":
        function = getattr(torch.nn.functional, op)
        return slope(lambda: function(*tensors), lambda: function(*few))
    full = torch.from_numpy(out)
    short = full[:SMALL]
    return slope(lambda: function(*tensors, out=full), lambda: function(*few, out=short))


def main(ops: list[str]) -> None:
    print(f"{'function':10}{'type':6}{'polyker':>9}{'numpy':>9}{'torch':>9}{'ratio':>8}   ns an element")
    rng = np.random.default_rng(0)
    for op in ops:
        for dtype, lanes in ((f32, 16), (f64, 8)):
            kind = dtype.numpy
            inputs = [rng.uniform(0.1, 10, LARGE).astype(kind)]
            if op == "pow":
                inputs.append(rng.uniform(-3, 3, LARGE).astype(kind))
            out = np.empty(LARGE, kind)
            mine = min(ours(op, dtype, n, inputs, out) for n in (lanes, 4 * lanes))
            peers = [numpys(op, inputs, out), torchs(op, inputs, out)]
            known = [p for p in peers if p is not None]
            ratio = f"{min(known) / mine:8.2f}" if known else ""
            shown = "".join(f"{p:9.3f}" if p is not None else f"{'-':>9}" for p in peers)
            print(f"{op:10}{dtype.name:6}{mine:9.3f}{shown}{ratio}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:] or list(REAL_OPS))
