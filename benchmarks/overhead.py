"""What a call costs beside its work: `python -m benchmarks.overhead [--core 1] [--size 4]`. Three square matrices, f32.

With torch installed, tensors beside NumPy's arrays.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from benchmarks import process

CALLS = 2000
ROUNDS = 15
SIZE = 4


def contenders(size: int = SIZE) -> dict[str, Callable[[], Any]]:
    """Return the calls that are compared, all of one product of two matrices."""
    import numpy as np

    import polyker as pk

    A, B, C = (np.arange(size * size, dtype=np.float32).reshape(size, size) + n for n in range(3))
    operator = pk.op("C[i,j] += A[i,k] * B[k,j]")
    kernel = operator.compile(A, B)
    calls: dict[str, Callable[[], Any]] = {
        "kernel(A, B, out=C)": lambda: kernel(A, B, out=C),
        "kernel(A, B)": lambda: kernel(A, B),
        "kernel(A=A, B=B, out=C)": lambda: kernel(A=A, B=B, out=C),
        "op(A, B)": lambda: operator(A, B),
        "op(A, B, out=C)": lambda: operator(A, B, out=C),
        "pk.einsum('ik,kj->ij', A, B)": lambda: pk.einsum("ik,kj->ij", A, B),
        "np.matmul(A, B, out=C)": lambda: np.matmul(A, B, out=C),
        "np.matmul(A, B)": lambda: np.matmul(A, B),
        "np.einsum('ik,kj->ij', A, B)": lambda: np.einsum("ik,kj->ij", A, B),
        **on_tensors(kernel, operator, (A, B, C)),
        "nothing (the loop itself)": lambda: None,
    }
    return calls


def on_tensors(kernel: Any, operator: Any, arrays: tuple[Any, ...]) -> dict[str, Callable[[], Any]]:
    """Return calls on torch's tensors on the memory of arrays; none where torch is not installed."""
    try:
        import torch
    except ImportError:
        return {}
    A, B, C = map(torch.from_numpy, arrays)
    return {
        "kernel on tensors": lambda: kernel(A, B),
        "kernel on tensors, out=C": lambda: kernel(A, B, out=C),
        "op on tensors": lambda: operator(A, B),
        "op on tensors, out=C": lambda: operator(A, B, out=C),
        "torch.mm(A, B)": lambda: torch.mm(A, B),
        "torch.mm(A, B, out=C)": lambda: torch.mm(A, B, out=C),
    }


def main() -> None:
    """Print the microseconds a call, medians of rounds taken in turns."""
    found = argparse.ArgumentParser(prog="python -m benchmarks.overhead", description=__doc__)
    found.add_argument("--core", type=int, help="the core to run on; default: the last")
    found.add_argument("--size", type=int, default=SIZE, help="rows and columns of the matrices")
    given = found.parse_args()
    process.prepare(given.core)

    import statistics

    from benchmarks.timing import once

    calls = contenders(given.size)
    for call in calls.values():
        once(call, CALLS)
    rounds = [{name: once(call, CALLS) for name, call in calls.items()} for _ in range(ROUNDS)]
    for name in calls:
        times = [r[name] for r in rounds]
        print(f"{name:<32}{statistics.median(times) * 1e6:8.3f} us   least {min(times) * 1e6:.3f}")


if __name__ == "__main__":
    main()
