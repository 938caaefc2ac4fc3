"""Throughput of the vector functions beside numpy's and torch's: `python -m benchmarks.vecmath [function ...]`.

Of what numpy lacks, the column numpy is scipy's.
Nanoseconds an element for arrays in L1, on one core (pin it: `taskset -c 1`): the difference between a quarter and a
sixteenth of L1 of each, all on cache lines, so that nobody's cost of a call counts. polyker's column is the best of one, two
and four vectors at a time, as a kernel may choose. torch is used if it is installed; its gelu in f32 is not an equal, see
docs/accuracy.md.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from polyker.codegen.llvm.jit.detect import host
from polyker.codegen.vecmath.functions import arity
from polyker.ir.dtypes import DType, f32, f64
from tests.codegen.vecmath_harness import HAS_AVX512, Compiled
from tests.codegen.vecmath_reference import REAL_OPS

try:
    import scipy.special as scipy
except ImportError:
    scipy = None
try:
    import torch
except ImportError:
    torch = None

# Their names in numpy and scipy, and the ends of the intervals of their arguments, where these differ.
NAMES = {
    "pow": "power", "asin": "arcsin", "acos": "arccos", "atan": "arctan", "atan2": "arctan2", "asinh": "arcsinh",
    "acosh": "arccosh", "atanh": "arctanh", "lgamma": "gammaln",
}  # fmt: skip
INTERVALS = {**dict.fromkeys(("asin", "acos", "atanh", "erfinv"), (-0.999, 0.999)), "acosh": (1.0, 10.0)}
# Bytes: three arrays and what else is used stay in L1.
LARGE = host().caches[0].size // 4
SMALL = LARGE // 4


def seconds(call: Callable[[], object], repeats: int = 200) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - start) / repeats


def aligned(count: int, dtype: DType) -> np.ndarray:
    """Return an array at the beginning of a cache line."""
    room = np.empty(count * dtype.itemsize + 64, np.uint8)
    start = -room.ctypes.data % 64
    return room[start : start + count * dtype.itemsize].view(dtype.numpy)


def slope(large: Callable[[], object], small: Callable[[], object], itemsize: int, rounds: int = 30) -> float:
    """Return the time an element in ns, from the best of `rounds` alternating runs of each."""
    times = [(seconds(large), seconds(small)) for _ in range(rounds)]
    return (min(t[0] for t in times) - min(t[1] for t in times)) / ((LARGE - SMALL) // itemsize) * 1e9


def ours(op: str, dtype: DType, lanes: int, inputs: list[np.ndarray], out: np.ndarray) -> float:
    function = Compiled(op, dtype, lanes, avx512=HAS_AVX512)
    pointers, size = [a.ctypes.data for a in [*inputs, out]], dtype.itemsize
    return slope(lambda: function.run(*pointers, LARGE // size), lambda: function.run(*pointers, SMALL // size), size)


def numpys(op: str, inputs: list[np.ndarray], out: np.ndarray) -> float | None:
    name = NAMES.get(op, op)
    function = getattr(np, name, None) or getattr(scipy, name, None)
    if function is None:
        return None
    size = out.itemsize
    few, short = [a[: SMALL // size] for a in inputs], out[: SMALL // size]
    return slope(lambda: function(*inputs, out=out), lambda: function(*few, out=short), size)


def torchs(op: str, inputs: list[np.ndarray], out: np.ndarray) -> float | None:
    if torch is None:
        return None
    torch.set_num_threads(1)
    size = out.itemsize
    # Both are tensors of their own: a view of another one costs 60 ns a call more.
    tensors, few = [torch.from_numpy(a) for a in inputs], [torch.from_numpy(a[: SMALL // size]) for a in inputs]
    function: Any = getattr(torch, op, None)
    if function is None:
        function = getattr(torch.nn.functional, op, None)
        if function is None:
            return None
        return slope(lambda: function(*tensors), lambda: function(*few), size)
    full, short = torch.from_numpy(out), torch.from_numpy(out[: SMALL // size])
    return slope(lambda: function(*tensors, out=full), lambda: function(*few, out=short), size)


def main(ops: list[str]) -> None:
    print(f"{'function':10}{'type':6}{'polyker':>9}{'numpy':>9}{'torch':>9}{'ratio':>8}   ns an element")
    rng = np.random.default_rng(0)
    for op in ops:
        for dtype, lanes in ((f32, 16), (f64, 8)):
            count = LARGE // dtype.itemsize
            inputs = [aligned(count, dtype) for _ in range(arity(op))]
            for array, (low, high) in zip(inputs, (INTERVALS.get(op, (0.1, 10.0)), (-3.0, 3.0)), strict=False):
                array[:] = rng.uniform(low, high, count)
            out = aligned(count, dtype)
            mine = min(ours(op, dtype, n, inputs, out) for n in (lanes, 2 * lanes, 4 * lanes))
            peers = [numpys(op, inputs, out), torchs(op, inputs, out)]
            known = [p for p in peers if p is not None]
            ratio = f"{min(known) / mine:8.2f}" if known else ""
            shown = "".join(f"{p:9.3f}" if p is not None else f"{'-':>9}" for p in peers)
            print(f"{op:10}{dtype.name:6}{mine:9.3f}{shown}{ratio}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:] or list(REAL_OPS))
